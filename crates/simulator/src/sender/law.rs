// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sender under Paceline's laws: the text of `bpf/control` decides, as the kernel side
//! lets it (`bpf/congestion.bpf.c`): before a transmission, after an ACK, after a loss.

use paceline_abi::{pl_path, pl_policy, pl_target, pl_turn};
use paceline_control::{pl_orders, pl_tcp, spacing_rate, Even, Startup, State, PL_NO_SSTHRESH};

use super::board::Change;
use super::config::SenderConfig;
use super::Sender;
use crate::event::{SECOND, US};

/// Segments of a new connection that Linux does not pace.
const UNPACED: u64 = 10;

/// Inputs of the law, beside the connection.
pub struct Known<'a> {
    /// The job's policy.
    pub policy: &'a pl_policy,
    /// The path's state, which the host's connections share.
    pub path: &'a mut pl_path,
    /// State of the host's turns.
    pub turn: &'a mut pl_turn,
}

/// The law's side of a connection, and the pacing that it orders.
#[derive(Debug, Clone, Default)]
pub(super) struct Law {
    pub startup: Startup,
    pub even: Even,
    paced: bool,
    /// The spacing law paces.
    spaced: bool,
    /// Pacing is over, once the time for the next segment has come.
    stopping: bool,
    /// Bytes of payload per second.
    pacing_bps: u64,
    due_ns: u64,
    pub wake_ns: Option<u64>,
    carried: u32,
    carried_us: u32,
    /// The last RTT sample.
    rtt_us: u32,
    delivered_at_timeout: u32,
    /// Initial sequence number, bytes: the laws draw from sequence numbers.
    first: u32,
}

/// Whether the policy asks for a start-up law.
pub(super) fn has_start(policy: &pl_policy) -> bool {
    policy.target != pl_target::PL_TARGET_OFF as u8
}

impl Sender {
    /// Sets the initial sequence number, before the first segment.
    pub fn begin_at(&mut self, sequence_number: u32) {
        if let Some(law) = &mut self.law {
            law.first = sequence_number;
        }
    }

    pub(super) fn mss(config: &SenderConfig) -> u32 {
        let payload = config.packet_bytes.saturating_sub(config.header_bytes);
        payload.max(1)
    }

    pub(super) fn tcp(&self, now: u64, config: &SenderConfig) -> pl_tcp {
        let board = self.board.as_ref().expect("a law is of a selective sender");
        let law = self
            .law
            .as_ref()
            .expect("asked only of a sender with a law");
        let mss = Self::mss(config);
        let segments = |value: f64| value.min(f64::from(PL_NO_SSTHRESH)) as u32;
        let unsent = u64::from(self.written - self.nxt) * u64::from(mss);
        let again = self.lost_all && board.delivered != law.delivered_at_timeout;
        pl_tcp {
            now_us: now / US,
            cwnd: segments(self.own_window()),
            ssthresh: segments(self.window.ssthresh),
            srtt_us: (self.rtt.smoothed_ns(&config.rto) / US) as u32,
            min_rtt_us: (self.rtt.least_ns() / US) as u32,
            mss,
            packets_out: self.nxt - self.una,
            in_flight: board.in_flight(),
            unsent: unsent.min(u64::from(u32::MAX)) as u32,
            sent_segs: self.totals.sent as u32,
            delivered_segs: board.delivered,
            retransmitted_segs: self.totals.again as u32,
            carried_segs: law.carried,
            carried_us: law.carried_us,
            una: law.first.wrapping_add(self.una.wrapping_mul(mss)),
            nxt: law.first.wrapping_add(self.nxt.wrapping_mul(mss)),
            gso_segs: 1,
            device_segs: 1,
            app_limited: u8::from(board.app_limited != 0),
            recovering: u8::from(self.recovering || self.lost_all),
            repairing: u8::from(self.recovering || again),
            ..Default::default()
        }
    }

    fn apply(&mut self, orders: &pl_orders, now: u64) {
        if orders.cwnd != 0 {
            self.window.cwnd = f64::from(orders.cwnd);
            if let Some(bounded) = &mut self.bounded {
                bounded.set();
            }
        }
        if orders.ssthresh != 0 {
            self.window.ssthresh = f64::from(orders.ssthresh);
        }
        if orders.pacing_bps != 0 {
            self.pace(orders.pacing_bps);
        }
        if orders.stop != 0 {
            self.end_pace();
        }
        if orders.settled != 0 {
            self.settle(now);
        }
    }

