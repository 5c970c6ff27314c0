// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The windows of all streams on one route as one budget: it follows the delivered rate
//! times the base round trip, and a share of the queue.

use std::collections::VecDeque;
use std::time::Duration;

use super::observation::Observation;

/// A round trip that exceeds its base by this share, and by this much at least, microseconds,
/// shows a queue: less may be the hosts' own jitter.
const QUEUE_SEEN: f64 = 0.02;
const QUEUE_SEEN_US: f64 = 500.0;
/// Segments of each stream that are no queue yet: streams that began together are paced
/// together, by pairs, and those pairs wait for one another.
const PAIR: f64 = 2.0;
/// Queueing delay aimed at while the queue's size is not known, as a share of the base
/// round trip, and its bounds in microseconds. A buffer of a tenth of the
/// bandwidth-delay product is a shallow one.
const CAUTIOUS: f64 = 0.04;
const CAUTIOUS_US: (f64, f64) = (500.0, 10_000.0);
/// Share of the distance to the aim that a round trip closes. A step shows one to two round trips
/// later, and more than a quarter would oscillate.
const GAIN: f64 = 0.25;
/// Largest step of the budget in a round trip, as its share. A step that was too large
/// is seen before the next one, and half a shallow buffer takes it.
const LARGEST_STEP: f64 = 0.0625;
/// Round trips without a queue until the capacity is looked for again: it is another one, or
/// was never found.
const EMPTY: u32 = 4;
/// Factor of the queue's estimated size after a loss at a lower fill.
const SMALLER: f64 = 0.7;
/// CUBIC's cut at a loss (RFC 9438, 4.6). Of n streams that share a budget each has one
/// nth of it.
const CUT: f64 = 0.3;
/// Round trips at the start in which a queue is no sign of the capacity: the first windows of all
/// streams leave in one unpaced burst, and make a short queue.
const BURST_RTTS: f64 = 1.5;
/// Growth while the capacity is not known, per round trip: slow start's. All of it at once, so
/// that the kernel spreads the added segments over a round trip; in little steps it would leave
/// in bursts, which a shallow queue does not hold.
const START_GROWTH: f64 = 1.8;
/// First growth of a repeated search, where the capacity may be near: a step shows one to two
/// round trips later. Each step is twice the one before, up to the start's.
const AGAIN_GROWTH: f64 = 0.0625;
/// Round trips that repairs may take before the route is looked at as it is.
const REPAIR_RTTS: f64 = 8.0;
/// Round trips whose largest delivery rate is the estimate of the capacity (BBR has ten), and the
/// largest budget as a factor of that rate times the round trip.
const RATE_RTTS: usize = 10;
const BEYOND: f64 = 1.15;
/// Round trips without a loss, in which all but this share of the budget was delivered, until a
/// route counts as steady.
const CALM: u32 = 3;
const CALM_SHARE: f64 = 0.04;
/// Least budget for each stream, segments.
const LEAST_SEGS: f64 = 2.0;
/// A budget that is filled less than this is not too small.
const FILLED: f64 = 0.92;
/// Delays above the aim for so many round trips, although the budget was cut each time, are not
/// this group's own: other traffic fills the queue. This verdict lasts for so many round trips:
/// CUBIC takes some 30 here from one loss to the next, after which there is a short while without
/// a queue.
const CROWDED_AFTER: u32 = 5;
const CROWDED_RTTS: u32 = 100;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The capacity is being looked for.
    Start,
    /// A sign of it was seen. The overfilled queue is drained, and losses repaired, until then at
    /// first, and at last until the second.
    Drain { until: Duration, last: Duration },
    /// Known, followed.
    Follow,
}

