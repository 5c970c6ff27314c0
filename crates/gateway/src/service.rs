// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running gateway: its WAN, its proxies, and its control socket.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paceline_net::nft;
use paceline_security as security;
use paceline_security::{default_socket, Purpose};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::config::{Config, Connect, Proxy, Transparent};
use crate::local::counts::{Counters, Counts};
use crate::local::honest::Honest;
use crate::local::transparent;
use crate::local::{serve, Protocol};
use crate::peers::Peers;
use crate::rules::{self, families, Rules, GROUP, MARK};
use crate::wan::{start, Wan, WanError};

/// Longest answer of a gateway to `status`, bytes.
const MOST_STATUS: u64 = 4 << 20;
/// Longest question, bytes: a path and a name.
const MOST_ASKED: u64 = 8 << 10;
/// Longest wait for it.
const ASKING: Duration = Duration::from_secs(10);

/// Errors of a gateway.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The WAN.
    #[error(transparent)]
    Wan(#[from] WanError),
    /// A socket of a proxy.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        source: std::io::Error,
    },
    /// A socket of the transparent router.
    #[error("cannot take connections of other hosts at port {port}: {source}")]
    Transparent {
        /// The port.
        port: u16,
        /// The I/O error.
        source: std::io::Error,
    },
    /// A connect cannot be held.
    #[error(
        "connect = \"honest\" needs features that are missing here: {0}; \
         with connect = \"fast\" a connect succeeds at once"
    )]
    Honest(String),
    /// Its rules.
    #[error("cannot lead packets of other hosts to this gateway: {0}")]
    Rules(#[from] paceline_net::Error),
    /// The control socket.
    #[error(transparent)]
    Control(#[from] security::Error),
    /// The answer of a gateway.
    #[error("the gateway's answer: {0}")]
    Answer(String),
}

/// Answer to `status`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The gateway's name.
    pub name: String,
    /// Its packets are paced by a thread with real-time priority.
    pub realtime: bool,
    /// Each peer's session, if it is connected.
    pub peers: BTreeMap<String, Option<serde_json::Value>>,
    /// Connections of hosts that are routed through it; absent: none are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transparent: Option<Routed>,
}

/// Connections of hosts, for `status`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Routed {
    /// The peer whose site they go to.
    pub peer: String,
    /// When their connects succeed: honest or fast.
    pub connect: String,
    /// Why they are not honest, though the configuration does not ask for fast ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// Jobs of `paceline run --gateway` on this host.
    pub programs: usize,
    /// Their counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Connections of hosts that are routed through this gateway.
struct Router {
    listeners: Vec<TcpListener>,
    rules: Rules,
    counters: Arc<Counters>,
    honest: Result<Arc<Honest>, Option<String>>,
}

/// A gateway whose sockets are open.
pub struct Gateway {
    config: Arc<Config>,
    peers: Arc<Peers>,
    wan: Wan,
    control: UnixListener,
    proxies: Vec<(TcpListener, Protocol, String)>,
    router: Option<Router>,
}

/// The control socket of a configuration.
pub fn control_socket(configured: Option<&PathBuf>) -> PathBuf {
    let user = nix::unistd::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = || default_socket(Purpose::Gateway, user, runtime.as_deref());
    configured.cloned().unwrap_or_else(usual)
}

