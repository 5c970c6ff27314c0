// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures a link from outside: numbered packets go in at both ends, and their arrivals
//! are compared with the arithmetic of [`Link`], packet by packet.
//!
//! Works on any link, not only on ours. The results include the probe's own errors:
//! it stamps a packet before the system call that sends it.

use std::collections::VecDeque;

use crate::port::ETHERNET_HEADER;
use crate::realtime::{become_realtime, clock, clocks, Oversleep, Watch};
use crate::statistics::{Bins, Histogram};
use crate::{Buffer, Lateness, Link, LinkConfig, Port, BIN_NS};

/// IEEE 802's ethertype for local experiments: no stack answers it.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Unicast, locally administered; interfaces are promiscuous.
const ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0, 0x9a];
/// A number follows the header.
const NUMBER: std::ops::Range<usize> = 14..22;
/// Packets sent or read before the other port's turn.
const BATCH: usize = 8;
/// Time for the last packets to arrive after the load, nanoseconds.
const LINGER_NS: u64 = 500_000_000;

/// The packets sent into each end.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// On the wire, framing included, bits per second.
    pub rate_bits: u64,
    /// Ethernet header included.
    pub frame_bytes: u32,
    /// Packets at a time; they leave back to back.
    pub burst: u32,
    /// How long, nanoseconds.
    pub duration_ns: u64,
}

/// The packets received from one direction.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Packets that went in.
    pub sent: u64,
    /// Packets that the sender's interface refused.
    pub refused: u64,
    /// Packets that came out.
    pub received: u64,
    /// Of those, behind one that was sent later.
    pub reordered: u64,
    /// Packets that the kernel lost on the way to the probe itself.
    pub missed: u64,
    /// Drops of the buffer by the arithmetic.
    pub expected_drops: u64,
    /// How far from its expected time a packet arrived, nanoseconds: later.
    pub late: Lateness,
    /// And earlier.
    pub early: Lateness,
    /// Bytes of frames by the time they arrived.
    pub arrivals: Bins,
    /// The model's prediction: bytes that are due in each millisecond.
    pub expected: Bins,
}

impl Seen {
    /// Packets that are missing by the arithmetic; negative: more came out than by the
    /// arithmetic.
    pub fn lost(&self) -> i64 {
        self.sent as i64 - self.expected_drops as i64 - self.received as i64
    }

    /// The rate over each window of `millis` milliseconds that lies between two moments
    /// of the run, in milliseconds: bits per second of frames that take `wire_share` times
    /// their size on the line. In rising order. Only windows over which the line is busy at
    /// `rate_bits` to a thousandth by the arithmetic: where the sender stalled, no link could
    /// have carried more.
    pub fn rates(
        &self,
        millis: usize,
        between: std::ops::Range<usize>,
        wire_share: f64,
        rate_bits: f64,
    ) -> Vec<f64> {
        let of = |bins: &Bins| -> Vec<u32> {
            let mut bins = bins.as_slice().to_vec();
            bins.resize(between.end.max(bins.len()), 0);
            bins[between.clone()].to_vec()
        };
        let (arrivals, expected) = (of(&self.arrivals), of(&self.expected));
        let seconds = millis as f64 * BIN_NS as f64 / 1e9;
        let rate = |window: &[u32]| {
            window.iter().map(|bytes| f64::from(*bytes)).sum::<f64>() * 8.0 * wire_share / seconds
        };
        let mut rates: Vec<f64> = arrivals
            .windows(millis)
            .zip(expected.windows(millis))
            .filter(|(_, expected)| rate(expected) >= rate_bits * 0.999)
            .map(|(arrivals, _)| rate(arrivals))
            .collect();
        rates.sort_by(f64::total_cmp);
        rates
    }
}

