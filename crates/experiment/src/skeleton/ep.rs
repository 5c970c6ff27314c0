// SPDX-License-Identifier: Apache-2.0 OR MIT
//! EP: every rank makes its random numbers, then three sums over all ranks.
//! After `EP/ep.f`.

use super::{Class, Collective, Part, Program, DOUBLE, RANKS};

/// Annuli that are counted, `nq`.
const ANNULI: u64 = 10;

/// Random numbers of the whole run: 2^(m+1).
pub(super) fn numbers(class: Class) -> f64 {
    match class {
        Class::A => (1_u64 << 29) as f64,
        Class::B => (1_u64 << 31) as f64,
    }
}

pub(super) fn build(program: &mut Program, class: Class, part: Part) {
    if part != Part::Iteration {
        return;
    }
    program.work(numbers(class) / RANKS as f64);
    // The two sums and the counts. The time's maximum comes after the clock stops.
    for bytes in [DOUBLE, DOUBLE, ANNULI * DOUBLE] {
        program.collective(Collective::Allreduce { bytes });
    }
}
