// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One TCP sender of the model: slow start with HyStart's delay rule, CUBIC, loss
//! detection by three later packets, proportional rate reduction, a tail-loss probe and
//! a retransmission time-out. No reordering: what is overtaken by three is lost.

use std::collections::VecDeque;

pub const MS: u64 = 1_000_000;
/// Payload of a packet, bytes.
pub const MSS: u64 = 1448;
/// Linux's first window and ssthresh.
const FIRST_WINDOW: f64 = 10.0;
pub const NO_SSTHRESH: f64 = i32::MAX as f64;
const BETA: f64 = 0.7;
/// Steps of a bound that are taken at once, segments.
const STEP: f64 = 5.0;
const C: f64 = 0.4;

struct Packet {
    number: u64,
    segment: u64,
    sent: u64,
}

struct Recovery {
    /// Segments below this were sent before the loss was seen.
    high: u64,
    /// How many of them are not acknowledged.
    missing: u64,
    flight: f64,
    delivered: f64,
    out: f64,
}

#[derive(Default)]
struct Cubic {
    max: f64,
    origin: f64,
    k: f64,
    epoch: Option<u64>,
    friendly: f64,
}

pub struct Sender {
    pub cwnd: f64,
    pub ssthresh: f64,
    pub srtt: f64,
    pub min_rtt: u64,
    /// Segments to send in all.
    pub total: u64,
    pub delivered: u64,
    pub retransmitted: u64,
    pub timeouts: u64,
    pub min: u32,
    pub max: u32,
    pub lease: u64,
    pub stopped: bool,
    pub next_send: u64,
    effective_cwnd: f64,
    /// Grows to what is wanted; 0: nothing bounds the window.
    ceiling: f64,
    stepped: u64,
    pacing: bool,
    next_segment: u64,
    next_number: u64,
    outstanding: VecDeque<Packet>,
    lost: VecDeque<u64>,
    recovery: Option<Recovery>,
    /// After a time-out: segments below the first were sent before it, and so many of them
    /// are not acknowledged.
    loss: Option<(u64, u64)>,
    cubic: Cubic,
    last_progress: u64,
    probed: bool,
    round_end: u64,
    round_samples: u32,
    round_min: u64,
}

impl Sender {
    pub fn new(total: u64) -> Self {
        Self {
            cwnd: FIRST_WINDOW,
            ssthresh: NO_SSTHRESH,
            srtt: 0.0,
            min_rtt: u64::MAX,
            total,
            delivered: 0,
            retransmitted: 0,
            timeouts: 0,
            min: 0,
            max: 0,
            lease: 0,
            stopped: false,
            next_send: 0,
            effective_cwnd: FIRST_WINDOW,
            ceiling: 0.0,
            stepped: 0,
            pacing: false,
            next_segment: 0,
            next_number: 0,
            outstanding: VecDeque::new(),
            lost: VecDeque::new(),
            recovery: None,
            loss: None,
            cubic: Cubic::default(),
            last_progress: 0,
            probed: false,
            round_end: 0,
            round_samples: 0,
            round_min: u64::MAX,
        }
    }

    /// Connected: one round trip is known.
    pub fn shake_hands(&mut self, rtt: u64) {
        self.srtt = rtt as f64;
        self.min_rtt = rtt;
    }

    pub fn inflight(&self) -> u64 {
        self.outstanding.len() as u64
    }

    pub fn recovering(&self) -> bool {
        self.recovery.is_some() || self.loss.is_some()
    }

    pub fn done(&self) -> bool {
        self.delivered >= self.total
    }

    pub fn unsent(&self) -> u64 {
        match self.stopped {
            true => 0,
            false => self.total.saturating_sub(self.next_segment),
        }
    }

    fn capped(&self, now: u64) -> bool {
        now < self.lease
    }

