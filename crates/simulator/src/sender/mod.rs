// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sending side of a connection.
//!
//! A sender knows nothing of the network: its inputs are writes, ACKs and timers, its
//! output is the next segment. Segments are all of one size and numbered from 0. Time is
//! passed in.

mod bic;
mod board;
mod bound;
pub mod config;
pub mod control;
mod cubic;
mod even;
mod law;
mod linux;
mod reno;
mod rtt;
mod vegas;

use board::Board;
use bound::Bounded;
use config::{Algorithm, SenderConfig};
use control::{Control, Reno, Sample, Window};
pub use law::Known;
use law::Law;
use rtt::Rtt;
use vegas::Vegas;

use crate::event::NEVER;

/// Counters of a sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Segments sent, again or not.
    pub sent: u64,
    /// Of these, again.
    pub again: u64,
    /// Timeouts.
    pub timeouts: u32,
    /// Tail-loss probes.
    pub probes: u32,
    /// Losses found by duplicate or selective ACKs.
    pub recoveries: u32,
}

/// An ACK as it comes in.
#[derive(Debug, Clone, Copy)]
pub struct Ack {
    /// The next segment that the receiver expects.
    pub next: u32,
    /// When the acknowledged segment was sent.
    pub stamp: u64,
    /// The block beyond `next` in which that segment lies, or before it that segment alone if
    /// it had arrived before (RFC 2883); else empty.
    pub block: (u32, u32),
}

/// A transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// The segment.
    pub sequence: u32,
    /// Its time, which its ACK will return.
    pub stamp: u64,
}

/// Purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    Timeout,
    Probe,
    Reordering,
}

/// One connection.
#[derive(Debug, Clone)]
pub struct Sender {
    una: u32,
    nxt: u32,
    /// Highest that was ever sent, and one more.
    max: u32,
    written: u32,
    window: Window,
    /// Segments by which the window is inflated during recovery.
    inflated: u32,
    duplicates: u32,
    /// A loss is repaired when this is acknowledged; before that no further one counts.
    recover: u32,
    recovering: bool,
    /// After a timeout, until `recover` is acknowledged.
    lost_all: bool,
    partial: bool,
    waits: Waits,
    timer_ns: u64,
    rtt: Rtt,
    /// The segment that is timed, where there are no timestamps, and since when.
    timed: Option<(u32, u64)>,
    urgent: Option<u32>,
    /// Whether the window limits: see [`Sender::note_use`].
    limited: bool,
    most_out: u32,
    use_end: u32,
    last_sent_ns: u64,
    control: Control,
    board: Option<Box<Board>>,
    vegas: Option<Box<Vegas>>,
    law: Option<Box<Law>>,
    bounded: Option<Box<Bounded>>,
    totals: Totals,
}

impl Sender {
    /// A connection that has not sent yet.
    pub fn new(config: &SenderConfig) -> Self {
        Sender {
            una: 0,
            nxt: 0,
            max: 0,
            written: 0,
            window: Window {
                cwnd: f64::from(match config.fixed_window {
                    0 => config.initial_window,
                    fixed => fixed,
                }),
                ssthresh: config.initial_ssthresh,
            },
            inflated: 0,
            duplicates: 0,
            recover: 0,
            recovering: false,
            lost_all: false,
            partial: false,
            waits: Waits::Timeout,
            timer_ns: NEVER,
            rtt: Rtt::new(&config.rto),
            timed: None,
            urgent: None,
            limited: false,
            most_out: 0,
            use_end: 0,
            last_sent_ns: 0,
            control: match config.algorithm {
                Algorithm::Cubic => Control::Cubic(Box::default()),
                Algorithm::Bic => Control::Bic(Box::default()),
                _ => Control::Reno(Reno),
            },
            board: config.selective().then(Box::default),
            vegas: (config.algorithm == Algorithm::Vegas)
                .then(|| Box::new(Vegas::new(config.vegas, !config.inflates_beyond_window))),
            law: config.policy.map(|_| Box::default()),
            bounded: None,
            totals: Totals::default(),
        }
    }

    /// The handshake took a round trip of `ns`: the first RTT sample of Linux
    /// (tcp_synack_rtt_meas).
    pub fn shake_hands(&mut self, ns: u64, config: &SenderConfig) {
        if config.linux {
            self.rtt.sample(ns, 0, &config.rto);
        }
    }

    /// Its counters so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Congestion window and slow-start threshold, segments.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Segments written so far.
    pub fn written(&self) -> u32 {
        self.written
    }

    /// First segment that is not acknowledged.
    pub fn acknowledged(&self) -> u32 {
        self.una
    }

    /// Segments beyond the first unacknowledged one that were sent.
    pub fn outstanding(&self) -> u32 {
        self.max - self.una
    }

    /// Segments that are in the network, as far as it knows.
    pub fn in_flight(&self) -> u32 {
        match &self.board {
            Some(board) => board.in_flight(),
            None => self.outstanding(),
        }
    }

    /// When its timer runs out; [`NEVER`] if none runs.
    pub fn timer_ns(&self) -> u64 {
        self.timer_ns
    }

    /// When the next paced segment may leave, if it waits for that.
    pub fn pace_ns(&self) -> Option<u64> {
        self.law.as_ref().and_then(|law| law.wake_ns)
    }

    /// Segments that a window may still hold.
    fn effective_window(&self, config: &SenderConfig) -> u32 {
        let cwnd = (self.window.cwnd as u32).max(1);
        if config.inflates_beyond_window {
            return cwnd.min(config.window) + self.inflated;
        }
        let early = match self.duplicates {
            1 | 2 if config.limited_transmit => self.duplicates,
            _ => 0,
        };
        (cwnd + self.inflated + early).min(config.window)
    }

