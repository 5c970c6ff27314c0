// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One direction of a link as arithmetic: a drop-tail buffer in front of a
//! line with a rate and a delay.
//!
//! Nothing here reads a clock. A packet that arrives at `t` leaves the line at
//! `max(t, departure of the packet before it) + (size + framing) * 8 / rate`
//! and is due at the far end one delay later. Because every time is computed
//! from other computed times, a late caller makes single packets late and
//! never the packets after them.

use std::collections::VecDeque;

use crate::{Count, EmulatorError};

/// Bytes that each Ethernet frame takes on the wire beside its header and
/// payload: preamble and start delimiter 8, FCS 4, inter-frame gap 12.
pub const ETHERNET_FRAMING: u32 = 24;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What one direction of a link looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkConfig {
    /// Rate of the line in bits per second, framing included.
    pub rate_bits: u64,
    /// Bytes added to each frame for its time on the line, not for its place
    /// in the buffer. [`ETHERNET_FRAMING`] unless there is a reason.
    pub framing_bytes: u32,
    /// One-way propagation delay in nanoseconds.
    pub delay_ns: u64,
    /// Size of the drop-tail buffer in bytes of frames (Ethernet header
    /// included, framing not). A frame counts until its last bit has left, as
    /// in Linux's token bucket filter.
    pub buffer_bytes: u64,
}

