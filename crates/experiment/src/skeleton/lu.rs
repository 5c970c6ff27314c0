// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LU: a 4 x 4 grid of ranks holds columns of the grid. Both triangular solves
//! run plane by plane as wavefronts over the ranks, a small message to each of
//! two neighbours per plane; the right-hand side exchanges two rows of halo with
//! each neighbour. After `LU/ssor.f`, `blts.f`, `buts.f`, `rhs.f`,
//! `exchange_1.f`, `exchange_3.f`, `proc_grid.f`, `neighbors.f`, `subdomain.f`.

use super::{Class, Collective, Part, Program, DOUBLE};

const SIDE: usize = 4;
/// Unknowns per point.
const UNKNOWNS: u64 = 5;

/// Operations per point, counted in the source (about 10 % uncertain); only
/// their proportions matter.
const SCALE: f64 = 5.0;
const JACOBIAN: f64 = 442.0;
const SOLVE: f64 = 287.0;
const UPDATE: f64 = 10.0;
const RHS_X: f64 = 170.0;
const RHS_Y_Z: f64 = 340.0;

const TAG_LOWER: u16 = 1;
const TAG_UPPER: u16 = 2;
const TAG_HALO_X: u16 = 3;
const TAG_HALO_Y: u16 = 4;

/// Points along an edge of the grid.
pub(super) fn edge(class: Class) -> u64 {
    match class {
        Class::A => 64,
        Class::B => 102,
    }
}

/// A rank's place along one direction.
struct Extent {
    before: Option<usize>,
    after: Option<usize>,
    /// Points that it holds, and those of them that are not on the boundary.
    points: u64,
    inner: u64,
}

fn extent(edge: u64, place: usize, rank: usize, stride: usize) -> Extent {
    let before = (place > 0).then(|| rank - stride);
    let after = (place + 1 < SIDE).then(|| rank + stride);
    let larger = edge % SIDE as u64;
    let points = edge / SIDE as u64 + u64::from((place as u64) < larger);
    let boundaries = u64::from(before.is_none()) + u64::from(after.is_none());
    Extent {
        before,
        after,
        points,
        inner: points - boundaries,
    }
}

fn halo(program: &mut Program, along: &Extent, bytes: u64, tag: u16) {
    for (to, from) in [(along.after, along.before), (along.before, along.after)] {
        if let Some(to) = to {
            program.send(to, bytes, tag);
        }
        if let Some(from) = from {
            program.receive(from, bytes, tag);
        }
    }
}

pub(super) fn build(program: &mut Program, class: Class, part: Part, rank: usize) {
    match part {
        Part::Before => {}
        Part::Iteration => iteration(program, class, rank),
        // The norms of the correction and of the residual, in the last iteration
        // only (inorm is itmax).
        Part::After => {
            for _ in 0..2 {
                program.collective(Collective::Allreduce {
                    bytes: UNKNOWNS * DOUBLE,
                });
            }
        }
    }
}

fn iteration(program: &mut Program, class: Class, rank: usize) {
    let edge = edge(class);
    // North and south (x) are the ranks before and after, west and east (y) are
    // four away.
    let x = extent(edge, rank % SIDE, rank, 1);
    let y = extent(edge, rank / SIDE, rank, SIDE);
    let planes = edge - 2;
    let plane = (x.inner * y.inner) as f64;
    let volume = plane * planes as f64;

    program.work(SCALE * volume);
    let sweeps = [
        (TAG_LOWER, [x.before, y.before], [x.after, y.after]),
        (TAG_UPPER, [x.after, y.after], [x.before, y.before]),
    ];
    // A row of unknowns along the boundary to the neighbour.
    let row = [y.inner, x.inner].map(|points| UNKNOWNS * points * DOUBLE);
    for (tag, from, to) in sweeps {
        for _ in 0..planes {
            program.work(JACOBIAN * plane);
            for (from, bytes) in from.into_iter().zip(row) {
                if let Some(from) = from {
                    program.receive(from, bytes, tag);
                }
            }
            program.work(SOLVE * plane);
            for (to, bytes) in to.into_iter().zip(row) {
                if let Some(to) = to {
                    program.send(to, bytes, tag);
                }
            }
        }
    }
    program.work(UPDATE * volume);
    let face = |points: u64| 2 * UNKNOWNS * points * edge * DOUBLE;
    halo(program, &x, face(y.points), TAG_HALO_X);
    program.work(RHS_X * volume);
    halo(program, &y, face(x.points), TAG_HALO_Y);
    program.work(RHS_Y_Z * volume);
}
