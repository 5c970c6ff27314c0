// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host's side: reports its streams and bounds them, connects again when the
//! coordinator was gone.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_security::{
    self as security, Error as SecurityError, FrameError, Protection, Token, PATIENCE,
};
use rand::RngExt;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::local::{Cap, LocalStreams, StreamSample};
use crate::protocol::{enter, Join, Message, Reader, Request, Role, Writer, MOST_STREAMS};
use crate::reach::Reach;
use crate::{Error, Result};

/// Before the second try, and longest between two.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A coordinator that says nothing for so long is gone: its longest round, and some.
const SILENCE: Duration = Duration::from_secs(90);
/// After this time in the group a session counts as a success: the next pause is short again.
const SETTLED: Duration = Duration::from_secs(10);
/// A coordinator cannot bound windows for longer than this with one message.
const LONGEST_LEASE: Duration = Duration::from_secs(240);
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// Where a coordinator is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A Unix socket.
    Local(PathBuf),
    /// `HOST:PORT`.
    Tcp(String),
}

impl std::str::FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.contains('/') {
            return Ok(Self::Local(text.into()));
        }
        let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        match port {
            Some(Ok(_)) => Ok(Self::Tcp(text.to_owned())),
            _ => Err(Error::Address {
                address: text.to_owned(),
            }),
        }
    }
}

/// How a coordinator is reached.
#[derive(Debug, Clone)]
pub struct Access {
    /// Where it is.
    pub target: Target,
    /// Proven over TCP.
    pub token: Option<Token>,
    /// Spoken over TCP.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The name in the server's certificate; `None`: the target's host.
    pub server_name: Option<String>,
    /// To whom the coordinator at a Unix socket may belong, besides this user and root.
    pub users: Vec<u32>,
}

impl Access {
    /// Without token or TLS.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            token: None,
            tls: None,
            server_name: None,
            users: Vec::new(),
        }
    }
}

/// A member's settings.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// How the coordinator is reached.
    pub access: Access,
    /// The group.
    pub group: String,
    /// This host's name, for `status`.
    pub host: String,
    /// A coordinator that cannot be reached for so long is given up; `None`: never.
    pub patience: Option<Duration>,
}

type BoxedRead = Box<dyn AsyncRead + Unpin + Send>;
type BoxedWrite = Box<dyn AsyncWrite + Unpin + Send>;

struct Session {
    reader: Reader<BoxedRead>,
    writer: Writer<BoxedWrite>,
}

async fn connect(access: &Access, joined: &Join) -> Result<Session> {
    let (read, write, protection): (BoxedRead, BoxedWrite, _) = match &access.target {
        Target::Local(path) => {
            let mut users = vec![nix::unistd::geteuid().as_raw(), 0];
            users.extend(&access.users);
            let stream = security::connect(path, &users).await?;
            let (read, write) = stream.into_split();
            (Box::new(read), Box::new(write), Protection::Kernel)
        }
        Target::Tcp(address) => {
            let failed = |source| Error::Connect {
                address: address.clone(),
                source,
            };
            let stream = timeout(PATIENCE, TcpStream::connect(address))
                .await
                .map_err(|_| FrameError::Slow(PATIENCE))?
                .map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            match &access.tls {
                None => {
                    let (read, write) = stream.into_split();
                    (Box::new(read), Box::new(write), Protection::None)
                }
                Some(config) => {
                    let host = address.rsplit_once(':').map_or("", |(host, _)| host);
                    let host = host.trim_start_matches('[').trim_end_matches(']');
                    let name = access.server_name.as_deref().unwrap_or(host);
                    let name = ServerName::try_from(name.to_owned());
                    let name = name.map_err(|_| Error::Address {
                        address: address.clone(),
                    })?;
                    let connector = TlsConnector::from(Arc::clone(config));
                    let stream = timeout(PATIENCE, connector.connect(name, stream))
                        .await
                        .map_err(|_| FrameError::Slow(PATIENCE))?
                        .map_err(|error| match error.kind() {
                            // The error of rustls about a certificate; else the connection broke.
                            std::io::ErrorKind::InvalidData => {
                                SecurityError::Handshake(error).into()
                            }
                            _ => failed(error),
                        })?;
                    let protection = Protection::Tls {
                        binding: security::binding(stream.get_ref().1)?,
                        known: true,
                    };
                    let (read, write) = tokio::io::split(stream);
                    (Box::new(read), Box::new(write), protection)
                }
            }
        }
    };
    let token = access.token.as_ref();
    let (reader, writer) = enter((read, write), token, &protection, joined).await?;
    Ok(Session { reader, writer })
}

