// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline emulate`: a WAN link between two interfaces.

use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use paceline_emulator::capture::{Capture, Captured};
use paceline_emulator::file::LinkFile;
use paceline_emulator::socket::{self, Answer, ChangeRequest, Request, Server};
use paceline_emulator::{
    interface_mtu, record, Buffer, DirectionReport, Emulator, Jitter, LinkConfig, Loss, Observe,
    Port, Report, Settings, ETHERNET_HEADER,
};
use paceline_input::units::{Rate, Size, Time};
use paceline_input::Percent;

use crate::interface::Place;
use crate::trusted_path;

/// Exit status of an invalid run.
const INVALID: u8 = 3;
/// Longest run with recorded bins, if no length is given.
const LONGEST: Duration = Duration::from_secs(3600);
/// Most drops of a direction that are listed one by one: 100 MB of them.
const MOST_DROPS: usize = 1 << 20;
/// Most bins of a direction: more than a day of milliseconds, 400 MB each.
const MOST_BINS: u64 = 100_000_000;
/// Interval of the terminal's updates, and of checks for Ctrl-C.
const REFRESH: Duration = Duration::from_millis(100);

/// Arguments of `paceline emulate`.
#[derive(ClapArgs, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: EmulateCommand,
}

#[derive(Subcommand, Debug)]
enum EmulateCommand {
    /// Connect two interfaces by a link until Ctrl-C; exit status 3 if the run is invalid
    Run(Box<RunArgs>),
    /// Change a running link
    Change(ChangeArgs),
    /// Print the report of a running link so far, as JSON
    Show {
        /// The control socket of `emulate run --control`
        socket: PathBuf,
    },
}

#[derive(ClapArgs, Debug)]
struct RunArgs {
    /// First interface: IF, or NETNS:IF of a named network namespace
    first: Place,
    /// Second interface
    second: Place,
    /// The link as TOML, with separate directions: docs/emulator.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "delay", "buffer", "loss", "jitter", "seed"])]
    file: Option<PathBuf>,
    /// Rate of each direction, framing included
    #[arg(long, required_unless_present = "file")]
    rate: Option<Rate>,
    /// One-way delay
    #[arg(long, default_value = "0s")]
    delay: Time,
    /// Size of the drop-tail buffer in front of the line
    #[arg(long, required_unless_present = "file")]
    buffer: Option<Size>,
    /// Random loss, as a share of packets
    #[arg(long, value_name = "PERCENT")]
    loss: Option<Percent>,
    /// Jitter: up to this much more or less delay, uniformly distributed
    #[arg(long, value_name = "TIME")]
    jitter: Option<Time>,
    /// Seed of the random impairments
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Time>,
    /// Write report.json, and load and drops as CSV and Parquet, to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Bin width of the load
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    bin: Time,
    /// Capture packets in and out to this pcapng file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Bytes captured of each packet
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    snap: u32,
    /// Control socket for `emulate change` and `emulate show`
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(ClapArgs, Debug)]
struct ChangeArgs {
    /// The control socket of `emulate run --control`
    socket: PathBuf,
    /// Only the direction from the first interface to the second, or back
    #[arg(long, value_enum)]
    direction: Option<Direction>,
    /// Rate, framing included
    #[arg(long)]
    rate: Option<Rate>,
    /// One-way delay
    #[arg(long)]
    delay: Option<Time>,
    /// Size of the drop-tail buffer
    #[arg(long)]
    buffer: Option<Size>,
    /// Random loss, as a share of packets
    #[arg(long, value_name = "PERCENT")]
    loss: Option<Percent>,
    /// Lose all packets on the line
    #[arg(long)]
    cut: bool,
    /// Stop the line for this time
    #[arg(long, value_name = "TIME")]
    outage: Option<Time>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Direction {
    Forward,
    Reverse,
}

/// One end of the link.
struct End {
    port: Port,
    /// Largest frame, bytes.
    frame: u32,
    /// Inode of its network namespace, and its number there: no other interface has both.
    interface: (u64, u32),
}

/// Opens an interface as one end.
fn open(place: &Place) -> Result<End> {
    let open = || -> Result<End> {
        place.enter()?;
        let mtu = interface_mtu(&place.name)?;
        let namespace = std::fs::metadata("/proc/thread-self/ns/net")
            .context("cannot look at the network namespace")?;
        let number = nix::net::if_::if_nametoindex(place.name.as_str())
            .with_context(|| format!("cannot find interface {}", place.name))?;
        Ok(End {
            port: Port::open(&place.name, mtu)?,
            frame: mtu + ETHERNET_HEADER,
            interface: (namespace.ino(), number),
        })
    };
    // A thread of its own: this one stays in its namespace.
    std::thread::scope(|scope| scope.spawn(open).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs the command.
///
/// # Errors
/// When the link is not possible, or its files cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        EmulateCommand::Run(args) => run_link(&args),
        EmulateCommand::Change(args) => change(args),
        EmulateCommand::Show { socket } => match ask(&socket, &Request::Report {})? {
            Answer::Report(report) => {
                println!("{}", serde_json::to_string_pretty(&report)?);
                Ok(ExitCode::SUCCESS)
            }
            _ => bail!("{} gave no report", socket.display()),
        },
    }
}

fn change(args: ChangeArgs) -> Result<ExitCode> {
    let request = Request::Change(ChangeRequest {
        direction: args.direction.map(|direction| match direction {
            Direction::Forward => paceline_emulator::Direction::Forward,
            Direction::Reverse => paceline_emulator::Direction::Reverse,
        }),
        rate: args.rate,
        delay: args.delay,
        buffer: args.buffer,
        loss: args.loss,
        cut: args.cut,
        outage: args.outage,
    });
    ask(&args.socket, &request)?;
    Ok(ExitCode::SUCCESS)
}

fn ask(path: &Path, request: &Request) -> Result<Answer> {
    match socket::ask(path, request) {
        Ok(Answer::Error(problem)) => bail!("{problem}"),
        Ok(answer) => Ok(answer),
        // Not removed here: a new link may take its place at this moment.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => bail!(
            "no link listens at {} any more: its process was killed; the next link there replaces the socket",
            path.display()
        ),
        Err(error) => Err(error).with_context(|| format!("no link listens at {}", path.display())),
    }
}

