// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Division of the work among pairs of hosts. Pure: no connections.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use paceline_transfer::chunk::LEAST_BITE;
use paceline_transfer::wire::{Entry, EntryKind, Stamp, LEAST_SHARED};

/// A part of a large file, bytes. The rest is cut into so many parts for each pair, so parts shrink
/// towards the end.
const SPREAD: u64 = 4;
const LEAST_PART: u64 = 128 << 10;
const MOST_PART: u64 = 64 << 20;
/// A pair has as much to do as it carries in so long, so that it gets more before it is idle.
const AHEAD_S: f64 = 0.5;
/// And between so many bytes: its rate is not known at the beginning.
const LEAST_WINDOW: u64 = 4 << 20;
const MOST_WINDOW: u64 = 512 << 20;
/// Rates of round trips are compared with rates of trains, which may be too low by one part of so many.
const MARGIN: u64 = 16;
/// Weight of a new rate in the smoothed one.
const WEIGHT: f64 = 0.25;

/// The rest of a large file, which no pair has.
struct Left {
    stamp: Stamp,
    at: u64,
    is_counted: bool,
}

#[derive(Default)]
struct Work {
    /// Hashes of paths.
    claimed: HashSet<[u8; 16]>,
    seen: HashSet<[u8; 16]>,
    large: HashMap<[u8; 16], Left>,
    /// Bytes of large files that no pair has.
    rest: u64,
    resumed: u64,
}

/// State that all pairs share.
pub(super) struct Shares {
    pairs: u64,
    work: Mutex<Work>,
    paths: Mutex<Paths>,
}

/// Rates that the sources see of their paths. At first each takes its part of the rate that it
/// sees, as if all shared one narrowest link.
#[derive(Default)]
struct Paths {
    /// By the pair: rate that it was seen to carry, and that it carries, bytes per second.
    seen: HashMap<u16, (u64, u64)>,
    are_apart: bool,
}

fn key(entry: &Entry) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::hash(&entry.path).as_bytes()[..16]);
    key
}

/// A file that pairs have in parts.
pub(super) fn is_large(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::File { .. }) && entry.stamp.size > LEAST_SHARED
}

/// Bytes of a message.
pub(super) fn weight(entry: &Entry) -> usize {
    let attributes = entry.attributes.iter();
    let attributes: usize = attributes
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let link = match &entry.kind {
        EntryKind::Link(to) | EntryKind::HardLink(to) => to.len(),
        _ => 0,
    };
    entry.path.len() + 128 + attributes + link
}

impl Shares {
    pub fn new(pairs: u64) -> Self {
        Self {
            pairs,
            work: Mutex::default(),
            paths: Mutex::default(),
        }
    }

