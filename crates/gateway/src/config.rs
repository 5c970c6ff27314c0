// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use ipnet::IpNet;
use paceline_input::units;
use paceline_input::{Document, Place, Problems, Reader};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::local::{Allow, Ports};
use crate::session::Rate;
use crate::weights::Weights;

/// Least rate: a report of 100 bytes takes 8 ms.
const LEAST_RATE: &str = "100kbit";
/// Rate that is learned at most, unless configured, bits per second.
const MOST_LEARNED: u64 = 10_000_000_000;
/// UDP payload that each path of IPv6 carries (RFC 8200, 5: 1,280 bytes), and the largest one.
const MTUS: (u16, u16) = (1_232, 8_952);
/// UDP payload of a packet of 1,500 bytes with IPv6.
const MTU: u16 = 1_452;
/// Memory of a peer, bytes.
const MEMORY: u64 = 64 << 20;
/// Connections of a peer in each direction.
const STREAMS: u64 = 1_024;
/// Silence after which a peer is given up, seconds: longer than an outage of a minute.
const PATIENCE: u64 = 90;
/// Port beside the WAN's usual one (7420).
const TRANSPARENT_PORT: u16 = 7_421;

/// A gateway.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Paceline gateway")]
struct File {
    /// This gateway's name: its peers have a table [peer.NAME] for it.
    #[schemars(length(min = 1, max = 64), extend("examples" = ["near"]))]
    name: String,
    /// Address and port (UDP, and TCP where that is blocked) at which peers are awaited; absent:
    /// none are.
    #[schemars(extend("examples" = ["0.0.0.0:7420"]))]
    listen: Option<String>,
    /// File with the token that both sides prove; create it with `paceline coordinate token`.
    token: Option<String>,
    /// File with this gateway's certificate (PEM); needed to listen.
    certificate: Option<String>,
    /// File with its key (PEM).
    key: Option<String>,
    /// File with certificates of authorities (PEM); peers must present a certificate of theirs.
    authorities: Option<String>,
    /// Unix socket for `paceline gateway status`; absent: /run/paceline/gateway.sock.
    control: Option<String>,
    /// The gateways at other sites.
    peer: IndexMap<String, PeerKeys>,
    /// A SOCKS5 proxy for programs at this site.
    socks: Option<ProxyKeys>,
    /// An HTTP proxy (CONNECT) for programs at this site.
    http: Option<ProxyKeys>,
    /// Connections of hosts that are routed through this gateway and know nothing of it.
    transparent: Option<TransparentKeys>,
    /// Where peers may connect to at this site; absent: nowhere.
    accept: Option<AcceptKeys>,
}

/// A gateway at another site.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PeerKeys {
    /// Host and port at which it is reached; absent: it connects to this one.
    #[schemars(extend("examples" = ["gw.far:7420"]))]
    address: Option<String>,
    /// By what it is reached; absent: UDP, or TCP where UDP gets no answer.
    leg: Option<Leg>,
    /// SHA-256 of its certificate, instead of authorities.
    #[schemars(extend("examples" = ["hexadecimal, 64 digits"]))]
    fingerprint: Option<String>,
    /// How fast this side sends; absent: a rate that is learned.
    rate: Option<RateKeys>,
    /// Memory for its connections' data; absent: 64 MiB.
    #[schemars(extend("x-range" = ["4MiB", null]))]
    memory: Option<units::Size>,
    /// UDP payload that the path carries, bytes; absent: 1452.
    #[schemars(range(min = 1_232, max = 8_952))]
    mtu: Option<u16>,
    /// Connections in each direction; absent: 1024.
    #[schemars(range(min = 1, max = 65_536))]
    connections: Option<u64>,
    /// Connections that shall get more than others; absent: all are equal.
    weights: Option<Vec<WeightKeys>>,
    /// Outage that connections survive; absent: 90s.
    #[schemars(extend("x-range" = ["1s", "100s"]))]
    patience: Option<units::Time>,
}

/// What carries the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Leg {
    /// QUIC datagrams alone.
    Udp,
    /// TLS over TCP alone.
    Tcp,
}

/// A share of the rate.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WeightKeys {
    /// Network at the peer's site. The longest one that a destination is in counts.
    #[schemars(extend("examples" = ["10.2.0.5/32"]))]
    to: String,
    /// How many times as much as a connection of weight 1, in both directions.
    #[schemars(range(min = 1, max = 255))]
    weight: u8,
}

