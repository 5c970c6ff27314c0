// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a link's traffic is recorded.

/// A link's recording, in memory that is allocated before the start.
#[derive(Debug, Clone, Copy)]
pub struct Observe {
    /// How long the run may be for its bins, nanoseconds. Traffic after it is
    /// carried, but only counted in [`crate::Bins::beyond`].
    pub longest_ns: u64,
    /// Width of a bin, nanoseconds.
    pub bin_ns: u64,
    /// Most drops of a direction that are listed one by one; all are counted.
    pub most_drops: usize,
}

impl Observe {
    /// Nothing but sums.
    pub const NOTHING: Observe = Observe {
        longest_ns: 0,
        bin_ns: crate::BIN_NS,
        most_drops: 0,
    };
}
