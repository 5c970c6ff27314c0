// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline policy list | show NAME | check FILE`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use paceline_policy::{presets, Policy, PolicyError};
use serde_json::{json, Value};

use crate::output;

/// Arguments of `paceline policy`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Subcommand, Debug)]
enum PolicyCommand {
    /// List the presets
    List {
        /// Print a JSON list of objects with `name`, `description` and `default`
        #[arg(long)]
        json: bool,
    },
    /// Print a policy with all its defaults, as TOML that `check` accepts
    Show {
        /// A preset, or the path of a file
        #[arg(value_name = "NAME|FILE")]
        policy: String,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a policy file: exit status 0 if it is valid, 1 if not
    Check {
        /// The file; any name is allowed
        file: String,
        /// Print a JSON object with `file`, `valid`, `name` and `problems`
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
///
/// # Errors
/// When a policy to be shown does not exist or is not valid, a file to be
/// checked cannot be read, or standard output cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        PolicyCommand::List { json } => list(json),
        PolicyCommand::Show { policy, json } => show(&policy, json),
        PolicyCommand::Check { file, json } => check(&file, json),
    }
}

fn list(as_json: bool) -> Result<ExitCode> {
    let all = || presets::names().filter_map(Policy::preset);
    if as_json {
        let entries = all()
            .map(|policy| {
                json!({
                    "name": policy.name,
                    "description": policy.description,
                    "default": policy.name == presets::DEFAULT,
                })
            })
            .collect();
        return print_json(&Value::Array(entries));
    }
    let rows: Vec<Vec<String>> = all()
        .map(|policy| {
            let default = policy.name == presets::DEFAULT;
            let mark = if default { " (default)" } else { "" };
            vec![policy.name, policy.description + mark]
        })
        .collect();
    output::print(&output::table("", &rows))?;
    Ok(ExitCode::SUCCESS)
}

fn show(policy: &str, as_json: bool) -> Result<ExitCode> {
    let policy = Policy::load(policy)?;
    if as_json {
        return print_json(&serde_json::to_value(&policy)?);
    }
    output::print(&policy.to_toml())?;
    Ok(ExitCode::SUCCESS)
}

fn check(file: &str, as_json: bool) -> Result<ExitCode> {
    let (name, problems) = match Policy::load_file(file) {
        Ok(policy) => (Some(policy.name), Vec::new()),
        Err(PolicyError::Invalid(problems)) => (None, problems.list),
        Err(unreadable) => return Err(unreadable.into()),
    };
    if as_json {
        let problems: Vec<_> = problems
            .iter()
            .map(|problem| {
                json!({
                    "line": problem.line,
                    "column": problem.column,
                    "key": problem.key,
                    "message": problem.what,
                })
            })
            .collect();
        let valid = name.is_some();
        print_json(&json!({ "file": file, "valid": valid, "name": name, "problems": problems }))?;
    } else if let Some(name) = &name {
        output::print(&format!("{file}: policy {name} is valid\n"))?;
    } else {
        for problem in &problems {
            eprintln!("{file}:{problem}");
        }
    }
    Ok(match name {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

fn print_json(value: &Value) -> Result<ExitCode> {
    output::print_json(value)?;
    Ok(ExitCode::SUCCESS)
}
