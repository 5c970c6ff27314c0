// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pending events in order of time: a calendar queue of three wheels.
//!
//! A heap's time grows with its length, and at a million flows that is cache
//! misses. Here an event is put into a slot by its time alone, and slots are
//! sorted when their turn comes, a few events at a time. A wheel's slot is the next
//! finer wheel's whole turn; a slot that holds little is sorted as it is, without being
//! spread over the finer wheel. So there is no width to choose: the same wheels serve
//! one packet per second and a hundred million.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ahead::fetch;
use crate::event::Event;
use crate::memory;

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
/// Events sorted at once, where the finest slots hold fewer: the caller can see the next
/// ones and prefetch their data ([`Agenda::ahead`]).
const BATCH: u32 = 32;
/// Most slots of such a batch.
const BATCH_SLOTS: usize = 64;
/// End of a slot's list.
const NONE: u32 = u32::MAX;

/// Events of a chunk: a slot that holds thousands is read in the order of memory, without a
/// cache miss for each event. With the member after them they fill four cache lines.
const TOGETHER: usize = 7;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Chunk {
    events: [Event; TOGETHER],
    /// The slot's next chunk, which is full.
    next: u32,
}

/// A slot: the first of its chunks, and how many events they hold.
#[derive(Clone, Copy)]
struct Slot {
    head: u32,
    count: u32,
}

const EMPTY: Slot = Slot {
    head: NONE,
    count: 0,
};

impl Slot {
    /// Events in its first chunk.
    fn first_length(self) -> usize {
        match self.count as usize % TOGETHER {
            0 => TOGETHER,
            some => some,
        }
    }
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
    slots: Box<[Slot]>,
    /// A bit for each slot.
    full: [u64; SLOTS / 64],
    /// A bit for each word of `full`.
    words: u64,
}

impl Wheel {
    fn new() -> Self {
        Wheel {
            slots: vec![EMPTY; SLOTS].into(),
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

    fn take(&mut self, slot: usize) -> Slot {
        let word = slot / 64;
        self.full[word] &= !(1 << (slot % 64));
        if self.full[word] == 0 {
            self.words &= !(1 << word);
        }
        std::mem::replace(&mut self.slots[slot], EMPTY)
    }
}

/// Events in order.
pub struct Agenda {
    /// The events before `sorted_until`, the latest in front.
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
    /// An agenda without events.
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

    /// Number of pending events.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no event is pending.
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
        let Slot { head, count } = wheel.slots[slot];
        wheel.slots[slot].count += 1;
        let used = count as usize % TOGETHER;
        if used > 0 {
            self.chunks[head as usize].events[used] = event;
            return;
        }
        if count == 0 {
            wheel.full[slot / 64] |= 1 << (slot % 64);
            wheel.words |= 1 << (slot / 64);
        }
        let at = self.free;
        if at == NONE {
            let length = self.chunks.len();
            wheel.slots[slot].head = length as u32;
            if length == self.chunks.capacity() {
                memory::reserve(&mut self.chunks, length.max(1_024));
            }
            self.chunks.push(Chunk {
                events: [event; TOGETHER],
                next: head,
            });
        } else {
            wheel.slots[slot].head = at;
            let chunk = &mut self.chunks[at as usize];
            self.free = chunk.next;
            chunk.events[0] = event;
            chunk.next = head;
        }
    }

    /// Takes the first event out, if it lies before `until`.
    #[inline]
    pub fn take_before(&mut self, until: u64) -> Option<Event> {
        self.fill(until);
        if self.sorted.last()?.time >= until {
            return None;
        }
        self.length -= 1;
        self.sorted.pop()
    }

    /// Sorts the next events, if no sorted one is left and they may lie before `until`.
    /// Returns whether it did.
    #[inline]
    pub fn fill(&mut self, until: u64) -> bool {
        if !self.sorted.is_empty() {
            return false;
        }
        while self.sorted.is_empty() {
            if self.length == 0 || self.sorted_until >= until {
                return false;
            }
            self.advance();
        }
        true
    }

    /// The event that will be taken after `others` more, if it is sorted already.
    #[inline]
    pub fn ahead(&self, others: usize) -> Option<&Event> {
        let at = self.sorted.len().checked_sub(others + 1)?;
        self.sorted.get(at)
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
            if self.wheels[wheel].slots[slot].count > 0 {
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
            if wheel == 0 {
                self.sort_batch(slot, turn);
            } else if wheel == 1 && self.wheels[wheel].slots[slot].count <= FEW {
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

    /// Gives a chunk back. Returns the one that follows it.
    fn free_chunk(&mut self, at: u32) -> u32 {
        let free = std::mem::replace(&mut self.free, at);
        std::mem::replace(&mut self.chunks[at as usize].next, free)
    }

    /// Puts a slot's events behind the sorted ones. All of them are earlier.
    fn sort(&mut self, wheel: usize, slot: usize) {
        let from = self.sorted.len();
        let slot = self.wheels[wheel].take(slot);
        let (mut at, mut length) = (slot.head, slot.first_length());
        while at != NONE {
            let chunk = &self.chunks[at as usize];
            self.sorted.extend_from_slice(&chunk.events[..length]);
            at = self.free_chunk(at);
            length = TOGETHER;
        }
        self.sorted[from..].sort_unstable_by_key(|event| Reverse(event.order()));
    }

    /// Sorts slots of the finest wheel, whose turn began at `turn`, from `first` on.
    fn sort_batch(&mut self, first: usize, turn: u64) {
        let (mut slots, mut length, mut events) = ([first; BATCH_SLOTS], 1, 0);
        for at in 1..=BATCH_SLOTS {
            length = at;
            events += self.wheels[0].slots[slots[at - 1]].count;
            let next = self.wheels[0].next(slots[at - 1] + 1);
            match next.filter(|_| events < BATCH && at < BATCH_SLOTS) {
                Some(slot) => slots[at] = slot,
                None => break,
            }
        }
        let last = slots[length - 1] as u64;
        self.sorted_until = turn + ((last + 1) << FINE);
        // Those of the next batch were put there long ago.
        let mut after = last as usize;
        for _ in 0..length {
            let Some(slot) = self.wheels[0].next(after + 1) else {
                break;
            };
            let head = self.wheels[0].slots[slot].head;
            fetch(&self.chunks[head as usize]);
            after = slot;
        }
        // The latest in front.
        for slot in slots[..length].iter().rev() {
            self.sort(0, *slot);
        }
    }

    /// Moves a slot's events to finer wheels as its turn begins.
    fn spread(&mut self, wheel: usize, slot: usize) {
        let slot = self.wheels[wheel].take(slot);
        let (mut at, mut length) = (slot.head, slot.first_length());
        while at != NONE {
            let next = self.chunks[at as usize].next;
            if next != NONE {
                fetch(&self.chunks[next as usize]);
            }
            for place in 0..length {
                let event = self.chunks[at as usize].events[place];
                self.place(event);
            }
            at = self.free_chunk(at);
            length = TOGETHER;
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
