// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How bursty traffic is: from counts of packets in windows of equal length.
//!
//! The coefficient of variation (c.o.v.) is the standard deviation of the counts over
//! their mean; feng-2000, 2.2, takes it of the packets that arrive at a gateway in each
//! round-trip propagation delay. Independent sources give a Poisson process, whose
//! c.o.v. is 1/sqrt(mean): the smoothest traffic without a plan. The ratio of both says
//! how much burstier it is.
//!
//! The index of dispersion is the variance over the mean: the square of that ratio.
//! A Poisson process has 1 at every length of the windows; where it grows with the
//! length, bursts are longer than the windows.

/// Count, mean and variance of values that come one by one, by Welford's method, which
/// loses no digits where the mean is large against the deviation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// Sum of the squares of the distances from the mean.
    squares: f64,
}

impl Moments {
    /// One more value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// How many values there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 if there were none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Variance of their distribution, without bias (n - 1). `None` of fewer than two.
    #[must_use]
    pub fn variance(&self) -> Option<f64> {
        (self.count > 1).then(|| self.squares / (self.count - 1) as f64)
    }

    /// Standard deviation over mean. `None` of fewer than two values, or of nothing but
    /// zeros.
    #[must_use]
    pub fn coefficient_of_variation(&self) -> Option<f64> {
        let deviation = self.variance()?.sqrt();
        (self.mean > 0.0).then(|| deviation / self.mean)
    }

    /// The c.o.v. that a Poisson process of this mean has: 1/sqrt(mean). `None` if the
    /// mean is not above 0.
    #[must_use]
    pub fn poisson_reference(&self) -> Option<f64> {
        (self.mean > 0.0).then(|| 1.0 / self.mean.sqrt())
    }

    /// The c.o.v. over the Poisson reference.
    #[must_use]
    pub fn ratio_to_poisson(&self) -> Option<f64> {
        Some(self.coefficient_of_variation()? / self.poisson_reference()?)
    }

    /// Variance over mean.
    #[must_use]
    pub fn index_of_dispersion(&self) -> Option<f64> {
        let variance = self.variance()?;
        (self.mean > 0.0).then(|| variance / self.mean)
    }
}

/// Moments of the counts at windows of 1, 2, 4, 8 ... times the length, all from one
/// pass over the counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scales {
    levels: Vec<Level>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Level {
    moments: Moments,
    /// The first half of a window of the next level.
    half: Option<u64>,
}

impl Scales {
    /// The next window's count.
    pub fn add(&mut self, count: u64) {
        let mut count = count;
        for at in 0.. {
            if at == self.levels.len() {
                self.levels.push(Level::default());
            }
            let level = &mut self.levels[at];
            level.moments.add(count as f64);
            match level.half.take() {
                None => {
                    level.half = Some(count);
                    return;
                }
                Some(half) => count += half,
            }
        }
    }

    /// A window is missing: no longer window reaches over it.
    pub fn gap(&mut self) {
        for level in &mut self.levels {
            level.half = None;
        }
    }

    /// Of the windows as they came.
    #[must_use]
    pub fn base(&self) -> Moments {
        self.levels
            .first()
            .map_or_else(Moments::default, |level| level.moments)
    }

    /// Of windows of 1, 2, 4 ... times the length, as far as there are two.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Moments)> + '_ {
        self.levels
            .iter()
            .enumerate()
            .map(|(at, level)| (1 << at, level.moments))
            .take_while(|(_, moments)| moments.count() > 1)
    }
}

impl Extend<u64> for Scales {
    fn extend<T: IntoIterator<Item = u64>>(&mut self, counts: T) {
        counts.into_iter().for_each(|count| self.add(count));
    }
}

