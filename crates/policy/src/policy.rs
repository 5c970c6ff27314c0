// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A policy, and its form for the kernel side.

use std::borrow::Cow;
use std::fmt;

use paceline_abi::{pl_base, pl_policy, pl_target, PL_NO_SACK, PL_NO_SCALING, PL_NO_TIMESTAMPS};
use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::PolicyError;
use paceline_input::units::{Rate, Share, Size, Time};

/// The changes that Paceline makes to the TCP connections of a job.
///
/// Absent parts leave the kernel's own behaviour. A policy that came from
/// [`Policy::parse`], [`Policy::load`], [`Policy::preset`] or serde is valid;
/// one whose fields were changed afterwards is checked by [`Policy::checked`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// 1 to 31 of `a-z A-Z 0-9 . _ -`; shown by `status`.
    pub name: String,
    /// One line for people; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The kernel's algorithm that carries the connection between bursts.
    pub base: Base,
    /// How a burst after idle starts; `None`: as the base algorithm does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
    /// Bounds of the retransmission timeout; `None`: the kernel's 200 ms and 120 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto: Option<Rto>,
    /// The ACKs that this side sends; `None`: the kernel's, one for two segments at least,
    /// delayed by 40 to 200 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack: Option<Ack>,
    /// Windows; `None`: the kernel's and the base algorithm's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Connections side by side; `None`: each by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// Spacing of packets; `None`: as they come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spacing: Option<Spacing>,
    /// Options of each socket; `None`: as the program has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<Socket>,
    /// TCP options that new connections go without; `None`: as the host has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,
    /// What `paceline report` compares with; `None`: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

/// The congestion control of the kernel that a policy builds on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// The socket's own. Paceline wraps nothing, so there is no start-up law.
    #[default]
    Keep,
    /// CUBIC.
    Cubic,
    /// NewReno.
    Reno,
    /// BBR.
    Bbr,
}

impl Base {
    /// The kernel's name for it; `None` for whatever the socket has.
    pub const fn kernel_name(self) -> Option<&'static str> {
        match self {
            Self::Keep => None,
            Self::Cubic => Some("cubic"),
            Self::Reno => Some("reno"),
            Self::Bbr => Some("bbr"),
        }
    }

    /// The name of the registered congestion control that wraps this base, if
    /// it is wrapped.
    pub const fn congestion_control(self) -> Option<&'static str> {
        match self {
            Self::Keep => None,
            Self::Cubic => Some("paceline_cubic"),
            Self::Reno => Some("paceline_reno"),
            Self::Bbr => Some("paceline_bbr"),
        }
    }
}

/// Source of the rate of a start after idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// ssthresh * MSS / RTT, until the first ACK (matsuda-2005, 3.2).
    Ssthresh,
    /// The delivery rate of the path, kept per job, host and destination.
    DeliveryRate,
}

/// The start-up law.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Startup {
    pub target: Target,
    /// The rate per destination while the path is not yet known, payload,
    /// 100 kbit/s to 1000 Gbit/s; `None`: slow start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_rate: Option<Rate>,
    /// Half-life of the state that is kept of a path, 100 ms to 24 h. `Some` with
    /// [`Target::DeliveryRate`] only: the other target keeps no path state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_life: Option<Time>,
    /// Keep the state of a path per phase class, and switch when the program enters another
    /// (matsuda-2005, 3.1).
    pub phases: bool,
    /// `None` (`breaker = "off"`): the base algorithm never runs alone.
    #[serde(serialize_with = "breaker_or_off")]
    pub breaker: Option<Breaker>,
}

/// When the base algorithm runs alone, without the start-up law, per connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Breaker {
    /// A start that loses a larger share of its segments is a bad one, 0.1 to 100 %.
    pub loss: Share,
    /// Bad starts in a row that open the breaker, 1 to 1000.
    pub starts: u32,
    /// How long the breaker stays open, 10 ms to 24 h.
    pub hold: Time,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            loss: Share::from_permille(300),
            starts: 2,
            hold: Time::from_secs(1),
        }
    }
}

fn breaker_or_off<S: Serializer>(
    breaker: &Option<Breaker>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match breaker {
        Some(breaker) => breaker.serialize(serializer),
        None => serializer.serialize_str("off"),
    }
}

