// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline burst`: how bursty traffic is, live.

mod text;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use paceline_burst::{
    monotonic_ns, Attach, Direction, Filter, Interface, Meter, Options, Window, LEAST_WINDOW_NS,
    MOST_WINDOW_NS,
};
use paceline_input::units::Time;
use serde_json::json;

use self::text::Setting;
use crate::interface::Place;

/// Exit status of a run that lacks windows.
const INVALID: u8 = 3;
/// How often statistics are shown.
const REPORT_NS: u64 = 1_000_000_000;
/// Between two looks at the counters: the least spares the CPU with short windows, the most
/// bounds the wait for Ctrl-C.
const LOOK: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];

/// Arguments of `paceline burst`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Interface: IF, or NETNS:IF of a named network namespace
    #[arg(long, value_name = "IF")]
    dev: Place,
    /// Length of a window; feng-2000 uses the round-trip propagation delay
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    window: Time,
    /// Packets received, packets queued for transmission, or the sum of both
    #[arg(long, value_enum, default_value = "in")]
    direction: Way,
    /// Count only these packets: "tcp dst port 5001 src host 10.0.0.0/8"; docs/burst.md
    #[arg(long, value_name = "TERMS", default_value = "")]
    filter: Filter,
    /// Count a GSO or GRO packet as one packet, not as its segments
    #[arg(long)]
    whole_packets: bool,
    /// Stop after this many windows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    windows: Option<u64>,
    /// Stop after this time, in whole windows
    #[arg(long, value_name = "TIME")]
    duration: Option<Time>,
    /// CLOCK_MONOTONIC time at which a window begins, such as started_ns of a link's report
    #[arg(
        long,
        value_name = "NANOSECONDS",
        default_value_t = 0,
        hide_default_value = true
    )]
    align: u64,
    /// Hook; auto: tcx where the kernel has it, else tc (cls_bpf); xdp sees packets before GRO
    #[arg(long, value_enum, default_value = "auto")]
    attach: Hook,
    /// One JSON object per line: each window, and statistics once a second
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Way {
    In,
    Out,
    Both,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Hook {
    Auto,
    Tcx,
    Xdp,
    Tc,
}

static STOP: AtomicBool = AtomicBool::new(false);

/// Runs the command.
///
/// # Errors
/// When packets cannot be counted there.
pub fn run(args: &Args) -> Result<ExitCode> {
    let window_ns = window_ns(args.window)?;
    let limit = limit(args, window_ns)?;
    let ahead_ns = args.align.saturating_sub(monotonic_ns());
    if ahead_ns > MOST_WINDOW_NS {
        bail!(
            "--align {}: CLOCK_MONOTONIC reaches it in {} hours; it may be at most one hour ahead",
            args.align,
            ahead_ns / MOST_WINDOW_NS
        );
    }
    args.dev.enter()?;
    let options = Options {
        interface: Interface::find(&args.dev.name)?,
        direction: match args.direction {
            Way::In => Direction::In,
            Way::Out => Direction::Out,
            Way::Both => Direction::Both,
        },
        filter: args.filter.clone(),
        window_ns,
        origin_ns: args.align,
        whole_packets: args.whole_packets,
        attach: match args.attach {
            Hook::Auto => Attach::Auto,
            Hook::Tcx => Attach::Tcx,
            Hook::Xdp => Attach::Xdp,
            Hook::Tc => Attach::Classic,
        },
    };
    // First, because it may come at any time, and cls_bpf must be detached.
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))
        .context("cannot watch for Ctrl-C")?;
    let mut meter = Meter::start(&options)?;
    let setting = Setting::new(&options, meter.kind());
    let mut show = Show::new(args.json);
    let mut history = text::History::new(window_ns);
    if !show.start(&setting, &meter)? {
        return Ok(ExitCode::SUCCESS);
    }
    let mut reported_ns = monotonic_ns();
    let finished = loop {
        let mut windows = meter.take()?;
        let left = limit.map(|limit| limit - history.windows());
        if let Some(left) = left {
            windows.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        }
        windows.iter().for_each(|window| history.add(window));
        if !show.windows(&windows)? {
            break false;
        }
        if limit == Some(history.windows()) {
            break true;
        }
        if STOP.load(Ordering::Relaxed) {
            break true;
        }
        let now = monotonic_ns();
        if now - reported_ns >= REPORT_NS {
            if !show.statistics(&setting, &history)? {
                break false;
            }
            reported_ns = now;
        }
        let wait = Duration::from_nanos(meter.next_ready_ns().saturating_sub(now));
        std::thread::sleep(wait.clamp(LOOK[0], LOOK[1]));
    };
    drop(meter);
    if finished {
        show.end(&setting, &history, limit == Some(history.windows()))?;
    }
    if history.lost() == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "paceline: invalid run: {} windows are missing, because this process was stopped for longer than the kernel keeps them",
        history.lost()
    );
    Ok(ExitCode::from(INVALID))
}

