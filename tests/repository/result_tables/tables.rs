// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each table shows, and of which record.

use paceline_report::quantity::{self, Scale};

use super::random_paths;
use super::record::Record;

/// All tables, sorted.
pub const NAMES: [&str; 11] = [
    "alltoall-lan",
    "claims",
    "costs",
    "decp",
    "failed-claims",
    "gains",
    "incast",
    "ligon-alltoall-sim",
    "phase-switch",
    "random-paths",
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
        "incast" => incast(),
        "alltoall-lan" => alltoall_lan(),
        "decp" => decp(),
        "ligon-alltoall-sim" => ligon_alltoall_sim(),
        "random-paths" => markdown(&random_paths::table()),
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

const GAINS: [Comparison; 11] = [
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
        what: "nginx sends 1 MB after a pause",
        folder: "servers",
        metric: "time_s/nginx/1MB",
        paceline: "paceline",
    },
    Comparison {
        what: "PyTorch (Gloo): four ranks reduce 1 MiB",
        folder: "gloo",
        metric: "time_s/all_reduce/p50",
        paceline: "lfn",
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

fn cells(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&word| word.to_owned()).collect()
}

/// Three significant digits and the unit.
fn value(metric: &str, value: f64) -> String {
    Scale::fit(metric, [value]).with_unit(value)
}

/// Two significant digits in percent; `value` is a share of one.
pub(super) fn percent(value: f64) -> String {
    match value * 100.0 {
        p if p >= 10.0 => format!("{p:.0} %"),
        p if p >= 1.0 => format!("{p:.1} %"),
        p if p >= 0.01 => format!("{p:.2} %"),
        _ => "< 0.01 %".to_owned(),
    }
}

/// The median of `metric`.
fn median(record: &Record, variant: &str, metric: &str) -> f64 {
    let median = record.median(variant, metric);
    median.unwrap_or_else(|| panic!("{}: `{variant}` has no `{metric}`", record.folder))
}

/// The median of `metric`, and the share of segments that were retransmitted meanwhile, if any.
fn cell(record: &Record, variant: &str, metric: &str) -> String {
    let median = median(record, variant, metric);
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
    let heading = cells(&["", "path", "CUBIC", "BBR", "Paceline", "bound"]);
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
    rows.push(random_paths::gain());
    markdown(&rows)
}

fn costs() -> String {
    let mut rows = vec![cells(&["", "CUBIC", "Paceline", "ratio"])];
    for row in &COSTS {
        let record = Record::read(row.folder);
        let stock = median(&record, "cubic", row.metric);
        let ours = median(&record, row.paceline, row.metric);
        rows.push(vec![
            row.what.to_owned(),
            value(row.metric, stock),
            value(row.metric, ours),
            quantity::ratio(ours / stock),
        ]);
    }
    markdown(&rows)
}

/// How a table of variants shows a metric.
enum Show {
    /// With the share of segments that were retransmitted.
    WithLoss,
    Alone,
    /// As a share of one, in percent.
    Percent,
    /// Over the bound.
    OfBound,
}

/// A column of a table of variants: heading, metric, form.
type Column = (&'static str, &'static str, Show);

/// The record's bounds, then a row per variant: label, name.
fn variants(folder: &str, columns: &[Column], rows: &[(&str, &str)]) -> String {
    let record = &Record::read(folder);
    let mut heading = vec![String::new()];
    let mut bounds = vec!["bound".to_owned()];
    for (name, metric, show) in columns {
        heading.push((*name).to_owned());
        bounds.push(match show {
            Show::WithLoss | Show::Alone => bound(record, metric),
            Show::Percent | Show::OfBound => String::new(),
        });
    }
    let mut table = vec![heading, bounds];
    for (label, variant) in rows {
        let mut row = vec![(*label).to_owned()];
        for (_, metric, show) in columns {
            let median = median(record, variant, metric);
            row.push(match show {
                Show::WithLoss => cell(record, variant, metric),
                Show::Alone => value(metric, median),
                Show::Percent => percent(median),
                Show::OfBound => quantity::ratio(median / record.results.bounds[*metric]),
            });
        }
        table.push(row);
    }
    markdown(&table)
}

fn startup() -> String {
    variants(
        "startup-pacing",
        &[
            ("100 KB", "completion_s/100KB", Show::WithLoss),
            ("1 MB", "completion_s/1MB", Show::WithLoss),
            ("10 MB", "completion_s/10MB", Show::WithLoss),
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
        "phase-switch",
        &[
            (
                "90 % of the link after",
                "rate_recovered_s/50MB",
                Show::Alone,
            ),
            ("50 MB sent after", "completion_s/50MB", Show::WithLoss),
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

fn alltoall_lan() -> String {
    variants(
        "alltoall-lan",
        &[
            ("2 KB", "bandwidth_bps/2KB", Show::Alone),
            ("8 KB", "bandwidth_bps/8KB", Show::Alone),
            ("32 KB", "bandwidth_bps/32KB", Show::Alone),
            ("128 KB", "bandwidth_bps/128KB", Show::Alone),
            ("512 KB", "bandwidth_bps/512KB", Show::Alone),
            ("1 MB", "bandwidth_bps/1MB", Show::Alone),
            (
                "longest pause at 32 KB",
                "longest_pause_s/32KB",
                Show::Alone,
            ),
        ],
        &[
            ("CUBIC", "cubic"),
            ("BBR", "bbr"),
            ("the RTO law alone", "rto"),
            ("lfn", "lfn"),
        ],
    )
}

fn decp() -> String {
    let names = [
        "cubic",
        "bbr",
        "paceline",
        "scoreboard",
        "scoreboard-scaled",
        "largest",
        "larger",
        "average",
        "average-lower",
        "limit-average",
        "limit-weighted-average",
    ];
    variants(
        "decp",
        &[
            ("first", "first_s", Show::Alone),
            ("last", "last_s", Show::Alone),
            ("of the bound", "last_s", Show::OfBound),
            ("last/first", "last_to_first", Show::Alone),
            ("retransmitted", "retransmitted_share", Show::Percent),
        ],
        &names.map(|name| (name, name)),
    )
}

/// The round of an all-to-all, of the paper's kernel and of today's.
fn ligon_alltoall_sim() -> String {
    let record = Record::read("ligon-alltoall-sim");
    let sizes = ["4KB", "8KB", "16KB", "32KB", "64KB", "128KB", "256KB"];
    let names = [
        "stock",
        "stock-40ms",
        "stock-off",
        "btp",
        "btp-off",
        "btp-without-rto",
        "btp-without-bounds",
        "btp-without-rtt",
        "btp-without-window",
        "btp-without-ack",
        "cubic",
        "cubic-btp",
        "cubic-btp-without-window",
        "lfn",
    ];
    let mut rows = vec![cells(&[&[""], &sizes[..]].concat())];
    for name in names {
        let metrics = sizes.map(|size| format!("round_s/{size}"));
        let cells = metrics.map(|metric| cell(&record, name, &metric));
        rows.push([&[name.to_owned()], &cells[..]].concat());
    }
    markdown(&rows)
}

/// The cells of the incast experiment in which CUBIC or BBR pauses for 150 ms or more in the
/// median round. A ratio that a claim judges is shown, in bold if the claim fails.
fn incast() -> String {
    let record = Record::read("incast/all");
    let heading = [
        "answer/senders/queue",
        "bound",
        "CUBIC",
        "lfn",
        "of CUBIC",
        "BBR",
        "bbr-rto",
        "of BBR",
        "longest pause of lfn",
    ];
    let mut rows = vec![cells(&heading)];
    for name in record.results.variants["cubic"].keys() {
        let Some(cell) = name.strip_prefix("round_s/") else {
            continue;
        };
        let (round, pause) = (format!("round_s/{cell}"), format!("pause_s/{cell}"));
        let pauses = |variant| median(&record, variant, &pause) >= 0.15;
        if !pauses("cubic") && !pauses("bbr") {
            continue;
        }
        let took = |variant| value(&round, median(&record, variant, &round));
        let ratio = |claim: String| {
            let hold = record.results.holds.iter().find(|hold| hold.claim == claim);
            hold.map_or(String::new(), |hold| {
                let mark = if hold.pass { "" } else { "**" };
                format!("{mark}{:.3}{mark}", hold.value)
            })
        };
        rows.push(vec![
            cell.to_owned(),
            bound(&record, &round),
            took("cubic"),
            took("lfn"),
            ratio(format!("lfn/{round} <= 0.2 * cubic")),
            took("bbr"),
            took("bbr-rto"),
            ratio(format!("bbr-rto/{round} <= 0.2 * bbr")),
            value(&pause, record.results.variants["lfn"][&pause].max),
        ]);
    }
    markdown(&rows)
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
    let mut rows = vec![cells(&["record", "claim", "found"])];
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
