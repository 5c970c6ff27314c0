// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sums over a job's connections, ended ones too.

use std::ops::AddAssign;

use paceline_abi::{pl_counters, PL_SIZES};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// log2 of the size below which a burst is in class 0 (bpf/counters.h, PL_SIZE_FIRST_LOG2).
const FIRST_LOG2: usize = 12;

/// Traffic of connections, added up when a burst or a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Traffic {
    /// Bursts that have ended: from the first transmission until all is acknowledged. Only
    /// with a policy whose congestion control is wrapped
    pub bursts: u64,
    /// Payload that the peers have acknowledged, bytes
    pub bytes: u64,
    /// Segments with payload that were sent, retransmissions included
    pub segments: u64,
    /// Of these, retransmissions, tail-loss probes included
    pub retransmitted_segments: u64,
    /// Retransmission timeouts
    pub timeouts: u64,
    /// Bursts that began paced, beyond the initial window
    pub starts: u64,
    /// Of these, bursts with more loss than the policy allows
    pub bad_starts: u64,
    /// Times that a connection returned to the base algorithm for a while
    pub breakers_opened: u64,
    /// Bursts by size: below 4 KiB, then four times as much each, the last from 16 MiB on
    pub sizes: [u64; PL_SIZES as usize],
}

/// Each field of two, by one function.
fn both(left: Traffic, right: Traffic, of: impl Fn(u64, u64) -> u64) -> Traffic {
    let mut sizes = left.sizes;
    for (size, other) in sizes.iter_mut().zip(right.sizes) {
        *size = of(*size, other);
    }
    Traffic {
        bursts: of(left.bursts, right.bursts),
        bytes: of(left.bytes, right.bytes),
        segments: of(left.segments, right.segments),
        retransmitted_segments: of(left.retransmitted_segments, right.retransmitted_segments),
        timeouts: of(left.timeouts, right.timeouts),
        starts: of(left.starts, right.starts),
        bad_starts: of(left.bad_starts, right.bad_starts),
        breakers_opened: of(left.breakers_opened, right.breakers_opened),
        sizes,
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        *self = both(*self, other, u64::saturating_add);
    }
}

impl From<&pl_counters> for Traffic {
    fn from(counters: &pl_counters) -> Self {
        Self {
            bursts: counters.bursts.iter().sum(),
            bytes: counters.bytes,
            segments: counters.segs,
            retransmitted_segments: counters.retransmitted_segs,
            timeouts: counters.timeouts,
            starts: counters.starts,
            bad_starts: counters.bad_starts,
            breakers_opened: counters.breaker_opened,
            sizes: counters.bursts,
        }
    }
}

impl Traffic {
    /// The growth since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        both(self, before, u64::saturating_sub)
    }

    /// The larger value of each field.
    #[must_use]
    pub fn at_least(self, before: Self) -> Self {
        both(self, before, u64::max)
    }

    /// `41,000 bursts, 0.1 % retransmitted, 12 RTOs`. Without a wrapped algorithm bursts are
    /// not counted, so none are named.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        if self.bursts > 0 {
            parts.push(counted(self.bursts, "burst"));
        }
        parts.push(match self.segments {
            0 => "nothing sent".to_owned(),
            _ => format!(
                "{} retransmitted",
                percent(self.retransmitted_segments, self.segments)
            ),
        });
        parts.push(counted(self.timeouts, "RTO"));
        parts.join(", ")
    }
}

/// The bursts of a size class, in words.
#[must_use]
pub fn size_name(class: usize) -> String {
    let size = |log2: usize| match log2 {
        0..20 => format!("{} KiB", 1 << (log2 - 10)),
        _ => format!("{} MiB", 1 << (log2 - 20)),
    };
    let from = |class: usize| FIRST_LOG2 + 2 * (class - 1);
    match class {
        0 => format!("below {}", size(FIRST_LOG2)),
        class if class + 1 >= PL_SIZES as usize => format!("from {} on", size(from(class))),
        class => format!("{} to {}", size(from(class)), size(from(class + 1))),
    }
}

/// `1 burst`, `41,000 bursts`.
#[must_use]
pub fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(count))
}

/// With a comma before each three digits.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share for people: nonzero never shows as zero.
fn percent(part: u64, of: u64) -> String {
    let share = 100.0 * part as f64 / of as f64;
    match part {
        0 => "0 %".to_owned(),
        _ if share < 0.1 => "less than 0.1 %".to_owned(),
        _ => format!("{share:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(41_000), "41,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(percent(1, 100_000), "less than 0.1 %");
        assert_eq!(percent(0, 7), "0 %");
        assert_eq!(percent(1, 1000), "0.1 %");
    }

    #[test]
    fn size_classes_are_those_of_the_kernel_side() {
        let names: Vec<String> = (0..PL_SIZES as usize).map(size_name).collect();
        assert_eq!(names[0], "below 4 KiB");
        assert_eq!(names[1], "4 KiB to 16 KiB");
        assert_eq!(names[5], "1 MiB to 4 MiB");
        assert_eq!(names[7], "from 16 MiB on");
    }

    #[test]
    fn traffic_is_shown_in_one_line() {
        let traffic = Traffic {
            bursts: 41_000,
            segments: 100_000,
            retransmitted_segments: 100,
            timeouts: 12,
            ..Traffic::default()
        };
        assert_eq!(
            traffic.summary(),
            "41,000 bursts, 0.1 % retransmitted, 12 RTOs"
        );
        assert_eq!(Traffic::default().summary(), "nothing sent, 0 RTOs");
    }
}
