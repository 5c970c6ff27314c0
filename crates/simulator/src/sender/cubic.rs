// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CUBIC as Linux has it (net/ipv4/tcp_cubic.c): integer arithmetic in units of 1/1024 s,
//! fast convergence, the window of a Reno beside it (friendliness), and HyStart.

use super::control::{grow_one_per, slow_start, Controller, Sample, Window};
use crate::event::{MS, NEVER, US};

/// The window is multiplied by 717/1024 = 0.7 after a loss.
const BETA: u64 = 717;
const BETA_SCALE: u64 = 1024;
/// C = 0.4 in 1/1024 (bic_scale times 10).
const SCALE: u64 = 410;
/// Bits of the clock: 1/1024 s.
const CLOCK_BITS: u32 = 10;
/// Slope of the window of a Reno of the same loss rate: 8 (1024 + 717) / (1024 - 717) / 3.
const FRIENDLY_SCALE: u64 = 8 * (BETA_SCALE + BETA) / 3 / (BETA_SCALE - BETA);
/// HyStart: not below this window,
const HYSTART_LEAST: f64 = 16.0;
/// a train of ACKs with gaps up to this,
const TRAIN_GAP_NS: u64 = 2 * MS;
/// and this many samples of a round trip's delay.
const DELAY_SAMPLES: u32 = 8;

/// The state of one connection.
#[derive(Debug, Clone, Default)]
pub struct Cubic {
    /// Segments to be acknowledged until the window grows by one; 0: not reckoned yet.
    per: u32,
    collected: u32,
    last_max: u32,
    last_cwnd: u32,
    last_time: u64,
    origin: u32,
    /// 1/1024 s from the beginning of the epoch to the origin.
    k: u64,
    epoch_ns: u64,
    /// Segments acknowledged in this epoch, and the window of a Reno.
    acked: u32,
    reno: u32,
    delay_least_ns: u64,
    hystart: HyStart,
}

#[derive(Debug, Clone, Default)]
struct HyStart {
    begun: bool,
    found: bool,
    round_start: u64,
    round_end: u32,
    last_ack: u64,
    samples: u32,
    least_ns: u64,
}

