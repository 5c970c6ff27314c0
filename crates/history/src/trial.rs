// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bursts under the policy compared with bursts that were held out.
//!
//! The kernel side draws for each burst whether Paceline's laws may touch it. So both arms
//! have the same paths, hours and neighbours, and the difference of their mean durations is
//! the policy's effect on a burst, given that the job's other bursts had the policy. The
//! interval is Welch's (unequal variances). A mean is what a program waits for in all, and a
//! rare timeout counts with its whole length; where such are rare, the interval needs many
//! bursts, so fewer than [`LEAST_BURSTS`] in an arm give none.
//!
//! Two limits, which no arithmetic removes: a held-out burst begins with the window that
//! earlier bursts left, and the size of a burst may depend on how fast it goes, where a
//! program writes on while it lasts.

use paceline_abi::{pl_trial, PL_SIZES};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// How often the interval is meant to hold the difference.
pub const CONFIDENCE: f64 = 0.95;
/// Bursts of each arm that an interval needs: durations are skewed, and the mean of fewer is
/// far from normal.
pub const LEAST_BURSTS: u64 = 30;

/// Bursts of one size class in one arm.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// How many have ended
    pub bursts: u64,
    /// Their payload, bytes
    pub bytes: u64,
    /// Segments of them that were sent again
    pub retransmitted_segments: u64,
    /// Sum of their durations, microseconds
    pub sum_us: u64,
    /// Sum of the squares of their durations, square microseconds
    pub squares: f64,
}

impl Arm {
    /// Adds the counts of one CPU.
    pub fn add(&mut self, counted: &pl_trial) {
        self.bursts += counted.bursts;
        self.bytes += counted.bytes;
        self.retransmitted_segments += counted.retransmitted_segs;
        self.sum_us += counted.sum_us;
        self.squares += counted.squares_high as f64 * 2f64.powi(64) + counted.squares_low as f64;
    }

    /// Mean duration, microseconds; none without a burst.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        (self.bursts > 0).then(|| self.sum_us as f64 / self.bursts as f64)
    }

    /// Variance of the mean, square microseconds. For two bursts or more.
    fn variance_of_mean(&self) -> f64 {
        let n = self.bursts as f64;
        let mean = self.sum_us as f64 / n;
        ((self.squares - n * mean * mean) / (n - 1.0)).max(0.0) / n
    }
}

/// Both arms of one size class.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Size class, 0 to 7
    pub size: usize,
    /// Bursts that the policy's laws sent
    pub policy: Arm,
    /// Bursts that were left to the base algorithm
    pub held_out: Arm,
}

/// How much longer a burst takes with the policy than without; negative: it is faster.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Difference of the mean durations, microseconds
    pub difference_us: f64,
    /// Interval that holds the difference with 95 % confidence, microseconds
    pub interval_us: [f64; 2],
    /// The difference as a share of the held-out mean, percent
    pub percent: f64,
}

impl Comparison {
    /// Whether the interval excludes that there is no difference.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.interval_us[0] > 0.0 || self.interval_us[1] < 0.0
    }
}

impl Trial {
    /// The difference; none where an arm has fewer than [`LEAST_BURSTS`].
    #[must_use]
    pub fn compare(&self) -> Option<Comparison> {
        compare(&[(1.0, *self)])
    }
}

/// The difference over all size classes that have enough bursts in both arms, each with the
/// weight of its bursts: so it is not one of their mix. None where no class has.
#[must_use]
pub fn overall(trials: &[Trial]) -> Option<Comparison> {
    let enough = trials.iter().filter(|trial| trial.compare().is_some());
    let bursts = |trial: &Trial| (trial.policy.bursts + trial.held_out.bursts) as f64;
    let all: f64 = enough.clone().map(bursts).sum();
    let weighted: Vec<_> = enough.map(|trial| (bursts(trial) / all, *trial)).collect();
    compare(&weighted)
}

fn compare(weighted: &[(f64, Trial)]) -> Option<Comparison> {
    let (mut difference, mut held_out, mut variance, mut parts) = (0.0, 0.0, 0.0, 0.0);
    for (
        weight,
        Trial {
            policy,
            held_out: held,
            ..
        },
    ) in weighted
    {
        if policy.bursts.min(held.bursts) < LEAST_BURSTS {
            return None;
        }
        let (with, without) = (policy.mean_us()?, held.mean_us()?);
        difference += weight * (with - without);
        held_out += weight * without;
        for arm in [policy, held] {
            let part = weight * weight * arm.variance_of_mean();
            variance += part;
            parts += part * part / (arm.bursts - 1) as f64;
        }
    }
    if weighted.is_empty() {
        return None;
    }
    let half = match parts {
        // All durations are the same.
        0.0 => 0.0,
        // Welch-Satterthwaite.
        _ => {
            let freedom = variance * variance / parts;
            let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
            t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * variance.sqrt()
        }
    };
    Some(Comparison {
        difference_us: difference,
        interval_us: [difference - half, difference + half],
        percent: 100.0 * difference / held_out.max(1.0),
    })
}

/// From the kernel side's entries, `(size, held, counted)`; those of several CPUs are added.
#[must_use]
pub fn trials(counted: impl IntoIterator<Item = (u32, u32, pl_trial)>) -> Vec<Trial> {
    let mut all: Vec<Trial> = (0..PL_SIZES as usize)
        .map(|size| Trial {
            size,
            ..Trial::default()
        })
        .collect();
    for (size, held, counted) in counted {
        if let Some(trial) = all.get_mut(size as usize) {
            match held {
                0 => trial.policy.add(&counted),
                _ => trial.held_out.add(&counted),
            }
        }
    }
    all.retain(|trial| trial.policy.bursts + trial.held_out.bursts > 0);
    all
}
