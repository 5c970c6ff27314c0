// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of the ABI.

/// CLOCK_MONOTONIC in microseconds, the clock of the ABI.
pub(crate) fn monotonic_us() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .expect("CLOCK_MONOTONIC always exists");
    now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1_000
}
