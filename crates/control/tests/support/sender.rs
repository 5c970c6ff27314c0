// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection's sending side: Reno with selective acknowledgement, and
//! Linux's rules for pacing, restart after idle, probe and timeout, as far as
//! the start-up law can tell them apart.

use std::collections::VecDeque;

use paceline_abi::{pl_path, pl_policy, pl_turn, pl_uwnd};
use paceline_control::{
    exact_rtt, pl_orders, pl_tcp, uwnd_add, Startup, State, Window, PL_NO_SSTHRESH,
};

use super::link::Link;
use super::{MS, MSS, SECOND};

#[derive(Clone, Copy, PartialEq)]
enum Segment {
    InFlight,
    Lost,
    Delivered,
}

/// What goes over the link: a segment, and which transmission of all it is.
#[derive(Clone, Copy)]
pub struct Packet {
    pub number: u64,
    pub segment: u64,
}

/// What the law goes by, beside the connection.
pub struct Known<'a> {
    pub policy: &'a pl_policy,
    pub path: &'a mut pl_path,
    pub turn: &'a mut pl_turn,
}

/// A segment on its way, a retransmission counts as one of its own.
struct Transmission {
    number: u64,
    segment: u64,
    sent_ns: u64,
    /// Delivered when it left (tcp_rate_skb_sent).
    delivered: u64,
    again: bool,
}

pub struct Sender {
    pub law: Startup,
    /// Shows the law each ACK, wanted or not.
    pub asks_always: bool,
    /// What bounds the window from outside; its lease is looked at.
    pub uwnd: Option<pl_uwnd>,
    pub window: Window,
    /// Most segments that were in flight since it was last set to 0.
    pub peak_flight: u32,
    pub cwnd: u32,
    pub ssthresh: u32,
    pub srtt_us: u32,
    rttvar_us: u32,
    pub min_rtt_us: u32,
    /// The same with what timestamps say: the kernel's own, by which it makes packets.
    tick_rtt_us: u32,
    /// First segment not acknowledged, next to send, end of what was written.
    pub una: u64,
    pub nxt: u64,
    pub written: u64,
    pub retransmitted: u64,
    pub sent: u64,
    pub delivered: u64,
    /// What is delivered up to here had waited for the application (tp->app_limited); or 0.
    app_limited: u64,
    /// The last rate sample: segments, and microseconds.
    carried: (u32, u32),
    /// Added to the counters that the law sees: begins just below 2^32.
    offset: u32,
    pub recovering: bool,
    recovery_end: u64,
    window_used: u32,
    counted: u32,
    segments: VecDeque<Segment>,
    flying: VecDeque<Transmission>,
    lost: VecDeque<u64>,
    arrived: VecDeque<u64>,
    transmissions: u64,
    paced: bool,
    pub pacing_rate: u64,
    wstamp_ns: u64,
    last_sent_ns: u64,
    pub timer_ns: Option<u64>,
    probed: bool,
    pub wake_ns: Option<u64>,
    /// Most segments that leave as one packet.
    tso_segs: u64,
    /// A retransmission timeout's floor, and the restart's, microseconds.
    rto_min_us: u32,
}

/// A stock kernel's.
const RTO_MIN_US: u32 = 200_000;
const INITIAL_WINDOW: u32 = 10;
/// Largest packet that a device splits (sk_gso_max_size).
const TSO_BYTES: u32 = 65_536;

impl Sender {
    pub fn new(link: &Link, offset: u32) -> Self {
        let rtt_us = (link.rtt_ns / 1000) as u32;
        Self {
            law: Startup::default(),
            asks_always: false,
            uwnd: None,
            window: Window::default(),
            peak_flight: 0,
            cwnd: INITIAL_WINDOW,
            ssthresh: PL_NO_SSTHRESH,
            srtt_us: rtt_us,
            rttvar_us: rtt_us / 2,
            min_rtt_us: rtt_us,
            tick_rtt_us: rtt_us,
            una: 0,
            nxt: 0,
            written: 0,
            retransmitted: 0,
            sent: 0,
            delivered: 0,
            app_limited: 0,
            carried: (0, 0),
            offset,
            recovering: false,
            recovery_end: 0,
            window_used: 0,
            counted: 0,
            segments: VecDeque::new(),
            flying: VecDeque::new(),
            lost: VecDeque::new(),
            arrived: VecDeque::new(),
            transmissions: 0,
            paced: false,
            pacing_rate: u64::MAX,
            wstamp_ns: 0,
            last_sent_ns: 0,
            timer_ns: None,
            probed: false,
            wake_ns: None,
            tso_segs: link.tso_segs,
            rto_min_us: RTO_MIN_US,
        }
    }

