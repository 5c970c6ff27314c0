// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline lab guest`: a command of this machine on another kernel, as root of a virtual
//! machine that is gone afterwards. Tests use it where they would change the machine.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use paceline_experiment::record::Stream;
use paceline_input::units::Time;
use paceline_machine::guest::command::Command;
use paceline_machine::{
    clean_stale, execute, files_for_guest, find_program, prepare, Choice, Machine,
};

/// Arguments of `lab guest`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The guest's kernel: a Debian suite or a directory of packages
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<Choice>,
    /// Copy into the guest, at the same path: a program with its libraries, a file, a directory
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,
    /// Environment variable of the command
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    environment: Vec<(String, String)>,
    /// Stop the guest when it prints nothing for this time
    #[arg(long, value_name = "TIME", default_value = "10min")]
    patience: Time,
    /// The command and its arguments; `paceline` is this program
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "NAME=VALUE is needed".to_owned())
}

static STOP: AtomicBool = AtomicBool::new(false);

/// Runs the command: its output is passed on while it runs, its exit status is ours.
///
/// # Errors
/// When the guest cannot be made, or dies.
pub fn run(args: Args, log: Option<String>) -> Result<ExitCode> {
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))
        .context("cannot watch for Ctrl-C")?;
    let (mut words, mut files) = (args.command, args.files);
    if words[0] != "paceline" {
        let program = match words[0].contains('/') {
            true => {
                std::path::absolute(&words[0]).context("cannot find the path of this program")?
            }
            false => find_program(&words[0])?,
        };
        words[0] = program
            .to_str()
            .context("the program's path is not UTF-8")?
            .to_owned();
        files.push(program);
    }
    clean_stale();
    let image = prepare(&args.kernel.unwrap_or_default())?;
    if let Some(reason) = &image.stale {
        eprintln!("paceline: {reason}");
    }
    let machine = Machine {
        image,
        shift: 0,
        patience: Duration::from_micros(args.patience.micros()),
        log,
    };
    let command = Command {
        words,
        environment: args.environment,
    };
    let mut print = |stream, text: &str| {
        // A closed output does not keep the command from its end.
        let _ = match stream {
            Stream::Output => std::io::stdout().write_all(text.as_bytes()),
            Stream::Error => std::io::stderr().write_all(text.as_bytes()),
        };
    };
    let files = files_for_guest(&files)?;
    let stop = || STOP.load(Ordering::Relaxed);
    let status = execute(&machine, &command, &files, &mut print, &stop)?;
    std::io::stdout().flush().context("cannot print")?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)))
}
