// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Confidence intervals of medians: from order statistics, so without an assumption on
//! the distribution of the values.

/// Confidence level of an interval.
pub const CONFIDENCE: f64 = 0.95;
/// 0.5 to the power of more than this is no `f64` any more.
const MOST_EXACT: usize = 1_000;
/// Two-sided, of the normal distribution, for [`CONFIDENCE`].
const NORMAL_QUANTILE: f64 = 1.959_964;

/// An interval that holds the median of the distribution of `values` with at least
/// [`CONFIDENCE`]: the k-th least and k-th greatest value, where k is the largest with
/// P(Binomial(n, 1/2) < k) at most (1 - confidence) / 2. `None` if there are too few
/// values for any.
#[must_use]
pub fn of_median(values: &[f64]) -> Option<[f64; 2]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let rank = match count {
        0..=MOST_EXACT => exact_rank(count),
        // Within one of the exact rank from a few dozen on; one less is on the safe side.
        _ => (count as f64 / 2.0 - NORMAL_QUANTILE * (count as f64).sqrt() / 2.0) as usize - 1,
    };
    let least = rank.checked_sub(1)?;
    Some([sorted[least], sorted[count - rank]])
}

fn exact_rank(count: usize) -> usize {
    // P(Binomial(n, 1/2) = i), from i = 0 on.
    let mut probability = 0.5_f64.powi(count as i32);
    let mut below = probability;
    let mut rank = 0;
    while below <= (1.0 - CONFIDENCE) / 2.0 {
        rank += 1;
        probability *= (count - rank + 1) as f64 / rank as f64;
        below += probability;
    }
    rank
}

/// The interval of the ratio of two medians: `left` over `right`, which were measured
/// apart. Both intervals hold together at least as often as nine times in ten.
#[must_use]
pub fn of_ratio(left: &[f64], right: &[f64]) -> Option<[f64; 2]> {
    let ([least, greatest], [least_right, greatest_right]) = (of_median(left)?, of_median(right)?);
    (least_right > 0.0).then(|| [least / greatest_right, greatest / least_right])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: u32) -> Vec<f64> {
        (1..=count).map(f64::from).rev().collect()
    }

    #[test]
    fn intervals_of_the_median_are_those_of_the_tables() {
        // Ranks of the usual tables for 95 %: n = 6: 1, n = 9: 2, n = 21: 6.
        assert_eq!(of_median(&values(0)), None);
        assert_eq!(of_median(&values(5)), None);
        assert_eq!(of_median(&values(6)), Some([1.0, 6.0]));
        assert_eq!(of_median(&values(9)), Some([2.0, 8.0]));
        assert_eq!(of_median(&values(21)), Some([6.0, 16.0]));
    }

    #[test]
    fn many_values_are_as_few() {
        let share =
            |count: u32| of_median(&values(count)).map(|[least, _]| least / f64::from(count));
        let (exact, normal) = (share(1_000).unwrap(), share(1_001).unwrap());
        assert!((exact - normal).abs() < 0.003, "{exact} {normal}");
        assert!(share(100_000).is_some());
    }

    #[test]
    fn a_ratio_is_as_wide_as_both_together() {
        let ratio = of_ratio(&[10.0; 6], &[4.0, 5.0, 5.0, 5.0, 5.0, 8.0]);
        assert_eq!(ratio, Some([1.25, 2.5]));
        assert_eq!(of_ratio(&[10.0; 5], &[5.0; 6]), None);
    }
}
