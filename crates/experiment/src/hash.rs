// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hashes of inputs, by which their results are found again.

use std::hash::Hasher;

/// A hash of contents; not meant to withstand an attacker. Results under a hash are
/// lost if the hash function ever changes.
pub fn hash_of(parts: &[&[u8]]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.finish()
}
