// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chance: a sequence of its own for each flow and purpose.
//!
//! A flow's draws do not depend on those of another, nor on the number of flows:
//! a run with one client more has the same packets from all the others.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// Purpose of a sequence.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// Times of an application's writes.
    Source = 1,
    /// When a flow starts.
    Start = 2,
    /// Drops of a queue.
    Queue = 3,
    /// Sources of the stochastic model.
    Model = 4,
    /// Losses of a line.
    Line = 5,
    /// A connection's initial sequence number (RFC 6528).
    SequenceNumber = 6,
}

/// The sequence of `purpose` for the `index`-th flow, or link, of the `seed`-th run.
pub fn sequence(seed: u64, purpose: Purpose, index: u64) -> Pcg64Mcg {
    let mixed = mix(mix(mix(seed) ^ purpose as u64) ^ index);
    Pcg64Mcg::seed_from_u64(mixed)
}

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): neighbours in, strangers out.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