/// Stalls of a thread with the emulator's scheduling that only reads the clock: no emulator
/// on this machine can be more punctual.
#[derive(Debug, Clone)]
pub struct Stalls {
    /// For the end of each millisecond: duration of the thread's stall until then, nanoseconds;
    /// 0 where it ran.
    since_ns: Vec<u64>,
    /// Its longest stall, nanoseconds.
    pub longest_ns: u64,
}

impl Stalls {
    /// Watches for so long, on a thread of its own.
    pub fn watch(duration_ns: u64) -> Self {
        std::thread::spawn(move || Stalls::run(duration_ns))
            .join()
            .expect("the watching thread does not panic")
    }

    fn run(duration_ns: u64) -> Self {
        become_realtime();
        let mut watch = Watch::new();
        let mut oversleep = Oversleep::default();
        let mut stalls = Stalls {
            since_ns: Vec::with_capacity((duration_ns / BIN_NS + 1) as usize),
            longest_ns: 0,
        };
        let started = clock(libc::CLOCK_MONOTONIC);
        let mut last = 0;
        while last < duration_ns {
            watch.rest_if_busy(&mut oversleep);
            let now = clock(libc::CLOCK_MONOTONIC) - started;
            stalls.longest_ns = stalls.longest_ns.max(now - last);
            while (stalls.since_ns.len() as u64 + 1) * BIN_NS <= now {
                let edge = (stalls.since_ns.len() as u64 + 1) * BIN_NS;
                stalls.since_ns.push(edge - last);
            }
            last = now;
        }
        stalls
    }

    /// Share of the windows of `millis` milliseconds whose length such a thread gets right to a
    /// part of `1 / parts`: a stall at a window's start or end makes that late.
    pub fn punctual(&self, millis: usize, parts: u64) -> f64 {
        let limit = millis as u64 * BIN_NS / parts;
        let windows = self.since_ns.len().saturating_sub(millis);
        let punctual = self
            .since_ns
            .iter()
            .zip(self.since_ns.iter().skip(millis))
            .filter(|(start, end)| start.abs_diff(**end) <= limit)
            .count();
        punctual as f64 / windows.max(1) as f64
    }
}

struct Side {
    model: Link<()>,
    next_number: u64,
    /// Expected arrivals that were not seen yet: number and time.
    expected: VecDeque<(u64, u64)>,
    newest: u64,
    late: Histogram,
    early: Histogram,
    seen: Seen,
}

impl Side {
    fn new(config: &LinkConfig, now: u64, load: &Load) -> Self {
        Side {
            model: Link::new(config.clone(), now),
            next_number: 1,
            expected: VecDeque::new(),
            newest: 0,
            late: Histogram::new(),
            early: Histogram::new(),
            seen: Seen {
                sent: 0,
                refused: 0,
                received: 0,
                reordered: 0,
                missed: 0,
                expected_drops: 0,
                late: Lateness::default(),
                early: Lateness::default(),
                arrivals: Bins::new(load.duration_ns + 2 * LINGER_NS, BIN_NS),
                expected: Bins::new(load.duration_ns + 2 * LINGER_NS, BIN_NS),
            },
        }
    }

    fn send(&mut self, port: &Port, frames: &mut [Vec<u8>], started: u64) {
        for (frame, number) in frames.iter_mut().zip(self.next_number..) {
            frame[NUMBER].copy_from_slice(&number.to_be_bytes());
        }
        let now = clock(libc::CLOCK_MONOTONIC);
        let sent = port
            .send(frames.iter().map(|frame| &frame[..]))
            .unwrap_or(0);
        self.seen.refused += (frames.len() - sent) as u64;
        for frame in &frames[..sent] {
            self.seen.sent += 1;
            match self.model.arrive(now, frame.len() as u32, ()) {
                Ok(schedule) => {
                    let delivery = schedule.delivery;
                    self.expected.push_back((self.next_number, delivery));
                    let since_start = delivery.saturating_sub(started);
                    self.seen.expected.add(since_start, frame.len() as u32);
                }
                Err(_) => self.seen.expected_drops += 1,
            }
            self.next_number += 1;
        }
        while self.model.deliver(now).is_some() {}
    }

