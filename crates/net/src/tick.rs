// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's tick, which bounds every TCP timer from below.

use std::time::Duration;

/// Length of one kernel tick (1/HZ).
///
/// Read from the resolution of the coarse clock, which is advanced once per
/// tick: it needs neither the kernel's configuration file nor a measurement.
pub fn tick() -> Duration {
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `resolution` is a valid timespec for the duration of the call.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut resolution) };
    assert_eq!(
        result, 0,
        "CLOCK_MONOTONIC_COARSE exists since Linux 2.6.32"
    );
    Duration::new(resolution.tv_sec as u64, resolution.tv_nsec as u32)
}

/// [`tick`] in whole microseconds, rounded down, as policies take it.
///
/// Down, because the kernel rounds microseconds up to ticks: rounded up at
/// HZ=300, two ticks would become three.
pub fn tick_us() -> u32 {
    tick().as_micros() as u32
}

/// The minimum RTO, and the minimum delay of an ACK, that the kernel accepts, in
/// microseconds: two ticks (TCP_TIMEOUT_MIN).
pub fn min_rto_us() -> u32 {
    tick_us() * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_is_one_of_the_kernels_choices() {
        let hz = (1.0 / tick().as_secs_f64()).round() as u32;
        assert!([100, 250, 300, 1000].contains(&hz), "HZ={hz}");
        assert!(min_rto_us() >= 1_900, "{}", min_rto_us());
    }
}
