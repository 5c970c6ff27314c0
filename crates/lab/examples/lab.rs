// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline lab` alone.

#[path = "../../cli/src/lab_command.rs"]
mod lab_command;

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: lab_command::Args,
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    if paceline_lab::guest::is_guest_init() {
        paceline_lab::guest::init_main();
    }
    lab_command::run(Cli::parse().args)
}
