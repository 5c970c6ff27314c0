// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the limit of a connection by several looks at it.
//!
//! The kernel counts how long a connection had something to send, and how much of that time the
//! peer's window or the send buffer held it back. The rest of the time is the program's, which
//! had nothing to send, or the network's. The looks distinguish these.

use std::time::Duration;

use paceline_agent::status::{milliseconds, rate};
use serde::Serialize;

use crate::info::Info;

/// A connection sends for less than this share of the time: it is idle.
const IDLE: f64 = 0.02;
/// Share of the looks that must agree.
const MOST_LOOKS: f64 = 0.6;
/// Retransmitted share from which loss, not the link's rate, is named as the limit: CUBIC needs
/// far less than that to fill a link.
const LOSSY: f64 = 0.01;
/// A peer delays ACKs by 40 ms and more (TCP_DELACK_MIN of Linux), clock ticks aside.
const DELAYED_ACK_US: u32 = 35_000;

/// The limit of a connection; those with a remedy come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The window that the receiver announces.
    ReceiveWindow,
    /// The send buffer of this host.
    SendBuffer,
    /// Small segments wait for an ACK (RFC 896).
    Nagle,
    /// Retransmissions and timeouts.
    Loss,
    /// The program of this host reads too late.
    Reader,
    /// A pace that the program has set (SO_MAX_PACING_RATE).
    Pacing,
    /// The congestion window: the rate of the path.
    Network,
    /// The program writes no more.
    Application,
    /// It only receives: the sender's host knows what limits it.
    Sender,
    /// Nothing was sent nor received.
    Idle,
}

impl Limit {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReceiveWindow => "the receiver's window",
            Self::SendBuffer => "the send buffer",
            Self::Nagle => "small writes wait for ACKs (Nagle)",
            Self::Loss => "losses",
            Self::Reader => "this program reads too late",
            Self::Pacing => "a pace that the program asked for",
            Self::Network => "the network",
            Self::Application => "the application",
            Self::Sender => "decided by the sender",
            Self::Idle => "idle",
        }
    }
}

/// One look at a connection.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Since the first look at the job.
    pub at: Duration,
    /// Arrived and not read yet, bytes.
    pub unread: u32,
    /// Memory of written data that is not acknowledged, bytes.
    pub queued: u32,
    /// Most that this may be: the send buffer, bytes.
    pub send_buffer: u32,
    /// The kernel's other values.
    pub info: Info,
}

/// Shares of the time of looking, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shares {
    /// With something to send or in flight.
    pub busy: f64,
    /// Of all time, held back by the receiver's window.
    pub receive_window: f64,
    /// Of all time, held back by the send buffer.
    pub send_buffer: f64,
}

/// The verdict on one connection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Its limit.
    pub limit: Limit,
    /// Shares of the time.
    pub shares: Shares,
    /// Payload acknowledged meanwhile, bits per second.
    pub sent_bits_per_s: u64,
    /// Payload received meanwhile, bits per second.
    pub received_bits_per_s: u64,
    /// Segments retransmitted meanwhile.
    pub retransmitted_segs: u32,
    /// Timeouts meanwhile, as far as this kernel counts them.
    pub timeouts: u16,
    /// The evidence, in words.
    pub evidence: String,
    /// The remedy; none where nothing is wrong here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The changes between the first look and the last one.
struct Span<'a> {
    looks: &'a [Look],
    last: &'a Info,
    seconds: f64,
    shares: Shares,
    sent: u64,
    received: u64,
    sent_segs: u32,
    retransmitted: u32,
    timeouts: u16,
}

/// Judges; none of fewer than two looks.
pub fn judge(looks: &[Look]) -> Option<Verdict> {
    let span = Span::of(looks)?;
    let limit = span.limit();
    Some(Verdict {
        limit,
        shares: span.shares,
        sent_bits_per_s: span.per_second(span.sent),
        received_bits_per_s: span.per_second(span.received),
        retransmitted_segs: span.retransmitted,
        timeouts: span.timeouts,
        evidence: span.evidence(limit),
        remedy: span.remedy(limit),
    })
}

impl<'a> Span<'a> {
    fn of(looks: &'a [Look]) -> Option<Self> {
        let (first, last) = (looks.first()?, looks.last()?);
        let time = last.at.saturating_sub(first.at);
        if time.is_zero() {
            return None;
        }
        let (was, is) = (&first.info, &last.info);
        let share =
            |was: u64, is: u64| (is.saturating_sub(was) as f64 / time.as_micros() as f64).min(1.0);
        Some(Self {
            looks,
            last: is,
            seconds: time.as_secs_f64(),
            shares: Shares {
                busy: share(was.busy_us, is.busy_us),
                receive_window: share(was.window_us, is.window_us),
                send_buffer: share(was.buffer_us, is.buffer_us),
            },
            sent: is.acked.saturating_sub(was.acked),
            received: is.received.saturating_sub(was.received),
            sent_segs: is.sent_segs.wrapping_sub(was.sent_segs),
            retransmitted: is.retransmitted.wrapping_sub(was.retransmitted),
            timeouts: is.timeouts.wrapping_sub(was.timeouts),
        })
    }

