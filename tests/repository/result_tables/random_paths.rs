// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of random paths, one for each seed, as one table.

use paceline_report::paths::{self, Summary};
use paceline_report::quantity;

use super::record::Record;

const SEEDS: [u32; 5] = [1, 2, 3, 4, 5];

/// A variant over the paths of several seeds.
struct Pooled {
    /// Geometric mean over the bound. Each seed has as many paths.
    mean: f64,
    worst: f64,
    /// Share of the cells with more than half a per cent retransmitted.
    much_retransmitted: f64,
}

fn records() -> Vec<Record> {
    let folders = SEEDS.map(|seed| format!("paths/seed-{seed}"));
    folders.iter().map(|folder| Record::read(folder)).collect()
}

fn pooled(records: &[Record], variant: &str) -> Pooled {
    let summaries: Vec<Summary> = records
        .iter()
        .flat_map(|record| paths::summaries(&record.results))
        .filter(|summary| summary.variant == variant)
        .collect();
    assert_eq!(summaries.len(), records.len(), "{variant}");
    let count = summaries.len() as f64;
    let much = summaries.iter().filter_map(|one| one.much_retransmitted);
    Pooled {
        mean: (summaries.iter().map(|one| one.mean.ln()).sum::<f64>() / count).exp(),
        worst: summaries.iter().map(|one| one.worst.0).fold(0.0, f64::max),
        much_retransmitted: much.sum::<f64>() / count,
    }
}

/// CUBIC, BBR and Paceline on all of the paths, over the bound, for the table of gains.
pub fn gain() -> Vec<String> {
    let records = records();
    let paths: usize = records
        .iter()
        .map(|record| record.results.paths.len())
        .sum();
    let mean = |variant: &str| paths::three_decimals(pooled(&records, variant).mean);
    vec![
        format!(
            "30 KB to 3 MB after a pause, {paths} random paths: geometric mean of time over bound"
        ),
        "20 to 700 Mbit/s, 1 to 200 ms, 0.06 to 3 BDP".to_owned(),
        mean("cubic"),
        mean("bbr"),
        format!("**{}**", mean("paceline")),
        "1".to_owned(),
    ]
}

/// Each seed and all: mean and worst over the bound, and where much is retransmitted.
pub fn table() -> Vec<Vec<String>> {
    let variants = ["cubic", "cubic-no-idle-restart", "bbr", "paceline"];
    let heading = [
        "seed",
        "CUBIC",
        "CUBIC without idle restart",
        "BBR",
        "Paceline",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let records = records();
    let mut row = |name: String, records: &[Record]| {
        let cells = variants.map(|variant| {
            let pooled = pooled(records, variant);
            format!(
                "{}, {}, {}",
                paths::three_decimals(pooled.mean),
                quantity::ratio(pooled.worst),
                super::tables::percent(pooled.much_retransmitted)
            )
        });
        rows.push([&[name], &cells[..]].concat());
    };
    for (seed, record) in SEEDS.iter().zip(records.chunks(1)) {
        row(seed.to_string(), record);
    }
    row("all".to_owned(), &records);
    rows
}
