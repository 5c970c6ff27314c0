// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files from one other host to another one. The command's side is the *head*: it starts both
//! sides by ssh and passes their messages on. Data go from host to host, never through here.
//! Both sides end when it does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use paceline_transfer::identity::identity;
use paceline_transfer::wire::{
    Direction, EntryKind, Intent, Message, Options, Reason, Start, Summary,
};
use tokio::sync::{mpsc, Notify};

use super::pool::{Making, Pool, Supply};
use super::progress::{shown, Event, Progress};
use super::tuning::{Streams, Tuning};
use super::way::port_way;
use paceline_conduit::connect::join;
use paceline_conduit::control::{short, Control, Inbox, Outbox};
use paceline_conduit::draw;
use paceline_conduit::ssh::{Helper, Ssh, SshHost};
use paceline_conduit::{Error, Result};

/// Interval of the source's reports.
const REPORT: Duration = Duration::from_secs(1);
/// Interval with several sources: a source gets more to do after a report. At the end the work of
/// two differs by the bytes sent in this time; but with more reports a source that passes over
/// holes seems to be so fast that it gets all.
const REPORT_OF_MANY: Duration = Duration::from_millis(100);
/// Longest wait for the source's good bye.
const BYE: Duration = Duration::from_secs(10);

/// A transfer between two other hosts.
#[derive(Debug, Clone)]
pub struct Across {
    /// Calls of ssh to both.
    pub ssh: Ssh,
    /// The source, and paths there.
    pub from: (SshHost, Vec<Vec<u8>>),
    /// The sink, and the path there.
    pub to: (SshHost, Vec<u8>),
    /// How.
    pub options: Options,
}

impl Across {
    /// Its identity.
    pub fn identity(&self) -> [u8; 32] {
        let ((from, sources), (to, destination)) = (&self.from, &self.to);
        identity(
            (from.host(), sources),
            (to.host(), destination),
            &self.options,
        )
    }
}

/// One side, from the head's view.
pub(super) struct Side {
    helper: Helper,
    pub control: Control,
}

impl Side {
    pub async fn begin(ssh: &Ssh, host: &SshHost, session: [u8; 16], start: Start) -> Result<Self> {
        let side = Self::call(ssh, host, session, start.direction).await?;
        side.control.outbox.send(Message::Start(Box::new(start)));
        Ok(side)
    }

    /// Without a `Start`: the side waits for it and has read nothing yet.
    async fn call(
        ssh: &Ssh,
        host: &SshHost,
        session: [u8; 16],
        direction: Direction,
    ) -> Result<Self> {
        let (mut helper, raw) = Helper::start(ssh, host, direction)?;
        let joined = join(raw, None, &Intent::Control { session }).await;
        let control = joined.map_err(|error| helper.explain(error))?;
        Ok(Self { helper, control })
    }
}

/// Both sides of a session that has not begun.
pub(super) struct Sides {
    source: Side,
    sink: Side,
}

impl Sides {
    /// Starts both at the same time.
    pub async fn call(ssh: &Ssh, from: &SshHost, to: &SshHost) -> Result<Self> {
        let session = draw()?;
        let (source, sink) = tokio::try_join!(
            Side::call(ssh, from, session, Direction::Across),
            Side::call(ssh, to, session, Direction::Push),
        )?;
        Ok(Self { source, sink })
    }

    /// Ends both, because of an error.
    pub async fn leave<T>(self, error: Error) -> Result<T> {
        end_both(self.source, self.sink, Err(error), true).await
    }
}

/// Moves files from one other host to another one.
///
/// # Errors
/// The error that ends the transfer early.
pub async fn across(transfer: Across, tuning: &Tuning, progress: Arc<Progress>) -> Result<Summary> {
    let id = transfer.identity();
    let sides = Sides::call(&transfer.ssh, &transfer.from.0, &transfer.to.0).await?;
    across_as(id, sides, transfer, tuning, progress).await
}

