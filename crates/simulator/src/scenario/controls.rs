// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configurable TCP of ligon-1999, as a scenario has it: its estimators, its timeouts, its
//! delayed ACKs, and the policy that the paper puts together of them.

use paceline_input::units::Time;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file::{SenderTable, LONGEST, MICROSECOND};

/// Bits of a shift at most: a round trip of four months times so much fits 64 bits.
const MOST_SHIFT: u8 = 8;

/// What SRTT and mdev are made of (ligon-1999, 3.0.3; `-r`, `-c` and `-h` of its Table 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RttTable {
    /// Moving averages of the measured values (RFC 6298).
    Smoothed,
    /// A constant SRTT, with mdev 0.
    Constant(
        #[schemars(description = "SRTT.")]
        #[schemars(extend("x-range" = [MICROSECOND, LONGEST]))]
        Time,
    ),
    /// SRTT is the last round trip, doubled so many times, and mdev 0.
    Shift(
        #[schemars(description = "Bits by which the last round trip is shifted to the left.")]
        #[schemars(range(max = MOST_SHIFT))]
        u8,
    ),
}

/// How the RTO is bounded (ligon-1999, 3.0.4; `-b`, `-s` and `-k` of its Table 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RtoTable {
    /// By `rto_min` and `rto_max`.
    Bounded,
    /// No bounds: SRTT + 4 mdev, and two ticks where the clock ticks.
    Unbounded,
    /// A constant RTO, without backoff.
    Constant(
        #[schemars(description = "The RTO.")]
        #[schemars(extend("x-range" = [MICROSECOND, LONGEST]))]
        Time,
    ),
}

/// What delays an ACK (ligon-1999, 3.0.1; `-d` of its Table 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AtoTable {
    /// No delay: each segment is acknowledged at once.
    Quick,
    /// `ack_delay`, or until `ack_every` segments have arrived.
    Fixed,
    /// The paper's equation 1, `ack_delay` at most.
    Estimated,
}

/// Values for many keys at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// The Beowulf Transmission Policy (ligon-1999, 4.3).
    Btp,
}

impl Preset {
    /// The keys that it has values for.
    pub fn table(self) -> SenderTable {
        match self {
            Preset::Btp => SenderTable {
                ato: Some(AtoTable::Fixed),
                ack_delay: Some(Time::from_millis(10)),
                ack_every: Some(4),
                initial_window: Some(20),
                initial_window_again: Some(true),
                rtt: Some(RttTable::Shift(1)),
                rto: Some(RtoTable::Unbounded),
                ..SenderTable::default()
            },
        }
    }
}