    /// bpf/control/window_cap.h: the window of what follows.
    fn bound(&mut self, now: u64) {
        let (min, max) = match self.capped(now) {
            true => (f64::from(self.min), f64::from(self.max)),
            false => (0.0, 0.0),
        };
        let own = self.cwnd;
        let most = if max > 0.0 { max } else { f64::MAX };
        let mut wanted = own;
        if !self.recovering() {
            wanted = wanted.max(min);
        }
        wanted = wanted.min(most);
        if self.ceiling == 0.0 && wanted > own {
            self.ceiling = own;
        }
        if self.ceiling > 0.0 && wanted > self.ceiling {
            self.lift(now, wanted);
        } else if self.ceiling > 0.0 || wanted < own {
            self.ceiling = wanted;
        }
        let settled = (now - self.stepped) as f64 >= self.srtt || self.recovering();
        if self.pacing && self.ceiling >= wanted && settled {
            self.pacing = false;
        }
        if self.ceiling > 0.0 {
            wanted = wanted.min(self.ceiling);
        }
        self.effective_cwnd = wanted;
        if min == 0.0 && max == 0.0 && wanted >= own && !self.pacing {
            self.ceiling = 0.0;
        }
    }

    fn lift(&mut self, now: u64, wanted: f64) {
        if wanted <= self.ceiling + STEP && !self.pacing {
            self.ceiling = wanted;
            return;
        }
        if self.pacing && ((now - self.stepped) as f64) < self.srtt {
            return;
        }
        self.ceiling = wanted.min(2.0 * self.ceiling);
        self.stepped = now;
        self.pacing = true;
    }

    /// Between two packets, if the sender is paced: it is while its window is let grow.
    pub fn gap(&mut self, now: u64) -> Option<u64> {
        self.bound(now);
        let paced = self.pacing && self.srtt > 0.0;
        paced.then(|| (self.srtt / self.effective_cwnd.max(1.0)) as u64)
    }

    /// The number of the next packet, if one may be sent.
    pub fn send(&mut self, now: u64) -> Option<u64> {
        self.bound(now);
        if self.outstanding.len() as f64 + 1.0 > self.effective_cwnd + 1e-9 {
            return None;
        }
        let segment = match self.lost.pop_front() {
            Some(segment) => {
                self.retransmitted += 1;
                segment
            }
            None if self.unsent() > 0 => {
                self.next_segment += 1;
                self.next_segment - 1
            }
            None => return None,
        };
        if let Some(recovery) = &mut self.recovery {
            recovery.out += 1.0;
        }
        Some(self.emit(now, segment))
    }

