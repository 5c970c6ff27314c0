// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes to connections, and the reasons, in words.

use paceline_abi::{
    name_text, pl_base, pl_connection_record, pl_job, pl_policy, pl_target, PL_NO_SACK,
    PL_NO_SCALING, PL_NO_TIMESTAMPS,
};
use paceline_net::tick;

use super::{class_of, quick, reason};

/// The policy's changes to each connection.
pub(super) fn changes(job: &pl_job) -> Vec<String> {
    let policy = &job.policy;
    let mut changes = Vec::new();
    let base = base_name(policy);
    match target(policy) {
        Some(start) => changes.push(format!("{base} with starts after idle {start}")),
        None if base != "keep" => changes.push(format!("congestion control {base}")),
        None => {}
    }
    let group = name_text(&job.group);
    if !group.is_empty() && policy.wrap != 0 {
        changes.push(format!(
            "windows read and bounded as group {group}, so {base} is wrapped"
        ));
    }
    if policy.even != 0 {
        changes.push("one window for all connections to a destination, in equal parts".to_owned());
    }
    if policy.clustered != 0 {
        changes.push("slow start paced over the round trip".to_owned());
    }
    if policy.gap_bytes != 0 {
        changes.push(format!(
            "{} bytes between packets on a line of {}",
            policy.gap_bytes,
            rate(policy.line_rate_bps.saturating_mul(8))
        ));
    }
    if policy.initial_rate_bps != 0 {
        changes.push(format!(
            "first start at {} per destination",
            rate(policy.initial_rate_bps.saturating_mul(8))
        ));
    }
    if policy.rto_min_us != 0 {
        let jitter = match policy.rto_jitter_us {
            0 => String::new(),
            jitter => format!(" plus up to {}", milliseconds(jitter.into())),
        };
        let backoff = match policy.rto_linear {
            0 => "",
            _ => ", linear backoff with less than four segments in flight",
        };
        changes.push(format!(
            "minimum RTO {}{jitter}{backoff}",
            milliseconds(policy.rto_min_us.into())
        ));
    }
    if policy.delayed_ack_us != 0 {
        changes.push(format!(
            "ACKs delayed by {} at most",
            milliseconds(policy.delayed_ack_us.into())
        ));
    }
    match policy.ack_every {
        0 => {}
        1 => changes.push("each segment acknowledged at once".to_owned()),
        every => changes.push(format!("ACKs held back until they cover {every} segments")),
    }
    if policy.rto_max_ms != 0 {
        let most = milliseconds(u64::from(policy.rto_max_ms) * 1000);
        changes.push(format!("maximum RTO {most}"));
    }
    if policy.initial_window_segs != 0 {
        let again = match policy.window_again {
            0 => "",
            _ => ", wherever slow start begins again",
        };
        changes.push(format!(
            "initial window {} segments{again}",
            policy.initial_window_segs
        ));
    }
    if policy.window_fixed_segs != 0 {
        changes.push(format!(
            "window fixed at {} segments",
            policy.window_fixed_segs
        ));
    }
    if policy.nodelay != 0 {
        changes.push("small segments sent at once (TCP_NODELAY)".to_owned());
    }
    if policy.held_out_percent != 0 {
        changes.push(format!(
            "{} % of bursts held out, for paceline report",
            policy.held_out_percent
        ));
    }
    let without = [
        (PL_NO_TIMESTAMPS, "timestamps"),
        (PL_NO_SCALING, "window scaling"),
        (PL_NO_SACK, "SACK"),
    ];
    for (_, option) in without
        .into_iter()
        .filter(|(bit, _)| u32::from(policy.without) & bit != 0)
    {
        changes.push(format!("new connections without {option}"));
    }
    changes
}

fn base_name(policy: &pl_policy) -> &'static str {
    match u32::from(policy.base) {
        base if base == pl_base::PL_BASE_CUBIC as u32 => "cubic",
        base if base == pl_base::PL_BASE_RENO as u32 => "reno",
        base if base == pl_base::PL_BASE_BBR as u32 => "bbr",
        _ => "keep",
    }
}

