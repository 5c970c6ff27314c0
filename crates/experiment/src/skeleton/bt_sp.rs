// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BT and SP: multi-partition. The grid is cut into 4 x 4 x 4 cells and every
//! rank holds four of them, one in each plane of cells of every direction, so in
//! each line solve all ranks work all the time. Per iteration: two layers of all
//! faces to six neighbours at once, then in x, y and z a forward elimination over
//! the rank's four cells and a back substitution, each step one message to the
//! next rank. After `copy_faces.f`, `x_solve.f`, `y_solve.f`, `z_solve.f`,
//! `make_set.f`, `define.f`, `initialize.f` of `BT` and `SP`.

use super::{Benchmark, Class, Part, Program, DOUBLE};

/// Cells along an edge, and cells of a rank.
const SIDE: usize = 4;
/// Unknowns per point.
const UNKNOWNS: u64 = 5;
/// Layers of a face that are sent.
const LAYERS: u64 = 2;

const TAG_FACES: u16 = 1;
/// Tags of the solves: this and twice the direction, plus one on the way back.
const TAG_SOLVE: u16 = 2;

/// Points along an edge of the grid.
pub(super) fn edge(class: Class) -> u64 {
    match class {
        Class::A => 64,
        Class::B => 102,
    }
}

/// Operations per point, counted in the source (about 10 % uncertain); only
/// their proportions matter.
struct Work {
    /// Right-hand side, and SP's `txinvr`.
    rhs: f64,
    /// Before the forward message is waited for: SP builds its left-hand side.
    lhs: f64,
    forward: f64,
    back: f64,
    /// SP's block-diagonal inversion in each direction, of the cell that was
    /// finished before.
    invert: [f64; 3],
    add: f64,
}

const BT: Work = Work {
    rhs: 455.0,
    lhs: 0.0,
    forward: 958.0,
    back: 50.0,
    invert: [0.0; 3],
    add: 5.0,
};

const SP: Work = Work {
    rhs: 485.0,
    lhs: 35.0,
    forward: 58.0,
    back: 20.0,
    invert: [12.0, 12.0, 30.0],
    add: 5.0,
};

/// A cell: its place in x, y and z, from 0.
type Cell = [usize; 3];

fn cells(rank: usize) -> [Cell; SIDE] {
    let (i, j) = (rank % SIDE, rank / SIDE);
    std::array::from_fn(|k| [(i + k) % SIDE, (j + SIDE - k) % SIDE, k])
}

/// The ranks that hold the next and the previous cell in each direction.
fn neighbours(rank: usize) -> [(usize, usize); 3] {
    let (i, j) = (rank % SIDE, rank / SIDE);
    let at = |di: usize, dj: usize| (i + di) % SIDE + SIDE * ((j + dj) % SIDE);
    let back = SIDE - 1;
    [
        (at(1, 0), at(back, 0)),
        (at(0, 1), at(0, back)),
        (at(back, 1), at(1, back)),
    ]
}

/// Points of a cell along one direction.
fn length(class: Class, place: usize) -> u64 {
    let edge = edge(class);
    edge / SIDE as u64 + u64::from((place as u64) < edge % SIDE as u64)
}

fn volume(class: Class, cell: Cell) -> f64 {
    cell.iter()
        .map(|&place| length(class, place) as f64)
        .product()
}

/// The two directions across.
fn across(direction: usize) -> [usize; 2] {
    match direction {
        0 => [1, 2],
        1 => [0, 2],
        _ => [0, 1],
    }
}

/// Numbers per point of a face in a solve, forward and back.
///
/// BT sends blocks of a whole buffer (5 x 5 matrix and vector, then the vector),
/// sized for the largest cell and one more; SP sends the inner points of the
/// cell: two rows of 11 numbers, then of 5.
fn solve_bytes(benchmark: Benchmark, class: Class, cell: Cell, direction: usize) -> (u64, u64) {
    if benchmark == Benchmark::Bt {
        let largest = edge(class) / SIDE as u64 + 1;
        let face = largest * largest * DOUBLE;
        let block = UNKNOWNS * UNKNOWNS + UNKNOWNS;
        (face * block, face * UNKNOWNS)
    } else {
        let inner = |d: usize| {
            let boundary = u64::from(cell[d] == 0) + u64::from(cell[d] == SIDE - 1);
            length(class, cell[d]) - boundary
        };
        let [a, b] = across(direction);
        let face = inner(a) * inner(b) * DOUBLE;
        (22 * face, 10 * face)
    }
}

/// Bytes of all faces of a rank's cells towards the next cells, or the previous
/// ones: a cell at the grid's boundary has none.
fn face_bytes(class: Class, rank: usize, direction: usize, next: bool) -> u64 {
    let boundary = if next { SIDE - 1 } else { 0 };
    let [a, b] = across(direction);
    cells(rank)
        .iter()
        .filter(|cell| cell[direction] != boundary)
        .map(|cell| length(class, cell[a]) * length(class, cell[b]) * UNKNOWNS * LAYERS * DOUBLE)
        .sum()
}

pub(super) fn build(
    program: &mut Program,
    benchmark: Benchmark,
    class: Class,
    part: Part,
    rank: usize,
) {
    if part != Part::Iteration {
        return;
    }
    let work = if benchmark == Benchmark::Bt { &BT } else { &SP };
    let all: f64 = cells(rank).iter().map(|&cell| volume(class, cell)).sum();

    for (direction, (next, previous)) in neighbours(rank).into_iter().enumerate() {
        program.send(next, face_bytes(class, rank, direction, true), TAG_FACES);
        program.send(
            previous,
            face_bytes(class, rank, direction, false),
            TAG_FACES,
        );
    }
    for (direction, (next, previous)) in neighbours(rank).into_iter().enumerate() {
        program.receive(next, face_bytes(class, next, direction, false), TAG_FACES);
        program.receive(
            previous,
            face_bytes(class, previous, direction, true),
            TAG_FACES,
        );
    }
    program.work(work.rhs * all);
    for direction in 0..3 {
        solve(program, work, benchmark, class, rank, direction);
    }
    program.work(work.add * all);
}

fn solve(
    program: &mut Program,
    work: &Work,
    benchmark: Benchmark,
    class: Class,
    rank: usize,
    direction: usize,
) {
    let (next, previous) = neighbours(rank)[direction];
    let tag = TAG_SOLVE + 2 * direction as u16;
    let mut line = cells(rank);
    line.sort_by_key(|cell| cell[direction]);
    // Cells next to each other in a direction have the same face, so a message's
    // size is the same seen from either side.
    let bytes = |cell: Cell| solve_bytes(benchmark, class, cell, direction);

    for (stage, &cell) in line.iter().enumerate() {
        program.work(work.lhs * volume(class, cell));
        if stage > 0 {
            program.receive(previous, bytes(cell).0, tag);
        }
        program.work(work.forward * volume(class, cell));
        if stage < SIDE - 1 {
            program.send(next, bytes(cell).0, tag);
        }
    }
    for (stage, &cell) in line.iter().enumerate().rev() {
        if stage < SIDE - 1 {
            program.work(work.invert[direction] * volume(class, line[stage + 1]));
            program.receive(next, bytes(cell).1, tag + 1);
        }
        program.work(work.back * volume(class, cell));
        if stage > 0 {
            program.send(previous, bytes(cell).1, tag + 1);
        }
    }
    program.work(work.invert[direction] * volume(class, line[0]));
}