    fn receive(&mut self, port: &mut Port, started: u64) -> bool {
        let (_, ahead) = clocks();
        let mut any = false;
        for _ in 0..BATCH {
            let more = port.receive(|packet| {
                if packet.data.get(12..14) != Some(&ETHERTYPE[..]) {
                    return;
                }
                let Some(number) = packet.data.get(NUMBER) else {
                    return;
                };
                let number = u64::from_be_bytes(number.try_into().expect("eight bytes"));
                self.arrived(
                    number,
                    packet.realtime_ns.saturating_sub(ahead),
                    packet.length,
                    started,
                );
            });
            any |= more;
            if !more {
                break;
            }
        }
        any
    }

    fn arrived(&mut self, number: u64, at: u64, length: u32, started: u64) {
        self.seen.received += 1;
        self.seen.arrivals.add(at.saturating_sub(started), length);
        if number < self.newest {
            self.seen.reordered += 1;
            return;
        }
        self.newest = number;
        while let Some(&(expected, due)) = self.expected.front() {
            if expected > number {
                break;
            }
            self.expected.pop_front();
            if expected == number {
                if at >= due {
                    self.late.add(at - due);
                } else {
                    self.early.add(due - at);
                }
            }
        }
    }
}

/// Sends `load` into both ends of a link that should be `expected` each way. Returns the
/// arrivals at the other end, by direction. Keeps the calling thread's CPU busy.
pub fn measure(ends: [Port; 2], expected: [&LinkConfig; 2], load: Load) -> [Seen; 2] {
    let mut ends = ends;
    let started = clock(libc::CLOCK_MONOTONIC);
    let mut sides = expected.map(|config| Side::new(config, started, &load));
    let mut frames: Vec<Vec<u8>> = (0..load.burst).map(|_| frame(load.frame_bytes)).collect();
    let wire =
        (u64::from(load.frame_bytes)).saturating_add_signed(expected[0].framing_bytes.into());
    let bits = u128::from(wire * 8 * u64::from(load.burst)) * 1_000_000_000;
    let mut bursts = 0u64;
    loop {
        let now = clock(libc::CLOCK_MONOTONIC);
        let due = started + (u128::from(bursts) * bits / u128::from(load.rate_bits.max(1))) as u64;
        let over = now >= started + load.duration_ns;
        if !over && now >= due {
            for (side, port) in sides.iter_mut().zip(&ends) {
                side.send(port, &mut frames, started);
            }
            bursts += 1;
        }
        let [first, second] = &mut ends;
        let [forward, reverse] = &mut sides;
        let more = forward.receive(second, started) | reverse.receive(first, started);
        if over && !more && now >= started + load.duration_ns + LINGER_NS {
            break;
        }
    }
    let [first, second] = ends;
    let mut ports = [second, first].into_iter();
    sides.map(|side| Seen {
        late: side.late.summary(),
        early: side.early.summary(),
        missed: ports.next().map_or(0, |port| port.take_missed()),
        ..side.seen
    })
}

/// A link's configuration without its losses: the reference of [`measure`], when the load
/// is below the link's rate and the buffer holds the senders' bursts.
pub fn without_losses(config: &LinkConfig) -> LinkConfig {
    LinkConfig {
        buffer: Buffer::Bytes(u64::MAX / 2),
        loss: None,
        red: None,
        ..config.clone()
    }
}

fn frame(bytes: u32) -> Vec<u8> {
    let mut frame = vec![0; bytes.max(ETHERNET_HEADER + 8) as usize];
    frame[..6].copy_from_slice(&ADDRESS);
    frame[6..12].copy_from_slice(&ADDRESS);
    frame[12..14].copy_from_slice(&ETHERTYPE);
    frame
}
