// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sender whose connections to one destination share a window: the text of
//! `bpf/control/even.h` decides, called where the kernel side calls it
//! (`bpf/transmission.h`).

use paceline_control::{State, PL_LED};

use super::config::SenderConfig;
use super::law::{has_start, Known};
use super::Sender;

impl Sender {
    /// Before a transmission, after the law of starts: its part of the path's window, unless
    /// a start leads the window or a coordinator bounds it.
    pub(super) fn share_evenly(&mut self, now: u64, config: &SenderConfig, known: &mut Known) {
        let law = self
            .law
            .as_ref()
            .expect("asked only of a sender with a law");
        let raw = law.startup.raw();
        let led = law.startup.state() != State::Base || u32::from(raw.rounds) > PL_LED;
        let bounded = self.bounded.as_ref().is_some_and(|bounded| bounded.binds());
        if known.policy.even == 0 || bounded || (has_start(known.policy) && led) {
            return;
        }
        let tcp = self.tcp(now, config);
        let law = self.law.as_mut().expect("looked at before");
        let orders = law.even.before_send(known.path, &tcp);
        // An equal window keeps its fraction of a segment.
        if orders.cwnd != 0 && orders.cwnd != tcp.cwnd {
            self.window.cwnd = f64::from(orders.cwnd);
        }
        if orders.ssthresh != 0 {
            self.window.ssthresh = f64::from(orders.ssthresh);
        }
    }

    /// All is acknowledged, and there is no more: the others share its part.
    pub(super) fn leave_even(&mut self, known: &mut Known) {
        if self.una == self.written {
            if let Some(law) = &mut self.law {
                law.even.leave(known.path);
            }
        }
    }

    /// A loss, at which the window is reduced to ssthresh.
    pub(super) fn lose_evenly(&mut self, known: &mut Known) {
        let [cwnd, ssthresh] = [self.window.cwnd, self.window.ssthresh].map(|segs| segs as u32);
        if let Some(law) = &mut self.law {
            law.even.lost(known.path, cwnd, ssthresh);
        }
    }
}