    /// Segments leave at this pace, bytes of payload per second.
    pub(super) fn pace(&mut self, pacing_bps: u64) {
        let law = self
            .law
            .as_mut()
            .expect("asked only of a sender with a law");
        law.pacing_bps = pacing_bps;
        law.paced = true;
        law.stopping = false;
    }

    /// One of the laws needs no pace any more; another may.
    pub(super) fn end_pace(&mut self) {
        let bounded = self.bounded.as_ref();
        let law = self
            .law
            .as_mut()
            .expect("asked only of a sender with a law");
        let needed = law.spaced
            || law.startup.raw().pacing != 0
            || bounded.is_some_and(|bounded| bounded.paces());
        if law.paced && !needed {
            law.stopping = true;
        }
    }

    /// Before a transmission. Returns whether pacing lets it happen.
    pub(super) fn may_leave(
        &mut self,
        now: u64,
        config: &SenderConfig,
        known: Option<&mut Known>,
    ) -> bool {
        let una = self.una;
        let waits = {
            let board = self.board.as_mut().expect("a law is of a selective sender");
            self.nxt < self.written || self.urgent.is_some() || board.next_lost(una).is_some()
        };
        let law = self
            .law
            .as_mut()
            .expect("asked only of a sender with a law");
        law.wake_ns = None;
        if law.stopping && law.due_ns <= now {
            law.stopping = false;
            law.paced = false;
        }
        if !waits {
            return true;
        }
        if law.paced && law.due_ns > now {
            law.wake_ns = Some(law.due_ns);
            return false;
        }
        let mut leads = false;
        if let Some(known) = known {
            self.start_before_send(now, config, known);
            self.share_evenly(now, config, known);
            self.space(now, config, known.policy);
            leads = has_start(known.policy) && known.policy.even == 0;
        }
        self.bound(now, config);
        if leads && self.bounded.is_none() {
            self.lead_window();
        }
        true
    }

    fn start_before_send(&mut self, now: u64, config: &SenderConfig, known: &mut Known) {
        let Known { policy, path, turn } = known;
        let law = self
            .law
            .as_ref()
            .expect("asked only of a sender with a law");
        if !has_start(policy) {
            return;
        }
        let begins =
            self.nxt == self.una || matches!(law.startup.state(), State::Paced | State::Measured);
        let tcp = self.tcp(now, config);
        if !begins && !law.startup.wants_refill(&tcp) {
            return;
        }
        let law = self
            .law
            .as_mut()
            .expect("asked only of a sender with a law");
        let mut orders = law.startup.before_send(path, policy, &tcp);
        let raw = law.startup.raw();
        if raw.turn_sent != 0 || raw.turn_first != 0 || raw.turn_wants != 0 || raw.waits != 0 {
            law.startup
                .before_send_in_turn(turn, policy, &tcp, true, &mut orders);
        }
        self.apply(&orders, now);
    }

    /// The window of unpaced segments, where the law limits the base's.
    fn lead_window(&mut self) {
        let ssthresh = self.window.ssthresh.min(f64::from(PL_NO_SSTHRESH)) as u32;
        let cwnd = self.window.cwnd as u32;
        let law = self
            .law
            .as_ref()
            .expect("asked only of a sender with a law");
        let led = law.startup.led_window(cwnd, ssthresh);
        // An equal window keeps its fraction of a segment.
        if led != cwnd {
            self.window.cwnd = f64::from(led);
        }
    }

    /// Spaces the segments that follow, as the policy asks.
    fn space(&mut self, now: u64, config: &SenderConfig, policy: &pl_policy) {
        if policy.clustered == 0 && policy.gap_bytes == 0 {
            return;
        }
        let tcp = self.tcp(now, config);
        let law = self
            .law
            .as_mut()
            .expect("asked only of a sender with a law");
        let started = law.startup.raw().pacing != 0;
        match spacing_rate(policy, &tcp, started) {
            None if law.spaced => {
                law.spaced = false;
                self.end_pace();
            }
            None => {}
            Some(rate) => {
                law.spaced = true;
                let slower = if started { law.pacing_bps } else { rate };
                self.pace(rate.min(slower));
            }
        }
    }

