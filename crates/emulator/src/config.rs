// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of one direction of a link.

use std::sync::Arc;

use crate::trace::Trace;
use crate::EmulatorError;

/// Bytes that each Ethernet frame takes on the wire beside its header and
/// payload: preamble and start delimiter 8, FCS 4, inter-frame gap 12.
pub const ETHERNET_FRAMING: i32 = 24;

/// One direction of a link. A packet passes, in this order: a policer and the buffer, either of
/// which may drop it; CoDel at the head of the buffer, which may drop or mark it; the line,
/// which takes its time, and on which it may be lost; the delay; a copy of it.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// How fast it sends.
    pub line: Line,
    /// Bytes added to each frame for its time on the line, not for its place
    /// in the buffer. [`ETHERNET_FRAMING`] unless there is a reason; negative where
    /// a trace does not count all of the Ethernet header.
    pub framing_bytes: i32,
    /// One-way propagation delay, nanoseconds.
    pub delay_ns: u64,
    /// Jitter of the delay.
    pub jitter: Option<Jitter>,
    /// The policer in front of the buffer.
    pub policer: Option<Policer>,
    /// Room in front of the line.
    pub buffer: Buffer,
    /// Random early detection in that buffer.
    pub red: Option<Red>,
    /// CoDel in that buffer.
    pub codel: Option<Codel>,
    /// Loss on the line.
    pub loss: Option<Loss>,
    /// Packets that are overtaken.
    pub reorder: Option<Reorder>,
    /// Packets behind the line and its delay are held for so long, from the first packet on,
    /// and then arrive together, nanoseconds; 0: none are held.
    pub slot_ns: u64,
    /// Share of packets that arrive twice, 0 to 1.
    pub duplicate: f64,
    /// Changes at fixed times, in ascending order of time.
    pub steps: Vec<Step>,
    /// Of everything that is random. Each impairment has a sequence of its own, so
    /// that one more does not change the others.
    pub seed: u64,
}

/// How fast a direction sends.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// Bits per second, framing included.
    Rate(u64),
    /// A packet's worth of bytes at recorded moments, over and over.
    Trace(Arc<Trace>),
}

/// The drop-tail limit. A frame counts until its last bit has left, as in Linux's
/// token bucket filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// Bytes of frames, Ethernet header included, framing not.
    Bytes(u64),
    /// Frames of any size.
    Packets(u64),
}

/// Difference of a packet's delay from the link's. Packets keep their order: one that would
/// overtake arrives together with the one before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// Evenly between less and more by so many nanoseconds; not above the delay.
    Uniform {
        /// Half the width.
        most_ns: u64,
    },
    /// Normally, with this standard deviation in nanoseconds; never below no delay.
    Normal {
        /// Standard deviation.
        deviation_ns: u64,
    },
}

/// A token bucket without a queue: packets without tokens are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policer {
    /// At which it fills, bits per second, framing included.
    pub rate_bits: u64,
    /// Most that it holds, bytes; full at the start.
    pub burst_bytes: u64,
}

/// Random early detection (Floyd and Jacobson 1993; `gentle`: Floyd 2000).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Red {
    /// Average backlog from which packets are dropped now and then, bytes.
    pub least_bytes: u64,
    /// Average backlog at which `probability` is reached, bytes.
    pub most_bytes: u64,
    /// Share that is dropped there, above 0 to 1.
    pub probability: f64,
    /// Weight of one arrival in the average, above 0 to 1; ns takes 0.002.
    pub weight: f64,
    /// Beyond `most_bytes` the share rises to 1 at twice that, instead of at once.
    pub gentle: bool,
}

/// CoDel (RFC 8289).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codel {
    /// Longest wait that is no congestion if it lasts, nanoseconds; the RFC advises 5 ms.
    pub target_ns: u64,
    /// How long it may last, nanoseconds: about the longest RTT; the RFC advises 100 ms.
    pub interval_ns: u64,
    /// Packets of ECN-capable transports are marked (RFC 3168), not dropped.
    pub ecn: bool,
}

/// Loss on the line: a lost packet has used its buffer space and its time on the line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Each packet by itself.
    Random {
        /// Share that is lost, 0 to 1.
        share: f64,
    },
    /// Gilbert and Elliott: two states, which change from packet to packet.
    Bursts {
        /// Chance that a packet finds the line turned bad, 0 to 1.
        to_bad: f64,
        /// Chance that one finds it good again, above 0 to 1.
        to_good: f64,
        /// Share that is lost while it is good, 0 to 1.
        good: f64,
        /// Share that is lost while it is bad, 0 to 1.
        bad: f64,
    },
}

/// Packets that those behind them overtake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Share, 0 to 1.
    pub share: f64,
    /// How much later they arrive, nanoseconds.
    pub by_ns: u64,
}

/// Something that changes at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Since the link's start, nanoseconds.
    pub at_ns: u64,
    /// The change.
    pub change: Change,
}

/// A change while a link runs. `None` leaves a value unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Change {
    /// Bits per second; not of a trace.
    pub rate_bits: Option<u64>,
    /// One-way delay, nanoseconds.
    pub delay_ns: Option<u64>,
    /// The drop-tail limit. Packets beyond a smaller one stay.
    pub buffer: Option<Buffer>,
    /// Loss on the line.
    pub loss: Option<Loss>,
    /// All packets in the buffer, on the line or in propagation are lost.
    pub cut: bool,
    /// For so long from now on the line begins to send nothing, nanoseconds.
    pub outage_ns: Option<u64>,
}

