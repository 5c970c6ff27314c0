// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose turn it is: deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) with weights.

use std::collections::{HashSet, VecDeque};

/// Streams with something to send.
#[derive(Debug, Default)]
pub struct Schedule {
    turns: VecDeque<Turn>,
    inside: HashSet<u64>,
}

#[derive(Debug)]
struct Turn {
    stream: u64,
    quantum: i64,
    deficit: i64,
}

impl Schedule {
    /// A stream has something to send; it may be told again and again. `quantum`: bytes in
    /// each round.
    pub fn add(&mut self, stream: u64, quantum: u64) {
        if self.inside.insert(stream) {
            let quantum = quantum.max(1) as i64;
            let deficit = quantum;
            self.turns.push_back(Turn {
                stream,
                quantum,
                deficit,
            });
        }
    }

    /// Nobody has.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Whose turn it is.
    pub fn turn(&self) -> Option<u64> {
        self.turns.front().map(|turn| turn.stream)
    }

    /// The stream whose turn it is sent so many bytes.
    pub fn sent(&mut self, bytes: u64) {
        let Some(turn) = self.turns.front_mut() else {
            return;
        };
        turn.deficit -= bytes as i64;
        if turn.deficit <= 0 {
            let mut turn = self.turns.pop_front().expect("it is there");
            // What a turn took too much is missing in the next one.
            turn.deficit += turn.quantum;
            self.turns.push_back(turn);
        }
    }

    /// The stream whose turn it is has nothing more.
    pub fn empty(&mut self) {
        if let Some(turn) = self.turns.pop_front() {
            self.inside.remove(&turn.stream);
        }
    }
}
