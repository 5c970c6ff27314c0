// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline report`: a job's traffic, and the effect of its policy.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use paceline_agent::{job, report, service, Error};
use paceline_history::trial::{overall, CONFIDENCE, LEAST_BURSTS};
use paceline_history::{size_name, Comparison, Record, Trial};
use serde::Serialize;

use crate::output::{self, foreign};
use crate::status_command::traffic;

/// Of a policy with `report.held_out`, bursts under the policy are compared with bursts that
/// the base algorithm sent alone (docs/report.md).
#[derive(clap::Args)]
pub struct Args {
    /// The job, running or ended: its id, its cgroup, or the last part of that
    /// (paceline.1234.1) [default: a list of the newest jobs]
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// Directory of the agent's sockets; the agent remembers jobs that have ended
    #[arg(long, value_name = "DIR", default_value = service::DIRECTORY)]
    agent: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// A record with the comparisons that it allows.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    record: Record,
    /// Of each size class; null where there are too few bursts.
    comparisons: Vec<Option<Comparison>>,
    /// Of all size classes with enough bursts, weighted; null where there is none.
    overall: Option<Comparison>,
    confidence: f64,
    least_bursts: u64,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Some(name) = &args.job else {
        let records = records(&args.agent, None)?;
        match args.json {
            true => output::print_json(&records)?,
            false => output::print(&list(&records))?,
        }
        return Ok(ExitCode::SUCCESS);
    };
    let running = match job::capable() {
        true => report::running(name)?,
        false => None,
    };
    let record = match running {
        Some(record) => record,
        None => records(&args.agent, Some(name))?
            .into_iter()
            .next()
            .ok_or_else(|| anyhow::anyhow!("the agent has no record of job {name}"))?,
    };
    if args.json {
        output::print_json(&Report {
            comparisons: record.trials.iter().map(Trial::compare).collect(),
            overall: overall(&record.trials),
            confidence: CONFIDENCE,
            least_bursts: LEAST_BURSTS,
            record,
        })?;
    } else {
        output::print(&readable(&record, now_s()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn records(agent: &Path, name: Option<&str>) -> anyhow::Result<Vec<Record>> {
    service::records_by_agent(agent, name).map_err(|error| match (error, name) {
        (Error::NoAgent { socket }, Some(name)) => anyhow::anyhow!(
            "there is no running job {name} that you may read, and no agent at {}, which would remember an ended one",
            socket.display()
        ),
        (Error::NoAgent { socket }, None) => anyhow::anyhow!(
            "there is no agent at {}, which would list jobs: name a running one, or see paceline status",
            socket.display()
        ),
        (error, _) => error.into(),
    })
}

fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn name(record: &Record) -> String {
    match &record.cgroup {
        Some(path) => foreign(&path.display().to_string()),
        None => format!("cgroup {}", record.job),
    }
}

fn list(records: &[Record]) -> String {
    if records.is_empty() {
        return "no jobs\n".to_owned();
    }
    let mut rows = vec![["job", "policy", "uid", "state", "sent", "cgroup"]
        .map(str::to_owned)
        .to_vec()];
    for record in records {
        rows.push(vec![
            record.job.to_string(),
            foreign(&record.policy),
            record.owner_uid.to_string(),
            lasted(record, now_s()),
            traffic(&record.counts.traffic),
            name(record),
        ]);
    }
    output::table("", &rows)
}

/// `ran 41 s, ended 3 min ago`.
fn lasted(record: &Record, now_s: u64) -> String {
    let time = |from: u64, to: u64| {
        let time = Duration::from_secs(to.saturating_sub(from));
        indicatif::HumanDuration(time).to_string()
    };
    match record.ended_unix_s {
        None => format!("running for {}", time(record.started_unix_s, now_s)),
        Some(ended) => format!(
            "ran for {}, ended {} ago",
            time(record.started_unix_s, ended),
            time(ended, now_s)
        ),
    }
}

fn readable(record: &Record, now_s: u64) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "job {} ({})", record.job, name(record));
    let _ = writeln!(
        text,
        "  policy {}, by uid {}, {}",
        foreign(&record.policy),
        record.owner_uid,
        lasted(record, now_s)
    );
    let counts = &record.counts;
    let _ = writeln!(
        text,
        "  connections: {} under the policy; left alone: {} refused by the kernel, {} within this host, {} Multipath TCP",
        counts.governed, counts.refused, counts.loopback, counts.mptcp
    );
    let _ = writeln!(text, "  sent: {}", traffic(&counts.traffic));
    for (class, of_class) in &record.phases {
        let _ = writeln!(text, "    phase class {class}: {}", traffic(of_class));
    }
    text.push_str(&comparison(record));
    text
}

fn comparison(record: &Record) -> String {
    let held: u64 = record
        .trials
        .iter()
        .map(|trial| trial.held_out.bursts)
        .sum();
    if record.held_out_percent == 0 && held == 0 {
        return "  nothing to compare with: the policy holds out no bursts (report.held_out = \"5%\")\n".to_owned();
    }
    if record.trials.is_empty() {
        return format!(
            "  {} % of bursts are held out; none has ended yet\n",
            record.held_out_percent
        );
    }
    let mut rows = vec![[
        "burst",
        "with the policy",
        "held out",
        "difference of the mean duration, with its 95 % interval",
    ]
    .map(str::to_owned)
    .to_vec()];
    for trial in &record.trials {
        rows.push(vec![
            size_name(trial.size),
            arm(&trial.policy),
            arm(&trial.held_out),
            difference(trial.compare()),
        ]);
    }
    let all = overall(&record.trials);
    if all.is_some() {
        let enough = "all sizes with enough bursts";
        let cells = [enough, "", ""].map(str::to_owned);
        let mut row = cells.to_vec();
        row.push(difference(all));
        rows.push(row);
    }
    let mut text = format!(
        "  {} % of bursts held out, at random; duration until all is acknowledged:\n{}",
        record.held_out_percent,
        output::table("    ", &rows)
    );
    if all.is_some_and(|all| !all.is_clear()) {
        let _ = writeln!(
            text,
            "  The interval contains 0: {} bursts are too few to distinguish the policy's effect from chance, or it has none.",
            paceline_history::grouped(bursts(record))
        );
    }
    // docs/report.md has an example where it is twenty times as much.
    text.push_str(
        "  Held-out bursts begin with the windows that the others left: without Paceline they may do better. Compare two whole runs before you decide.\n",
    );
    text
}

fn bursts(record: &Record) -> u64 {
    let of = |trial: &Trial| trial.policy.bursts + trial.held_out.bursts;
    record.trials.iter().map(of).sum()
}

fn arm(arm: &paceline_history::Arm) -> String {
    match arm.mean_us() {
        Some(mean) => format!(
            "{} of {}",
            paceline_history::grouped(arm.bursts),
            duration(mean)
        ),
        None => "none".to_owned(),
    }
}

fn difference(comparison: Option<Comparison>) -> String {
    let Some(comparison) = comparison else {
        return format!("too few bursts: {LEAST_BURSTS} of each are needed");
    };
    let [least, most] = comparison.interval_us;
    let verdict = match comparison.is_clear() {
        true if most < 0.0 => "faster",
        true => "slower",
        false => "no clear difference",
    };
    format!(
        "{} ({} to {}), {:+.0} %: {verdict}",
        signed(comparison.difference_us),
        signed(least),
        signed(most),
        comparison.percent
    )
}

fn signed(us: f64) -> String {
    let sign = if us < 0.0 { "-" } else { "+" };
    format!("{sign}{}", duration(us.abs()))
}

fn duration(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} us"),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_history::{Arm, Counts};

    fn arm_of(bursts: u64, us: u64) -> Arm {
        // Half of them a tenth longer, half a tenth shorter.
        let square = (us * us) as f64;
        Arm {
            bursts,
            bytes: bursts * 1_000,
            retransmitted_segments: 0,
            sum_us: bursts * us,
            squares: bursts as f64 * square * 1.01,
        }
    }

    fn record(held_out: u64) -> Record {
        Record {
            job: 4711,
            cgroup: Some("/sys/fs/cgroup/a/paceline.12.1".into()),
            owner_uid: 1000,
            policy: "lfn".to_owned(),
            started_unix_s: 100,
            ended_unix_s: Some(141),
            counts: Counts::default(),
            phases: Default::default(),
            held_out_percent: 5,
            trials: vec![Trial {
                size: 2,
                policy: arm_of(9_500, 8_000),
                held_out: arm_of(held_out, 10_000),
            }],
        }
    }

    #[test]
    fn a_clear_difference_is_shown_with_its_interval() {
        let text = readable(&record(500), 200);
        assert!(text.contains("16 KiB to 64 KiB"), "{text}");
        assert!(text.contains("9,500 of 8.0 ms"), "{text}");
        assert!(
            text.contains("-2.0 ms (-2.1 ms to -1.9 ms), -20 %: faster"),
            "{text}"
        );
        assert!(
            text.contains("ran for 41 seconds, ended 59 seconds ago"),
            "{text}"
        );
    }

    #[test]
    fn too_few_bursts_are_reported() {
        let text = readable(&record(LEAST_BURSTS - 1), 200);
        assert!(text.contains("too few bursts: 30 of each"), "{text}");
        assert!(!text.contains("all sizes"), "{text}");
        let mut none = record(0);
        none.held_out_percent = 0;
        assert!(readable(&none, 200).contains("holds out no bursts"));
    }

    #[test]
    fn a_random_difference_is_not_reported_as_an_effect() {
        let mut even = record(40);
        even.trials[0].held_out = arm_of(40, 8_010);
        let text = readable(&even, 200);
        assert!(text.contains("no clear difference"), "{text}");
        assert!(text.contains("The interval contains 0"), "{text}");
        assert!(text.contains("Compare two whole runs"), "{text}");
    }
}