impl Gateway {
    /// Opens all sockets. Must be called in a runtime.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn open(config: Config) -> Result<Self, ServiceError> {
        let config = Arc::new(config);
        let weights = config.peers.iter();
        let weights = weights.map(|(name, peer)| (name.clone(), peer.weights.clone()));
        let peers = Arc::new(Peers::new(weights.collect()));
        let control = security::bind(&control_socket(config.control.as_ref()), false)?;
        let mut proxies = Vec::new();
        let asked = [
            (&config.socks, Protocol::Socks),
            (&config.http, Protocol::Http),
        ];
        for (proxy, protocol) in asked {
            if let Some(Proxy { listen, peer }) = proxy {
                let listener = TcpListener::bind(listen).await;
                let listener = listener.map_err(|source| ServiceError::Listen {
                    address: *listen,
                    source,
                })?;
                proxies.push((listener, protocol, peer.clone()));
            }
        }
        let router = config.transparent.as_ref().map(router).transpose()?;
        let wan = start(&config, &peers, tokio::runtime::Handle::current())?;
        Ok(Self {
            config,
            peers,
            wan,
            control,
            proxies,
            router,
        })
    }

    /// Listen address for peers.
    pub fn address(&self) -> Option<SocketAddr> {
        self.config.listen.and(self.wan.address)
    }

    /// Listen addresses of the proxies.
    pub fn proxies(&self) -> Vec<(Protocol, SocketAddr)> {
        let address = |(listener, protocol, _): &(TcpListener, Protocol, String)| {
            listener
                .local_addr()
                .ok()
                .map(|address| (*protocol, address))
        };
        self.proxies.iter().filter_map(address).collect()
    }

    /// Settings for hosts that are routed through it.
    pub fn transparent(&self) -> Option<&Transparent> {
        self.config.transparent.as_ref()
    }

    /// Why connects of hosts succeed at once, though the configuration does not ask for it.
    pub fn lacks_honest(&self) -> Option<&str> {
        let honest = &self.router.as_ref()?.honest;
        honest.as_ref().err()?.as_deref()
    }

    /// The thread of the WAN has real-time priority.
    pub fn is_realtime(&self) -> bool {
        self.wan.is_realtime
    }

    /// Runs until `stop`. All connections are reset then.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut tasks = tokio::task::JoinSet::new();
        for (listener, protocol, peer) in self.proxies {
            tasks.spawn(serve(listener, protocol, Arc::clone(&self.peers), peer));
        }
        let mut rules = None;
        let mut routed = None;
        if let (Some(router), Some(to)) = (self.router, &self.config.transparent) {
            for listener in router.listeners {
                let (peers, peer) = (Arc::clone(&self.peers), to.peer.clone());
                let counters = Arc::clone(&router.counters);
                let honest = router.honest.as_ref().ok().cloned();
                tasks.spawn(transparent::serve(
                    listener, to.port, peers, peer, counters, honest,
                ));
            }
            let counters = router.counters;
            let lacks = match router.honest {
                Ok(honest) => {
                    let (peers, counters) = (Arc::clone(&self.peers), Arc::clone(&counters));
                    tasks.spawn(honest.serve(peers, to.peer.clone(), counters));
                    None
                }
                Err(lacks) => Some(lacks),
            };
            rules = Some(router.rules);
            routed = Some((counters, lacks));
        }
        let control = Arc::new(Control {
            config: self.config,
            peers: self.peers,
            realtime: self.wan.is_realtime,
            routed,
            programs: Mutex::default(),
        });
        tasks.spawn(Arc::clone(&control).serve(self.control));
        stop.await;
        tasks.abort_all();
        // New connections bypass the gateway from here on; then its own connections are reset.
        tokio::task::block_in_place(|| {
            drop(rules);
            drop(self.wan);
        });
    }
}

/// Opens the listeners first: if another gateway has the port, its rules stay.
fn router(taken: &Transparent) -> Result<Router, ServiceError> {
    let port = taken.port;
    let mut listeners = Vec::new();
    for is_v6 in families(taken) {
        let listener = transparent::listen(is_v6, port);
        listeners.push(listener.map_err(|source| ServiceError::Transparent { port, source })?);
    }
    let honest = match tokio::task::block_in_place(|| honest(taken)) {
        Err(lacks) if taken.connect == Some(Connect::Honest) => {
            return Err(ServiceError::Honest(lacks.unwrap_or_default()));
        }
        honest => honest,
    };
    Ok(Router {
        listeners,
        rules: tokio::task::block_in_place(|| Rules::add(taken, honest.is_ok()))?,
        counters: Arc::default(),
        honest,
    })
}

/// Opens the sockets that hold connects; the error says why there are none, unless configured.
fn honest(taken: &Transparent) -> Result<Arc<Honest>, Option<String>> {
    if taken.connect == Some(Connect::Fast) {
        return Err(None);
    }
    let missing = nft::missing_for_honest().map_err(|error| Some(error.to_string()))?;
    if !missing.is_empty() {
        return Err(Some(missing.join(", ")));
    }
    Honest::open(GROUP, MARK, &families(taken)).map_err(|error| {
        Some(format!(
            "sockets for it ({error}; CAP_NET_ADMIN and CAP_NET_RAW)"
        ))
    })
}

/// A request to a gateway, a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Asked {
    /// Its status.
    Status,
    /// The connections of programs in a cgroup shall go to a peer's site, as long as this
    /// connection lives.
    Lead {
        /// The peer.
        peer: String,
        /// Its path below the root of cgroup v2.
        cgroup: String,
    },
}

/// State of the control socket.
struct Control {
    config: Arc<Config>,
    peers: Arc<Peers>,
    realtime: bool,
    routed: Option<(Arc<Counters>, Option<Option<String>>)>,
    programs: Mutex<Vec<(u64, String)>>,
}

