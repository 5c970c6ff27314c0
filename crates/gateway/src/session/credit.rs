// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far windows may grow. Each stream's first credit has memory of its own. What is beyond
//! comes from a pool, of which a stream gets no more than it leaves: the dynamic threshold of
//! shared-memory switches (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2),
//! 1998). So one that stopped reading never holds all, and the next one finds some.

/// The pool.
#[derive(Debug)]
pub struct Pool {
    bytes: u64,
    taken: u64,
    first: u64,
}

impl Pool {
    /// Bytes of the pool, and each stream's first credit.
    pub fn new(bytes: u64, first: u64) -> Self {
        Self {
            bytes,
            taken: 0,
            first,
        }
    }

    /// Largest window for a stream that has this one.
    pub fn most(&self, window: u64) -> u64 {
        let own = window.saturating_sub(self.first);
        let free = self.bytes.saturating_sub(self.taken) + own;
        window.max(self.first + free / 2)
    }

    /// A stream's window changed; 0: it ended.
    pub fn change(&mut self, before: u64, after: u64) {
        self.taken -= before.saturating_sub(self.first);
        self.taken += after.saturating_sub(self.first);
    }
}
