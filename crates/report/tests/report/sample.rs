// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A report with made-up numbers of a plausible size, for tests and for looking
//! at the page. Nothing in it was measured.

use indexmap::IndexMap;
use paceline_report::claims::evaluate_all;
use paceline_report::results::{Checked, Link, Metric, Results};
use paceline_report::{Report, Series};

/// Variants, and their completions as multiples of the bound: 100 KB, 1 MB, 10 MB.
const VARIANTS: [(&str, [f64; 3], f64); 6] = [
    ("cubic", [1.86, 3.25, 3.72], 0.0062),
    ("cubic-no-idle-restart", [1.0, 2.4, 3.9], 0.0211),
    ("bbr", [1.48, 1.43, 1.03], 0.0374),
    ("paper", [1.86, 1.53, 1.82], 0.0018),
    ("paceline", [1.01, 1.05, 1.04], 0.0),
    ("ideal", [1.0, 1.02, 1.01], 0.0),
];
const SIZES: [(&str, f64, f64); 3] = [
    ("100KB", 1e5, 0.02170),
    ("1MB", 1e6, 0.03700),
    ("10MB", 1e7, 0.18998),
];

/// Whatever varies between runs: a fixed sequence in 0 to 1.
fn wobble(seed: usize) -> f64 {
    ((seed * 7919 + 104_729) % 997) as f64 / 997.0
}

/// Bursts after idle, as of experiment `startup-pacing`.
pub fn startup() -> Report {
    let mut variants = IndexMap::new();
    for (index, (variant, over, lost)) in VARIANTS.iter().enumerate() {
        let mut metrics = IndexMap::new();
        for (size, (name, _, bound)) in SIZES.iter().enumerate() {
            let spread = if over[size] > 1.1 { 0.25 } else { 0.02 };
            let runs = (0..10)
                .map(|run| bound * (over[size] + spread * wobble(index * 31 + size * 7 + run)));
            metrics.insert(
                format!("completion_s/{name}"),
                Metric::from_runs(runs.collect()).unwrap(),
            );
        }
        for (size, (name, ..)) in SIZES.iter().enumerate() {
            let runs = (0..10).map(|run| lost * size as f64 * wobble(index * 17 + size + run));
            metrics.insert(
                format!("retransmitted_share/{name}"),
                Metric::from_runs(runs.collect()).unwrap(),
            );
        }
        let first = if *variant == "paceline" {
            0.1055
        } else {
            0.149 + 0.002 * index as f64
        };
        metrics.insert(
            "first_s".to_owned(),
            Metric::from_runs(vec![first]).unwrap(),
        );
        variants.insert((*variant).to_owned(), metrics);
    }
    let mut bounds: IndexMap<String, f64> = SIZES
        .iter()
        .map(|(name, _, bound)| (format!("completion_s/{name}"), *bound))
        .collect();
    bounds.insert("first_s".to_owned(), 0.1028);
    let mut results = Results {
        experiment: "startup-pacing".into(),
        title: Some("Sample with made-up numbers: bursts after idle on a long fat network".into()),
        description: Some(
            "One connection sends a chunk, waits, and sends the next: how long does each chunk take, from its first \
             write to the one-byte reply?\n\nThe bound is payload and headers (90 bytes per 1448) at the link\u{2019}s \
             rate, and one round trip."
                .into(),
        ),
        command: Some("paceline lab run experiments/startup-pacing.toml --backend virtual --seed 1".into()),
        backend: "virtual".into(),
        kernel: "6.1.0-28-cloud-amd64".into(),
        seed: 1,
        valid: true,
        warnings: vec!["the edge link was asked for 1 Gbit/s and gave 0.98 Gbit/s".into()],
        notes: vec!["The first two bursts of each variant are left out of the medians.".into()],
        cpu_idle: 0.9512,
        link: Link {
            rate_bps: Checked { asked: 5e8, measured: 4.993e8 },
            one_way_delay_s: Checked { asked: 0.01, measured: 0.010_004 },
            buffer_bytes: 131_072,
            buffer_measured_bytes: Some(130_816),
            edge_rate_bps: Some(1e9),
            rtt_s: Some(0.020_011),
        },
        paths: IndexMap::new(),
        variants,
        bounds,
        holds: Vec::new(),
        paper: Vec::new(),
    };
    results.holds = evaluate_all(
        &[
            "paceline/completion_s/* <= 1.10 * bound",
            "paceline/completion_s/* <= 1.02 * best(cubic, cubic-no-idle-restart, bbr)",
            "paceline/retransmitted_share/* <= 0.005",
            "paceline/first_s <= 0.110",
            "bbr/retransmitted_share/10MB <= 0.005",
        ],
        &results,
    )
    .unwrap();
    let mut series = Vec::new();
    for (size, (name, bytes, bound)) in SIZES.iter().enumerate() {
        for (variant, over, lost) in &VARIANTS {
            series.push(Series {
                experiment_part: (*name).to_owned(),
                variant: (*variant).to_owned(),
                line: String::new(),
                x_label: "time since the start of the chunk (ms)".into(),
                y_label: "bandwidth (Mbit/s)".into(),
                points: burst(*bytes, over[size] * bound, *lost),
            });
        }
    }
    Report { results, series }
}