/// One of the two.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RateKeys {
    /// A rate that was allocated in advance, on the wire: it is used whatever is lost.
    #[schemars(extend("x-range" = [LEAST_RATE, null]))]
    reserve: Option<units::Rate>,
    /// The rate is learned, up to this.
    #[schemars(extend("x-range" = [LEAST_RATE, null]))]
    learned: Option<units::Rate>,
}

/// A proxy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProxyKeys {
    /// Address and port (TCP). Who reaches it may use it.
    #[schemars(extend("examples" = ["127.0.0.1:1080"]))]
    listen: String,
    /// The peer whose site the connections go to.
    peer: String,
}

/// Connections that are taken on their way.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TransparentKeys {
    /// Interface by which the hosts' packets come in; absent: only connections of programs of
    /// `paceline run --gateway` are taken.
    #[schemars(extend("examples" = ["eth0"]))]
    interface: Option<String>,
    /// The peer whose site the connections go to.
    peer: String,
    /// Destinations whose connections are taken.
    #[schemars(length(min = 1), extend("examples" = [["10.2.0.0/16"]]))]
    to: Vec<String>,
    /// Their ports; absent: all.
    #[schemars(length(min = 1), extend("examples" = [["22", "1024-65535"]]))]
    ports: Option<Vec<String>>,
    /// When a host's connect succeeds; absent: honest where the kernel can, else fast.
    connect: Option<Connect>,
    /// Own TCP port at which the kernel hands them over; absent: 7421.
    #[schemars(range(min = 1))]
    port: Option<u16>,
}

/// When a host's connect succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Connect {
    /// At once; a destination that refuses is a reset afterwards.
    Fast,
    /// When the destination has answered; if it refuses, the connect is refused.
    Honest,
}

/// Destinations.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AcceptKeys {
    /// Networks. Loopback and link-local ones count only where they are listed themselves, and
    /// this gateway's own addresses only with all their bits.
    #[schemars(extend("examples" = [["10.2.0.0/16"]]))]
    to: Vec<String>,
    /// Ports; absent: all.
    #[schemars(extend("examples" = [["22", "1024-65535"]]))]
    ports: Option<Vec<String>>,
    /// Whom destinations see as their client; absent: own.
    source: Option<Source>,
}

/// The address that destinations see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Source {
    /// This gateway's.
    Own,
    /// That of the host that connects. It must be in `transparent.to`.
    Keep,
}

/// How a peer is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The token.
    pub token: Option<PathBuf>,
    /// Certificate and key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Authorities.
    pub authorities: Option<PathBuf>,
}

/// A peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Where it is reached; `None`: it comes.
    pub address: Option<String>,
    /// By what; `None`: UDP, or TCP where UDP gets no answer.
    pub leg: Option<Leg>,
    /// Of its certificate.
    pub fingerprint: Option<[u8; 32]>,
    /// How fast this side sends.
    pub rate: Rate,
    /// Bytes.
    pub memory: u64,
    /// UDP payload, bytes.
    pub mtu: u16,
    /// In each direction.
    pub connections: u64,
    /// Of connections that this side makes, by their destination.
    pub weights: Weights,
    /// Nanoseconds.
    pub patience: u64,
}

/// A proxy for programs here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Name of the peer.
    pub peer: String,
}

/// Connections that are taken on their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transparent {
    /// Interface by which the hosts' packets come in; `None`: programs of this host alone.
    pub interface: Option<String>,
    /// Name of the peer.
    pub peer: String,
    /// Destinations.
    pub to: Allow,
    /// `None`: honest where the kernel can, else fast.
    pub connect: Option<Connect>,
    /// Own port.
    pub port: u16,
}

/// A gateway's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Own name.
    pub name: String,
    /// Where peers are awaited.
    pub listen: Option<SocketAddr>,
    /// How this side is known, and knows others.
    pub identity: Identity,
    /// For `status`; `None`: the usual place.
    pub control: Option<PathBuf>,
    /// By name.
    pub peers: IndexMap<String, Peer>,
    /// SOCKS5.
    pub socks: Option<Proxy>,
    /// HTTP CONNECT.
    pub http: Option<Proxy>,
    /// Of hosts that are routed through this gateway.
    pub transparent: Option<Transparent>,
    /// Where peers may connect to.
    pub allow: Allow,
    /// Destinations see the host that connects.
    pub is_source_kept: bool,
}

/// A file that is none.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Its path.
        file: String,
        /// Why not.
        source: std::io::Error,
    },
    /// All that is wrong with it.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

/// The schema of the file, for editors.
pub fn schema() -> Value {
    paceline_input::schema::<File>()
}

