// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Vegas: Brakmo and Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global
//! Internet", IEEE JSAC 13(8), 1995, with the details in which the paper leaves a choice
//! as ns-2 of 2000 made them.
//!
//! - Once per round trip it compares the expected rate, by min_rtt, with the actual rate,
//!   and keeps between alpha and beta segments in the queue.
//! - Slow start doubles every other round trip, and ends when gamma segments wait.
//! - A segment whose own fine-grained timeout has run out is sent again at the first
//!   duplicate ACK, and the window is cut by a quarter, at most once for segments sent
//!   before the last cut.
//!
//! One choice of ns-2 is a mistake, and only the stack `ns-2` makes it: a round in which
//! no segment was timed, as after a timeout, lasts from ACK to ACK. Where ACKs of segments
//! sent before the timeout still come in, that is a millisecond, the minimum RTT from then
//! on; later RTTs seem to contain a queue, and the window stays at two or three for ever.

use std::collections::VecDeque;

use super::config::SenderConfig;
use super::reno::DUPLICATES;
use super::{Ack, Sender};

/// Window after a timeout, and the least after a loss: two segments, so that a round
/// trip can be measured.
const LEAST: f64 = 2.0;

/// State of Vegas beside the window.
#[derive(Debug, Clone)]
pub struct Vegas {
    alpha: f64,
    beta: f64,
    gamma: f64,
    /// Least round trip, seconds as all below; infinite: not known.
    base: f64,
    /// By how much each ACK makes the window grow.
    step: f64,
    /// Whether slow start grows in this round trip.
    grows: bool,
    round_end: u32,
    round_began: u64,
    sum: f64,
    samples: u32,
    /// Smoothed round trip and its deviation, for the fine-grained timeout.
    smoothed: f64,
    deviation: f64,
    timeout: f64,
    /// ACKs after a retransmission at which the next segment is looked at too.
    worried: u32,
    /// Window to go back to after it was inflated.
    deflated: f64,
    changed_ns: Option<u64>,
    after_timeout: bool,
    /// A round without a measurement is none.
    careful: bool,
    /// When each segment from `first` on was last sent, and how often.
    sent: VecDeque<(u64, u16)>,
    first: u32,
}

impl Vegas {
    pub(super) fn new([alpha, beta, gamma]: [f64; 3], careful: bool) -> Self {
        Vegas {
            alpha,
            beta,
            gamma,
            base: f64::INFINITY,
            step: 0.0,
            grows: true,
            round_end: 0,
            round_began: 0,
            sum: 0.0,
            samples: 0,
            smoothed: 0.0,
            deviation: 0.0,
            timeout: f64::INFINITY,
            worried: 0,
            deflated: 0.0,
            changed_ns: None,
            after_timeout: false,
            careful,
            sent: VecDeque::new(),
            first: 0,
        }
    }

    pub(super) fn sent(&mut self, sequence: u32, una: u32, now: u64) {
        self.forget(una);
        let at = (sequence - self.first) as usize;
        if self.sent.len() <= at {
            self.sent.resize(at + 1, (now, 0));
        }
        let entry = &mut self.sent[at];
        *entry = (now, entry.1.saturating_add(1));
    }

    /// Removes the times of segments before `una`.
    fn forget(&mut self, una: u32) {
        while self.first < una {
            self.sent.pop_front();
            self.first += 1;
        }
    }

    /// When a segment was last sent, and how often it was.
    fn of(&self, sequence: u32) -> Option<(u64, u16)> {
        self.sent
            .get(sequence.checked_sub(self.first)? as usize)
            .copied()
            .filter(|(_, times)| *times > 0)
    }

    fn has_expired(&self, sequence: u32, now: u64) -> bool {
        self.of(sequence)
            .is_some_and(|(sent, _)| seconds(now - sent) >= self.timeout)
    }

    /// A round trip of a segment that was sent once.
    fn measure(&mut self, rtt: f64) {
        self.sum += rtt;
        self.samples += 1;
        if rtt <= 0.0 {
            return;
        }
        self.base = self.base.min(rtt);
        if self.smoothed == 0.0 {
            self.smoothed = rtt;
            self.deviation = rtt / 4.0;
        }
        let error = rtt - self.smoothed;
        self.smoothed += error / 8.0;
        self.deviation += (error.abs() - self.deviation) / 4.0;
        // 2 srtt / 2 + 4 dev / 2, and a sixteenth more, in the scaled terms of the source.
        self.timeout = (self.smoothed + 2.0 * self.deviation) * (1.0 + 1.0 / 16.0);
    }