/// A time bound of the kernel's timers: a given time, or the bound that the kernel's tick
/// allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickTime {
    /// `"tick"`: resolved by [`Policy::to_abi`].
    Tick,
    Time(Time),
}

impl fmt::Display for TickTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => f.write_str("tick"),
            Self::Time(time) => time.fmt(f),
        }
    }
}

impl Serialize for TickTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TickTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "tick" => Ok(Self::Tick),
            text => text.parse().map(Self::Time).map_err(D::Error::custom),
        }
    }
}

impl JsonSchema for TickTime {
    fn schema_name() -> Cow<'static, str> {
        "TickTime".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let tick = json_schema!({ "type": "string", "const": "tick" });
        json_schema!({ "anyOf": [tick, generator.subschema_for::<Time>()] })
    }
}

/// The retransmission timeout of the sending side. Asks for one of the two at least.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rto {
    /// `None`: the kernel's.
    #[serde(flatten)]
    pub minimum: Option<MinimumRto>,
    /// Maximum RTO, 1 to 120 s; `None`: the kernel's 120 s. A kernel before 6.15 has no such
    /// option (`TCP_RTO_MAX_MS`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<Time>,
}

/// The minimum RTO, and the backoff from there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MinimumRto {
    /// Minimum RTO, instead of 200 ms; `Tick` is two ticks. 2 to 200 ms.
    pub least: TickTime,
    /// Each connection adds its own share of this to `least`, so that senders
    /// that lost together do not retransmit together; `Tick` is one tick.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<TickTime>,
    /// Backoff of repeated timeouts of a segment.
    pub backoff: Backoff,
}

/// Backoff of the timeout when a retransmission is not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Backoff {
    /// The RTO doubles each time (RFC 6298, 5.5).
    #[default]
    Exponential,
    /// While a connection has less than four segments in flight, six times it stays as
    /// it is, and doubles only then (`TCP_THIN_LINEAR_TIMEOUTS`,
    /// Documentation/networking/tcp-thin.rst).
    Linear,
}

/// The ACKs that this side sends. Asks for one of the two at least.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ack {
    /// How long an ACK is delayed at most; `Tick` is two ticks, the least the
    /// kernel takes. 2 to 200 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<TickTime>,
    /// An ACK for each so many segments, 1 to 64: 1 is each segment at once, which needs a
    /// wrapped algorithm; 2 is the kernel's own (RFC 5681, 4.2); more hold ACKs back
    /// (ligon-1999, Table 2, `-m`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u8>,
}

/// Windows. Asks for one of the two at least.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Segments sent before the first ACK, 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<u16>,
    /// And wherever slow start begins again: after idle, and after a timeout (ligon-1999,
    /// Table 2, `-t`). Only with `initial`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// A window that never changes, 1 to 65535 segments (ligon-1999, Table 2, `beo_slow`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<u16>,
}

/// Options of each socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Socket {
    /// `TCP_NODELAY` (Nagle: RFC 896).
    pub nodelay: bool,
}

/// TCP options that new connections go without (ligon-1999, Table 2, `-o`). Asks for one of
/// the three at least.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Options {
    /// Where they are taken out of SYNs: a name of 1 to 15 bytes.
    pub interface: String,
    /// Timestamps (RFC 7323, 3): `false` takes them out.
    #[serde(skip_serializing_if = "Clone::clone")]
    pub timestamps: bool,
    /// Window scaling (RFC 7323, 2).
    #[serde(skip_serializing_if = "Clone::clone")]
    pub window_scaling: bool,
    /// Selective acknowledgements (RFC 2018).
    #[serde(skip_serializing_if = "Clone::clone")]
    pub sack: bool,
}

impl Options {
    /// PL_NO_* of the kernel side.
    pub fn without(&self) -> u8 {
        let bits = [
            (self.timestamps, PL_NO_TIMESTAMPS),
            (self.window_scaling, PL_NO_SCALING),
            (self.sack, PL_NO_SACK),
        ];
        let taken = bits.into_iter().filter(|(kept, _)| !kept);
        taken.fold(0, |all, (_, bit)| all | bit as u8)
    }
}

