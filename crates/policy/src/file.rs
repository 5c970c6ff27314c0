// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of a policy file. Editors show their comments.

use paceline_input::units::{Rate, Share, Size, Time};
use paceline_input::Format;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

use crate::policy::{Backoff, Base, Breaker, TickTime, LONGEST_NAME, MOST_TIMER};

const LONGEST_DESCRIPTION: usize = 200;
/// PL_RATE_MIN_BPS of bpf/control/path.h: a slower start is left to the base.
const LEAST_RATE: Rate = Rate::from_bits_per_second(100_000);
const MOST_RATE: Rate = Rate::from_bits_per_second(1_000_000_000_000);
/// An Ethernet that is slower has no gap to speak of.
const LEAST_LINE: Rate = Rate::from_bits_per_second(1_000_000);
/// Of the paper's interface, kamezawa-2004, 4.1.
const LEAST_GAP: Size = Size::from_bytes(8);
const MOST_GAP: Size = Size::from_bytes(1023);
const DAY: Time = Time::from_secs(24 * 3600);
const LEAST_HALF_LIFE: Time = Time::from_millis(100);
const LEAST_HOLD: Time = Time::from_millis(10);
/// Two ticks of the finest kernel (HZ = 1000).
const LEAST_TIMER: Time = Time::from_millis(2);
/// Of TCP_RTO_MAX_MS: 1 s, and TCP_RTO_MAX (include/net/tcp.h).
const LEAST_MOST: Time = Time::from_secs(1);
const MOST_MOST: Time = Time::from_secs(120);
const LEAST_JITTER: Time = Time::from_micros(1);
const LEAST_HELD_OUT: Share = Share::from_permille(10);
/// PL_HELD_OUT_MOST: with more the job would hardly have its policy.
const MOST_HELD_OUT: Share = Share::from_permille(10 * paceline_abi::PL_HELD_OUT_MOST as u64);

/// IFNAMSIZ of include/uapi/linux/if.h, less the NUL.
pub(crate) const LONGEST_INTERFACE: usize = 15;

/// The formats of a policy's strings, for readers of files that contain a policy.
pub const FORMATS: [Format<'static>; 2] = [("policy-name", &name), ("line", &line)];

fn name(text: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !text.is_empty() && text.len() <= LONGEST_NAME && text.chars().all(allowed) {
        return Ok(());
    }
    let text = paceline_input::quoted(text);
    Err(format!(
        "{text:?} is not a name: write 1 to {LONGEST_NAME} characters of a-z A-Z 0-9 . _ -"
    ))
}

fn line(text: &str) -> Result<(), String> {
    if text.chars().any(char::is_control) || text.chars().count() > LONGEST_DESCRIPTION {
        return Err(format!(
            "must be one line of at most {LONGEST_DESCRIPTION} characters, without control characters"
        ));
    }
    Ok(())
}

/// The changes that Paceline makes to the TCP connections of a job.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Paceline policy")]
pub(crate) struct File {
    /// Shown by `status`: 1 to 31 of `a-z A-Z 0-9 . _ -`.
    #[schemars(extend("format" = "policy-name", "examples" = ["my-policy"]))]
    #[schemars(extend("pattern" = format!("^[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}$")))]
    pub name: String,
    /// One line for people.
    #[serde(default)]
    #[schemars(extend("format" = "line", "maxLength" = LONGEST_DESCRIPTION))]
    pub description: String,
    /// The kernel's congestion control that carries the connection between bursts.
    #[serde(default)]
    pub base: Base,
    /// Start of a burst after idle; absent: as the base algorithm does.
    pub startup: Option<Startup>,
    /// The retransmission timeout.
    pub rto: Option<Rto>,
    /// The ACKs that this side sends.
    pub ack: Option<Ack>,
    /// Windows of a new connection.
    pub window: Option<Window>,
    /// Parallel connections of the job to one destination.
    pub streams: Option<Streams>,
    /// Spacing of packets.
    pub spacing: Option<Spacing>,
    /// Options of each socket that a program could set itself.
    pub socket: Option<Socket>,
    /// TCP options that are removed from new connections.
    pub options: Option<Options>,
    /// The comparison that `paceline report` shows.
    pub report: Option<Report>,
}

/// The start-up law.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Startup {
    /// Source of the rate of a start; absent: no start-up law.
    pub target: Option<Target>,
    /// The rate per destination while the path is not yet known; absent: slow start.
    #[schemars(extend("x-range" = [LEAST_RATE, MOST_RATE]))]
    pub initial_rate: Option<Rate>,
    /// Half-life of the remembered state of a path; absent: 60s.
    #[schemars(extend("x-range" = [LEAST_HALF_LIFE, DAY]))]
    pub half_life: Option<Time>,
    /// Keep the state of a path per phase class; absent: true.
    pub phases: Option<bool>,
    /// Limits beyond which the base algorithm runs alone.
    pub breaker: Option<BreakerKey>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Target {
    /// No start-up law.
    Off,
    /// ssthresh * MSS / RTT, until the first ACK.
    Ssthresh,
    /// The delivery rate of the path.
    DeliveryRate,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum BreakerKey {
    Off(Off),
    When(BreakerTable),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Off {
    Off,
}

/// Limits beyond which the base algorithm runs alone, per connection.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BreakerTable {
    /// Largest share of lost segments of a good start.
    #[schemars(extend("x-range" = [Share::from_permille(1), Share::from_permille(1000)]))]
    pub loss: Share,
    /// Bad starts in a row that open the breaker.
    #[schemars(range(min = 1, max = 1000))]
    pub starts: u32,
    /// How long the breaker stays open.
    #[schemars(extend("x-range" = [LEAST_HOLD, DAY]))]
    pub hold: Time,
}

impl Default for BreakerTable {
    fn default() -> Self {
        let Breaker { loss, starts, hold } = Breaker::default();
        BreakerTable { loss, starts, hold }
    }
}

/// The retransmission timeout of the sending side.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rto {
    /// Minimum RTO, instead of 200ms; "tick" is two ticks of the kernel.
    #[schemars(extend("x-range" = [LEAST_TIMER, MOST_TIMER]))]
    pub least: Option<TickTime>,
    /// Each connection adds its own share of this to the minimum RTO; "tick" is one tick.
    #[schemars(extend("x-range" = [LEAST_JITTER, MOST_TIMER]))]
    pub jitter: Option<TickTime>,
    /// Backoff of repeated timeouts of a segment; absent: exponential.
    pub backoff: Option<Backoff>,
    /// Maximum RTO, instead of 120s; needs Linux 6.15.
    #[schemars(extend("x-range" = [LEAST_MOST, MOST_MOST]))]
    pub most: Option<Time>,
}

/// The ACKs that this side sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ack {
    /// Maximum delay of an ACK; "tick" is two ticks of the kernel.
    #[schemars(extend("x-range" = [LEAST_TIMER, MOST_TIMER]))]
    pub delay: Option<TickTime>,
    /// Segments per ACK: 1 is each segment at once, 2 is the kernel's default.
    #[schemars(range(min = 1, max = 64), extend("examples" = [1]))]
    pub every: Option<u8>,
}

