// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is still to happen, in order: a calendar queue of three wheels.
//!
//! A heap takes time that grows with what it holds, and at a million flows that is
//! cache misses. Here an event is put into a slot by its time alone, and slots are
//! sorted when their turn comes, a few events at a time. A wheel's slot is the next
//! finer wheel's whole turn; a slot that holds little is sorted as it is, without being
//! spread over the finer wheel. So there is no width to choose: the same wheels serve
//! one packet per second and a hundred million.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::Event;

/// Bits of a slot's number: 4096 slots to a wheel.
const SLOT_BITS: u32 = 12;
const SLOTS: usize = 1 << SLOT_BITS;
/// Bits of a time, in nanoseconds, below a slot of the finest wheel: 256 ns. A hundred
/// million events per simulated second put 26 into one.
const FINE: u32 = 8;
/// A slot of the middle wheel is 1.05 ms, of the coarse one 4.3 s; its turn is 4.9 h.
const MIDDLE: u32 = FINE + SLOT_BITS;
const COARSE: u32 = MIDDLE + SLOT_BITS;
const BEYOND: u32 = COARSE + SLOT_BITS;
/// A slot with no more than so many events is sorted as it is: an event that is put
/// into the sorted part moves half of these on average, 32 bytes each.
const FEW: u32 = 24;
/// End of a slot's list.
const NONE: u32 = u32::MAX;

/// Events of a slot are kept so many together: a slot that holds thousands is read in
/// the order of memory, and not by one miss of the cache for each.
const TOGETHER: usize = 8;

#[derive(Clone, Copy)]
struct Chunk {
    events: [Event; TOGETHER],
    length: u32,
    next: u32,
}

struct Far(Event);

impl PartialEq for Far {
    fn eq(&self, other: &Self) -> bool {
        self.0.order() == other.0.order()
    }
}
impl Eq for Far {}
impl PartialOrd for Far {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Far {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.order().cmp(&other.0.order())
    }
}

/// One wheel: slots as lists in the common store, and which of them hold something.
struct Wheel {
    heads: Box<[u32]>,
    counts: Box<[u32]>,
    /// A bit for each slot.
    full: [u64; SLOTS / 64],
    /// A bit for each word of `full`.
    words: u64,
}

impl Wheel {
    fn new() -> Self {
        Wheel {
            heads: vec![NONE; SLOTS].into(),
            counts: vec![0; SLOTS].into(),
            full: [0; SLOTS / 64],
            words: 0,
        }
    }

    /// The first slot from `from` on that holds something.
    fn next(&self, from: usize) -> Option<usize> {
        if from >= SLOTS {
            return None;
        }
        let word = from / 64;
        let here = self.full[word] & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let later = if word == 63 {
            0
        } else {
            self.words & (u64::MAX << (word + 1))
        };
        (later != 0).then(|| {
            let word = later.trailing_zeros() as usize;
            word * 64 + self.full[word].trailing_zeros() as usize
        })
    }

    fn take(&mut self, slot: usize) -> u32 {
        let word = slot / 64;
        self.full[word] &= !(1 << (slot % 64));
        if self.full[word] == 0 {
            self.words &= !(1 << word);
        }
        self.counts[slot] = 0;
        std::mem::replace(&mut self.heads[slot], NONE)
    }
}

/// Events in order.
pub struct Agenda {
    /// What comes first, the latest in front: everything before `sorted_until`.
    sorted: Vec<Event>,
    sorted_until: u64,
    /// Fine, middle and coarse.
    wheels: [Wheel; 3],
    far: BinaryHeap<Reverse<Far>>,
    chunks: Vec<Chunk>,
    free: u32,
    length: usize,
}

impl Default for Agenda {
    fn default() -> Self {
        Self::new()
    }
}

impl Agenda {
    /// Nothing to happen.
    pub fn new() -> Self {
        Agenda {
            sorted: Vec::new(),
            sorted_until: 0,
            wheels: [Wheel::new(), Wheel::new(), Wheel::new()],
            far: BinaryHeap::new(),
            chunks: Vec::new(),
            free: NONE,
            length: 0,
        }
    }

    /// How much is to happen.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Puts `event` in. Its time must not lie before that of the last one taken.
    pub fn put(&mut self, event: Event) {
        self.length += 1;
        self.place(event);
    }

    fn place(&mut self, event: Event) {
        let time = event.time;
        if time < self.sorted_until {
            let order = event.order();
            let at = self
                .sorted
                .iter()
                .rposition(|other| other.order() > order)
                .map_or(0, |before| before + 1);
            self.sorted.insert(at, event);
            return;
        }
        // Which wheel: the first of whose turn both have the same number.
        let apart = time ^ self.sorted_until;
        let (wheel, shift) = if apart >> MIDDLE == 0 {
            (0, FINE)
        } else if apart >> COARSE == 0 {
            (1, MIDDLE)
        } else if apart >> BEYOND == 0 {
            (2, COARSE)
        } else {
            self.far.push(Reverse(Far(event)));
            return;
        };
        let slot = (time >> shift) as usize & (SLOTS - 1);
        let wheel = &mut self.wheels[wheel];
        let head = wheel.heads[slot];
        wheel.counts[slot] += 1;
        if head != NONE {
            let chunk = &mut self.chunks[head as usize];
            if (chunk.length as usize) < TOGETHER {
                chunk.events[chunk.length as usize] = event;
                chunk.length += 1;
                return;
            }
        }
        wheel.full[slot / 64] |= 1 << (slot % 64);
        wheel.words |= 1 << (slot / 64);
        let at = self.free;
        wheel.heads[slot] = if at == NONE {
            self.chunks.push(Chunk {
                events: [event; TOGETHER],
                length: 1,
                next: head,
            });
            (self.chunks.len() - 1) as u32
        } else {
            let chunk = &mut self.chunks[at as usize];
            self.free = chunk.next;
            chunk.events[0] = event;
            chunk.length = 1;
            chunk.next = head;
            at
        };
    }

