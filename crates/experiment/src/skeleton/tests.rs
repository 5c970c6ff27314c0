// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an iteration sends, against totals derived from the grids by hand, and
//! that everything that is sent is received.

use super::replay::{crosses, flat, programs, run, Network};
use super::*;

const CLASSES: [Class; 2] = [Class::A, Class::B];

fn skeleton(benchmark: Benchmark, class: Class) -> Skeleton {
    Skeleton::new(benchmark, class, RANKS).unwrap()
}

/// Messages and bytes of all ranks; then those between ranks 0-7 and 8-15.
#[derive(Debug, PartialEq, Eq)]
struct Traffic {
    messages: u64,
    bytes: u64,
    crossing_messages: u64,
    crossing_bytes: u64,
}

fn traffic(benchmark: Benchmark, class: Class) -> Traffic {
    let skeleton = skeleton(benchmark, class);
    let mut sum = Traffic {
        messages: 0,
        bytes: 0,
        crossing_messages: 0,
        crossing_bytes: 0,
    };
    for rank in 0..RANKS {
        for op in flat(skeleton.iteration(rank), rank) {
            if let Op::Send { to, bytes, .. } = op {
                sum.messages += 1;
                sum.bytes += bytes;
                if crosses(rank, to) {
                    sum.crossing_messages += 1;
                    sum.crossing_bytes += bytes;
                }
            }
        }
    }
    sum
}

#[test]
fn everything_sent_is_received_in_order_and_nobody_waits_for_ever() {
    for benchmark in Benchmark::ALL {
        for class in CLASSES {
            let programs = programs(&skeleton(benchmark, class), 2);
            for network in [Network::INFINITE, Network::PAPER] {
                assert!(run(&programs, network) > 0.0);
            }
        }
    }
}

#[test]
fn an_infinite_network_leaves_computing_and_waiting_for_others() {
    for benchmark in Benchmark::ALL {
        let skeleton = skeleton(benchmark, Class::B);
        let (one, all) = replay::seconds(&skeleton, Network::INFINITE);
        let computing =
            compute::total_mop(benchmark, Class::B) / RANKS as f64 / compute::node_speed(benchmark);
        // Ranks differ by their share of the grid; LU's wavefront has to cross it.
        assert!(all >= computing * 0.999_999);
        assert!(all < computing * 1.2, "{benchmark:?}: {all} {computing}");
        assert!(one > 0.0);
    }
}

#[test]
fn bt_and_sp_send_faces_and_solve_buffers() {
    for (class, edge, buffer) in [(Class::A, 64, 17 * 17), (Class::B, 102, 26 * 26)] {
        // Three planes between cells in each of three directions, both ways, two
        // layers of five doubles.
        let faces = 3 * 3 * 2 * edge * edge * 10 * 8;
        // BT: whole buffers of 30 and 5 doubles, three each way for 16 ranks in three
        // directions. SP: the inner points of the same planes, 22 and 10 doubles.
        let bt = faces + 16 * 3 * 3 * buffer * (30 + 5) * 8;
        let sp = faces + 3 * 3 * (edge - 2) * (edge - 2) * (22 + 10) * 8;
        for (benchmark, bytes) in [(Benchmark::Bt, bt), (Benchmark::Sp, sp)] {
            // Nothing in x crosses; in y and z two of four rows of ranks border on
            // the other half: a third of everything.
            let expected = Traffic {
                messages: 16 * (6 + 3 * 6),
                bytes,
                crossing_messages: 16 * (6 + 3 * 6) / 3,
                crossing_bytes: bytes / 3,
            };
            assert_eq!(traffic(benchmark, class), expected);
        }
    }
    assert_eq!(traffic(Benchmark::Bt, Class::B).bytes, 42_238_080);
    assert_eq!(traffic(Benchmark::Sp, Class::B).bytes, 38_021_760);
}

