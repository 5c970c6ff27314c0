// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Received numbers, and the report about them.

use rangemap::RangeSet;

use super::frame::{Head, Report, MOST_RANGES};
use super::time::Nanos;

/// Missing ranges that are remembered at most: a path that loses every second packet has them
/// after 8,192, and one that loses one in a hundred after 400,000.
const MOST_MISSING: usize = 4_096;

/// Nanoseconds in a microsecond, the unit of reports.
const US: Nanos = 1_000;

/// Numbers received so far.
#[derive(Debug, Default)]
pub struct Received {
    top: u64,
    top_at: Nanos,
    last_arrival: Nanos,
    /// Below `top` and not below `known`.
    missing: RangeSet<u64>,
    known: u64,
    late: Option<(u64, u64)>,
    /// Where the next report begins, if the last one had no room for the rest.
    next: u64,
}

impl Received {
    /// Nothing yet.
    pub fn new(now: Nanos) -> Self {
        Self {
            top_at: now,
            last_arrival: now,
            ..Self::default()
        }
    }

    /// Whether a number is new: false if it came before, or the sender waits for it no longer.
    pub fn is_news(&self, number: u64) -> bool {
        number >= self.top || self.missing.contains(&number)
    }

    /// Time of the last arrival.
    pub fn last_arrival(&self) -> Nanos {
        self.last_arrival
    }

    /// Takes a new datagram.
    pub fn receive(&mut self, now: Nanos, head: Head) {
        let number = head.number;
        self.last_arrival = now;
        if number >= self.top {
            if number > self.top {
                self.missing.insert(self.top..number);
            }
            self.top = number + 1;
            self.top_at = now;
        } else {
            self.missing.remove(number..number + 1);
            let further = |(late, top): (u64, u64)| top - late >= self.top - number;
            if !self.late.is_some_and(further) {
                self.late = Some((number, self.top));
            }
        }
        self.forget(number - head.open);
        while self.missing.len() > MOST_MISSING {
            let first = self.missing.first().expect("many").end;
            self.known = first;
            self.forget(first);
        }
    }

    fn forget(&mut self, below: u64) {
        if below > 0 {
            self.missing.remove(0..below);
        }
        self.known = self.known.max(below).min(self.top);
    }

    /// The next report, with so many ranges at most.
    pub fn report(&mut self, now: Nanos, idle: bool, ranges: usize) -> Report {
        let from = match self.next > self.known && self.next < self.top {
            true => self.next,
            false => self.known,
        };
        let mut report = Report {
            clock: now / US,
            top: self.top,
            held: now.saturating_sub(self.top_at) / US,
            quiet: now.saturating_sub(self.last_arrival) / US,
            known: self.known,
            from,
            to: self.top,
            missing: Vec::new(),
            late: self.late.take(),
            idle,
        };
        let mut at = from;
        if from < self.top {
            for range in self.missing.overlapping(&(from..self.top)) {
                let start = range.start.max(from);
                if report.missing.len() == ranges.min(MOST_RANGES) {
                    // This report ends here; the next one has the rest.
                    report.to = start;
                    break;
                }
                report.missing.push((start - at, range.end - start));
                at = range.end;
            }
        }
        self.next = if report.to < self.top { report.to } else { 0 };
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(number: u64) -> Head {
        let open = number;
        Head { number, open }
    }

    #[test]
    fn missing_is_what_did_not_come() {
        let mut received = Received::new(0);
        for number in [0, 1, 4, 5, 9, 4, 8] {
            if received.is_news(number) {
                received.receive(number, head(number));
            }
        }
        let report = received.report(10_000, false, 200);
        assert_eq!((report.top, report.late), (10, Some((8, 10))));
        assert_eq!(report.ranges(), Ok(vec![2..4, 6..8]));
        assert!(!received.is_news(4) && received.is_news(7) && received.is_news(10));
        // The sender has given up all below 7.
        received.receive(
            0,
            Head {
                number: 10,
                open: 3,
            },
        );
        let report = received.report(0, false, 200);
        assert_eq!((report.known, &report.missing[..]), (7, &[(0, 1)][..]));
        assert!(!received.is_news(2));
    }

    #[test]
    fn reports_take_turns_where_one_has_no_room() {
        let mut received = Received::new(0);
        for number in (0..2_000).step_by(2) {
            received.receive(0, head(number));
        }
        let mut reported = Vec::new();
        for _ in 0..5 {
            reported.extend(received.report(0, false, 200).ranges().expect("its own"));
        }
        let missing: Vec<u64> = reported.iter().map(|range| range.start).collect();
        assert_eq!(missing, (1..1_999).step_by(2).collect::<Vec<_>>());
        assert_eq!(received.report(0, false, 200).from, 0);
    }

    #[test]
    fn the_number_of_missing_ranges_is_bounded() {
        let mut received = Received::new(0);
        for number in (0..20_000).step_by(2) {
            received.receive(0, head(number));
        }
        assert_eq!(received.missing.len(), MOST_MISSING);
        assert!(received.known > 10_000);
    }
}
