// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command `paceline`.

#![forbid(unsafe_code)]

mod agent_command;
mod attach_command;
mod bad_file;
mod burst_command;
mod coordinate_command;
mod doctor_command;
mod emulate_command;
mod fingerprint;
mod gateway_command;
mod generate_command;
mod interface;
mod lab_command;
mod metrics;
mod policy_command;
mod receive_command;
mod report_command;
mod run_command;
mod schema_command;
mod send_command;
mod set_command;
mod sim_command;
mod status_command;
mod through_gateway;
mod transfer;
mod transfers_command;
mod trusted_path;

use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use paceline_terminal as output;

const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    failure; doctor: Paceline cannot run here; lab, sim: a claim does not hold
  2    wrong usage, or an invalid experiment, topology, scenario, link
       or gateway file
  3    lab, emulate, burst: the run is invalid; send, receive: see their --help (3 to 7)
  125  run, lab exec: paceline itself failed, the command was not started
  126  run, lab exec: the command was found but cannot be executed
  127  run, lab exec: the command was not found
  *    run, lab exec: otherwise the command's own; run: or 128 plus the signal that
       ended it";

/// Log filter, instead of `--verbose`.
const LOG: &str = "PACELINE_LOG";

/// Exit status where a file that the user wrote is wrong, as where the command line is.
const BAD_FILE: u8 = 2;

/// TCP for parallel and distributed computing, adapted per job on a stock kernel.
#[derive(Parser)]
#[command(name = "paceline", version, after_help = EXIT_CODES)]
struct Cli {
    /// More messages on stderr; twice: also the BPF verifier's log
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a command and apply a policy to its TCP connections
    Run(run_command::Args),
    /// Apply a policy to the connections of an existing cgroup
    Attach(attach_command::AttachArgs),
    /// Remove the policy from an attached cgroup
    Detach(attach_command::DetachArgs),
    /// Change the policy of a running job and of its connections
    Set(set_command::Args),
    /// Show what a job's connections did, and what its policy did for them
    Report(report_command::Args),
    /// Run jobs for users without root
    Agent(agent_command::Args),
    /// Show the jobs, the changes to each connection, and the reasons
    Status(status_command::Args),
    /// Live view of jobs, connections and groups of parallel streams
    Top(paceline_top::Args),
    /// Check this kernel and host, with a remedy for each failed check
    Doctor(doctor_command::Args),
    /// List, show and check policies
    Policy(policy_command::Args),
    /// Run experiments; build networks for other programs
    Lab(lab_command::Args),
    /// Coordinate parallel streams of many hosts so that they finish together
    Coordinate(coordinate_command::Args),
    /// Send files to another host over parallel streams
    Send(Box<send_command::Args>),
    /// Receive files from another host, or run a standing receiver
    Receive(Box<receive_command::Args>),
    /// Show transfers of this user on this host, and stop them
    Transfers(transfers_command::Args),
    /// Carry other hosts' connections over a WAN, in one session at a reserved or learned rate
    Gateway(gateway_command::Args),
    /// Emulate a WAN link between two interfaces
    Emulate(emulate_command::Args),
    /// Measure burstiness: packets per window of time at an interface
    Burst(burst_command::Args),
    /// Print the JSON schema of a kind of file, for editors
    Schema(schema_command::Args),
    /// Write man pages and completions of shells, for packages
    #[command(hide = true)]
    Generate(generate_command::Args),
    /// Simulate TCP: hundreds to a million flows, RED, burstiness
    Sim(sim_command::Args),
}

fn main() -> ExitCode {
    // The virtual lab's guest has this program as its /init.
    if paceline_machine::guest::is_guest_init() {
        start_log(0, false);
        paceline_lab::backend::guest_main();
    }
    // And as the ranks of its programs.
    if paceline_lab::workload::ranks::is_rank() {
        paceline_lab::workload::ranks::rank_main();
    }
    let cli = Cli::parse();
    let quiet = matches!(&cli.command, Command::Run(args) if args.quiet);
    start_log(cli.verbose, quiet);
    // Where it speaks for another program, paceline's own failures need a code apart.
    let failure = match &cli.command {
        Command::Run(_) => ExitCode::from(run_command::FAILED),
        Command::Lab(args) if args.is_for_another() => ExitCode::from(run_command::FAILED),
        _ => ExitCode::FAILURE,
    };
    let result = match cli.command {
        Command::Run(args) => run_command::run(args),
        Command::Attach(args) => attach_command::attach(args),
        Command::Detach(args) => attach_command::detach(args),
        Command::Set(args) => set_command::run(args),
        Command::Report(args) => report_command::run(args),
        Command::Agent(args) => agent_command::run(&args),
        Command::Status(args) => status_command::run(args),
        Command::Top(args) => paceline_top::run(&args),
        Command::Doctor(args) => doctor_command::run(args),
        Command::Policy(args) => policy_command::run(args),
        Command::Lab(args) => lab_command::run(args, guest_log(cli.verbose)),
        Command::Coordinate(args) => coordinate_command::run(args),
        Command::Send(args) => send_command::run(*args, cli.verbose),
        Command::Receive(args) => receive_command::run(*args, cli.verbose),
        Command::Transfers(args) => transfers_command::run(&args),
        Command::Gateway(args) => gateway_command::run(args),
        Command::Emulate(args) => emulate_command::run(args),
        Command::Burst(args) => burst_command::run(&args),
        Command::Schema(args) => schema_command::run(&args),
        Command::Generate(args) => generate_command::run(&args, Cli::command()),
        Command::Sim(args) => sim_command::run(&args),
    };
    result.unwrap_or_else(|error| {
        output::print_error(&chain(&error));
        match bad_file::is_cause_of(&error) {
            true => ExitCode::from(BAD_FILE),
            false => failure,
        }
    })
}

/// The error and its causes on one line; a cause that the text before it quotes
/// already is left out.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Log filter of the programs in the virtual lab's guests, with `--verbose`.
fn guest_log(verbose: u8) -> Option<String> {
    std::env::var(LOG)
        .ok()
        .or_else(|| (verbose > 0).then(|| filter(verbose).to_owned()))
}

fn filter(verbose: u8) -> &'static str {
    match verbose {
        0 => "warn,paceline_end=info",
        1 => "info,libbpf=warn",
        2 => "debug",
        _ => "trace",
    }
}

fn start_log(verbose: u8, quiet: bool) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env(LOG).unwrap_or_else(|_| {
        let own = if quiet && verbose == 0 {
            "warn"
        } else {
            filter(verbose)
        };
        EnvFilter::new(own)
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(verbose > 1)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
