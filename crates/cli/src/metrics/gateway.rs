// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A gateway's page: its peers' sessions, and what it takes of routed hosts.

use anyhow::Result;
use paceline_gateway::service::Status;
use paceline_metrics::Page;
use serde_json::Value;

/// The page of a gateway. Peers are those of its configuration.
pub fn gateway(state: Result<Status>) -> Page {
    let (mut page, status) = super::begin(state);
    let Some(status) = status else {
        return page;
    };
    page.gauge(
        "gateway_realtime",
        "1 if a thread with real-time priority keeps the rate, else 0",
        f64::from(u8::from(status.realtime)),
    );
    page.gauges(
        "gateway_peer_connected",
        "1 if there is a session with the peer, else 0",
        "peer",
        status
            .peers
            .iter()
            .map(|(name, seen)| (name.clone(), f64::from(u8::from(seen.is_some())))),
    );
    let number = |key: &'static str| {
        status.peers.iter().filter_map(move |(name, seen)| {
            let value = seen.as_ref()?.get(key).and_then(Value::as_u64)?;
            Some((name.clone(), value))
        })
    };
    for (name, key, scale, help) in [
        (
            "gateway_connections",
            "connections",
            1.0,
            "Open connections with the peer's site",
        ),
        (
            "gateway_rate_bytes_per_second",
            "rate",
            1.0 / 8.0,
            "Rate of the session, on the wire",
        ),
        (
            "gateway_round_trip_seconds",
            "round_trip_us",
            1e-6,
            "Round trip of the session",
        ),
        (
            "gateway_silent_seconds",
            "silent_ms",
            1e-3,
            "Time since the last arrival from the peer",
        ),
        (
            "gateway_held_bytes",
            "held_bytes",
            1.0,
            "Bytes that wait until the peer has them",
        ),
    ] {
        let values = number(key).map(|(name, value)| (name, value as f64 * scale));
        page.gauges(name, help, "peer", values);
    }
    page.gauges(
        "gateway_reservation_ended",
        "1 if less than 80 % of the reserved rate arrived, so that it is not kept any more, else 0",
        "peer",
        status.peers.iter().filter_map(|(name, seen)| {
            let ended = seen.as_ref()?.get("breaker").and_then(Value::as_bool)?;
            Some((name.clone(), f64::from(u8::from(ended))))
        }),
    );
    page.gauges(
        "gateway_tcp_leg",
        "1 if the session goes by TCP, for example because UDP gets no answer, else 0",
        "peer",
        status.peers.iter().filter_map(|(name, seen)| {
            let leg = seen.as_ref()?.get("leg").and_then(Value::as_str)?;
            Some((name.clone(), f64::from(u8::from(leg == "tcp"))))
        }),
    );
    for (name, key, help) in [
        (
            "gateway_sent_datagrams",
            "sent",
            "Datagrams of the session that were sent",
        ),
        (
            "gateway_lost_datagrams",
            "lost",
            "Datagrams of the session that were declared lost",
        ),
        (
            "gateway_spurious_losses",
            "spurious",
            "Datagrams that were declared lost and had arrived",
        ),
        (
            "gateway_new_bytes",
            "new_bytes",
            "Bytes of connections that were sent for the first time",
        ),
        (
            "gateway_again_bytes",
            "again_bytes",
            "Bytes of connections that were sent again",
        ),
    ] {
        page.counters(name, help, "peer", number(key));
    }
    if let Some(counts) = status.transparent.as_ref().map(|routed| &routed.counts) {
        page.counters(
            "gateway_routed_connections",
            "Connections of hosts that are routed through the gateway: all that came, and those that failed",
            "outcome",
            [
                ("taken".to_owned(), counts.taken),
                ("refused".to_owned(), counts.refused),
                ("failed".to_owned(), counts.failed),
                ("loop".to_owned(), counts.loops),
            ],
        );
    }
    page
}
