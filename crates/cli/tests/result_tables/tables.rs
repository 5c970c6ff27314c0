// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each table shows, and of which record.

use paceline_report::quantity::{self, Scale};

use super::record::Record;

/// All tables, sorted.
pub const NAMES: [&str; 6] = [
    "claims",
    "costs",
    "failed-claims",
    "gains",
    "phase-switch",
    "startup",
];

/// The table of that name in Markdown, if there is one.
pub fn table(name: &str) -> Option<String> {
    Some(match name {
        "gains" => gains(),
        "startup" => startup(),
        "costs" => costs(),
        "claims" => claims(),
        "failed-claims" => failed_claims(),
        "phase-switch" => phase_switch(),
        _ => return None,
    })
}

/// One metric of one record under stock TCP and under Paceline.
struct Comparison {
    /// What is measured, for the reader.
    what: &'static str,
    folder: &'static str,
    metric: &'static str,
    /// The variant of the record that is Paceline.
    paceline: &'static str,
}

const GAINS: [Comparison; 10] = [
    Comparison {
        what: "1 MB after a pause",
        folder: "startup-pacing",
        metric: "completion_s/1MB",
        paceline: "paceline",
    },
    Comparison {
        what: "10 MB after a pause",
        folder: "startup-pacing",
        metric: "completion_s/10MB",
        paceline: "paceline",
    },
    Comparison {
        what: "1 MB over 16 connections, after a pause",
        folder: "startup-sixteen",
        metric: "completion_s/1MB/16",
        paceline: "paceline",
    },
    Comparison {
        what: "10 MB over 16 connections, after a pause",
        folder: "startup-sixteen",
        metric: "completion_s/10MB/16",
        paceline: "paceline",
    },
    Comparison {
        what: "nginx sends 1 MB after a pause (live)",
        folder: "servers-live",
        metric: "time_s/nginx/1MB",
        paceline: "paceline",
    },
    Comparison {
        what: "MPI: one rank sends 50 MB right after an all-to-all",
        folder: "phase-switch",
        metric: "completion_s/50MB",
        paceline: "paceline",
    },
    Comparison {
        what: "MPI: skeletons of seven NAS benchmarks, geometric mean",
        folder: "npb-skeleton",
        metric: "time_s/mean",
        paceline: "paceline",
    },
    Comparison {
        what: "MPI: all-to-all of 32 KB on a LAN, rate per rank",
        folder: "alltoall-lan",
        metric: "bandwidth_bps/32KB",
        paceline: "lfn",
    },
    Comparison {
        what: "Incast: 64 hosts answer one, 8 KB each",
        folder: "incast/all",
        metric: "round_s/8KB/64/32KiB",
        paceline: "lfn",
    },
    Comparison {
        what: "32 parallel streams of 16 MB, end of the last one",
        folder: "decp",
        metric: "last_s",
        paceline: "paceline",
    },
];

const COSTS: [Comparison; 5] = [
    Comparison {
        what: "CPU time to send 1 GB in one transfer",
        folder: "cost",
        metric: "cpu_s/GB",
        paceline: "paceline",
    },
    Comparison {
        what: "CPU time to send 1 MB after a pause",
        folder: "pacing-overhead",
        metric: "cpu_s/1MB/20ms",
        paceline: "paceline",
    },
    Comparison {
        what: "CPU time to send 10 MB after a pause",
        folder: "pacing-overhead",
        metric: "cpu_s/10MB/20ms",
        paceline: "paceline",
    },
    Comparison {
        what: "Goodput of a stock CUBIC flow beside one such flow",
        folder: "fairness",
        metric: "goodput_bps/beside",
        paceline: "paceline",
    },
    Comparison {
        what: "Goodput of four stock CUBIC flows beside 16 such bursty flows",
        folder: "fairness-bursty",
        metric: "goodput_bps/bulk",
        paceline: "paceline",
    },
];

/// Rows as Markdown, the first one as heading.
fn markdown(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
        if number == 0 {
            text.push_str(&format!("|{}\n", "---|".repeat(row.len())));
        }
    }
    text
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Three significant digits and the unit.
fn value(metric: &str, value: f64) -> String {
    Scale::fit(metric, [value]).with_unit(value)
}

/// Two significant digits in percent; `value` is a share of one.
fn percent(value: f64) -> String {
    match value * 100.0 {
        p if p >= 10.0 => format!("{p:.0} %"),
        p if p >= 1.0 => format!("{p:.1} %"),
        p if p >= 0.01 => format!("{p:.2} %"),
        _ => "< 0.01 %".to_owned(),
    }
}

