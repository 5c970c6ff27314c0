// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Division of the work among streams.
//!
//! One queue for all streams of a source. A stream takes its next bite when its socket has
//! little unsent, so a slow one binds little. Bites shrink towards the end, those of a slow stream
//! more, and one that would still send its bite when the others have sent all else takes none. When
//! nothing is left, an idle stream repeats the oldest one that is not acknowledged: whichever copy
//! comes first counts. So the last stream ends about one small bite after the first.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::rates::Rates;
use super::{bite_length, LEAST_BITE};

/// Small files of one pack, bytes and number at most: about a chunk.
const PACK_BYTES: u64 = 1 << 20;
const PACK_FILES: usize = 1024;
/// The rest is spread over so many bites per stream.
const SPREAD: u64 = 4;
/// A stream may end so much later than the others.
const GRACE_S: f64 = 0.01;
/// Copies of one bite in flight at most.
const COPIES: usize = 2;

/// Work of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// A bite of a file.
    Range {
        /// The file.
        file: u64,
        /// Its size, bytes.
        size: u64,
        /// How often the file was begun anew, because it had changed.
        attempt: u16,
        /// Where the bite begins, bytes.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Small files, whole.
    Pack(Vec<u64>),
}

/// A piece of work, and its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bite {
    /// For [`Queue::have`] and [`Queue::again`].
    pub id: u64,
    /// The work.
    pub work: Work,
}

#[derive(Debug)]
struct Range {
    file: u64,
    size: u64,
    attempt: u16,
    at: u64,
    end: u64,
    chunk: u64,
}

#[derive(Debug)]
struct Flight {
    work: Work,
    bytes: u64,
    streams: Vec<usize>,
    since: Duration,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Queue {
    ranges: VecDeque<Range>,
    small: VecDeque<(u64, u64)>,
    /// Bytes in `small`, and in both.
    small_bytes: u64,
    rest: u64,
    flight: BTreeMap<u64, Flight>,
    next: u64,
    streams: Vec<usize>,
    rates: Rates,
    /// Streams that leave the end to others, and since when.
    leaving: BTreeMap<usize, Duration>,
    /// Bytes that each stream has taken since it was opened.
    taken: BTreeMap<usize, u64>,
}

impl Queue {
    /// A stream that takes bites from now on.
    pub fn open(&mut self, stream: usize) {
        if !self.streams.contains(&stream) {
            self.streams.push(stream);
        }
    }

    /// A stream is gone: another one sends its bites in flight.
    pub fn close(&mut self, stream: usize) {
        self.streams.retain(|open| *open != stream);
        self.rates.remove(stream);
        self.leaving.remove(&stream);
        self.taken.remove(&stream);
        let mut lost = Vec::new();
        for (id, flight) in &mut self.flight {
            flight.streams.retain(|carrier| *carrier != stream);
            if flight.streams.is_empty() {
                lost.push(*id);
            }
        }
        for id in lost.into_iter().rev() {
            self.again(id);
        }
    }

    /// A range of a file. Its ends are on the grid of [`LEAST_BITE`], or the file's end.
    /// Bites have `chunk` bytes at most.
    pub fn add_range(&mut self, file: u64, size: u64, attempt: u16, range: (u64, u64), chunk: u64) {
        let (at, end) = range;
        if at < end {
            self.rest += end - at;
            self.ranges.push_back(Range {
                file,
                size,
                attempt,
                at,
                end,
                chunk,
            });
        }
    }

    /// A file that goes into a pack.
    pub fn add_small(&mut self, file: u64, bytes: u64) {
        self.rest += bytes;
        self.small_bytes += bytes;
        self.small.push_back((file, bytes));
    }

    /// Nothing waits for a stream.
    pub fn is_empty(&self) -> bool {
        self.rest == 0
    }

    /// Something of a file is waiting, or in flight.
    pub fn has(&self, file: u64) -> bool {
        let flies =
            |flight: &Flight| matches!(flight.work, Work::Range { file: f, .. } if f == file);
        self.ranges.iter().any(|range| range.file == file) || self.flight.values().any(flies)
    }

    /// Nothing more of a file is sent. Returns its bites in flight: offsets and lengths.
    pub fn cancel(&mut self, file: u64) -> Vec<(u64, u64)> {
        let of_it = |range: &&Range| range.file == file;
        let gone: u64 = self.ranges.iter().filter(of_it).map(|r| r.end - r.at).sum();
        self.rest -= gone;
        self.ranges.retain(|range| range.file != file);
        let mut flying = Vec::new();
        self.flight.retain(|_, flight| match flight.work {
            Work::Range {
                file: f,
                offset,
                length,
                ..
            } if f == file => {
                flying.push((offset, length));
                false
            }
            _ => true,
        });
        flying
    }

