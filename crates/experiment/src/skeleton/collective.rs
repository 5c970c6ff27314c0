// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collectives as point-to-point messages, by the usual algorithms of the
//! paper's time for a power of two of ranks (Thakur, Rabenseifner and Gropp,
//! "Optimization of Collective Communication Operations in MPICH", 2005).

use super::{Op, RANKS};

/// Tags of a collective's messages are this and the step.
const TAG: u16 = 0x8000;

/// A collective over all ranks; bytes are payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collective {
    /// Every rank gets the combination of all ranks' values.
    Allreduce {
        /// Size of the value.
        bytes: u64,
    },
    /// The root gets the combination of all ranks' values.
    Reduce {
        /// The rank that gets it.
        root: usize,
        /// Size of the value.
        bytes: u64,
    },
    /// Every rank gets the root's value.
    Broadcast {
        /// The rank of the value.
        root: usize,
        /// Size of the value.
        bytes: u64,
    },
    /// Every rank sends every other one a block of the same size.
    Alltoall {
        /// Size of a block.
        bytes: u64,
    },
    /// Every rank sends rank `i` a block of `bytes_to[i]`.
    Alltoallv {
        /// Size of a block, by receiver; one entry per rank.
        bytes_to: Vec<u64>,
    },
    /// No rank goes on before all have arrived.
    Barrier,
}

impl Collective {
    /// Sends and receives of `rank`, in order.
    ///
    /// - `Allreduce`: recursive doubling, four exchanges of the whole value, the
    ///   farthest partner last;
    /// - `Reduce` and `Broadcast`: binomial tree;
    /// - `Alltoall` and `Alltoallv`: pairwise exchange with rank XOR step for
    ///   steps 1 to 15. In steps 8 to 15 all eight pairs cross between the
    ///   halves of the ranks, the "eight streams" that share the link in the
    ///   paper's section 4.4;
    /// - `Barrier`: dissemination, one byte per message.
    ///
    /// # Panics
    ///
    /// If `rank` is not a rank.
    pub fn expand(&self, rank: usize) -> Vec<Op> {
        assert!(rank < RANKS, "rank {rank} of {RANKS}");
        let mut ops = Vec::new();
        match *self {
            Self::Allreduce { bytes } => {
                for step in 0..RANKS.ilog2() {
                    exchange(&mut ops, rank ^ (1 << step), bytes, bytes, step);
                }
            }
            Self::Reduce { root, bytes } => {
                let relative = (rank + RANKS - root) % RANKS;
                for step in 0..RANKS.ilog2() {
                    let other = ((relative ^ (1 << step)) + root) % RANKS;
                    if relative & (1 << step) != 0 {
                        ops.push(send(other, bytes, step));
                        break;
                    }
                    ops.push(receive(other, bytes, step));
                }
            }
            Self::Broadcast { root, bytes } => {
                let relative = (rank + RANKS - root) % RANKS;
                for step in (0..RANKS.ilog2()).rev() {
                    let mask = 1 << step;
                    // Those below the mask have the value only if their lower bits are 0.
                    if relative & (mask - 1) == 0 {
                        let other = ((relative ^ mask) + root) % RANKS;
                        ops.push(if relative & mask == 0 {
                            send(other, bytes, step)
                        } else {
                            receive(other, bytes, step)
                        });
                    }
                }
            }
            Self::Alltoall { bytes } => {
                for step in 1..RANKS {
                    exchange(&mut ops, rank ^ step, bytes, bytes, step as u32);
                }
            }
            Self::Alltoallv { ref bytes_to } => {
                for step in 1..RANKS {
                    let other = rank ^ step;
                    exchange(
                        &mut ops,
                        other,
                        bytes_to[other],
                        bytes_to[rank],
                        step as u32,
                    );
                }
            }
            Self::Barrier => {
                for step in 0..RANKS.ilog2() {
                    let distance = 1 << step;
                    ops.push(send((rank + distance) % RANKS, 1, step));
                    ops.push(receive((rank + RANKS - distance) % RANKS, 1, step));
                }
            }
        }
        ops
    }
}

fn send(to: usize, bytes: u64, step: u32) -> Op {
    Op::Send {
        to,
        bytes,
        tag: TAG + step as u16,
    }
}

fn receive(from: usize, bytes: u64, step: u32) -> Op {
    Op::Receive {
        from,
        bytes,
        tag: TAG + step as u16,
    }
}

fn exchange(ops: &mut Vec<Op>, other: usize, out: u64, back: u64, step: u32) {
    ops.push(send(other, out, step));
    ops.push(receive(other, back, step));
}
