// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configuration of a sender and its receiver, for all flows of a kind.

use paceline_abi::pl_policy;
use paceline_policy::Policy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::{MS, US};
use crate::receiver::Receiver;

/// The kernel's tick, for policies that count in it, microseconds: HZ = 250, as Debian has it.
const TICK_US: u32 = 4_000;

/// The algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// No transport: each packet is sent as the application writes it.
    Udp,
    /// Fast retransmit and recovery, which ends with the first ACK of new data (RFC 2581).
    Reno,
    /// Recovery continues until all losses are repaired (RFC 6582).
    Newreno,
    /// Reno's window, repairs by selective acknowledgement (RFC 6675).
    Sack,
    /// Brakmo and Peterson 1995.
    Vegas,
    /// Ha, Rhee and Xu 2008, as Linux has it, HyStart included.
    Cubic,
    /// Xu, Harfoush and Rhee 2004, as Linux has it.
    Bic,
}

/// Whose habits, where TCPs differ beside their algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stack {
    /// The simulator ns-2 of 2000.
    #[serde(rename = "ns-2")]
    Ns2,
    /// The simulator ns-3, release 3.37, with selective acknowledgement and limited transmit
    /// off.
    #[serde(rename = "ns-3")]
    Ns3,
    /// What the RFCs recommend.
    Rfc,
    /// Linux.
    Linux,
}

/// The quantity that a loss halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Halves {
    /// The window (RFC 2001).
    Window,
    /// Data that was sent and is not acknowledged (RFC 5681, FlightSize), in whole segments.
    Flight,
    /// Of that, the data still in the network by the count of duplicate ACKs, in bytes.
    Pipe,
}

/// Doublings after which the timeout does not double again: 64 times, as BSD and ns-2.
const MOST_BACKOFF: u32 = 64;
/// Without bounds it goes on as long as Linux sends again (tcp_retries2: 15 times).
pub(crate) const UNBOUNDED_BACKOFF: u32 = 1 << 15;

/// Estimator of SRTT and mdev (ligon-1999, 3.0.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// Jacobson's moving averages (its equations 4 and 5, RFC 6298).
    Smoothed,
    /// SRTT is a constant, nanoseconds, and mdev 0.
    Constant(u64),
    /// SRTT is the last round trip, shifted left by so many bits, and mdev 0.
    Shifted(u32),
}

/// How long the receiver delays an ACK: the paper's ATO (ligon-1999, 2.1.1 and 3.0.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ato {
    /// Always [`SenderConfig::ack_delay_ns`].
    Fixed,
    /// Half of the last one and the time between the last two arrivals (its equation 1), in
    /// ticks, and that at most; the first segment is acknowledged at once.
    Estimated,
}

/// Retransmission timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtoConfig {
    /// Its estimator.
    pub estimator: Estimator,
    /// It is always this, without backoff, nanoseconds; 0: it is calculated.
    pub constant_ns: u64,
    /// Backoff multiplies it by so much at most.
    pub most_backoff: u32,
    /// Before the first measurement, nanoseconds.
    pub initial_ns: u64,
    /// Never less.
    pub floor_ns: u64,
    /// Never more.
    pub bound_ns: u64,
    /// Round trips are measured in whole ticks of so many nanoseconds; 0: exactly.
    pub tick_ns: u64,
    /// The floor is that of the variance's part, and comes on top of the round trip (Linux).
    pub floor_on_variance: bool,
}

/// Configuration of a kind of sender.
#[derive(Debug, Clone)]
pub struct SenderConfig {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Bytes of a packet with all its headers.
    pub packet_bytes: u32,
    /// Of these so many are no payload: the laws count payload.
    pub header_bytes: u32,
    /// Bytes of an ACK.
    pub ack_bytes: u32,
    /// Most that the receiver lets be in flight, segments.
    pub window: u32,
    /// Segments that a connection, or one that was idle, begins with.
    pub initial_window: u32,
    /// So does one that slow-starts after a timeout; else with one segment (RFC 5681).
    pub initial_window_again: bool,
    /// The window is always this, segments; 0: the algorithm's.
    pub fixed_window: u32,
    /// Segments.
    pub initial_ssthresh: f64,
    /// Timeout.
    pub rto: RtoConfig,
    /// A connection is set up first: its data waits for a round trip of small packets, of
    /// which none is lost.
    pub handshake: bool,
    /// Each ACK measures a round trip (RFC 7323); else one segment at a time does (Karn).
    pub timestamps: bool,
    /// Segments beyond the window may leave for each duplicate ACK: ns-2 forgets the
    /// receiver's window there.
    pub inflates_beyond_window: bool,
    /// The window grows only if it was used (RFC 7661).
    pub validates: bool,
    /// The quantity that a loss halves.
    pub halves: Halves,
    /// Segments by which recovery begins inflated: three, for the duplicate ACKs (RFC 5681,
    /// 3.2, step 3), or fewer.
    pub inflation: u32,
    /// NewReno ends recovery with no more than a segment beyond the inflight (RFC 6582,
    /// 3.2, step 3, option 1); else with ssthresh (option 2).
    pub exits_to_flight: bool,
    /// A window grows by acknowledged segments, not by ACKs.
    pub counts_segments: bool,
    /// New segments for the first two duplicate ACKs (RFC 3042).
    pub limited_transmit: bool,
    /// Linux's recovery: proportional rate reduction, tail-loss probe, RACK's timer, and
    /// a restart after idle.
    pub linux: bool,
    /// Vegas: segments that it wants to have queued at least, at most, and at which it
    /// ends its slow start.
    pub vegas: [f64; 3],
    /// The receiver acknowledges every so many segments,
    pub ack_every: u32,
    /// or after so long.
    pub ack_delay_ns: u64,
    /// Whether that is the delay, or its maximum.
    pub ato: Ato,
    /// The kernel's clock ticks, nanoseconds: timers run out with one. 0: at any time.
    pub timer_tick_ns: u64,
    /// Paceline's laws.
    pub policy: Option<pl_policy>,
}