    fn emit(&mut self, now: u64, segment: u64) -> u64 {
        if self.outstanding.is_empty() {
            self.last_progress = now;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.outstanding.push_back(Packet {
            number,
            segment,
            sent: now,
        });
        number
    }

    pub fn acknowledge(&mut self, now: u64, number: u64) {
        let Some(place) = self.outstanding.iter().position(|p| p.number == number) else {
            return;
        };
        let limited = self.outstanding.len() as f64 + 1.0 >= self.effective_cwnd;
        let packet = self.outstanding.remove(place).expect("just found");
        self.delivered += 1;
        self.last_progress = now;
        self.probed = false;
        self.measure(now, now - packet.sent, number);
        while self
            .outstanding
            .front()
            .is_some_and(|front| front.number + 3 <= number)
        {
            let front = self.outstanding.pop_front().expect("there is one");
            self.lose(front.segment);
        }
        self.loss = self.loss.and_then(|(high, missing)| {
            let missing = missing - u64::from(packet.segment < high);
            (missing > 0).then_some((high, missing))
        });
        let ended = match &mut self.recovery {
            Some(recovery) => {
                recovery.delivered += 1.0;
                if packet.segment < recovery.high {
                    recovery.missing = recovery.missing.saturating_sub(1);
                }
                recovery.missing == 0
            }
            None => false,
        };
        if ended {
            self.recovery = None;
            self.cwnd = self.ssthresh.max(2.0);
        } else if self.recovery.is_some() {
            self.reduce();
        } else if limited && !self.held(now) {
            self.grow(now);
        }
    }

    /// Growth is held while an upper cap binds.
    fn held(&self, now: u64) -> bool {
        self.capped(now) && self.max > 0 && self.cwnd >= self.max.into()
    }

    fn measure(&mut self, now: u64, rtt: u64, number: u64) {
        self.min_rtt = self.min_rtt.min(rtt);
        self.srtt = match self.srtt {
            0.0 => rtt as f64,
            srtt => srtt * 0.875 + rtt as f64 * 0.125,
        };
        if self.cwnd >= self.ssthresh {
            return;
        }
        if number >= self.round_end {
            self.round_end = self.next_number;
            self.round_samples = 0;
            self.round_min = u64::MAX;
        }
        self.round_samples += 1;
        self.round_min = self.round_min.min(rtt);
        let threshold = (self.min_rtt / 8).clamp(4 * MS, 16 * MS);
        if self.round_samples == 8
            && self.cwnd >= 16.0
            && self.round_min > self.min_rtt + threshold
            && self.recovery.is_none()
        {
            self.ssthresh = self.cwnd;
        }
        let _ = now;
    }

    fn lose(&mut self, segment: u64) {
        self.lost.push_back(segment);
        if self.recovery.is_none() {
            let flight = self.outstanding.len() as f64 + self.lost.len() as f64;
            self.decrease();
            self.recovery = Some(Recovery {
                high: self.next_segment,
                missing: self.outstanding.len() as u64 + self.lost.len() as u64,
                flight: flight.max(1.0),
                delivered: 0.0,
                out: 0.0,
            });
        }
    }

    fn decrease(&mut self) {
        // Between its own window and the effective cwnd the base starts from what was in flight.
        let flight = (self.outstanding.len() + self.lost.len()) as f64;
        let (less, more) = (
            self.cwnd.min(self.effective_cwnd),
            self.cwnd.max(self.effective_cwnd),
        );
        self.cwnd = flight.clamp(less, more);
        let cubic = &mut self.cubic;
        cubic.epoch = None;
        cubic.max = match self.cwnd < cubic.max {
            true => self.cwnd * (1.0 + BETA) / 2.0,
            false => self.cwnd,
        };
        self.ssthresh = (self.cwnd * BETA).max(2.0);
    }

    fn reduce(&mut self) {
        let inflight = self.outstanding.len() as f64;
        let recovery = self.recovery.as_ref().expect("in recovery");
        let allowed = if inflight > self.ssthresh {
            (recovery.delivered * self.ssthresh / recovery.flight).ceil() - recovery.out
        } else {
            let limit = (recovery.delivered - recovery.out).max(1.0) + 1.0;
            (self.ssthresh - inflight).min(limit)
        };
        // The first retransmission leaves at once.
        let least = if recovery.out == 0.0 { 1.0 } else { 0.0 };
        self.cwnd = inflight + allowed.max(least);
    }

    fn grow(&mut self, now: u64) {
        if self.cwnd < self.ssthresh {
            self.cwnd += 1.0;
            return;
        }
        let cubic = &mut self.cubic;
        let epoch = *cubic.epoch.get_or_insert_with(|| {
            cubic.friendly = self.cwnd;
            cubic.origin = cubic.max.max(self.cwnd);
            cubic.k = ((cubic.origin - self.cwnd) / C).cbrt();
            now
        });
        let t = (now - epoch) as f64 / 1e9 + self.min_rtt as f64 / 1e9;
        let target = cubic.origin + C * (t - cubic.k).powi(3);
        cubic.friendly += 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.cwnd;
        let target = target.max(cubic.friendly).min(self.cwnd * 1.5);
        self.cwnd += ((target - self.cwnd) / self.cwnd).max(0.01 / self.cwnd);
    }

    /// When [`timer`](Self::timer) should be called next.
    pub fn deadline(&self) -> u64 {
        if self.srtt == 0.0 {
            // RFC 6298, 2.1.
            return self.last_progress + 1000 * MS;
        }
        let srtt = self.srtt.max(100.0 * MS as f64) as u64;
        let wait = if self.probed {
            srtt + 200 * MS
        } else {
            2 * srtt
        };
        self.last_progress + wait
    }

    /// A tail-loss probe, whose number is returned, or a time-out.
    pub fn timer(&mut self, now: u64) -> Option<u64> {
        if self.outstanding.is_empty() && self.lost.is_empty() {
            self.last_progress = now;
        }
        if now < self.deadline() {
            return None;
        }
        self.last_progress = now;
        if !self.probed {
            if let Some(last) = self.outstanding.pop_back() {
                self.probed = true;
                self.retransmitted += 1;
                return Some(self.emit(now, last.segment));
            }
        }
        self.probed = false;
        self.timeouts += 1;
        self.decrease();
        let all: Vec<u64> = self.outstanding.drain(..).map(|p| p.segment).collect();
        self.lost.extend(all);
        self.recovery = None;
        self.loss = Some((self.next_segment, self.lost.len() as u64));
        self.cwnd = 1.0;
        None
    }
}