    /// A stream has delivered so many bytes, at the time `now`.
    pub fn delivered(&mut self, stream: usize, bytes: u64, now: Duration) {
        self.rates.add(stream, bytes, now);
    }

    /// The next bite for an idle stream. A bite in flight is repeated only if it is older than
    /// `patience`, at the time `now`. A slow stream leaves the end to others no longer than that.
    pub fn take(&mut self, stream: usize, now: Duration, patience: Duration) -> Option<Bite> {
        if self.is_too_slow(stream, now) {
            let since = *self.leaving.entry(stream).or_insert(now);
            if now.saturating_sub(since) <= patience {
                return None;
            }
        }
        self.leaving.remove(&stream);
        let limit = self.limit(stream, now);
        let is_pack = self.small_bytes >= PACK_BYTES
            || self.small.len() >= PACK_FILES
            || (self.ranges.is_empty() && !self.small.is_empty());
        let (work, bytes) = match is_pack {
            true => self.pack(limit),
            false => match self.range(limit) {
                Some(range) => range,
                None => return self.repeat(stream, now, patience),
            },
        };
        self.rest -= bytes;
        *self.taken.entry(stream).or_default() += bytes;
        let id = self.next;
        self.next += 1;
        let flight = Flight {
            work: work.clone(),
            bytes,
            streams: vec![stream],
            since: now,
        };
        self.flight.insert(id, flight);
        Some(Bite { id, work })
    }

    /// A stream's part of all that is delivered, by its rate; of equals if that is not known.
    fn share(&self, stream: usize, now: Duration) -> f64 {
        let equal = 1.0 / self.streams.len().max(1) as f64;
        let all = self.rates.all(now);
        match self.rates.of(stream, now) {
            Some(own) if own > 0.0 && all > 0.0 => own / all,
            _ => equal,
        }
    }

    /// No more than the stream has taken before: a new connection sends little in a round trip,
    /// and while one host reads a large bite for one, the others would wait.
    fn limit(&self, stream: usize, now: Duration) -> u64 {
        let taken = self.taken.get(&stream).copied().unwrap_or_default();
        let share = (self.rest as f64 * self.share(stream, now)) as u64 / SPREAD;
        share.min(taken)
    }

    /// When all streams are through with what is left, this one would still be at its next bite.
    fn is_too_slow(&self, stream: usize, now: Duration) -> bool {
        let all = self.rates.all(now);
        let share = self.share(stream, now);
        // There is always one that is not below the mean.
        if self.rest == 0 || all <= 0.0 || share * self.streams.len() as f64 >= 1.0 {
            return false;
        }
        let (mut flying, mut own) = (0, 0);
        for flight in self.flight.values() {
            flying += flight.bytes;
            if flight.streams.contains(&stream) {
                own += flight.bytes;
            }
        }
        let until_all_s = (self.rest + flying) as f64 / all;
        let until_own_s = (own + LEAST_BITE) as f64 / (share * all);
        until_own_s > until_all_s + GRACE_S
    }

    fn range(&mut self, limit: u64) -> Option<(Work, u64)> {
        let range = self.ranges.front_mut()?;
        let limit = limit.clamp(LEAST_BITE, range.chunk);
        let length = bite_length(range.at, range.end, range.size, limit);
        let work = Work::Range {
            file: range.file,
            size: range.size,
            attempt: range.attempt,
            offset: range.at,
            length,
        };
        range.at += length;
        if range.at == range.end {
            self.ranges.pop_front();
        }
        Some((work, length))
    }

    fn pack(&mut self, limit: u64) -> (Work, u64) {
        let limit = limit.clamp(LEAST_BITE, PACK_BYTES);
        let (mut files, mut bytes) = (Vec::new(), 0);
        while let Some((file, size)) = self.small.front().copied() {
            if !files.is_empty() && (bytes + size > limit || files.len() >= PACK_FILES) {
                break;
            }
            self.small.pop_front();
            files.push(file);
            bytes += size;
        }
        self.small_bytes -= bytes;
        (Work::Pack(files), bytes)
    }

    fn repeat(&mut self, stream: usize, now: Duration, patience: Duration) -> Option<Bite> {
        let late = |flight: &Flight| {
            flight.streams.len() < COPIES
                && !flight.streams.contains(&stream)
                && now.saturating_sub(flight.since) > patience
        };
        let mut flights = self.flight.iter_mut();
        let (id, flight) = flights.find(|(_, flight)| late(flight))?;
        flight.streams.push(stream);
        Some(Bite {
            id: *id,
            work: flight.work.clone(),
        })
    }

    /// The other side has it, verified and written. Its bytes; `None` if another copy came
    /// first.
    pub fn have(&mut self, id: u64) -> Option<(Work, u64)> {
        let flight = self.flight.remove(&id)?;
        Some((flight.work, flight.bytes))
    }

