// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The coordinator's page: groups, their hosts and streams, and the last rounds.

use anyhow::Result;
use paceline_coordinator::status::{GroupStatus, Status};
use paceline_metrics::Page;

/// Name, help, and the value of a group.
type OfGroup = (&'static str, &'static str, fn(&GroupStatus) -> f64);

/// The page of a coordinator.
pub fn coordinator(state: Result<Status>) -> Page {
    let (mut page, status) = super::begin(state);
    let Some(status) = status else {
        return page;
    };
    page.gauge(
        "coordinator_uptime_seconds",
        "Since the coordinator began",
        status.uptime_s,
    );
    page.counter(
        "coordinator_refused",
        "Connections that were refused, and members that were dismissed",
        status.refused,
    );
    page.gauge(
        "coordinator_groups",
        "Groups now",
        status.groups.len() as f64,
    );
    let groups: [OfGroup; 7] = [
        ("coordinator_hosts", "Hosts of the group now", |group| {
            group.clients.len() as f64
        }),
        (
            "coordinator_late_hosts",
            "Hosts of the group whose report was not there in the last round",
            |group| {
                let late = |last: &paceline_coordinator::status::RoundRecord| {
                    last.clients.saturating_sub(last.reported)
                };
                group.last.as_ref().map_or(0, late) as f64
            },
        ),
        (
            "coordinator_streams",
            "Streams of the group in the last round",
            |group| group.last.as_ref().map_or(0, |last| last.streams) as f64,
        ),
        (
            "coordinator_recovering_streams",
            "Streams of the group that repaired losses in the last round",
            |group| group.last.as_ref().map_or(0, |last| last.recovering) as f64,
        ),
        (
            "coordinator_inflight_segments",
            "Segments in flight of all streams of the group in the last round",
            |group| group.last.as_ref().map_or(0, |last| last.inflight_total) as f64,
        ),
        (
            "coordinator_inflight_spread",
            "Most less least in flight of a stream of the group, as a share of the mean",
            |group| group.last.as_ref().map_or(0.0, |last| last.inflight_spread),
        ),
        (
            "coordinator_round_seconds",
            "What 99 % of the last 1,000 rounds of the group were faster than",
            |group| group.latency.p99_ms / 1e3,
        ),
    ];
    for (name, help, value) in groups {
        let values = status.groups.iter();
        let values = values.map(|group| (group.group.clone(), value(group)));
        page.gauges(name, help, "group", values);
    }
    page
}
