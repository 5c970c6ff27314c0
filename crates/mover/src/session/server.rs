// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The side that a command talks to: a standing receiver's session, or the helper at the
//! other end of ssh.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use paceline_security as security;
use paceline_security::Protection;
use tokio::sync::mpsc;

use super::across::{own_supply, report};
use super::counts::Counts;
use super::progress::Progress;
use super::sink::{self, Bounds, Target};
use super::source;
use paceline_conduit::control::{BoxedRead, BoxedWrite, Control, Inbox, Outbox, SERVICE};
use paceline_conduit::data_port::{DataPort, Ports};
use paceline_conduit::stream::Stream;
use paceline_conduit::{Error, Result};
use paceline_transfer::identity::host_name;
use paceline_transfer::read::{Filter, Tops};
use paceline_transfer::wire::{Access, Direction, Intent, Message, Ready, Reason, Start};

/// Data connections that wait for the session.
pub(super) const STREAMS: usize = 16;

/// Role of this side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Sends what this process may read.
    Send,
    /// Writes where this process may.
    Receive,
}

/// How data connections come.
pub(super) enum Way {
    /// To a port of the session's own.
    Port(Ports, Option<String>),
    /// To the standing receiver, which hands them over.
    Handed(mpsc::Receiver<Stream>),
}

/// Place where a sink of this side writes.
pub(super) enum Place {
    /// A path of the command.
    Anywhere,
    /// Below the operator's root, within bounds.
    Below {
        root: PathBuf,
        bounds: Bounds,
        counts: Arc<Counts>,
    },
}

/// Serves one session over stdin and stdout. Their other end is ssh, which authenticates the user.
///
/// # Errors
/// The error that ended the transfer.
pub async fn helper(role: Role, ports: Ports) -> Result<()> {
    let mut reader = security::Reader::new(Box::new(tokio::io::stdin()) as BoxedRead);
    let mut writer = security::Writer::new(Box::new(tokio::io::stdout()) as BoxedWrite);
    let protection = Protection::Kernel;
    let accepted = security::accept(&mut reader, &mut writer, &SERVICE, None, &protection).await;
    let intent = match accepted {
        Ok(intent) => intent,
        Err(error) => {
            security::refuse(&mut writer, &error).await;
            return Err(error.into());
        }
    };
    let Intent::Control { session } = Intent::decode(&intent)? else {
        return Err(Error::Unexpected("a pipe is a control connection"));
    };
    // "client's address, its port, this host's address, port": sshd(8).
    let connection = std::env::var("SSH_CONNECTION").ok();
    let address = connection.and_then(|text| text.split(' ').nth(2).map(str::to_owned));
    let way = Way::Port(ports, address);
    serve(
        Control::new(reader, writer),
        session,
        role,
        way,
        Place::Anywhere,
    )
    .await
}

/// One session, from its `Start` on.
pub(super) async fn serve(
    control: Control,
    session: [u8; 16],
    role: Role,
    way: Way,
    place: Place,
) -> Result<()> {
    let Control {
        mut inbox,
        outbox,
        sender,
    } = control;
    let result = session_of(&mut inbox, &outbox, session, role, way, place).await;
    outbox.end(sender, &result).await;
    result
}

async fn session_of(
    inbox: &mut Inbox,
    outbox: &Outbox,
    session: [u8; 16],
    role: Role,
    way: Way,
    place: Place,
) -> Result<()> {
    let Message::Start(start) = inbox.next().await? else {
        return Err(Error::Unexpected("a session begins with Start"));
    };
    let wanted = match start.direction {
        Direction::Push => Role::Receive,
        Direction::Pull | Direction::Across => Role::Send,
    };
    if wanted != role {
        let text = "this side only takes the other direction";
        return Err(Error::stop(Reason::Refused, text));
    }
    if start.direction == Direction::Across {
        return send_across(inbox, outbox, session, *start).await;
    }
    let is_plain = start.options.plain;
    let way = match (way, is_plain) {
        // The standing receiver's own port may speak TLS.
        (Way::Handed(_), true) => Way::Port(None, None),
        (way, _) => way,
    };
    let (access, streams, port) = match way {
        Way::Handed(streams) => (Access::Same, streams, None),
        Way::Port(ports, address) => {
            let port = DataPort::open(ports, is_plain).await?;
            let access = Access::Port {
                port: port.port,
                fingerprint: port.fingerprint,
                address,
            };
            let (taken, streams) = mpsc::channel(STREAMS);
            let serve = port.serve(session, start.secret, taken);
            (access, streams, Some(tokio::spawn(serve)))
        }
    };
    outbox.send(Message::Ready(Ready {
        access,
        host: host_name(),
    }));
    let result = transfer(inbox, outbox, *start, streams, place).await;
    if let Some(port) = port {
        port.abort();
    }
    result
}

async fn transfer(
    inbox: &mut Inbox,
    outbox: &Outbox,
    start: Start,
    streams: mpsc::Receiver<Stream>,
    place: Place,
) -> Result<()> {
    let Start {
        direction,
        id,
        secret,
        mut paths,
        options,
    } = start;
    let filter = Filter::new(&options.filters)?;
    // The messages report the events of this side.
    let progress = Progress::new(|_| {});
    match direction {
        Direction::Push => {
            let path = paths.pop().unwrap_or_default();
            let (target, mut counted) = match place {
                Place::Anywhere => {
                    let path = std::ffi::OsString::from_vec(path).into();
                    (Target::Operator(path), None)
                }
                Place::Below {
                    root,
                    bounds,
                    counts,
                } => (
                    Target::Below(root, path, bounds),
                    Some(counts.begin(&progress)),
                ),
            };
            let job = sink::Job {
                target,
                filter,
                options,
                id,
                secret,
            };
            sink::run(inbox, outbox, streams.into(), job, progress).await?;
            if let Some(counted) = &mut counted {
                counted.is_done = true;
            }
        }
        Direction::Pull | Direction::Across => {
            let job = source::Job {
                tops: open(paths)?,
                filter,
                options,
                secret,
                tuning: None,
            };
            source::run(inbox, outbox, streams.into(), job, progress).await?;
        }
    }
    Ok(())
}

fn open(paths: Vec<Vec<u8>>) -> Result<Tops> {
    let paths: Vec<PathBuf> = paths
        .into_iter()
        .map(|path| std::ffi::OsString::from_vec(path).into())
        .collect();
    Tops::open(&paths).map_err(|(path, source)| Error::Io {
        path: path.display().to_string(),
        source,
    })
}

/// Sends from here to the address from the head: it makes the data connections itself.
async fn send_across(
    inbox: &mut Inbox,
    outbox: &Outbox,
    session: [u8; 16],
    start: Start,
) -> Result<()> {
    let (supply, tuning, progress) = own_supply(inbox, outbox, &start, session);
    let is_of_many = start.options.part.is_some();
    let job = source::Job {
        filter: Filter::new(&start.options.filters)?,
        tops: open(start.paths)?,
        options: start.options,
        secret: start.secret,
        tuning: Some(tuning),
    };
    let sent = source::run(inbox, outbox, supply, job, Arc::clone(&progress));
    tokio::select! {
        sent = sent => sent.map(drop),
        () = report(outbox, &progress, is_of_many) => Ok(()),
    }
}