impl Control {
    async fn serve(self: Arc<Self>, listener: UnixListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let control = Arc::clone(&self);
            // A task each: a client that does not read delays no other.
            tokio::spawn(async move {
                let _ = control.one(stream).await;
            });
        }
    }

    async fn one(&self, stream: UnixStream) -> std::io::Result<()> {
        let (from, mut to) = stream.into_split();
        let mut from = BufReader::new(from.take(MOST_ASKED));
        let mut line = String::new();
        let read = tokio::time::timeout(ASKING, from.read_line(&mut line));
        read.await??;
        match serde_json::from_str(&line)? {
            Asked::Status => {
                let text = serde_json::to_vec(&self.status())?;
                to.write_all(&text).await
            }
            Asked::Lead { peer, cgroup } => {
                let led = self.lead(&peer, &cgroup);
                let refusal = led.as_ref().err().map_or("", String::as_str);
                to.write_all(format!("{refusal}\n").as_bytes()).await?;
                let Ok(_led) = led else {
                    return Ok(());
                };
                // Until the client closes the connection.
                let mut rest = Vec::new();
                from.read_to_end(&mut rest).await.map(drop)
            }
        }
    }

    fn status(&self) -> Status {
        let seen = |name: &String| {
            let seen = self.peers.hub(name).map(|hub| hub.seen());
            let seen = seen.and_then(|seen| serde_json::to_value(seen).ok());
            (name.clone(), seen)
        };
        let transparent = self.config.transparent.as_ref().zip(self.routed.as_ref());
        Status {
            name: self.config.name.clone(),
            realtime: self.realtime,
            peers: self.config.peers.keys().map(seen).collect(),
            transparent: transparent.map(|(to, (counters, lacks))| Routed {
                peer: to.peer.clone(),
                connect: if lacks.is_some() { "fast" } else { "honest" }.to_owned(),
                lacks: lacks.clone().flatten(),
                programs: self.programs().len(),
                counts: counters.counts(),
            }),
        }
    }

    fn programs(&self) -> MutexGuard<'_, Vec<(u64, String)>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lead(&self, peer: &str, cgroup: &str) -> Result<Led<'_>, String> {
        match &self.config.transparent {
            None => return Err("its file has no [transparent]".to_owned()),
            Some(to) if to.peer != peer => {
                return Err(format!("it leads to {}, not to {peer}", to.peer));
            }
            Some(_) => {}
        }
        let cgroup = cgroup.trim_matches('/');
        let is_path = !cgroup.is_empty() && !cgroup.contains(['"', '\n', '\\']);
        if !is_path {
            return Err(
                "programs in the root of cgroup v2 cannot be distinguished from others".to_owned(),
            );
        }
        let mut programs = self.programs();
        let number = programs.last().map_or(0, |(number, _)| number + 1);
        programs.push((number, cgroup.to_owned()));
        if let Err(error) = lead(&programs) {
            programs.pop();
            return Err(error.to_string());
        }
        drop(programs);
        Ok(Led {
            control: self,
            number,
        })
    }
}

/// Programs that are led.
struct Led<'c> {
    control: &'c Control,
    number: u64,
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        let mut programs = self.control.programs();
        programs.retain(|(number, _)| *number != self.number);
        if let Err(error) = lead(&programs) {
            tracing::warn!("connections of programs that ended are still led here: {error}");
        }
    }
}

/// Leads the programs whose cgroup still exists.
fn lead(programs: &[(u64, String)]) -> Result<(), paceline_net::Error> {
    let mut cgroups: Vec<String> = programs.iter().map(|(_, cgroup)| cgroup.clone()).collect();
    let last = cgroups.pop();
    cgroups.retain(|cgroup| std::path::Path::new("/sys/fs/cgroup").join(cgroup).exists());
    // Keep the last one: its error is reported.
    cgroups.extend(last);
    cgroups.sort();
    cgroups.dedup();
    rules::lead(&cgroups)
}

/// Asks a running gateway.
///
/// # Errors
/// [`ServiceError`].
pub async fn status(socket: &std::path::Path) -> Result<Status, ServiceError> {
    let own = nix::unistd::geteuid().as_raw();
    let mut stream = security::connect(socket, &[own, 0]).await?;
    ask(&mut stream, &Asked::Status).await?;
    let mut text = Vec::new();
    let read = stream.take(MOST_STATUS).read_to_end(&mut text).await;
    read.map_err(|error| ServiceError::Answer(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| ServiceError::Answer(error.to_string()))
}

/// Has a running gateway lead the connections of programs in a cgroup to a peer's site, until
/// the connection to it that this returns is closed. It ends when the gateway does.
///
/// # Errors
/// [`ServiceError`]; [`ServiceError::Answer`] if it refuses.
pub async fn lead_programs(
    socket: &std::path::Path,
    peer: &str,
    cgroup: &str,
) -> Result<UnixStream, ServiceError> {
    let own = nix::unistd::geteuid().as_raw();
    let mut stream = security::connect(socket, &[own, 0]).await?;
    let (peer, cgroup) = (peer.to_owned(), cgroup.to_owned());
    ask(&mut stream, &Asked::Lead { peer, cgroup }).await?;
    let mut reply = String::new();
    let read = BufReader::new(&mut stream).read_line(&mut reply).await;
    read.map_err(|error| ServiceError::Answer(error.to_string()))?;
    match reply.as_str() {
        "\n" => Ok(stream),
        "" => Err(ServiceError::Answer("none".to_owned())),
        refused => Err(ServiceError::Answer(refused.trim().to_owned())),
    }
}

async fn ask(stream: &mut UnixStream, asked: &Asked) -> Result<(), ServiceError> {
    let line = serde_json::to_string(asked).map(|line| line + "\n");
    let line = line.map_err(|error| ServiceError::Answer(error.to_string()))?;
    let sent = stream.write_all(line.as_bytes()).await;
    sent.map_err(|error| ServiceError::Answer(error.to_string()))
}
