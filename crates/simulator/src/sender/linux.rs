// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recovery with selective acknowledgement: RFC 6675's, and Linux's, which adds
//! proportional rate reduction (RFC 6937), the tail-loss probe and RACK's timer (RFC
//! 8985), and lets a window shrink while nothing is sent.

use super::config::{Estimator, Halves, SenderConfig};
use super::control::Controller;
use super::law::Known;
use super::reno::DUPLICATES;
use super::{Ack, Departure, Sender, Waits};
use crate::event::NEVER;
use paceline_control::PL_NO_SSTHRESH;

/// Two ticks: no probe waits less (TCP_TIMEOUT_MIN).
const fn least_wait_ns(config: &SenderConfig) -> u64 {
    2 * config.timer_tick_ns
}

impl Sender {
    pub(super) fn next_selective(
        &mut self,
        now: u64,
        config: &SenderConfig,
        known: Option<&mut Known>,
    ) -> Option<Departure> {
        if self.law.is_some() && !self.may_leave(now, config, known) {
            return None;
        }
        let cwnd = (self.window.cwnd as u32).max(1);
        let board = self.board.as_mut().expect("a selective sender");
        let in_flight = board.in_flight();
        let departure = if let Some(sequence) = self.urgent.take().filter(|at| *at >= self.una) {
            Some((sequence, true))
        } else if in_flight >= cwnd {
            None
        } else if let Some(sequence) = board.next_lost(self.una) {
            Some((sequence, true))
        } else if self.nxt < self.written && self.nxt - self.una < config.window {
            Some((self.nxt, false))
        } else {
            None
        };
        let Some((sequence, again)) = departure else {
            self.note_use(in_flight >= cwnd);
            return None;
        };
        let stamp = if again {
            board.send_again(sequence, self.una, now)
        } else {
            self.nxt += 1;
            self.max = self.nxt;
            board.send_new(sequence, now)
        };
        board.prr_out += u32::from(self.recovering);
        self.totals.sent += 1;
        self.totals.again += u64::from(again);
        self.last_sent_ns = now;
        if self.law.is_some() {
            self.charge(now, config);
        }
        if self.timer_ns == NEVER || !again {
            self.arm_selective(now, config);
        }
        Some(Departure { sequence, stamp })
    }

    /// The probe, no later than the timeout, whose place it takes (tcp_schedule_loss_probe);
    /// or the timeout, while losses are repaired or another probe is under way.
    fn arm_selective(&mut self, now: u64, config: &SenderConfig) {
        let timeout = self.rtt.timeout_ns(&config.rto);
        let board = self.board.as_ref().expect("a selective sender");
        let probes = config.linux && !self.recovering && !self.lost_all;
        if !probes || board.probe_end.is_some() || board.arrived() > 0 {
            self.waits = Waits::Timeout;
            self.timer_ns = config.runs_out_ns(now, timeout);
            return;
        }
        // For a single segment with the receiver's delayed ACK: the minimum RTO stands for it.
        let more = match self.max - self.una {
            1 => config.rto.floor_ns,
            _ => least_wait_ns(config),
        };
        let wait = match self.rtt.smoothed_ns(&config.rto) {
            0 => config.rto.initial_ns,
            srtt => 2 * srtt + more,
        };
        self.waits = Waits::Probe;
        self.timer_ns = config.runs_out_ns(now, wait.min(timeout));
    }

    pub(super) fn on_ack_selective(
        &mut self,
        ack: &Ack,
        now: u64,
        config: &SenderConfig,
        known: Option<&mut Known>,
    ) {
        let Some(mut board) = self.board.take() else {
            return;
        };
        let in_flight = board.in_flight();
        let advanced = ack.next > self.una;
        let change = board.acknowledge(self.una, ack.next, ack.block, ack.stamp, now);
        let (acked, delivered) = (ack.next.saturating_sub(self.una), change.delivered);
        self.una = self.una.max(ack.next);
        let mut rtt_ns = 0;
        // The paper's measurement begins with the first segment that an ACK covers (ligon-1999,
        // 2.1.3), and so has the ACK's delay in it.
        let stamp = match config.rto.estimator {
            Estimator::Smoothed => change.rtt_stamp,
            _ => change.first_stamp,
        };
        if let Some(stamp) = stamp {
            rtt_ns = now - stamp.min(now);
            self.rtt.sample(rtt_ns, stamp, &config.rto);
            self.rtt.reset_backoff();
        } else if advanced && config.timestamps {
            // The timestamp echo identifies the transmission.
            rtt_ns = now - ack.stamp.min(now);
            self.rtt.sample(rtt_ns, ack.stamp, &config.rto);
            self.rtt.reset_backoff();
        }
        self.board = Some(board);
        let mut known = known;
        if self.law.is_some() {
            self.update_law(now, config, known.as_deref_mut(), rtt_ns, &change);
        }
        let progress = advanced || delivered > 0;
        self.on_probe_ack(ack, progress, now, config, known.as_deref_mut());
        self.repair(now, config, delivered, advanced, in_flight, known);
        if !self.recovering && delivered > 0 {
            // With holes that are not marked lost yet, the window stays (Disorder).
            let holes = self.board.as_ref().is_some_and(|board| board.arrived() > 0);
            if !holes || self.lost_all {
                let grows = if config.counts_segments {
                    delivered
                } else {
                    acked.min(1)
                };
                if grows > 0 {
                    self.before_growth();
                    let mut sample = self.sample(now, grows, rtt_ns, config);
                    sample.acked = grows;
                    self.control.on_ack(&sample, &mut self.window);
                }
            }
        }
        if self.law.is_some() {
            self.update_pacing(config);
        }
        if self.una == self.max {
            self.timer_ns = NEVER;
        } else if advanced || delivered > 0 {
            self.arm_selective(now, config);
        }
        self.arm_reordering(now, config);
    }