#[test]
fn cg_sums_over_rows_and_transposes() {
    for (class, segment) in [(Class::A, 28_000), (Class::B, 150_000)] {
        // 26 products: two exchanges in the row, one with the transposed rank off
        // the diagonal. 52 sums of one double and one of two, two exchanges each.
        let expected = Traffic {
            messages: 26 * (32 + 12) + 53 * 32,
            bytes: 26 * (32 + 12) * segment + 52 * 32 * 8 + 32 * 16,
            // Four pairs of transposed ranks lie in both halves.
            crossing_messages: 26 * 8,
            crossing_bytes: 26 * 8 * segment,
        };
        assert_eq!(traffic(Benchmark::Cg, class), expected);
    }
}

#[test]
fn ep_sums_three_times() {
    for class in CLASSES {
        let bytes = 16 * 4 * (8 + 8 + 80);
        let expected = Traffic {
            messages: 3 * 16 * 4,
            bytes,
            crossing_messages: 3 * 16,
            crossing_bytes: bytes / 4,
        };
        assert_eq!(traffic(Benchmark::Ep, class), expected);
    }
}

#[test]
fn ft_transposes_everything_but_the_diagonal() {
    for (class, points) in [(Class::A, 256 * 256 * 128), (Class::B, 512 * 256 * 256)] {
        let block = points * 16 / 256;
        let expected = Traffic {
            messages: 240 + 15,
            bytes: 240 * block + 15 * 16,
            crossing_messages: 128 + 1,
            crossing_bytes: 128 * block + 16,
        };
        assert_eq!(traffic(Benchmark::Ft, class), expected);
    }
}

#[test]
fn is_sums_buckets_and_moves_keys() {
    for (class, keys) in [(Class::A, 1 << 23), (Class::B, 1 << 25)] {
        let expected = Traffic {
            messages: 64 + 240 + 240,
            // A rank keeps what it sends itself: all together one rank's keys.
            bytes: 64 * 4 * 1029 + 240 * 4 + keys * 4 * 15 / 16,
            crossing_messages: 16 + 128 + 128,
            // Half of the keys belong to the other half, which is as good as exact.
            crossing_bytes: 16 * 4 * 1029 + 128 * 4 + keys * 4 / 2,
        };
        let mut found = traffic(Benchmark::Is, class);
        assert!(found.crossing_bytes.abs_diff(expected.crossing_bytes) <= 128);
        found.crossing_bytes = expected.crossing_bytes;
        assert_eq!(found, expected);
    }
}

#[test]
fn lu_sends_a_row_per_plane_and_halos() {
    for (class, edge) in [(Class::A, 64), (Class::B, 102)] {
        let inner = edge - 2;
        // Per plane and sweep a row of five doubles over each of three borders
        // between rows of ranks, in both directions.
        let rows = 2 * inner * 2 * 3 * inner * 5 * 8;
        // Per border and direction two layers of five doubles.
        let halo = 2 * edge * edge * 5 * 8;
        let expected = Traffic {
            messages: 2 * inner * 24 + 48,
            bytes: rows + 2 * 3 * 2 * halo,
            crossing_messages: 2 * inner * 4 + 8,
            crossing_bytes: rows / 6 + 2 * halo,
        };
        assert_eq!(traffic(Benchmark::Lu, class), expected);
    }
    assert_eq!(traffic(Benchmark::Lu, Class::B).bytes, 14_787_840);
}

#[test]
fn mg_exchanges_halos_on_every_level() {
    let mut expected = Traffic {
        messages: 0,
        bytes: 0,
        crossing_messages: 0,
        crossing_bytes: 0,
    };
    // Levels 2 to 8 exchange three times, 16 ranks, both ways.
    for level in 2..=8 {
        let (xy, z) = (1 << (level - 1), 1 << (level - 2));
        let top = (xy + 2) * (xy + 2);
        let layers = xy * z + (xy + 2) * z + top;
        expected.messages += 3 * 16 * 6;
        expected.bytes += 3 * 16 * 2 * layers * 8;
        // Half of the exchanges in z, between places 1 and 2, 3 and 0.
        expected.crossing_messages += 3 * 16;
        expected.crossing_bytes += 3 * 16 * top * 8;
    }
    // Level 1 exchanges twice, among places 1 and 3 in z: one point each.
    expected.messages += 2 * 8 * 6;
    expected.bytes += 2 * 8 * 2 * (1 + 3 + 9) * 8;
    expected.crossing_messages += 2 * 8 * 2;
    expected.crossing_bytes += 2 * 8 * 2 * 9 * 8;
    // Then they give level 2, 4 x 4 with halo, to the next (two layers, which
    // crosses) and to the previous rank (one layer).
    expected.messages += 8 * 2;
    expected.bytes += 8 * 3 * 16 * 8;
    expected.crossing_messages += 8;
    expected.crossing_bytes += 8 * 2 * 16 * 8;
    for class in CLASSES {
        assert_eq!(traffic(Benchmark::Mg, class), expected);
    }
    assert_eq!(expected.bytes, 34_555_648);
}