/// The comparison that `paceline report` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Share of bursts, at random, that no law touches: 1 % to 50 %, whole percentages.
    pub held_out: Share,
}

/// Connections of the job to one destination, side by side (`bpf/control/even.h`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Streams {
    /// They share one window, each an equal part of it.
    pub even: bool,
}

/// Spacing of packets (kamezawa-2004, 4). Asks for one of the two at least.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spacing {
    /// Slow start spreads a window over a round trip, at the next window's rate.
    pub clustered: bool,
    /// Packets are further apart than the interface has them.
    #[serde(flatten)]
    pub gap: Option<Gap>,
}

/// A gap between packets, which is a rate: line rate * MTU / (MTU + gap).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The interface's, framing included, 1 Mbit/s to 1000 Gbit/s.
    pub line_rate: Rate,
    /// In addition to the interface's own gap, 8 to 1023 bytes.
    pub gap: Size,
}

/// A time of the policy that is less than this kernel's tick allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The key in the policy.
    pub key: &'static str,
    /// The policy's time.
    pub asked: Time,
    /// The time in use instead: two ticks.
    pub used: Time,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} = \"{}\" is less than two ticks of this kernel, so \"{}\" applies",
            self.key, self.asked, self.used
        )
    }
}

/// The ABI's text arrays hold 31 bytes and a NUL.
pub(crate) const LONGEST_NAME: usize = paceline_abi::PL_NAME_LEN as usize - 1;

/// `ack.every` that is a quick ACK for each segment.
pub(crate) const QUICK: u8 = 1;
/// `ack.every` that is what the kernel does anyway.
const KERNELS_OWN: u8 = 2;

/// `TCP_BPF_RTO_MIN` and `TCP_BPF_DELACK_MAX` refuse more than this.
pub(crate) const MOST_TIMER: Time = Time::from_millis(200);

impl Policy {
    /// Whether its connections get Paceline's wrapper of the base algorithm, rather than
    /// the kernel's own.
    pub fn wraps(&self) -> bool {
        let laws = self.startup.is_some() || self.spacing.is_some() || self.streams.is_some();
        let needed = laws || self.is_tuned();
        self.base != Base::Keep && needed
    }

    /// Whether it asks the congestion control for more than the laws: quick ACKs, a fixed
    /// window, or the initial window again.
    fn is_tuned(&self) -> bool {
        let window = self.window.as_ref();
        self.ack_every() == Some(QUICK)
            || window.is_some_and(|window| window.again || window.fixed.is_some())
    }

    fn ack_every(&self) -> Option<u8> {
        self.ack.as_ref().and_then(|ack| ack.every)
    }

    /// Whether ACKs are held back, by programs that its jobs' cgroups carry for that alone.
    pub fn holds_acks(&self) -> bool {
        self.ack_every().is_some_and(|every| every > KERNELS_OWN)
    }

    /// Checks a policy whose fields were set by a program.
    ///
    /// # Errors
    /// As [`Policy::parse`]; positions refer to [`Policy::to_toml`].
    pub fn checked(self) -> Result<Self, PolicyError> {
        Self::parse(&self.to_toml(), &self.name)
    }

