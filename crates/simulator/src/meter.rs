// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How bursty arrivals are: packets per window of time.

/// Counts arrivals per window.
#[derive(Debug, Clone)]
pub struct Meter {
    window_ns: u64,
    ends_ns: u64,
    current: u32,
    counts: Vec<u32>,
}

impl Meter {
    /// Windows of `window_ns` from the beginning on.
    pub fn new(window_ns: u64) -> Self {
        Meter {
            window_ns,
            ends_ns: window_ns,
            current: 0,
            counts: Vec::new(),
        }
    }

    /// Something arrives at `now`, not earlier than the last one did.
    #[inline]
    pub fn note(&mut self, now: u64) {
        if now >= self.ends_ns {
            self.finish(now);
        }
        self.current += 1;
    }

    /// All windows that end by `now` are over.
    pub fn finish(&mut self, now: u64) {
        while now >= self.ends_ns {
            self.counts.push(std::mem::take(&mut self.current));
            self.ends_ns += self.window_ns;
        }
    }

    /// Arrivals in each window that is over.
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }
}

/// Arrivals per window over a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Windows.
    pub windows: usize,
    /// Mean of the arrivals.
    pub mean: f64,
    /// Variance (of a sample: n - 1).
    pub variance: f64,
}

impl Spread {
    /// Of windows of `merged` counts each, without a partial one at the end. `None` with
    /// fewer than two windows or no arrival.
    pub fn of(counts: &[u32], merged: usize) -> Option<Self> {
        let sums = counts
            .chunks_exact(merged)
            .map(|chunk| chunk.iter().map(|&count| u64::from(count)).sum::<u64>());
        let (mut windows, mut sum, mut squares) = (0u64, 0u64, 0u128);
        for count in sums {
            windows += 1;
            sum += count;
            squares += u128::from(count) * u128::from(count);
        }
        if windows < 2 || sum == 0 {
            return None;
        }
        // Whole numbers up to here: no order of summing can change the result.
        let scaled = squares * u128::from(windows) - u128::from(sum) * u128::from(sum);
        let (n, sum) = (windows as f64, sum as f64);
        Some(Spread {
            windows: windows as usize,
            mean: sum / n,
            variance: scaled as f64 / (n * (n - 1.0)),
        })
    }

    /// Coefficient of variation: standard deviation over mean.
    pub fn cov(&self) -> f64 {
        self.variance.sqrt() / self.mean
    }

    /// The same of a Poisson process with this mean.
    pub fn poisson_cov(&self) -> f64 {
        1.0 / self.mean.sqrt()
    }

    /// Index of dispersion of counts: variance over mean, 1 for a Poisson process.
    pub fn dispersion(&self) -> f64 {
        self.variance / self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted_from_the_beginning() {
        let mut meter = Meter::new(10);
        for time in [0, 9, 10, 35, 35] {
            meter.note(time);
        }
        meter.finish(49);
        assert_eq!(meter.counts(), [2, 1, 0, 2]);
        let spread = Spread::of(meter.counts(), 1).expect("four windows");
        assert_eq!(spread.mean, 1.25);
        assert!((spread.variance - 11.0 / 12.0).abs() < 1e-12);
        let pairs = Spread::of(meter.counts(), 2).expect("two windows");
        assert_eq!((pairs.windows, pairs.mean, pairs.variance), (2, 2.5, 0.5));
        assert_eq!(Spread::of(meter.counts(), 4), None);
    }
}