#[test]
fn nobody_sends_to_itself_and_peers_exist() {
    for benchmark in Benchmark::ALL {
        for rank in 0..RANKS {
            for op in flat(skeleton(benchmark, Class::B).iteration(rank), rank) {
                match op {
                    Op::Send { to: peer, .. } | Op::Receive { from: peer, .. } => {
                        assert!(peer < RANKS && peer != rank);
                    }
                    Op::Compute { nanoseconds } => assert!(nanoseconds > 0),
                    Op::Collective(_) => unreachable!("expanded"),
                }
            }
        }
    }
}

/// Which ranks' values each rank has after a collective, as bits.
fn spread(collective: &Collective) -> [u16; RANKS] {
    let programs: Vec<_> = (0..RANKS).map(|rank| collective.expand(rank)).collect();
    let mut at = [0; RANKS];
    let mut has: [u16; RANKS] = std::array::from_fn(|rank| 1 << rank);
    let mut messages = vec![std::collections::VecDeque::new(); RANKS * RANKS];
    let mut moved = true;
    while moved {
        moved = false;
        for rank in 0..RANKS {
            match programs[rank].get(at[rank]) {
                Some(&Op::Send { to, .. }) => messages[rank * RANKS + to].push_back(has[rank]),
                Some(&Op::Receive { from, .. }) => {
                    match messages[from * RANKS + rank].pop_front() {
                        Some(value) => has[rank] |= value,
                        None => continue,
                    }
                }
                _ => continue,
            }
            at[rank] += 1;
            moved = true;
        }
    }
    assert!((0..RANKS).all(|rank| at[rank] == programs[rank].len()));
    assert!(messages.iter().all(|queue| queue.is_empty()));
    has
}

#[test]
fn collectives_bring_the_values_where_they_belong() {
    let everybody = [u16::MAX; RANKS];
    assert_eq!(spread(&Collective::Allreduce { bytes: 8 }), everybody);
    assert_eq!(spread(&Collective::Alltoall { bytes: 8 }), everybody);
    assert_eq!(spread(&Collective::Barrier), everybody);
    for root in 0..RANKS {
        let reduced = spread(&Collective::Reduce { root, bytes: 8 });
        assert_eq!(reduced[root], u16::MAX);
        let broadcast = spread(&Collective::Broadcast { root, bytes: 8 });
        assert!(broadcast.iter().all(|has| has & (1 << root) != 0));
        // A tree: fifteen messages.
        for collective in [
            Collective::Reduce { root, bytes: 8 },
            Collective::Broadcast { root, bytes: 8 },
        ] {
            let sends = (0..RANKS)
                .flat_map(|rank| collective.expand(rank))
                .filter(|op| matches!(op, Op::Send { .. }));
            assert_eq!(sends.count(), RANKS - 1);
        }
    }
}

#[test]
fn other_numbers_of_ranks_and_names_are_refused() {
    assert_eq!(
        Skeleton::new(Benchmark::Cg, Class::A, 8).unwrap_err(),
        Error::Ranks(8)
    );
    assert_eq!(
        Error::Ranks(8).to_string(),
        "skeletons exist for 16 ranks, not 8"
    );
    assert_eq!("lu".parse(), Ok(Benchmark::Lu));
    assert_eq!("b".parse(), Ok(Class::B));
    assert_eq!(
        "DT".parse::<Benchmark>(),
        Err(Error::Benchmark("DT".to_owned()))
    );
    assert_eq!("C".parse::<Class>(), Err(Error::Class("C".to_owned())));
}