/// As a part of the transfer `id`.
pub(super) async fn across_as(
    id: [u8; 32],
    sides: Sides,
    transfer: Across,
    tuning: &Tuning,
    progress: Arc<Progress>,
) -> Result<Summary> {
    let Across {
        from: (_, sources),
        to: (to, destination),
        options,
        ..
    } = &transfer;
    let secret = draw()?;
    // Bytes sent before by all pairs of hosts.
    let before = progress.bytes_sent.load(Ordering::Relaxed);
    let start = |direction, paths| Start {
        direction,
        id,
        secret,
        paths,
        options: options.clone(),
    };
    let push = start(Direction::Push, vec![destination.clone()]);
    let send = start(Direction::Across, sources.clone());
    let Sides {
        mut source,
        mut sink,
    } = sides;
    sink.control.outbox.send(Message::Start(Box::new(push)));
    source.control.outbox.send(Message::Start(Box::new(send)));

    let (to_source, to_sink) = (source.control.outbox.clone(), sink.control.outbox.clone());
    let (result, is_sinks) = {
        let up = from_source(&mut source.control.inbox, &to_sink, &progress, before);
        let ready = Notify::new();
        let down = from_sink(
            &mut sink.control.inbox,
            &to_source,
            to.host(),
            &ready,
            &progress,
        );
        let tuned = pass_on(tuning, &to_source, &ready);
        tokio::pin!(up);
        let ended = tokio::select! {
            ended = &mut up => (ended.and(Err(Error::Unexpected("the source left"))), false),
            ended = down => (ended, true),
            never = tuned => match never {},
        };
        if ended.0.is_ok() {
            // So that the sink need not wait for its good bye.
            let _ = tokio::time::timeout(BYE, up).await;
        }
        ended
    };
    drop((to_source, to_sink));
    end_both(source, sink, result, is_sinks).await
}

/// Reports the end to both sides, and waits until it is sent. `is_sinks`: the sink ended it.
pub(super) async fn end_both<T>(
    source: Side,
    sink: Side,
    result: Result<T>,
    is_sinks: bool,
) -> Result<T> {
    if let Err(error) = &result {
        // The head alone connects them.
        let (reason, text) = match error {
            Error::Stopped { reason, text } => (*reason, text.clone()),
            error => (Reason::Interrupted, short(&error.to_string())),
        };
        let other = if is_sinks { &source } else { &sink };
        other.control.outbox.send(Message::Stop { reason, text });
    }
    for (side, is_its) in [(source, !is_sinks), (sink, is_sinks)] {
        let Side {
            mut helper,
            control,
        } = side;
        control.end(&result).await;
        match &result {
            Ok(_) => helper.leave(),
            Err(Error::Frame(_)) if is_its => {
                return Err(helper.explain(Error::Frame(paceline_security::FrameError::Closed)));
            }
            Err(_) => {}
        }
    }
    result
}

/// Until the source says good bye.
async fn from_source(
    inbox: &mut Inbox,
    sink: &Outbox,
    progress: &Progress,
    before: u64,
) -> Result<()> {
    loop {
        let message = inbox.next().await?;
        match &message {
            Message::Report {
                entries_done,
                bytes_done,
                bytes_sent,
                streams,
                ..
            } => {
                let set = |counter: &AtomicU64, value| counter.store(value, Ordering::Relaxed);
                set(&progress.entries_done, *entries_done);
                set(&progress.bytes_done, *bytes_done);
                set(&progress.bytes_sent, before + *bytes_sent);
                set(&progress.streams, *streams);
                continue;
            }
            Message::Trouble { stream, path, text } => {
                let text = text.clone();
                progress.report(match *stream {
                    Some(stream) => Event::StreamLost { stream, text },
                    None => Event::Failed {
                        path: shown(path),
                        text,
                    },
                });
                continue;
            }
            Message::Entries(entries) => {
                for entry in entries {
                    let is_file = matches!(entry.kind, EntryKind::File { .. });
                    progress.found(if is_file { entry.stamp.size } else { 0 });
                }
            }
            Message::Walked { .. } => progress.is_walked.store(true, Ordering::Relaxed),
            _ => {}
        }
        let is_last = message == Message::Bye;
        sink.send(message);
        if is_last {
            return Ok(());
        }
    }
}