    /// Returns the window.
    pub(super) fn on_timeout(&mut self, now: u64) -> f64 {
        self.after_timeout = true;
        self.deflated = 0.0;
        self.worried = 0;
        self.changed_ns = Some(now);
        LEAST
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Sender {
    pub(super) fn on_new_ack_vegas(&mut self, ack: &Ack, now: u64, config: &SenderConfig) {
        let mut vegas = self.vegas.take().expect("a sender of Vegas");
        if self.duplicates >= DUPLICATES
            && self.window.cwnd > vegas.deflated
            && vegas.deflated > 0.0
        {
            self.window.cwnd = vegas.deflated;
            // ssthresh serves slow start alone, and that is over.
            self.window.ssthresh = LEAST;
        }
        let latest = vegas.of(ack.next - 1);
        self.advance(ack, now, config);
        self.duplicates = 0;
        self.inflated = 0;
        self.recovering = false;
        self.rearm(now, config);
        if ack.next > vegas.round_end {
            self.once_per_round(&mut vegas, now);
        }
        if vegas.step >= 1.0 && self.window.cwnd >= self.window.ssthresh {
            vegas.step = 0.0;
        }
        // It does not grow beyond the application's use of it.
        let out = f64::from(self.nxt - self.una + 1);
        if vegas.step > 0.0 && self.window.cwnd - out <= 2.0 {
            self.window.cwnd += vegas.step;
        }
        if let Some((sent, 1)) = latest {
            vegas.measure(seconds(now - sent));
        }
        vegas.forget(self.una);
        if vegas.worried > 0 {
            vegas.worried -= 1;
            if self.una < self.max && vegas.has_expired(self.una, now) {
                self.duplicates = DUPLICATES;
                self.urgent = Some(self.una);
            } else {
                vegas.worried = 0;
            }
        }
        self.vegas = Some(vegas);
    }

    fn once_per_round(&mut self, vegas: &mut Vegas, now: u64) {
        let rtt = if vegas.samples > 0 {
            vegas.sum / f64::from(vegas.samples)
        } else if vegas.careful {
            0.0
        } else {
            seconds(now - vegas.round_began)
        };
        vegas.sum = 0.0;
        vegas.samples = 0;
        let in_round = self.nxt.saturating_sub(vegas.round_end);
        if rtt > 0.0 {
            if rtt < vegas.base || in_round <= 1 {
                vegas.base = rtt;
            }
            let actual = f64::from(in_round) / rtt;
            // With the segment of this ACK: the inflight at the beginning of the round trip.
            let out = f64::from(self.nxt - self.una + 1);
            let expected = out / vegas.base;
            let queued = ((expected - actual) * vegas.base + 0.5).floor();
            let window = &mut self.window;
            if window.cwnd < window.ssthresh {
                vegas.grows = !vegas.grows;
                vegas.step = 0.0;
                if vegas.grows && queued > vegas.gamma {
                    window.ssthresh = LEAST;
                    window.cwnd = (window.cwnd - window.cwnd / 8.0).max(LEAST);
                } else if vegas.grows {
                    vegas.step = 1.0;
                }
            } else if queued > vegas.beta {
                window.cwnd = (window.cwnd - 1.0).max(LEAST);
                vegas.step = 0.0;
            } else if queued < vegas.alpha {
                vegas.step = 1.0 / window.cwnd;
            } else {
                vegas.step = 0.0;
            }
        }
        vegas.round_end = self.nxt;
        vegas.round_began = now;
    }

    pub(super) fn on_duplicate_vegas(&mut self, now: u64, config: &SenderConfig) {
        let mut vegas = self.vegas.take().expect("a sender of Vegas");
        self.duplicates += 1;
        let expired = vegas.has_expired(self.una, now);
        if expired || self.duplicates == DUPLICATES {
            let (sent, times) = vegas.of(self.una).unwrap_or((now, 1));
            let mut window = (self.window.cwnd as u32).min(config.window);
            if !vegas.after_timeout || self.una > self.recover {
                vegas.after_timeout = false;
                self.totals.recoveries += 1;
                self.recover = self.max;
                vegas.worried = (self.nxt - self.una).min(2);
                vegas.timeout *= if times > 1 { 2.0 } else { 1.125 };
                if vegas.changed_ns.is_none_or(|changed| changed < sent) {
                    window = match window {
                        0..=3 => 2,
                        _ if times > 1 => window / 2,
                        _ => window - window / 4,
                    };
                }
                self.timed = None;
                self.arm(now, config);
                self.urgent = Some(self.una);
            }
            if times == 1 {
                self.duplicates = DUPLICATES;
            }
            vegas.deflated = f64::from(window);
            self.window.cwnd = f64::from(window + self.duplicates);
            vegas.changed_ns = Some(now);
        } else if self.duplicates > DUPLICATES {
            self.window.cwnd += 1.0;
        }
        self.vegas = Some(vegas);
    }
}
