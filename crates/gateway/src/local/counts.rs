// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts of the connections of hosts that are unaware of the gateway.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::proxy::Failure;
use super::target::Reason;

/// Counts of hosts' connections, for `status`.
#[derive(Debug, Default)]
pub struct Counters {
    taken: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    loops: AtomicU64,
}

/// The same as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Connections of hosts.
    pub taken: u64,
    /// Of those, refused by their destination.
    pub refused: u64,
    /// Of those, that failed for another reason before they were connected.
    pub failed: u64,
    /// Reset because they led to this gateway itself.
    pub loops: u64,
}

impl Counters {
    /// A connection of a host's.
    pub fn take(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// One that failed before it was connected.
    pub fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// One that led to this gateway itself.
    pub fn loop_back(&self) {
        self.loops.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failed connect.
    pub fn count(&self, failure: Failure) {
        let counter = match failure {
            Failure::Reset(Reason::Refused) => &self.refused,
            _ => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Now.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            taken: read(&self.taken),
            refused: read(&self.refused),
            failed: read(&self.failed),
            loops: read(&self.loops),
        }
    }
}
