// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups, which may have connections of several jobs.

use std::collections::BTreeMap;

use paceline_abi::{name_text, pl_stream_record};
use serde::Serialize;

/// Connections whose windows are read and bounded together.
#[derive(Debug, Clone, Serialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// The owner.
    pub owner_uid: u32,
    /// Connections.
    pub streams: usize,
    /// Of these, with a window that a bound makes another than the algorithm's own.
    pub bounded: usize,
    /// In flight, segments: the least, the most, and all together.
    pub inflight_least_segs: u32,
    /// As `inflight_least_segs`.
    pub inflight_most_segs: u32,
    /// As `inflight_least_segs`.
    pub inflight_total_segs: u64,
    /// Payload acknowledged of the slowest stream so far.
    pub acked_least_bytes: u64,
    /// And of the fastest.
    pub acked_most_bytes: u64,
}

pub(super) fn of(streams: &[pl_stream_record]) -> Vec<GroupStatus> {
    let mut groups: BTreeMap<(u32, String), GroupStatus> = BTreeMap::new();
    for stream in streams {
        let name = name_text(&stream.group.name);
        let group = groups
            .entry((stream.group.owner_uid, name.clone()))
            .or_insert(GroupStatus {
                name,
                owner_uid: stream.group.owner_uid,
                streams: 0,
                bounded: 0,
                inflight_least_segs: u32::MAX,
                inflight_most_segs: 0,
                inflight_total_segs: 0,
                acked_least_bytes: u64::MAX,
                acked_most_bytes: 0,
            });
        let inflight = stream.inflight_segs;
        group.streams += 1;
        group.bounded += usize::from(stream.uwnd_segs != 0);
        group.inflight_least_segs = group.inflight_least_segs.min(inflight);
        group.inflight_most_segs = group.inflight_most_segs.max(inflight);
        group.inflight_total_segs += u64::from(inflight);
        group.acked_least_bytes = group.acked_least_bytes.min(stream.acked_bytes);
        group.acked_most_bytes = group.acked_most_bytes.max(stream.acked_bytes);
    }
    groups.into_values().collect()
}
