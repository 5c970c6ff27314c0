// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many rounds the live backend needs. In each round every variant runs once.

use std::time::Duration;

use paceline_report::precision::{self, Ratio};
use paceline_report::results::Results;

/// Rounds at least: an odd number, so that one run of each variant is the median.
const LEAST: u32 = 3;
/// Maximum number of rounds: more would hardly narrow an interval.
const MOST: u32 = 101;

/// When there have been enough rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Enough {
    /// Half of the interval of each ratio, relative to the ratio.
    pub precision: f64,
    /// No round begins that would end later than this.
    pub budget: Duration,
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct SoFar {
    /// Rounds that are done.
    pub done: u32,
    /// Rounds of these that an earlier run had done.
    pub before: u32,
    /// Time that the others took.
    pub gone: Duration,
    /// Half of the widest interval, relative; infinite if there are too few runs for one,
    /// none if there is nothing to compare.
    pub half_width: Option<f64>,
}

impl Default for Enough {
    fn default() -> Self {
        Enough {
            precision: 0.05,
            budget: Duration::from_secs(30 * 60),
        }
    }
}

impl Enough {
    /// Adds to the results their precision after so many rounds.
    pub fn add_precision(&self, rounds: u32, least_sure: &Ratio, results: &mut Results) {
        let Ratio {
            variant,
            metric,
            half_width,
        } = least_sure;
        let than = precision::baseline(results).unwrap_or_default().to_owned();
        let rounds = match rounds {
            1 => "1 round".to_owned(),
            rounds => format!("{rounds} rounds"),
        };
        if half_width <= &self.precision {
            results.notes.push(format!(
                "{rounds}: each ratio to {than} is known to within {:.1} %",
                half_width * 100.0
            ));
            return;
        }
        let known = match half_width.is_finite() {
            true => format!("is known to within {:.1} % only", half_width * 100.0),
            false => "has too few runs to be sure of anything".to_owned(),
        };
        results.warnings.push(format!(
            "{rounds}: the ratio of {variant} to {than} in {metric} {known}; a larger --budget allows for more"
        ));
    }

    /// Estimate of the total number of rounds: those that are done, if no other one is to
    /// begin.
    pub fn rounds(&self, so_far: &SoFar) -> u32 {
        let done = so_far.done;
        let Some(half_width) = so_far.half_width.filter(|_| done >= LEAST) else {
            return done.max(LEAST);
        };
        if half_width <= self.precision {
            return done;
        }
        // An interval is as wide as one over the square root of the number of runs.
        let wanted = match half_width.is_finite() {
            true => f64::from(done) * (half_width / self.precision).powi(2),
            false => 2.0 * f64::from(done),
        };
        let wanted = (wanted.ceil() as u32).max(done + 1).min(MOST.max(done));
        let own = done - so_far.before;
        let affordable = match own {
            // The duration of a round is not known.
            0 => 1,
            _ => {
                let each = so_far.gone.as_secs_f64() / f64::from(own);
                let left = self.budget.saturating_sub(so_far.gone).as_secs_f64();
                (left / each.max(f64::MIN_POSITIVE)) as u32
            }
        };
        wanted.min(done.saturating_add(affordable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    fn rounds(done: u32, half_width: Option<f64>) -> u32 {
        Enough::default().rounds(&SoFar {
            done,
            before: 0,
            gone: done * MINUTE,
            half_width,
        })
    }

    #[test]
    fn three_at_least_however_sure() {
        assert_eq!(rounds(0, Some(f64::INFINITY)), 3);
        assert_eq!(rounds(2, Some(0.0)), 3);
        assert_eq!(rounds(3, None), 3);
        assert_eq!(rounds(3, Some(0.05)), 3);
    }

    #[test]
    fn an_interval_twice_as_wide_takes_four_times_the_runs() {
        assert_eq!(rounds(3, Some(0.1)), 12);
        assert_eq!(rounds(5, Some(f64::INFINITY)), 10);
        assert_eq!(rounds(7, Some(0.0501)), 8);
    }

    #[test]
    fn the_budget_ends_it() {
        assert_eq!(rounds(20, Some(1.0)), 30);
        assert_eq!(rounds(30, Some(1.0)), 30);
        let slow = |before| {
            Enough::default().rounds(&SoFar {
                done: 4,
                before,
                gone: 20 * MINUTE,
                half_width: Some(1.0),
            })
        };
        assert_eq!(slow(0), 6);
        assert_eq!(slow(3), 4, "one took twenty minutes");
        assert_eq!(slow(4), 5, "nobody knows how long one takes");
    }

    #[test]
    fn there_is_an_end() {
        let quick = SoFar {
            done: 101,
            before: 0,
            gone: MINUTE,
            half_width: Some(1.0),
        };
        assert_eq!(Enough::default().rounds(&quick), 101);
    }
}