    /// Takes the first event out, if it lies before `until`.
    pub fn take_before(&mut self, until: u64) -> Option<Event> {
        loop {
            if let Some(event) = self.sorted.last() {
                if event.time >= until {
                    return None;
                }
                self.length -= 1;
                return self.sorted.pop();
            }
            if self.length == 0 || self.sorted_until >= until {
                return None;
            }
            self.advance();
        }
    }

    /// Sorts the next slot that holds something.
    fn advance(&mut self) {
        let now = self.sorted_until;
        // Slots whose turn has just begun lie on coarser wheels until they are spread.
        while let Some(Reverse(Far(first))) = self.far.peek() {
            if (first.time ^ now) >> BEYOND != 0 {
                break;
            }
            let first = *first;
            self.far.pop();
            self.place(first);
        }
        for (wheel, shift) in [(2, COARSE), (1, MIDDLE)] {
            let slot = (now >> shift) as usize & (SLOTS - 1);
            if self.wheels[wheel].heads[slot] != NONE {
                self.spread(wheel, slot);
            }
        }
        for (wheel, shift) in [(0, FINE), (1, MIDDLE), (2, COARSE)] {
            let from = (now >> shift) as usize & (SLOTS - 1);
            let Some(slot) = self.wheels[wheel].next(from) else {
                continue;
            };
            let turn = now >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
            let begin = turn + ((slot as u64) << shift);
            if wheel == 0 || (wheel == 1 && self.wheels[wheel].counts[slot] <= FEW) {
                self.sorted_until = begin + (1 << shift);
                self.sort(wheel, slot);
            } else {
                self.sorted_until = begin;
                self.spread(wheel, slot);
            }
            return;
        }
        // All wheels are empty: their next turn is the one of the first of the rest.
        if let Some(Reverse(Far(first))) = self.far.peek() {
            self.sorted_until = first.time >> BEYOND << BEYOND;
        }
    }

    /// Gives a chunk back. Returns what it held.
    fn free_chunk(&mut self, at: u32) -> Chunk {
        let chunk = self.chunks[at as usize];
        self.chunks[at as usize].next = self.free;
        self.free = at;
        chunk
    }

    fn sort(&mut self, wheel: usize, slot: usize) {
        let mut at = self.wheels[wheel].take(slot);
        while at != NONE {
            let chunk = self.free_chunk(at);
            self.sorted
                .extend_from_slice(&chunk.events[..chunk.length as usize]);
            at = chunk.next;
        }
        self.sorted
            .sort_unstable_by_key(|event| Reverse(event.order()));
    }

    /// Puts a slot's events where they belong now that its turn begins.
    fn spread(&mut self, wheel: usize, slot: usize) {
        let mut at = self.wheels[wheel].take(slot);
        while at != NONE {
            let chunk = self.free_chunk(at);
            for event in &chunk.events[..chunk.length as usize] {
                self.place(*event);
            }
            at = chunk.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Kind;
    use proptest::prelude::*;

    /// Steps of all sizes, so that every wheel and the rest beyond them are used.
    fn steps() -> impl Strategy<Value = Vec<(u64, u8)>> {
        let step = (0u32..46).prop_flat_map(|bits| 0..=(1u64 << bits));
        proptest::collection::vec((step, 0u8..4), 1..600)
    }

    proptest! {
        #[test]
        fn events_come_in_order_and_none_is_lost(steps in steps()) {
            let mut agenda = Agenda::new();
            let mut waiting: Vec<Event> = Vec::new();
            let mut now = 0;
            for (index, (step, takes)) in steps.into_iter().enumerate() {
                let event = Event::plain(now + step, Kind::Timer, index as u32);
                agenda.put(event);
                waiting.push(event);
                for _ in 0..takes {
                    let first = waiting.iter().map(|event| event.order()).min();
                    let taken = agenda.take_before(u64::MAX);
                    prop_assert_eq!(taken.map(|event| event.order()), first);
                    if let Some(taken) = taken {
                        now = taken.time;
                        waiting.retain(|event| event.order() != taken.order());
                    }
                }
                prop_assert_eq!(agenda.len(), waiting.len());
            }
            let horizon = now + (1 << 40);
            while let Some(event) = agenda.take_before(horizon) {
                prop_assert!(event.time >= now && event.time < horizon);
                now = event.time;
                waiting.retain(|other| other.order() != event.order());
            }
            prop_assert!(waiting.iter().all(|event| event.time >= horizon));
        }
    }
}