    /// It was damaged, or its stream is gone: it is sent again, first of all.
    pub fn again(&mut self, id: u64) {
        let Some(flight) = self.flight.remove(&id) else {
            return;
        };
        self.rest += flight.bytes;
        match flight.work {
            Work::Range {
                file,
                size,
                attempt,
                offset,
                length,
            } => self.ranges.push_front(Range {
                file,
                size,
                attempt,
                at: offset,
                end: offset + length,
                chunk: length.next_power_of_two().max(LEAST_BITE),
            }),
            Work::Pack(files) => {
                // The sizes of its files are not known any more; only their sum matters.
                let mut bytes = flight.bytes;
                self.small_bytes += bytes;
                for file in files.into_iter().rev() {
                    self.small.push_front((file, bytes));
                    bytes = 0;
                }
            }
        }
    }

    /// Nothing waits, and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.ranges.is_empty() && self.small.is_empty() && self.flight.is_empty()
    }

    /// Bytes that no stream has taken.
    pub fn rest(&self) -> u64 {
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::super::CHUNK;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const NOW: Duration = Duration::ZERO;
    const NEVER: Duration = Duration::MAX;

    #[derive(Debug, Clone)]
    enum Step {
        Take(usize),
        Have(usize),
        Again(usize),
        Close(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0usize..4).prop_map(Step::Take),
            3 => any::<usize>().prop_map(Step::Have),
            1 => any::<usize>().prop_map(Step::Again),
            1 => (0usize..4).prop_map(Step::Close),
        ]
    }

    proptest! {
        /// With any loss or damage: in the end each byte and each small file was acknowledged once,
        /// and the queue is empty.
        #[test]
        fn each_byte_is_acknowledged_once(
            sizes in proptest::collection::vec(1u64..40 << 20, 1..5),
            small in proptest::collection::vec(0u64..256 << 10, 0..50),
            steps in proptest::collection::vec(step(), 0..300),
        ) {
            let mut queue = Queue::default();
            (0..4).for_each(|stream| queue.open(stream));
            for (file, size) in sizes.iter().enumerate() {
                queue.add_range(file as u64, *size, 0, (0, *size), CHUNK);
            }
            for (file, size) in small.iter().enumerate() {
                queue.add_small(1000 + file as u64, *size);
            }
            let total: u64 = sizes.iter().chain(&small).sum();
            prop_assert_eq!(queue.rest(), total);
            let mut seen: HashMap<u64, u64> = HashMap::new();
            let mut count = |work: Work, bytes: u64| match work {
                Work::Range { file, length, .. } => {
                    assert_eq!(length, bytes);
                    *seen.entry(file).or_default() += length;
                }
                Work::Pack(files) => files.iter().for_each(|f| *seen.entry(*f).or_default() += 1),
            };
            let mut flying = Vec::new();
            for step in steps {
                match step {
                    Step::Take(stream) => flying.extend(queue.take(stream, NOW, NEVER)),
                    Step::Have(n) if !flying.is_empty() => {
                        let bite = flying.swap_remove(n % flying.len());
                        if let Some((work, bytes)) = queue.have(bite.id) {
                            prop_assert_eq!(&work, &bite.work);
                            count(work, bytes);
                        }
                    }
                    Step::Again(n) if !flying.is_empty() => {
                        queue.again(flying.swap_remove(n % flying.len()).id);
                    }
                    Step::Close(stream) => queue.close(stream),
                    _ => {}
                }
            }
            // The bites in flight come, and then all the rest.
            flying.into_iter().for_each(|bite| {
                if let Some((work, bytes)) = queue.have(bite.id) {
                    count(work, bytes);
                }
            });
            queue.open(0);
            while let Some(bite) = queue.take(0, NOW, NEVER) {
                let (work, bytes) = queue.have(bite.id).expect("in flight");
                count(work, bytes);
            }
            prop_assert!(queue.is_idle());
            prop_assert_eq!(queue.rest(), 0);
            for (file, size) in sizes.iter().enumerate() {
                prop_assert_eq!(seen.get(&(file as u64)), Some(size));
            }
            for file in 0..small.len() {
                prop_assert_eq!(seen.get(&(1000 + file as u64)), Some(&1));
            }
        }
    }

    /// Streams of 1 and 10 units of rate: with fixed halves the slow one would end ten times
    /// later.
    #[test]
    fn a_slow_stream_ends_with_a_fast_one() {
        let mut queue = Queue::default();
        (0..2).for_each(|stream| queue.open(stream));
        let size = 100 << 20;
        queue.add_range(0, size, 0, (0, size), CHUNK);
        let (mut free, mut last) = ([0u64, 0], [0, 0]);
        loop {
            let stream = usize::from(free[1] < free[0]);
            let Some(bite) = queue.take(stream, NOW, NEVER) else {
                break;
            };
            let Work::Range { length, .. } = bite.work else {
                panic!("no small files");
            };
            free[stream] += length * [10, 1][stream];
            last[stream] = free[stream];
            queue.have(bite.id).expect("in flight");
        }
        let (first, last) = (last[0].min(last[1]) as f64, last[0].max(last[1]) as f64);
        assert!(last / first < 1.01, "{first} {last}");
    }