static STOP: AtomicBool = AtomicBool::new(false);

fn run_link(args: &RunArgs) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!("packet sockets need root: sudo paceline emulate run ...");
    }
    let (first, second) = (open(&args.first)?, open(&args.second)?);
    if first.interface == second.interface {
        bail!(
            "{} is given for both ends: a link connects two different interfaces",
            args.first.name
        );
    }
    let link = link(args, first.frame.max(second.frame))?;
    let (first, second) = (first.port, second.port);
    if let Some(directory) = &args.out {
        trusted_path::make_directory(directory)?;
    }
    let names = [first.name().to_owned(), second.name().to_owned()];
    for path in args.capture.iter().chain(&args.control) {
        trusted_path::check(path)?;
    }
    let capture = args.capture.as_deref().map(|path| {
        Capture::start(path, [&names[0], &names[1]], args.snap)
            .with_context(|| format!("cannot capture to {}", path.display()))
    });
    let capture = capture.transpose()?;
    let settings = Settings {
        forward: link.forward,
        reverse: link.reverse,
        observe: observe(args)?,
    };
    let emulator = Emulator::start_captured(first, second, settings, capture.as_ref())?;
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))
        .context("cannot watch for Ctrl-C")?;
    let server = args.control.as_deref().map(|path| {
        Server::start(path, emulator.control())
            .with_context(|| format!("cannot listen at {}", path.display()))
    });
    let server = server.transpose();
    if server.is_ok() {
        wait(&emulator, args.length.map(Time::duration));
    }
    let listened = server.map(drop);
    let report = emulator.stop()?;
    let captured = capture.map(Capture::finish).transpose();
    let captured = captured.context("cannot write the capture")?;
    // Only here: the run ends properly first.
    listened?;
    if let Some(directory) = &args.out {
        record::write(&report, directory)
            .with_context(|| format!("cannot write into {}", directory.display()))?;
        let path = directory.join("report.json");
        std::fs::write(&path, json(&report)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        println!("{}", json(&report)?);
    } else {
        show(&report, &names, captured);
    }
    let problems = report.problems();
    for problem in &problems {
        eprintln!("paceline: invalid run: {problem}");
    }
    Ok(match problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(INVALID),
    })
}

fn json(report: &Report) -> Result<String> {
    Ok(serde_json::to_string_pretty(&socket::report_json(report))?)
}

