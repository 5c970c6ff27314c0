// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of the windows. Each stream's first credit has memory of its own. Credit beyond it comes
//! from a pool, of which a stream gets no more than it leaves: the dynamic threshold of
//! shared-memory switches (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). So
//! one that stopped reading never holds all, and the next one finds some.
//!
//! A third of the pool is lent to streams that begin: with its first credit alone one would
//! need several round trips to fill a long path. The first has a loan of what three round trips
//! take: one is under way, one waits for the repair of the first loss, and one for that of a lost
//! repair. The second has a half of that, the third a third: so each of `n` that begin together
//! has its share at least, and one alone has all of it. A loan is over when the stream took so
//! much that its window has caught up. Streams that begin and stay idle so keep a third of the
//! pool at most from those that are busy.

/// The pool.
#[derive(Debug)]
pub struct Pool {
    bytes: u64,
    taken: u64,
    lent: u64,
    loans: u64,
    first: u64,
}

/// Share of the pool that is for loans.
const LOANS: u64 = 3;
/// Rate times round trip of the first loan.
const LOAN: u64 = 3;

impl Pool {
    /// Bytes of the pool, and each stream's first credit.
    pub fn new(bytes: u64, first: u64) -> Self {
        Self {
            bytes,
            taken: 0,
            lent: 0,
            loans: 0,
            first,
        }
    }

    /// Largest window for a stream that has this one.
    pub fn most(&self, window: u64) -> u64 {
        let own = window.saturating_sub(self.first);
        let free = self.bytes.saturating_sub(self.taken) + own;
        window.max(self.first + free / 2)
    }

    /// Lends a new stream credit beyond its first; `product`: bytes of a round trip. 0: there is
    /// nothing left.
    pub fn lend(&mut self, product: u64) -> u64 {
        let left = (self.bytes / LOANS).saturating_sub(self.lent);
        let free = self.bytes.saturating_sub(self.taken);
        let loan = (product * LOAN / (self.loans + 1)).min(left).min(free);
        self.loans += u64::from(loan > 0);
        self.lent += loan;
        self.taken += loan;
        loan
    }

    /// A loan is over.
    pub fn settle(&mut self, loan: u64) {
        self.loans -= u64::from(loan > 0);
        self.lent -= loan;
        self.taken -= loan;
    }

    /// A stream's window changed; 0: it ended.
    pub fn change(&mut self, before: u64, after: u64) {
        self.taken -= before.saturating_sub(self.first);
        self.taken += after.saturating_sub(self.first);
    }
}