    /// Under a policy that lowers it.
    pub fn set_rto_min(&mut self, us: u32) {
        self.rto_min_us = us;
    }

    fn rto_us(&self) -> u32 {
        self.srtt_us + (4 * self.rttvar_us).max(self.rto_min_us)
    }

    /// Congestion window after idle (RFC 2861, as Linux does it).
    fn restart_after_idle(&mut self, now: u64) {
        let rto_ns = u64::from(self.rto_us()) * 1000;
        let mut idle = now.saturating_sub(self.last_sent_ns);
        if self.una != self.nxt || self.last_sent_ns == 0 || idle <= rto_ns {
            return;
        }
        self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        while idle > rto_ns && self.cwnd > INITIAL_WINDOW {
            idle -= rto_ns;
            self.cwnd = (self.cwnd / 2).max(INITIAL_WINDOW);
        }
    }

    pub fn write(&mut self, segs: u64, now: u64) {
        self.restart_after_idle(now);
        // tcp_rate_check_app_limited()
        let in_flight = self.flying.len() as u64;
        if self.written == self.nxt && self.lost.is_empty() && in_flight < u64::from(self.cwnd) {
            self.app_limited = (self.delivered + in_flight).max(1);
        }
        self.written += segs;
    }

    pub fn tcp(&self, now: u64) -> pl_tcp {
        let counter = |value: u64| (value as u32).wrapping_add(self.offset);
        pl_tcp {
            now_us: now / 1000,
            cwnd: self.window.base_cwnd(self.cwnd),
            ssthresh: self.ssthresh,
            srtt_us: self.srtt_us,
            min_rtt_us: self.min_rtt_us,
            mss: MSS as u32,
            packets_out: (self.nxt - self.una) as u32,
            in_flight: self.flying.len() as u32,
            carried_segs: self.carried.0,
            carried_us: self.carried.1,
            unsent: ((self.written - self.nxt) * MSS) as u32,
            sent_segs: counter(self.sent),
            delivered_segs: counter(self.delivered),
            retransmitted_segs: counter(self.retransmitted),
            una: counter(self.una * MSS),
            nxt: counter(self.nxt * MSS),
            app_limited: u8::from(self.app_limited != 0),
            recovering: u8::from(self.recovering),
            gso_segs: self.gso_segs(),
            device_segs: self.tso_segs as u8,
            ..Default::default()
        }
    }

    /// As `apply_orders()` of the kernel side.
    fn apply(&mut self, orders: &pl_orders) {
        if orders.cwnd != 0 {
            self.cwnd = orders.cwnd;
            self.window.set();
        }
        if orders.ssthresh != 0 {
            self.ssthresh = orders.ssthresh;
        }
        if orders.pacing_bps != 0 {
            self.pacing_rate = orders.pacing_bps;
            self.paced = true;
        }
        if orders.stop != 0 {
            self.paced = false;
        }
    }

    fn before_send(&mut self, now: u64, law: Option<Known>) {
        let Some(Known { policy, path, turn }) = law else {
            return;
        };
        let tcp = self.tcp(now);
        let begins = self.una == self.nxt || self.law.state() == State::Paced;
        if !begins && !self.law.wants_refill(&tcp) {
            return;
        }
        let mut orders = self.law.before_send(path, policy, &tcp);
        // Pacing was looked at before.
        self.law
            .before_send_in_turn(turn, policy, &tcp, true, &mut orders);
        self.apply(&orders);
    }

