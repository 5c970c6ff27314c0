// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Round trips and the timeout that follows from them.

use super::config::{Estimator, RtoConfig};

/// RTT estimate. With a tick, the arithmetic is that of BSD and ns-2:
/// whole ticks, 3 and 2 bits behind the point. Without, that of RFC 6298.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rtt {
    /// Ticks times 8, or nanoseconds; 0: not known.
    smoothed: u64,
    /// Ticks times 4, or nanoseconds.
    variance: u64,
    /// Nanoseconds.
    least: u64,
    /// 0 stands for 1.
    backoff: u32,
}

impl Rtt {
    /// Before anything is measured.
    pub fn new(config: &RtoConfig) -> Self {
        let smoothed = match config.estimator {
            Estimator::Constant(ns) if config.tick_ns > 0 => ns.div_ceil(config.tick_ns) << 3,
            Estimator::Constant(ns) => ns,
            _ => 0,
        };
        Rtt {
            smoothed,
            ..Self::default()
        }
    }

    /// A round trip of `ns` that began at `sent`.
    pub fn sample(&mut self, ns: u64, sent: u64, config: &RtoConfig) {
        if self.least == 0 || ns < self.least {
            self.least = ns.max(1);
        }
        if matches!(config.estimator, Estimator::Constant(_)) {
            return;
        }
        if let Some(into) = sent.checked_rem(config.tick_ns) {
            // How often the clock ticked in between.
            let ticks = (into + ns).checked_div(config.tick_ns).unwrap_or(0).max(1);
            match config.estimator {
                Estimator::Shifted(bits) => self.smoothed = ticks << (bits + 3),
                _ => self.sample_ticks(ticks as i64),
            }
        } else if let Estimator::Shifted(bits) = config.estimator {
            self.smoothed = ns.max(1) << bits;
        } else if self.smoothed == 0 {
            self.smoothed = ns.max(1);
            self.variance = ns / 2;
        } else {
            let error = self.smoothed.abs_diff(ns);
            self.variance = (3 * self.variance + error) / 4;
            self.smoothed = ((7 * self.smoothed + ns) / 8).max(1);
        }
    }

    fn sample_ticks(&mut self, ticks: i64) {
        if self.smoothed == 0 {
            self.smoothed = (ticks << 3) as u64;
            self.variance = (ticks << 1) as u64;
            return;
        }
        let error = ticks - (self.smoothed >> 3) as i64;
        self.smoothed = (self.smoothed as i64 + error).max(1) as u64;
        let error = error.abs() - (self.variance >> 2) as i64;
        self.variance = (self.variance as i64 + error).max(1) as u64;
    }

    /// A valid measurement ends the doubling (Karn).
    pub fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// A timeout doubles the next one.
    pub fn back_off(&mut self, config: &RtoConfig) {
        self.backoff = (self.backoff.max(1) * 2).min(config.most_backoff);
        let estimates = config.estimator == Estimator::Smoothed;
        if config.tick_ns > 0 && self.backoff > 8 && estimates {
            // So far off, the estimate is worth nothing: BSD starts it again.
            self.variance += self.smoothed >> 3;
            self.smoothed = 0;
        }
    }

    /// The timeout now, nanoseconds.
    pub fn timeout_ns(&self, config: &RtoConfig) -> u64 {
        if config.constant_ns > 0 {
            return config.constant_ns;
        }
        let backoff = u64::from(self.backoff.max(1));
        if config.tick_ns > 0 {
            let ns = if self.smoothed == 0 && self.variance == 0 {
                config.initial_ns
            } else {
                ((self.smoothed + (self.variance << 3)) >> 3) * config.tick_ns
            };
            let least = config.floor_ns.max(2 * config.tick_ns);
            return ns
                .saturating_mul(backoff)
                .max(least)
                .min(config.bound_ns.max(least));
        }
        let ns = if self.smoothed == 0 {
            config.initial_ns
        } else if config.floor_on_variance {
            self.smoothed + (4 * self.variance).max(config.floor_ns)
        } else {
            (self.smoothed + 4 * self.variance).max(config.floor_ns)
        };
        (ns.saturating_mul(backoff)).min(config.bound_ns)
    }

    /// Smoothed round trip, nanoseconds; 0: not known.
    pub fn smoothed_ns(&self, config: &RtoConfig) -> u64 {
        if config.tick_ns > 0 {
            (self.smoothed >> 3) * config.tick_ns
        } else {
            self.smoothed
        }
    }

    /// The least, nanoseconds; 0: not known.
    pub fn least_ns(&self) -> u64 {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MS;
    use crate::sender::config::{Algorithm, SenderConfig, Stack};

    #[test]
    fn the_coarse_clock_of_ns2_knows_100_ms_as_one_tick() {
        let rto = SenderConfig::of(Algorithm::Reno, Stack::Ns2).rto;
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout_ns(&rto), 3_000 * MS);
        for _ in 0..100 {
            rtt.sample(101 * MS, 0, &rto);
        }
        // One tick; and the first variance, half a tick, which integer arithmetic does not
        // let decay: four times that are two more.
        assert_eq!(rtt.timeout_ns(&rto), 300 * MS);
    }

    #[test]
    fn the_first_sample_gives_three_times_itself() {
        let rto = SenderConfig::of(Algorithm::Reno, Stack::Rfc).rto;
        let mut rtt = Rtt::default();
        rtt.sample(500 * MS, 0, &rto);
        assert_eq!(rtt.timeout_ns(&rto), 1_500 * MS);
        rtt.back_off(&rto);
        assert_eq!(rtt.timeout_ns(&rto), 3_000 * MS);
        rtt.reset_backoff();
        assert_eq!(rtt.timeout_ns(&rto), 1_500 * MS);
    }

    #[test]
    fn linux_puts_its_floor_on_the_variance() {
        let rto = SenderConfig::of(Algorithm::Cubic, Stack::Linux).rto;
        let mut rtt = Rtt::default();
        for _ in 0..200 {
            rtt.sample(100 * MS, 0, &rto);
        }
        assert_eq!(rtt.timeout_ns(&rto), 300 * MS);
    }
}