    /// The application writes `segments`.
    pub fn write(&mut self, segments: u32, now: u64, config: &SenderConfig) {
        if self.una == self.max && config.linux {
            self.restart_after_idle(now, config);
            self.hold_window(config);
        }
        self.note_pause_of_application();
        self.written = self.written.saturating_add(segments);
    }

    /// The next transmission; `None` where window, pace or data end.
    #[inline]
    pub fn next(
        &mut self,
        now: u64,
        config: &SenderConfig,
        known: Option<&mut Known>,
    ) -> Option<Departure> {
        if self.board.is_some() {
            return self.next_selective(now, config, known);
        }
        if let Some(sequence) = self.urgent.take() {
            return Some(self.depart(sequence, now, config));
        }
        let window = self.effective_window(config);
        if self.nxt < self.written && self.nxt - self.una < window {
            let sequence = self.nxt;
            self.nxt += 1;
            return Some(self.depart(sequence, now, config));
        }
        self.note_use(self.nxt < self.written);
        None
    }

    fn depart(&mut self, sequence: u32, now: u64, config: &SenderConfig) -> Departure {
        self.totals.sent += 1;
        if sequence < self.max {
            self.totals.again += 1;
        } else {
            self.max = sequence + 1;
            if !config.timestamps && self.timed.is_none() {
                self.timed = Some((sequence, now));
            }
        }
        if let Some(vegas) = &mut self.vegas {
            vegas.sent(sequence, self.una, now);
        }
        self.last_sent_ns = now;
        if self.timer_ns == NEVER {
            self.arm(now, config);
        }
        Departure {
            sequence,
            stamp: now,
        }
    }

    fn arm(&mut self, now: u64, config: &SenderConfig) {
        self.waits = Waits::Timeout;
        self.timer_ns = config.runs_out_ns(now, self.rtt.timeout_ns(&config.rto));
    }

    /// As Linux's tcp_cwnd_validate(): whether the window was full, and how much of it
    /// was used, in each round trip.
    fn note_use(&mut self, blocked: bool) {
        let out = self.nxt.saturating_sub(self.una);
        if self.una >= self.use_end || blocked || (!self.limited && out > self.most_out) {
            self.limited = blocked;
            self.most_out = out;
            self.use_end = self.nxt;
        }
    }

    fn is_limited(&self, config: &SenderConfig) -> bool {
        if !config.validates {
            return true;
        }
        if self.window.cwnd < self.window.ssthresh {
            return self.window.cwnd < 2.0 * f64::from(self.most_out);
        }
        self.limited
    }

    fn sample(&self, now: u64, acked: u32, rtt_ns: u64, config: &SenderConfig) -> Sample {
        Sample {
            now,
            acked: if config.counts_segments { acked } else { 1 },
            rtt_ns,
            srtt_ns: self.rtt.smoothed_ns(&config.rto),
            min_rtt_ns: self.rtt.least_ns(),
            una: self.una,
            nxt: self.nxt,
            limited: self.is_limited(config),
        }
    }

    /// An ACK comes in. Returns whether the sender may send on now: ns-2 keeps still for
    /// the first duplicates.
    #[inline]
    pub fn on_ack(
        &mut self,
        ack: &Ack,
        now: u64,
        config: &SenderConfig,
        known: Option<&mut Known>,
    ) -> bool {
        if self.board.is_some() {
            self.on_ack_selective(ack, now, config, known);
            self.hold_window(config);
            return true;
        }
        if ack.next > self.una {
            match self.vegas.is_some() {
                true => self.on_new_ack_vegas(ack, now, config),
                false => self.on_new_ack_reno(ack, now, config),
            }
        } else if ack.next == self.una && self.max > self.una {
            match self.vegas.is_some() {
                true => self.on_duplicate_vegas(now, config),
                false => self.on_duplicate_reno(now, config),
            }
        }
        self.hold_window(config);
        config.limited_transmit || !matches!(self.duplicates, 1 | 2)
    }

    /// The timer that was to end at [`Sender::timer_ns`] has.
    pub fn on_timer(&mut self, now: u64, config: &SenderConfig, known: Option<&mut Known>) {
        self.timer_ns = NEVER;
        if self.una == self.max {
            return;
        }
        // A probe leaves whether the window has room or not, and has just made some.
        let probes = self.waits == Waits::Probe;
        if self.board.is_some() {
            self.on_timer_selective(now, config, known);
        } else {
            self.on_timeout_reno(now, config);
        }
        if !probes {
            self.hold_window(config);
        }
    }

    /// A fixed window stays, whatever the algorithm has set (ligon-1999, 3.0.2).
    fn hold_window(&mut self, config: &SenderConfig) {
        if config.fixed_window > 0 {
            self.window.cwnd = f64::from(config.fixed_window);
        }
    }

    /// The window goes up to `next`: round trip and timer. Returns the round trip, 0 if
    /// it is not known.
    fn advance(&mut self, ack: &Ack, now: u64, config: &SenderConfig) -> u64 {
        self.una = ack.next;
        self.nxt = self.nxt.max(self.una);
        let mut rtt_ns = 0;
        if config.timestamps {
            rtt_ns = now - ack.stamp;
            self.rtt.sample(rtt_ns, ack.stamp, &config.rto);
            self.rtt.reset_backoff();
        } else if let Some((sequence, since)) = self.timed {
            if ack.next > sequence {
                rtt_ns = now - since;
                self.rtt.sample(rtt_ns, since, &config.rto);
                self.rtt.reset_backoff();
                self.timed = None;
            }
        }
        rtt_ns
    }

    fn rearm(&mut self, now: u64, config: &SenderConfig) {
        if self.una < self.max {
            self.arm(now, config);
        } else {
            self.timer_ns = NEVER;
        }
    }
}
