// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file's hash from those of its bites, in whatever order they come.
//!
//! BLAKE3 hashes a tree. A bite is a subtree, since it is aligned to its own length; its hash
//! is the subtree's chaining value (blake3::hazmat). They are merged to the root when all are
//! there, which is what `b3sum FILE` prints.

use std::collections::BTreeMap;

use blake3::hazmat::{
    left_subtree_len, merge_subtrees_non_root, merge_subtrees_root, HasherExt, Mode,
};
use blake3::Hasher;

/// A chaining value, or the root where a bite is the whole file.
pub type CV = [u8; 32];

/// The hash of the bite at `offset` in a file of `size` bytes.
///
/// # Panics
/// If it is not aligned to its length: see [`super::bite_length`].
pub fn hash_bite(bytes: &[u8], offset: u64, size: u64) -> CV {
    let mut hasher = Hasher::new();
    if bytes.len() as u64 == size {
        return *hasher.update(bytes).finalize().as_bytes();
    }
    hasher
        .set_input_offset(offset)
        .update(bytes)
        .finalize_non_root()
}

/// The bites of one file that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Offset -> length and hash. They do not overlap.
    bites: BTreeMap<u64, (u64, CV)>,
    known: u64,
}

impl Tree {
    /// Adds a bite. False if it is known already, or overlaps one that is.
    pub fn add(&mut self, offset: u64, length: u64, cv: CV) -> bool {
        let Some(end) = offset.checked_add(length) else {
            return false;
        };
        let before = self.bites.range(..end).next_back();
        let overlaps = before.is_some_and(|(at, (length, _))| at + length > offset);
        if length == 0 || overlaps {
            return false;
        }
        self.bites.insert(offset, (length, cv));
        self.known += length;
        true
    }

    /// Removes the bites that reach into `start..end`.
    pub fn remove(&mut self, start: u64, end: u64) {
        let reach: Vec<u64> = self
            .bites
            .range(..end)
            .rev()
            .take_while(|(at, (length, _))| *at + length > start)
            .map(|(at, _)| *at)
            .collect();
        for at in reach {
            if let Some((length, _)) = self.bites.remove(&at) {
                self.known -= length;
            }
        }
    }

    /// The hash of exactly this bite.
    pub fn get(&self, offset: u64, length: u64) -> Option<&CV> {
        let (known, cv) = self.bites.get(&offset)?;
        (*known == length).then_some(cv)
    }