    /// tcp_process_tlp_ack(): whether the probe repaired a loss, for which the window goes
    /// down. An ACK of the probe's segment alone does not show it.
    fn on_probe_ack(
        &mut self,
        ack: &Ack,
        progress: bool,
        now: u64,
        config: &SenderConfig,
        known: Option<&mut Known>,
    ) {
        let board = self.board.as_mut().expect("a selective sender");
        let Some(end) = board.probe_end.filter(|end| ack.next >= *end) else {
            return;
        };
        let came_twice = ack.block.0 < ack.block.1 && ack.block.1 <= ack.next;
        if !board.probe_repeats || came_twice || !progress {
            board.probe_end = None;
        } else if ack.next > end {
            board.probe_end = None;
            self.before_loss();
            self.lower_ssthresh(self.window.cwnd.floor(), now, config, known);
            self.window.cwnd = self.window.ssthresh;
        }
    }

    fn lower_ssthresh(
        &mut self,
        basis: f64,
        now: u64,
        config: &SenderConfig,
        known: Option<&mut Known>,
    ) {
        self.window.ssthresh = self.control.after_loss(now, basis, &self.window);
        if self.law.is_some() {
            self.law_after_loss(now, config, known);
        }
    }

    /// Finds losses, and the usable window while they are repaired.
    fn repair(
        &mut self,
        now: u64,
        config: &SenderConfig,
        delivered: u32,
        advanced: bool,
        in_flight: u32,
        known: Option<&mut Known>,
    ) {
        if (self.recovering || self.lost_all) && self.una >= self.recover {
            if self.recovering && self.window.ssthresh < f64::from(PL_NO_SSTHRESH) {
                self.window.cwnd = self.window.ssthresh;
            }
            self.recovering = false;
            self.lost_all = false;
        }
        let board = self.board.as_mut().expect("a selective sender");
        let may_be_lost = self.recovering || self.lost_all || board.arrived() >= DUPLICATES;
        let found = if may_be_lost {
            board.find_lost(self.una)
        } else {
            0
        };
        if found > 0 && !self.recovering && !self.lost_all {
            self.enter_recovery(now, config, in_flight, known);
            self.reduce(delivered, found, true, advanced, config);
        } else if self.recovering {
            self.reduce(delivered, found, false, advanced, config);
        }
    }

    fn enter_recovery(
        &mut self,
        now: u64,
        config: &SenderConfig,
        in_flight: u32,
        known: Option<&mut Known>,
    ) {
        self.totals.recoveries += 1;
        let prior_cwnd = self.window.cwnd as u32;
        self.before_loss();
        let basis = if config.halves != Halves::Window {
            f64::from(in_flight)
        } else {
            self.window.cwnd.floor()
        };
        self.window.ssthresh = self.control.after_loss(now, basis, &self.window);
        self.recovering = true;
        self.recover = self.nxt;
        let board = self.board.as_mut().expect("a selective sender");
        board.prr_delivered = 0;
        board.prr_out = 0;
        board.prior_cwnd = prior_cwnd.max(1);
        board.probe_end = None;
        if !config.linux {
            self.window.cwnd = self.window.ssthresh;
            // The first lost segment waits for no room (RFC 6675, 5, step 4.2).
            self.urgent = board.next_lost(self.una);
        }
        if self.law.is_some() {
            self.law_after_loss(now, config, known);
        }
    }

    /// RFC 6937 as Linux has it: while more is in flight than ssthresh, the window goes
    /// down in proportion to the delivered segments; then it slow-starts up to there.
    fn reduce(
        &mut self,
        delivered: u32,
        found: u32,
        first: bool,
        advanced: bool,
        config: &SenderConfig,
    ) {
        if !config.linux {
            return;
        }
        let board = self.board.as_mut().expect("a selective sender");
        if delivered == 0 && !first {
            return;
        }
        board.prr_delivered += delivered;
        let in_flight = board.in_flight();
        let ssthresh = self.window.ssthresh as u32;
        let sends = if in_flight > ssthresh {
            let share = u64::from(ssthresh) * u64::from(board.prr_delivered);
            let share = share.div_ceil(u64::from(board.prior_cwnd)) as u32;
            share.saturating_sub(board.prr_out)
        } else {
            let mut sends = board
                .prr_delivered
                .saturating_sub(board.prr_out)
                .max(delivered);
            if advanced && found == 0 {
                sends += 1;
            }
            sends.min(ssthresh - in_flight)
        };
        let sends = sends.max(u32::from(board.prr_out == 0));
        self.window.cwnd = f64::from(in_flight + sends);
    }

