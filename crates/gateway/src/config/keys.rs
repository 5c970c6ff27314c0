// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of the file.

use indexmap::IndexMap;
use paceline_input::units;
use schemars::JsonSchema;
use serde::Deserialize;

/// Least rate: a report of 100 bytes takes 8 ms.
const LEAST_RATE: &str = "100kbit";

/// A gateway.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Paceline gateway")]
pub(super) struct File {
    /// This gateway's name: its peers have a table [peer.NAME] for it.
    #[schemars(length(min = 1, max = 64), extend("examples" = ["near"]))]
    pub(super) name: String,
    /// Address and port (UDP, and TCP where that is blocked) at which peers are awaited; absent:
    /// none are.
    #[schemars(extend("examples" = ["0.0.0.0:7420"]))]
    pub(super) listen: Option<String>,
    /// File with the token that both sides prove; create it with `paceline coordinate token`.
    pub(super) token: Option<String>,
    /// File with this gateway's certificate (PEM); needed to listen.
    pub(super) certificate: Option<String>,
    /// File with its key (PEM).
    pub(super) key: Option<String>,
    /// File with certificates of authorities (PEM); peers must present a certificate of theirs.
    pub(super) authorities: Option<String>,
    /// Unix socket for `paceline gateway status`; absent: /run/paceline/gateway.sock.
    pub(super) control: Option<String>,
    /// The gateways at other sites.
    pub(super) peer: IndexMap<String, PeerKeys>,
    /// A SOCKS5 proxy for programs at this site.
    pub(super) socks: Option<ProxyKeys>,
    /// An HTTP proxy (CONNECT) for programs at this site.
    pub(super) http: Option<ProxyKeys>,
    /// Connections of hosts that are routed through this gateway and know nothing of it.
    pub(super) transparent: Option<TransparentKeys>,
    /// Where peers may connect to at this site; absent: nowhere.
    pub(super) accept: Option<AcceptKeys>,
}

/// A gateway at another site.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerKeys {
    /// Host and port at which it is reached; absent: it connects to this one.
    #[schemars(extend("examples" = ["gw.far:7420"]))]
    pub(super) address: Option<String>,
    /// By what it is reached; absent: UDP, or TCP where UDP gets no answer.
    pub(super) leg: Option<Leg>,
    /// SHA-256 of its certificate, instead of authorities.
    #[schemars(extend("examples" = ["hexadecimal, 64 digits"]))]
    pub(super) fingerprint: Option<String>,
    /// How fast this side sends; absent: a rate that is learned.
    pub(super) rate: Option<RateKeys>,
    /// Memory for its connections' data; absent: 64 MiB.
    #[schemars(extend("x-range" = ["4MiB", null]))]
    pub(super) memory: Option<units::Size>,
    /// UDP payload that the path carries, bytes; absent: 1452.
    #[schemars(range(min = 1_232, max = 8_952))]
    pub(super) mtu: Option<u16>,
    /// Connections in each direction; absent: 1024.
    #[schemars(range(min = 1, max = 65_536))]
    pub(super) connections: Option<u64>,
    /// Connections that shall get more than others; absent: all are equal.
    pub(super) weights: Option<Vec<WeightKeys>>,
    /// Outage that connections survive; absent: 90s.
    #[schemars(extend("x-range" = ["1s", "100s"]))]
    pub(super) patience: Option<units::Time>,
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
pub(super) struct WeightKeys {
    /// Network at the peer's site. The longest one that a destination is in counts.
    #[schemars(extend("examples" = ["10.2.0.5/32"]))]
    pub(super) to: String,
    /// How many times as much as a connection of weight 1, in both directions.
    #[schemars(range(min = 1, max = 255))]
    pub(super) weight: u8,
}

/// One of the two.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RateKeys {
    /// A rate that was allocated in advance, on the wire: it is used whatever is lost.
    #[schemars(extend("x-range" = [LEAST_RATE, null]))]
    pub(super) reserve: Option<units::Rate>,
    /// The rate is learned, up to this.
    #[schemars(extend("x-range" = [LEAST_RATE, null]))]
    pub(super) learned: Option<units::Rate>,
}

/// A proxy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProxyKeys {
    /// Address and port (TCP). Who reaches it may use it.
    #[schemars(extend("examples" = ["127.0.0.1:1080"]))]
    pub(super) listen: String,
    /// The peer whose site the connections go to.
    pub(super) peer: String,
}

/// Connections that are taken on their way.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TransparentKeys {
    /// Interface by which the hosts' packets come in; absent: only connections of programs of
    /// `paceline run --gateway` are taken.
    #[schemars(extend("examples" = ["eth0"]))]
    pub(super) interface: Option<String>,
    /// The peer whose site the connections go to.
    pub(super) peer: String,
    /// Destinations whose connections are taken.
    #[schemars(length(min = 1), extend("examples" = [["10.2.0.0/16"]]))]
    pub(super) to: Vec<String>,
    /// Their ports; absent: all.
    #[schemars(length(min = 1), extend("examples" = [["22", "1024-65535"]]))]
    pub(super) ports: Option<Vec<String>>,
    /// When a host's connect succeeds; absent: honest where the kernel can, else fast.
    pub(super) connect: Option<Connect>,
    /// Own TCP port at which the kernel hands them over; absent: 7421.
    #[schemars(range(min = 1))]
    pub(super) port: Option<u16>,
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
pub(super) struct AcceptKeys {
    /// Networks. Loopback and link-local ones count only where they are listed themselves, and
    /// this gateway's own addresses only with all their bits.
    #[schemars(extend("examples" = [["10.2.0.0/16"]]))]
    pub(super) to: Vec<String>,
    /// Ports; absent: all.
    #[schemars(extend("examples" = [["22", "1024-65535"]]))]
    pub(super) ports: Option<Vec<String>>,
    /// Whom destinations see as their client; absent: own.
    pub(super) source: Option<Source>,
}

/// The address that destinations see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    /// This gateway's.
    Own,
    /// That of the host that connects. It must be in `transparent.to`.
    Keep,
}