    /// The policy as TOML with all defaults written out; [`Policy::parse`]
    /// gives the same policy again.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a policy is strings and integers in tables")
    }

    /// The policy for a kernel whose tick is `tick_us` microseconds (1,000,000
    /// / CONFIG_HZ, rounded down).
    ///
    /// `"tick"` becomes two ticks for `rto.least` and `ack.delay`, the least
    /// the kernel accepts (TCP_TIMEOUT_MIN), and one tick for `rto.jitter`.
    /// Given times under two ticks are raised to that; [`Policy::raised`] names
    /// them.
    pub fn to_abi(&self, tick_us: u32) -> pl_policy {
        let two_ticks = tick_us.saturating_mul(2);
        let bound = |bound: &TickTime| match bound {
            TickTime::Tick => two_ticks,
            TickTime::Time(time) => saturating_u32(time.micros()).max(two_ticks),
        };
        let mut abi = pl_policy {
            base: match self.base {
                Base::Keep => pl_base::PL_BASE_KEEP,
                Base::Cubic => pl_base::PL_BASE_CUBIC,
                Base::Reno => pl_base::PL_BASE_RENO,
                Base::Bbr => pl_base::PL_BASE_BBR,
            } as u8,
            target: pl_target::PL_TARGET_OFF as u8,
            ..pl_policy::default()
        };
        if let Some(startup) = &self.startup {
            abi.target = match startup.target {
                Target::Ssthresh => pl_target::PL_TARGET_SSTHRESH,
                Target::DeliveryRate => pl_target::PL_TARGET_DELIVERY_RATE,
            } as u8;
            abi.initial_rate_bps = startup.initial_rate.map_or(0, Rate::bytes_per_second);
            abi.half_life_ms = startup.half_life.map_or(0, millis);
            abi.phases = startup.phases.into();
            if let Some(breaker) = &startup.breaker {
                abi.breaker_permille = saturating_u32(breaker.loss.permille());
                abi.breaker_starts = breaker.starts;
                abi.breaker_hold_ms = millis(breaker.hold);
            }
        }
        if let Some(rto) = self.rto.as_ref().and_then(|rto| rto.minimum.as_ref()) {
            abi.rto_min_us = bound(&rto.least);
            let jitter = match rto.jitter {
                None => 0,
                Some(TickTime::Tick) => tick_us,
                Some(TickTime::Time(time)) => saturating_u32(time.micros()),
            };
            // The kernel takes the sum, and refuses more than 200 ms.
            let room = saturating_u32(MOST_TIMER.micros()).saturating_sub(abi.rto_min_us);
            abi.rto_jitter_us = jitter.min(room);
            abi.tick_us = tick_us;
            abi.rto_linear = u16::from(rto.backoff == Backoff::Linear);
        }
        abi.rto_max_ms = self.rto.as_ref().and_then(|rto| rto.most).map_or(0, millis);
        if let Some(ack) = &self.ack {
            abi.delayed_ack_us = ack.delay.as_ref().map_or(0, bound);
            abi.ack_every = ack.every.filter(|every| *every != KERNELS_OWN).unwrap_or(0);
        }
        if let Some(window) = &self.window {
            abi.initial_window_segs = window.initial.unwrap_or(0);
            abi.window_again = window.again.into();
            abi.window_fixed_segs = window.fixed.unwrap_or(0);
        }
        abi.nodelay = self
            .socket
            .as_ref()
            .is_some_and(|socket| socket.nodelay)
            .into();
        abi.without = self.options.as_ref().map_or(0, Options::without);
        abi.tuned = self.is_tuned().into();
        abi.even = self
            .streams
            .as_ref()
            .is_some_and(|streams| streams.even)
            .into();
        if let Some(spacing) = &self.spacing {
            abi.clustered = spacing.clustered.into();
            if let Some(gap) = &spacing.gap {
                abi.line_rate_bps = gap.line_rate.bytes_per_second();
                abi.gap_bytes = gap.gap.bytes().try_into().unwrap_or(u16::MAX);
            }
        }
        if let Some(report) = &self.report {
            abi.held_out_percent = (report.held_out.permille() / 10)
                .try_into()
                .unwrap_or_default();
        }
        abi.wrap = self.wraps().into();
        abi
    }

    /// The times that [`Policy::to_abi`] raises for this tick.
    pub fn raised(&self, tick_us: u32) -> Vec<Raised> {
        let used = Time::from_micros(u64::from(tick_us) * 2);
        let minimum = self.rto.as_ref().and_then(|rto| rto.minimum.as_ref());
        let least = minimum.map(|minimum| ("rto.least", minimum.least));
        let delay = self.ack.as_ref().and_then(|ack| ack.delay);
        let delay = delay.map(|delay| ("ack.delay", delay));
        [least, delay]
            .into_iter()
            .flatten()
            .filter_map(|(key, bound)| match bound {
                TickTime::Time(asked) if asked < used => Some(Raised { key, asked, used }),
                _ => None,
            })
            .collect()
    }
}

fn millis(time: Time) -> u32 {
    saturating_u32(time.micros() / 1_000)
}

fn saturating_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
