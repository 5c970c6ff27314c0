// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One direction between two ports: the link's arithmetic, the frames' memory and
//! the recording.

use std::collections::VecDeque;

use crate::capture::{Point, Tap};
use crate::codel::Verdict;
use crate::ecn;
use crate::link::{Cause, Delivered, Link};
use crate::observe::Observe;
use crate::port::{Received, SEND_BATCH};
use crate::realtime::clock;
use crate::statistics::{Bins, DirectionReport, Drop, Histogram, Recent};
use crate::{Buffer, Change, LinkConfig, Port};

/// Frames allocated before the start, at most.
const MOST_PREALLOCATED: usize = 1 << 15;

struct Frame {
    slot: Box<[u8]>,
    length: usize,
}

impl Frame {
    fn bytes(&self) -> &[u8] {
        &self.slot[..self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.slot[..self.length]
    }
}

pub(crate) struct Path {
    link: Link<Frame>,
    frame_limit: u32,
    free: Vec<Box<[u8]>>,
    /// Being sent; kept for its allocation.
    due: VecDeque<Delivered<Frame>>,
    lateness: Histogram,
    recent: Recent,
    report: DirectionReport,
    started_ns: u64,
    most_drops: usize,
    tap: Option<Tap>,
}

impl Path {
    /// Allocates and touches the memory of a full link.
    pub fn new(config: LinkConfig, frame_limit: u32, observe: Observe, tap: Option<Tap>) -> Path {
        let bins = || Bins::new(observe.longest_ns, observe.bin_ns);
        let report = DirectionReport {
            offered_bins: bins(),
            offered_packet_bins: bins(),
            carried_bins: bins(),
            backlog_bins: bins(),
            drops: Vec::with_capacity(observe.most_drops),
            ..DirectionReport::default()
        };
        let free = (0..frames_inside(&config, frame_limit))
            .map(|_| {
                let mut slot = new_slot(frame_limit);
                slot.fill(1);
                slot
            })
            .collect();
        Path {
            link: Link::new(config, 0),
            frame_limit,
            free,
            due: VecDeque::with_capacity(SEND_BATCH),
            lateness: Histogram::new(),
            recent: Recent::new(),
            report,
            started_ns: 0,
            most_drops: observe.most_drops,
            tap,
        }
    }

    /// Starts the link's time.
    pub fn start(&mut self, now: u64) {
        self.started_ns = now;
        self.link = Link::new(self.link.config().clone(), now);
    }

    pub fn next_event(&self) -> Option<u64> {
        self.link.next_event()
    }

    pub fn delay_ns(&self) -> u64 {
        self.link.config().delay_ns
    }

    pub fn change(&mut self, now: u64, change: &Change) {
        self.link.change(now, change);
    }

    pub fn arrive(&mut self, packet: &Received<'_>, arrival: u64) {
        if packet.length > self.frame_limit {
            self.report.oversize += 1;
            return;
        }
        if packet.without_checksum {
            self.report.without_checksum += 1;
            return;
        }
        if let Some(tap) = &self.tap {
            tap.packet(Point::In, packet.realtime_ns, packet.length, packet.data);
        }
        let since_start = arrival.saturating_sub(self.started_ns);
        self.report.offered.add(packet.length);
        self.report.offered_bins.add(since_start, packet.length);
        self.report.offered_packet_bins.add(since_start, 1);
        let mut slot = self
            .free
            .pop()
            .unwrap_or_else(|| new_slot(self.frame_limit));
        let length = packet.data.len();
        slot[..length].copy_from_slice(packet.data);
        let frame = Frame { slot, length };
        let marks = self.link.config().codel.is_some_and(|codel| codel.ecn);
        let capable = marks && ecn::is_capable(frame.bytes());
        let arrived = self
            .link
            .arrive_capable(arrival, packet.length, capable, frame);
        if let Err((frame, cause)) = arrived {
            self.dropped(frame, packet.length, cause, since_start);
        }
        let backlog = self.link.backlog(arrival);
        self.report.backlog_bins.raise(since_start, backlog);
    }