    fn per_second(&self, bytes: u64) -> u64 {
        (bytes as f64 * 8.0 / self.seconds) as u64
    }

    /// Whether most looks were so.
    fn mostly(&self, is: impl Fn(&Look) -> bool) -> bool {
        self.count(is) as f64 >= MOST_LOOKS * self.looks.len() as f64
    }

    fn count(&self, is: impl Fn(&Look) -> bool) -> usize {
        self.looks.iter().filter(|look| is(look)).count()
    }

    fn limit(&self) -> Limit {
        let shares = &self.shares;
        let is_silent = self.sent == 0 && self.sent_segs == 0;
        if is_silent && shares.busy < IDLE {
            return match self.received {
                _ if self.is_read_late() => Limit::Reader,
                0 => Limit::Idle,
                _ => Limit::Sender,
            };
        }
        let application = 1.0 - shares.busy;
        let network = shares.busy - shares.receive_window - shares.send_buffer;
        let most = application
            .max(network)
            .max(shares.receive_window)
            .max(shares.send_buffer);
        if most == shares.receive_window {
            return Limit::ReceiveWindow;
        }
        if most == shares.send_buffer {
            return Limit::SendBuffer;
        }
        if self.is_lossy() {
            return Limit::Loss;
        }
        if most == application {
            return Limit::Application;
        }
        // Not counted by the kernel: a pace, or the gaps between ACKs, in which a part of the
        // buffer waits though the window has room for all of it.
        if self.mostly(is_too_small) {
            return Limit::SendBuffer;
        }
        if self.mostly(waits_for_ack) {
            return Limit::Nagle;
        }
        if self.mostly(|look| look.info.unsent == 0 && look.info.unacked < look.info.cwnd) {
            return Limit::Application;
        }
        let pace = self.last.most_pacing_rate;
        let asked = pace != u64::MAX && pace != 0;
        if asked && self.sent as f64 >= 0.8 * pace as f64 * self.seconds {
            return Limit::Pacing;
        }
        Limit::Network
    }

    /// Whether more data waits for the reader than a wake-up explains.
    fn is_read_late(&self) -> bool {
        self.mostly(|look| look.unread > 2 * look.info.mss.max(1))
    }

    fn is_lossy(&self) -> bool {
        let backs_off = self.mostly(|look| look.info.backoff > 0 && look.info.probes == 0);
        self.timeouts > 0 || backs_off || self.lost_share() > LOSSY
    }

    fn lost_share(&self) -> f64 {
        f64::from(self.retransmitted) / f64::from(self.sent_segs.max(1))
    }

