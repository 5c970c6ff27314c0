// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of writers: the peer's credit, and their share of the memory for sending.
//!
//! A writer may hold twice as much as is free (times its weight): the dynamic threshold of
//! shared-memory switches (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).
//! So one alone holds two thirds of the memory, `n` hold the same each, and something is always
//! free for one that begins: a message never waits until bulk was sent.

use super::settings::{Event, LEAST_MEMORY};
use super::state::{Session, Stream};

/// Resource that a writer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The peer's credit.
    Credit,
    /// This side's memory for sending.
    Memory,
}

/// A window, in rate times round trip: one for bytes under way, one for bytes that wait for the
/// repair of a loss, one for that of a lost repair, and one to spare.
pub(super) const WINDOW: u64 = 4;
/// A stream may hold so many times what is free.
const SHARE: u64 = 2;
/// Rate times round trip that all may hold: a window for one alone.
const HELD: u64 = WINDOW * (SHARE + 1) / SHARE;
/// Fewest bytes for which a writer is notified, unless its credit is less.
const LEAST: u64 = 1 << 10;
/// Bytes for which it is notified at once; for less only if it is a half of its share.
const ENOUGH: u64 = 64 << 10;
/// Most bytes that a notified writer takes before others have their turn.
const PIECE: u64 = 16 << 10;

impl Stream {
    fn wait(&self) -> Wait {
        match self.send.room() {
            0 => Wait::Credit,
            _ => Wait::Memory,
        }
    }

    /// Bytes that it may take if it holds `held`: it then holds its share of the rest.
    fn share(&self, memory: Memory, held: u64) -> u64 {
        let weight = u64::from(self.weight);
        let times = SHARE * weight;
        let share = (times * memory.free).saturating_sub(held) / (times + 1);
        let part = memory.part.saturating_mul(weight);
        share.min(part.saturating_sub(held))
    }

    /// Bytes that it may write.
    fn may_write(&self, memory: Memory) -> u64 {
        let credit = self.send.room();
        let share = self.share(memory, self.send.held());
        match share < LEAST.min(credit) {
            true => 0,
            false => share.min(credit),
        }
    }

    /// Whether it is worth a notification.
    fn is_worth(&self, memory: Memory) -> bool {
        let may = self.may_write(memory);
        may > 0 && may >= self.send.room().min(ENOUGH).min(self.share(memory, 0) / 2)
    }
}

/// Memory for writers, bytes.
#[derive(Debug, Clone, Copy)]
struct Memory {
    free: u64,
    /// Most that one of weight 1 may hold.
    part: u64,
}

impl Session {
    fn memory_for_sending(&self) -> u64 {
        let cap = self.settings.memory.max(LEAST_MEMORY) / 2;
        (self.product() * HELD).clamp(LEAST_MEMORY / 2, cap)
    }

    fn memory(&self) -> Memory {
        let all = self.memory_for_sending();
        // While some writers hold nothing, none takes more than an equal share: of a thousand that
        // begin together, the last ones would wait many round trips for the first.
        let part = match self.waiting.is_empty() {
            true => all,
            false => (all / self.streams.len().max(1) as u64).max(2 * LEAST),
        };
        Memory {
            free: all.saturating_sub(self.held),
            part,
        }
    }

    /// Takes bytes to send, and returns how many. If it is less than all, an
    /// [`Event::Writable`] follows.
    pub fn write(&mut self, stream: u64, bytes: &[u8]) -> usize {
        let memory = self.memory();
        let Some(one) = self.streams.get_mut(&stream) else {
            return 0;
        };
        let count = one.may_write(memory).min(bytes.len() as u64) as usize;
        if count > 0 {
            one.send.write(&bytes[..count]);
            self.held += count as u64;
        }
        if count < bytes.len() {
            self.block(stream);
        }
        self.wake(stream);
        count
    }

    /// Bytes that [`Session::write`] would take. If none, an [`Event::Writable`] follows when
    /// it takes some again.
    pub fn room(&mut self, stream: u64) -> usize {
        let memory = self.memory();
        let Some(one) = self.streams.get(&stream) else {
            return 0;
        };
        let room = one.may_write(memory) as usize;
        if room == 0 {
            self.block(stream);
        }
        room
    }

    /// A writer waits.
    fn block(&mut self, stream: u64) {
        let Some(one) = self.streams.get_mut(&stream) else {
            return;
        };
        let (before, now) = (one.blocked, Some(one.wait()));
        one.blocked = now;
        if now == Some(Wait::Memory) && before != now && one.send.held() == 0 {
            self.waiting.push_back(stream);
        }
    }

    /// The peer gave a stream more credit.
    pub(super) fn credit(&mut self, stream: u64, limit: u64) {
        let Some(one) = self.streams.get_mut(&stream) else {
            return;
        };
        one.send.credit(limit);
        if one.blocked == Some(Wait::Credit) && one.wait() == Wait::Memory {
            one.blocked = Some(Wait::Memory);
            self.reconsider(stream);
        }
    }

    /// Some of a stream's bytes have arrived, or it has credit: notifies its writer if it may write
    /// enough.
    pub(super) fn reconsider(&mut self, stream: u64) {
        let memory = self.memory();
        let Some(one) = self.streams.get_mut(&stream) else {
            return;
        };
        if one.blocked != Some(Wait::Memory) {
            return;
        }
        if one.is_worth(memory) {
            one.blocked = None;
            self.events.push_back(Event::Writable(stream));
        } else if one.send.held() == 0 {
            self.waiting.push_back(stream);
        }
    }

    /// Notifies as many writers that hold nothing as there is memory for, the longest wait first. A
    /// later report notifies the rest; so the cost of a call follows the notified, not the waiting.
    pub(super) fn unblock(&mut self) {
        let mut memory = self.memory();
        while let Some(&number) = self.waiting.front() {
            if let Some(one) = self.streams.get_mut(&number) {
                // A writer that holds bytes again is notified when they have arrived.
                if one.blocked == Some(Wait::Memory) && one.send.held() == 0 {
                    if !one.is_worth(memory) {
                        return;
                    }
                    one.blocked = None;
                    memory.free -= one.may_write(memory).min(PIECE);
                    self.events.push_back(Event::Writable(number));
                }
            }
            self.waiting.pop_front();
        }
    }
}