fn link(args: &RunArgs, frame_bytes: u32) -> Result<LinkFile> {
    if let Some(path) = &args.file {
        return Ok(LinkFile::read(path, frame_bytes)?);
    }
    let (Some(rate), Some(buffer)) = (args.rate, args.buffer) else {
        return Err(anyhow!("a link needs --rate and --buffer, or --file"));
    };
    let delay_ns = args.delay.micros() * 1_000;
    let mut forward = LinkConfig::new(
        rate.bits_per_second(),
        delay_ns,
        Buffer::Bytes(buffer.bytes()),
    );
    forward.seed = args.seed.wrapping_mul(2);
    forward.loss = args.loss.map(|share| Loss::Random {
        share: share.share(),
    });
    forward.jitter = args.jitter.map(|jitter| Jitter::Uniform {
        most_ns: jitter.micros() * 1_000,
    });
    forward.check(frame_bytes)?;
    let reverse = LinkConfig {
        seed: forward.seed + 1,
        ..forward.clone()
    };
    Ok(LinkFile { forward, reverse })
}

fn observe(args: &RunArgs) -> Result<Observe> {
    if args.out.is_none() {
        return Ok(Observe::NOTHING);
    }
    let longest = args.length.map_or(LONGEST, Time::duration);
    let longest_ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    let bin_ns = args.bin.micros().saturating_mul(1_000);
    if longest_ns
        .checked_div(bin_ns)
        .is_none_or(|bins| bins > MOST_BINS)
    {
        bail!(
            "--bin {}: more than {MOST_BINS} bins: give a wider --bin or a shorter --for",
            args.bin
        );
    }
    Ok(Observe {
        longest_ns,
        bin_ns,
        most_drops: MOST_DROPS,
    })
}

/// Until the time is over, Ctrl-C, or the link ends by itself.
fn wait(emulator: &Emulator, length: Option<Duration>) {
    let start = Instant::now();
    let bar = std::io::stderr().is_terminal().then(|| bar(length));
    let mut last = (Instant::now(), Report::default());
    while !STOP.load(Ordering::Relaxed) && length.is_none_or(|length| start.elapsed() < length) {
        let left = length.map_or(REFRESH, |length| length.saturating_sub(start.elapsed()));
        std::thread::sleep(REFRESH.min(left));
        let Some(bar) = &bar else { continue };
        if last.0.elapsed() < Duration::from_secs(1) {
            continue;
        }
        let Ok(report) = emulator.report() else {
            break;
        };
        let seconds = last.0.elapsed().as_secs_f64();
        let rate = |now: &DirectionReport, before: &DirectionReport| {
            (now.carried.bytes - before.carried.bytes) as f64 * 8.0 / 1e6 / seconds
        };
        bar.set_position(start.elapsed().as_secs());
        bar.set_message(format!(
            "{:.1} Mbit/s forward, {:.1} back; dropped {}, late by {} us (99th percentile)",
            rate(&report.forward, &last.1.forward),
            rate(&report.reverse, &last.1.reverse),
            report.forward.dropped.packets + report.reverse.dropped.packets,
            report
                .forward
                .recent_lateness
                .p99_ns
                .max(report.reverse.recent_lateness.p99_ns)
                / 1_000,
        ));
        last = (Instant::now(), report);
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

fn bar(length: Option<Duration>) -> ProgressBar {
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::new(length.as_secs()),
            "{elapsed} of {len} s, {eta} to go  {msg}",
        ),
        None => (ProgressBar::new_spinner(), "{elapsed}  {msg}"),
    };
    // The templates are constants that parse.
    bar.with_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

fn show(report: &Report, names: &[String; 2], captured: Option<Captured>) {
    let seconds = report.duration_ns as f64 / 1e9;
    println!(
        "{seconds:.1} s, {:.0} % of a CPU{}",
        report.cpu_ns as f64 / report.duration_ns.max(1) as f64 * 100.0,
        if report.realtime {
            ""
        } else {
            ", without real-time priority"
        }
    );
    for (from, to, way) in [(0, 1, &report.forward), (1, 0, &report.reverse)] {
        let counts = [
            ("offered", way.offered),
            ("carried", way.carried),
            ("dropped", way.dropped),
            ("dropped early", way.dropped_early),
            ("marked", way.marked),
            ("lost", way.lost),
            ("duplicated", way.duplicated),
            ("on the way", way.in_flight),
        ];
        println!("{} to {}", names[from], names[to]);
        for (what, count) in counts.iter().filter(|(_, count)| count.packets > 0) {
            println!(
                "  {what:<14}{:>12} packets{:>16} bytes",
                count.packets, count.bytes
            );
        }
        println!(
            "  late by {:.1} us (median), {:.1} us (99th percentile), {:.1} us (maximum); queue {} bytes at most",
            way.lateness.median_ns as f64 / 1e3,
            way.lateness.p99_ns as f64 / 1e3,
            way.lateness.max_ns as f64 / 1e3,
            way.peak_backlog
        );
    }
    if let Some(Captured { packets, missed }) = captured {
        println!("captured {packets} packets, missed {missed}");
    }
}
