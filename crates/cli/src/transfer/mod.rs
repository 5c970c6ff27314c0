// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Common parts of `paceline send` and `receive`: options, addresses, the run, its output.

mod adapt;
mod address;
mod control;
mod hash_file;
mod options;
mod record;
mod show;

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use paceline_mover::session::{Progress, Tuning};
use paceline_mover::Error;
use paceline_transfer::wire::{Reason, Summary};

pub use adapt::AdaptArgs;
pub use address::{hosts, route, shared_paths, sources, Address, Route};
pub use control::{send_change, streams, Change};
pub use options::{remote, AccessArgs, Options};
pub use record::{all, directory, About, Record, State};
pub use show::Show;

use crate::output;

/// Threads of the runtime. Work that blocks on a disk leaves its thread to others.
const THREADS: usize = 4;

/// Exit codes of `send` and `receive`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  everything is at the destination and verified
  1  some entries failed: they are listed
  2  wrong usage
  3  verification failed
  4  interrupted: the same command continues
  5  a source file kept changing
  6  no space or quota at the destination
  7  refused";

const INTERRUPTED: u8 = 4;

fn code_of_reason(reason: Reason) -> u8 {
    match reason {
        Reason::MaxDelete => 1,
        Reason::Usage => 2,
        Reason::Interrupted => INTERRUPTED,
        Reason::Full => 6,
        Reason::Refused => 7,
    }
}

fn code_of_summary(summary: &Summary, failed_here: u64) -> u8 {
    if summary.wrong > 0 {
        3
    } else if summary.changed > 0 {
        5
    } else {
        u8::from(summary.failed.max(failed_here) > 0)
    }
}

/// Runs asynchronous work to its end.
pub fn block_on<T>(work: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot start")?;
    let result = runtime.block_on(work);
    // A read of stdin that is under way cannot be ended.
    runtime.shutdown_background();
    Ok(result)
}

/// Ends with the first SIGINT or SIGTERM.
pub async fn stopped() {
    let (stop, mut stops) = tokio::sync::watch::channel(false);
    let set = ctrlc::set_handler(move || {
        let _ = stop.send(true);
    });
    if let Err(error) = set {
        tracing::warn!("cannot catch Ctrl-C: {error}");
        std::future::pending::<()>().await;
    }
    let _ = stops.changed().await;
}

/// Runs a transfer, shows its progress, and reports its end.
pub fn run<F>(
    about: About,
    options: &Options,
    adapt: Option<&AdaptArgs>,
    verbose: u8,
    transfer: impl FnOnce(Arc<Tuning>, Arc<Progress>) -> F,
) -> Result<ExitCode>
where
    F: Future<Output = paceline_mover::Result<Summary>>,
{
    let show = match Show::new(options, verbose) {
        Ok(show) => Arc::new(show),
        Err(error) => return Ok(usage(&error)),
    };
    let progress = {
        let show = Arc::clone(&show);
        Progress::new(move |event| show.event(&event))
    };
    let adapt = adapt.filter(|_| !options.dry_run);
    let _adapted = match adapt.map(|adapt| adapt.begin(&about.id)).transpose() {
        Ok(adapted) => adapted,
        Err(error) => return Ok(usage(&error)),
    };
    let tuning = Arc::new(options.tuning());
    let id = about.id.clone();
    let record = Record::new(about, options.dry_run);
    show.start(&record);
    let ended = block_on(async {
        let transfer = transfer(Arc::clone(&tuning), Arc::clone(&progress));
        let tick = async {
            loop {
                show.progress(&progress);
                record.write(&progress, State::Running, None);
                tokio::time::sleep(show.period()).await;
            }
        };
        tokio::select! {
            ended = transfer => Some(ended),
            () = stopped() => None,
            () = control::serve(&id, &tuning), if !options.dry_run => None,
            () = tick => None,
        }
    })?;
    show.progress(&progress);
    let code = match &ended {
        Some(Ok(summary)) => code_of_summary(summary, show.failed()),
        Some(Err(error)) => code_of_reason(error.reason()),
        None => INTERRUPTED,
    };
    let state = match code {
        0 => State::Done,
        INTERRUPTED => State::Interrupted,
        _ => State::Failed,
    };
    record.write(&progress, state, Some(code));
    match ended {
        Some(Ok(summary)) => show.finish(&summary, &progress, code)?,
        Some(Err(error)) => show.fail(&text_of(&error), code)?,
        None => show.fail("interrupted: the same command continues", code)?,
    }
    Ok(ExitCode::from(code))
}

fn text_of(error: &Error) -> String {
    match error.reason() {
        Reason::Interrupted => format!("{error}; the same command continues"),
        _ => error.to_string(),
    }
}

/// A command line that cannot be carried out.
pub fn usage(error: &anyhow::Error) -> ExitCode {
    output::print_error(&crate::chain(error));
    ExitCode::from(code_of_reason(Reason::Usage))
}

/// The other side of ssh. The command reports to the user; this is for the log.
pub fn helper_ended(ended: paceline_mover::Result<()>) -> Result<ExitCode> {
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            tracing::info!("{error}");
            Ok(ExitCode::from(code_of_reason(error.reason())))
        }
    }
}

/// An error before a transfer begins.
pub fn refuse(error: &Error) -> ExitCode {
    output::print_error(&error.to_string());
    ExitCode::from(code_of_reason(error.reason()))
}