impl FromIterator<u64> for Scales {
    fn from_iter<T: IntoIterator<Item = u64>>(counts: T) -> Self {
        let mut scales = Scales::default();
        scales.extend(counts);
        scales
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moments(values: &[f64]) -> Moments {
        let mut moments = Moments::default();
        values.iter().for_each(|value| moments.add(*value));
        moments
    }

    #[test]
    fn a_small_sample_by_hand() {
        // Mean 5, squares 4 + 1 + 1 + 4.
        let moments = moments(&[3.0, 4.0, 6.0, 7.0]);
        assert_eq!(moments.mean(), 5.0);
        assert!((moments.variance().unwrap() - 10.0 / 3.0).abs() < 1e-12);
        assert!((moments.index_of_dispersion().unwrap() - 2.0 / 3.0).abs() < 1e-12);
        let ratio = moments.ratio_to_poisson().unwrap();
        assert!((ratio * ratio - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn too_few_values_have_no_moments() {
        assert_eq!(moments(&[]).variance(), None);
        assert_eq!(moments(&[4.0]).coefficient_of_variation(), None);
        assert_eq!(moments(&[0.0, 0.0]).coefficient_of_variation(), None);
        assert_eq!(moments(&[0.0, 0.0]).poisson_reference(), None);
        assert_eq!(Scales::default().base().count(), 0);
        assert_eq!(Scales::default().iter().count(), 0);
    }

    #[test]
    fn a_missing_window_is_in_no_longer_one() {
        let mut scales: Scales = [1, 2, 3].into_iter().collect();
        scales.gap();
        scales.extend([5, 6, 7, 8]);
        let sums: Vec<(u64, u64, f64)> = scales
            .iter()
            .map(|(times, moments)| (times, moments.count(), moments.mean()))
            .collect();
        // 1+2, 5+6, 7+8; and 5+6+7+8 alone is one too few.
        assert_eq!(sums, [(1, 7, 32.0 / 7.0), (2, 3, 29.0 / 3.0)]);
    }

    proptest! {
        #[test]
        fn moments_match_their_definition(values in prop::collection::vec(0.0..1e6_f64, 2..200)) {
            let count = values.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let variance =
                values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            let found = moments(&values);
            prop_assert!((found.mean() - mean).abs() <= 1e-9 * mean.abs().max(1.0));
            prop_assert!((found.variance().unwrap() - variance).abs() <= 1e-9 * variance.max(1.0));
        }

        #[test]
        fn the_order_does_not_matter_and_a_constant_deviates_by_nothing(
            mut values in prop::collection::vec(0_u64..1000, 2..100), constant in 1_u64..1_000_000_000_000
        ) {
            let before = values.iter().copied().collect::<Scales>().base();
            values.reverse();
            let after = values.iter().copied().collect::<Scales>().base();
            prop_assert!((before.variance().unwrap() - after.variance().unwrap()).abs() < 1e-6);
            let flat = values.iter().map(|_| constant).collect::<Scales>().base();
            prop_assert_eq!(flat.coefficient_of_variation(), Some(0.0));
        }

        #[test]
        fn the_ratio_is_the_root_of_the_index(values in prop::collection::vec(1_u64..10_000, 2..100)) {
            let moments = values.into_iter().collect::<Scales>().base();
            let (ratio, index) =
                (moments.ratio_to_poisson().unwrap(), moments.index_of_dispersion().unwrap());
            prop_assert!((ratio * ratio - index).abs() <= 1e-9 * index.max(1.0));
        }

        #[test]
        fn longer_windows_are_sums_of_shorter_ones(values in prop::collection::vec(0_u64..10_000, 2..300)) {
            let scales: Scales = values.iter().copied().collect();
            for (times, found) in scales.iter() {
                let sums: Vec<f64> = values
                    .chunks_exact(times as usize)
                    .map(|chunk| chunk.iter().sum::<u64>() as f64)
                    .collect();
                let wanted = moments(&sums);
                prop_assert_eq!(found.count(), wanted.count());
                prop_assert!((found.mean() - wanted.mean()).abs() <= 1e-9 * wanted.mean().max(1.0));
                let (found, wanted) = (found.variance().unwrap(), wanted.variance().unwrap());
                prop_assert!((found - wanted).abs() <= 1e-9 * wanted.max(1.0));
            }
        }
    }
}
