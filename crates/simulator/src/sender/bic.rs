// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BIC as Linux has it (net/ipv4/tcp_bic.c): binary search for the window at which
//! losses began.

use super::control::{grow_one_per, slow_start, Controller, Sample, Window};

/// Below this window it is Reno.
const LOW_WINDOW: u32 = 14;
/// Segments per round trip at most.
const MOST_INCREMENT: u32 = 16;
/// 819/1024 = 0.8 is left after a loss.
const BETA: u32 = 819;
const BETA_SCALE: u32 = 1024;
/// The search halves the distance by this,
const SEARCH: u32 = 4;
/// and needs so many round trips from its least step to the maximum.
const SMOOTH: u32 = 20;

/// The state of one connection.
#[derive(Debug, Clone, Default)]
pub struct Bic {
    per: u32,
    collected: u32,
    last_max: u32,
    last_cwnd: u32,
    last_time: u64,
    begun: bool,
}

impl Bic {
    fn update(&mut self, now: u64, cwnd: u32) {
        // Not more often than every 1/32 s with an unchanged window.
        if self.last_cwnd == cwnd && now - self.last_time <= 1_000_000_000 / 32 && self.per != 0 {
            return;
        }
        self.last_cwnd = cwnd;
        self.last_time = now;
        self.begun = true;
        if cwnd <= LOW_WINDOW {
            self.per = cwnd;
            return;
        }
        self.per = if cwnd < self.last_max {
            let distance = (self.last_max - cwnd) / SEARCH;
            if distance > MOST_INCREMENT {
                cwnd / MOST_INCREMENT
            } else if distance <= 1 {
                cwnd * SMOOTH / SEARCH
            } else {
                cwnd / distance
            }
        } else if cwnd < self.last_max + SEARCH {
            cwnd * SMOOTH / SEARCH
        } else if cwnd < self.last_max + MOST_INCREMENT * (SEARCH - 1) {
            cwnd * (SEARCH - 1) / (cwnd - self.last_max)
        } else {
            cwnd / MOST_INCREMENT
        };
        if self.last_max == 0 {
            self.per = self.per.min(20);
        }
        self.per = self.per.max(1);
    }
}

impl Controller for Bic {
    fn on_ack(&mut self, sample: &Sample, window: &mut Window) {
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
        self.update(sample.now, window.cwnd as u32);
        grow_one_per(window, &mut self.collected, self.per, acked);
    }

    fn after_loss(&mut self, _now: u64, _basis: f64, window: &Window) -> f64 {
        let cwnd = window.cwnd as u32;
        self.begun = false;
        self.last_max = if cwnd < self.last_max {
            (u64::from(cwnd) * u64::from(BETA_SCALE + BETA) / u64::from(2 * BETA_SCALE)) as u32
        } else {
            cwnd
        };
        if cwnd <= LOW_WINDOW {
            f64::from((cwnd / 2).max(2))
        } else {
            f64::from(((u64::from(cwnd) * u64::from(BETA) / u64::from(BETA_SCALE)) as u32).max(2))
        }
    }

    fn on_timeout(&mut self) {
        *self = Bic::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments by which a window of this size grows in a round trip.
    fn step(last_max: u32, cwnd: u32) -> f64 {
        let mut bic = Bic {
            last_max,
            ..Default::default()
        };
        bic.update(1_000_000_000, cwnd);
        f64::from(cwnd) / f64::from(bic.per)
    }

    #[test]
    fn the_search_halves_and_then_looks_beyond() {
        assert!((step(1000, 800) - 16.0).abs() < 0.1, "bounded");
        assert!((step(1000, 968) - 8.0).abs() < 0.1, "a quarter of 32");
        assert!((step(1000, 998) - 0.2).abs() < 0.01, "at the maximum");
        assert!((step(1000, 1030) - 10.0).abs() < 0.2, "and away from it");
        assert!((step(1000, 1100) - 16.0).abs() < 0.3);
        assert!((step(1000, 14) - 1.0).abs() < 0.01, "Reno");
    }
}