/// The cube root, rounded down.
pub(crate) fn cube_root(value: u64) -> u64 {
    let (mut low, mut high) = (0u64, 2_642_245);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if middle * middle * middle <= value {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

impl Cubic {
    fn update(&mut self, sample: &Sample, cwnd: u32) {
        self.acked += sample.acked;
        // Not more often than every 1/32 s with an unchanged window.
        if self.last_cwnd == cwnd && sample.now - self.last_time <= 1_000 * MS / 32 && self.per != 0
        {
            return;
        }
        if !(self.epoch_ns != 0 && sample.now == self.last_time) {
            self.last_cwnd = cwnd;
            self.last_time = sample.now;
            self.reckon(sample, cwnd);
        }
        // Friendliness: not below Reno's window.
        let per = (u64::from(cwnd) * FRIENDLY_SCALE) >> 3;
        while per > 0 && u64::from(self.acked) > per {
            self.acked -= per as u32;
            self.reno += 1;
        }
        if self.reno > cwnd {
            let most = cwnd / (self.reno - cwnd);
            self.per = self.per.min(most);
        }
        // At most one segment for two acknowledged.
        self.per = self.per.max(2);
    }

    fn reckon(&mut self, sample: &Sample, cwnd: u32) {
        if self.epoch_ns == 0 {
            self.epoch_ns = sample.now.max(1);
            self.acked = sample.acked;
            self.reno = cwnd;
            if self.last_max <= cwnd {
                self.k = 0;
                self.origin = cwnd;
            } else {
                // K = cbrt((Wmax - cwnd) / C), in 1/1024 s: 2^40 / 410 of the difference.
                let factor = (1u64 << (10 + 3 * CLOCK_BITS)) / SCALE;
                self.k = cube_root(factor * u64::from(self.last_max - cwnd));
                self.origin = self.last_max;
            }
        }
        // One least round trip ahead.
        let t_ns = sample.now - self.epoch_ns + self.delay_least_ns;
        let t = ((t_ns / US) << CLOCK_BITS) / 1_000_000;
        let off = t.abs_diff(self.k);
        let delta = (SCALE * off.min(1 << 17).pow(3)) >> (10 + 3 * CLOCK_BITS);
        let target = if t < self.k {
            u64::from(self.origin).saturating_sub(delta)
        } else {
            u64::from(self.origin) + delta
        };
        self.per = match target.checked_sub(u64::from(cwnd)) {
            Some(more) if more > 0 => (u64::from(cwnd) / more) as u32,
            _ => cwnd.saturating_mul(100),
        };
        // Nothing known yet: 5 % per round trip.
        if self.last_max == 0 {
            self.per = self.per.min(20);
        }
    }

    fn begin_round(&mut self, now: u64, nxt: u32) {
        let hystart = &mut self.hystart;
        hystart.begun = true;
        hystart.round_start = now;
        hystart.last_ack = now;
        hystart.round_end = nxt;
        hystart.least_ns = NEVER;
        hystart.samples = 0;
    }

    /// Ends slow start before it loses: when the train of ACKs of a round is as long as
    /// half the least round trip, or the round trip grows by an eighth.
    fn hystart(&mut self, sample: &Sample, window: &mut Window) {
        if !self.hystart.begun || sample.una >= self.hystart.round_end {
            self.begin_round(sample.now, sample.nxt);
        }
        if self.hystart.found || window.cwnd < HYSTART_LEAST {
            return;
        }
        let least = self.delay_least_ns;
        let hystart = &mut self.hystart;
        if sample.now - hystart.last_ack <= TRAIN_GAP_NS {
            hystart.last_ack = sample.now;
            if least > 0 && sample.now - hystart.round_start > least / 2 {
                hystart.found = true;
            }
        }
        hystart.least_ns = hystart.least_ns.min(sample.rtt_ns);
        if hystart.samples < DELAY_SAMPLES {
            hystart.samples += 1;
        } else {
            let allowed = (least / 8).clamp(4 * MS, 16 * MS);
            if hystart.least_ns > least + allowed {
                hystart.found = true;
            }
        }
        if hystart.found {
            window.ssthresh = window.cwnd;
        }
    }
}

impl Controller for Cubic {
    fn on_ack(&mut self, sample: &Sample, window: &mut Window) {
        if sample.rtt_ns > 0 {
            if self.delay_least_ns == 0 || sample.rtt_ns < self.delay_least_ns {
                self.delay_least_ns = sample.rtt_ns;
            }
            if window.cwnd < window.ssthresh {
                self.hystart(sample, window);
            }
        }
        if !sample.limited {
            return;
        }
        let mut acked = sample.acked;
        if window.cwnd < window.ssthresh {
            acked = slow_start(window, acked);
            if acked == 0 {
                return;
            }
        }
        self.update(&Sample { acked, ..*sample }, window.cwnd as u32);
        grow_one_per(window, &mut self.collected, self.per, acked);
    }

    fn after_loss(&mut self, _now: u64, _basis: f64, window: &Window) -> f64 {
        let cwnd = window.cwnd as u32;
        self.epoch_ns = 0;
        // Fast convergence: a falling window leaves room for other flows.
        self.last_max = if cwnd < self.last_max {
            (u64::from(cwnd) * (BETA_SCALE + BETA) / (2 * BETA_SCALE)) as u32
        } else {
            cwnd
        };
        ((u64::from(cwnd) * BETA / BETA_SCALE) as f64).max(2.0)
    }

    fn on_timeout(&mut self) {
        *self = Cubic::default();
    }

    fn on_restart(&mut self, now: u64, idle_since: u64) {
        // Idle time does not count as time of growth.
        if self.epoch_ns != 0 && now > idle_since {
            self.epoch_ns = (self.epoch_ns + now - idle_since).min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SECOND;

    #[test]
    fn cube_roots() {
        for (value, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3)] {
            assert_eq!(cube_root(value), root);
        }
        assert_eq!(cube_root(u64::MAX), 2_642_245);
    }

    /// The window after each second, one ACK per segment, a round trip of 100 ms.
    fn grow(cubic: &mut Cubic, window: &mut Window, seconds: u64, from: u64) -> Vec<f64> {
        let mut now = from;
        let mut sizes = Vec::new();
        for _ in 0..seconds {
            for _ in 0..10 {
                let acks = window.cwnd as u64;
                for ack in 0..acks {
                    let sample = Sample {
                        now: now + ack * 100 * MS / acks,
                        acked: 1,
                        rtt_ns: 100 * MS,
                        srtt_ns: 100 * MS,
                        min_rtt_ns: 100 * MS,
                        una: 0,
                        nxt: 0,
                        limited: true,
                    };
                    cubic.on_ack(&sample, window);
                }
                now += 100 * MS;
            }
            sizes.push(window.cwnd);
        }
        sizes
    }

    #[test]
    fn the_window_is_back_at_its_maximum_after_k_seconds() {
        let mut cubic = Cubic::default();
        let mut window = Window {
            cwnd: 1000.0,
            ssthresh: 1000.0,
        };
        window.ssthresh = cubic.after_loss(0, 1000.0, &window);
        window.cwnd = window.ssthresh;
        assert_eq!(window.cwnd, 700.0);
        // K = cbrt(300 / 0.4) = 9.09 s; RFC 9438, equation 2.
        let sizes = grow(&mut cubic, &mut window, 14, SECOND);
        let after = |seconds: usize| sizes[seconds - 1];
        assert!((after(9) - 1000.0).abs() < 4.0, "{sizes:?}");
        let expected = 1000.0 + 0.4 * (14.0 - 9.09_f64).powi(3);
        assert!((after(14) - expected).abs() < 12.0, "{sizes:?}");
    }
}