    /// As `bound()` of the kernel side: the last word.
    fn bound(&mut self, now: u64) {
        let Some(set) = self.uwnd else {
            return;
        };
        let mut uwnd = pl_uwnd::default();
        uwnd_add(&mut uwnd, &set, now / 1000);
        let tcp = self.tcp(now);
        let orders = self.window.before_send(&uwnd, &tcp);
        self.cwnd = orders.cwnd;
        if orders.pacing_bps != 0 {
            self.pacing_rate = orders.pacing_bps;
            self.paced = true;
        }
        if orders.stop != 0 {
            self.paced = false;
        }
    }

    /// Sends what window and pace allow. Each segment goes to `carry`.
    pub fn transmit(&mut self, now: u64, law: Option<Known>, mut carry: impl FnMut(Packet)) {
        if self.nxt == self.written && self.lost.is_empty() {
            return;
        }
        if self.paced && self.wstamp_ns > now {
            self.wake_ns = Some(self.wstamp_ns);
            return;
        }
        self.before_send(now, law);
        self.bound(now);
        self.cwnd = self.law.led_window(self.cwnd, self.ssthresh);
        loop {
            let room = u64::from(self.cwnd).saturating_sub(self.flying.len() as u64);
            let waiting = self.lost.len() as u64 + self.written - self.nxt;
            let size = self.packet_segs();
            let chunk = room.min(waiting).min(size);
            if chunk == 0 || self.defers(now, room, chunk, size.min(waiting)) {
                return;
            }
            for _ in 0..chunk {
                let packet = self.send_one(now);
                carry(packet);
            }
            self.last_sent_ns = now;
            self.arm(now);
            if self.paced {
                let before = self.wstamp_ns;
                self.wstamp_ns = before.max(now);
                if self.sent >= 10 {
                    let credit = self.wstamp_ns - before;
                    let length = (chunk * MSS * SECOND) / self.pacing_rate.max(1);
                    self.wstamp_ns += length - credit.min(length / 2);
                }
                if self.wstamp_ns > now {
                    self.wake_ns = Some(self.wstamp_ns);
                    return;
                }
                // Nothing was charged for it: the loop goes on in the kernel too.
            }
        }
    }

    /// As `pl_gso_segs()`.
    fn gso_segs(&self) -> u32 {
        let device = self.tso_segs as u32;
        let near = device.checked_shr(self.tick_rtt_us >> 9).unwrap_or(0);
        match u32::from(self.law.raw().packet_segs) {
            0 => device,
            segs => device.min(segs + near),
        }
    }

    /// tcp_tso_autosize(): a millisecond's worth, and more where the round trip is short.
    fn packet_segs(&self) -> u64 {
        let near = TSO_BYTES.checked_shr(self.tick_rtt_us >> 9).unwrap_or(0);
        let rate = match self.law.raw().packet_segs {
            segs if segs != 0 && !self.paced => u64::from(segs) * MSS * 1024,
            _ => self.pacing_rate,
        };
        let bytes = (rate / 1024 + u64::from(near)).min(u64::from(TSO_BYTES));
        (bytes / MSS).max(2).min(self.tso_segs)
    }

    /// tcp_tso_should_defer(): less than a packet is not sent within a millisecond of the last
    /// one, unless it is a third of the window, or the next ACK is half a round trip away.
    fn defers(&self, now: u64, room: u64, chunk: u64, size: u64) -> bool {
        let half_ns = u64::from(self.srtt_us / 2) * 1000;
        let oldest = self.flying.front().map(|flown| flown.sent_ns);
        self.tso_segs > 1
            && chunk < size
            && self.lost.is_empty()
            && 3 * room < u64::from(self.cwnd)
            && now < self.last_sent_ns + MS
            && oldest.is_some_and(|sent_ns| now >= sent_ns + half_ns)
    }

    fn send_one(&mut self, now: u64) -> Packet {
        let (segment, again) = match self.lost.pop_front() {
            Some(segment) => {
                self.retransmitted += 1;
                let at = (segment - self.una) as usize;
                self.segments[at] = Segment::InFlight;
                (segment, true)
            }
            None => {
                self.segments.push_back(Segment::InFlight);
                self.nxt += 1;
                (self.nxt - 1, false)
            }
        };
        self.fly(segment, again, now)
    }

