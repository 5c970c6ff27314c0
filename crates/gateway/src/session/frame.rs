// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Format of a datagram: a head, and records one after the other (postcard: tags and integers of
//! one byte and more, LEB128). Every length is checked before it is used.

use serde::{Deserialize, Serialize};

/// Longest datagram that is read, bytes.
pub const MOST_DATAGRAM: usize = 9_000;
/// Longest target of a stream, bytes: a name of 255 bytes, a port, and their tags.
pub const MOST_TARGET: usize = 300;
/// Ranges of one report at most: with three bytes for each number they fill a datagram.
pub const MOST_RANGES: usize = 200;
/// Highest offset in a stream, bytes: at 100 Gbit/s it takes eleven years.
pub const MOST_OFFSET: u64 = 1 << 62;
/// Highest number of a stream; see [`MOST_OFFSET`].
pub const MOST_STREAM: u64 = 1 << 48;

/// A datagram that the peer must not send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Bytes that are no datagram.
    #[error("cannot decode a datagram: {0}")]
    Malformed(postcard::Error),
    /// Readable, but beyond a limit.
    #[error("{0} beyond its limit")]
    Beyond(&'static str),
    /// A report whose ranges do not fit its ends.
    #[error("a report contradicts itself")]
    Report,
}

/// The beginning of each datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Of this transmission. No two have the same; a retransmission has a new one.
    pub number: u64,
    /// The sender waits for reports of numbers from `number - open` on.
    pub open: u64,
}

/// Numbers that one side received.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// The reporter's clock, microseconds. Only differences count.
    pub clock: u64,
    /// One above the highest number received; 0: none yet.
    pub top: u64,
    /// Since `top` was received, microseconds.
    pub held: u64,
    /// Since anything at all was received, microseconds.
    pub quiet: u64,
    /// The reporter has forgotten which numbers below this arrived.
    pub known: u64,
    /// First number that the ranges are about.
    pub from: u64,
    /// Its end: not above `top`.
    pub to: u64,
    /// Missing in `from..to`: numbers received before the range, and its length.
    pub missing: Vec<(u64, u64)>,
    /// The latest arrival since the last report: its number, and `top` at that time.
    pub late: Option<(u64, u64)>,
    /// The reporter waits for nothing, and has nothing to send.
    pub idle: bool,
}

impl Report {
    /// The missing ranges, ascending.
    ///
    /// # Errors
    /// [`WireError::Report`].
    pub fn ranges(&self) -> Result<Vec<std::ops::Range<u64>>, WireError> {
        if self.missing.len() > MOST_RANGES {
            return Err(WireError::Beyond("ranges"));
        }
        let ends = self.from <= self.to && self.to <= self.top && self.known <= self.top;
        let mut at = self.from;
        let mut ranges = Vec::with_capacity(self.missing.len());
        for &(gap, length) in &self.missing {
            let start = at.checked_add(gap).ok_or(WireError::Report)?;
            at = start.checked_add(length).ok_or(WireError::Report)?;
            if length == 0 || at > self.to {
                return Err(WireError::Report);
            }
            ranges.push(start..at);
        }
        match ends {
            true => Ok(ranges),
            false => Err(WireError::Report),
        }
    }
}

/// A record of a datagram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record<'a> {
    /// Received numbers.
    Report(Report),
    /// A new stream.
    Open {
        /// Its number: even if the client of the session opens it.
        stream: u64,
        /// Its share of the rate beside others, from 1.
        weight: u8,
        /// Its target, opaque to the session.
        #[serde(borrow)]
        target: &'a [u8],
    },
    /// The target of a stream has answered.
    Accept {
        /// The stream.
        stream: u64,
    },
    /// Both directions of a stream end at once, whatever is under way.
    Reset {
        /// The stream.
        stream: u64,
        /// The reason, opaque to the session.
        reason: u8,
    },
    /// The peer may send in a stream up to this offset.
    Credit {
        /// The stream.
        stream: u64,
        /// Bytes from the stream's beginning.
        limit: u64,
    },
    /// The peer may open so many streams, from the session's beginning.
    Streams {
        /// Streams.
        limit: u64,
    },
    /// Bytes of a stream.
    Data {
        /// The stream.
        stream: u64,
        /// Of the first byte.
        offset: u64,
        /// The stream ends after them.
        fin: bool,
        /// May be none, with `fin`.
        #[serde(borrow, serialize_with = "at_once")]
        bytes: &'a [u8],
    },
    /// Counts of this side's connections that ended in order, from the session's beginning.
    Receipts(Receipts),
    /// Bytes of a stream to the datagram's end, which follow: a [`Record::Data`] without its
    /// length and without the stream's end. A full datagram is one, with three bytes more of data.
    Rest {
        /// The stream.
        stream: u64,
        /// Of the first byte.
        offset: u64,
    },
}