/// Takes part in the group until `stop`. When the coordinator is gone the streams' windows expire
/// by themselves, and the client tries to connect again and again.
///
/// # Errors
/// Before the first success: every error except a coordinator that is not there yet. Later: only
/// a refusal for good. [`Error::GivenUp`] after the time that was set.
pub async fn join(
    config: &ClientConfig,
    local: &mut dyn LocalStreams,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    crate::protocol::check_name(&config.group)?;
    crate::protocol::check_name(&config.host)?;
    tokio::select! {
        ended = keep_joined(config, local) => ended,
        () = stop => Ok(()),
    }
}

async fn keep_joined(config: &ClientConfig, local: &mut dyn LocalStreams) -> Result<()> {
    let joined = Join {
        role: Role::Member,
        group: config.group.clone(),
        host: config.host.clone(),
    };
    let mut streams = Streams::new(local, &config.group);
    let mut pause = FIRST_PAUSE;
    let mut joined_once = false;
    let mut alone_since = Instant::now();
    loop {
        let error = match connect(&config.access, &joined).await {
            Ok(mut session) => {
                tracing::info!("joined group {}", config.group);
                joined_once = true;
                let begun = Instant::now();
                let error = take_part(&mut session, &mut streams).await;
                alone_since = Instant::now();
                if begun.elapsed() >= SETTLED {
                    pause = FIRST_PAUSE;
                }
                error
            }
            Err(error) => error,
        };
        if is_final(&error, joined_once) {
            return Err(error);
        }
        // All clients of a coordinator that was restarted come back: not at once.
        let share = rand::rng().random_range(0.5..1.0);
        let mut wait = pause.mul_f64(share);
        if let Some(patience) = config.patience {
            let left = patience.saturating_sub(alone_since.elapsed());
            if left.is_zero() {
                let last = Box::new(error);
                return Err(Error::GivenUp { patience, last });
            }
            wait = wait.min(left);
        }
        tracing::warn!("{error}; next try in {:.1} s", wait.as_secs_f64());
        tokio::time::sleep(wait).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

fn is_final(error: &Error, joined_once: bool) -> bool {
    match error {
        Error::Refused { for_good, .. } => *for_good,
        // A socket that cannot be used yet, or another program at the port.
        Error::Security(
            SecurityError::File { .. } | SecurityError::Malformed | SecurityError::Unexpected(_),
        ) => false,
        Error::Security(SecurityError::Version { .. } | SecurityError::Purpose { .. }) => true,
        Error::Security(_) | Error::Address { .. } => !joined_once,
        _ => false,
    }
}

/// The host's streams of the group, over all sessions.
struct Streams<'a> {
    local: &'a mut dyn LocalStreams,
    group: &'a str,
    begun: Instant,
    reach: Reach,
    /// As reported last.
    samples: HashMap<u64, StreamSample>,
    /// Whether the user knows that there are none.
    empty_reported: bool,
}

impl<'a> Streams<'a> {
    fn new(local: &'a mut dyn LocalStreams, group: &'a str) -> Self {
        Self {
            local,
            group,
            begun: Instant::now(),
            reach: Reach::default(),
            samples: HashMap::new(),
            empty_reported: false,
        }
    }

    /// All of them, each once.
    fn report(&mut self) -> Vec<StreamSample> {
        let mut streams = match self.local.streams() {
            Ok(streams) => streams,
            Err(error) => {
                tracing::warn!("cannot list the streams: {error}");
                return Vec::new();
            }
        };
        let mut seen = HashSet::with_capacity(streams.len());
        streams.retain(|stream| seen.insert(stream.cookie));
        if streams.len() > MOST_STREAMS {
            tracing::warn!(
                "{} streams; only the first {MOST_STREAMS} can join",
                streams.len()
            );
            streams.truncate(MOST_STREAMS);
        }
        if streams.is_empty() != self.empty_reported {
            self.empty_reported = streams.is_empty();
            match self.empty_reported {
                true => tracing::warn!(
                    "group {}: no stream on this host yet: check the name that paceline run \
                     --group, or the program, gave the group",
                    self.group
                ),
                false => tracing::info!("group {}: {} streams", self.group, streams.len()),
            }
        }
        self.reach.look(self.begun.elapsed(), streams.iter());
        self.samples = streams.iter().map(|s| (s.cookie, s.clone())).collect();
        streams
    }

    /// Bounds the reported streams; this host's own delivery limits a lift.
    fn apply(&mut self, caps: &[Cap], lease: Duration) {
        let held = |cap: &Cap| {
            let sample = self.samples.get(&cap.cookie)?;
            Some(self.reach.hold(sample, *cap))
        };
        let caps: Vec<Cap> = caps.iter().filter_map(held).collect();
        if let Err(error) = self.local.apply(&caps, lease) {
            tracing::warn!("cannot bound windows: {error}");
        }
    }
}

/// Takes part in rounds until an error, and returns it.
async fn take_part(session: &mut Session, streams: &mut Streams<'_>) -> Error {
    let begun = Instant::now();
    let mut polled = 0;
    let mut capped = 0;
    loop {
        let message = match session.reader.next(SILENCE).await {
            Ok(message) => message,
            Err(error) => return error,
        };
        match message {
            Message::Poll { round } if round > polled => {
                polled = round;
                let taken_us = begun.elapsed().as_micros() as u64;
                let report = Message::Report {
                    round,
                    taken_us,
                    streams: streams.report(),
                };
                if let Err(error) = session.writer.send(&report, WRITE_PATIENCE).await {
                    return error;
                }
            }
            Message::Caps {
                round,
                lease_ms,
                caps,
            } if round > capped && round <= polled => {
                capped = round;
                let lease = Duration::from_millis(lease_ms.into()).min(LONGEST_LEASE);
                streams.apply(&caps, lease);
            }
            // Polled by a round that began before this client joined.
            Message::Caps { round, .. } if polled == 0 || round > polled => {}
            Message::Refused { for_good, text } => return Error::Refused { for_good, text },
            _ => return Error::Unexpected("a member gets polls and windows, in order"),
        }
    }
}

/// A connection for questions.
pub struct Control {
    session: Session,
    number: u64,
}

impl Control {
    /// Connects; `host` names this client.
    ///
    /// # Errors
    /// All errors of a connection.
    pub async fn connect(access: &Access, host: &str) -> Result<Self> {
        let joined = Join {
            role: Role::Control,
            group: String::new(),
            host: host.to_owned(),
        };
        let session = connect(access, &joined).await?;
        Ok(Self { session, number: 0 })
    }

    /// Asks: JSON.
    ///
    /// # Errors
    /// [`Error::Answer`] with the coordinator's reason, or the connection's.
    pub async fn ask(&mut self, request: Request) -> Result<String> {
        self.number += 1;
        let message = Message::Request {
            number: self.number,
            request,
        };
        self.session.writer.send(&message, WRITE_PATIENCE).await?;
        match self.session.reader.next(PATIENCE).await? {
            Message::Answer { number, result } if number == self.number => {
                result.map_err(Error::Answer)
            }
            Message::Refused { for_good, text } => Err(Error::Refused { for_good, text }),
            _ => Err(Error::Unexpected("a request is answered by its number")),
        }
    }
}