    fn fly(&mut self, segment: u64, again: bool, now: u64) -> Packet {
        self.transmissions += 1;
        self.sent += 1;
        self.flying.push_back(Transmission {
            number: self.transmissions,
            segment,
            sent_ns: now,
            delivered: self.delivered,
            again,
        });
        self.window_used = self.window_used.max(self.flying.len() as u32);
        self.peak_flight = self.peak_flight.max(self.flying.len() as u32);
        Packet {
            number: self.transmissions,
            segment,
        }
    }

    /// The transmission `number` reached the receiver.
    pub fn arrives(&mut self, number: u64) {
        self.arrived.push_back(number);
    }

    /// Probe after two RTTs without an ACK, then the timeout.
    fn arm(&mut self, now: u64) {
        let wait_us = if self.probed || self.recovering {
            self.rto_us()
        } else {
            (2 * self.srtt_us + 2000).min(self.rto_us())
        };
        self.timer_ns = Some(now + u64::from(wait_us) * 1000);
    }

    pub fn timer(&mut self, now: u64, mut carry: impl FnMut(Packet)) {
        self.timer_ns = None;
        if self.una == self.nxt {
            return;
        }
        if self.probed || self.recovering {
            // Timeout: all that is not known to have arrived is taken for lost.
            self.probed = false;
            self.law.note_timeout();
            self.flying.clear();
            self.lost = (self.una..self.nxt)
                .filter(|segment| {
                    self.segments[(segment - self.una) as usize] != Segment::Delivered
                })
                .collect();
            for segment in &self.lost {
                self.segments[(segment - self.una) as usize] = Segment::Lost;
            }
            self.ssthresh = (self.window.lost(self.cwnd, (self.nxt - self.una) as u32) / 2).max(2);
            self.cwnd = 1;
            self.recovering = true;
            self.recovery_end = self.nxt;
            self.arm(now);
        } else {
            self.probed = true;
            self.retransmitted += 1;
            let packet = self.fly(self.nxt - 1, true, now);
            carry(packet);
            self.arm(now);
        }
    }

