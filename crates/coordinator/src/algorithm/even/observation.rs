// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The joint observation of all streams of a route.

use super::member::{Member, State};
use crate::algorithm::Stream;

/// The observation of a route's streams in a round.
#[derive(Debug, Default)]
pub(super) struct Observation {
    /// Least round trip of all, microseconds; 0: not known.
    pub base_us: f64,
    /// The smallest queueing delay of the streams, above it.
    pub delay_us: Option<f64>,
    /// Streams that have something to send.
    pub active: f64,
    /// Those that lost something.
    pub losers: f64,
    pub delivered_segs: f64,
    pub inflight_segs: f64,
    pub cwnd_segs: f64,
    /// The bytes that all streams still have to send.
    pub demand: f64,
}

impl Observation {
    pub fn of(streams: &[Stream], members: &[Member], demands: &[f64], here: &[usize]) -> Self {
        let mut observed = Self::default();
        let mut rtts = Vec::with_capacity(here.len());
        let mut base = f64::MAX;
        for number in here {
            let (sample, member) = (&streams[*number].sample, &members[*number]);
            observed.delivered_segs += member.delivered_segs;
            observed.demand += demands[*number];
            observed.inflight_segs += f64::from(sample.inflight_segs);
            if sample.min_rtt_us > 0 {
                base = base.min(sample.min_rtt_us.into());
            }
            observed.losers += f64::from(u8::from(member.lost));
            if member.state == State::Idle {
                continue;
            }
            observed.active += 1.0;
            observed.cwnd_segs += f64::from(sample.cwnd_segs);
            if sample.srtt_us > 0 {
                rtts.push(f64::from(sample.srtt_us));
            }
        }
        if base < f64::MAX {
            observed.base_us = base;
        }
        if !rtts.is_empty() {
            // Windows that leave in bursts make queues that the next burst does not meet, and
            // most streams wait in them. A full path keeps all waiting, the first ones too.
            let low = rtts.len() / 10;
            let (_, low, _) = rtts.select_nth_unstable_by(low, f64::total_cmp);
            observed.delay_us = Some((*low - observed.base_us).max(0.0));
        }
        observed
    }
}
