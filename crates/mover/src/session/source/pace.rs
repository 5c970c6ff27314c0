// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast all streams together may go, before TCP knows it.
//!
//! Slow start doubles in each round trip, and hears of a full queue a round trip after it was
//! filled: many streams that begin at once then lose as much as the path holds, repair it, and are
//! unequal for seconds. But the path shows what it carries before it is full. Windows leave in bursts,
//! which the narrowest link stretches, so acknowledgements come at its rate even when they come a
//! tenth of the time. [`Pacer`] takes the best rate of some milliseconds for what the path
//! carries, and gives each stream its share of it (SO_MAX_PACING_RATE): a third more first, so
//! that bursts that double do not fill the queue, and just as much when the path is about to be
//! full.
//!
//! A share is a bound and nothing else: windows, and what a loss does to them, are TCP's. The
//! rate follows what was delivered, so that a little waits in the path: then the path is full, and
//! no queue is. Where more waits whatever this side does, others send too: then there is no bound
//! any more, and TCP alone decides, as it would have done without.
//!
//! Pure: it is told what the connections say.

use std::collections::VecDeque;
use std::time::Duration;

/// What the path carries is seen over so long at least: the acknowledgements of a shorter time
/// may have been held up together, by a card or a busy host.
const TRAIN: Duration = Duration::from_millis(3);
/// Shorter round trips need no help: TCP hears of everything at once.
const LEAST_BASE: Duration = Duration::from_millis(5);
/// So much may wait in the path, or a sixteenth of the round trip: it is full then.
const LEAST_QUEUE: Duration = Duration::from_millis(2);
const QUEUE_SHARE: u32 = 16;
/// In round trips: the first windows are too short to show what the path carries.
const WINDOWS: u32 = 2;
/// In round trips: what left before there was a bound is through.
const SETTLING: u32 = 2;
/// In round trips: so long the best rate counts.
const KEPT: usize = 8;
/// It rises by one part of so many in each round trip, as long as nothing has waited in the path,
/// which may carry more; and before it ends.
const STEP: u64 = 16;
/// After so many round trips in which twice as much waits, or something although this side has
/// given up a quarter, it is others'. Others that come and go may leave it empty in between.
const OTHERS: u32 = 10;

/// What all connections say at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// Since the transfer began.
    pub now: Duration,
    /// Arrived by now, bytes.
    pub delivered: u64,
    /// On their way, bytes.
    pub in_flight: u64,
    /// Least round trip of all.
    pub base: Duration,
    /// The round trips now, on the average.
    pub rtt: Duration,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Pacer {
    /// Of the last round trips: when, and bytes delivered by then.
    seen: VecDeque<(Duration, u64)>,
    /// When something was delivered first.
    begun: Option<Duration>,
    /// Best rate of a train, bytes per second.
    train: u64,
    bound: Option<Bound>,
    is_over: bool,
}

#[derive(Debug)]
struct Bound {
    /// Bytes per second.
    rate: u64,
    /// When it was looked at last, and how often.
    at: Duration,
    rounds: u32,
    /// What was delivered in each of the last round trips, bytes per second.
    rates: VecDeque<u64>,
    /// The most of all round trips.
    most: u64,
    /// Round trips in which too much waited, more than those in which it did not.
    waiting: u32,
    /// Something has waited: the path carries no more than what it did.
    is_known: bool,
    /// Others send, too: it ends, step by step.
    is_free: bool,
}

impl Pacer {
    /// Bytes per second for all connections together, from now on; `None`: without a bound.
    pub fn next(&mut self, look: &Look) -> Option<u64> {
        if self.is_over || look.base < LEAST_BASE || look.delivered == 0 {
            return None;
        }
        let carried = self.see(look);
        let begun = *self.begun.get_or_insert(look.now);
        if look.now < begun + WINDOWS * look.base {
            return None;
        }
        let holds = bytes(self.train, look.base);
        match &mut self.bound {
            None if holds > 0 && look.in_flight >= holds / 4 * 3 => {
                self.bound = Some(Bound::new(self.train, look.now));
            }
            None if holds > 0 && look.in_flight >= holds / 4 => {
                return Some(self.train / 3 * 4);
            }
            None => return None,
            Some(bound) if look.now >= bound.at + look.base => {
                bound.round(look, carried);
                // Bursts of before, when all of the next window was on its way.
                if bound.rounds <= SETTLING {
                    bound.rate = bound.rate.max(self.train);
                }
                self.is_over = bound.is_free && bound.rate > 2 * bound.best();
            }
            Some(_) => {}
        }
        let bound = self.bound.as_ref().filter(|_| !self.is_over)?;
        Some(bound.rate)
    }

    /// It will say nothing more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Notes what was delivered; the rate of the last round trip, bytes per second.
    fn see(&mut self, look: &Look) -> u64 {
        self.seen.push_back((look.now, look.delivered));
        let since = |age: Duration| {
            let before = self.seen.iter().rev();
            let mut before = before.skip_while(|(at, _)| *at + age > look.now);
            before.next().map_or(0, |(at, delivered)| {
                rate(look.delivered.saturating_sub(*delivered), look.now - *at)
            })
        };
        let (train, carried) = (since(TRAIN), since(look.base));
        self.train = self.train.max(train);
        while self
            .seen
            .get(1)
            .is_some_and(|(at, _)| *at + look.base <= look.now)
        {
            self.seen.pop_front();
        }
        carried
    }
}

impl Bound {
    fn new(rate: u64, at: Duration) -> Self {
        Self {
            rate,
            at,
            rounds: 0,
            rates: VecDeque::new(),
            most: 0,
            waiting: 0,
            is_known: false,
            is_free: false,
        }
    }

    /// Of the last round trips.
    fn best(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or_default()
    }