impl SenderConfig {
    /// An algorithm with the habits of a stack.
    pub fn of(algorithm: Algorithm, stack: Stack) -> Self {
        let (ns2, linux) = (stack == Stack::Ns2, stack == Stack::Linux);
        let ns3 = stack == Stack::Ns3;
        SenderConfig {
            algorithm,
            packet_bytes: 1500,
            // IP and TCP with timestamps.
            header_bytes: 52,
            ack_bytes: 40,
            window: u32::MAX / 2,
            initial_window: match stack {
                Stack::Ns2 | Stack::Ns3 => 1,
                Stack::Rfc => 4,
                Stack::Linux => 10,
            },
            initial_window_again: false,
            fixed_window: 0,
            initial_ssthresh: f64::from(u32::MAX / 2),
            rto: RtoConfig {
                estimator: Estimator::Smoothed,
                constant_ns: 0,
                most_backoff: MOST_BACKOFF,
                initial_ns: match stack {
                    Stack::Ns2 => 3_000 * MS,
                    _ => 1_000 * MS,
                },
                floor_ns: match stack {
                    // Two ticks of the coarse clock.
                    Stack::Ns2 | Stack::Linux => 200 * MS,
                    Stack::Rfc | Stack::Ns3 => 1_000 * MS,
                },
                bound_ns: match stack {
                    Stack::Ns2 => 64_000 * MS,
                    Stack::Rfc | Stack::Ns3 => 60_000 * MS,
                    Stack::Linux => 120_000 * MS,
                },
                tick_ns: if ns2 { 100 * MS } else { 0 },
                floor_on_variance: linux,
            },
            handshake: ns3,
            timestamps: !ns2,
            inflates_beyond_window: ns2,
            validates: !ns2 && !ns3,
            halves: match stack {
                Stack::Rfc => Halves::Flight,
                Stack::Ns3 => Halves::Pipe,
                Stack::Ns2 | Stack::Linux => Halves::Window,
            },
            inflation: if ns3 { 1 } else { 3 },
            exits_to_flight: !ns3,
            counts_segments: linux,
            limited_transmit: !ns2 && !ns3,
            linux,
            vegas: [1.0, 3.0, 1.0],
            ack_every: if linux { 2 } else { 1 },
            ack_delay_ns: if linux { 40 * MS } else { 100 * MS },
            ato: Ato::Fixed,
            timer_tick_ns: if linux { u64::from(TICK_US) * US } else { 0 },
            policy: None,
        }
    }

    /// When a timer runs out that is set at `now` for `wait_ns`: where the clock ticks, that
    /// time is rounded up to ticks, of which the present one counts (msecs_to_jiffies()).
    pub fn runs_out_ns(&self, now: u64, wait_ns: u64) -> u64 {
        match self.timer_tick_ns {
            0 => now + wait_ns,
            tick => ((now / tick + wait_ns.div_ceil(tick)) * tick).max(now),
        }
    }

    /// For a segment that arrives now: an ACK for every so many, or after so many nanoseconds.
    #[inline]
    pub(crate) fn acknowledges(&self, receiver: &mut Receiver, now: u64) -> (u32, u64) {
        if self.ato == Ato::Fixed {
            return (self.ack_every, self.ack_delay_ns);
        }
        match receiver.estimate_ato(now, self.timer_tick_ns, self.ack_delay_ns) {
            Some(ato_ns) => (self.ack_every, ato_ns),
            None => (1, 0),
        }
    }

    /// Segments that slow start begins with again after a timeout.
    pub(super) fn restart_window(&self) -> f64 {
        match self.initial_window_again {
            true => f64::from(self.initial_window),
            false => 1.0,
        }
    }

    /// Applies a policy: Paceline's laws and its other keys. For senders with Linux's habits.
    pub fn follow(&mut self, policy: &Policy) {
        let abi = policy.to_abi(TICK_US);
        if abi.rto_min_us != 0 {
            self.rto.floor_ns = u64::from(abi.rto_min_us) * US;
        }
        if abi.delayed_ack_us != 0 {
            self.ack_delay_ns = u64::from(abi.delayed_ack_us) * US;
        }
        if abi.initial_window_segs != 0 {
            self.initial_window = u32::from(abi.initial_window_segs);
        }
        self.policy = Some(abi);
    }

    /// Whether Paceline's laws apply to it.
    pub fn takes_laws(&self) -> bool {
        self.linux && !matches!(self.algorithm, Algorithm::Vegas | Algorithm::Udp)
    }

    /// Whether it has a scoreboard (SACK).
    pub fn selective(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::Sack | Algorithm::Cubic | Algorithm::Bic
        ) || self.linux
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_rounds_up_to_ticks_of_which_the_present_one_counts() {
        let linux = SenderConfig::of(Algorithm::Cubic, Stack::Linux);
        let of = |now: u64, wait: u64| linux.runs_out_ns(now * MS, wait * MS) / MS;
        assert_eq!([of(0, 8), of(1, 8), of(7, 8)], [8, 8, 12]);
        assert_eq!([of(1, 9), of(4, 9)], [12, 16]);
        assert_eq!(of(5, 0), 5, "not in the past");
        let exact = SenderConfig::of(Algorithm::Newreno, Stack::Rfc);
        assert_eq!(exact.runs_out_ns(1, 8), 9);
    }
}