/// Samples of 1 ms of a burst that takes about `seconds`: rounds of 20 ms that
/// double up to the link's rate, and a dip where much is lost.
fn burst(bytes: f64, seconds: f64, lost: f64) -> Vec<(f64, f64)> {
    let end = ((seconds - 0.02) * 1e3).max(1.0);
    let all = bytes * 8.0 * 1538.0 / 1448.0 / 1e3;
    let flat = all / end;
    let mut sent = 0.0;
    let mut points = Vec::new();
    for ms in 0..3000 {
        let round = f64::from(ms / 20);
        let share = if flat > 400.0 {
            1.0
        } else {
            (0.12 * 2f64.powf(round * 0.75))
                .min(flat / 500.0 * 1.5)
                .min(1.0)
        };
        let dip = if lost > 0.005 && ms % 140 > 120 {
            0.25
        } else {
            1.0
        };
        let within = f64::from(ms % 20) / 20.0;
        let rate = if share >= 0.95 || within < share {
            497.0 + 4.0 * wobble(ms as usize)
        } else {
            0.0
        } * dip;
        if sent >= all {
            points.push((f64::from(ms), 0.0));
            if points.len() > 20 && sent >= all && f64::from(ms) > end + 30.0 {
                break;
            }
            continue;
        }
        let rate = rate.min(all - sent);
        sent += rate;
        points.push((f64::from(ms), rate));
    }
    points
}

/// A sweep of many cases, as of experiment `incast`.
pub fn incast() -> Report {
    let mut report = startup();
    let results = &mut report.results;
    results.experiment = "incast".into();
    results.title = Some("Sample with made-up numbers: many senders answer at once".into());
    results.valid = false;
    results.warnings = vec![
        "the guest's CPU was idle for 3 % of the run only: it was CPU-bound".into(),
        "the link was late".into(),
    ];
    results.variants.clear();
    results.bounds.clear();
    report.series.clear();
    for (index, variant) in ["cubic", "bbr", "reno", "lfn", "rto-bbr"]
        .into_iter()
        .enumerate()
    {
        let mut metrics = IndexMap::new();
        for senders in [8, 16, 32, 64] {
            for kilobytes in [2, 8, 32, 64] {
                let tail = format!("{senders}x{kilobytes}KB");
                let bound = 0.0002 + f64::from(senders * kilobytes) * 1062.0 * 8.0 / 2e8;
                let case = index * 3 + (senders + kilobytes) as usize;
                let over = 1.0 + wobble(case) * if variant == "bbr" { 9.0 } else { 0.8 };
                let runs = (0..5)
                    .map(|run| bound * over * (1.0 + 0.2 * wobble(run + case)))
                    .collect();
                metrics.insert(format!("round_s/{tail}"), Metric::from_runs(runs).unwrap());
                results.bounds.insert(format!("round_s/{tail}"), bound);
            }
        }
        results.variants.insert(variant.to_owned(), metrics);
    }
    results.holds = evaluate_all(
        &[
            "lfn/round_s/* <= max(1.25 * bound, bound + 0.024)",
            "lfn/round_s/*@max <= 0.6",
        ],
        results,
    )
    .unwrap();
    report
}
