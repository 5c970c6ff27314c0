// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's clocks, in whole nanoseconds.

use std::time::Duration;

use nix::time::{clock_gettime, clock_nanosleep, ClockId, ClockNanosleepFlags};

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC exists");
    Duration::from(time).as_nanos() as u64
}

/// The same in whole microseconds, the clock of the kernel side.
pub fn monotonic_us() -> u64 {
    now_ns() / 1_000
}

/// Sleeps until `time_ns` of CLOCK_MONOTONIC.
pub fn sleep_until(time_ns: u64) {
    let time = Duration::from_nanos(time_ns).into();
    // EINTR: sleep on; nothing else can go wrong with a valid clock and time.
    while clock_nanosleep(
        ClockId::CLOCK_MONOTONIC,
        ClockNanosleepFlags::TIMER_ABSTIME,
        &time,
    )
    .is_err()
    {}
}

/// Nanoseconds of CLOCK_REALTIME, the clock of captured packets.
pub fn realtime_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_REALTIME).expect("CLOCK_REALTIME exists");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