    /// Of those that are not below `least`.
    fn mean(&self, least: u64) -> u64 {
        let full = self.rates.iter().filter(|rate| **rate >= least);
        full.clone().sum::<u64>() / full.count().max(1) as u64
    }

    /// A round trip is over.
    fn round(&mut self, look: &Look, carried: u64) {
        self.at = look.now;
        self.rounds += 1;
        if self.rates.len() == KEPT {
            self.rates.pop_front();
        }
        self.rates.push_back(carried);
        if self.rounds <= SETTLING {
            return;
        }
        let best = self.best();
        let wanted = LEAST_QUEUE.max(look.base / QUEUE_SHARE);
        let queue = look.rtt.saturating_sub(look.base);
        self.is_known |= queue > wanted;
        self.most = self.most.max(carried);
        let has_given = carried < self.most / 4 * 3;
        self.waiting = match queue > 2 * wanted || queue > wanted && has_given {
            true => self.waiting + 1,
            false => self.waiting.saturating_sub(1),
        };
        self.is_free |= self.waiting >= OTHERS;
        if self.is_free || !self.is_known {
            if self.is_free || carried >= self.rate / 4 * 3 {
                self.rate = self.rate + self.rate / STEP;
            }
            return;
        }
        // What a full path carries is the mean of when it was full; one that is not full carries
        // the best, or more.
        let carries = match queue > wanted {
            true => self.mean(best / 8 * 7),
            false => best,
        };
        // A quarter of what is too much, or too little, within the next round trip: what comes of
        // it is seen two later.
        let share = |queue: Duration| bytes(carries, queue) * 1_000_000 / us(look.base) / 4;
        self.rate = (carries + share(wanted))
            .saturating_sub(share(queue))
            .max(carries / 2);
    }
}

fn us(time: Duration) -> u64 {
    (time.as_micros() as u64).max(1)
}

fn rate(bytes: u64, time: Duration) -> u64 {
    (u128::from(bytes) * 1_000_000 / u128::from(us(time))) as u64
}

fn bytes(rate: u64, time: Duration) -> u64 {
    (u128::from(rate) * u128::from(us(time)) / 1_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 Mbit/s, bytes per millisecond.
    const LINE: u64 = 25_000;
    /// Round trip without a queue, milliseconds.
    const BASE: u64 = 50;
    /// A quarter of what the path holds.
    const BUFFER: u64 = LINE * BASE / 4;
    /// Eight streams' first windows.
    const FIRST: u64 = 8 * 14_480;

    /// Slow start without an end, in steps of a millisecond over a link five times as fast as
    /// the narrowest. Bytes lost in all, and delivered after half a second.
    fn slow_start(mut pacer: Option<Pacer>, steps: u64) -> (u64, u64) {
        let (mut window, mut in_flight, mut queue) = (FIRST, 0u64, 0u64);
        let (mut lost, mut delivered, mut late) = (0, 0, 0);
        // On their way back, and what they waited.
        let mut back: VecDeque<(u64, u64)> = (0..BASE).map(|_| (0, 0)).collect();
        let (mut rtt, mut rate) = (BASE * 1000, None);
        for now in 0..steps {
            let (acked, waited) = back.pop_front().expect("as many as pushed");
            if acked > 0 {
                rtt = (rtt * 7 + (BASE * 1000 + waited)) / 8;
            }
            delivered += acked;
            late += if now >= 500 { acked } else { 0 };
            in_flight -= acked;
            window += acked;
            let most = rate.map_or(5 * LINE, |rate: u64| (rate / 1000).min(5 * LINE));
            let sent = window.saturating_sub(in_flight).min(most);
            let (held, through) = (queue + sent, LINE.min(queue + sent));
            let dropped = (held - through).saturating_sub(BUFFER);
            queue = held - through - dropped;
            lost += dropped;
            in_flight += sent - dropped;
            back.push_back((through, queue * 1000 / LINE));
            rate = pacer.as_mut().and_then(|pacer| {
                pacer.next(&Look {
                    now: Duration::from_millis(now),
                    delivered,
                    in_flight,
                    base: Duration::from_millis(BASE),
                    rtt: Duration::from_micros(rtt),
                })
            });
        }
        (lost, late)
    }

    #[test]
    fn a_start_fills_the_path_and_not_its_queue() {
        let (lost, _) = slow_start(None, 1000);
        assert!(lost > BUFFER, "without a bound {lost} bytes are lost");
        let (lost, late) = slow_start(Some(Pacer::default()), 3000);
        assert_eq!(lost, 0);
        assert!(late >= 2500 * LINE / 100 * 97, "{late} bytes");
    }

    #[test]
    fn what_others_send_ends_the_bound() {
        let mut pacer = Pacer::default();
        let look = |ms: u64, rtt: u64| Look {
            now: Duration::from_millis(ms),
            delivered: ms * LINE,
            in_flight: BASE * LINE,
            base: Duration::from_millis(BASE),
            rtt: Duration::from_millis(rtt),
        };
        assert!((1..500).filter_map(|ms| pacer.next(&look(ms, 51))).count() > 0);
        // Something waits, however slowly this side sends.
        for ms in 500..4000 {
            pacer.next(&look(ms, 65));
        }
        assert!(pacer.is_over());
        assert_eq!(pacer.next(&look(4000, 51)), None);
    }

    #[test]
    fn a_short_round_trip_has_no_bound() {
        let mut pacer = Pacer::default();
        for ms in 1..1000 {
            let look = Look {
                now: Duration::from_millis(ms),
                delivered: ms * LINE,
                in_flight: 10 * LINE,
                base: Duration::from_millis(1),
                rtt: Duration::from_millis(9),
            };
            assert_eq!(pacer.next(&look), None);
        }
    }
}
