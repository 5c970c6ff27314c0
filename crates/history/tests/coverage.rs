// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interval of a comparison holds the true difference as often as it says, also where
//! durations are skewed.

use paceline_abi::pl_trial;
use paceline_history::trial::{overall, trials, LEAST_BURSTS};
use paceline_history::{Arm, Trial};
use rand::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use rand_pcg::Pcg64;

fn burst(us: u64) -> pl_trial {
    let square = u128::from(us) * u128::from(us);
    pl_trial {
        bursts: 1,
        bytes: 1_000,
        sum_us: us,
        squares_low: square as u64,
        squares_high: (square >> 64) as u64,
        ..Default::default()
    }
}

fn arm(rng: &mut Pcg64, bursts: u64, median_us: f64) -> Arm {
    let durations = LogNormal::new(median_us.ln(), 0.5).unwrap();
    let mut arm = Arm::default();
    for _ in 0..bursts {
        arm.add(&burst(durations.sample(rng) as u64));
    }
    arm
}

#[test]
fn the_interval_holds_the_difference_in_19_of_20() {
    const EXPERIMENTS: usize = 2_000;
    let mut rng = Pcg64::seed_from_u64(1);
    // Of a log-normal: the median times e^(sigma^2 / 2).
    let truth = (9_000.0 - 12_000.0) * 0.125_f64.exp();
    let mut held = 0;
    for _ in 0..EXPERIMENTS {
        let trial = Trial {
            size: 3,
            policy: arm(&mut rng, 950, 9_000.0),
            held_out: arm(&mut rng, 50, 12_000.0),
        };
        let [least, most] = trial.compare().unwrap().interval_us;
        held += usize::from((least..=most).contains(&truth));
    }
    // Not too rarely, and not because it is far too wide.
    let share = held as f64 / EXPERIMENTS as f64;
    assert!((0.925..0.975).contains(&share), "{share}");
}

#[test]
fn too_few_bursts_have_no_interval() {
    let mut rng = Pcg64::seed_from_u64(2);
    let mut trial = Trial {
        size: 0,
        policy: arm(&mut rng, 1_000, 100.0),
        held_out: arm(&mut rng, LEAST_BURSTS - 1, 100.0),
    };
    assert_eq!(trial.compare(), None);
    assert_eq!(overall(&[trial]), None);
    trial.held_out.add(&burst(100));
    assert!(trial.compare().is_some());
    assert_eq!(overall(&[trial]), trial.compare());
    assert_eq!(overall(&[]), None);
}

#[test]
fn the_mix_of_sizes_is_no_difference() {
    // The held-out bursts happen to be the long ones more often.
    let same = |size, us, policy, held_out| {
        let arm = |bursts| {
            let mut arm = Arm::default();
            (0..bursts).for_each(|_| arm.add(&burst(us)));
            arm
        };
        Trial {
            size,
            policy: arm(policy),
            held_out: arm(held_out),
        }
    };
    let all = overall(&[same(0, 100, 900, 40), same(5, 90_000, 100, 60)]).unwrap();
    assert_eq!(all.difference_us, 0.0);
    assert!(!all.is_clear());
}

#[test]
fn counts_of_cpus_are_added_and_squares_beyond_64_bits_too() {
    let long = u64::from(u32::MAX);
    let counted = [
        (7, 0, burst(long)),
        (7, 0, burst(long)),
        (7, 1, burst(5)),
        (99, 0, burst(1)),
    ];
    let trials = trials(counted);
    assert_eq!(trials.len(), 1);
    assert_eq!((trials[0].policy.bursts, trials[0].held_out.bursts), (2, 1));
    let exact = 2.0 * (long as f64) * (long as f64);
    assert!((trials[0].policy.squares / exact - 1.0).abs() < 1e-9);
    let mut arm = Arm::default();
    arm.add(&pl_trial {
        squares_high: 1,
        ..Default::default()
    });
    assert_eq!(arm.squares, 2f64.powi(64));
}
