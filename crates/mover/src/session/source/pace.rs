// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rate of all streams together, before TCP knows it.
//!
//! Slow start doubles in each round trip, and detects a full queue a round trip after it was
//! filled: many streams that begin at once then lose as much as the path holds, repair it, and are
//! unequal for seconds. But the path shows its rate before it is full. Windows leave in bursts,
//! which the narrowest link stretches, so acknowledgements come at its rate even when they come a
//! tenth of the time. [`Pacer`] takes the best rate of some milliseconds as the path's rate, and
//! gives each stream its share of it (SO_MAX_PACING_RATE): a third more first, so that bursts that
//! double do not fill the queue, and just as much when the path is about to be full.
//!
//! A share is a bound and nothing else: windows, and their response to loss, are TCP's. The rate
//! follows the delivered bytes, so that a little waits in the path: then the path is full, and no
//! queue is. Where more waits regardless of this side's rate, others send too: then there is no
//! bound any more, and TCP alone decides, as it would have done without.
//!
//! Several hosts that send at the same time see the same trains. As long as they share the
//! narrowest link, each keeps to its part of the link's rate; the head, which sees all of them,
//! reports that they do not ([`Pacer::part`]).
//!
//! Pure: the caller passes the connections' state in.

use std::collections::VecDeque;
use std::time::Duration;

/// The path's rate is seen over so long at least: a card or a busy host may have held up the
/// acknowledgements of a shorter time together.
const TRAIN: Duration = Duration::from_millis(3);
/// Shorter round trips need no help: TCP detects everything at once.
const LEAST_BASE: Duration = Duration::from_millis(5);
/// So much may wait in the path, or a sixteenth of the round trip: it is full then.
const LEAST_QUEUE: Duration = Duration::from_millis(2);
const QUEUE_SHARE: u32 = 16;
/// In round trips: the first windows are too short to show the path's rate.
const WINDOWS: u32 = 2;
/// In round trips: packets from before the bound have arrived.
const SETTLING: u32 = 2;
/// In round trips: so long the best rate counts.
const KEPT: usize = 8;
/// It rises by one part of so many in each round trip, as long as nothing has waited in the path,
/// which may carry more; and before it ends.
const STEP: u64 = 16;
/// After so many round trips in which twice as much waits, or something although this side has
/// given up a quarter, the queue is others'. Others that come and go may leave it empty in between.
const OTHERS: u32 = 10;

/// State of all connections at one moment.
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
#[derive(Debug)]
pub struct Pacer {
    /// Hosts that share the path's rate.
    pairs: u64,
    /// There are others of the same transfer, whether they share or not: their traffic is not
    /// strangers'.
    is_one_of_many: bool,
    /// Of the last round trips: when, and bytes delivered by then.
    seen: VecDeque<(Duration, u64)>,
    /// When something was delivered first.
    begun: Option<Duration>,
    /// Best rate of a train, bytes per second.
    train: u64,
    /// Rate of the last round trip, bytes per second.
    carried: u64,
    bound: Option<Bound>,
    is_over: bool,
}

#[derive(Debug)]
struct Bound {
    /// Bytes per second.
    rate: u64,
    /// Time of the last look, and number of looks.
    at: Duration,
    rounds: u32,
    /// Delivered rate of each of the last round trips, bytes per second.
    rates: VecDeque<u64>,
    /// The most of all round trips.
    most: u64,
    /// Round trips in which too much waited, more than those in which it did not.
    waiting: u32,
    /// Something has waited: the path carries no more than it did.
    is_known: bool,
    /// Others send, too: it ends, step by step.
    is_free: bool,
}

impl Pacer {
    /// Of a host that is one of so many.
    pub fn new(pairs: u16) -> Self {
        Self {
            pairs: pairs.max(1).into(),
            is_one_of_many: pairs > 1,
            seen: VecDeque::new(),
            begun: None,
            train: 0,
            carried: 0,
            bound: None,
            is_over: false,
        }
    }

    /// The others have narrowest links of their own.
    pub fn part(&mut self) {
        self.pairs = 1;
    }

    /// Rate that the path was seen to carry, and rate of the last round trip, bytes per second.
    pub fn path(&self) -> (u64, u64) {
        (self.train, self.carried)
    }