    /// RACK's timer: fewer than three segments arrived after a hole, and no more may come.
    fn arm_reordering(&mut self, now: u64, config: &SenderConfig) {
        if !config.linux || self.recovering || self.lost_all {
            return;
        }
        let board = self.board.as_mut().expect("a selective sender");
        if board.arrived() == 0 {
            return;
        }
        if let Some(stamp) = board.oldest_suspect(self.una) {
            let allowed = self.rtt.smoothed_ns(&config.rto) + self.rtt.least_ns() / 4;
            let left = (stamp + allowed).saturating_sub(now);
            // Due already: with this ACK, without a tick of the timer.
            let at = match left {
                0 => now + 1,
                left => config.runs_out_ns(now, left + least_wait_ns(config)),
            };
            if at < self.timer_ns {
                self.timer_ns = at;
                self.waits = Waits::Reordering;
            }
        }
    }

    pub(super) fn on_timer_selective(
        &mut self,
        now: u64,
        config: &SenderConfig,
        known: Option<&mut Known>,
    ) {
        let board = self.board.as_mut().expect("a selective sender");
        match self.waits {
            Waits::Reordering => {
                let in_flight = board.in_flight();
                let found = board.find_lost(self.una);
                if found > 0 {
                    self.enter_recovery(now, config, in_flight, known);
                    self.reduce(0, found, true, false, config);
                }
                self.arm_selective(now, config);
            }
            Waits::Probe => {
                self.totals.probes += 1;
                board.probe_end = Some(self.nxt);
                board.probe_repeats = true;
                // A new segment, if there is one that the receiver lets in; else the last.
                if self.nxt < self.written && self.nxt - self.una < config.window {
                    self.window.cwnd = self.window.cwnd.max(f64::from(board.in_flight() + 1));
                    board.probe_end = Some(self.nxt + 1);
                    board.probe_repeats = false;
                } else {
                    self.urgent = Some(self.max - 1);
                }
                self.arm_selective(now, config);
            }
            Waits::Timeout => self.time_out_selective(now, config, known),
        }
    }

    fn time_out_selective(&mut self, now: u64, config: &SenderConfig, known: Option<&mut Known>) {
        self.totals.timeouts += 1;
        // One reduction for one window, however often it is sent in vain.
        if (!self.recovering && !self.lost_all) || self.una >= self.recover {
            self.before_loss();
            let board = self.board.as_ref().expect("a selective sender");
            let basis = if config.halves != Halves::Window {
                f64::from(board.in_flight())
            } else {
                self.window.cwnd.floor()
            };
            self.lower_ssthresh(basis, now, config, known);
        }
        self.law_notes_timeout();
        self.control.on_timeout();
        self.recovering = false;
        self.lost_all = true;
        self.recover = self.nxt;
        self.window.cwnd = config.restart_window();
        self.urgent = None;
        let board = self.board.as_mut().expect("a selective sender");
        board.lose_all(self.una);
        board.probe_end = None;
        self.rtt.back_off(&config.rto);
        self.arm(now, config);
    }

    /// tcp_rate_check_app_limited(), before the application writes more: it let the window run
    /// empty, so rate samples are app-limited until all of the inflight is delivered. Those of
    /// this write's segments are not.
    pub(super) fn note_pause_of_application(&mut self) {
        let (sent_all, cwnd) = (self.nxt >= self.written, self.window.cwnd as u32);
        let una = self.una;
        let Some(board) = self.board.as_mut().filter(|_| sent_all) else {
            return;
        };
        let in_flight = board.in_flight();
        if in_flight < cwnd && board.next_lost(una).is_none() {
            board.app_limited = (board.delivered + in_flight).max(1);
        }
    }

    /// tcp_slow_start_after_idle: half the window for each timeout without sending.
    pub(super) fn restart_after_idle(&mut self, now: u64, config: &SenderConfig) {
        if self.totals.sent == 0 {
            return;
        }
        let rto = self.rtt.timeout_ns(&config.rto);
        let mut idle = now - self.last_sent_ns;
        self.control.on_restart(now, self.last_sent_ns);
        if idle <= rto {
            return;
        }
        let least = f64::from(config.initial_window);
        let window = &mut self.window;
        window.ssthresh = window.ssthresh.max((window.cwnd * 3.0 / 4.0).floor());
        while idle > rto && window.cwnd > least {
            idle -= rto;
            window.cwnd = (window.cwnd / 2.0).floor().max(least);
        }
        if config.initial_window_again {
            window.cwnd = window.cwnd.max(least);
        }
    }
}