fn target(policy: &pl_policy) -> Option<&'static str> {
    match u32::from(policy.target) {
        target if target == pl_target::PL_TARGET_SSTHRESH as u32 => {
            Some("paced at ssthresh per RTT")
        }
        target if target == pl_target::PL_TARGET_DELIVERY_RATE as u32 => {
            Some("paced at the path's delivery rate")
        }
        _ => None,
    }
}

/// The reason for a connection's state, in one line.
pub(super) fn why(record: &pl_connection_record, policy: &pl_policy) -> String {
    match reason(record.reason) {
        "loopback" => return "unchanged: both ends are on this host".to_owned(),
        "mptcp" => return "unchanged: a subflow of Multipath TCP".to_owned(),
        "refused" => {
            let error = std::io::Error::from_raw_os_error(record.error.saturating_neg());
            return format!("unchanged: the kernel refused a setting of the policy ({error})");
        }
        _ => {}
    }
    if record.breaker_open != 0 {
        return format!(
            "breaker open: {} of {} paced starts lost more than {} %, so the base algorithm runs alone for now",
            record.bad_starts,
            record.starts,
            f64::from(policy.breaker_permille) / 10.0
        );
    }
    let mut parts = Vec::new();
    match (target(policy), record.starts) {
        (None, _) => {}
        (Some(_), 0) => parts.push("no paced start yet".to_owned()),
        (Some(_), starts) => parts.push(format!(
            "{starts} paced start{}, the last at {}",
            if starts == 1 { "" } else { "s" },
            rate(record.start_rate_bps.saturating_mul(8))
        )),
    }
    if record.phase_switches != 0 {
        parts.push(format!(
            "phase class {} after {} switches",
            class_of(record.phase),
            record.phase_switches
        ));
    }
    if record.uwnd_segs != 0 {
        parts.push(format!("window bounded to {} segments", record.uwnd_segs));
    }
    if record.even_streams > 1 {
        parts.push(format!(
            "an equal part of {} streams' window",
            record.even_streams
        ));
    }
    if record.spacing_bps != 0 {
        parts.push(format!(
            "packets spaced at {}",
            rate(record.spacing_bps.saturating_mul(8))
        ));
    }
    if policy.rto_min_us != 0 {
        let minimum = u64::from(record.rto_min_ticks) * tick::tick().as_micros() as u64;
        parts.push(format!("minimum RTO {}", milliseconds(minimum)));
    }
    match quick(record.quick) {
        "on" => parts.push(format!("{} quick ACKs", record.quick_acks)),
        "ecn" => parts.push(
            "no quick ACKs: this connection negotiated ECN, which needs the flags that they are made with"
                .to_owned(),
        ),
        _ => {}
    }
    if policy.ack_every > 1 {
        parts.push(format!("{} ACKs held back", record.held_acks));
    }
    if parts.is_empty() {
        parts.push("under the policy".to_owned());
    }
    parts.join(", ")
}

/// Bits per second for people: `487.2 Mbit/s`.
pub fn rate(bits_per_s: u64) -> String {
    match bits_per_s {
        0..1_000_000 => format!("{:.1} kbit/s", bits_per_s as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} Mbit/s", bits_per_s as f64 / 1e6),
        _ => format!("{:.2} Gbit/s", bits_per_s as f64 / 1e9),
    }
}

/// Microseconds for people: `8 ms`, `0.25 ms`.
pub fn milliseconds(us: u64) -> String {
    format!("{} ms", us as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_breaker_gives_its_reason() {
        let mut record = pl_connection_record::default();
        (record.breaker_open, record.starts, record.bad_starts) = (1, 7, 2);
        let policy = pl_policy {
            breaker_permille: 20,
            ..Default::default()
        };
        let shown = why(&record, &policy);
        assert!(shown.contains("breaker open: 2 of 7"), "{shown}");
        assert!(shown.contains("2 %"), "{shown}");
    }

    #[test]
    fn rates_and_times_have_units() {
        assert_eq!(rate(487_200_000), "487.2 Mbit/s");
        assert_eq!(rate(64_000), "64.0 kbit/s");
        assert_eq!(milliseconds(8_000), "8 ms");
    }
}
