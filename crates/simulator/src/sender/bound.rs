// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sender whose window a coordinator bounds: the text of `bpf/control/window_cap.h`
//! decides, called where the kernel side calls it (`bpf/transmission.h`): before a
//! transmission, before the window grows, at a loss.

use paceline_abi::pl_uwnd;
use paceline_control::{pl_orders, uwnd_add, Window};
use paceline_coordinator::algorithm::Limits;
use paceline_coordinator::local::StreamSample;

use super::config::SenderConfig;
use super::control::Controller;
use super::Sender;
use crate::event::US;

/// Most bytes of a send buffer (net.ipv4.tcp_wmem), which bound the unsent data.
const SOCKET_BYTES: u64 = 4 << 20;

/// The bounds of a connection, and the law's state.
#[derive(Debug, Clone, Default)]
pub(super) struct Bounded {
    uwnd: pl_uwnd,
    window: Window,
    /// The fraction of the base's cwnd, while the effective cwnd differs from it.
    fraction: f64,
}

impl Bounded {
    /// Whether the bound paces: then an order to stop pacing has no effect.
    pub fn paces(&self) -> bool {
        self.window.raw().pacing != 0
    }

    /// Whether a bound applies to the window.
    pub fn binds(&self) -> bool {
        self.window.raw().ceiling != 0
    }

    /// Another law has set the window.
    pub fn set(&mut self) {
        self.window.set();
    }
}

impl Sender {
    /// The sender is of a coordinator's group, and nothing bounds it yet.
    pub fn join_group(&mut self) {
        self.bounded = Some(Box::default());
        // The increase of a window is paced.
        self.law.get_or_insert_default();
    }

    /// Bounds the window until `until_us`, which counts as all times do.
    pub fn limit(&mut self, limits: Limits, until_us: u64) {
        let bounded = self.bounded.as_mut().expect("a sender of a group");
        bounded.uwnd = pl_uwnd {
            min_segs: limits.min_segs,
            max_segs: limits.max_segs,
            until_us,
        };
    }

    /// The sample that a coordinator's client reports on its host.
    pub fn report(&self, cookie: u64, config: &SenderConfig) -> StreamSample {
        let board = self
            .board
            .as_ref()
            .expect("a group is of selective senders");
        let payload = u64::from(Self::mss(config));
        let unsent = u64::from(self.written - self.nxt) * payload;
        let (smoothed, least) = (self.rtt.smoothed_ns(&config.rto), self.rtt.least_ns());
        StreamSample {
            cookie,
            destination: None,
            inflight_segs: board.in_flight(),
            cwnd_segs: self.own_window() as u32,
            ssthresh_segs: self.window.ssthresh.min(f64::from(i32::MAX)) as u32,
            mss_bytes: Self::mss(config),
            srtt_us: (smoothed / US) as u32,
            min_rtt_us: (least / US) as u32,
            acked_bytes: u64::from(self.una) * payload,
            delivered_segs: board.delivered,
            unsent_bytes: unsent.min(SOCKET_BYTES),
            total_bytes: 0,
            retransmitted_segs: self.totals.again,
            recovering: self.recovering || self.lost_all,
        }
    }

    /// The base's cwnd, whatever the effective cwnd is.
    pub(super) fn own_window(&self) -> f64 {
        let cwnd = self.window.cwnd;
        let Some(bounded) = &self.bounded else {
            return cwnd;
        };
        match bounded.window.base_cwnd(cwnd as u32) {
            own if own == cwnd as u32 => cwnd,
            own => f64::from(own) + bounded.fraction,
        }
    }

    /// Before a transmission, after all other laws.
    pub(super) fn bound(&mut self, now: u64, config: &SenderConfig) {
        let Some(bounded) = &self.bounded else {
            return;
        };
        let mut uwnd = pl_uwnd::default();
        uwnd_add(&mut uwnd, &bounded.uwnd, now / US);
        let unbound = uwnd.min_segs == 0 && uwnd.max_segs == 0;
        if unbound && bounded.window.raw().ceiling == 0 {
            return;
        }
        let tcp = self.tcp(now, config);
        let own = self.own_window();
        let bounded = self.bounded.as_mut().expect("looked at before");
        let pl_orders {
            cwnd,
            pacing_bps,
            stop,
            settled,
            ..
        } = bounded.window.before_send(&uwnd, &tcp);
        bounded.fraction = own.fract();
        self.window.cwnd = match cwnd == own as u32 {
            true => own,
            false => f64::from(cwnd),
        };
        if pacing_bps != 0 {
            self.pace(pacing_bps);
        }
        if stop != 0 {
            self.end_pace();
        }
        if settled != 0 {
            self.settle(now);
        }
    }

    /// Before the base's window grows.
    pub(super) fn before_growth(&mut self) {
        let own = self.own_window();
        let cwnd = self.window.cwnd as u32;
        if let Some(bounded) = &mut self.bounded {
            let grows_from = bounded.window.before_growth(cwnd);
            if grows_from != cwnd {
                self.window.cwnd = own;
            }
        }
    }

    /// A loss, before the base looks at its window.
    pub(super) fn before_loss(&mut self) {
        let (cwnd, out) = (self.window.cwnd as u32, self.nxt - self.una);
        if let Some(bounded) = &mut self.bounded {
            self.window.cwnd = f64::from(bounded.window.lost(cwnd, out));
        }
    }

    /// The base counts from its present window as from one at which the path was full.
    pub(super) fn settle(&mut self, now: u64) {
        let window = self.window;
        self.control.after_loss(now, window.cwnd, &window);
    }
}
