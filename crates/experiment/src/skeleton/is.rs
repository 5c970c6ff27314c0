// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IS: keys go to buckets, the sizes of the buckets are summed over all ranks,
//! every rank learns how many keys it gets from each, and gets them. After
//! `IS/is.c`.

use super::{Class, Collective, Part, Program, RANKS};

/// Bytes of a key and of a count.
const INT: u64 = 4;
const BUCKETS: u64 = 1024;
/// Keys for the partial verification travel with the sizes of the buckets.
const TEST_KEYS: u64 = 5;

/// Keys of all ranks.
pub(super) fn keys(class: Class) -> u64 {
    match class {
        Class::A => 1 << 23,
        Class::B => 1 << 25,
    }
}

/// Share of the keys below `x`, as a fraction of the largest key: a key is the
/// mean of four uniform numbers.
fn below(x: f64) -> f64 {
    let t = 4.0 * x;
    let mut sum = 0.0;
    for (k, binomial) in [1.0, -4.0, 6.0, -4.0].into_iter().enumerate() {
        let d = t - k as f64;
        if d > 0.0 {
            sum += binomial * d.powi(4);
        }
    }
    sum / 24.0
}

/// Bytes of keys that a rank sends to each rank. Whole buckets go to rank `j`
/// until the ranks up to `j` have their share; the keys of every rank have the
/// same distribution, so the sizes depend on the receiver only.
fn bytes_to(class: Class) -> Vec<u64> {
    let own = keys(class) / RANKS as u64;
    let mut bytes = Vec::with_capacity(RANKS);
    let mut sent = 0;
    for bucket in 1..=BUCKETS {
        let share = below(bucket as f64 / BUCKETS as f64);
        // The tolerance absorbs rounding where the share is exact: in the middle, at the end.
        if share * RANKS as f64 + 1e-9 >= (bytes.len() + 1) as f64 {
            let upto = (share * own as f64).round() as u64;
            bytes.push(INT * (upto - sent));
            sent = upto;
        }
    }
    bytes
}

pub(super) fn build(program: &mut Program, class: Class, part: Part) {
    if part != Part::Iteration {
        return;
    }
    // Three passes over the keys: count, put into buckets, and, after the
    // exchange, count by value.
    let pass = (keys(class) / RANKS as u64) as f64;
    program.work(2.0 * pass);
    program.collective(Collective::Allreduce {
        bytes: (BUCKETS + TEST_KEYS) * INT,
    });
    program.collective(Collective::Alltoall { bytes: INT });
    program.collective(Collective::Alltoallv {
        bytes_to: bytes_to(class),
    });
    program.work(pass);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distributed_as_the_mean_of_four_uniform_numbers() {
        // Irwin-Hall for n = 4: 1/24 below 1, symmetric.
        assert!((below(0.25) - 1.0 / 24.0).abs() < 1e-12);
        assert!((below(0.5) - 0.5).abs() < 1e-12);
        assert!((below(1.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn every_rank_gets_nearly_a_sixteenth() {
        for class in [Class::A, Class::B] {
            let own = INT * keys(class) / RANKS as u64;
            let bytes = bytes_to(class);
            assert_eq!(bytes.len(), RANKS);
            assert_eq!(bytes.iter().sum::<u64>(), own);
            // A bucket in the middle holds 1 key in 384, a rank's share is 1 in 16.
            let even = own / RANKS as u64;
            assert!(bytes.iter().all(|&b| b.abs_diff(even) * 384 <= even * 17));
        }
    }
}