#[derive(Debug)]
pub(super) struct Route {
    phase: Phase,
    base_us: f64,
    /// The budget, segments.
    window_segs: f64,
    /// When the search for the capacity began, the growth of its next step, as a share, and when
    /// the last one was taken.
    begun: Option<Duration>,
    growth: f64,
    grown: Duration,
    /// The result of the last search.
    found_segs_per_s: f64,
    /// Delivered until a moment, segments; a few round trips of it.
    history: VecDeque<(Duration, f64)>,
    delivered_segs: f64,
    /// Of the round trip that is being watched.
    epoch: Duration,
    losers: f64,
    highest_us: f64,
    /// Of the one before.
    highest_before_us: f64,
    hold_until: Duration,
    /// The queue's size as a delay, once a loss has shown it.
    full_us: Option<f64>,
    delay_us: f64,
    rate_segs_per_s: f64,
    /// The rate in each of the last round trips.
    rates: VecDeque<f64>,
    empty_epochs: u32,
    crowded_epochs: u32,
    crowded_until: Duration,
    calm_epochs: u32,
    /// Delay that the first windows made, microseconds: bursts, which come again.
    burst_us: f64,
    /// The budget is left alone until then: a trial is on.
    kept_until: Duration,
    /// Segments that all streams still have to send.
    pub demand: f64,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            phase: Phase::Start,
            base_us: 0.0,
            window_segs: 0.0,
            begun: None,
            growth: START_GROWTH - 1.0,
            grown: Duration::ZERO,
            found_segs_per_s: 0.0,
            history: VecDeque::new(),
            delivered_segs: 0.0,
            epoch: Duration::ZERO,
            losers: 0.0,
            highest_us: 0.0,
            highest_before_us: 0.0,
            hold_until: Duration::ZERO,
            full_us: None,
            delay_us: 0.0,
            rate_segs_per_s: 0.0,
            rates: VecDeque::new(),
            empty_epochs: 0,
            crowded_epochs: 0,
            crowded_until: Duration::ZERO,
            calm_epochs: 0,
            burst_us: 0.0,
            kept_until: Duration::ZERO,
            demand: 0.0,
        }
    }
}

impl Route {
    pub fn base_us(&self) -> f64 {
        self.base_us
    }

    /// The budget, segments; `None` before the first round trip was measured.
    pub fn window_segs(&self) -> Option<f64> {
        (self.base_us > 0.0 && self.window_segs > 0.0).then_some(self.window_segs)
    }

    /// The capacity is known, and the budget follows it.
    pub fn follows(&self) -> bool {
        self.phase == Phase::Follow
    }

    /// The bottleneck is full, and for some round trips the budget was delivered without a loss:
    /// only a change of the budget can change the rate.
    pub fn steady(&self) -> bool {
        self.calm_epochs >= CALM && self.losers == 0.0 && self.delay_us >= self.aim_us(1.0) / 4.0
    }

    /// Delivered over the last round trip, segments per second.
    pub fn rate_segs_per_s(&self) -> f64 {
        self.rate_segs_per_s
    }

    /// Rate of the budget, segments per second.
    pub fn given_rate(&self) -> f64 {
        self.window_segs / self.rtt().as_secs_f64()
    }

    /// Queueing delay, microseconds.
    pub fn delay_us(&self) -> f64 {
        self.delay_us
    }

    /// Enlarges the budget, or makes it smaller.
    pub fn add_window(&mut self, segs: f64) {
        self.window_segs = (self.window_segs + segs).max(1.0);
    }

    /// Leaves the budget alone, but for losses.
    pub fn keep_until(&mut self, until: Duration) {
        self.kept_until = until;
    }

    pub fn rtt(&self) -> Duration {
        Duration::from_micros((self.base_us + self.delay_us) as u64)
    }

