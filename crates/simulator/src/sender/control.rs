// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Growth of the window, and its reduction after a loss. A controller reads no clock:
//! time is passed in.

use super::bic::Bic;
use super::cubic::Cubic;

/// The window, in segments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Congestion window. Its fraction is Reno's growth so far.
    pub cwnd: f64,
    /// Below it the window grows as in slow start.
    pub ssthresh: f64,
}

/// An ACK as a controller sees it.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Now, nanoseconds.
    pub now: u64,
    /// Segments that the window may grow for: one for each ACK, or those acknowledged.
    pub acked: u32,
    /// Round trip of the latest segment acknowledged; 0: not known.
    pub rtt_ns: u64,
    /// Smoothed, and least ever.
    pub srtt_ns: u64,
    /// Least ever.
    pub min_rtt_ns: u64,
    /// First segment that is not acknowledged.
    pub una: u32,
    /// First that is not sent.
    pub nxt: u32,
    /// Whether the sender was cwnd-limited.
    pub limited: bool,
}

/// A congestion control.
pub trait Controller {
    /// Something new was acknowledged, and no loss is being repaired.
    fn on_ack(&mut self, sample: &Sample, window: &mut Window);
    /// ssthresh after a loss, for a sender that counts `basis` segments: its window, or
    /// its inflight.
    fn after_loss(&mut self, now: u64, basis: f64, window: &Window) -> f64;
    /// A timeout: the estimates are doubtful.
    fn on_timeout(&mut self) {}
    /// Sending goes on at `now` after nothing was in flight since `idle_since`.
    fn on_restart(&mut self, _now: u64, _idle_since: u64) {}
}

/// Additive increase, multiplicative decrease: RFC 5681.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reno;

impl Controller for Reno {
    #[inline]
    fn on_ack(&mut self, sample: &Sample, window: &mut Window) {
        if !sample.limited {
            return;
        }
        let mut acked = f64::from(sample.acked);
        if window.cwnd < window.ssthresh {
            let room = (window.ssthresh - window.cwnd).ceil();
            let grown = acked.min(room.max(1.0));
            window.cwnd += grown;
            acked -= grown;
        }
        if acked > 0.0 {
            window.cwnd += acked / window.cwnd;
        }
    }

    fn after_loss(&mut self, _now: u64, basis: f64, _window: &Window) -> f64 {
        (basis / 2.0).floor().max(2.0)
    }
}

/// The controllers as an enum without virtual calls, for a small flow.
#[derive(Debug, Clone)]
pub enum Control {
    /// Also the window of Vegas while it repairs.
    Reno(Reno),
    /// CUBIC.
    Cubic(Box<Cubic>),
    /// BIC.
    Bic(Box<Bic>),
}

impl Controller for Control {
    #[inline]
    fn on_ack(&mut self, sample: &Sample, window: &mut Window) {
        match self {
            Control::Reno(reno) => reno.on_ack(sample, window),
            Control::Cubic(cubic) => cubic.on_ack(sample, window),
            Control::Bic(bic) => bic.on_ack(sample, window),
        }
    }

    fn after_loss(&mut self, now: u64, basis: f64, window: &Window) -> f64 {
        match self {
            Control::Reno(reno) => reno.after_loss(now, basis, window),
            Control::Cubic(cubic) => cubic.after_loss(now, basis, window),
            Control::Bic(bic) => bic.after_loss(now, basis, window),
        }
    }

    fn on_timeout(&mut self) {
        match self {
            Control::Reno(reno) => reno.on_timeout(),
            Control::Cubic(cubic) => cubic.on_timeout(),
            Control::Bic(bic) => bic.on_timeout(),
        }
    }

    fn on_restart(&mut self, now: u64, idle_since: u64) {
        match self {
            Control::Reno(reno) => reno.on_restart(now, idle_since),
            Control::Cubic(cubic) => cubic.on_restart(now, idle_since),
            Control::Bic(bic) => bic.on_restart(now, idle_since),
        }
    }
}

/// Linux's tcp_cong_avoid_ai(): one segment for every `per` that are acknowledged.
pub(super) fn grow_one_per(window: &mut Window, collected: &mut u32, per: u32, acked: u32) {
    if *collected >= per {
        *collected = 0;
        window.cwnd += 1.0;
    }
    *collected += acked;
    if *collected >= per {
        let grown = *collected / per;
        *collected -= grown * per;
        window.cwnd += f64::from(grown);
    }
}

/// Linux's tcp_slow_start(): grows by the acknowledged segments, up to ssthresh; returns
/// the rest of them.
pub(super) fn slow_start(window: &mut Window, acked: u32) -> u32 {
    let cwnd = (window.cwnd + f64::from(acked)).min(window.ssthresh.max(window.cwnd));
    let used = (cwnd - window.cwnd) as u32;
    window.cwnd = cwnd;
    acked - used
}
