// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How well a run tells its variants from each other.

use paceline_report::precision::{baseline, least_sure};

use crate::comparison::results;

const LEVEL: [f64; 6] = [2.0; 6];
const WIDE: [f64; 6] = [1.0, 2.0, 2.0, 2.0, 2.0, 3.0];

#[test]
fn the_widest_interval_counts() {
    let found = results(
        "completion_s/1MB",
        &[("reno", LEVEL), ("cubic", LEVEL), ("bbr", WIDE)],
    );
    assert_eq!(baseline(&found), Some("cubic"));
    let ratio = least_sure(&found).unwrap();
    assert_eq!(
        (&*ratio.variant, &*ratio.metric),
        ("bbr", "completion_s/1MB")
    );
    // From 0.5 to 1.5.
    assert_eq!(ratio.half_width, 0.5);
}

#[test]
fn metrics_without_a_bound_are_not_compared() {
    let mut found = results("completion_s/1MB", &[("reno", LEVEL), ("bbr", WIDE)]);
    assert_eq!(baseline(&found), Some("reno"));
    found.bounds.clear();
    assert_eq!(least_sure(&found), None);
}

#[test]
fn too_few_runs_have_no_finite_confidence() {
    let mut found = results("completion_s/1MB", &[("cubic", LEVEL), ("bbr", LEVEL)]);
    found.variants["bbr"]["completion_s/1MB"].runs.truncate(5);
    assert_eq!(least_sure(&found).unwrap().half_width, f64::INFINITY);
}

#[test]
fn one_variant_has_nothing_to_be_compared_with() {
    assert_eq!(
        least_sure(&results("completion_s/1MB", &[("cubic", LEVEL)])),
        None
    );
}
