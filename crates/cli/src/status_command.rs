// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline status`.

use std::fmt::Write;
use std::process::ExitCode;

use paceline_agent::status::{self, milliseconds, rate, GroupStatus, JobStatus, Status};
use paceline_history::Traffic;
use paceline_top::value;

use crate::output::{self, age, foreign};

#[derive(clap::Args)]
pub struct Args {
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let status = status::status()?;
    if args.json {
        output::print_json(&status)?;
    } else {
        output::print(&readable(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn readable(status: &Status) -> String {
    let mut text = String::new();
    for path in &status.cleaned {
        let _ = writeln!(
            text,
            "cleaned up after an ended job: {}",
            foreign(&path.display().to_string())
        );
    }
    if status.jobs.is_empty() {
        text.push_str("no jobs\n");
    }
    for job in &status.jobs {
        text.push_str(&job_text(job));
    }
    text.push_str(&groups(&status.groups));
    text
}

fn job_text(job: &JobStatus) -> String {
    let mut text = String::new();
    let place = match &job.cgroup {
        Some(path) => foreign(&path.display().to_string()),
        None => format!("cgroup {} (not visible from here)", job.id),
    };
    let group = job
        .group
        .as_ref()
        .map(|group| format!(" ({})", foreign(group)));
    let kind = match (job.attached, job.shared) {
        (true, _) => "attached",
        (_, true) => "run, shared",
        _ => "run",
    };
    let _ = writeln!(text, "{place}{}", group.unwrap_or_default());
    let _ = writeln!(
        text,
        "  policy {}, {kind}, {} old, by uid {}",
        foreign(&job.policy),
        age(job.age_s),
        job.owner_uid
    );
    for change in &job.changes {
        let _ = writeln!(text, "    {}", foreign(change));
    }
    if job.changes.is_empty() {
        let _ = writeln!(text, "    no changes");
    }
    text.push_str(&keys(job));
    let processes: Vec<String> = job
        .processes
        .iter()
        .map(|process| match &process.phases {
            None => format!("{} {}", process.pid, foreign(&process.name)),
            Some(phases) => format!(
                "{} {} (phase class {}, {} entered)",
                process.pid,
                foreign(&process.name),
                phases.class,
                phases.entered.values().sum::<u64>()
            ),
        })
        .collect();
    let _ = writeln!(text, "  processes: {}", processes.join(", "));
    let _ = writeln!(
        text,
        "  connections: {} now, {} under the policy so far, {} refused by the kernel",
        job.connections.len(),
        job.governed,
        job.refused
    );
    let _ = writeln!(text, "  sent so far: {}", traffic(&job.traffic));
    for (class, of_class) in &job.traffic_by_class {
        let _ = writeln!(text, "    phase class {class}: {}", traffic(of_class));
    }
    if job.earlier != 0 {
        let _ = writeln!(
            text,
            "  connections that still have an earlier policy: {}",
            job.earlier
        );
    }
    for warning in &job.warnings {
        let _ = writeln!(text, "  warning: {}", foreign(warning));
    }
    text.push_str(&connections(job));
    text.push_str(&paths(job));
    text
}

/// Traffic in one line.
pub fn traffic(traffic: &Traffic) -> String {
    format!(
        "{} acknowledged, {}, {} paced starts ({} bad)",
        indicatif::DecimalBytes(traffic.bytes),
        traffic.summary(),
        traffic.starts,
        traffic.bad_starts
    )
}

/// Each key of the policy, and its origin.
fn keys(job: &JobStatus) -> String {
    if job.keys.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = job
        .keys
        .iter()
        .map(|key| {
            vec![
                key.key.clone(),
                value(key),
                key.origin.to_string(),
                format!("{} ago", age(key.age_s)),
            ]
        })
        .collect();
    format!("  keys:\n{}", output::table("    ", &rows))
}

fn connections(job: &JobStatus) -> String {
    if job.connections.is_empty() {
        return String::new();
    }
    let mut rows = vec![[
        "local",
        "remote",
        "state",
        "control",
        "cwnd",
        "srtt",
        "rto",
        "retr",
        "changes and reasons",
    ]
    .map(str::to_owned)
    .to_vec()];
    for connection in &job.connections {
        rows.push(vec![
            connection.local.to_string(),
            connection.remote.to_string(),
            connection.state.to_owned(),
            connection.congestion.clone(),
            connection.cwnd_segs.to_string(),
            milliseconds(connection.srtt_us.into()),
            milliseconds(connection.rto_us),
            connection.retransmitted_segs.to_string(),
            connection.why.clone(),
        ]);
    }
    output::table("    ", &rows)
}

fn paths(job: &JobStatus) -> String {
    let known: Vec<_> = job
        .paths
        .iter()
        .filter(|path| path.rate_bits_per_s != 0 || path.spread_us != 0)
        .collect();
    if known.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = known
        .iter()
        .map(|path| {
            vec![
                path.peer.to_string(),
                format!("class {}", path.class),
                match path.rate_bits_per_s {
                    0 => "rate unknown".to_owned(),
                    known => rate(known),
                },
                format!("minimum RTT {}", milliseconds(path.min_rtt_us.into())),
                format!("{} active", path.active),
                match path.wary_starts {
                    0 => String::new(),
                    _ => "backing off after loss".to_owned(),
                },
                match path.contended {
                    false => String::new(),
                    true => "shared with long flows of others".to_owned(),
                },
                match path.spread_us {
                    0 => String::new(),
                    spread => format!("short messages spread over {}", milliseconds(spread.into())),
                },
            ]
        })
        .collect();
    format!("  known paths:\n{}", output::table("    ", &rows))
}

/// Apart from the jobs: a group may have connections of several.
fn groups(groups: &[GroupStatus]) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| {
            vec![
                format!("{} of uid {}", group.name, group.owner_uid),
                format!("{} streams, {} bounded", group.streams, group.bounded),
                format!(
                    "in flight {} to {} segments, {} in all",
                    group.inflight_least_segs, group.inflight_most_segs, group.inflight_total_segs
                ),
                format!(
                    "acknowledged {} to {} MB",
                    group.acked_least_bytes / 1_000_000,
                    group.acked_most_bytes / 1_000_000
                ),
            ]
        })
        .collect();
    format!("groups:\n{}", output::table("    ", &rows))
}