impl Config {
    /// Reads a file. Paths in it are relative to its directory.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            file: file.clone(),
            source,
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Ok(Self::parse(&text, &file, directory)?)
    }

    /// Networks whose hosts' addresses a peer's connections have here; `None`: they have this
    /// gateway's. A peer speaks only for the site that its connections come from.
    pub fn sources(&self, peer: &str) -> Option<Vec<IpNet>> {
        let site = self.transparent.as_ref().filter(|to| to.peer == peer);
        let networks = site.map_or_else(Vec::new, |to| to.to.networks.clone());
        self.is_source_kept.then_some(networks)
    }

    /// Reads a text. `file` is its name in messages.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str, file: &str, directory: &Path) -> Result<Self, Problems> {
        let document = Document::new(file, text);
        let read: File = Reader::default().read(&document, &[])?;
        document.check(|place| Ok(checked(&read, place, directory)))
    }
}

fn checked(file: &File, place: &Place, directory: &Path) -> Config {
    let path = |text: &String| directory.join(text);
    let certificate = match (&file.certificate, &file.key) {
        (Some(certificate), Some(key)) => Some((path(certificate), path(key))),
        (Some(_), None) => {
            place
                .key("certificate")
                .wrong("a certificate needs its key: key = \"FILE\"");
            None
        }
        (None, Some(_)) => {
            place
                .key("key")
                .wrong("a key needs its certificate: certificate = \"FILE\"");
            None
        }
        (None, None) => None,
    };
    let listen = file
        .listen
        .as_ref()
        .and_then(|text| address(text, &place.key("listen")));
    if file.listen.is_some() && file.certificate.is_none() {
        place
            .key("listen")
            .wrong("to listen takes a certificate: certificate = \"FILE\"");
    }
    let mut peers = IndexMap::new();
    for (name, keys) in &file.peer {
        let place = place.key("peer").key(name);
        peers.insert(name.clone(), peer(name, keys, file, &place));
    }
    if peers.is_empty() {
        place
            .key("peer")
            .wrong("no peer: a gateway needs a table [peer.NAME]");
    }
    let proxy = |keys: &Option<ProxyKeys>, key: &str| {
        let keys = keys.as_ref()?;
        let place = place.key(key);
        if !file.peer.contains_key(&keys.peer) {
            place
                .key("peer")
                .wrong(format!("there is no table [peer.{}]", keys.peer));
        }
        Some(Proxy {
            listen: address(&keys.listen, &place.key("listen"))?,
            peer: keys.peer.clone(),
        })
    };
    Config {
        name: file.name.clone(),
        listen,
        identity: Identity {
            token: file.token.as_ref().map(path),
            certificate,
            authorities: file.authorities.as_ref().map(path),
        },
        control: file.control.as_ref().map(path),
        socks: proxy(&file.socks, "socks"),
        http: proxy(&file.http, "http"),
        transparent: file
            .transparent
            .as_ref()
            .map(|keys| transparent(keys, file, &place.key("transparent"))),
        allow: file.accept.as_ref().map_or_else(Allow::default, |keys| {
            allow(&keys.to, keys.ports.as_deref(), &place.key("accept"))
        }),
        is_source_kept: is_source_kept(file, place),
        peers,
    }
}

fn is_source_kept(file: &File, place: &Place) -> bool {
    let is_kept = file.accept.as_ref().and_then(|keys| keys.source) == Some(Source::Keep);
    let has_interface = file
        .transparent
        .as_ref()
        .is_some_and(|keys| keys.interface.is_some());
    if is_kept && !has_interface {
        place.key("accept").key("source").wrong(
            "answers to hosts of the other site must pass this gateway: source = \"keep\" takes \
             [transparent] with an interface",
        );
    }
    is_kept
}