/// Until the sink has all.
async fn from_sink(
    inbox: &mut Inbox,
    source: &Outbox,
    host: &str,
    is_ready: &Notify,
    progress: &Progress,
) -> Result<Summary> {
    loop {
        let mut message = inbox.next().await?;
        if let Message::Ready(ready) = &mut message {
            // If the address by which it was reached from here leads nowhere from there.
            host.clone_into(&mut ready.host);
            source.send(message);
            is_ready.notify_one();
            continue;
        }
        let summary = match &message {
            Message::Finished(summary) => Some(summary.clone()),
            Message::Full { text } => {
                progress.report(Event::Full { text: text.clone() });
                None
            }
            Message::Hash { path, root } => {
                progress.hash(path, root);
                None
            }
            _ => None,
        };
        source.send(message);
        if let Some(summary) = summary {
            return Ok(summary);
        }
    }
}

pub(super) enum Never {}

/// Passes on changes by the user.
pub(super) async fn pass_on(tuning: &Tuning, source: &Outbox, is_ready: &Notify) -> Never {
    let (mut streams, mut rate) = tuning.watch();
    // The first message to the source is `Ready`.
    is_ready.notified().await;
    source.send(count(*streams.borrow_and_update()));
    loop {
        tokio::select! {
            Ok(()) = streams.changed() => source.send(count(*streams.borrow_and_update())),
            Ok(()) = rate.changed() => {
                let bps = *rate.borrow_and_update();
                source.send(Message::Rate { bps });
            }
            else => return std::future::pending().await,
        }
    }
}

fn count(streams: Streams) -> Message {
    Message::Streams {
        count: match streams {
            Streams::Auto => None,
            Streams::Fixed(count) => Some(count),
        },
    }
}

/// The source's data connections, which it makes itself, and its progress, which it reports to the
/// head.
pub(super) fn own_supply(
    inbox: &mut Inbox,
    outbox: &Outbox,
    start: &Start,
    session: [u8; 16],
) -> (Supply, Arc<Tuning>, Arc<Progress>) {
    let pairs = start.options.pairs;
    let (secret, is_plain, first) = (start.secret, start.options.plain, start.options.streams);
    let tuning = Arc::new(Tuning::new(Streams::Fixed(first), start.options.rate_bps));
    let (streams, rate) = tuning.watch();
    let troubles = outbox.clone();
    let progress = Progress::new(move |event| {
        let (stream, path, text) = match event {
            Event::Failed { path, text } => (None, path.into_bytes(), text),
            Event::StreamLost { stream, text } => (Some(stream), Vec::new(), text),
            _ => return,
        };
        let text = short(&text);
        troubles.send(Message::Trouble { stream, path, text });
    });
    let (made, streams_made) = mpsc::channel(usize::from(first).max(1));
    let (orders, ordered) = mpsc::unbounded_channel();
    let pools = Arc::clone(&progress);
    inbox.on_ready(move |ready| {
        let host = ready.host;
        let pool = Pool {
            way: port_way(ready.access, &host, is_plain, (session, secret))?,
            making: Making::new(),
            made,
            orders,
            streams,
            rate,
            pairs,
            progress: pools,
        };
        tokio::spawn(pool.run());
        Ok(())
    });
    let supply = Supply {
        streams: streams_made,
        orders: ordered,
        are_early: false,
        are_own: true,
    };
    (supply, tuning, progress)
}

/// Reports the progress to the head.
pub(super) async fn report(outbox: &Outbox, progress: &Progress, is_of_many: bool) {
    let period = if is_of_many { REPORT_OF_MANY } else { REPORT };
    loop {
        tokio::time::sleep(period).await;
        report_once(outbox, progress);
    }
}

/// See [`report`].
pub(super) fn report_once(outbox: &Outbox, progress: &Progress) {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    outbox.send(Message::Report {
        entries_done: count(&progress.entries_done),
        bytes_done: count(&progress.bytes_done),
        bytes_sent: count(&progress.bytes_sent),
        streams: count(&progress.streams),
        path: (count(&progress.path[0]), count(&progress.path[1])),
    });
}
