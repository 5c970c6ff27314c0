// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MG: a 2 x 2 x 4 grid of ranks and eight levels, 256^3 down to 2^3. Every
//! operator is followed by an exchange of halos, one direction after the other,
//! periodic; on the coarsest level, with fewer planes than ranks in z, half of
//! the ranks rest, and get their part of the next level from their neighbours.
//! After `MG/mg.f` (`setup`, `mg3P`, `comm3`, `comm3_ex`).

use super::{Class, Collective, Part, Program, DOUBLE};

/// Ranks in x, y and z.
const GRID: [usize; 3] = [2, 2, 4];
/// The finest level: 2^8 points along an edge, in both classes.
pub(super) const LEVELS: usize = 8;

/// Operations per result, from the comments on the operators in the source.
const RESIDUAL: f64 = 15.0;
const SMOOTH: f64 = 16.0;
const RESTRICT: f64 = 24.0;
const PROLONG: f64 = 20.0;
/// The norm of the residual.
const NORM: f64 = 2.0;

const TAG_HALO: u16 = 1;
const TAG_EXPAND: u16 = 7;

/// Role of a rank on one level.
struct Level {
    /// Own points with a layer of halo on either side; 2 if it has none.
    size: [u64; 3],
    resting: bool,
    /// The next and the previous rank in each direction.
    neighbours: [(usize, usize); 3],
    /// Whether it sends its part of this level to resting neighbours, or receives it.
    gives: [bool; 3],
    takes: [bool; 3],
}

/// The levels of a rank: `[1]` is the coarsest, `[LEVELS]` the finest.
fn levels(rank: usize) -> Vec<Level> {
    let place = [rank % 2, rank / 2 % 2, rank / 4];
    let mut levels: Vec<Level> = Vec::new();
    let mut stride = [1; 3];
    for level in (1..=LEVELS).rev() {
        let edge = 1_usize << level;
        let mut size = [0; 3];
        let mut neighbours = [(0, 0); 3];
        for axis in 0..3 {
            let ranks = GRID[axis];
            // Points of the rank that is `ahead` places further.
            let points = |ahead: usize| {
                ((place[axis] + ahead + 1) * edge / ranks - (place[axis] + ahead) * edge / ranks)
                    as u64
            };
            let (own, other) = (points(0), points(stride[axis]));
            size[axis] = own + 2;
            if own == 0 || other == 0 {
                stride[axis] *= 2;
            }
            if let Some(finer) = levels.last_mut() {
                finer.gives[axis] = own == 1 && other == 0;
                finer.takes[axis] = own == 0 && other == 1;
            }
            let at = |place_there: usize| {
                let mut there = place;
                there[axis] = place_there % ranks;
                there[0] + 2 * (there[1] + 2 * there[2])
            };
            neighbours[axis] = (
                at(place[axis] + stride[axis]),
                at(place[axis] + ranks - stride[axis]),
            );
        }
        levels.push(Level {
            size,
            resting: size.contains(&2),
            neighbours,
            gives: [false; 3],
            takes: [false; 3],
        });
    }
    // From the coarsest, with a place holder so that a level is its own index.
    levels.push(Level {
        size: [2; 3],
        resting: true,
        neighbours: [(0, 0); 3],
        gives: [false; 3],
        takes: [false; 3],
    });
    levels.reverse();
    levels
}

impl Level {
    fn points(&self) -> f64 {
        self.size.iter().map(|&n| (n - 2) as f64).product()
    }

    /// One layer without, with part of, with all of the halo: what came in along
    /// one axis goes out along the next.
    fn layer(&self, axis: usize) -> u64 {
        let [x, y, z] = self.size;
        let numbers = match axis {
            0 => (y - 2) * (z - 2),
            1 => x * (z - 2),
            _ => x * y,
        };
        numbers * DOUBLE
    }

    fn exchange(&self, program: &mut Program) {
        if self.resting {
            return;
        }
        for (axis, &(next, previous)) in self.neighbours.iter().enumerate() {
            let bytes = self.layer(axis);
            let tag = TAG_HALO + 2 * axis as u16;
            program.send(next, bytes, tag);
            program.send(previous, bytes, tag + 1);
            // With two ranks along the axis both come from the same one: in order.
            program.receive(previous, bytes, tag);
            program.receive(next, bytes, tag + 1);
        }
    }

    /// Working ranks pass their values on to those that rested on the level below.
    fn expand(&self, program: &mut Program) {
        for axis in 0..3 {
            let (next, previous) = self.neighbours[axis];
            let [x, y, z] = self.size;
            let layer = [y * z, x * z, x * y][axis] * DOUBLE;
            let tag = TAG_EXPAND + axis as u16;
            if self.takes[axis] {
                program.receive(next, layer, tag);
                program.receive(previous, 2 * layer, tag);
            }
            if self.gives[axis] {
                program.send(next, 2 * layer, tag);
                program.send(previous, layer, tag);
            }
        }
    }
}

pub(super) fn build(program: &mut Program, _class: Class, part: Part, rank: usize) {
    let levels = levels(rank);
    let finest = &levels[LEVELS];
    match part {
        Part::Before => {
            program.work(RESIDUAL * finest.points());
            finest.exchange(program);
            norm(program, finest);
        }
        Part::Iteration => {
            v_cycle(program, &levels);
            program.work(RESIDUAL * finest.points());
            finest.exchange(program);
        }
        Part::After => norm(program, finest),
    }
}

fn norm(program: &mut Program, level: &Level) {
    program.work(NORM * level.points());
    for _ in 0..2 {
        program.collective(Collective::Allreduce { bytes: DOUBLE });
    }
}

fn v_cycle(program: &mut Program, levels: &[Level]) {
    for coarse in (1..LEVELS).rev() {
        program.work(RESTRICT * levels[coarse].points());
        levels[coarse].exchange(program);
    }
    program.work(SMOOTH * levels[1].points());
    levels[1].exchange(program);
    for fine in 2..=LEVELS {
        let level = &levels[fine];
        program.work(PROLONG * levels[fine - 1].points());
        level.expand(program);
        program.work(RESIDUAL * level.points());
        level.exchange(program);
        program.work(SMOOTH * level.points());
        level.exchange(program);
    }
}
