// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a flow has the bottleneck's rate and keeps it.

/// The share of the bottleneck's rate that counts as having it.
const ENOUGH: f64 = 0.9;
/// Round trips in a row over each of which it must be had.
const ROUND_TRIPS: usize = 5;

/// Seconds until the link carries at least 90 % of `rate_bps` in each of the next five
/// round trips; all of the time where it never does. `bytes_per_ms` counts framing, as
/// the rate does. A round trip shorter than a millisecond counts as one.
pub fn held_from_s(bytes_per_ms: &[u64], rate_bps: u64, rtt_ns: u64) -> f64 {
    let window = (rtt_ns / 1_000_000).max(1) as usize;
    let enough = (rate_bps as f64 / 8e3 * window as f64 * ENOUGH) as u64;
    let held = |from: usize| {
        bytes_per_ms[from..from + ROUND_TRIPS * window]
            .chunks(window)
            .all(|round_trip| round_trip.iter().sum::<u64>() >= enough)
    };
    let last = bytes_per_ms.len().saturating_sub(ROUND_TRIPS * window);
    let from = (0..last).find(|&from| held(from));
    from.unwrap_or(bytes_per_ms.len()) as f64 / 1e3
}

/// The least that [`held_from_s`] can be: the first byte is under way for one way, and
/// the round trip that begins before it comes may lack a tenth.
pub fn bound_s(rtt_ns: u64) -> f64 {
    rtt_ns as f64 / 1e9 * (0.5 - (1.0 - ENOUGH))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 Mbit/s are 1,000 bytes a millisecond; round trips of 2 ms.
    fn seconds(bytes_per_ms: &[u64]) -> f64 {
        held_from_s(bytes_per_ms, 8_000_000, 2_000_000)
    }

    #[test]
    fn counts_from_where_it_stays() {
        let mut bins = vec![1_000; 40];
        assert_eq!(seconds(&bins), 0.0);
        bins[..5].fill(0);
        assert_eq!(seconds(&bins), 0.005);
        // Up for less than five round trips, and down once more.
        bins[14] = 0;
        assert_eq!(seconds(&bins), 0.015);
    }

    #[test]
    fn within_a_round_trip_it_may_waver() {
        let bins: Vec<u64> = (0..40)
            .map(|bin| if bin % 2 == 0 { 1_800 } else { 100 })
            .collect();
        assert_eq!(seconds(&bins), 0.0);
    }

    #[test]
    fn never_is_all_of_the_time() {
        assert_eq!(seconds(&[500; 30]), 0.03);
        assert_eq!(seconds(&[1_000; 3]), 0.003);
        assert_eq!(seconds(&[]), 0.0);
    }
}