fn window_ns(window: Time) -> Result<u64> {
    let (least, most) = (LEAST_WINDOW_NS, MOST_WINDOW_NS);
    match window.micros().checked_mul(1_000) {
        Some(ns) if (least..=most).contains(&ns) => Ok(ns),
        _ => bail!(
            "--window {window}: from {} to {}",
            Time::from_micros(least / 1_000),
            Time::from_micros(most / 1_000)
        ),
    }
}

/// The smaller of both limits, in windows.
fn limit(args: &Args, window_ns: u64) -> Result<Option<u64>> {
    let of_duration = args
        .duration
        .map(|duration| duration.micros().saturating_mul(1_000) / window_ns);
    if of_duration == Some(0) {
        bail!(
            "--duration {} is shorter than a window, {}",
            args.duration.unwrap_or_default(),
            args.window
        );
    }
    Ok(args.windows.into_iter().chain(of_duration).min())
}

/// Where it is shown. Each function returns false when the reader has gone.
struct Show {
    json: bool,
    bar: Option<ProgressBar>,
}

impl Show {
    fn new(json: bool) -> Self {
        let live = !json && io::stderr().is_terminal();
        Show {
            json,
            bar: live.then(|| {
                let bar = ProgressBar::new_spinner();
                // The template is a constant that parses.
                bar.with_style(
                    ProgressStyle::with_template("{msg}")
                        .unwrap_or_else(|_| ProgressStyle::default_spinner()),
                )
            }),
        }
    }

    fn start(&self, setting: &Setting, meter: &Meter) -> Result<bool> {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}\nthe first window begins", setting.text()));
        }
        if !self.json {
            return Ok(true);
        }
        let mut line = setting.json();
        line["first_start_ns"] = json!(meter.next_start_ns());
        line["held_windows"] = json!(meter.held_windows());
        lines(&[line])
    }

    fn windows(&self, windows: &[Window]) -> Result<bool> {
        if !self.json {
            return Ok(true);
        }
        let all: Vec<_> = windows
            .iter()
            .map(|window| match window.counts {
                Some(counts) => json!({
                    "kind": "window",
                    "start_ns": window.start_ns,
                    "packets": counts.packets,
                    "bytes": counts.bytes,
                }),
                None => json!({"kind": "lost", "start_ns": window.start_ns}),
            })
            .collect();
        lines(&all)
    }

    fn statistics(&self, setting: &Setting, history: &text::History) -> Result<bool> {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}\n{}", setting.text(), history.text()));
        }
        if !self.json {
            return Ok(true);
        }
        let mut line = json!({"kind": "statistics"});
        history.put_json(&mut line);
        lines(&[line])
    }

    fn end(&mut self, setting: &Setting, history: &text::History, complete: bool) -> Result<()> {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if !self.json {
            return crate::output::print(&format!("{}\n{}", setting.text(), history.text()));
        }
        let reason = if complete { "complete" } else { "interrupted" };
        let mut line = json!({"kind": "end", "reason": reason});
        history.put_json(&mut line);
        lines(&[line]).map(drop)
    }
}

fn lines(objects: &[serde_json::Value]) -> Result<bool> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = objects
        .iter()
        .try_for_each(|object| writeln!(out, "{object}"))
        .and_then(|()| out.flush());
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // The rest of the buffer has no reader either.
            let _ = out.into_parts();
            Ok(false)
        }
        Err(error) => Err(error).context("cannot write to stdout"),
    }
}
