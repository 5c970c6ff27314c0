// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bites of files: their hashes, the set of those that are there, and their division among streams.
//! Pure: no clock, no input or output.

mod queue;
mod rates;
mod tree;

pub use queue::{Bite, Queue, Work};
pub use tree::{hash_bite, Tree, CV};

/// Smallest bite, bytes, and the grid on which all bites lie: smaller ones cost more in
/// headers and system calls than a stream that ends early.
pub const LEAST_BITE: u64 = 64 << 10;
/// Largest bite, bytes: it is a stream's memory.
pub const MOST_CHUNK: u64 = 16 << 20;
/// Default chunk, bytes.
pub const CHUNK: u64 = 1 << 20;
/// Bites of one file that are remembered, at the default: 32 bytes and some each. Larger files
/// get larger chunks.
const MOST_BITES: u64 = 1 << 16;

/// Least chunk of a file with holes, bytes: a frame that is one hole has 90 bytes, which would
/// be 2 % of the data of a file that is empty but for one part in 200.
const SPARSE_CHUNK: u64 = 4 << 20;

/// The default chunk of a file of `size` bytes: a power of two.
pub fn chunk_for(size: u64, dense: bool) -> u64 {
    let least = if dense { CHUNK } else { SPARSE_CHUNK };
    size.div_ceil(MOST_BITES)
        .next_power_of_two()
        .clamp(least, MOST_CHUNK)
}

/// Length of the bite at `at`: at most `limit` bytes, aligned to its own length, so that it is
/// a subtree of the file's hash; not beyond `end`, which is `size` or on the grid.
pub fn bite_length(at: u64, end: u64, size: u64, limit: u64) -> u64 {
    let mut block = prior_power_of_two(limit.clamp(LEAST_BITE, MOST_CHUNK));
    if at > 0 {
        block = block.min(1 << at.trailing_zeros().min(63));
    }
    while block > LEAST_BITE && at + block > end && end < size {
        block /= 2;
    }
    block.min(end - at)
}

fn prior_power_of_two(n: u64) -> u64 {
    1 << n.ilog2()
}
