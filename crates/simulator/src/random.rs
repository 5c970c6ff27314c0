// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chance: a sequence of its own for each flow and purpose.
//!
//! What one flow draws does not depend on what another does, nor on how many there are:
//! a run with one client more has the same packets from all the others.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// When an application speaks.
    Source = 1,
    /// When a flow starts.
    Start = 2,
    /// What a queue drops.
    Queue = 3,
    /// What the stochastic model's sources do.
    Model = 4,
    /// What a line loses.
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