    /// A transmission takes its time at the pacing rate (tcp_update_skb_after_send).
    pub(super) fn charge(&mut self, now: u64, config: &SenderConfig) {
        let sent = self.totals.sent;
        let law = self
            .law
            .as_mut()
            .expect("asked only of a sender with a law");
        if !law.paced {
            return;
        }
        let before = law.due_ns;
        law.due_ns = before.max(now);
        if sent > UNPACED {
            // A late segment may make up for half of a segment's time.
            let credit = law.due_ns - before;
            let length = u64::from(Self::mss(config)) * SECOND / law.pacing_bps.max(1);
            law.due_ns += length - credit.min(length / 2);
        }
    }

    pub(super) fn update_law(
        &mut self,
        now: u64,
        config: &SenderConfig,
        known: Option<&mut Known>,
        rtt_ns: u64,
        change: &Change,
    ) {
        let law = self
            .law
            .as_mut()
            .expect("asked only of a sender with a law");
        if change.carried > 0 && change.carried_ns > 0 {
            law.carried = change.carried;
            law.carried_us = (change.carried_ns / US) as u32;
        }
        if rtt_ns > 0 {
            law.rtt_us = (rtt_ns / US) as u32;
        }
        let Some(known) = known else {
            return;
        };
        self.leave_even(known);
        let Known { policy, path, turn } = known;
        if !has_start(policy) {
            return;
        }
        let mut tcp = self.tcp(now, config);
        let law = self
            .law
            .as_mut()
            .expect("asked only of a sender with a law");
        tcp.rtt_us = (rtt_ns / US) as u32;
        if self.nxt != self.una && !law.startup.wants_ack(&tcp) {
            return;
        }
        let mut orders = law.startup.on_ack(path, policy, &tcp);
        if law.startup.waits() || law.startup.has_turn() {
            law.startup.on_ack_in_turn(turn, &tcp, &mut orders);
        }
        self.apply(&orders, now);
    }

    /// tcp_update_pacing_rate(): the kernel's own pace after an ACK.
    pub(super) fn update_pacing(&mut self, config: &SenderConfig) {
        let slow_start = self.window.cwnd < self.window.ssthresh / 2.0;
        let percent = if slow_start { 200 } else { 120 };
        let srtt = self.rtt.smoothed_ns(&config.rto).max(1);
        let segments = (self.window.cwnd as u64).max(u64::from(self.nxt - self.una));
        let bytes = segments * u64::from(Self::mss(config)) * percent / 100;
        let law = self
            .law
            .as_mut()
            .expect("asked only of a sender with a law");
        law.pacing_bps = (u128::from(bytes) * u128::from(SECOND) / u128::from(srtt)) as u64;
    }

    /// ssthresh after a loss, and the reduction of the path's window.
    pub(super) fn law_after_loss(
        &mut self,
        now: u64,
        config: &SenderConfig,
        known: Option<&mut Known>,
    ) {
        let Some(known) = known else {
            return;
        };
        if known.policy.target == pl_target::PL_TARGET_DELIVERY_RATE as u8 {
            let mut tcp = self.tcp(now, config);
            let board = self.board.as_ref().expect("a law is of a selective sender");
            let law = self
                .law
                .as_mut()
                .expect("asked only of a sender with a law");
            tcp.rtt_us = law.rtt_us;
            let base = self.window.ssthresh as u32;
            let lost = board.lost_out();
            let startup = &mut law.startup;
            let ssthresh = startup.ssthresh_after_loss(known.path, &tcp, lost, base);
            self.window.ssthresh = f64::from(ssthresh);
        }
        self.lose_evenly(known);
    }

    /// A timeout: only segments delivered after it show that the path works.
    pub(super) fn law_notes_timeout(&mut self) {
        let delivered = self.board.as_ref().map_or(0, |board| board.delivered);
        if let Some(law) = &mut self.law {
            law.delivered_at_timeout = delivered;
            law.startup.note_timeout();
        }
    }
}