    /// Bytes per second for all connections together, from now on; `None`: without a bound.
    pub fn next(&mut self, look: &Look) -> Option<u64> {
        if self.is_over || look.base < LEAST_BASE || look.delivered == 0 {
            return None;
        }
        self.see(look);
        let begun = *self.begun.get_or_insert(look.now);
        if look.now < begun + WINDOWS * look.base {
            return None;
        }
        let own = self.train / self.pairs;
        let holds = bytes(own, look.base);
        match &mut self.bound {
            None if holds > 0 && look.in_flight >= holds / 4 * 3 => {
                self.bound = Some(Bound::new(own, look.now));
            }
            None if holds > 0 && look.in_flight >= holds / 4 => {
                return Some(own / 3 * 4);
            }
            None => return None,
            Some(bound) if look.now >= bound.at + look.base => {
                // A part of it, as long as nothing was known of the others.
                let was_less = self.is_one_of_many && bound.rate < own;
                bound.round(look, self.carried, (self.is_one_of_many, was_less));
                // Bursts of before, when all of the next window was on its way.
                if bound.rounds <= SETTLING {
                    bound.rate = bound.rate.max(own);
                }
                self.is_over = bound.is_free && bound.rate > 2 * bound.best();
            }
            // The first windows were shorter than a train.
            Some(bound) if bound.rounds < SETTLING => bound.rate = bound.rate.max(own),
            Some(_) => {}
        }
        let bound = self.bound.as_ref().filter(|_| !self.is_over)?;
        Some(bound.rate)
    }

