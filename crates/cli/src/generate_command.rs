// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline generate`: files that packages install beside the program, from the command
//! line's own definition. Hidden: no user of the program needs it.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Command, ValueEnum};
use clap_complete::Shell;

/// Arguments of `paceline generate`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to write
    kind: Kind,
    /// Directory, which is made
    directory: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// `paceline.1`, and `paceline-COMMAND.1` of each command
    Man,
    /// Completions as bash, fish and zsh look for them
    Completions,
}

/// Runs the command.
///
/// # Errors
/// When a file cannot be written.
pub fn run(args: &Args, mut command: Command) -> Result<ExitCode> {
    let directory = &args.directory;
    let failed = || format!("cannot write to {}", directory.display());
    fs::create_dir_all(directory).with_context(failed)?;
    match args.kind {
        Kind::Man => clap_mangen::generate_to(command, directory).with_context(failed)?,
        Kind::Completions => {
            for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
                clap_complete::generate_to(shell, &mut command, "paceline", directory)
                    .with_context(failed)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
