// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command's side of a transfer: makes all connections.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::pool::{Making, Pool, Supply, Way};
use super::progress::Progress;
use super::sink::{self, Target};
use super::source;
use super::tuning::Tuning;
use super::way::port_way;
use paceline_conduit::connect::{dial, host_of, join, Standing};
use paceline_conduit::control::{Control, Inbox, Outbox};
use paceline_conduit::draw;
use paceline_conduit::ssh::{Helper, Ssh, SshHost};
use paceline_conduit::{Error, Result};
use paceline_transfer::identity::{absolute, host_name, identity};
use paceline_transfer::read::{Filter, Tops};
use paceline_transfer::wire::{Access, Direction, Intent, Message, Options, Ready, Start, Summary};

/// The other side.
#[derive(Debug, Clone)]
pub enum Remote {
    /// A standing receiver.
    Standing(Standing),
    /// A host that ssh reaches.
    Ssh(Ssh, SshHost),
}

/// A transfer, as requested.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// The other side.
    pub remote: Remote,
    /// On this host.
    pub here: Vec<PathBuf>,
    /// On the other one.
    pub there: Vec<Vec<u8>>,
    /// How.
    pub options: Options,
}

impl Transfer {
    /// Its identity, if files are sent from here.
    pub fn sending_identity(&self) -> [u8; 32] {
        let here: Vec<_> = self.here.iter().map(|path| slashed(path)).collect();
        let there = self.there.first().map_or(&b""[..], |path| path);
        identity(
            (&host_name(), &here),
            (&self.remote_name(), there),
            &self.options,
        )
    }

    /// Its identity, if they are received here.
    pub fn receiving_identity(&self) -> [u8; 32] {
        let here = self
            .here
            .first()
            .map(|path| slashed(path))
            .unwrap_or_default();
        identity(
            (&self.remote_name(), &self.there),
            (&host_name(), &here),
            &self.options,
        )
    }

    fn remote_name(&self) -> String {
        match &self.remote {
            Remote::Standing(standing) => standing.address.clone(),
            Remote::Ssh(_, host) => host.host().to_owned(),
        }
    }
}

/// A slash at the end changes what a path means.
fn slashed(path: &std::path::Path) -> Vec<u8> {
    let mut bytes = absolute(path);
    if path.as_os_str().as_bytes().ends_with(b"/") && !bytes.ends_with(b"/") {
        bytes.push(b'/');
    }
    bytes
}

/// Sends files from here.
///
/// # Errors
/// The error that ends the transfer early.
pub async fn send(transfer: Transfer, tuning: &Tuning, progress: Arc<Progress>) -> Result<Summary> {
    let filter = Filter::new(&transfer.options.filters)?;
    let tops = Tops::open(&transfer.here).map_err(|(path, source)| Error::Io {
        path: path.display().to_string(),
        source,
    })?;
    let id = transfer.sending_identity();
    let session = Session::begin(&transfer, Direction::Push, id, (tuning, &progress)).await?;
    session
        .run(async |inbox, outbox, supply, secret| {
            let job = source::Job {
                tops,
                filter,
                options: transfer.options.clone(),
                secret,
                tuning: None,
            };
            source::run(inbox, outbox, supply, job, Arc::clone(&progress)).await
        })
        .await
}

/// Receives files here.
///
/// # Errors
/// The error that ends the transfer early.
pub async fn receive(
    transfer: Transfer,
    tuning: &Tuning,
    progress: Arc<Progress>,
) -> Result<Summary> {
    let filter = Filter::new(&transfer.options.filters)?;
    let id = transfer.receiving_identity();
    let session = Session::begin(&transfer, Direction::Pull, id, (tuning, &progress)).await?;
    session
        .run(async |inbox, outbox, supply, secret| {
            let here = transfer.here.first().cloned().unwrap_or_default();
            let job = sink::Job {
                target: Target::Operator(here),
                filter,
                options: transfer.options.clone(),
                id,
                secret,
            };
            sink::run(inbox, outbox, supply, job, Arc::clone(&progress)).await
        })
        .await
}

struct Session {
    control: Control,
    supply: Supply,
    secret: [u8; 32],
    helper: Option<Helper>,
}

