// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files from host to host.

use serde::{Deserialize, Serialize};

/// Files from the near hosts to the far ones, by `paceline send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Tail of the metrics' names; empty for none.
    pub label: String,
    /// Hosts at each side: the first ones of each cluster.
    pub hosts: u32,
    /// Files.
    pub files: u32,
    /// Bytes of the smallest file at least.
    pub smallest_bytes: u64,
    /// Bytes of the largest file at most; sizes are as often in each octave.
    pub largest_bytes: u64,
    /// Data connections of each pair of hosts; absent: as many as the mover takes.
    pub streams: Option<u32>,
    /// Data connections are not encrypted.
    pub plain: bool,
    /// The command's `--rate`, bits per second, all data connections together.
    pub rate_bps: Option<u64>,
    /// Congestion control of an endless flow beside it, between the next host of each cluster. It
    /// has begun two seconds before.
    pub beside: Option<String>,
    /// How often the whole is run, each time with new files.
    pub repeats: u32,
}
