// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs all ranks' programs over a network that loses nothing, is never cautious and
//! sends message after message. One that shares a link among messages, as TCP does, is a
//! few percent faster where short ones need not wait for long ones.

use super::{Op, Skeleton, RANKS};

/// Ranks 0 to 7 in one cluster, 8 to 15 in the other.
pub fn crosses(from: usize, to: usize) -> bool {
    (from < RANKS / 2) != (to < RANKS / 2)
}

/// Bits that a message takes on the wire: 1538 bytes per 1448 of payload.
fn wire_bits(bytes: u64) -> f64 {
    (bytes + bytes.div_ceil(1448) * 90) as f64 * 8.0
}

/// The two clusters: hosts' links, the link between the clusters, its delay.
#[derive(Clone, Copy)]
pub struct Network {
    pub host_bps: f64,
    pub link_bps: f64,
    pub delay_s: f64,
}

impl Network {
    /// The paper's setting: 1 Gbit/s in the clusters, 500 Mbit/s and 10 ms between.
    pub const PAPER: Self = Self {
        host_bps: 1e9,
        link_bps: 5e8,
        delay_s: 0.01,
    };
    /// Nothing takes time but computing.
    pub const INFINITE: Self = Self {
        host_bps: f64::INFINITY,
        link_bps: f64::INFINITY,
        delay_s: 0.0,
    };
}

/// A program with its collectives expanded.
pub fn flat(ops: Vec<Op>, rank: usize) -> Vec<Op> {
    ops.into_iter()
        .flat_map(|op| match op {
            Op::Collective(collective) => collective.expand(rank),
            other => vec![other],
        })
        .collect()
}

#[derive(Default)]
struct Pair {
    /// Messages on their way: arrival, bytes, tag.
    messages: std::collections::VecDeque<(f64, u64, u16)>,
}

/// Runs the programs to their end and returns the time of the last rank, in
/// seconds. Panics if they do not match or do not end.
///
/// A message occupies its sender's link, the link between the clusters if it
/// crosses, and its receiver's link, each for its size at that link's rate, in
/// order of sending, and cuts through from one to the next.
pub fn run(programs: &[Vec<Op>], network: Network) -> f64 {
    let mut at = [0_usize; RANKS];
    let mut now = [0.0_f64; RANKS];
    let mut out_free = [0.0_f64; RANKS];
    let mut in_free = [0.0_f64; RANKS];
    let mut link_free = [0.0_f64; 2];
    let mut pairs: Vec<Pair> = (0..RANKS * RANKS).map(|_| Pair::default()).collect();
    loop {
        // The earliest possible step: no later one changes its inputs.
        let mut next: Option<(f64, usize)> = None;
        for rank in 0..RANKS {
            let time = match programs[rank].get(at[rank]) {
                None => continue,
                Some(Op::Receive { from, .. }) => {
                    match pairs[from * RANKS + rank].messages.front() {
                        Some((arrival, ..)) => now[rank].max(*arrival),
                        None => continue,
                    }
                }
                Some(_) => now[rank],
            };
            if next.is_none_or(|(earliest, _)| time < earliest) {
                next = Some((time, rank));
            }
        }
        let Some((time, rank)) = next else { break };
        now[rank] = time;
        match &programs[rank][at[rank]] {
            Op::Compute { nanoseconds } => now[rank] += *nanoseconds as f64 / 1e9,
            &Op::Send { to, bytes, tag } => {
                assert_ne!(to, rank, "rank {rank} sends to itself");
                let bits = wire_bits(bytes);
                let mut start = time.max(out_free[rank]);
                let mut end = start + bits / network.host_bps;
                out_free[rank] = end;
                if crosses(rank, to) {
                    let free = &mut link_free[usize::from(rank < to)];
                    start = start.max(*free);
                    end = end.max(start + bits / network.link_bps);
                    *free = end;
                    start += network.delay_s;
                    end += network.delay_s;
                }
                start = start.max(in_free[to]);
                end = end.max(start + bits / network.host_bps);
                in_free[to] = end;
                pairs[rank * RANKS + to]
                    .messages
                    .push_back((end, bytes, tag));
            }
            &Op::Receive { from, bytes, tag } => {
                let message = pairs[from * RANKS + rank].messages.pop_front();
                let (_, sent, sent_tag) = message.expect("chosen because it is there");
                assert_eq!((sent, sent_tag), (bytes, tag), "{from} to {rank}");
            }
            Op::Collective(_) => panic!("expand collectives first"),
        }
        at[rank] += 1;
    }
    for rank in 0..RANKS {
        assert_eq!(at[rank], programs[rank].len(), "rank {rank} waits forever");
    }
    assert!(pairs.iter().all(|pair| pair.messages.is_empty()));
    now.into_iter().fold(0.0, f64::max)
}

/// The programs of all ranks with `iterations` iterations.
pub fn programs(skeleton: &Skeleton, iterations: usize) -> Vec<Vec<Op>> {
    (0..RANKS)
        .map(|rank| {
            let mut ops = skeleton.before(rank);
            for _ in 0..iterations {
                ops.extend(skeleton.iteration(rank));
            }
            ops.extend(skeleton.after(rank));
            flat(ops, rank)
        })
        .collect()
}

/// Seconds of one iteration among others, and of the whole timed section.
pub fn seconds(skeleton: &Skeleton, network: Network) -> (f64, f64) {
    let few = run(&programs(skeleton, 2), network);
    let more = run(&programs(skeleton, 4), network);
    let one = (more - few) / 2.0;
    let rest = f64::from(skeleton.iterations()) - 2.0;
    (one, few + rest * one)
}
