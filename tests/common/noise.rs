// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements on a clock and CPUs that other programs use, too.

/// Set in a guest, whose clock counts its instructions: nothing is late there.
pub const EXACT_CLOCK: &str = "PACELINE_TEST_EXACT_CLOCK";
/// What disturbs one measurement does not disturb each of these; a fault is in all of them.
const ATTEMPTS: usize = 5;

/// Whether nothing is late on this machine, so that counts are exact.
pub fn exact_clock() -> bool {
    std::env::var_os(EXACT_CLOCK).is_some()
}

/// Measures until it comes out as it should, and says why it did not; panics when it never
/// does. On an exact clock the first measurement decides.
pub fn measured(what: &str, mut measure: impl FnMut() -> Result<(), String>) {
    let attempts = if exact_clock() { 1 } else { ATTEMPTS };
    for attempt in 1..=attempts {
        match measure() {
            Ok(()) => return,
            Err(reason) => println!("{what}, measurement {attempt} of {attempts}: {reason}"),
        }
    }
    panic!("{what}: not in one of {attempts} measurements");
}