/// Windows of a connection.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Window {
    /// Segments that are sent before the first ACK.
    #[schemars(range(min = 1, max = 1000), extend("examples" = [10]))]
    pub initial: Option<u16>,
    /// Use the initial window wherever slow start restarts, too; absent: false.
    pub again: Option<bool>,
    /// A fixed window, segments, that losses do not reduce: for reserved circuits.
    #[schemars(range(min = 1, max = 65535), extend("examples" = [30]))]
    pub fixed: Option<u16>,
}

/// Options of each socket that a program could set itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Socket {
    /// TCP_NODELAY: small segments are sent at once, without Nagle's algorithm; absent: the
    /// program's setting.
    pub nodelay: Option<bool>,
}

/// TCP options that new connections go without; one of them at least.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// The interface at which the options are removed from each SYN, in the network namespace of
    /// the command that starts the job.
    #[schemars(extend("examples" = ["eth0"], "maxLength" = LONGEST_INTERFACE))]
    pub interface: Option<String>,
    /// false: no timestamps (RFC 7323); absent: the host's setting.
    pub timestamps: Option<bool>,
    /// false: no window scaling (RFC 7323); absent: the host's setting.
    pub window_scaling: Option<bool>,
    /// false: no selective acknowledgements (RFC 2018); absent: the host's setting.
    pub sack: Option<bool>,
}

/// The comparison that `paceline report` shows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Report {
    /// Share of bursts, at random, that the base algorithm sends alone; a whole percentage.
    /// Absent: none.
    #[schemars(extend("x-range" = [LEAST_HELD_OUT, MOST_HELD_OUT], "examples" = ["5%"]))]
    pub held_out: Option<Share>,
}

/// Parallel connections of the job to one destination.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Streams {
    /// The connections share one window in equal parts; absent: false.
    pub even: Option<bool>,
}

/// Spacing of packets.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spacing {
    /// Slow start spreads a window over a round trip; absent: false.
    pub clustered: Option<bool>,
    /// The interface's rate, framing included.
    #[schemars(extend("x-range" = [LEAST_LINE, MOST_RATE]))]
    pub line_rate: Option<Rate>,
    /// Gap between packets, in addition to the interface's own.
    #[schemars(extend("x-range" = [LEAST_GAP, MOST_GAP]))]
    pub gap: Option<Size>,
}

/// The JSON schema of a policy file.
pub fn schema() -> Value {
    paceline_input::schema::<File>()
}

/// The schema of a policy that stands inside of another file, which gives it its name.
pub fn inline_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<File>();
    schema.remove("required");
    schema.remove("title");
    schema
}