    /// Segments per second over the last `span`, which the history covers or nearly.
    fn rate_over(&self, now: Duration, span: Duration) -> f64 {
        let from = now.saturating_sub(span);
        // The youngest entry that is old enough, else the oldest there is.
        let entry = self.history.iter().rev().find(|(time, _)| *time <= from);
        match entry.or(self.history.front()) {
            Some((time, before)) if now > *time => {
                (self.delivered_segs - before) / (now - *time).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    /// A delay above this is a queue's, microseconds.
    fn queue_seen_us(&self, active: f64) -> f64 {
        let pairs_us = PAIR * active / self.rate_segs_per_s.max(1.0) * 1e6;
        (self.base_us * QUEUE_SEEN).max(QUEUE_SEEN_US).max(pairs_us)
    }

    /// Largest rate of the last round trips, segments per second.
    fn capacity(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// A budget beyond the route's recent delivery would only wait somewhere.
    fn most_segs(&self, queue: f64) -> f64 {
        let queue_us = self.delay_us.max(self.aim_us(queue));
        BEYOND * self.capacity() * (self.base_us + queue_us) / 1e6
    }

    /// Delay to aim at, microseconds.
    fn aim_us(&self, queue: f64) -> f64 {
        let aim = match self.full_us {
            Some(full) => full * queue,
            None => (self.base_us * CAUTIOUS).clamp(CAUTIOUS_US.0, CAUTIOUS_US.1),
        };
        aim.max(CAUTIOUS_US.0)
    }

    pub fn update(&mut self, now: Duration, observed: &Observation, queue: f64) {
        self.demand = observed.demand;
        self.delivered_segs += observed.delivered_segs;
        if observed.base_us == 0.0 {
            return;
        }
        self.base_us = observed.base_us;
        self.delay_us = observed.delay_us.unwrap_or(self.delay_us);
        self.highest_us = self.highest_us.max(self.delay_us);
        self.losers += observed.losers;
        let rtt = self.rtt();
        let half = self.rate_over(now, rtt / 2);
        self.rate_segs_per_s = self.rate_over(now, rtt);
        self.history.push_back((now, self.delivered_segs));
        while self
            .history
            .front()
            .is_some_and(|(time, _)| now.saturating_sub(*time) > 2 * rtt)
        {
            self.history.pop_front();
        }
        let filled = observed.inflight_segs >= FILLED * self.window_segs;
        match self.phase {
            Phase::Start => self.start(now, observed, half, queue, filled),
            Phase::Drain { until, last } => {
                let found = half * (self.base_us + self.aim_us(queue)) / 1e6;
                self.window_segs = self.window_segs.max(found);
                if !filled && now < last {
                    let until = until.max(now + rtt);
                    self.phase = Phase::Drain { until, last };
                    self.losers = 0.0;
                } else if now >= until {
                    self.drained(now, observed.active, queue);
                }
            }
            Phase::Follow => {
                if now.saturating_sub(self.epoch) >= rtt {
                    self.rates.push_back(self.rate_segs_per_s);
                    while self.rates.len() > RATE_RTTS {
                        self.rates.pop_front();
                    }
                    let delivered = self.rate_segs_per_s > (1.0 - CALM_SHARE) * self.given_rate();
                    self.calm_epochs = match self.losers == 0.0 && delivered {
                        true => self.calm_epochs + 1,
                        false => 0,
                    };
                    self.follow(now, observed.active, queue, filled);
                    if self.phase == Phase::Follow {
                        self.window_segs = self.window_segs.min(self.most_segs(queue));
                        self.next_epoch(now);
                    }
                }
            }
        }
        if self.window_segs > 0.0 {
            let least = LEAST_SEGS * observed.active.max(1.0);
            self.window_segs = self.window_segs.max(least);
        }
    }

    fn start(
        &mut self,
        now: Duration,
        observed: &Observation,
        half: f64,
        queue: f64,
        filled: bool,
    ) {
        if self.window_segs == 0.0 {
            if observed.inflight_segs == 0.0 {
                return;
            }
            // The first windows have left; their first ACKs release the next ones.
            self.window_segs = START_GROWTH * observed.cwnd_segs.max(observed.inflight_segs);
            self.grown = now;
            return;
        }
        let begun = *self.begun.get_or_insert(now);
        if now.saturating_sub(begun) < self.rtt().mul_f64(BURST_RTTS) {
            self.losers = 0.0;
            self.burst_us = self.burst_us.max(self.delay_us);
        } else if self.losers > 0.0
            || self.delay_us > self.burst_us + self.queue_seen_us(observed.active)
        {
            let rate = half.max(self.rate_segs_per_s);
            self.window_segs = rate * (self.base_us + self.aim_us(queue)) / 1e6;
            self.phase = Phase::Drain {
                until: now + 2 * self.rtt(),
                last: now + self.rtt().mul_f64(REPAIR_RTTS),
            };
            return;
        }
        if filled && now.saturating_sub(self.grown) >= self.rtt() {
            self.window_segs *= 1.0 + self.growth;
            self.growth = (2.0 * self.growth).min(START_GROWTH - 1.0);
            self.grown = now;
        }
        // Streams that come later bring their windows along.
        self.window_segs = self.window_segs.max(observed.inflight_segs);
    }

    /// The budget is in flight again. Without a queue the sign may have been false: a burst of
    /// the first windows, say. A second one at the same rate counts: not all queues are long
    /// enough to be seen.
    fn drained(&mut self, now: Duration, active: f64, queue: f64) {
        let found = self.window_segs * 1e6 / (self.base_us + self.aim_us(queue));
        let again = (found / self.found_segs_per_s - 1.0).abs() < AGAIN_GROWTH;
        self.found_segs_per_s = found;
        if !again && self.losers == 0.0 && self.delay_us < self.queue_seen_us(active) {
            self.search_again(now);
            return;
        }
        self.phase = Phase::Follow;
        self.rates.push_back(found);
        self.next_epoch(now);
    }

    fn search_again(&mut self, now: Duration) {
        self.phase = Phase::Start;
        self.growth = AGAIN_GROWTH;
        self.grown = now.saturating_sub(self.rtt());
        self.burst_us = 0.0;
        self.empty_epochs = 0;
        self.next_epoch(now);
    }

    /// Once a round trip.
    fn follow(&mut self, now: Duration, active: f64, queue: f64, filled: bool) {
        let aim = self.aim_us(queue);
        if self.losers > 0.0 {
            if now < self.hold_until {
                return;
            }
            // A loss without a queue says nothing about the queue's size, nor does a loss by
            // other traffic.
            let shown = self.highest_us.max(self.highest_before_us);
            let crowded = now < self.crowded_until;
            if shown >= self.queue_seen_us(active) && !crowded {
                // Another loss: the queue is smaller than its estimate. Repairs show longer round
                // trips than the queue's.
                self.full_us = Some(self.full_us.map_or(shown, |full| SMALLER * full.min(shown)));
            }
            let share = (self.losers / active.max(1.0)).min(1.0);
            self.window_segs *= 1.0 - CUT * share;
            let carried = self.capacity() * (self.base_us + aim) / 1e6;
            self.window_segs = self.window_segs.min(carried);
            self.hold_until = now + self.rtt();
            self.empty_epochs = 0;
            self.crowded_epochs = 0;
            return;
        }
        if now < self.kept_until {
            return;
        }
        let above = self.delay_us > aim * 1.25;
        self.crowded_epochs = if above { self.crowded_epochs + 1 } else { 0 };
        if self.crowded_epochs > CROWDED_AFTER {
            self.crowded_until = now + CROWDED_RTTS * self.rtt();
        }
        if now < self.crowded_until {
            // As many Reno flows would in a queue that others fill.
            self.window_segs += active;
            self.empty_epochs = 0;
            return;
        }
        let empty = self.delay_us < aim / 4.0 && filled;
        let carried = self.capacity() * self.base_us / 1e6;
        if empty && self.window_segs < carried {
            // The path carried this much lately without a queue: return to it.
            self.window_segs = carried;
            return;
        }
        self.empty_epochs = if empty { self.empty_epochs + 1 } else { 0 };
        if self.empty_epochs > EMPTY {
            self.search_again(now);
            return;
        }
        let step = GAIN * (aim - self.delay_us) / 1e6 * self.rate_segs_per_s;
        let largest = self.window_segs * LARGEST_STEP;
        if step < 0.0 || filled {
            self.window_segs += step.clamp(-largest, largest);
        }
    }

    fn next_epoch(&mut self, now: Duration) {
        self.epoch = now;
        self.losers = 0.0;
        self.highest_before_us = self.highest_us;
        self.highest_us = 0.0;
    }

    pub fn belief(&self) -> String {
        let phase = match self.phase {
            Phase::Start => "probing the capacity",
            Phase::Drain { .. } => "draining",
            Phase::Follow => "following",
        };
        let full = match self.full_us {
            Some(full) => format!("{:.1} ms", full / 1e3),
            None => "not known".to_owned(),
        };
        format!(
            "{phase}: budget {:.0} segments, {:.0} segments/s, base RTT {:.1} ms, queue {:.1} ms of {full}",
            self.window_segs,
            self.rate_segs_per_s,
            self.base_us / 1e3,
            self.delay_us / 1e3,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_MS: u64 = 200;
    const STREAMS: f64 = 32.0;

    /// A route that carries so many segments per round trip, and what it shows a round trip
    /// later with a queue of so many microseconds.
    fn watch(route: &mut Route, now_ms: u64, carried: f64, delay_us: f64) {
        let observed = Observation {
            base_us: 200_000.0,
            delay_us: Some(delay_us),
            active: STREAMS,
            delivered_segs: carried,
            inflight_segs: route.window_segs,
            ..Observation::default()
        };
        route.update(Duration::from_millis(now_ms), &observed, 0.5);
    }

    /// It has delivered since the clock began.
    fn following(window_segs: f64) -> Route {
        let mut route = Route {
            phase: Phase::Follow,
            window_segs,
            ..Route::default()
        };
        watch(&mut route, 0, window_segs, 0.0);
        route
    }

    #[test]
    fn in_a_queue_of_others_the_budget_grows_as_reno_does() {
        let mut route = following(4000.0);
        let step_ms = RTT_MS + 25;
        let mut windows = Vec::new();
        for epoch in 1..=15 {
            // Whatever the budget is, the queue stays.
            watch(&mut route, epoch * step_ms, 4000.0, 20_000.0);
            windows.push(route.window_segs);
        }
        let cut = CROWDED_AFTER as usize;
        assert!(windows[1] > windows[cut], "first it tries: {windows:?}");
        for pair in windows[cut + 1..].windows(2) {
            assert_eq!(pair[1], pair[0] + STREAMS, "{windows:?}");
        }
        // For a moment there is no queue, after the other's loss; that is not its end.
        watch(&mut route, 16 * step_ms, 4000.0, 0.0);
        assert_eq!(route.window_segs, windows[14] + STREAMS);
    }

    /// In the search, with so many segments in flight and delivered per round trip.
    fn searching(inflight_segs: f64) -> Route {
        let mut route = Route {
            window_segs: inflight_segs,
            ..Route::default()
        };
        // Beyond the burst of the first windows.
        for round in 0..=3 {
            watch(&mut route, round * RTT_MS, inflight_segs, 0.0);
            route.window_segs = inflight_segs;
        }
        route
    }

    #[test]
    fn pairs_that_are_paced_together_are_no_queue() {
        // 6 ms of 5,000 segments a second are 30, less than a pair of each stream; of 20,000 a
        // second they are 120.
        for (carried, phase) in [(1000.0, true), (4000.0, false)] {
            let mut route = searching(carried);
            watch(&mut route, 4 * RTT_MS, carried, 6_000.0);
            assert_eq!(route.phase == Phase::Start, phase, "{carried}");
        }
    }

    #[test]
    fn a_step_of_the_search_waits_until_the_last_one_is_in_flight() {
        let mut route = searching(1000.0);
        let observed = Observation {
            base_us: 200_000.0,
            delay_us: Some(0.0),
            active: STREAMS,
            delivered_segs: 1000.0,
            inflight_segs: 600.0,
            ..Observation::default()
        };
        let later = Duration::from_millis(10 * RTT_MS);
        route.update(later, &observed, 0.5);
        assert_eq!(route.window_segs, 1000.0);
        watch(&mut route, 11 * RTT_MS, 1000.0, 0.0);
        assert!(route.window_segs > 1000.0);
    }

    #[test]
    fn a_route_without_a_queue_is_searched_again_with_care() {
        let mut route = following(1000.0);
        let mut epochs = 0;
        while route.phase == Phase::Follow {
            epochs += 1;
            assert!(epochs < 20, "never");
            let carried = route.window_segs;
            watch(&mut route, epochs * RTT_MS, carried, 0.0);
        }
        assert!(epochs > u64::from(EMPTY));
        let before = route.window_segs;
        watch(&mut route, (epochs + 1) * RTT_MS, before, 0.0);
        assert!(
            route.window_segs <= before * (1.0 + AGAIN_GROWTH),
            "a small step"
        );
    }
}
