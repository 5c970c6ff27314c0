// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The naive algorithms (kamezawa-2004, 5.4): one value of the windows becomes that of
//! all of them, or a limit to them. The paper found that larger values and lower limits
//! do harm.

use std::time::Duration;

use super::{Algorithm, Limits, Stream};

/// The value that is computed from the windows of all streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// The largest window.
    Largest,
    /// The mean of those windows that are not below the average. The paper only says
    /// "larger".
    Larger,
    /// The mean.
    Average,
    /// The mean, each window weighted by itself: bytes of the fast streams count for
    /// more. The paper does not say how it weighted.
    WeightedAverage,
}

/// The use of the value for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Both limits: the window itself.
    Both,
    /// The upper limit.
    Upper,
    /// The lower limit.
    Lower,
}

/// One of the naive algorithms.
#[derive(Debug, Clone)]
pub struct Naive {
    /// Which value.
    pub value: Value,
    /// Applied how.
    pub side: Side,
}

impl Value {
    /// Of windows in segments, none of which is 0; `None` if there are none.
    fn of(self, windows: &[f64]) -> Option<f64> {
        let mean = |windows: &[f64]| windows.iter().sum::<f64>() / windows.len() as f64;
        if windows.is_empty() {
            return None;
        }
        let average = mean(windows);
        Some(match self {
            Self::Largest => windows.iter().copied().fold(0.0, f64::max),
            Self::Larger => {
                // Sums of floats round: the average itself must not fall out.
                let least = average * (1.0 - 1e-9);
                let larger: Vec<f64> = windows.iter().copied().filter(|w| *w >= least).collect();
                mean(&larger)
            }
            Self::Average => average,
            Self::WeightedAverage => {
                windows.iter().map(|w| w * w).sum::<f64>() / windows.iter().sum::<f64>()
            }
        })
    }
}

impl Algorithm for Naive {
    fn round(&mut self, _now: Duration, streams: &[Stream]) -> Vec<Limits> {
        // A stream with nothing in flight has no window to report.
        let windows: Vec<f64> = streams
            .iter()
            .filter(|stream| stream.sample.inflight_segs > 0)
            .map(|stream| f64::from(stream.sample.inflight_segs))
            .collect();
        let limits = match (self.value.of(&windows), self.side) {
            (None, _) => Limits::FREE,
            (Some(value), Side::Both) => Limits::exact(value),
            (Some(value), Side::Upper) => Limits::upper(value),
            (Some(value), Side::Lower) => Limits::lower(value),
        };
        vec![limits; streams.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_four_windows() {
        let windows = [10.0, 20.0, 30.0, 100.0];
        assert_eq!(Value::Largest.of(&windows), Some(100.0));
        assert_eq!(Value::Larger.of(&windows), Some(100.0));
        assert_eq!(Value::Average.of(&windows), Some(40.0));
        assert_eq!(Value::WeightedAverage.of(&windows), Some(71.25));
        assert_eq!(Value::Average.of(&[]), None);
    }

    #[test]
    fn larger_of_equal_windows_is_theirs() {
        assert_eq!(
            Value::Larger.of(&[0.1; 3]).map(|v| (v * 10.0).round()),
            Some(1.0)
        );
    }
}
