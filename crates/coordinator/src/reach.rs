// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limit of a lifted window.
//!
//! Windows depend on the reports of all members, and a member may report any value: with
//! half a billion segments in flight, one would make the others lift their windows to as
//! much. So a lift is limited by its own host's delivery: the data that this host
//! delivered to the destination, by all its streams together, in a round trip of this
//! stream (RFC 6349: the bandwidth-delay product), twice, so that a rate may double in a
//! round trip as in slow start. Both ends do so: a server because clients may be older, a
//! client because it need not trust a server.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::local::{Cap, StreamSample};

/// Rates of so long ago are forgotten, within a factor of two: longer than a stream that
/// lost much takes to be repaired.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Reports that are closer together say little of a rate.
const LEAST_INTERVAL: Duration = Duration::from_millis(5);
/// A lifted window may carry this many times the earlier delivery.
const GROWTH: f64 = 2.0;
/// Any TCP may have so much in flight, segments (RFC 6928).
const INITIAL_SEGS: u32 = 10;
/// Where the segment's size is not known, bytes: IPv6's least, so that the bound is high.
const LEAST_MSS: u32 = 1220;

/// The observed delivery of one host.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    rates: HashMap<Option<IpAddr>, Peak>,
    /// Acknowledged bytes by cookie, when last looked at.
    acked: HashMap<u64, u64>,
    looked: Option<Duration>,
}

/// The highest rate of this interval and of the one before it, bytes per second.
#[derive(Debug, Default)]
struct Peak {
    since: Duration,
    now: f64,
    before: f64,
}

impl Peak {
    fn add(&mut self, at: Duration, rate: f64) {
        if at.saturating_sub(self.since) > REMEMBERED {
            self.since = at;
            self.before = std::mem::take(&mut self.now);
        }
        self.now = self.now.max(rate);
    }

    fn bytes_per_s(&self) -> f64 {
        self.now.max(self.before)
    }
}

impl Reach {
    /// The host's streams as they were at `taken`, by that host's clock.
    pub fn look<'a>(
        &mut self,
        taken: Duration,
        samples: impl Iterator<Item = &'a StreamSample> + Clone,
    ) {
        let interval = match self.looked {
            Some(looked) => taken.saturating_sub(looked),
            None => Duration::ZERO,
        };
        if self.looked.is_some() && interval < LEAST_INTERVAL {
            return;
        }
        let mut delivered: HashMap<Option<IpAddr>, u64> = HashMap::new();
        for sample in samples.clone() {
            if let Some(before) = self.acked.get(&sample.cookie) {
                let bytes = sample.acked_bytes.saturating_sub(*before);
                let sum = delivered.entry(sample.destination).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
        for (destination, bytes) in delivered {
            let rate = bytes as f64 / interval.as_secs_f64();
            self.rates.entry(destination).or_default().add(taken, rate);
        }
        self.acked = samples.map(|s| (s.cookie, s.acked_bytes)).collect();
        self.rates
            .retain(|_, peak| taken.saturating_sub(peak.since) <= 3 * REMEMBERED);
        self.looked = Some(taken);
    }

    /// The largest window that this stream may be lifted to, segments.
    pub fn most_segs(&self, sample: &StreamSample) -> u32 {
        let rate = self.rates.get(&sample.destination);
        let rate = rate.map_or(0.0, Peak::bytes_per_s);
        let mss = match sample.mss_bytes {
            0 => LEAST_MSS,
            mss => mss,
        };
        let round_trip_s = f64::from(sample.srtt_us) / 1e6;
        // Beyond the largest u32 it saturates.
        let shown = (GROWTH * rate * round_trip_s / f64::from(mss)).ceil() as u32;
        shown
            .max(sample.cwnd_segs)
            .max(sample.inflight_segs)
            .max(INITIAL_SEGS)
    }

    /// The bounds of one stream, limited to its lift.
    pub fn hold(&self, sample: &StreamSample, cap: Cap) -> Cap {
        let min_segs = match cap.min_segs {
            0 => 0,
            min => min.min(self.most_segs(sample)),
        };
        Cap { min_segs, ..cap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cookie: u64, acked_bytes: u64, srtt_us: u32) -> StreamSample {
        StreamSample {
            cookie,
            mss_bytes: 1000,
            srtt_us,
            acked_bytes,
            inflight_segs: 3,
            cwnd_segs: 20,
            ..StreamSample::default()
        }
    }

    fn lifted(reach: &Reach, sample: &StreamSample, min_segs: u32) -> u32 {
        let cap = Cap {
            cookie: sample.cookie,
            min_segs,
            max_segs: 0,
        };
        reach.hold(sample, cap).min_segs
    }

    #[test]
    fn a_lift_ends_at_what_the_host_delivered() {
        let mut reach = Reach::default();
        let huge = 594_687_780;
        assert_eq!(lifted(&reach, &sample(1, 0, 0), huge), 20, "its own window");
        let at = Duration::from_millis;
        reach.look(at(0), [sample(1, 0, 0), sample(2, 0, 0)].iter());
        // 2 MB in 100 ms of both together: 20 MB/s, in 50 ms 1,000 segments, twice.
        let now = [sample(1, 1_500_000, 50_000), sample(2, 500_000, 50_000)];
        reach.look(at(100), now.iter());
        assert_eq!(lifted(&reach, &now[1], huge), 2000);
        assert_eq!(
            lifted(&reach, &now[1], 700),
            700,
            "what can be true is left"
        );
        assert_eq!(lifted(&reach, &now[1], 0), 0, "no lift is none");
        // A pause does not make it forget at once, a long one does.
        for after in [5, 9, 15, 40] {
            reach.look(at(after * 1000), now.iter());
            let most = lifted(&reach, &now[1], huge);
            assert_eq!(most, if after < 40 { 2000 } else { 20 }, "{after} s");
        }
    }

    #[test]
    fn destinations_are_independent_and_huge_reports_do_not_overflow() {
        let mut reach = Reach::default();
        let to = |host: u8, acked: u64| StreamSample {
            destination: Some([10, 0, 0, host].into()),
            ..sample(host.into(), acked, u32::MAX)
        };
        reach.look(Duration::ZERO, [to(1, 0), to(2, 0)].iter());
        let huge = [to(1, u64::MAX), to(2, 0)];
        reach.look(Duration::from_millis(10), huge.iter());
        assert_eq!(lifted(&reach, &huge[0], u32::MAX), u32::MAX);
        assert_eq!(lifted(&reach, &huge[1], u32::MAX), 20);
        // Time that stands still, or goes back, is no rate.
        reach.look(Duration::from_millis(10), [to(2, 1 << 40)].iter());
        reach.look(Duration::ZERO, [to(2, 1 << 41)].iter());
        assert_eq!(lifted(&reach, &huge[1], u32::MAX), 20);
    }
}
