// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[transfer]]`: files from the hosts of one cluster to those of the other, by
//! `paceline send`.

use paceline_input::units::{Rate, Size};
use paceline_input::Place;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{one, File};
use crate::plan;

/// Files that the memory of a guest holds, at both sides, bytes.
const MOST_BYTES: u64 = 512 << 20;
/// Data connections of two hosts; the mover's own bound.
const MOST_STREAMS: u32 = 256;

/// Files, and the options of the transfer; see [`plan::Transfer`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Tail of the metrics' names.
    #[serde(default)]
    pub name: String,
    /// Hosts at each side.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = plan::MOST_HOSTS))]
    pub hosts: u32,
    /// Number of files.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100_000))]
    pub files: u32,
    /// The same with `--quick`.
    #[schemars(range(min = 1, max = 100_000))]
    pub quick_files: Option<u32>,
    /// Bytes of a file; with `largest`, of the smallest one.
    #[schemars(extend("x-range" = ["1B", null]))]
    pub size: Size,
    /// The same with `--quick`.
    #[schemars(extend("x-range" = ["1B", null]))]
    pub quick: Option<Size>,
    /// Bytes of the largest file; sizes in between are drawn log-uniformly.
    pub largest: Option<Size>,
    /// Data connections of each pair of hosts; absent: the mover chooses the number.
    #[schemars(range(min = 1, max = MOST_STREAMS))]
    pub streams: Option<u32>,
    /// Data connections without encryption.
    #[serde(default)]
    pub plain: bool,
    /// Maximum rate of all data connections together (`--rate`).
    #[schemars(extend("x-range" = ["8bit", null]))]
    pub rate: Option<Rate>,
    /// Congestion control of a competing endless flow between one more host of each cluster. It
    /// starts two seconds earlier.
    pub beside: Option<String>,
    /// Repetitions, each with new files.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub repeats: u32,
}

impl Transfer {
    /// As the guest gets it.
    pub(super) fn plan(&self, quick: bool) -> plan::Transfer {
        let files = self.quick_files.filter(|_| quick).unwrap_or(self.files);
        let size = self.quick.filter(|_| quick).unwrap_or(self.size).bytes();
        plan::Transfer {
            label: self.name.clone(),
            hosts: self.hosts,
            files,
            smallest_bytes: size,
            largest_bytes: self.largest.map_or(size, Size::bytes),
            streams: self.streams,
            plain: self.plain,
            rate_bps: self.rate.map(Rate::bits_per_second),
            beside: self.beside.clone(),
            repeats: self.repeats,
        }
    }
}

/// Checks the file's `[[transfer]]`.
pub(super) fn check(file: &File, place: &Place<'_>) {
    for (index, transfer) in file.transfer.iter().enumerate() {
        let place = place.key("transfer").item(index);
        let clusters = &file.link.clusters;
        let beside = u32::from(transfer.beside.is_some());
        if let Some(own) = clusters
            .first()
            .filter(|own| **own < transfer.hosts.saturating_add(beside))
        {
            let problem = match beside {
                0 => format!("must be 1 to the number of hosts of a cluster, {own}"),
                _ => format!(
                    "must be less than the number of hosts of a cluster, {own}: the flow beside \
                     the transfer has one of its own"
                ),
            };
            place.key("hosts").wrong(problem);
        }
        for quick in [false, true] {
            let plan = transfer.plan(quick);
            let key = match quick && transfer.quick.is_some() {
                true => "quick",
                false => "size",
            };
            if plan.smallest_bytes > plan.largest_bytes {
                place.key(key).wrong("must be at most largest");
                break;
            }
            if expected_bytes(&plan) > MOST_BYTES as f64 {
                let problem = "all files together must be at most 512 MiB: they are in memory";
                place.key(key).wrong(problem);
                break;
            }
        }
        let mut before = file.transfer[..index].iter();
        if before.any(|other| other.name == transfer.name) {
            let problem = format!(
                "another [[transfer]] has the name \"{}\", too",
                transfer.name
            );
            place.key("name").wrong(problem);
        }
    }
}

/// Of all files: the mean of sizes that are as often in each octave is (b - a) / ln(b / a).
fn expected_bytes(plan: &plan::Transfer) -> f64 {
    let (a, b) = (plan.smallest_bytes as f64, plan.largest_bytes as f64);
    let mean = match plan.smallest_bytes == plan.largest_bytes {
        true => a,
        false => (b - a) / (b / a).ln(),
    };
    f64::from(plan.files) * mean
}
