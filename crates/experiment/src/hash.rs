// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was made of the same inputs is found again by their hash.

use std::hash::Hasher;

/// Tells contents apart; not meant to withstand an attacker. What is kept under a hash
/// is thrown away if the hash function ever changes.
pub fn hash_of(parts: &[&[u8]]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.finish()
}
