// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two sessions, the programs that use them, and the link between them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use paceline_gateway::session::{Event, Nanos, Session, Settings, Side, MS, SECOND};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::link::{Link, Path};

/// Bytes after which the pattern begins again.
const PERIOD: usize = 65_521;

/// Bytes of a stream from an offset on: a wrong order or a wrong stream is seen.
fn pattern(stream: u64, offset: u64, length: usize) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let once: Vec<u8> = (0..PERIOD).map(|_| random.random()).collect();
        once.repeat(3)
    });
    let start = ((offset + stream * 977) % PERIOD as u64) as usize;
    &bytes[start..start + length]
}

/// A stream that the client writes, and the server reads.
pub struct Flow {
    pub written: u64,
    pub want: u64,
    pub read: u64,
    /// The server reads it.
    pub is_read: bool,
    /// Bytes read in each 10 ms.
    pub bins: BTreeMap<u64, u64>,
    pub has_ended: bool,
    pub was_reset: bool,
    /// When the last byte was read.
    pub done_at: Option<Nanos>,
}

pub struct World {
    pub now: Nanos,
    pub client: Session,
    pub server: Session,
    pub forth: Link,
    pub back: Link,
    pub flows: BTreeMap<u64, Flow>,
    pub events: Vec<(Nanos, Side, Event)>,
    /// The server's host sleeps, and its clock stands still. What comes meanwhile is lost.
    pub sleep: Range<Nanos>,
    /// Timers of the client's host go off at multiples of this; 0: at any time. It also sends
    /// when a datagram comes.
    pub tick: Nanos,
    /// Longest datagram that a side may send, bytes.
    longest: usize,
    scratch: Vec<u8>,
}

impl World {
    pub fn new(path: &Path, settings: &Settings, seed: u64) -> Self {
        Self::between(path, path, settings, seed)
    }

    /// The two directions differ.
    pub fn between(forth: &Path, back: &Path, settings: &Settings, seed: u64) -> Self {
        let side = |side| Settings {
            side,
            ..settings.clone()
        };
        Self {
            now: 0,
            client: Session::new(0, side(Side::Client)),
            server: Session::new(0, side(Side::Server)),
            forth: Link::new(forth.clone(), settings.overhead, seed),
            back: Link::new(back.clone(), settings.overhead, seed + 1),
            flows: BTreeMap::new(),
            events: Vec::new(),
            sleep: Nanos::MAX..Nanos::MAX,
            tick: 0,
            longest: settings.datagram,
            scratch: Vec::new(),
        }
    }

    /// A stream that has nothing to send yet.
    pub fn idle(&mut self) -> u64 {
        let stream = self.client.open(b"target", 1).expect("one more");
        self.add(stream, u64::MAX);
        stream
    }

    /// A stream with so many bytes, and then its end.
    pub fn flow(&mut self, want: u64, weight: u8) -> u64 {
        let stream = self.client.open(b"target", weight).expect("one more");
        self.add(stream, want);
        self.write(stream);
        stream
    }

    fn add(&mut self, stream: u64, want: u64) {
        let flow = Flow {
            written: 0,
            want,
            read: 0,
            is_read: true,
            bins: BTreeMap::new(),
            has_ended: false,
            was_reset: false,
            done_at: None,
        };
        self.flows.insert(stream, flow);
    }

    pub fn write(&mut self, stream: u64) {
        let Some(flow) = self.flows.get_mut(&stream) else {
            return;
        };
        while flow.written < flow.want {
            let most = (flow.want - flow.written).min(16 << 10);
            let bytes = pattern(stream, flow.written, most as usize);
            let count = self.client.write(stream, bytes) as u64;
            flow.written += count;
            if count < most {
                return;
            }
        }
        self.client.finish(stream);
    }

    pub fn read(&mut self, stream: u64) {
        let Some(flow) = self.flows.get_mut(&stream) else {
            return;
        };
        if !flow.is_read {
            return;
        }
        loop {
            self.scratch.clear();
            let Some(count) = self.server.read(stream, 64 << 10, &mut self.scratch) else {
                if self.server_knows(stream) {
                    self.flows.get_mut(&stream).expect("ours").has_ended = true;
                    self.server.finish(stream);
                    self.server.consume(self.server_now(), stream, 0);
                }
                return;
            };
            if count == 0 {
                return;
            }
            let flow = self.flows.get_mut(&stream).expect("ours");
            let right = self.scratch == pattern(stream, flow.read, count);
            assert!(right, "stream {stream}, bytes from {} on", flow.read);
            flow.read += count as u64;
            *flow.bins.entry(self.now / (10 * MS)).or_default() += count as u64;
            if flow.read == flow.want {
                flow.done_at = Some(self.now);
            }
            self.server.consume(self.server_now(), stream, count as u64);
        }
    }

