// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random numbers that a seed determines, the same on every machine.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): one word of state, enough
/// for start offsets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// The time to the next event of a Poisson process whose events are `mean_ns` apart.
    pub fn exponential_ns(&mut self, mean_ns: f64) -> u64 {
        // 53 bits, from 2^-53 to 1: the logarithm is finite.
        let uniform = ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-uniform.ln() * mean_ns) as u64
    }

    /// A number below `limit`; 0 if the limit is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of the product: its bias is below limit / 2^64.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_gives_its_published_sequence() {
        // First outputs for seed 1234567, from the reference implementation.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn events_of_a_poisson_process_are_as_far_apart_on_average_as_asked() {
        let mut random = Random::new(7);
        let apart: Vec<u64> = (0..10_000).map(|_| random.exponential_ns(1e6)).collect();
        let mean = apart.iter().sum::<u64>() / 10_000;
        assert!((970_000..1_030_000).contains(&mean), "{mean}");
        // Their standard deviation is their mean: of independent events.
        let beyond = apart.iter().filter(|gap| **gap > 1_000_000).count();
        assert!((3500..3850).contains(&beyond), "{beyond}");
    }

    #[test]
    fn stays_below_the_limit() {
        let mut random = Random::new(7);
        assert!((0..1000).all(|_| random.below(10) < 10));
        assert_eq!(random.below(0), 0);
    }
}