    fn evidence(&self, limit: Limit) -> String {
        let info = self.last;
        let looks = self.looks.len();
        let shares = &self.shares;
        match limit {
            Limit::ReceiveWindow => {
                let windows = self.looks.iter().map(|look| look.info.peer_window);
                let (least, most) = (windows.clone().min(), windows.max());
                let size = match (least, most) {
                    (_, None | Some(0)) => "it was closed in all looks".to_owned(),
                    (Some(least), Some(most)) if least == most => format!("{most} bytes"),
                    (least, Some(most)) => {
                        format!("{} to {most} bytes", least.unwrap_or(0))
                    }
                };
                format!(
                    "{} of the time the receiver's window held data back: {size}; RTT {}",
                    percent(shares.receive_window),
                    milliseconds(info.rtt_us.into()),
                )
            }
            Limit::SendBuffer => format!(
                "the send buffer was full in {} of {looks} looks, and for {} of the time all of it was in flight: {} bytes of memory, {} in flight; the window allows {} segments, RTT {}",
                self.count(is_full),
                percent(shares.send_buffer),
                self.looks.last().map_or(0, |look| look.send_buffer),
                info.inflight_bytes(),
                info.cwnd,
                milliseconds(info.rtt_us.into()),
            ),
            Limit::Nagle => format!(
                "in {} of {looks} looks less than a segment of {} bytes waited while {} segments were in flight{}",
                self.count(waits_for_ack),
                info.mss,
                info.unacked,
                match self.delays_acks() {
                    true => format!(
                        "; RTT {}, at least {}: the other end delays its ACKs",
                        milliseconds(info.rtt_us.into()),
                        milliseconds(info.least_rtt_us.into())
                    ),
                    false => String::new(),
                }
            ),
            Limit::Loss => format!(
                "{} of {} segments retransmitted ({:.1} %), {} timeouts; RTT {}, at least {}",
                self.retransmitted,
                self.sent_segs,
                self.lost_share() * 100.0,
                self.timeouts,
                milliseconds(info.rtt_us.into()),
                least(info),
            ),
            Limit::Reader => format!(
                "{} bytes have arrived and wait for this host's program to read them",
                self.looks.last().map_or(0, |look| look.unread)
            ),
            Limit::Pacing => format!(
                "the program set SO_MAX_PACING_RATE to {}",
                rate(info.most_pacing_rate.saturating_mul(8))
            ),
            Limit::Network => format!(
                "data waited to be sent, and nothing but the congestion window held it back: {} segments; RTT {}, at least {}; {} of {} segments retransmitted",
                info.cwnd,
                milliseconds(info.rtt_us.into()),
                least(info),
                self.retransmitted,
                self.sent_segs,
            ),
            Limit::Application if shares.busy < 0.5 => format!(
                "it had something to send in {} of the time",
                percent(shares.busy)
            ),
            Limit::Application => format!(
                "nothing waited to be sent in {} of {looks} looks, and the window was not full: {} of {} segments in flight",
                self.count(|look| look.info.unsent == 0),
                info.unacked,
                info.cwnd
            ),
            Limit::Sender => "it sends nothing and reads what arrives".to_owned(),
            Limit::Idle => format!(
                "nothing was sent or received; the last data left {} ago",
                milliseconds(u64::from(info.last_sent_ms) * 1000)
            ),
        }
    }

    fn delays_acks(&self) -> bool {
        let info = self.last;
        info.rtt_us.saturating_sub(info.least_rtt_us) > DELAYED_ACK_US
    }

    fn remedy(&self, limit: Limit) -> Option<String> {
        let text = match limit {
            Limit::ReceiveWindow if self.is_closed() => "the program at the other end does not read: look there".to_owned(),
            Limit::ReceiveWindow => format!(
                "at the receiver: a larger third value of net.ipv4.tcp_rmem (twice rate times RTT: paceline doctor --rate --rtt), and no SO_RCVBUF in its program; {} of RTT and this window allow {} at most",
                milliseconds(self.last.rtt_us.into()),
                rate(per_round(self.window(), self.last.rtt_us)),
            ),
            Limit::SendBuffer => "at this host: no SO_SNDBUF in the program, or a larger one (net.core.wmem_max), and a larger third value of net.ipv4.tcp_wmem".to_owned(),
            Limit::Nagle if self.delays_acks() => "nodelay = true in the policy, or TCP_NODELAY in the program; at the other end ack.delay".to_owned(),
            Limit::Nagle => "nodelay = true in the policy, or TCP_NODELAY in the program".to_owned(),
            Limit::Loss => "look for a shallow or shared queue on the path; rto.least in the policy makes timeouts short, a start-up law paces bursts (paceline policy list)".to_owned(),
            Limit::Reader => "this program reads late, so its peer must wait: look at what it does meanwhile".to_owned(),
            Limit::Pacing => "take SO_MAX_PACING_RATE out of the program, or raise it".to_owned(),
            Limit::Network | Limit::Application | Limit::Sender | Limit::Idle => return None,
        };
        Some(text)
    }

    /// The largest window seen, bytes.
    fn window(&self) -> u64 {
        let windows = self.looks.iter().map(|look| look.info.peer_window);
        windows.max().unwrap_or(0).into()
    }

    /// Whether the receiver's window had mostly no room for a segment beyond what is in flight,
    /// and nothing was in flight: its buffer is full of data that its program does not read.
    fn is_closed(&self) -> bool {
        self.mostly(|look| look.info.peer_window < look.info.mss)
    }
}

/// The program has to wait until it may write: the kernel wakes it when a third is free
/// (sk_stream_min_wspace).
fn is_full(look: &Look) -> bool {
    look.send_buffer > 0 && u64::from(look.queued) * 3 > u64::from(look.send_buffer) * 2
}

/// The send buffer is full, and all that is in it would fit into the congestion window.
fn is_too_small(look: &Look) -> bool {
    let info = &look.info;
    let window = u64::from(info.cwnd) * u64::from(info.mss);
    is_full(look) && info.inflight_bytes() + u64::from(info.unsent) < window
}

/// Less than a segment is unsent though the window has room: it waits for an ACK.
fn waits_for_ack(look: &Look) -> bool {
    let info = &look.info;
    info.unsent > 0 && info.unsent < info.mss && info.unacked > 0 && info.unacked < info.cwnd
}

