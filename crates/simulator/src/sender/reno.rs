// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recovery without selective acknowledgement: Reno (RFC 2581) and NewReno (RFC 6582),
//! and go-back-N after a timeout, which Vegas shares.

use super::config::{Algorithm, Halves, SenderConfig};
use super::control::Controller;
use super::{Ack, Sender};

/// Duplicate ACKs that mean a loss.
pub(super) const DUPLICATES: u32 = 3;

impl Sender {
    pub(super) fn on_new_ack_reno(&mut self, ack: &Ack, now: u64, config: &SenderConfig) {
        let acked = ack.next - self.una;
        let newreno = config.algorithm == Algorithm::Newreno;
        let rtt_ns = self.advance(ack, now, config);
        if self.recovering && newreno && ack.next < self.recover {
            // A partial ACK: the next hole is repaired at once, and the window deflates by
            // the acknowledged segments (RFC 6582, 3.2, step 3).
            self.inflated = (self.inflated + 1).saturating_sub(acked);
            self.urgent = Some(self.una);
            if !self.partial {
                self.partial = true;
                self.rearm(now, config);
            }
            return;
        }
        let repaired = self.recovering;
        self.inflated = 0;
        self.duplicates = 0;
        self.recovering = false;
        self.rearm(now, config);
        if repaired && newreno {
            // No burst into the room that recovery has left (RFC 6582, option 1).
            let flight = f64::from(self.max - self.una).max(1.0) + 1.0;
            self.window.cwnd = self.window.ssthresh;
            if config.exits_to_flight {
                self.window.cwnd = self.window.ssthresh.min(flight);
            }
            return;
        }
        let sample = self.sample(now, acked, rtt_ns, config);
        self.control.on_ack(&sample, &mut self.window);
    }

    pub(super) fn on_duplicate_reno(&mut self, now: u64, config: &SenderConfig) {
        self.duplicates += 1;
        // Duplicates for segments sent before the last loss was found show no new loss.
        let fresh = self.recover == 0 || self.una > self.recover;
        if self.duplicates == DUPLICATES && fresh {
            self.totals.recoveries += 1;
            self.recover = self.max;
            self.recovering = true;
            self.partial = false;
            self.inflated = config.inflation;
            self.halve(now, config);
            self.window.cwnd = self.window.ssthresh;
            self.urgent = Some(self.una);
            self.timed = None;
            self.arm(now, config);
        } else if self.duplicates > DUPLICATES && self.recovering {
            self.inflated += 1;
        }
    }

    /// ssthresh after a loss.
    pub(super) fn halve(&mut self, now: u64, config: &SenderConfig) {
        let flight = self.nxt - self.una;
        let basis = match config.halves {
            Halves::Window => self.window.cwnd.floor().min(f64::from(config.window)),
            Halves::Flight => f64::from(flight),
            // Bytes are halved, and half a segment is not lost.
            Halves::Pipe => {
                let pipe = f64::from(flight.saturating_sub(self.inflated));
                self.window.ssthresh = (pipe / 2.0).max(2.0);
                return;
            }
        };
        self.window.ssthresh = self.control.after_loss(now, basis, &self.window);
    }

    /// Everything is sent again from the first segment that is not acknowledged.
    pub(super) fn on_timeout_reno(&mut self, now: u64, config: &SenderConfig) {
        self.totals.timeouts += 1;
        // Of a segment that is lost again ssthresh has been taken already (RFC 5681).
        let again = !config.inflates_beyond_window && self.lost_all && self.una < self.recover;
        if !again {
            self.halve(now, config);
            self.control.on_timeout();
        }
        self.inflated = 0;
        self.duplicates = 0;
        self.recovering = false;
        self.lost_all = true;
        self.recover = self.max;
        self.window.cwnd = config.restart_window();
        self.nxt = self.una;
        self.urgent = None;
        self.timed = None;
        self.rtt.back_off(&config.rto);
        if let Some(vegas) = &mut self.vegas {
            self.window.cwnd = vegas.on_timeout(now).max(config.restart_window());
        }
        self.arm(now, config);
    }
}