impl LinkConfig {
    /// Refuses what no line can be: no rate, or a buffer that does not hold
    /// one frame of `frame_bytes`.
    pub fn check(&self, frame_bytes: u32) -> Result<(), EmulatorError> {
        if self.rate_bits == 0 {
            return Err(EmulatorError::NoRate);
        }
        if self.buffer_bytes < u64::from(frame_bytes) {
            return Err(EmulatorError::BufferTooSmall {
                buffer_bytes: self.buffer_bytes,
                frame_bytes,
            });
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Queued<T> {
    packet: T,
    size: u32,
    arrival: u64,
    departure: u64,
    delivery: u64,
}

/// When an accepted packet leaves the line and when it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// The last bit leaves the line, nanoseconds.
    pub departure: u64,
    /// The last bit reaches the far end, nanoseconds.
    pub delivery: u64,
}

/// A packet that has reached the far end.
#[derive(Debug, PartialEq, Eq)]
pub struct Delivered<T> {
    /// What was given to [`Link::arrive`].
    pub packet: T,
    /// Its size in bytes.
    pub size: u32,
    /// When its last bit left the line, nanoseconds.
    pub departure: u64,
    /// When it was due, nanoseconds. Never after the time that was asked for.
    pub due: u64,
}

/// One direction of a link. Times are nanoseconds since any fixed moment.
#[derive(Debug)]
pub struct Link<T> {
    config: LinkConfig,
    queue: VecDeque<Queued<T>>,
    /// How many at the front of `queue` have left the line.
    departed: usize,
    backlog: u64,
    peak_backlog: u64,
    last_departure: u64,
    /// What division by the rate left over, so that rounding never adds up.
    remainder: u64,
    now: u64,
}

impl<T> Link<T> {
    /// An empty link.
    pub fn new(config: LinkConfig) -> Self {
        Link {
            config,
            queue: VecDeque::new(),
            departed: 0,
            backlog: 0,
            peak_backlog: 0,
            last_departure: 0,
            remainder: 0,
            now: 0,
        }
    }

    /// What the link looks like now.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What is in the buffer or on its way.
    pub fn inside(&self) -> Count {
        Count {
            packets: self.queue.len() as u64,
            bytes: self.queue.iter().map(|queued| u64::from(queued.size)).sum(),
        }
    }

    /// The most bytes the buffer ever held.
    pub fn peak_backlog(&self) -> u64 {
        self.peak_backlog
    }

    /// Bytes in the buffer at `now`.
    pub fn backlog(&mut self, now: u64) -> u64 {
        self.advance(now);
        self.backlog
    }

    /// A packet of `size` bytes arrives. When the buffer has no room for it,
    /// it is handed back: dropped. A time before the last one counts as the
    /// last one.
    pub fn arrive(&mut self, now: u64, size: u32, packet: T) -> Result<Schedule, T> {
        self.advance(now);
        let arrival = self.now;
        if self.backlog + u64::from(size) > self.config.buffer_bytes {
            return Err(packet);
        }
        self.backlog += u64::from(size);
        self.peak_backlog = self.peak_backlog.max(self.backlog);
        let departure = self.depart(arrival, size);
        let delivery =
            self.deliver_at(departure, self.queue.back().map_or(0, |last| last.delivery));
        self.queue.push_back(Queued {
            packet,
            size,
            arrival,
            departure,
            delivery,
        });
        Ok(Schedule {
            departure,
            delivery,
        })
    }

    /// When the next packet is due.
    pub fn next_delivery(&self) -> Option<u64> {
        self.queue.front().map(|first| first.delivery)
    }

    /// The next packet, if it is due at `now`.
    pub fn deliver(&mut self, now: u64) -> Option<Delivered<T>> {
        if self.next_delivery()? > now {
            return None;
        }
        self.advance(now);
        let first = self.queue.pop_front()?;
        self.departed -= 1;
        Some(Delivered {
            packet: first.packet,
            size: first.size,
            departure: first.departure,
            due: first.delivery,
        })
    }

    /// Another rate or delay from `now` on. The frame on the line keeps its
    /// rate, those behind it take the new one. A shorter delay overtakes
    /// nothing: order is kept.
    pub fn change(&mut self, now: u64, rate_bits: Option<u64>, delay_ns: Option<u64>) {
        self.advance(now);
        self.config.rate_bits = rate_bits.unwrap_or(self.config.rate_bits);
        self.config.delay_ns = delay_ns.unwrap_or(self.config.delay_ns);
        self.remainder = 0;
        let mut delivery = match self.departed {
            0 => 0,
            n => self.queue[n - 1].delivery,
        };
        for at in self.departed..self.queue.len() {
            if at == self.departed {
                self.last_departure = self.queue[at].departure;
            } else {
                let (arrival, size) = (self.queue[at].arrival, self.queue[at].size);
                self.queue[at].departure = self.depart(arrival, size);
            }
            delivery = self.deliver_at(self.queue[at].departure, delivery);
            self.queue[at].delivery = delivery;
        }
    }

    fn deliver_at(&self, departure: u64, before: u64) -> u64 {
        (departure + self.config.delay_ns).max(before)
    }

    fn depart(&mut self, arrival: u64, size: u32) -> u64 {
        if arrival > self.last_departure {
            self.remainder = 0;
        }
        let start = arrival.max(self.last_departure);
        let bits = (u64::from(size) + u64::from(self.config.framing_bytes)) * 8;
        let work = u128::from(bits) * u128::from(NANOS_PER_SECOND) + u128::from(self.remainder);
        let rate = u128::from(self.config.rate_bits);
        self.remainder = (work % rate) as u64;
        self.last_departure = start + (work / rate) as u64;
        self.last_departure
    }

    fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        while let Some(next) = self.queue.get(self.departed) {
            if next.departure > self.now {
                break;
            }
            self.backlog -= u64::from(next.size);
            self.departed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn link(rate_bits: u64, delay_ns: u64, buffer_bytes: u64) -> Link<u32> {
        Link::new(LinkConfig {
            rate_bits,
            framing_bytes: ETHERNET_FRAMING,
            delay_ns,
            buffer_bytes,
        })
    }

    #[test]
    fn one_frame_takes_its_time_on_the_line_and_the_delay() {
        let mut link = link(500_000_000, 10 * MS, 131_072);
        let got = link.arrive(1_000, 1_514, 0).unwrap();
        // 1538 bytes at 500 Mbit/s are 24,608 ns.
        assert_eq!(
            got,
            Schedule {
                departure: 25_608,
                delivery: 10_025_608
            }
        );
        assert_eq!(link.deliver(10_025_607), None);
        assert_eq!(
            link.deliver(10_025_608),
            Some(Delivered {
                packet: 0,
                size: 1_514,
                departure: 25_608,
                due: 10_025_608
            })
        );
    }

    #[test]
    fn back_to_back_frames_queue_and_an_idle_line_starts_at_once() {
        let mut link = link(1_000_000_000, 0, 1 << 20);
        assert_eq!(link.arrive(0, 101, 0).unwrap().departure, 1_000);
        assert_eq!(link.arrive(0, 101, 1).unwrap().departure, 2_000);
        assert_eq!(link.arrive(5_000, 101, 2).unwrap().departure, 6_000);
    }

    #[test]
    fn rounding_does_not_add_up() {
        // 125 bytes at 3 bit/ns: 1000/3 ns each, so every third lands on a whole one.
        let mut link = link(3_000_000_000, 0, 1 << 30);
        let last = (0..30_000)
            .map(|n| link.arrive(0, 101, n).unwrap().departure)
            .last();
        assert_eq!(last, Some(10_000_000));
    }

    #[test]
    fn the_buffer_drops_the_frame_that_does_not_fit_and_no_other() {
        let mut link = link(8_000_000, 0, 3_000);
        assert!(link.arrive(0, 1_000, 0).is_ok());
        assert!(link.arrive(0, 1_000, 1).is_ok());
        assert_eq!(link.arrive(0, 1_001, 2), Err(2));
        assert!(link.arrive(0, 1_000, 3).is_ok());
        assert_eq!(link.arrive(0, 1, 4), Err(4));
        // The first leaves after 1,024 us: then there is room for one more.
        assert_eq!(link.arrive(1_023_999, 1_000, 5), Err(5));
        assert!(link.arrive(1_024_000, 1_000, 6).is_ok());
        assert_eq!(link.peak_backlog(), 3_000);
    }

    #[test]
    fn half_the_rate_from_the_second_frame_on() {
        let mut link = link(1_000_000_000, 0, 1 << 20);
        for n in 0..3 {
            link.arrive(0, 101, n).unwrap();
        }
        link.change(500, Some(500_000_000), None);
        let due: Vec<u64> =
            std::iter::from_fn(|| link.deliver(u64::MAX).map(|packet| packet.due)).collect();
        assert_eq!(due, [1_000, 3_000, 5_000]);
    }

    #[test]
    fn a_shorter_delay_keeps_the_order() {
        let mut link = link(1_000_000_000, 10_000, 1 << 20);
        link.arrive(0, 101, 0).unwrap();
        link.arrive(0, 101, 1).unwrap();
        link.change(1_500, None, Some(100));
        assert_eq!(link.arrive(9_000, 101, 2).unwrap().delivery, 11_000);
        let due: Vec<u64> =
            std::iter::from_fn(|| link.deliver(u64::MAX).map(|packet| packet.due)).collect();
        assert_eq!(due, [11_000, 11_000, 11_000]);
    }

    #[test]
    fn what_is_no_line_is_refused() {
        let config = *link(0, 0, 131_072).config();
        assert!(matches!(config.check(1_514), Err(EmulatorError::NoRate)));
        let config = *link(1, 0, 1_513).config();
        assert!(matches!(
            config.check(1_514),
            Err(EmulatorError::BufferTooSmall { .. })
        ));
    }
}