/// Writes bytes at once: serde writes a slice as a sequence, byte by byte. The format is the same.
fn at_once<S: serde::Serializer>(bytes: &&[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

/// Connections whose both directions ended in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipts {
    /// The host has acknowledged all of it, and its end.
    pub delivered: u64,
    /// Unknown: the host broke or fell silent before it had.
    pub unconfirmed: u64,
}

/// Bytes that [`Record::Data`] takes beside its own: tag, stream, offset, end, length.
pub fn data_overhead(stream: u64, offset: u64) -> usize {
    // Two bytes of length reach for 16,383 bytes, more than a datagram has.
    1 + varint(stream) + varint(offset) + 1 + 2
}

/// Bytes that [`Record::Rest`] takes.
pub fn rest_overhead(stream: u64, offset: u64) -> usize {
    1 + varint(stream) + varint(offset)
}

/// Bytes of an integer.
fn varint(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Writes a value at the end.
pub fn push<T: Serialize>(datagram: &mut Vec<u8>, value: &T) {
    let before = std::mem::take(datagram);
    *datagram = postcard::to_extend(value, before).expect("memory takes it");
}

/// Reads a datagram.
///
/// # Errors
/// [`WireError`]. None of it must be used then.
pub fn decode(datagram: &[u8]) -> Result<(Head, Vec<Record<'_>>), WireError> {
    if datagram.len() > MOST_DATAGRAM {
        return Err(WireError::Beyond("the datagram's length"));
    }
    let (head, mut rest) =
        postcard::take_from_bytes::<Head>(datagram).map_err(WireError::Malformed)?;
    if head.number > MOST_OFFSET || head.open > head.number {
        return Err(WireError::Beyond("a number"));
    }
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (mut record, mut after) =
            postcard::take_from_bytes::<Record>(rest).map_err(WireError::Malformed)?;
        if let Record::Rest { stream, offset } = record {
            record = Record::Data {
                stream,
                offset,
                fin: false,
                bytes: std::mem::take(&mut after),
            };
        }
        check(&record)?;
        records.push(record);
        rest = after;
    }
    Ok((head, records))
}

fn check(record: &Record) -> Result<(), WireError> {
    let stream = match record {
        Record::Report(report) => {
            report.ranges()?;
            0
        }
        Record::Open { stream, target, .. } => {
            if target.len() > MOST_TARGET {
                return Err(WireError::Beyond("a target"));
            }
            *stream
        }
        Record::Data {
            stream,
            offset,
            bytes,
            ..
        } => {
            if *offset > MOST_OFFSET - bytes.len() as u64 {
                return Err(WireError::Beyond("an offset"));
            }
            *stream
        }
        Record::Accept { stream }
        | Record::Reset { stream, .. }
        | Record::Credit { stream, .. } => *stream,
        // The last one is a [`Record::Data`] by now.
        Record::Streams { .. } | Record::Receipts(_) | Record::Rest { .. } => 0,
    };
    match stream <= MOST_STREAM {
        true => Ok(()),
        false => Err(WireError::Beyond("a stream")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_overhead_of_data_is_what_it_takes() {
        for (stream, offset) in [
            (0, 0),
            (127, 128),
            (16_384, 1 << 40),
            (MOST_STREAM, MOST_OFFSET / 2),
        ] {
            let bytes = [7; 1_000];
            let mut datagram = Vec::new();
            let fin = true;
            push(
                &mut datagram,
                &Record::Data {
                    stream,
                    offset,
                    fin,
                    bytes: &bytes,
                },
            );
            assert_eq!(datagram.len(), bytes.len() + data_overhead(stream, offset));
        }
    }

    #[test]
    fn a_rest_record_extends_to_the_end_of_the_datagram() {
        for (stream, offset) in [(0, 0), (300, 1 << 40)] {
            let mut datagram = Vec::new();
            push(&mut datagram, &Head { number: 3, open: 1 });
            push(&mut datagram, &Record::Accept { stream: 7 });
            let before = datagram.len();
            push(&mut datagram, &Record::Rest { stream, offset });
            assert_eq!(datagram.len() - before, rest_overhead(stream, offset));
            let bytes = &[9; 100][..];
            datagram.extend_from_slice(bytes);
            let (_, records) = decode(&datagram).expect("a datagram");
            let fin = false;
            let data = Record::Data {
                stream,
                offset,
                fin,
                bytes,
            };
            assert_eq!(records, [Record::Accept { stream: 7 }, data]);
        }
        let to_the_end = |offset, length| {
            let stream = 0;
            let mut datagram = Vec::new();
            push(&mut datagram, &Head { number: 3, open: 1 });
            push(&mut datagram, &Record::Rest { stream, offset });
            datagram.resize(length, 1);
            datagram
        };
        let beyond = to_the_end(MOST_OFFSET, 20);
        assert_eq!(decode(&beyond), Err(WireError::Beyond("an offset")));
        crate::session::fuzz_datagram(&to_the_end(0, MOST_DATAGRAM));
    }

    #[test]
    fn a_report_that_contradicts_itself_is_none() {
        let report = |missing: &[(u64, u64)], to| Report {
            top: 10,
            to,
            missing: missing.to_vec(),
            ..Report::default()
        };
        assert_eq!(report(&[(1, 2), (3, 1)], 10).ranges(), Ok(vec![1..3, 6..7]));
        for wrong in [
            report(&[(1, 0)], 10),
            report(&[(9, 2)], 10),
            report(&[], 11),
            report(&[(u64::MAX, 2)], 10),
            report(&[(1, u64::MAX)], 10),
        ] {
            assert_eq!(wrong.ranges(), Err(WireError::Report), "{wrong:?}");
        }
        let many = report(&vec![(0, 1); MOST_RANGES + 1], 10);
        assert_eq!(many.ranges(), Err(WireError::Beyond("ranges")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error_or_a_datagram(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            crate::session::fuzz_datagram(&bytes);
        }
    }
}