    /// It sets no bound any more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Notes the delivered bytes.
    fn see(&mut self, look: &Look) {
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
        self.carried = carried;
        while self
            .seen
            .get(1)
            .is_some_and(|(at, _)| *at + look.base <= look.now)
        {
            self.seen.pop_front();
        }
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
    fn round(&mut self, look: &Look, carried: u64, (is_one_of_many, was_less): (bool, bool)) {
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
        // To others of the same transfer, perhaps.
        let has_given = carried < self.most / 4 * 3 && !is_one_of_many;
        self.waiting = match queue > 2 * wanted || queue > wanted && has_given {
            true => self.waiting + 1,
            false => self.waiting.saturating_sub(1),
        };
        self.is_free |= self.waiting >= OTHERS;
        if self.is_free || !self.is_known {
            let step = if was_less { STEP / 2 } else { STEP };
            let more = self.rate + self.rate / step;
            if self.is_free {
                self.rate = more;
            } else if carried >= self.rate / 4 * 3 {
                // No further than a step from the delivered rate: the queue is measured later.
                self.rate = self.rate.max(more.min(best + best / step));
            }
            return;
        }
        // Another host leaves its share.
        if is_one_of_many && queue < wanted / 4 && carried >= self.rate / 8 * 7 {
            self.rate += self.rate / STEP;
            return;
        }
        // The rate of a full path is the mean of its full round trips; one that is not full carries
        // the best, or more.
        let carries = match queue > wanted {
            true => self.mean(best / 8 * 7),
            false => best,
        };
        // A quarter of the surplus, or of the lack, within the next round trip: the effect is seen
        // two later.
        let share = |queue: Duration| bytes(carries, queue) * 1_000_000 / us(look.base) / 4;
        let next = (carries + share(wanted))
            .saturating_sub(share(queue))
            .max(carries / 2);
        // Nothing waits: the delivered rate is below `rate` because senders that are paced miss
        // some of their turns. So `rate` does not follow it down.
        self.rate = match queue < wanted / 4 {
            true => next.max((self.rate + share(wanted)).min(best + best / STEP)),
            false => next,
        };
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

    /// One of the hosts that send over a link.
    struct Host {
        pacer: Option<Pacer>,
        window: u64,
        in_flight: u64,
        delivered: u64,
        rtt: u64,
        rate: Option<u64>,
        /// Milliseconds.
        begins: u64,
        /// Of what it may send, percent.
        turns: u64,
    }

    impl Host {
        fn new(pacer: Option<Pacer>, window: u64, begins: u64) -> Self {
            Self {
                pacer,
                window,
                in_flight: 0,
                delivered: 0,
                rtt: BASE * 1000,
                rate: None,
                begins,
                turns: 100,
            }
        }

        fn step(&mut self, now: u64, acked: u64, waited: u64) {
            if acked > 0 {
                self.rtt = (self.rtt * 7 + (BASE * 1000 + waited)) / 8;
            }
            self.delivered += acked;
            self.in_flight -= acked;
            self.window += acked;
            self.rate = self.pacer.as_mut().and_then(|pacer| {
                pacer.next(&Look {
                    now: Duration::from_millis(now),
                    delivered: self.delivered,
                    in_flight: self.in_flight,
                    base: Duration::from_millis(BASE),
                    rtt: Duration::from_micros(self.rtt),
                })
            });
        }

        fn sends(&self, now: u64) -> u64 {
            let most = self.rate.map_or(5 * LINE, |rate| {
                (rate / 1000).min(5 * LINE) * self.turns / 100
            });
            match now < self.begins {
                true => 0,
                false => self.window.saturating_sub(self.in_flight).min(most),
            }
        }
    }

    /// Slow start without an end, in steps of a millisecond over links five times as fast as
    /// the narrowest, which all hosts share. Bytes lost in all, and delivered after a second.
    fn slow_start(mut hosts: Vec<Host>, steps: u64) -> (u64, u64) {
        let (mut lost, mut late, mut waits) = (0, 0, 0);
        // Queued bytes, by host.
        let mut queue: VecDeque<(usize, u64)> = VecDeque::new();
        // On its way back: bytes of each host, and their wait.
        let none = || vec![0; hosts.len()];
        let mut back: VecDeque<(Vec<u64>, u64)> = (0..BASE).map(|_| (none(), 0)).collect();
        for now in 0..steps {
            let (acked, waited) = back.pop_front().expect("as many as pushed");
            late += if now >= 1000 { acked.iter().sum() } else { 0 };
            for (host, acked) in hosts.iter_mut().zip(acked) {
                host.step(now, acked, waited);
            }
            for (number, host) in hosts.iter_mut().enumerate() {
                let sent = host.sends(now);
                let taken = sent.min((BUFFER + LINE).saturating_sub(waits));
                lost += sent - taken;
                host.in_flight += taken;
                waits += taken;
                queue.push_back((number, taken));
            }
            let (mut through, mut left) = (vec![0; hosts.len()], LINE);
            while let Some((number, bytes)) = queue.front_mut() {
                let part = left.min(*bytes);
                through[*number] += part;
                left -= part;
                *bytes -= part;
                if *bytes > 0 {
                    break;
                }
                queue.pop_front();
            }
            waits -= LINE - left;
            back.push_back((through, waits * 1000 / LINE));
        }
        (lost, late)
    }

    fn of(hosts: u16, pairs: u16) -> Vec<Host> {
        let first = FIRST / u64::from(hosts);
        let begins = |number: u16| u64::from(number) * 5;
        let all = (0..hosts).map(|number| (Pacer::new(pairs), begins(number)));
        all.map(|(pacer, begins)| Host::new(Some(pacer), first, begins))
            .collect()
    }

    #[test]
    fn a_start_fills_the_path_and_not_its_queue() {
        let (lost, _) = slow_start(vec![Host::new(None, FIRST, 0)], 1000);
        assert!(lost > BUFFER, "without a bound {lost} bytes are lost");
        let (lost, late) = slow_start(of(1, 1), 3500);
        assert_eq!(lost, 0);
        assert!(late >= 2500 * LINE / 100 * 97, "{late} bytes");
    }

    /// The host is busy and does not send all that the bound allows.
    #[test]
    fn a_host_that_misses_turns_fills_the_path() {
        let (lost, late) = slow_start(
            vec![Host {
                turns: 95,
                ..Host::new(Some(Pacer::new(1)), FIRST, 0)
            }],
            3500,
        );
        assert_eq!(lost, 0);
        assert!(late >= 2500 * LINE / 100 * 97, "{late} bytes");
    }

    #[test]
    fn hosts_that_share_a_path_fill_it_together() {
        let (lost, _) = slow_start(of(3, 1), 1000);
        assert!(lost > BUFFER, "each for itself, {lost} bytes are lost");
        for hosts in 2..=4 {
            let (lost, late) = slow_start(of(hosts, hosts), 3500);
            // A little where one host has seen a train and another one has not yet: of two none, of
            // four 0.07 % of what is delivered.
            let most = if hosts == 2 { 0 } else { late / 1000 };
            assert!(lost <= most, "{hosts} hosts: {lost} bytes are lost");
            assert!(
                late >= 2500 * LINE / 100 * 97,
                "{hosts} hosts: {late} bytes"
            );
        }
    }

    /// Its link carries [`LINE`], but it takes a fourth of that, until `part` is called.
    #[test]
    fn a_host_with_a_path_of_its_own_takes_all_of_it() {
        let (mut pacer, mut delivered, mut rate) = (Pacer::new(4), 0, None);
        let mut at = Vec::new();
        for now in 1..3000 {
            delivered += rate.map_or(LINE, |rate: u64| (rate / 1000).min(LINE));
            if now == 1000 {
                pacer.part();
            }
            rate = pacer.next(&Look {
                now: Duration::from_millis(now),
                delivered,
                in_flight: rate.unwrap_or(LINE * 1000) / 1000 * BASE,
                base: Duration::from_millis(BASE),
                rtt: Duration::from_millis(BASE),
            });
            at.push(rate.unwrap_or(0) / 1000);
        }
        assert!(at[400] < LINE / 2, "a part, {}", at[400]);
        assert!(at[2500] >= LINE, "all of it, {}", at[2500]);
    }

    #[test]
    fn traffic_of_others_ends_the_bound() {
        let mut pacer = Pacer::new(1);
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
        let mut pacer = Pacer::new(1);
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