fn peer(name: &str, keys: &PeerKeys, file: &File, place: &Place) -> Peer {
    let fingerprint = keys.fingerprint.as_ref().and_then(|text| {
        let parsed = fingerprint(text);
        if parsed.is_none() {
            place
                .key("fingerprint")
                .wrong("a fingerprint has 64 hexadecimal digits (SHA-256)");
        }
        parsed
    });
    match &keys.address {
        Some(text) => {
            let port = text
                .rsplit_once(':')
                .map(|(host, port)| (host, port.parse::<u16>()));
            if !matches!(port, Some((host, Ok(1..))) if !host.is_empty()) {
                place
                    .key("address")
                    .wrong("needs a host and a port, such as \"gw.far:7420\"");
            }
            if keys.fingerprint.is_none() && file.authorities.is_none() {
                place.key("address").wrong(
                    "nothing says by what this peer is known: its fingerprint, or authorities \
                     at the top of the file",
                );
            }
        }
        None if keys.leg.is_some() => {
            place
                .key("leg")
                .wrong("the side that connects chooses: this one has no address");
        }
        None if file.listen.is_none() => {
            place.wrong(
                "neither side can connect: give its address, or listen at the top of the file",
            );
        }
        None => {
            if keys.fingerprint.is_none() && file.authorities.is_none() && file.token.is_none() {
                place.wrong(
                    "nothing says by what this peer is known: its fingerprint, or token or \
                     authorities at the top of the file",
                );
            }
        }
    }
    let rate = match &keys.rate {
        None => Rate::Learned { most: MOST_LEARNED },
        Some(RateKeys {
            reserve: Some(rate),
            learned: None,
        }) => Rate::Reserve(rate.bits_per_second()),
        Some(RateKeys {
            reserve: None,
            learned: Some(most),
        }) => Rate::Learned {
            most: most.bits_per_second(),
        },
        Some(_) => {
            place.key("rate").wrong(
                "needs one of the two: { reserve = \"100mbit\" } or { learned = \"1gbit\" }",
            );
            Rate::Learned { most: MOST_LEARNED }
        }
    };
    let patience = keys
        .patience
        .map_or(PATIENCE * 1_000_000, units::Time::micros);
    Peer {
        name: name.to_owned(),
        address: keys.address.clone(),
        leg: keys.leg,
        fingerprint,
        rate,
        memory: keys.memory.map_or(MEMORY, units::Size::bytes),
        mtu: keys.mtu.unwrap_or(MTU).clamp(MTUS.0, MTUS.1),
        connections: keys.connections.unwrap_or(STREAMS),
        weights: weights(keys, place),
        patience: patience * 1_000,
    }
}

fn weights(keys: &PeerKeys, place: &Place) -> Weights {
    let mut weights = Weights::default();
    for (index, keys) in keys.weights.iter().flatten().enumerate() {
        match keys.to.parse::<IpNet>() {
            Ok(network) => weights.add(network, keys.weight),
            Err(_) => {
                let place = place.key("weights").item(index).key("to");
                place.wrong("needs a network, such as \"10.2.0.5/32\" or \"fd00:2::/64\"");
            }
        }
    }
    weights
}

fn address(text: &str, place: &Place) -> Option<SocketAddr> {
    let parsed = text.parse();
    if parsed.is_err() {
        place.wrong("needs an address and a port, such as \"0.0.0.0:7420\" or \"[::]:7420\"");
    }
    parsed.ok()
}

fn transparent(keys: &TransparentKeys, file: &File, place: &Place) -> Transparent {
    if !file.peer.contains_key(&keys.peer) {
        let what = format!("there is no table [peer.{}]", keys.peer);
        place.key("peer").wrong(what);
    }
    // dev_valid_name, and nothing that nft would read otherwise.
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_@:".contains(c);
    let is_interface =
        |name: &String| (1..libc::IFNAMSIZ).contains(&name.len()) && name.chars().all(is_name);
    if !keys.interface.as_ref().is_none_or(is_interface) {
        place.key("interface").wrong(
            "needs the name of an interface, such as \"eth0\": up to 15 letters, digits and .-_@:",
        );
    }
    Transparent {
        interface: keys.interface.clone(),
        peer: keys.peer.clone(),
        to: allow(&keys.to, keys.ports.as_deref(), place),
        connect: keys.connect,
        port: keys.port.unwrap_or(TRANSPARENT_PORT),
    }
}

fn allow(to: &[String], listed: Option<&[String]>, place: &Place) -> Allow {
    let mut networks = Vec::new();
    for (index, text) in to.iter().enumerate() {
        match text.parse::<IpNet>() {
            Ok(network) => networks.push(network.trunc()),
            Err(_) => {
                let what = "needs a network, such as \"10.2.0.0/16\" or \"fd00:2::/64\"";
                place.key("to").item(index).wrong(what);
            }
        }
    }
    let mut ports = Vec::new();
    for (index, text) in listed.into_iter().flatten().enumerate() {
        match text.parse::<Ports>() {
            Ok(range) => ports.push(range),
            Err(what) => {
                place.key("ports").item(index).wrong(what);
            }
        }
    }
    if listed.is_none() {
        ports.push(Ports::ALL);
    }
    Allow { networks, ports }
}

fn fingerprint(text: &str) -> Option<[u8; 32]> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

/// For the fuzzer.
pub fn fuzz(text: &str) -> Option<Problems> {
    Config::parse(text, "file.toml", Path::new("")).err()
}
