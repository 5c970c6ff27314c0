// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The committed records below `docs/results`.

use std::fs;
use std::path::{Path, PathBuf};

use paceline_report::claims;
use paceline_report::results::{Hold, Results};

/// Records whose variants a later run of some of them replaces: folder of the whole run,
/// folder of the later one.
const LATER: [(&str, &str); 8] = [
    ("alltoall-lan", "alltoall-lan/lfn"),
    ("incast/all", "incast"),
    ("ligon-alltoall", "ligon-alltoall/lfn"),
    ("npb-skeleton", "npb-skeleton/paceline"),
    ("paths/seed-1", "paths/seed-1/paceline"),
    ("paths/seed-2", "paths/seed-2/paceline"),
    ("paths/seed-3", "paths/seed-3/paceline"),
    ("paths/seed-4", "paths/seed-4/paceline"),
];
/// Made by a benchmark, not by an experiment: no variants and no claims.
const BENCHMARKS: [&str; 1] = ["live-overhead"];

/// What an experiment found.
pub struct Record {
    /// Its folder below `docs/results`.
    pub folder: String,
    /// With the variants of a later run, and the claims judged with these.
    pub results: Results,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
}

fn read(folder: &str) -> Results {
    let path = directory().join(folder).join("results.json");
    let results = Results::read(&path).unwrap_or_else(|error| panic!("{error}"));
    assert!(results.valid, "{folder} is of an invalid run");
    results
}

impl Record {
    /// The record in `folder`.
    ///
    /// # Panics
    /// If there is none, or its run was invalid.
    pub fn read(folder: &str) -> Self {
        let mut results = read(folder);
        if let Some((_, later)) = LATER.iter().find(|(whole, _)| *whole == folder) {
            results.variants.extend(read(later).variants);
            let claims: Vec<String> = results.holds.into_iter().map(|hold| hold.claim).collect();
            results.holds = Vec::new();
            results.holds =
                claims::evaluate_all(&claims, &results).expect("claims that were judged");
        }
        Record {
            folder: folder.to_owned(),
            results,
        }
    }

    /// All records of experiments, in the order of their folders.
    pub fn all() -> Vec<Self> {
        let mut folders = Vec::new();
        let mut open = vec![directory()];
        while let Some(next) = open.pop() {
            for entry in fs::read_dir(&next).expect("docs/results").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    open.push(path);
                } else if path.ends_with("results.json") {
                    let folder = next.strip_prefix(directory()).expect("below it");
                    folders.push(folder.to_string_lossy().into_owned());
                }
            }
        }
        folders.retain(|folder| {
            !BENCHMARKS.contains(&folder.as_str()) && LATER.iter().all(|(_, later)| later != folder)
        });
        folders.sort();
        folders.iter().map(|folder| Record::read(folder)).collect()
    }

    /// The median of `metric` under `variant`, if it was measured.
    pub fn median(&self, variant: &str, metric: &str) -> Option<f64> {
        Some(self.results.variants.get(variant)?.get(metric)?.median)
    }

    /// Claims that do not hold.
    pub fn failed(&self) -> impl Iterator<Item = &Hold> {
        self.results.holds.iter().filter(|hold| !hold.pass)
    }
}