    /// Whether one known bite has all of `start..end`.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let before = self.bites.range(..=start).next_back();
        before.is_some_and(|(at, (length, _))| at + length >= end)
    }

    /// Bytes in known bites.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// All bites: offset, length, hash.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &CV)> {
        self.bites
            .iter()
            .map(|(at, (length, cv))| (*at, *length, cv))
    }

    /// The ranges of a file of `size` bytes that are in no known bite.
    pub fn missing(&self, size: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for (offset, length, _) in self.iter() {
            if offset > at {
                gaps.push((at, offset.min(size)));
            }
            at = offset + length;
        }
        if at < size {
            gaps.push((at, size));
        }
        gaps.retain(|(start, end)| start < end);
        gaps
    }

    /// The hash of the file of `size` bytes; `None` while a bite is missing, or where two do
    /// not belong to one tree.
    pub fn root(&self, size: u64) -> Option<CV> {
        if size == 0 {
            return Some(*blake3::hash(b"").as_bytes());
        }
        if let Some(whole) = self.get(0, size) {
            return Some(*whole);
        }
        if self.known != size {
            return None;
        }
        let (left, right) = self.halves(0, size)?;
        Some(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
    }

    fn subtree(&self, start: u64, length: u64) -> Option<CV> {
        if let Some(cv) = self.get(start, length) {
            return Some(*cv);
        }
        let (left, right) = self.halves(start, length)?;
        Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
    }

    fn halves(&self, start: u64, length: u64) -> Option<(CV, CV)> {
        // A subtree of one leaf that is not known: no bite is as small.
        if length <= super::LEAST_BITE {
            return None;
        }
        let left = left_subtree_len(length);
        Some((
            self.subtree(start, left)?,
            self.subtree(start + left, length - left)?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{bite_length, LEAST_BITE, MOST_CHUNK};
    use super::*;
    use proptest::prelude::*;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|n| (n * 31 % 251) as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Bites of any lengths, in any order, from any number of gaps.
        #[test]
        fn bites_in_any_order_merge_to_the_hash_of_the_file(
            size in prop_oneof![1usize..70_000, 60_000usize..3_000_000],
            limits in proptest::collection::vec(16u32..22, 1..9),
            order in any::<u64>(),
        ) {
            let data = bytes(size);
            let mut bites = Vec::new();
            let (mut at, end) = (0, size as u64);
            while at < end {
                let limit = 1 << limits[bites.len() % limits.len()];
                let length = bite_length(at, end, end, limit);
                bites.push((at, length));
                at += length;
            }
            let mut tree = Tree::default();
            let mut seed = order;
            while !bites.is_empty() {
                prop_assert_eq!(tree.root(end), None);
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (at, length) = bites.swap_remove((seed >> 33) as usize % bites.len());
                let part = &data[at as usize..(at + length) as usize];
                let cv = hash_bite(part, at, end);
                prop_assert!(tree.add(at, length, cv));
                prop_assert!(!tree.add(at, length, cv), "known already");
            }
            prop_assert_eq!(tree.root(end), Some(*blake3::hash(&data).as_bytes()));
            prop_assert!(tree.missing(end).is_empty());
        }

        /// The missing ranges can be cut into bites again, and then all is there.
        #[test]
        fn gaps_are_filled_by_bites(
            size in 1u64..5_000_000,
            holes in proptest::collection::vec((0u64..80, 1u64..8), 0..6),
        ) {
            let data = bytes(size as usize);
            let cut = |tree: &mut Tree, start: u64, end: u64, limit: u64| {
                let mut at = start;
                while at < end {
                    let length = bite_length(at, end, size, limit);
                    let part = &data[at as usize..(at + length) as usize];
                    assert!(tree.add(at, length, hash_bite(part, at, size)));
                    at += length;
                }
            };
            let mut tree = Tree::default();
            cut(&mut tree, 0, size, LEAST_BITE);
            for (at, length) in holes {
                tree.remove(at * LEAST_BITE, (at + length) * LEAST_BITE);
            }
            for (start, end) in tree.missing(size) {
                cut(&mut tree, start, end, MOST_CHUNK);
            }
            prop_assert_eq!(tree.root(size), Some(*blake3::hash(&data).as_bytes()));
        }
    }

    #[test]
    fn one_changed_bit_is_another_hash() {
        let mut data = bytes(300_000);
        let size = data.len() as u64;
        let before = hash_bite(&data[..65_536], 0, size);
        data[70] ^= 1;
        assert_ne!(hash_bite(&data[..65_536], 0, size), before);
        // The same bytes at another place are another subtree.
        let same = vec![0; 65_536];
        assert_ne!(hash_bite(&same, 0, size), hash_bite(&same, 65_536, size));
    }

    #[test]
    fn a_bite_covers_what_is_in_it_alone() {
        let mut tree = Tree::default();
        tree.add(8, 8, [0; 32]);
        tree.add(16, 4, [0; 32]);
        assert!(tree.covers(8, 16) && tree.covers(12, 14) && tree.covers(16, 20));
        assert!(!tree.covers(12, 18), "by two");
        assert!(!tree.covers(4, 10) && !tree.covers(0, 4) && !tree.covers(20, 21));
    }

    #[test]
    fn overlaps_are_refused_and_removed_whole() {
        let mut tree = Tree::default();
        assert!(tree.add(65_536, 65_536, [1; 32]));
        for (at, length) in [
            (0, 65_537),
            (131_071, 1),
            (65_536, 1),
            (0, 1 << 40),
            (u64::MAX, 2),
        ] {
            assert!(!tree.add(at, length, [2; 32]), "{at} {length}");
        }
        assert_eq!(tree.missing(200_000), [(0, 65_536), (131_072, 200_000)]);
        tree.remove(131_071, 131_072);
        assert_eq!(tree.known(), 0);
        assert_eq!(tree.missing(10), [(0, 10)]);
        assert_eq!(tree.root(0), Some(*blake3::hash(b"").as_bytes()));
    }
}
