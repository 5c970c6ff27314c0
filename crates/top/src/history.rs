// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inflight of a group since the view was opened, in bounded memory.

/// Points that are kept: more than a terminal has columns, twice for a line of dots.
const MOST_POINTS: usize = 512;

/// The values of one look, or of several neighbouring ones: then the least of the least,
/// and the most of the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Of the first of these looks, seconds since the view was opened.
    pub at_s: f64,
    /// The stream with the least in flight, segments.
    pub least_segs: u32,
    /// And with the most.
    pub most_segs: u32,
    /// All together.
    pub total_segs: u64,
}

impl Point {
    fn add(&mut self, other: &Point) {
        self.least_segs = self.least_segs.min(other.least_segs);
        self.most_segs = self.most_segs.max(other.most_segs);
        self.total_segs = self.total_segs.max(other.total_segs);
    }
}

/// Every look since the first, the more of them in one point the longer it takes.
#[derive(Debug, Default)]
pub struct History {
    points: Vec<Point>,
    /// Looks in each point, as a power of two.
    shift: u32,
    /// Looks in the last point.
    in_last: u32,
}

impl History {
    /// The points, oldest first.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    pub fn push(&mut self, point: Point) {
        match self.points.last_mut() {
            Some(last) if self.in_last < 1 << self.shift => last.add(&point),
            _ => {
                if self.points.len() == MOST_POINTS {
                    self.halve();
                }
                self.points.push(point);
                self.in_last = 0;
            }
        }
        self.in_last += 1;
    }

    /// Two points become one.
    fn halve(&mut self) {
        let pairs = self.points.chunks(2).map(|pair| {
            let mut point = pair[0];
            pair[1..].iter().for_each(|other| point.add(other));
            point
        });
        self.points = pairs.collect();
        self.shift += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(looks: u32) -> History {
        let mut history = History::default();
        for look in 0..looks {
            history.push(Point {
                at_s: look.into(),
                least_segs: if look == 1000 { 3 } else { 10 },
                most_segs: if look == 2000 { 90 } else { 20 },
                total_segs: if look == 3000 { 900 } else { 200 },
            });
        }
        history
    }

    #[test]
    fn a_short_view_keeps_each_look() {
        let history = of(MOST_POINTS as u32);
        assert_eq!(history.points().len(), MOST_POINTS);
        assert_eq!(history.points()[7].at_s, 7.0);
    }

    #[test]
    fn a_long_one_loses_no_peak_and_does_not_grow() {
        let history = of(100_000);
        let points = history.points();
        assert!(points.len() <= MOST_POINTS && points.len() >= MOST_POINTS / 2);
        assert_eq!(points[0].at_s, 0.0, "from the beginning");
        assert!(points.is_sorted_by(|a, b| a.at_s < b.at_s));
        assert!(points[points.len() - 1].at_s > 99_000.0, "to the end");
        assert_eq!(points.iter().map(|point| point.least_segs).min(), Some(3));
        assert_eq!(points.iter().map(|point| point.most_segs).max(), Some(90));
        assert_eq!(points.iter().map(|point| point.total_segs).max(), Some(900));
    }
}