    /// Rates that a pair's source sees of its path. True if the pairs do not share a narrowest
    /// link: together they carry more than any of them saw one to carry.
    pub fn saw(&self, pair: Option<u16>, path: (u64, u64)) -> bool {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        paths.seen.insert(pair.unwrap_or(0), path);
        let most = paths.seen.values().map(|(most, _)| *most).max();
        let all: u64 = paths.seen.values().map(|(_, now)| *now).sum();
        let most = most.unwrap_or(0);
        paths.are_apart |= most > 0 && all > most + most / MARGIN;
        paths.are_apart
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A source found an entry. True if it is the first that did.
    pub fn sees(&self, entry: &Entry) -> bool {
        let mut work = self.lock();
        let key = key(entry);
        let is_new = work.seen.insert(key);
        if is_new && is_large(entry) {
            work.rest += entry.stamp.size;
            let left = Left {
                stamp: entry.stamp,
                at: 0,
                is_counted: false,
            };
            work.large.insert(key, left);
        }
        is_new
    }

    /// Another pair has it.
    pub fn is_claimed(&self, entry: &Entry) -> bool {
        self.lock().claimed.contains(&key(entry))
    }

    /// A pair wants it. All of them get a directory, and a large file of which something is left:
    /// if it is the same one, because the parts of all are put together.
    pub fn claim(&self, entry: &Entry) -> bool {
        let mut work = self.lock();
        match &entry.kind {
            EntryKind::Directory => true,
            EntryKind::File { .. } if is_large(entry) => {
                let left = work.large.get(&key(entry));
                left.is_some_and(|left| left.stamp == entry.stamp && left.at < left.stamp.size)
            }
            _ => work.claimed.insert(key(entry)),
        }
    }

    /// The next part of a large file, on the grid of bites; `None` if nothing is left. No more
    /// than `most` bytes, unless that is less than a part can be.
    pub fn part(&self, entry: &Entry, most: u64) -> Option<(u64, u64)> {
        let mut work = self.lock();
        let length = work.rest / (SPREAD * self.pairs);
        let length = length.min(most).clamp(LEAST_PART, MOST_PART) / LEAST_BITE * LEAST_BITE;
        let left = work.large.get_mut(&key(entry))?;
        let (start, size) = (left.at, left.stamp.size);
        if start >= size {
            return None;
        }
        let end = (start + length).min(size);
        left.at = end;
        work.rest -= end - start;
        Some((start, end))
    }

    /// The destination has all of it.
    pub fn exhaust(&self, entry: &Entry) {
        let mut work = self.lock();
        if let Some(left) = work.large.get_mut(&key(entry)) {
            let gone = left.stamp.size - left.at;
            left.at = left.stamp.size;
            work.rest -= gone;
        }
    }

    /// So many bytes of it are missing.
    pub fn lacks(&self, entry: &Entry, missing: u64) {
        let mut work = self.lock();
        if let Some(left) = work.large.get_mut(&key(entry)) {
            if !std::mem::replace(&mut left.is_counted, true) {
                work.resumed += entry.stamp.size.saturating_sub(missing);
            }
        }
    }

    /// An earlier run had left so much of another file.
    pub fn resumes(&self, bytes: u64) {
        self.lock().resumed += bytes;
    }

    /// Bytes that an earlier run had left.
    pub fn resumed(&self) -> u64 {
        self.lock().resumed
    }
}

/// Work of one pair.
#[derive(Default)]
pub(super) struct Load {
    given: u64,
    sent: u64,
    /// Bytes of the entries that are not done, as far as is known.
    sizes: HashMap<u64, u64>,
    rate: f64,
    reported: Option<Instant>,
}

impl Load {
    /// A file.
    pub fn gave(&mut self, n: u64, bytes: u64) {
        self.given += bytes;
        self.sizes.insert(n, bytes);
    }

    /// Known bytes of a file.
    pub fn size(&self, n: u64) -> u64 {
        self.sizes.get(&n).copied().unwrap_or(0)
    }

    /// A part of one.
    pub fn gave_part(&mut self, n: u64, bytes: u64) {
        self.given += bytes;
        *self.sizes.entry(n).or_default() += bytes;
    }

    /// So much of a file is missing; `None`: all of a file in packs. Returns the bytes that are
    /// there.
    pub fn answered(&mut self, n: u64, missing: Option<u64>) -> u64 {
        let Some(own) = self.sizes.get_mut(&n) else {
            return 0;
        };
        let missing = missing.unwrap_or(*own).min(*own);
        let there = std::mem::replace(own, missing) - missing;
        self.given = self.given.saturating_sub(there);
        there
    }

    /// A file failed: nothing more of it is sent.
    pub fn forget(&mut self, n: u64) {
        let own = self.sizes.remove(&n).unwrap_or(0);
        self.given = self.given.saturating_sub(own);
    }

    /// The source has sent so much, since the beginning.
    pub fn reported(&mut self, sent: u64) {
        let now = Instant::now();
        if let Some(before) = self.reported.replace(now) {
            let took = (now - before).as_secs_f64().max(0.001);
            let rate = sent.saturating_sub(self.sent) as f64 / took;
            self.rate += WEIGHT * (rate - self.rate);
        }
        self.sent = sent;
        if self.sent >= self.given {
            self.sizes.clear();
        }
    }

    /// Bytes that it may have to do.
    pub fn window(&self) -> u64 {
        ((self.rate * AHEAD_S) as u64).clamp(LEAST_WINDOW, MOST_WINDOW)
    }

