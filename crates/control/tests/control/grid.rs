// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the third burst on: no loss, and at most 1.10 times the bound, over
//! rates, RTTs, buffers and sizes.

use crate::support::world::Burst;
use crate::support::{delivery_rate, mbit, Link, World, MS, MSS, SECOND};
use paceline_control::PL_TRAIN_FROM;

/// What one path and size comes to, or nothing if it is too long to run here.
fn cell(link: &Link, segs: u64) -> Option<Vec<Burst>> {
    // A burst shorter than a train is not learned from, and one of a hundred
    // round trips is the base algorithm's.
    let too_short = segs < u64::from(PL_TRAIN_FROM);
    let too_long = segs > 30 * link.bdp_segs().max(60);
    let too_slow = segs * link.segment_ns() > 20 * SECOND;
    if too_short || too_long || too_slow {
        return None;
    }
    let mut world = World::new(link.clone(), delivery_rate(), 1);
    Some((0..6).map(|_| world.burst(segs, SECOND)).collect())
}

fn grid(rtts_ms: &[u64], sizes: &[u64], most_permille: u64, prepare: impl Fn(Link) -> Link) {
    let mut cells = 0;
    let mut failed = Vec::new();
    for rate in [mbit(10), mbit(100), mbit(1000), mbit(10_000)] {
        for &rtt_ms in rtts_ms {
            let probe = Link::new(rate, rtt_ms * MS, 0);
            let bdp = probe.bdp_segs();
            let mut buffers = [bdp / 20, bdp / 3, 2 * bdp].map(|segs| segs.max(60));
            buffers.sort_unstable();
            for (index, buffer) in buffers.into_iter().enumerate() {
                if index > 0 && buffers[index - 1] == buffer {
                    continue;
                }
                let link = prepare(Link::new(rate, rtt_ms * MS, buffer * MSS));
                for &segs in sizes {
                    let Some(bursts) = cell(&link, segs) else {
                        continue;
                    };
                    cells += 1;
                    if bursts[2..]
                        .iter()
                        .any(|burst| burst.drops > 0 || burst.permille() > most_permille)
                    {
                        let shown: Vec<_> = bursts
                            .iter()
                            .map(|burst| {
                                (burst.permille(), burst.drops, burst.learned * 100 / rate)
                            })
                            .collect();
                        failed.push(format!(
                            "{} Mbit/s, {rtt_ms} ms (BDP {bdp}), buffer {buffer}, {segs} segments: \
                             (permille of the bound, drops, % learned) {shown:?}",
                            rate / mbit(1)
                        ));
                    }
                }
            }
        }
    }
    assert!(cells > 40, "only {cells} cells");
    assert!(
        failed.is_empty(),
        "{} of {cells}:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

#[test]
fn segment_by_segment() {
    grid(&[1, 20, 100, 300], &[40, 70, 700, 7000], 1100, |link| link);
}

/// In a queue shorter than two packets of 64 KB, that come at once here, the second is
/// lost whatever the law does. While a packet waits for room, few ACKs follow each other:
/// a path that short messages go over is not learned from their spacing.
#[test]
fn with_segmentation_offload() {
    grid(&[1, 20, 100, 300], &[70, 700, 7000], 1100, |link| {
        let mut link = link.with_tso();
        link.buffer = link.buffer.max(2 * 65_536);
        link
    });
}

/// Few ACKs come in for a short message, too few to learn a path from. At an RTT
/// of 1 ms, 64 KB that were merged look like a queue.
#[test]
fn with_the_receiver_merging_segments() {
    grid(&[1, 20, 100, 300], &[700, 7000], 1120, |link| {
        link.with_gro(MS / 20)
    });
}

/// Merging for a fifth of a 1 ms RTT would hide the spacing of the ACKs.
#[test]
fn with_both_offloads() {
    grid(&[20, 100, 300], &[700, 7000], 1100, |link| {
        link.with_tso().with_gro(MS / 5)
    });
}
