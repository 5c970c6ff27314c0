// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CG: a 4 x 4 grid of ranks holds the matrix by blocks. A product with the
//! matrix is summed over the row of ranks and then exchanged with the transposed
//! rank; a dot product is summed over the row. All by pairs of point-to-point
//! messages, no MPI collective. After `CG/cg.f`, 4 x 4 by `sys/setparams.c`.

use super::{Class, Part, Program, DOUBLE, RANKS};

const SIDE: usize = 4;
/// Inner iterations, `cgitmax`.
const INNER: usize = 25;

const TAG_SUM: u16 = 1;
const TAG_ROW: u16 = 2;
const TAG_TRANSPOSE: u16 = 3;

/// Order of the matrix, and `nonzer`.
pub(super) fn size(class: Class) -> (u64, u64) {
    match class {
        Class::A => (14_000, 11),
        Class::B => (75_000, 13),
    }
}

/// Sum over the row: partners two columns away, then one (or the other way round).
fn over_row(program: &mut Program, rank: usize, bytes: u64, tag: u16, distances: [usize; 2]) {
    for distance in distances {
        program.send(rank ^ distance, bytes, tag);
        program.receive(rank ^ distance, bytes, tag);
    }
}

fn sum(program: &mut Program, rank: usize, numbers: u64) {
    over_row(program, rank, numbers * DOUBLE, TAG_SUM, [2, 1]);
}

pub(super) fn build(program: &mut Program, class: Class, part: Part, rank: usize) {
    if part != Part::Iteration {
        return;
    }
    let (order, nonzer) = size(class);
    let segment = order / SIDE as u64 * DOUBLE;
    // The benchmark's formula counts 2 operations per row for each of these.
    let per_row = |operations: f64| 2.0 * operations * order as f64 / RANKS as f64;
    let product = per_row((nonzer * (nonzer + 1)) as f64);
    let transposed = rank % SIDE * SIDE + rank / SIDE;

    let multiply = |program: &mut Program| {
        program.work(product);
        over_row(program, rank, segment, TAG_ROW, [1, 2]);
        // A rank on the diagonal exchanges with itself: no message on a network.
        if transposed != rank {
            program.send(transposed, segment, TAG_TRANSPOSE);
            program.receive(transposed, segment, TAG_TRANSPOSE);
        }
    };

    program.work(per_row(3.0));
    sum(program, rank, 1);
    for _ in 0..INNER {
        multiply(program);
        // p.q; then z, r and r.r; then p: 2, 6 and 2 operations per row.
        program.work(per_row(1.0));
        sum(program, rank, 1);
        program.work(per_row(3.0));
        sum(program, rank, 1);
        program.work(per_row(1.0));
    }
    // The residual's norm, and the norms for the next outer iteration.
    multiply(program);
    program.work(per_row(1.5));
    sum(program, rank, 1);
    program.work(per_row(1.0));
    sum(program, rank, 2);
    program.work(per_row(0.5));
}
