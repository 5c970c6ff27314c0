// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FT: slabs (`layout_1D`, since 16 ranks are not more than the planes), so an
//! FFT needs one transpose, an all-to-all of all the data; then a checksum of
//! one complex number to rank 0. After `FT/ft.f`.

use super::{Class, Collective, Part, Program, RANKS};

/// Bytes of a double-precision complex number.
const COMPLEX: u64 = 16;
/// Operations per point to evolve the spectrum, and to set a point up: the terms
/// of the benchmark's formula that are not the FFT's.
const EVOLVE: f64 = 5.23518;
const SET_UP: f64 = 14.8157;

/// Points in x, y and z.
pub(super) fn grid(class: Class) -> [u64; 3] {
    match class {
        Class::A => [256, 256, 128],
        Class::B => [512, 256, 256],
    }
}

pub(super) fn build(program: &mut Program, class: Class, part: Part) {
    let [nx, ny, nz] = grid(class);
    let points = nx * ny * nz;
    let local = (points / RANKS as u64) as f64;
    let fft = |n: u64| 5.0 * local * f64::from(n.ilog2());
    let transpose = Collective::Alltoall {
        bytes: points * COMPLEX / (RANKS * RANKS) as u64,
    };
    match part {
        Part::Before => {
            program.work(SET_UP * local + fft(nx) + fft(ny));
            program.collective(transpose);
            program.work(fft(nz));
        }
        Part::Iteration => {
            program.work(EVOLVE * local + fft(nz));
            program.collective(transpose);
            program.work(fft(ny) + fft(nx));
            program.collective(Collective::Reduce {
                root: 0,
                bytes: COMPLEX,
            });
        }
        Part::After => {}
    }
}
