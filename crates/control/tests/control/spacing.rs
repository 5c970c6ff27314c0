// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The spacing law: clustered packet spacing, and a gap as a rate.

use paceline_abi::pl_policy;
use paceline_control::{pl_tcp, spacing_rate, PL_FRAME_BYTES, PL_NO_SSTHRESH};
use proptest::prelude::*;

fn tcp(cwnd: u32, ssthresh: u32) -> pl_tcp {
    pl_tcp {
        cwnd,
        ssthresh,
        srtt_us: 200_000,
        mss: 1448,
        ..Default::default()
    }
}

fn clustered() -> pl_policy {
    pl_policy {
        clustered: 1,
        ..Default::default()
    }
}

fn gap(gap_bytes: u16) -> pl_policy {
    pl_policy {
        line_rate_bps: 125_000_000,
        gap_bytes,
        ..Default::default()
    }
}

#[test]
fn a_slow_start_leaves_at_the_next_windows_rate() {
    let per_second = |segs: u64| Some(segs * 1448 * 5);
    let rate = |cwnd, ssthresh| spacing_rate(&clustered(), &tcp(cwnd, ssthresh), false);
    assert_eq!(rate(10, PL_NO_SSTHRESH), per_second(20));
    assert_eq!(rate(100, 150), per_second(150), "which ssthresh ends");
    assert_eq!(rate(150, 150), None, "slow start is over");
    assert_eq!(rate(151, 150), None);
    // A start that is paced has a law of its own.
    assert_eq!(
        spacing_rate(&clustered(), &tcp(10, PL_NO_SSTHRESH), true),
        None
    );
}

#[test]
fn a_gap_is_what_the_interface_would_leave() {
    let rate = |bytes| spacing_rate(&gap(bytes), &tcp(100, 50), false).expect("a pace");
    let frame = u64::from(1448 + PL_FRAME_BYTES);
    assert_eq!(rate(8), 125_000_000 * 1448 / (frame + 8));
    // With the paper's longest gap about 6 of 10 frames remain.
    assert_eq!(rate(1023), 125_000_000 * 1448 / (frame + 1023));
    assert!((58..62).contains(&(rate(1023) * 100 / rate(8))));
    assert_eq!(spacing_rate(&gap(0), &tcp(100, 50), false), None);
}

proptest! {
    /// Of both the slower; and neither is ever faster than the gap leaves.
    #[test]
    fn of_both_the_slower(cwnd in 1..100_000u32, ssthresh in 2..100_000u32, bytes in 8..=1023u16, started: bool) {
        let tcp = tcp(cwnd, ssthresh);
        let both = pl_policy { clustered: 1, ..gap(bytes) };
        let alone = [gap(bytes), clustered()].map(|policy| spacing_rate(&policy, &tcp, started));
        prop_assert_eq!(spacing_rate(&both, &tcp, started), alone.into_iter().flatten().min());
    }

    /// Any bits at all.
    #[test]
    fn any_bits(value in any::<[u32; 5]>(), line_rate_bps in 0..=125_000_000_000u64, gap_bytes in any::<u16>()) {
        let policy = pl_policy { line_rate_bps, gap_bytes, clustered: 1, ..Default::default() };
        let tcp = pl_tcp { cwnd: value[0], ssthresh: value[1], srtt_us: value[2], mss: value[3], ..Default::default() };
        spacing_rate(&policy, &tcp, value[4] & 1 == 1);
    }
}