fn least(info: &Info) -> String {
    match info.least_rtt_us {
        u32::MAX => "not known".to_owned(),
        least => milliseconds(least.into()),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A window per round trip, bits per second.
fn per_round(window: u64, rtt_us: u32) -> u64 {
    (window as f64 * 8e6 / f64::from(rtt_us.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten looks in a second at a connection that `change` makes of a bulk transfer.
    fn looks(change: impl Fn(&mut Look, u64)) -> Vec<Look> {
        let look = |number: u64| {
            let mut look = Look {
                at: Duration::from_millis(number * 100),
                unread: 0,
                queued: 390_000,
                send_buffer: 400_000,
                info: Info {
                    mss: 1448,
                    unacked: 100,
                    cwnd: 100,
                    unsent: 50_000,
                    rtt_us: 25_000,
                    least_rtt_us: 20_000,
                    acked: number * 500_000,
                    sent_segs: number as u32 * 345,
                    busy_us: number * 100_000,
                    peer_window: 1 << 20,
                    most_pacing_rate: u64::MAX,
                    ..Info::default()
                },
            };
            change(&mut look, number);
            look
        };
        (0..=10).map(look).collect()
    }

    fn limit(change: impl Fn(&mut Look, u64)) -> Limit {
        judge(&looks(change)).unwrap().limit
    }

    #[test]
    fn each_limit_is_distinguished_from_the_others() {
        assert_eq!(limit(|_, _| ()), Limit::Network);
        assert_eq!(
            limit(|look, number| look.info.window_us = number * 80_000),
            Limit::ReceiveWindow
        );
        assert_eq!(
            limit(|look, number| look.info.buffer_us = number * 80_000),
            Limit::SendBuffer
        );
        // Full for the program all the time; whether all of it fits into the window decides.
        assert_eq!(
            limit(|look, _| (look.info.unsent, look.info.unacked) = (3_000, 60)),
            Limit::SendBuffer
        );
        assert_eq!(
            limit(|look, number| look.info.busy_us = number * 20_000),
            Limit::Application
        );
        assert_eq!(
            limit(|look, _| {
                (look.info.unsent, look.info.unacked) = (0, 10);
                look.queued = 30_000;
            }),
            Limit::Application
        );
        assert_eq!(
            limit(|look, _| {
                (look.info.unsent, look.info.unacked) = (300, 1);
                look.queued = 3_000;
            }),
            Limit::Nagle
        );
        assert_eq!(
            limit(|look, number| look.info.retransmitted = number as u32 * 5),
            Limit::Loss
        );
        assert_eq!(
            limit(|look, number| look.info.timeouts = u16::from(number > 4)),
            Limit::Loss
        );
        assert_eq!(
            limit(|look, _| look.info.most_pacing_rate = 5_000_000),
            Limit::Pacing
        );
        let silent = |look: &mut Look| {
            look.info = Info {
                mss: 1448,
                ..Info::default()
            }
        };
        assert_eq!(limit(|look, _| silent(look)), Limit::Idle);
        assert_eq!(
            limit(|look, number| {
                silent(look);
                look.info.received = number;
            }),
            Limit::Sender
        );
        assert_eq!(
            limit(|look, _| {
                silent(look);
                look.unread = 100_000;
            }),
            Limit::Reader
        );
    }

    #[test]
    fn a_mostly_idle_connection_is_limited_by_the_application() {
        // A tenth of the time busy, all of that by the window: the program has no more.
        let little = |look: &mut Look, number: u64| {
            (look.info.busy_us, look.info.window_us) = (number * 10_000, number * 10_000);
        };
        assert_eq!(limit(little), Limit::Application);
    }

    #[test]
    fn evidence_and_remedy_have_the_numbers() {
        let verdict = judge(&looks(|look, number| {
            look.info.window_us = number * 93_000;
            look.info.peer_window = 65_536;
        }))
        .unwrap();
        assert!(verdict.evidence.contains("93 % of the time"), "{verdict:?}");
        assert!(verdict.evidence.contains("65536 bytes"), "{verdict:?}");
        let remedy = verdict.remedy.unwrap();
        assert!(remedy.contains("tcp_rmem"), "{remedy}");
        assert!(remedy.contains("21.0 Mbit/s at most"), "{remedy}");
        let closed = judge(&looks(|look, number| {
            look.info.window_us = number * 100_000;
            look.info.peer_window = 0;
        }));
        assert!(closed.unwrap().remedy.unwrap().contains("does not read"));
    }

    #[test]
    fn one_look_is_too_few() {
        assert!(judge(&looks(|_, _| ())[..1]).is_none());
        assert!(judge(&[]).is_none());
    }
}