impl LinkConfig {
    /// A line of `rate_bits` bits per second over Ethernet, `delay_ns` nanoseconds
    /// long, behind `buffer`, without impairments.
    pub fn new(rate_bits: u64, delay_ns: u64, buffer: Buffer) -> Self {
        LinkConfig {
            line: Line::Rate(rate_bits),
            framing_bytes: ETHERNET_FRAMING,
            delay_ns,
            jitter: None,
            policer: None,
            buffer,
            red: None,
            codel: None,
            loss: None,
            reorder: None,
            slot_ns: 0,
            duplicate: 0.0,
            steps: Vec::new(),
            seed: 1,
        }
    }

    /// Mean rate of the line, bits per second.
    pub fn mean_rate_bits(&self) -> f64 {
        match &self.line {
            Line::Rate(rate) => *rate as f64,
            Line::Trace(trace) => trace.mean_rate_bits(),
        }
    }

    /// Refuses an impossible line, for frames of up to `frame_bytes`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, frame_bytes: u32) -> Result<(), EmulatorError> {
        if self.line == Line::Rate(0) {
            return Err(EmulatorError::NoRate);
        }
        if i64::from(frame_bytes) + i64::from(self.framing_bytes) <= 0 {
            return Err(EmulatorError::Range {
                what: "framing",
                range: "less than the size of a frame",
            });
        }
        self.buffer.check(frame_bytes)?;
        if let Some(policer) = &self.policer {
            policer.check(frame_bytes, self.framing_bytes)?;
        }
        if let Some(red) = &self.red {
            red.check()?;
        }
        if let Some(codel) = &self.codel {
            codel.check()?;
        }
        if let Some(loss) = &self.loss {
            loss.check()?;
        }
        if let Some(Jitter::Uniform { most_ns }) = self.jitter {
            if most_ns > self.delay_ns {
                return Err(EmulatorError::Range {
                    what: "jitter",
                    range: "at most the delay",
                });
            }
        }
        if let Some(reorder) = &self.reorder {
            share("reorder", reorder.share)?;
        }
        share("duplicate", self.duplicate)?;
        if !self.steps.is_sorted_by_key(|step| step.at_ns) {
            return Err(EmulatorError::Range {
                what: "steps",
                range: "in ascending order of time",
            });
        }
        self.steps
            .iter()
            .try_for_each(|step| self.check_change(&step.change, frame_bytes))
    }

    /// Refuses a change that this line cannot make.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check_change(&self, change: &Change, frame_bytes: u32) -> Result<(), EmulatorError> {
        if change.rate_bits == Some(0) {
            return Err(EmulatorError::NoRate);
        }
        if change.rate_bits.is_some() && matches!(self.line, Line::Trace(_)) {
            return Err(EmulatorError::RateOfTrace);
        }
        if let Some(buffer) = change.buffer {
            buffer.check(frame_bytes)?;
        }
        change.loss.map_or(Ok(()), |loss| loss.check())
    }
}

impl Buffer {
    fn check(self, frame_bytes: u32) -> Result<(), EmulatorError> {
        match self {
            Buffer::Bytes(buffer_bytes) if buffer_bytes < u64::from(frame_bytes) => {
                Err(EmulatorError::BufferTooSmall {
                    buffer_bytes,
                    frame_bytes,
                })
            }
            Buffer::Packets(0) => Err(EmulatorError::Range {
                what: "buffer",
                range: "at least 1 packet",
            }),
            _ => Ok(()),
        }
    }
}

impl Policer {
    fn check(&self, frame_bytes: u32, framing_bytes: i32) -> Result<(), EmulatorError> {
        if self.rate_bits == 0 {
            return Err(EmulatorError::NoRate);
        }
        let frame = u64::from(frame_bytes).saturating_add_signed(framing_bytes.into());
        if self.burst_bytes < frame {
            return Err(EmulatorError::Range {
                what: "a policer's burst",
                range: "at least one full frame with its framing",
            });
        }
        Ok(())
    }
}

impl Red {
    fn check(&self) -> Result<(), EmulatorError> {
        if self.least_bytes >= self.most_bytes {
            return Err(EmulatorError::Range {
                what: "red",
                range: "a lower threshold that is below the upper one",
            });
        }
        above_none("red's probability", self.probability)?;
        above_none("red's weight", self.weight)
    }
}

impl Codel {
    fn check(&self) -> Result<(), EmulatorError> {
        if self.target_ns == 0 || self.target_ns >= self.interval_ns {
            return Err(EmulatorError::Range {
                what: "codel",
                range: "a target above 0 and below its interval",
            });
        }
        Ok(())
    }
}

impl Loss {
    fn check(&self) -> Result<(), EmulatorError> {
        match *self {
            Loss::Random { share: lost } => share("loss", lost),
            Loss::Bursts {
                to_bad,
                to_good,
                good,
                bad,
            } => {
                above_none("loss.to_good", to_good)?;
                [to_bad, good, bad]
                    .into_iter()
                    .try_for_each(|value| share("loss", value))
            }
        }
    }
}

fn share(what: &'static str, value: f64) -> Result<(), EmulatorError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(EmulatorError::Range {
        what,
        range: "a share from 0 % to 100 %",
    })
}

fn above_none(what: &'static str, value: f64) -> Result<(), EmulatorError> {
    if value > 0.0 && value <= 1.0 {
        return Ok(());
    }
    Err(EmulatorError::Range {
        what,
        range: "a share above 0 %, at most 100 %",
    })
}
