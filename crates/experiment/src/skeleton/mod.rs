// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communication skeletons of the NAS Parallel Benchmarks (MPI version) for 16
//! ranks and classes A and B: the messages of each rank, their sizes and order, and
//! the computing time in between. Pure data: no socket, no clock.
//!
//! Source: the text of NPB 3.3 (MPI); each submodule names the files that it
//! follows. `docs/npb-skeletons.md` has the derivation, the simplifications, and the
//! differences from the paper's NPB 2.3.
//!
//! How to run one, on one connection per pair of ranks:
//!
//! - [`Op::Send`] hands the bytes to the socket and goes on. It never waits for
//!   the receiver (eager), so a send buffer holds at least one iteration's bytes.
//! - [`Op::Receive`] waits for the next message from that rank. Messages of a
//!   pair match in order; tags are for people. A receive that the benchmark
//!   posts early (`MPI_Irecv`) stands where the benchmark waits for it: with
//!   eager sends nothing else is observable.
//! - [`Op::Collective`] is expanded by [`Collective::expand`], so that a runner
//!   can mark the phase around it and then needs only sends and receives.
//! - [`Op::Compute`] sleeps.
//!
//! Bytes are the benchmark's payload: a message library's envelope is not in them.

mod bt_sp;
mod cg;
mod collective;
pub mod compute;
mod ep;
mod ft;
mod is;
mod lu;
mod mg;
pub mod replay;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

pub use collective::Collective;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The number of ranks that the skeletons are derived for.
pub const RANKS: usize = 16;

/// Bytes of a double-precision number.
const DOUBLE: u64 = 8;

/// A benchmark of the suite.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Benchmark {
    /// Block tridiagonal solver, multi-partition.
    Bt,
    /// Conjugate gradient.
    Cg,
    /// Embarrassingly parallel: random numbers, almost no communication.
    Ep,
    /// 3-D fast Fourier transform: all-to-all transposes.
    Ft,
    /// Integer sort: all-to-all of keys.
    Is,
    /// Lower-upper symmetric Gauss-Seidel: pipelined wavefronts of small messages.
    Lu,
    /// Multigrid: halos on every level.
    Mg,
    /// Scalar pentadiagonal solver, multi-partition.
    Sp,
}

impl Benchmark {
    /// All of them, in the order of the paper's Table 2.
    pub const ALL: [Self; 8] = [
        Self::Bt,
        Self::Cg,
        Self::Ep,
        Self::Ft,
        Self::Is,
        Self::Lu,
        Self::Mg,
        Self::Sp,
    ];

    /// The name as NPB writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bt => "BT",
            Self::Cg => "CG",
            Self::Ep => "EP",
            Self::Ft => "FT",
            Self::Is => "IS",
            Self::Lu => "LU",
            Self::Mg => "MG",
            Self::Sp => "SP",
        }
    }
}

/// A problem size of the suite.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Class {
    /// Class A.
    A,
    /// Class B, the paper's.
    B,
}

/// One step of a rank's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Compute, that is sleep.
    Compute {
        /// How long.
        nanoseconds: u64,
    },
    /// Send eagerly: returns when the bytes are handed over.
    Send {
        /// Receiving rank.
        to: usize,
        /// Payload.
        bytes: u64,
        /// The step of the benchmark; not needed for matching.
        tag: u16,
    },
    /// Wait for the next message from a rank.
    Receive {
        /// Sending rank.
        from: usize,
        /// Payload, the same as the matching send's.
        bytes: u64,
        /// The matching send's tag.
        tag: u16,
    },
    /// A collective over all ranks.
    Collective(Collective),
}

/// Why there is no such skeleton.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Not [`RANKS`] ranks.
    Ranks(usize),
    /// Not a benchmark of the suite.
    Benchmark(String),
    /// Not class A or B.
    Class(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranks(ranks) => write!(f, "skeletons exist for {RANKS} ranks, not {ranks}"),
            Self::Benchmark(name) => write!(
                f,
                "unknown benchmark {name:?}: use one of BT, CG, EP, FT, IS, LU, MG, SP"
            ),
            Self::Class(name) => write!(f, "unknown class {name:?}: use A or B"),
        }
    }
}

impl std::error::Error for Error {}

impl FromStr for Benchmark {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|benchmark| benchmark.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| Error::Benchmark(name.to_owned()))
    }
}

impl FromStr for Class {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "A" | "a" => Ok(Self::A),
            "B" | "b" => Ok(Self::B),
            _ => Err(Error::Class(name.to_owned())),
        }
    }
}

/// The timed section of one benchmark and class: the part before its loop,
/// one iteration, their number, and the part after it.
///
/// Every iteration of a benchmark is the same, so a run of fewer iterations
/// scales to the whole: seconds = fixed + [`Skeleton::iterations`] x one.
#[derive(Debug, Clone)]
pub struct Skeleton {
    benchmark: Benchmark,
    class: Class,
    /// Nanoseconds per counted operation.
    scale: f64,
}