    /// Programs that begin at once, in turns of 16 KiB, as relays read their sockets.
    pub fn write_in_turn(&mut self, streams: &[u64]) {
        let mut left = streams.to_vec();
        while !left.is_empty() {
            left.retain(|&stream| self.write_piece(stream));
        }
    }

    /// Whether all of it was taken, and there is more.
    fn write_piece(&mut self, stream: u64) -> bool {
        let Some(flow) = self.flows.get_mut(&stream) else {
            return false;
        };
        let most = (flow.want - flow.written).min(16 << 10);
        let bytes = pattern(stream, flow.written, most as usize);
        let count = self.client.write(stream, bytes) as u64;
        flow.written += count;
        if flow.written == flow.want {
            self.client.finish(stream);
        }
        count == most && flow.written < flow.want
    }

    fn server_knows(&self, stream: u64) -> bool {
        self.flows
            .get(&stream)
            .is_some_and(|flow| flow.read == flow.want)
    }

    fn is_asleep(&self) -> bool {
        self.sleep.contains(&self.now)
    }

    /// The server's clock.
    fn server_now(&self) -> Nanos {
        let slept = self.now.clamp(self.sleep.start, self.sleep.end) - self.sleep.start;
        self.now - slept
    }

    /// When the client's timer goes off.
    fn client_next(&self) -> Nanos {
        let next = self.client.next_time();
        match self.tick {
            0 => next,
            tick => next
                .max(self.now)
                .checked_next_multiple_of(tick)
                .unwrap_or(next),
        }
    }

    /// When the server has something next, by the world's time.
    fn server_next(&self) -> Nanos {
        let next = self.server.next_time();
        match next < self.sleep.start {
            true => next,
            false => next.saturating_add(self.sleep.end - self.sleep.start),
        }
    }

    /// Until this time, or until nothing is left to do.
    pub fn run_until(&mut self, end: Nanos) {
        let mut datagram = Vec::new();
        let mut has_arrival = true;
        loop {
            let is_awake = has_arrival || self.tick == 0 || self.now.is_multiple_of(self.tick);
            has_arrival = false;
            while is_awake && self.client.transmit(self.now, &mut datagram) {
                assert!(datagram.len() <= self.longest, "{} bytes", datagram.len());
                self.forth.send(self.now, &datagram);
            }
            let server_now = self.server_now();
            while !self.is_asleep() && self.server.transmit(server_now, &mut datagram) {
                self.back.send(self.now, &datagram);
            }
            while let Some(event) = self.client.event() {
                if let Event::Writable(stream) = event {
                    self.write(stream);
                }
                self.events.push((self.now, Side::Client, event));
            }
            while let Some(event) = self.server.event() {
                match &event {
                    Event::Readable(stream) => self.read(*stream),
                    Event::Reset { stream, .. } => {
                        if let Some(flow) = self.flows.get_mut(stream) {
                            flow.was_reset = true;
                        }
                    }
                    _ => {}
                }
                if !matches!(event, Event::Readable(_)) {
                    self.events.push((self.now, Side::Server, event));
                }
            }
            let next = [
                self.client_next(),
                self.server_next(),
                self.forth.next_arrival(),
                self.back.next_arrival(),
            ];
            let next = next.into_iter().min().expect("four");
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            let server_now = self.server_now();
            while let Some(datagram) = self.forth.arrival(self.now) {
                if self.is_asleep() {
                    continue;
                }
                self.server
                    .receive(server_now, &datagram)
                    .expect("an honest peer");
            }
            while let Some(datagram) = self.back.arrival(self.now) {
                has_arrival = true;
                self.client
                    .receive(self.now, &datagram)
                    .expect("an honest peer");
            }
        }
    }

    pub fn run_for(&mut self, time: Nanos) {
        self.run_until(self.now + time);
    }

    /// Bits per second that all flows got between two times.
    pub fn goodput(&self, from: Nanos, to: Nanos) -> f64 {
        let bins = from / (10 * MS)..to / (10 * MS);
        let bytes: u64 = self
            .flows
            .values()
            .flat_map(|flow| flow.bins.range(bins.clone()))
            .map(|(_, bytes)| bytes)
            .sum();
        bytes as f64 * 8.0 * SECOND as f64 / (to - from) as f64
    }

    /// First time not before `from` at which any flow got something, to 10 ms.
    pub fn first_after(&self, from: Nanos) -> Nanos {
        let first = |flow: &Flow| flow.bins.range(from / (10 * MS)..).next().map(|bin| *bin.0);
        let bin = self.flows.values().filter_map(first).min();
        (bin.expect("something") + 1) * 10 * MS
    }
}

/// Share of the rate on the wire that bytes of streams can have.
pub fn payload_share(settings: &Settings) -> f64 {
    // Head and record: some 12 bytes of a datagram.
    let bytes = settings.datagram - 12;
    bytes as f64 / (settings.datagram + settings.overhead) as f64
}