/// The median of `metric`, and the share of segments that were retransmitted meanwhile, if any.
fn cell(record: &Record, variant: &str, metric: &str) -> String {
    let median = record.median(variant, metric).unwrap_or_else(|| {
        panic!("{}: `{variant}` has no `{metric}`", record.folder);
    });
    let tail = metric.strip_prefix(quantity::family(metric));
    let share = format!("retransmitted_share{}", tail.expect("a tail"));
    match record.median(variant, &share) {
        Some(share) if share > 0.0 => {
            format!("{}, {}", value(metric, median), percent(share))
        }
        _ => value(metric, median),
    }
}

/// The physical limit of `metric`, where it has one.
fn bound(record: &Record, metric: &str) -> String {
    let bound = record.results.bounds.get(metric);
    bound.map_or(String::new(), |&bound| value(metric, bound))
}

/// Rate, round trip and queue of the bottleneck, as asked for.
fn path(record: &Record) -> String {
    let link = &record.results.link;
    let rtt_s = 2.0 * link.one_way_delay_s.asked;
    let mut parts = vec![quantity::alone("rate_bps", link.rate_bps.asked)];
    if rtt_s > 0.0 {
        parts.push(quantity::alone("rtt_s", rtt_s));
    }
    parts.push(quantity::alone("buffer_bytes", link.buffer_bytes as f64));
    parts.join(", ")
}

fn gains() -> String {
    let heading = words(&["", "path", "CUBIC", "BBR", "Paceline", "bound"]);
    let mut rows = vec![heading];
    for row in &GAINS {
        let record = Record::read(row.folder);
        rows.push(vec![
            row.what.to_owned(),
            path(&record),
            cell(&record, "cubic", row.metric),
            cell(&record, "bbr", row.metric),
            format!("**{}**", cell(&record, row.paceline, row.metric)),
            bound(&record, row.metric),
        ]);
    }
    markdown(&rows)
}

fn costs() -> String {
    let mut rows = vec![words(&["", "CUBIC", "Paceline", "ratio"])];
    for row in &COSTS {
        let record = Record::read(row.folder);
        let [stock, ours] = ["cubic", row.paceline].map(|variant| {
            let median = record.median(variant, row.metric);
            median.unwrap_or_else(|| panic!("{}: {variant}", row.folder))
        });
        rows.push(vec![
            row.what.to_owned(),
            value(row.metric, stock),
            value(row.metric, ours),
            quantity::ratio(ours / stock),
        ]);
    }
    markdown(&rows)
}

/// The record's bounds, then a row per variant.
fn variants(record: &Record, columns: &[(&str, &str)], rows: &[(&str, &str)]) -> String {
    let headings = columns.iter().map(|(heading, _)| (*heading).to_owned());
    let bounds = columns.iter().map(|(_, metric)| bound(record, metric));
    let mut table = vec![
        [String::new()].into_iter().chain(headings).collect(),
        ["bound".to_owned()].into_iter().chain(bounds).collect(),
    ];
    for (label, variant) in rows {
        let mut row = vec![(*label).to_owned()];
        row.extend(
            columns
                .iter()
                .map(|(_, metric)| cell(record, variant, metric)),
        );
        table.push(row);
    }
    markdown(&table)
}

fn startup() -> String {
    variants(
        &Record::read("startup-pacing"),
        &[
            ("100 KB", "completion_s/100KB"),
            ("1 MB", "completion_s/1MB"),
            ("10 MB", "completion_s/10MB"),
        ],
        &[
            ("CUBIC", "cubic"),
            ("CUBIC without idle restart", "cubic-no-idle-restart"),
            ("BBR", "bbr"),
            ("pacing as in matsuda-2005", "paper"),
            ("**Paceline**", "paceline"),
            ("Paceline, packets of 64 KB (TSO)", "paceline+tso"),
        ],
    )
}

fn phase_switch() -> String {
    variants(
        &Record::read("phase-switch"),
        &[
            ("90 % of the link after", "rate_recovered_s/50MB"),
            ("50 MB sent after", "completion_s/50MB"),
        ],
        &[
            ("CUBIC", "cubic"),
            ("CUBIC without idle restart", "cubic-no-idle-restart"),
            ("BBR", "bbr"),
            ("phases as in matsuda-2005", "paper"),
            ("Paceline", "paceline"),
            ("Paceline without phases", "no-phases"),
        ],
    )
}

fn claims() -> String {
    let records = Record::all();
    let all: usize = records
        .iter()
        .map(|record| record.results.holds.len())
        .sum();
    let failed: usize = records.iter().map(|record| record.failed().count()).sum();
    format!(
        "The committed records of {} experiments check {all} claims; {failed} of these fail.",
        records.len()
    )
}

fn failed_claims() -> String {
    let mut rows = vec![words(&["record", "claim", "found"])];
    for record in Record::all() {
        for hold in record.failed() {
            rows.push(vec![
                record.folder.clone(),
                format!("`{}`", hold.claim),
                quantity::value(hold.value),
            ]);
        }
    }
    markdown(&rows)
}
