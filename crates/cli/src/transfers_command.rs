// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline transfers`: transfers that this user has started on this host, and changes to them.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use clap::{Args as ClapArgs, Subcommand};
use indicatif::HumanBytes;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use paceline_input::units::Rate;

use crate::output;
use crate::transfer::{all, directory, send_change, streams, Change, Record, State};

/// How often `--watch` shows them.
const WATCH: Duration = Duration::from_secs(1);

/// Shows transfers of this user that were started on this host in the last week, changes and stops
/// them.
#[derive(ClapArgs, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Only this one: the beginning of its ID
    id: Option<String>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Repeat every second until Ctrl-C
    #[arg(long)]
    watch: bool,
    #[command(subcommand)]
    command: Option<TransfersCommand>,
}

#[derive(Subcommand, Debug)]
enum TransfersCommand {
    /// Change a running transfer
    Set {
        /// The beginning of its ID
        id: String,
        #[command(flatten)]
        change: SetArgs,
    },
    /// End a transfer; the same send or receive command continues it later
    Stop {
        /// The beginning of its ID
        id: String,
    },
}

#[derive(ClapArgs, Debug)]
#[group(required = true, multiple = true)]
struct SetArgs {
    /// Parallel data connections: 1 to 256, or auto
    #[arg(long, value_name = "auto|N", value_parser = checked_streams)]
    streams: Option<String>,
    /// No faster than this, all connections together; none: as the network allows
    #[arg(long, value_name = "RATE|none", value_parser = checked_rate)]
    rate: Option<String>,
}

fn checked_streams(text: &str) -> Result<String, String> {
    streams(text).map(|_| text.to_owned())
}

fn checked_rate(text: &str) -> Result<String, String> {
    match text {
        "none" => Ok(()),
        text => text.parse::<Rate>().map(|_| ()),
    }
    .map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Some(TransfersCommand::Stop { id }) => {
            stop(&running(id)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(TransfersCommand::Set { id, change }) => {
            let change = Change {
                streams: change.streams.clone(),
                rate: change.rate.clone(),
                stop: false,
            };
            send_change(&running(id)?.about.id, &change)?;
            return Ok(ExitCode::SUCCESS);
        }
        None => {}
    }
    loop {
        if args.watch {
            output::clear()?;
        }
        let records = records(args.id.as_deref())?;
        match args.json {
            true => output::print_json(&records)?,
            false => output::print(&table(&records))?,
        }
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(WATCH);
    }
}

fn records(id: Option<&str>) -> Result<Vec<Record>> {
    let directory = directory().context("no directory for records: HOME is not set")?;
    let mut records = all(&directory);
    if let Some(id) = id {
        records.retain(|record| record.about.id.starts_with(id));
        if records.is_empty() {
            bail!("no transfer whose ID begins with {id:?}: see paceline transfers");
        }
    }
    Ok(records)
}

/// The one that runs.
fn running(id: &str) -> Result<Record> {
    let mut running = records(Some(id))?;
    running.retain(|record| record.state == State::Running);
    match running.len() {
        0 => bail!("transfer {id} is not running"),
        1 => Ok(running.remove(0)),
        _ => bail!("several transfers that are running begin with {id:?}: write more of the ID"),
    }
}

fn stop(record: &Record) -> Result<()> {
    let change = Change {
        stop: true,
        ..Change::default()
    };
    let Err(error) = send_change(&record.about.id, &change) else {
        return Ok(());
    };
    tracing::info!("{error:#}");
    // A moment later the number may be another process's: the moment is short, and without root
    // that process is this user's own.
    kill(Pid::from_raw(record.pid as i32), Signal::SIGTERM)
        .with_context(|| format!("cannot end process {}", record.pid))
}

fn table(records: &[Record]) -> String {
    if records.is_empty() {
        return "no transfers\n".to_owned();
    }
    let head = ["id", "state", "done", "of", "entries", "from", "to"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for record in records {
        let state = match record.state {
            State::Running => "running",
            State::Done => "done",
            State::Interrupted => "interrupted",
            State::Failed => "failed",
        };
        rows.push(vec![
            record.about.id.clone(),
            state.to_owned(),
            HumanBytes(record.bytes_done).to_string(),
            HumanBytes(record.bytes).to_string(),
            format!("{}/{}", record.entries_done, record.entries),
            record.about.from.join(" "),
            record.about.to.clone(),
        ]);
    }
    output::table("", &rows)
}