    /// Time that seven streams and one of a tenth of their rate need for 400 MB, beyond the path's,
    /// seconds. Each socket holds up to 256 KiB that it has not sent.
    fn beyond_the_path_s(are_reported: bool) -> f64 {
        const HELD: f64 = 262_144.0;
        let rates: [f64; 8] = [10e6, 10e6, 10e6, 10e6, 10e6, 10e6, 10e6, 1e6];
        let size = 400_000_000;
        let mut queue = Queue::default();
        (0..rates.len()).for_each(|stream| queue.open(stream));
        queue.add_range(0, size, 0, (0, size), CHUNK);
        // Of each stream: when it has sent each of its bites.
        let mut sent: Vec<VecDeque<(f64, Bite, u64)>> = vec![VecDeque::new(); rates.len()];
        let mut last_s = 0.0;
        for step in 0.. {
            let now_s = f64::from(step) * 0.001;
            let now = Duration::from_secs_f64(now_s);
            for (stream, rate) in rates.iter().enumerate() {
                while sent[stream].front().is_some_and(|(at, ..)| *at <= now_s) {
                    let (at, bite, length) = sent[stream].pop_front().expect("one");
                    last_s = f64::max(last_s, at);
                    queue.have(bite.id).expect("in flight");
                    if are_reported {
                        queue.delivered(stream, length, now);
                    }
                }
                let until_s = sent[stream].back().map_or(now_s, |(at, ..)| *at);
                if (until_s - now_s) * rate <= HELD {
                    if let Some(bite) = queue.take(stream, now, NEVER) {
                        let Work::Range { length, .. } = bite.work else {
                            panic!("no small files");
                        };
                        sent[stream].push_back((until_s + length as f64 / rate, bite, length));
                    }
                }
            }
            if queue.is_idle() {
                break;
            }
        }
        last_s - size as f64 / rates.iter().sum::<f64>()
    }

    #[test]
    fn a_slow_stream_leaves_the_end_to_the_others() {
        assert!(
            beyond_the_path_s(false) > 0.2,
            "it is late where nobody knows"
        );
        let late_s = beyond_the_path_s(true);
        assert!(late_s < 0.1, "{late_s}");
    }

    #[test]
    fn bites_of_a_new_stream_double() {
        let mut queue = Queue::default();
        queue.open(0);
        queue.add_range(0, 1 << 30, 0, (0, 1 << 30), CHUNK);
        let mut taken = 0;
        while taken < CHUNK {
            match queue.take(0, NOW, NEVER).expect("there is more").work {
                Work::Range { length, .. } => {
                    assert!(length <= taken.max(LEAST_BITE), "{length} after {taken}");
                    taken += length;
                }
                Work::Pack(_) => panic!("there are no small files"),
            }
        }
    }

    #[test]
    fn an_idle_stream_repeats_the_oldest_and_the_first_copy_counts() {
        let mut queue = Queue::default();
        (0..3).for_each(|stream| queue.open(stream));
        queue.add_range(7, 100, 0, (0, 100), CHUNK);
        let ms = Duration::from_millis;
        let first = queue.take(0, ms(0), ms(100)).expect("one");
        assert_eq!(queue.take(1, ms(100), ms(100)), None, "not late yet");
        assert_eq!(queue.take(0, ms(200), ms(100)), None, "its own");
        let copy = queue.take(1, ms(200), ms(100)).expect("a copy");
        assert_eq!(copy, first);
        assert_eq!(queue.take(2, ms(900), ms(100)), None, "two are enough");
        queue.close(0);
        assert_eq!(queue.rest(), 0, "the copy is in flight");
        assert!(queue.have(copy.id).is_some());
        assert!(queue.have(first.id).is_none());
        assert!(queue.is_idle());
    }

    #[test]
    fn a_closed_stream_gives_back_and_a_cancelled_file_is_gone() {
        let mut queue = Queue::default();
        queue.open(0);
        queue.add_range(1, 3 << 20, 0, (0, 3 << 20), CHUNK);
        queue.add_range(2, 10, 0, (0, 10), CHUNK);
        let bite = queue.take(0, NOW, NEVER).expect("one");
        queue.close(0);
        assert_eq!(queue.rest(), (3 << 20) + 10);
        queue.open(1);
        let again = queue.take(1, NOW, NEVER).expect("one");
        assert_eq!(again.work, bite.work);
        queue.cancel(1);
        assert_eq!(queue.rest(), 10);
        assert!(queue.have(again.id).is_none());
    }
}
