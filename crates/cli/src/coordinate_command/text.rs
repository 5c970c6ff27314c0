// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text of `paceline coordinate status`.

use std::fmt::Write;

use paceline_coordinator::status::{GroupStatus, Progress, RoundRecord, Status};

use crate::output::{self, foreign};

/// Clients that are listed one by one.
const MOST_CLIENTS: usize = 20;
/// Lines of the history.
const MOST_ROUNDS: usize = 10;

pub fn readable(status: &Status) -> String {
    let mut text = format!(
        "coordinator, up {:.0} s, algorithm of new groups {}, {} refused\n",
        status.uptime_s, status.algorithm, status.refused
    );
    for refusal in &status.refusals {
        let _ = writeln!(
            text,
            "  refused, {}: {}, last {} ago: {}",
            refusal.reason,
            refusal.count,
            time(refusal.last_ago_s),
            foreign(&refusal.last)
        );
    }
    if status.groups.is_empty() {
        text.push_str("no groups\n");
    }
    for group in &status.groups {
        text.push_str(&group_text(group));
    }
    text
}

fn group_text(group: &GroupStatus) -> String {
    let mut text = format!(
        "group {}: {}, round of {}, lease of {}\n",
        foreign(&group.group),
        group.algorithm,
        time(group.period_s),
        time(group.lease_s)
    );
    for belief in &group.beliefs {
        let _ = writeln!(text, "  {}", foreign(belief));
    }
    let latency = &group.latency;
    let _ = writeln!(
        text,
        "  round latency {:.1} ms (median), {:.1} ms (99th percentile), {:.1} ms (maximum)",
        latency.p50_ms, latency.p99_ms, latency.max_ms
    );
    if let Some(last) = &group.last {
        text.push_str(&progress(last));
    }
    text.push_str(&rounds(group));
    text.push_str(&clients(group));
    text
}

fn progress(last: &RoundRecord) -> String {
    let (Some(fastest), Some(slowest)) = (&last.fastest, &last.slowest) else {
        return "  no streams\n".to_owned();
    };
    format!("  fastest {}\n  slowest {}\n", far(fastest), far(slowest))
}

fn far(progress: &Progress) -> String {
    let acked = megabytes(progress.acked_bytes);
    let stream = format!("{} #{}", foreign(&progress.host), progress.cookie);
    match progress.total_bytes {
        0 => format!("{acked} ({stream})"),
        total => {
            let share = progress.acked_bytes as f64 / total as f64 * 100.0;
            format!("{acked} of {}, {share:.1} % ({stream})", megabytes(total))
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn time(seconds: f64) -> String {
    match seconds < 1.0 {
        true => format!("{:.0} ms", seconds * 1e3),
        false => format!("{seconds:.1} s"),
    }
}

fn rounds(group: &GroupStatus) -> String {
    let records: Vec<&RoundRecord> = match group.history.is_empty() {
        true => group.last.iter().collect(),
        false => {
            let skipped = group.history.len().saturating_sub(MOST_ROUNDS);
            group.history.iter().skip(skipped).collect()
        }
    };
    if records.is_empty() {
        return String::new();
    }
    let head = [
        "round",
        "at",
        "streams",
        "in flight",
        "min",
        "mean",
        "max",
        "spread",
        "limit",
        "lossy",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for record in records {
        rows.push(vec![
            record.round.to_string(),
            format!("{:.1} s", record.time_s),
            record.streams.to_string(),
            record.inflight_total.to_string(),
            record.inflight_min.to_string(),
            format!("{:.1}", record.inflight_mean),
            record.inflight_max.to_string(),
            format!("{:.2}", record.inflight_spread),
            match record.limit_total {
                0 => "none".to_owned(),
                limit => limit.to_string(),
            },
            record.recovering.to_string(),
        ]);
    }
    output::table("    ", &rows)
}

fn clients(group: &GroupStatus) -> String {
    let mut rows = vec![["host", "streams", "heard", "late"]
        .map(str::to_owned)
        .to_vec()];
    for client in group.clients.iter().take(MOST_CLIENTS) {
        rows.push(vec![
            client.host.clone(),
            client.streams.to_string(),
            format!("{} ago", time(client.silent_s)),
            format!("{} rounds", client.late),
        ]);
    }
    let mut text = format!("  clients: {}\n", group.clients.len());
    if !group.clients.is_empty() {
        text.push_str(&output::table("    ", &rows));
    }
    if group.clients.len() > MOST_CLIENTS {
        let _ = writeln!(text, "    and {} more", group.clients.len() - MOST_CLIENTS);
    }
    text
}
