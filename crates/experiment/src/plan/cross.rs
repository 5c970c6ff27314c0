// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other traffic on the link.

use serde::{Deserialize, Serialize};

/// Flows on the link while bursts run, from a host of their own to the receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Cross {
    /// Flows that never end.
    Endless {
        /// Congestion control.
        congestion: String,
        /// Number.
        flows: u32,
    },
    /// Short flows, each on a connection of its own, that begin independently of each other:
    /// a Poisson process.
    Short {
        /// Congestion control.
        congestion: String,
        /// Bytes of each.
        size_bytes: u64,
        /// Mean number that begin in a second.
        per_second: f64,
    },
}

impl Cross {
    /// Congestion control of the flows.
    pub fn congestion(&self) -> &str {
        match self {
            Cross::Endless { congestion, .. } | Cross::Short { congestion, .. } => congestion,
        }
    }
}
