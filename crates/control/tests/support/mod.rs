// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet-level model of connections over one bottleneck, in integer
//! nanoseconds and without randomness, that drives the start-up law the way
//! `bpf/congestion.bpf.c` does.
#![allow(dead_code, unused_imports)] // each test binary uses its part

pub mod link;
pub mod sender;
pub mod world;

use paceline_abi::{pl_path, pl_policy, pl_target};
use paceline_control::{pl_tcp, Startup};

pub use link::Link;
pub use world::World;

/// Payload bytes of a segment, and all that the model counts: rates are
/// payload rates.
pub const MSS: u64 = 1448;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// Bytes per second from Mbit/s.
pub const fn mbit(rate: u64) -> u64 {
    rate * 125_000
}

/// Microseconds in which so many segments leave at a rate, in bytes per second.
pub const fn takes_us(segs: u64, rate: u64) -> u64 {
    segs * MSS * 1_000_000 / rate
}

/// As the preset `pace`, with a breaker that opens early: 2 % twice, for 10 s.
pub fn delivery_rate() -> pl_policy {
    pl_policy {
        target: pl_target::PL_TARGET_DELIVERY_RATE as u8,
        breaker_permille: 20,
        breaker_starts: 2,
        breaker_hold_ms: 10_000,
        half_life_ms: 60_000,
        ..Default::default()
    }
}

/// The preset `paper`: no memory, no breaker.
pub fn ssthresh() -> pl_policy {
    pl_policy {
        target: pl_target::PL_TARGET_SSTHRESH as u8,
        ..Default::default()
    }
}

/// A host in a local network, about to send `segs` with an initial window and a round trip that
/// it knows.
pub fn about_to_send(now_us: u64, rtt_us: u32, segs: u32) -> (pl_path, pl_tcp) {
    let path = pl_path {
        min_rtt_us: rtt_us,
        min_rtt_at_us: now_us,
        started_us: now_us,
        ..pl_path::default()
    };
    let tcp = pl_tcp {
        now_us,
        cwnd: 10,
        ssthresh: 100,
        srtt_us: rtt_us,
        min_rtt_us: rtt_us,
        mss: MSS as u32,
        unsent: segs * MSS as u32,
        ..pl_tcp::default()
    };
    (path, tcp)
}

/// A burst by hand: its segments leave and are acknowledged, two at a time, at these times. `before_ack` is called
/// with the number of the segment that each ACK is for.
pub fn send_and_acknowledge(
    path: &mut pl_path,
    mut tcp: pl_tcp,
    left_us: &[u64],
    acked_us: &[u64],
    mut before_ack: impl FnMut(usize, &mut Startup, &mut pl_path, &mut pl_tcp),
) {
    let (policy, mut startup) = (delivery_rate(), Startup::default());
    for left in left_us {
        tcp.now_us = *left;
        startup.before_send(path, &policy, &tcp);
        tcp.sent_segs += 1;
        tcp.packets_out += 1;
        tcp.nxt += MSS as u32;
        tcp.unsent -= MSS as u32;
    }
    for n in (1..acked_us.len()).step_by(2) {
        tcp.now_us = acked_us[n];
        tcp.rtt_us = (acked_us[n] - left_us[n]) as u32;
        tcp.delivered_segs += 2;
        tcp.packets_out -= 2;
        tcp.una += 2 * MSS as u32;
        before_ack(n, &mut startup, path, &mut tcp);
        startup.on_ack(path, &policy, &tcp);
    }
}