impl Session {
    async fn begin(
        transfer: &Transfer,
        direction: Direction,
        id: [u8; 32],
        (tuning, progress): (&Tuning, &Arc<Progress>),
    ) -> Result<Self> {
        let (session, secret) = (draw()?, draw()?);
        let count = usize::from(transfer.options.streams);
        let (made, made_streams) = mpsc::channel(count.max(1));
        let early = early(transfer, session);
        let (mut helper, raw, token) = match &transfer.remote {
            Remote::Standing(standing) => {
                let raw = dial(&standing.address, &standing.credentials).await?;
                (None, raw, standing.credentials.token.clone())
            }
            Remote::Ssh(ssh, host) => {
                let (helper, raw) = Helper::start(ssh, host, direction)?;
                (Some(helper), raw, None)
            }
        };
        let start = Start {
            direction,
            id,
            secret,
            paths: transfer.there.clone(),
            options: transfer.options.clone(),
        };
        let joined = join(raw, token.as_ref(), &Intent::Control { session }).await;
        let mut control = match (joined, &mut helper) {
            (Err(error), Some(helper)) => return Err(helper.explain(error)),
            (joined, _) => joined?,
        };
        control.outbox.send(Message::Start(Box::new(start)));
        // The next messages do not wait for the answer: entries reach the sink with `Start`.
        let (remote, is_plain) = (transfer.remote.clone(), transfer.options.plain);
        let (orders, ordered) = mpsc::unbounded_channel();
        let (streams, rate) = tuning.watch();
        let progress = Arc::clone(progress);
        let begin = move |(way, making)| {
            let pool = Pool {
                way,
                making,
                made,
                orders,
                streams,
                rate,
                pairs: 1,
                progress,
            };
            tokio::spawn(pool.run());
        };
        let are_early = early.is_some();
        if let Some(early) = early {
            begin(early);
            control.inbox.on_ready(|ready| match ready.access {
                Access::Same => Ok(()),
                _ => Err(Error::Unexpected("data connections go to the same port")),
            });
        } else {
            control.inbox.on_ready(move |ready| {
                let way = way(&remote, is_plain, ready, (session, secret))?;
                begin((way, Making::new()));
                Ok(())
            });
        }
        let supply = Supply {
            streams: made_streams,
            orders: ordered,
            are_early,
            are_own: true,
        };
        Ok(Self {
            control,
            supply,
            secret,
            helper,
        })
    }

    async fn run(
        self,
        side: impl AsyncFnOnce(&mut Inbox, &Outbox, Supply, [u8; 32]) -> Result<Summary>,
    ) -> Result<Summary> {
        let Self {
            control,
            supply,
            secret,
            mut helper,
        } = self;
        let Control {
            mut inbox,
            outbox,
            sender,
        } = control;
        let result = side(&mut inbox, &outbox, supply, secret).await;
        outbox.end(sender, &result).await;
        drop(inbox);
        match (result, &mut helper) {
            (Err(error), Some(helper)) => Err(helper.explain(error)),
            (Ok(summary), Some(helper)) => {
                helper.leave();
                Ok(summary)
            }
            (result, None) => result,
        }
    }
}

/// So many data connections are made beside the control connection, which saves round trips.
/// A receiver has few places for unauthenticated connections.
const EARLY: u16 = 16;

/// Data connections to the port that takes the control connection, too, made at the same time.
/// They are used as soon as the control connection is: the first bites need no round trip more.
fn early(transfer: &Transfer, session: [u8; 16]) -> Option<(Way, Making)> {
    let Remote::Standing(standing) = &transfer.remote else {
        return None;
    };
    let count = transfer.options.streams;
    if transfer.options.plain || count > EARLY {
        return None;
    }
    let way = Way {
        addresses: vec![standing.address.clone()],
        credentials: standing.credentials.clone(),
        session,
        is_plain: false,
    };
    let mut making = Making::new();
    for number in 0..count {
        making.spawn(way.clone().connect(number));
    }
    Some((way, making))
}

/// The way to the other side's data connections.
fn way(remote: &Remote, is_plain: bool, ready: Ready, about: ([u8; 16], [u8; 32])) -> Result<Way> {
    let host = match (&ready.access, remote) {
        (Access::Same, Remote::Standing(standing)) => {
            return Ok(Way {
                addresses: vec![standing.address.clone()],
                credentials: standing.credentials.clone(),
                session: about.0,
                is_plain,
            })
        }
        (_, Remote::Standing(standing)) => host_of(&standing.address),
        (_, Remote::Ssh(_, host)) => host.host(),
    };
    port_way(ready.access, host, is_plain, about)
}
