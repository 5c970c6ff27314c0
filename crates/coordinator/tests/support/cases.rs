// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The path and its variations: 32 streams of 16 MB from 8 hosts, 240 Mbit/s,
//! 200 ms, 600 kB drop-tail.

use super::model::{Case, Flow, Link};
use super::sender::MS;

pub const RATE_BPS: u64 = 240_000_000;
pub const STREAMS: u64 = 32;
pub const BYTES: u64 = 16_000_000;
/// Payload with its headers and framing at the link's rate, and a round trip.
pub const BOUND_S: f64 = 18.5;

pub fn plain() -> Case {
    Case {
        links: vec![Link {
            rate_bps: RATE_BPS,
            buffer_bytes: 600_000,
        }],
        flows: (0..STREAMS as usize)
            .map(|number| Flow {
                host: number / 4,
                link: 0,
                rtt: 200 * MS,
                bytes: BYTES,
                start: 0,
                grouped: true,
                network: 0,
            })
            .collect(),
        declared: true,
        stop: None,
        kill: None,
        blind: false,
        first_round: 10 * MS,
        seed: 1,
    }
}

/// A queue of a fortieth of what the path holds: the first windows overflow it.
pub fn shallow() -> Case {
    let mut case = plain();
    case.links[0].buffer_bytes = 150_000;
    case
}

/// The program does not say what it will send.
pub fn undeclared() -> Case {
    Case {
        declared: false,
        ..plain()
    }
}

/// The hosts cannot tell whether a stream is in Recovery.
pub fn blind() -> Case {
    Case {
        blind: true,
        ..plain()
    }
}

/// The last host's four streams take twice as long to go and come.
pub fn twice_the_rtt() -> Case {
    let mut case = plain();
    for flow in &mut case.flows[28..] {
        flow.rtt = 400 * MS;
        flow.network = 1;
    }
    case
}

/// The last two hosts' eight streams have a bottleneck of their own, of a quarter the
/// first one's rate, and twice the round trip.
pub fn two_bottlenecks() -> Case {
    let mut case = plain();
    case.links.push(Link {
        rate_bps: RATE_BPS / 4,
        buffer_bytes: 300_000,
    });
    for flow in &mut case.flows[24..] {
        flow.rtt = 400 * MS;
        flow.link = 1;
        flow.network = 1;
    }
    case
}

/// Each host sends to a network of its own, through the same bottleneck.
pub fn eight_networks() -> Case {
    let mut case = plain();
    for flow in &mut case.flows {
        flow.network = flow.host as u8;
    }
    case
}

/// A host is stopped for four seconds.
pub fn stopped() -> Case {
    Case {
        stop: Some((3, 6_000 * MS, 10_000 * MS)),
        ..plain()
    }
}

/// A CUBIC bulk flow of somebody else's beside it.
pub fn foreign() -> Case {
    let mut case = plain();
    let flow = Flow {
        host: 8,
        bytes: u64::MAX / 4,
        grouped: false,
        ..case.flows[0].clone()
    };
    case.flows.push(flow);
    case
}

/// The coordinator dies.
pub fn killed() -> Case {
    Case {
        kill: Some(8_000 * MS),
        ..plain()
    }
}

/// Hosts begin one after the other, half a second apart.
pub fn staggered() -> Case {
    let mut case = plain();
    for flow in &mut case.flows {
        flow.start = flow.host as u64 * 500 * MS;
    }
    case
}