    fn dropped(&mut self, frame: Frame, size: u32, cause: Cause, at_ns: u64) {
        let count = match cause {
            Cause::BufferFull => &mut self.report.dropped,
            Cause::Policer => &mut self.report.policed,
            Cause::Red | Cause::Codel => &mut self.report.dropped_early,
            Cause::Line => &mut self.report.lost,
        };
        count.add(size);
        if self.report.drops.len() < self.most_drops {
            self.report
                .drops
                .push(Drop::new(at_ns, cause, size, frame.bytes()));
        }
        self.free.push(frame.slot);
    }

    /// Sends everything through `port` that is due by `until`. CLOCK_REALTIME is ahead of
    /// the link's clock by `ahead`.
    pub fn send_due(&mut self, port: &Port, until: u64, ahead: u64) {
        loop {
            while self.due.len() < SEND_BATCH {
                let Some(mut delivered) = self.link.deliver(until) else {
                    break;
                };
                if delivered.verdict == Some(Verdict::Mark) {
                    self.report.marked.add(delivered.size);
                    ecn::mark(delivered.packet.bytes_mut());
                }
                match delivered.copies {
                    0 => {
                        let at = delivered.departure.saturating_sub(self.started_ns);
                        let cause = match delivered.verdict {
                            Some(Verdict::Drop) => Cause::Codel,
                            _ => Cause::Line,
                        };
                        self.dropped(delivered.packet, delivered.size, cause, at);
                    }
                    copies => {
                        if copies > 1 {
                            self.report.duplicated.add(delivered.size);
                            let twin = self.twin(&delivered);
                            self.due.push_back(twin);
                        }
                        self.due.push_back(delivered);
                    }
                }
            }
            if self.due.is_empty() {
                return;
            }
            let frames = self.due.iter().map(|due| due.packet.bytes());
            let Ok(sent) = port.send(frames) else {
                self.report.refused += 1;
                self.free
                    .extend(self.due.pop_front().map(|refused| refused.packet.slot));
                continue;
            };
            let now = clock(libc::CLOCK_MONOTONIC);
            for delivered in self.due.drain(..sent) {
                if let Some(tap) = &self.tap {
                    let bytes = delivered.packet.bytes();
                    tap.packet(Point::Out, delivered.due + ahead, delivered.size, bytes);
                }
                // A twin counts in neither: it was not offered.
                if delivered.copies > 0 {
                    let departure = delivered.departure.saturating_sub(self.started_ns);
                    self.report.carried.add(delivered.size);
                    self.report.carried_bins.add(departure, delivered.size);
                }
                let late = now.saturating_sub(delivered.due);
                self.lateness.add(late);
                self.recent.add(now, late);
                self.free.push(delivered.packet.slot);
            }
        }
    }

    /// A copy of a packet; as one, it has no copies.
    fn twin(&mut self, of: &Delivered<Frame>) -> Delivered<Frame> {
        let mut slot = self
            .free
            .pop()
            .unwrap_or_else(|| new_slot(self.frame_limit));
        let length = of.packet.length;
        slot[..length].copy_from_slice(of.packet.bytes());
        Delivered {
            packet: Frame { slot, length },
            copies: 0,
            ..*of
        }
    }

    pub fn report(&mut self, port: &Port) -> DirectionReport {
        self.report.missed += port.take_missed();
        DirectionReport {
            lateness: self.lateness.summary(),
            recent_lateness: self.recent.summary(clock(libc::CLOCK_MONOTONIC)),
            peak_backlog: self.link.peak_backlog(),
            in_flight: self.link.inside(),
            ..self.report.clone()
        }
    }
}

fn new_slot(frame_limit: u32) -> Box<[u8]> {
    vec![0; frame_limit as usize].into_boxed_slice()
}

/// How many full frames the buffer and the way to the far end hold.
fn frames_inside(config: &LinkConfig, frame_limit: u32) -> usize {
    let frame = u64::from(frame_limit);
    let on_the_way = config.mean_rate_bits() * config.delay_ns as f64 / 8e9;
    let waiting = match config.buffer {
        Buffer::Bytes(bytes) => bytes / frame,
        Buffer::Packets(packets) => packets,
    };
    let frames = (on_the_way as u64 / frame)
        .saturating_add(waiting)
        .saturating_add(1);
    usize::try_from(frames).map_or(MOST_PREALLOCATED, |frames| frames.min(MOST_PREALLOCATED))
}
