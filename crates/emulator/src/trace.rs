// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rate traces in mahimahi's format: one moment per line, in whole milliseconds, at
//! each of which the line takes up to 1504 bytes; a moment may be named often. After
//! the last one the trace begins anew.
//!
//! mahimahi counts an IP packet and the four bytes that its TUN device puts before it,
//! so a frame counts with [`FRAMING`] bytes more than it has. The rest of an opportunity
//! is for the next packet, if that is waiting; else it is lost.

use crate::EmulatorError;

/// Bytes that one opportunity takes: mahimahi's PACKET_SIZE.
pub const OPPORTUNITY_BYTES: u32 = 1504;

/// Bytes to add to an Ethernet frame so that it counts as in mahimahi: the header of
/// the TUN device, 4, in place of Ethernet's, 14.
pub const FRAMING: i32 = 4 - 14;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// Longest trace, nanoseconds: a day. A longer one was not meant in milliseconds.
const LONGEST_NS: u64 = 86_400_000 * NANOS_PER_MILLI;

/// The moments at which something may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Since its beginning, nanoseconds, rising.
    moments: Vec<u64>,
    /// After this it begins anew, nanoseconds.
    period: u64,
}

impl Trace {
    /// Reads the lines of a file called `name`.
    ///
    /// # Errors
    /// With the line's number, when one is not a whole number of milliseconds or
    /// below the one before it, or when there is none above 0.
    pub fn parse(text: &str, name: &str) -> Result<Self, EmulatorError> {
        let mut moments: Vec<u64> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |problem| EmulatorError::Trace {
                file: name.to_owned(),
                line: number,
                problem,
            };
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let moment = line
                .parse::<u64>()
                .ok()
                .and_then(|millis| millis.checked_mul(NANOS_PER_MILLI))
                .ok_or_else(|| wrong("not a whole number of milliseconds"))?;
            if moment > LONGEST_NS {
                return Err(wrong("more than a day: a line is a time in milliseconds"));
            }
            if moments.last().is_some_and(|last| *last > moment) {
                return Err(wrong("earlier than the line before it"));
            }
            moments.push(moment);
        }
        match moments.last() {
            Some(&period) if period > 0 => Ok(Trace { moments, period }),
            _ => Err(EmulatorError::Trace {
                file: name.to_owned(),
                line: text.lines().count().max(1),
                problem: "no time after 0: a trace lists the times at which a packet may leave, in milliseconds",
            }),
        }
    }

    /// Mean rate, bits per second of packets as the trace counts them.
    pub fn mean_rate_bits(&self) -> f64 {
        let bits = self.moments.len() as f64 * f64::from(OPPORTUNITY_BYTES) * 8.0;
        bits / (self.period as f64 / 1e9)
    }

    /// The moment of opportunity `index`, counted from the beginning.
    fn moment(&self, index: u64) -> u64 {
        let count = self.moments.len() as u64;
        // Far beyond any run a packet leaves at the end of time.
        (index / count)
            .saturating_mul(self.period)
            .saturating_add(self.moments[(index % count) as usize])
    }

    /// The first opportunity that is not before `at`.
    fn first_from(&self, at: u64) -> u64 {
        let count = self.moments.len() as u64;
        let (round, within) = (at / self.period, at % self.period);
        // The end of one round is the beginning of the next.
        if within == 0 && round > 0 {
            let last = self.moments.partition_point(|moment| *moment < self.period) as u64;
            return (round - 1) * count + last;
        }
        round * count + self.moments.partition_point(|moment| *moment < within) as u64
    }
}

/// How far a line is in its trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The next unused opportunity.
    next: u64,
    /// Bytes left of the one before it.
    left: u32,
    /// When that was, nanoseconds.
    at: u64,
}

impl Position {
    /// Drops the rest of an opportunity; nothing leaves before `from`.
    pub fn skip_to(&mut self, trace: &Trace, from: u64) {
        self.left = 0;
        self.next = self.next.max(trace.first_from(from));
    }

    /// `bytes` that were ready at `ready` leave: when.
    pub fn depart(&mut self, trace: &Trace, ready: u64, bytes: u32) -> u64 {
        if ready > self.at {
            self.skip_to(trace, ready);
        }
        let mut missing = bytes.saturating_sub(self.left);
        self.left -= bytes.min(self.left);
        while missing > 0 {
            self.at = trace.moment(self.next);
            self.next += 1;
            let taken = missing.min(OPPORTUNITY_BYTES);
            missing -= taken;
            self.left = OPPORTUNITY_BYTES - taken;
        }
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = NANOS_PER_MILLI;

    fn trace(text: &str) -> Trace {
        Trace::parse(text, "t").unwrap()
    }

    #[test]
    fn full_packets_leave_one_per_opportunity_and_the_trace_begins_anew() {
        let trace = trace("2\n2\n5\n");
        let mut line = Position::default();
        let left: Vec<u64> = (0..6).map(|_| line.depart(&trace, 0, 1504) / MS).collect();
        assert_eq!(left, [2, 2, 5, 7, 7, 10]);
    }

    #[test]
    fn small_packets_that_wait_share_one_and_a_large_one_takes_several() {
        let trace = trace("1\n2\n3\n4\n");
        let mut line = Position::default();
        assert_eq!(line.depart(&trace, 0, 752), MS);
        assert_eq!(line.depart(&trace, 0, 752), MS);
        assert_eq!(line.depart(&trace, 0, 1505), 3 * MS);
        assert_eq!(line.depart(&trace, 0, 1503), 3 * MS);
        assert_eq!(line.depart(&trace, 0, 1), 4 * MS);
    }

    #[test]
    fn an_opportunity_that_nobody_waits_for_is_gone() {
        let trace = trace("1\n2\n3\n");
        let mut line = Position::default();
        assert_eq!(line.depart(&trace, 0, 100), MS);
        assert_eq!(line.depart(&trace, MS + 1, 100), 2 * MS);
        // 3 ms and every round after it, until a packet comes.
        assert_eq!(line.depart(&trace, 300 * MS + 1, 100), 301 * MS);
        assert_eq!(line.depart(&trace, 303 * MS, 100), 303 * MS);
    }

    #[test]
    fn an_invalid_trace_is_refused_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("0\n0\n", 2),
            ("1\nx\n", 2),
            ("1\n-1\n", 2),
            ("5\n\n4\n", 3),
            ("1.5", 1),
            ("86400000\n86400001", 2),
        ] {
            let error = Trace::parse(text, "up.trace").unwrap_err().to_string();
            assert!(error.starts_with(&format!("up.trace:{line}: ")), "{error}");
        }
        assert!(Trace::parse("99999999999999999999", "t").is_err());
    }

    #[test]
    fn its_mean_rate() {
        assert_eq!(trace("1\n").mean_rate_bits(), 12_032_000.0);
    }
}
