// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes read by the programs over time, all receivers of a workload together.

use std::sync::atomic::{AtomicU64, Ordering};

use paceline_experiment::record::ArrivalRecord;
use paceline_net::clock::now_ns;

/// Length of a bin, nanoseconds.
const BIN_NS: u64 = 10_000_000;

/// Bytes by the time at which they were read.
pub struct Arrivals {
    begin_ns: u64,
    bins: Vec<AtomicU64>,
}

impl Arrivals {
    /// None yet; of `duration_ns` from `begin_ns` on.
    pub fn new(begin_ns: u64, duration_ns: u64) -> Self {
        let count = usize::try_from(duration_ns / BIN_NS).unwrap_or(0);
        Arrivals {
            begin_ns,
            bins: (0..count).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// So many were read now.
    pub fn add(&self, bytes: u64) {
        let bin = now_ns().saturating_sub(self.begin_ns) / BIN_NS;
        if let Some(bin) = usize::try_from(bin).ok().and_then(|bin| self.bins.get(bin)) {
            bin.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// As a record.
    pub fn record(&self, workload: usize) -> ArrivalRecord {
        ArrivalRecord {
            workload,
            bin_ns: BIN_NS,
            bytes: self
                .bins
                .iter()
                .map(|bin| bin.load(Ordering::Relaxed))
                .collect(),
        }
    }
}
