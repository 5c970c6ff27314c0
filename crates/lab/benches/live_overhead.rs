// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo bench -p paceline-lab --bench live_overhead -- [--pairs N] [--out FILE]`
//!
//! Bulk throughput of Paceline over CUBIC's on this machine; see
//! `paceline_lab::overhead`. Exit status: 0 passed, 1 failed, 2 could not run,
//! 3 the machine was too busy to tell.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use paceline_lab::overhead::{run, Comparison};

fn main() -> ExitCode {
    match bench() {
        Ok(code) => code,
        Err(message) => {
            eprintln!("live_overhead: {message}");
            ExitCode::from(2)
        }
    }
}

fn bench() -> Result<ExitCode, String> {
    let mut comparison = Comparison {
        pairs: 401,
        duration_ns: 250_000_000,
        policy: "lfn".to_owned(),
        least_ratio: 0.97,
    };
    let mut out = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--pairs" => {
                let value = value()?;
                comparison.pairs = value
                    .parse()
                    .map_err(|_| format!("--pairs {value}: not a number, such as 401"))?;
            }
            "--out" => out = Some(value()?),
            // Cargo's own.
            "--bench" => {}
            _ => {
                return Err(format!(
                    "unknown argument {argument}; known are --pairs N and --out FILE"
                ))
            }
        }
    }
    let pairs = comparison.pairs;
    let progress = |done| eprint!("\r{done} of {pairs} pairs");
    let found =
        run(&comparison, &progress, &AtomicBool::new(false)).map_err(|error| error.to_string())?;
    eprintln!();
    let gigabits = |bps: f64| bps / 1e9;
    println!(
        "CUBIC {:.2} Gbit/s, Paceline {:.2} Gbit/s, ratio {:.4} (95 % interval {:.4} to {:.4}; {} asked)",
        gigabits(found.cubic_bps.median),
        gigabits(found.paceline_bps.median),
        found.ratio.median,
        found.ratio_interval[0],
        found.ratio_interval[1],
        found.least_ratio,
    );
    if let Some(path) = out {
        let mut text = serde_json::to_string_pretty(&found).map_err(|error| error.to_string())?;
        text.push('\n');
        std::fs::write(&path, text).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    Ok(match (found.valid, found.pass) {
        (false, _) => {
            println!("the interval is too wide: the machine was busy; run it again on an idle one");
            ExitCode::from(3)
        }
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(1),
    })
}
