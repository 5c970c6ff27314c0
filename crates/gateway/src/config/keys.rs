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
    /// Name of this gateway. Each peer's file has a table [peer.NAME] for it.
    #[schemars(length(min = 1, max = 64), extend("examples" = ["near"]))]
    pub(super) name: String,
    /// Address and port at which the gateway accepts peers (UDP, and TCP where UDP is blocked);
    /// absent: it accepts none.
    #[schemars(extend("examples" = ["0.0.0.0:7420"]))]
    pub(super) listen: Option<String>,
    /// File with the token that both sides prove; create it with `paceline coordinate token`.
    pub(super) token: Option<String>,
    /// File with this gateway's certificate (PEM); needed to listen.
    pub(super) certificate: Option<String>,
    /// File with the private key of the certificate (PEM).
    pub(super) key: Option<String>,
    /// File with CA certificates (PEM); each peer must present a certificate of one of these CAs.
    pub(super) authorities: Option<String>,
    /// Unix socket for `paceline gateway status`; absent: /run/paceline/gateway.sock.
    pub(super) control: Option<String>,
    /// The gateways at other sites.
    pub(super) peer: IndexMap<String, PeerKeys>,
    /// A SOCKS5 proxy for programs at this site.
    pub(super) socks: Option<ProxyKeys>,
    /// An HTTP proxy (CONNECT) for programs at this site.
    pub(super) http: Option<ProxyKeys>,
    /// Transparent forwarding: connections of hosts whose packets are routed through this gateway.
    pub(super) transparent: Option<TransparentKeys>,
    /// Destinations at this site to which peers may connect; absent: none.
    pub(super) accept: Option<AcceptKeys>,
}

/// A gateway at another site.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerKeys {
    /// Host and port of the peer; absent: the peer connects to this gateway.
    #[schemars(extend("examples" = ["gw.far:7420"]))]
    pub(super) address: Option<String>,
    /// Transport of the session; absent: UDP, or TCP if UDP gets no answer.
    pub(super) leg: Option<Leg>,
    /// SHA-256 of the peer's certificate, instead of authorities.
    #[schemars(extend("examples" = ["hexadecimal, 64 digits"]))]
    pub(super) fingerprint: Option<String>,
    /// Sending rate of this side; absent: it is learned.
    pub(super) rate: Option<RateKeys>,
    /// Memory for the data of the peer's connections; absent: 64 MiB.
    #[schemars(extend("x-range" = ["4MiB", null]))]
    pub(super) memory: Option<units::Size>,
    /// Largest UDP payload of a datagram, bytes; absent: 1452.
    #[schemars(range(min = 1_232, max = 8_952))]
    pub(super) mtu: Option<u16>,
    /// Maximum number of connections in each direction; absent: 1024.
    #[schemars(range(min = 1, max = 65_536))]
    pub(super) connections: Option<u64>,
    /// Connections with a larger share of the rate than others; absent: all shares are equal.
    pub(super) weights: Option<Vec<WeightKeys>>,
    /// Longest outage that connections survive; absent: 90s.
    #[schemars(extend("x-range" = ["1s", "100s"]))]
    pub(super) patience: Option<units::Time>,
}

/// Transport of the session.
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
    /// Network at the peer's site. A destination has the weight of the longest network that
    /// contains it.
    #[schemars(extend("examples" = ["10.2.0.5/32"]))]
    pub(super) to: String,
    /// Share relative to a connection of weight 1, in both directions.
    #[schemars(range(min = 1, max = 255))]
    pub(super) weight: u8,
}

/// One of the two.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RateKeys {
    /// A rate that is reserved on the wire: losses do not reduce it.
    #[schemars(extend("x-range" = [LEAST_RATE, null]))]
    pub(super) reserve: Option<units::Rate>,
    /// The rate is learned. This is its upper limit.
    #[schemars(extend("x-range" = [LEAST_RATE, null]))]
    pub(super) learned: Option<units::Rate>,
}

/// A proxy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProxyKeys {
    /// Address and port (TCP). Every program that can connect to it may use it.
    #[schemars(extend("examples" = ["127.0.0.1:1080"]))]
    pub(super) listen: String,
    /// The peer at whose site the destinations are.
    pub(super) peer: String,
}

/// Connections that the gateway intercepts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TransparentKeys {
    /// Interface at which the hosts' packets arrive; absent: the gateway takes only connections of
    /// programs of `paceline run --gateway`.
    #[schemars(extend("examples" = ["eth0"]))]
    pub(super) interface: Option<String>,
    /// The peer at whose site the destinations are.
    pub(super) peer: String,
    /// Destination networks whose connections the gateway takes.
    #[schemars(length(min = 1), extend("examples" = [["10.2.0.0/16"]]))]
    pub(super) to: Vec<String>,
    /// Destination ports; absent: all.
    #[schemars(length(min = 1), extend("examples" = [["22", "1024-65535"]]))]
    pub(super) ports: Option<Vec<String>>,
    /// When a host's connect succeeds; absent: honest if the kernel supports it, else fast.
    pub(super) connect: Option<Connect>,
    /// TCP port of this gateway to which the kernel redirects the connections; absent: 7421.
    #[schemars(range(min = 1))]
    pub(super) port: Option<u16>,
}

/// When a host's connect succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Connect {
    /// At once. If the destination refuses, the connection is reset afterwards.
    Fast,
    /// After the destination has answered. If it refuses, the connect is refused.
    Honest,
}

/// Destinations.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AcceptKeys {
    /// Destination networks. Loopback and link-local networks must be listed themselves, and this
    /// gateway's own addresses with all their bits.
    #[schemars(extend("examples" = [["10.2.0.0/16"]]))]
    pub(super) to: Vec<String>,
    /// Ports; absent: all.
    #[schemars(extend("examples" = [["22", "1024-65535"]]))]
    pub(super) ports: Option<Vec<String>>,
    /// Source address of the connections to destinations; absent: own.
    pub(super) source: Option<Source>,
}

/// Source address of the connections to destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    /// This gateway's address.
    Own,
    /// The address of the host that connects. It must be in `transparent.to`.
    Keep,
}
