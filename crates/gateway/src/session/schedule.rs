// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Order of the streams: deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) with weights. A
//! stream that begins to send, or sends less than its share, comes before those that always have
//! something (the new flows of FQ-CoDel, RFC 8290, 4.2). It does so once in each round of the
//! others at most, so they go on.

use std::collections::{HashMap, VecDeque};

/// Streams with something to send.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Those that began to send since the last round.
    sparse: VecDeque<Turn>,
    others: VecDeque<Turn>,
    /// Streams in either list, and whether they have something. One that has nothing more stays
    /// until its next turn: it is sparse again only if all others had theirs.
    inside: HashMap<u64, bool>,
    /// Of them, the ones that have something.
    busy: usize,
}

#[derive(Debug)]
struct Turn {
    stream: u64,
    quantum: i64,
    deficit: i64,
}

impl Schedule {
    /// A stream has something to send; repeated calls are harmless. `quantum`: bytes in each round.
    pub fn add(&mut self, stream: u64, quantum: u64) {
        match self.inside.insert(stream, true) {
            Some(true) => return,
            Some(false) => {}
            None => {
                let quantum = quantum.max(1) as i64;
                let deficit = quantum;
                self.sparse.push_back(Turn {
                    stream,
                    quantum,
                    deficit,
                });
            }
        }
        self.busy += 1;
    }

    /// No stream has something to send.
    pub fn is_empty(&self) -> bool {
        self.busy == 0
    }

    /// The stream whose turn it is.
    pub fn turn(&mut self) -> Option<u64> {
        loop {
            if let Some(turn) = self.sparse.front() {
                return Some(turn.stream);
            }
            let stream = self.others.front()?.stream;
            if self.inside.get(&stream) == Some(&true) {
                return Some(stream);
            }
            self.inside.remove(&stream);
            self.others.pop_front();
        }
    }

    fn take(&mut self) -> Option<Turn> {
        self.sparse.pop_front().or_else(|| self.others.pop_front())
    }

    /// The stream whose turn it is sent so many bytes.
    pub fn sent(&mut self, bytes: u64) {
        let first = self.sparse.front_mut().or(self.others.front_mut());
        let Some(turn) = first else {
            return;
        };
        turn.deficit -= bytes as i64;
        if turn.deficit <= 0 {
            let mut turn = self.take().expect("it is there");
            // The next turn pays for bytes beyond this one's quantum.
            turn.deficit += turn.quantum;
            self.others.push_back(turn);
        }
    }

    /// The stream whose turn it is has nothing more, after so many bytes.
    pub fn empty(&mut self, bytes: u64) {
        let Some(mut turn) = self.take() else {
            return;
        };
        self.busy -= 1;
        if self.busy == 0 {
            self.others.clear();
            self.inside.clear();
            return;
        }
        self.inside.insert(turn.stream, false);
        turn.deficit -= bytes as i64;
        if turn.deficit <= 0 {
            turn.deficit += turn.quantum;
        }
        self.others.push_back(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUANTUM: u64 = 1_000;

    /// Streams 0 to `count`, which always have something, in the midst of a round.
    fn with_bulk(count: u64) -> Schedule {
        let mut schedule = Schedule::default();
        for stream in 0..count {
            schedule.add(stream, QUANTUM);
        }
        for _ in 0..count + count / 2 {
            schedule.sent(QUANTUM);
        }
        schedule
    }

    #[test]
    fn a_message_comes_before_bulk() {
        let mut schedule = with_bulk(100);
        schedule.add(1_000, QUANTUM);
        assert_eq!(schedule.turn(), Some(1_000));
        schedule.empty(QUANTUM);
        assert_eq!(schedule.turn(), Some(50), "the round goes on");
    }

    #[test]
    fn a_stream_that_comes_again_and_again_has_its_share_and_no_more() {
        let mut schedule = with_bulk(10);
        let mut sent = HashMap::<u64, u64>::new();
        for _ in 0..1_100 {
            // It has one datagram at each turn.
            schedule.add(1_000, QUANTUM);
            let stream = schedule.turn().expect("eleven");
            *sent.entry(stream).or_default() += 1;
            match stream {
                1_000 => schedule.empty(QUANTUM),
                _ => schedule.sent(QUANTUM),
            }
        }
        for (stream, count) in sent {
            assert!((95..=105).contains(&count), "{stream}: {count}");
        }
    }

    #[test]
    fn nothing_is_left_when_all_have_sent() {
        let mut schedule = with_bulk(3);
        schedule.add(1_000, QUANTUM);
        for _ in 0..4 {
            assert!(!schedule.is_empty());
            schedule.turn().expect("one more");
            schedule.empty(QUANTUM);
        }
        assert!(schedule.is_empty() && schedule.turn().is_none());
        assert!(schedule.inside.is_empty());
    }
}