    /// An ACK for the next `count` arrivals, up to segment `una`.
    pub fn ack(&mut self, now: u64, count: u64, una: u64, law: Option<Known>) {
        let mut rtt_us = 0;
        // By the timestamp that comes back, a millisecond at least.
        let mut again_us = 0;
        let mut acked = 0;
        let mut losses = false;
        for _ in 0..count {
            let number = self.arrived.pop_front().expect("an ACK is of an arrival");
            while let Some(front) = self.flying.front() {
                if front.number > number {
                    break;
                }
                let flown = self.flying.pop_front().expect("there is a front");
                let known = flown.segment < self.una
                    || self.segments[(flown.segment - self.una) as usize] == Segment::Delivered;
                if flown.number < number {
                    // The path keeps the order, so this one is gone; of one that was
                    // probed for both may be.
                    if !known {
                        let at = (flown.segment - self.una) as usize;
                        if self.segments[at] != Segment::Lost {
                            self.lost.push_back(flown.segment);
                        }
                        self.segments[at] = Segment::Lost;
                        losses = true;
                    }
                } else if !known {
                    let at = (flown.segment - self.una) as usize;
                    if self.segments[at] == Segment::Lost {
                        self.lost.retain(|segment| *segment != flown.segment);
                    }
                    self.segments[at] = Segment::Delivered;
                    self.delivered += 1;
                    acked += 1;
                    self.carried = (
                        (self.delivered - flown.delivered) as u32,
                        ((now - flown.sent_ns) / 1000) as u32,
                    );
                    if !flown.again {
                        rtt_us = ((now - flown.sent_ns) / 1000) as u32;
                    } else if una > self.una {
                        again_us = (now - flown.sent_ns) / MS * 1000;
                    }
                }
            }
        }
        while self.una < una {
            // What the receiver has, but whose transmission was given up.
            if self.segments.pop_front() != Some(Segment::Delivered) {
                self.delivered += 1;
                let gone = self.una;
                self.lost.retain(|segment| *segment != gone);
            }
            self.una += 1;
        }
        if rtt_us == 0 && again_us != 0 {
            let ticks_us = again_us.max(1000) as u32;
            rtt_us = exact_rtt(ticks_us, self.law.raw().min_rtt_us);
            self.tick_rtt_us = self.tick_rtt_us.min(ticks_us);
        }
        if rtt_us != 0 {
            let error = self.srtt_us.abs_diff(rtt_us);
            self.srtt_us = (7 * self.srtt_us + rtt_us) / 8;
            self.rttvar_us = (3 * self.rttvar_us + error) / 4;
            self.min_rtt_us = self.min_rtt_us.min(rtt_us);
            self.tick_rtt_us = self.tick_rtt_us.min(rtt_us);
        }
        let mut arrived = None;
        // pkts_acked() comes before the state machine sees the loss.
        if let Some(Known { policy, path, turn }) = law {
            let mut tcp = self.tcp(now);
            tcp.rtt_us = rtt_us;
            let wanted = self.law.wants_ack(&tcp);
            if self.una == self.nxt || wanted || self.asks_always {
                let mut orders = self.law.on_ack(path, policy, &tcp);
                if self.law.waits() || self.law.has_turn() {
                    self.law.on_ack_in_turn(turn, &tcp, &mut orders);
                }
                self.apply(&orders);
            }
            if losses && !self.recovering {
                let base = (self.cwnd / 2).max(2);
                let lost = self.lost.len() as u32;
                tcp = self.tcp(now);
                tcp.rtt_us = rtt_us;
                arrived = Some(self.law.ssthresh_after_loss(path, &tcp, lost, base));
            }
        }
        // tcp_rate_gen(), after pkts_acked()
        if self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        // An ACK that tells of a loss does not let the window grow.
        if !losses {
            self.cwnd = self.window.before_growth(self.cwnd);
        }
        self.control(acked, losses, arrived);
        self.update_pacing();
        self.probed = false;
        if self.una == self.nxt {
            // Of a probe that was not needed nothing is awaited.
            self.flying.clear();
            self.timer_ns = None;
        } else if acked != 0 {
            self.arm(now);
        }
    }

    /// The base algorithm.
    fn control(&mut self, acked: u32, losses: bool, arrived: Option<u32>) {
        if self.recovering && self.una >= self.recovery_end {
            self.recovering = false;
        }
        if losses && !self.recovering {
            self.recovering = true;
            self.recovery_end = self.nxt;
            let base = (self.window.lost(self.cwnd, (self.nxt - self.una) as u32) / 2).max(2);
            self.ssthresh = arrived.unwrap_or(base);
            if self.ssthresh < PL_NO_SSTHRESH {
                self.cwnd = self.ssthresh;
            }
            self.counted = 0;
        } else if self.cwnd < self.ssthresh {
            if self.cwnd < 2 * self.window_used {
                self.cwnd = (self.cwnd + acked).min(self.ssthresh);
            }
        } else if !self.recovering && self.window_used >= self.cwnd && acked != 0 {
            self.growth(acked);
        }
        if self.una == self.nxt {
            self.window_used = 0;
        }
    }

    /// One segment per window.
    fn growth(&mut self, acked: u32) {
        self.counted += acked;
        if self.counted >= self.cwnd {
            self.counted -= self.cwnd;
            self.cwnd += 1;
        }
    }

    /// tcp_update_pacing_rate()
    fn update_pacing(&mut self) {
        let factor = if self.cwnd < self.ssthresh / 2 {
            200
        } else {
            120
        };
        let window = u64::from(self.cwnd.max(self.flying.len() as u32)) * MSS;
        self.pacing_rate = window * 10_000 * factor / u64::from(self.srtt_us.max(1));
    }

    /// Whether the law wants the next ACK.
    pub fn wants_ack(&mut self, now: u64) -> bool {
        let tcp = self.tcp(now);
        self.law.wants_ack(&tcp)
    }

    /// Whether pacing is on: from the first paced segment to the order to stop.
    pub fn is_paced(&self) -> bool {
        self.paced
    }

    pub fn idle(&self) -> bool {
        self.una == self.written
    }
}