impl Skeleton {
    /// The skeleton with the compute times of [`compute::node_speed`].
    ///
    /// # Errors
    ///
    /// [`Error::Ranks`] for any other number of ranks than [`RANKS`].
    pub fn new(benchmark: Benchmark, class: Class, ranks: usize) -> Result<Self, Error> {
        Self::at_speed(benchmark, class, ranks, compute::node_speed(benchmark))
    }

    /// The skeleton with another node: `speed` in Mop/s per node by the
    /// benchmark's own count. For studies of sensitivity.
    ///
    /// # Errors
    ///
    /// [`Error::Ranks`] for any other number of ranks than [`RANKS`].
    pub fn at_speed(
        benchmark: Benchmark,
        class: Class,
        ranks: usize,
        speed: f64,
    ) -> Result<Self, Error> {
        if ranks != RANKS {
            return Err(Error::Ranks(ranks));
        }
        // The submodules' counts divide the time; the total is by the benchmark's
        // own formula.
        let counted: f64 = (0..RANKS)
            .map(|rank| {
                program(benchmark, class, Part::Before, rank).counted
                    + f64::from(compute::iterations(benchmark, class))
                        * program(benchmark, class, Part::Iteration, rank).counted
                    + program(benchmark, class, Part::After, rank).counted
            })
            .sum();
        let seconds = compute::total_mop(benchmark, class) / speed;
        Ok(Self {
            benchmark,
            class,
            scale: 1e9 * seconds / counted,
        })
    }

    /// Iterations of the benchmark's timed loop.
    pub fn iterations(&self) -> u32 {
        compute::iterations(self.benchmark, self.class)
    }

    /// The rank's part of the timed section before the loop.
    pub fn before(&self, rank: usize) -> Vec<Op> {
        self.part(Part::Before, rank)
    }

    /// The rank's part of one iteration.
    pub fn iteration(&self, rank: usize) -> Vec<Op> {
        self.part(Part::Iteration, rank)
    }

    /// The rank's part of the timed section after the loop.
    pub fn after(&self, rank: usize) -> Vec<Op> {
        self.part(Part::After, rank)
    }

    /// Nanoseconds that a rank computes in so many iterations and in the parts before
    /// and after the loop: the mean of all ranks.
    pub fn computing_ns(&self, iterations: u32) -> u64 {
        let computing = |ops: Vec<Op>| -> u64 {
            ops.iter()
                .map(|op| match op {
                    Op::Compute { nanoseconds } => *nanoseconds,
                    _ => 0,
                })
                .sum()
        };
        let all = (0..RANKS).map(|rank| {
            computing(self.before(rank))
                + u64::from(iterations) * computing(self.iteration(rank))
                + computing(self.after(rank))
        });
        all.sum::<u64>() / RANKS as u64
    }

    fn part(&self, part: Part, rank: usize) -> Vec<Op> {
        assert!(rank < RANKS, "rank {rank} of {RANKS}");
        program(self.benchmark, self.class, part, rank).finish(self.scale)
    }
}

/// A part of the timed section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Before,
    Iteration,
    After,
}

fn program(benchmark: Benchmark, class: Class, part: Part, rank: usize) -> Program {
    let mut program = Program::default();
    match benchmark {
        Benchmark::Bt | Benchmark::Sp => bt_sp::build(&mut program, benchmark, class, part, rank),
        Benchmark::Cg => cg::build(&mut program, class, part, rank),
        Benchmark::Ep => ep::build(&mut program, class, part),
        Benchmark::Ft => ft::build(&mut program, class, part),
        Benchmark::Is => is::build(&mut program, class, part),
        Benchmark::Lu => lu::build(&mut program, class, part, rank),
        Benchmark::Mg => mg::build(&mut program, class, part, rank),
    }
    program
}

/// A rank's program before compute times are known: operations are counted.
#[derive(Debug, Default)]
struct Program {
    steps: Vec<Step>,
    counted: f64,
}

#[derive(Debug)]
enum Step {
    Work(f64),
    Op(Op),
}

impl Program {
    /// Computes `operations` operations, as counted by the caller.
    fn work(&mut self, operations: f64) {
        if operations == 0.0 {
            return;
        }
        self.counted += operations;
        if let Some(Step::Work(last)) = self.steps.last_mut() {
            *last += operations;
        } else {
            self.steps.push(Step::Work(operations));
        }
    }

    fn send(&mut self, to: usize, bytes: u64, tag: u16) {
        self.steps.push(Step::Op(Op::Send { to, bytes, tag }));
    }

    fn receive(&mut self, from: usize, bytes: u64, tag: u16) {
        self.steps.push(Step::Op(Op::Receive { from, bytes, tag }));
    }

    fn collective(&mut self, collective: Collective) {
        self.steps.push(Step::Op(Op::Collective(collective)));
    }

    fn finish(self, scale: f64) -> Vec<Op> {
        self.steps
            .into_iter()
            .map(|step| match step {
                Step::Work(operations) => Op::Compute {
                    nanoseconds: (operations * scale).round() as u64,
                },
                Step::Op(op) => op,
            })
            .collect()
    }
}
