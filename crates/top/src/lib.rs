// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline top`: a live view of Paceline on this host.
//!
//! `seen` keeps the last looks, `table` makes rows of them, `view` is the state that keys
//! change, and `draw` renders these and nothing else.

#![forbid(unsafe_code)]

mod draw;
mod gateway;
mod history;
mod seen;
mod table;
mod view;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, TryRecvError};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use crossterm::event::{self, Event};
use paceline_agent::status::{Reader, Status};
use paceline_gateway::service::{control_socket, Status as GatewayStatus};
use paceline_input::units::Time;
use ratatui::DefaultTerminal;

pub use table::value;
use view::{Next, View};

/// Bounds of the interval. A look takes some milliseconds of a CPU; above a minute the view
/// is not live.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
/// How soon a new look, or a signal, is noticed. Keys are noticed at once.
const NOTICE: Duration = Duration::from_millis(50);

/// The command line of `paceline top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Refresh interval, 100ms to 60s
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Time,
    /// Control socket of this host's gateway, if its configuration has another
    #[arg(long, value_name = "PATH")]
    gateway: Option<PathBuf>,
}

/// A snapshot and its time, since the first one.
struct Look {
    at: Duration,
    status: std::result::Result<Status, paceline_agent::Error>,
    gateway: Option<GatewayStatus>,
}

/// Shows the view until it is left, or a signal comes.
///
/// # Errors
/// A bad interval, no terminal, or a kernel side that cannot be read.
pub fn run(args: &Args) -> Result<ExitCode> {
    let interval = args.interval.duration();
    if !(INTERVALS.0..=INTERVALS.1).contains(&interval) {
        bail!("--interval {}: expected 100ms to 60s", args.interval);
    }
    if !std::io::stdout().is_terminal() {
        bail!("paceline top needs a terminal, and stdout is none: use paceline status --json in programs");
    }
    let looks = look_again_and_again(interval, control_socket(args.gateway.as_ref()))?;
    let first = looks.recv().map_err(|_| anyhow!(GONE))?;
    let mut view = View::new(args.interval);
    view.seen.add(first.at, first.status?);
    view.gateway.see(first.at, first.gateway);

    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    ctrlc::set_handler(move || stopped.store(true, Ordering::Relaxed))
        .context("cannot wait for signals")?;
    let mut screen = Screen::open()?;
    show(&mut screen.0, &mut view, &looks, &stop)?;
    Ok(ExitCode::SUCCESS)
}

/// Why there are no more looks: a panic, whose message was printed.
const GONE: &str = "paceline top cannot read the kernel side any more";

/// Looks from a thread of its own: another `paceline` may hold the lock of jobs for long, and
/// keys must still respond.
fn look_again_and_again(interval: Duration, gateway: PathBuf) -> Result<Receiver<Look>> {
    let (to, looks) = sync_channel(1);
    let looking = move || {
        let mut reader = Reader::new("paceline top");
        let begin = Instant::now();
        let mut next = begin;
        loop {
            let status = reader.read();
            let look = Look {
                at: begin.elapsed(),
                status,
                gateway: gateway::look(&gateway),
            };
            if to.send(look).is_err() {
                return;
            }
            next = (next + interval).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    std::thread::Builder::new()
        .name("look".to_owned())
        // The log would be written across the screen.
        .spawn(|| {
            let nobody = tracing::subscriber::NoSubscriber::default();
            tracing::subscriber::with_default(nobody, looking);
        })
        .context("cannot start a thread")?;
    Ok(looks)
}

/// The terminal, given back as it was however this process ends, but for SIGKILL: when this
/// is dropped, and before a panic's words, of any thread.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                drop(ratatui::try_restore());
                Err(error).context("cannot draw on this terminal")
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        drop(self.0.show_cursor());
        drop(ratatui::try_restore());
    }
}

fn show(
    screen: &mut DefaultTerminal,
    view: &mut View,
    looks: &Receiver<Look>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut changed = true;
    while !stop.load(Ordering::Relaxed) {
        if changed {
            let mut page = 1;
            screen
                .draw(|frame| page = draw::draw(frame, view))
                .context("cannot draw on this terminal")?;
            view.page = page;
        }
        changed = match looks.try_recv() {
            Ok(look) => {
                view.gateway.see(look.at, look.gateway);
                view.problem = match look.status {
                    Ok(status) => {
                        view.see(look.at, status);
                        None
                    }
                    Err(error) => Some(error.to_string()),
                };
                true
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => bail!(GONE),
        };
        if !event::poll(NOTICE).context("cannot read keys")? {
            continue;
        }
        changed = true;
        if let Event::Key(key) = event::read().context("cannot read keys")? {
            if view.press(key) == Next::Leave {
                break;
            }
        }
    }
    Ok(())
}