    /// It has little to do.
    pub fn is_low(&self) -> bool {
        self.given.saturating_sub(self.sent) < self.window()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size: u64) -> Entry {
        Entry {
            n: 0,
            path: path.as_bytes().to_vec(),
            kind: EntryKind::File { dense: true },
            mode: 0o644,
            stamp: Stamp {
                size,
                ..Stamp::default()
            },
            root: None,
            attributes: Vec::new(),
            owner: None,
        }
    }

    /// One pair is ten times as fast as the other. With fixed halves it would end ten times
    /// earlier.
    #[test]
    fn a_slow_pair_ends_with_a_fast_one() {
        let (shares, huge) = (Shares::new(2), file("huge", 4 << 30));
        assert!(shares.sees(&huge) && !shares.sees(&huge));
        let (mut free, mut sent, mut at) = ([0u64, 0], [0u64, 0], 0);
        loop {
            let pair = usize::from(free[1] < free[0]);
            let Some((start, end)) = shares.part(&huge, MOST_WINDOW) else {
                break;
            };
            assert_eq!(start, at, "each byte once");
            assert!(end == 4 << 30 || end.is_multiple_of(LEAST_BITE));
            at = end;
            free[pair] += (end - start) * [10, 1][pair];
            sent[pair] += end - start;
        }
        assert_eq!(at, 4 << 30);
        assert!(!shares.claim(&huge), "nothing is left");
        let (first, last) = (free[0].min(free[1]) as f64, free[0].max(free[1]) as f64);
        assert!(last / first < 1.05, "{free:?}");
        assert!(sent[1] > 9 * sent[0], "{sent:?}");
    }

    #[test]
    fn an_entry_is_one_pairs_and_a_large_file_all_of_theirs_if_it_is_the_same() {
        let shares = Shares::new(2);
        let (small, huge) = (file("small", 10), file("huge", 100 << 20));
        let mut directory = file("directory", 0);
        directory.kind = EntryKind::Directory;
        for entry in [&small, &huge, &directory] {
            shares.sees(entry);
        }
        assert!(!shares.is_claimed(&small));
        assert!(shares.claim(&small) && !shares.claim(&small));
        assert!(shares.is_claimed(&small));
        for entry in [&huge, &directory] {
            assert!(shares.claim(entry) && shares.claim(entry));
        }
        let mut other = huge.clone();
        other.stamp.mtime = (5, 0);
        assert!(!shares.claim(&other), "another state of it");
        shares.exhaust(&huge);
        assert!(!shares.claim(&huge));
        assert_eq!(shares.part(&huge, MOST_WINDOW), None);
        assert_eq!(shares.lock().rest, 0);
    }

    #[test]
    fn pairs_have_links_of_their_own_if_they_carry_more_than_one() {
        let shares = Shares::new(2);
        assert!(!shares.saw(Some(1), (0, 0)), "nothing is known");
        assert!(!shares.saw(Some(1), (1000, 500)) && !shares.saw(Some(2), (1000, 500)));
        assert!(!shares.saw(Some(1), (1000, 550)), "trains are not exact");
        assert!(shares.saw(Some(2), (900, 550)));
        assert!(shares.saw(Some(2), (900, 50)), "it is known");
    }

    #[test]
    fn the_load_of_a_pair_is_its_missing_bytes() {
        let mut load = Load::default();
        load.gave(1, 3 << 20);
        load.gave(2, 2 << 20);
        assert!(!load.is_low());
        assert_eq!(load.answered(1, Some(1 << 20)), 2 << 20);
        assert_eq!(load.answered(2, None), 0);
        assert!(load.is_low());
        load.gave_part(3, 64 << 20);
        assert!(!load.is_low());
        load.forget(3);
        assert!(load.is_low(), "it failed");
        load.reported(3 << 20);
        assert_eq!((load.given, load.sizes.len()), (3 << 20, 0));
        assert_eq!(load.window(), LEAST_WINDOW, "one report is no rate");
    }
}
