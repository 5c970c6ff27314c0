// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's access to its own host: the streams of a group, and a way to bound their windows.
//! The implementation decides which streams a group has.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One stream of a group, as its sender's TCP sees it at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSample {
    /// Names the socket on its host (SO_COOKIE). Never used again while the host is up.
    pub cookie: u64,
    /// Where its packets go, if known: streams to different networks are on different routes.
    pub destination: Option<IpAddr>,
    /// Sent and not acknowledged yet, segments.
    pub inflight_segs: u32,
    /// The window of its own congestion control, segments.
    pub cwnd_segs: u32,
    /// Where its slow start ends, segments; 2³¹-1 if no loss has set it yet.
    pub ssthresh_segs: u32,
    /// Bytes of payload in a full segment; 0: not known.
    pub mss_bytes: u32,
    /// Smoothed round trip, microseconds; 0: not measured yet.
    pub srtt_us: u32,
    /// Least round trip that was seen, microseconds; 0: not measured yet.
    pub min_rtt_us: u32,
    /// Acknowledged since the connection began, bytes.
    pub acked_bytes: u64,
    /// Known to have arrived since the connection began, by selective acknowledgement too,
    /// segments; wraps.
    pub delivered_segs: u32,
    /// Written by the program and not sent yet, bytes.
    pub unsent_bytes: u64,
    /// Total bytes that the program declared; 0: not declared.
    pub total_bytes: u64,
    /// Retransmitted since the connection began, segments.
    pub retransmitted_segs: u64,
    /// In Recovery or Loss (Linux: tcp_ca_state).
    pub recovering: bool,
}

/// The bounds of one stream's window (kamezawa-2004, 5.2: `uwnd`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cap {
    /// As [`StreamSample::cookie`].
    pub cookie: u64,
    /// Used instead of a smaller cwnd, segments; 0: no limit.
    pub min_segs: u32,
    /// Used instead of a larger cwnd, segments; 0: no limit.
    pub max_segs: u32,
}

/// Why a host cannot list its streams or bound them.
pub type LocalError = Box<dyn std::error::Error + Send + Sync>;

/// A host's own side of a group.
///
/// Both functions are called from the client's only thread, once in a round each, and
/// should return within a few milliseconds.
pub trait LocalStreams: Send {
    /// The group's streams that are open now.
    ///
    /// # Errors
    /// The client logs it, reports no streams, and asks again in the next round.
    fn streams(&mut self) -> Result<Vec<StreamSample>, LocalError>;

    /// Bounds windows until `lease` has passed or other bounds come; then the streams are free.
    /// A cookie that is no longer there is no error.
    ///
    /// # Errors
    /// As [`streams`](Self::streams).
    fn apply(&mut self, caps: &[Cap], lease: Duration) -> Result<(), LocalError>;
}
