// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paceline's own algorithm: all streams finish together, on a path that is full and
//! whose queue is not.
//!
//! The windows of all streams on one route are one budget ([`route`]), which follows the
//! route's delivery rate, its queue and its losses. The budget is divided in proportion
//! to each stream's remaining data ([`share`]). Routes whose streams are behind get
//! budget of others ([`balance`]), where they meet at one bottleneck.

mod balance;
mod member;
mod observation;
mod route;
mod share;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::{Algorithm, Limits, Stream, StreamId};
use balance::Balance;
use member::Member;
use observation::Observation;
use route::Route;

/// Parameters of [`Even`].
#[derive(Debug, Clone, PartialEq)]
pub struct EvenConfig {
    /// Leading bits of an IPv4 address that make one network. Streams to different
    /// networks are on different routes.
    pub prefix_v4: u8,
    /// The same of IPv6.
    pub prefix_v6: u8,
    /// Share of the bottleneck's queue that may be filled, 0.1 to 0.9.
    pub queue: f64,
}

impl Default for EvenConfig {
    fn default() -> Self {
        Self {
            prefix_v4: 24,
            prefix_v6: 64,
            queue: 0.5,
        }
    }
}

/// Least and longest round. Below some 20 ms the hosts' own jitter exceeds the
/// correction of a round; a second is the paper's.
const LEAST_PERIOD: Duration = Duration::from_millis(20);
const LONGEST_PERIOD: Duration = Duration::from_secs(1);
/// Rounds in a round trip: the queue is seen while it fills.
const ROUNDS_PER_RTT: u32 = 4;
/// Streams that one second of rounds may carry, so that a large group does not cost a
/// core: longer rounds for more streams.
const STREAMS_PER_S: f64 = 40_000.0;
/// Two base round trips belong to one route if neither is larger by this factor.
const SAME_RTT: f64 = 1.3;
/// A route without streams is forgotten after this time.
const ROUTE_KEPT: Duration = Duration::from_secs(30);

/// Streams on one path, judged by address and round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RouteId(u32);

/// The network of a destination; `None` where it was not reported.
type Network = Option<IpAddr>;

#[derive(Debug)]
struct Known {
    network: Network,
    route: Route,
    used: Duration,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Even {
    config: EvenConfig,
    members: HashMap<StreamId, Member>,
    routes: Vec<(RouteId, Known)>,
    next_route: u32,
    balance: Balance,
    period: Option<Duration>,
}

impl Even {
    /// The initial state.
    pub fn new(config: EvenConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    fn network(&self, destination: Option<IpAddr>) -> Network {
        let mask = |bits: u8, width: u32| match width - u32::from(bits).min(width) {
            128 => 0,
            cut => u128::MAX << cut,
        };
        destination.map(|address| match address.to_canonical() {
            IpAddr::V4(v4) => {
                IpAddr::V4((v4.to_bits() & mask(self.config.prefix_v4, 32) as u32).into())
            }
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & mask(self.config.prefix_v6, 128)).into()),
        })
    }

    /// The route of a stream: the one it was on if its round trip still fits, else one
    /// that fits, else a new one.
    fn route_of(&mut self, now: Duration, former: Option<RouteId>, stream: &Stream) -> RouteId {
        let network = self.network(stream.sample.destination);
        let rtt = f64::from(stream.sample.min_rtt_us);
        let fits = |known: &Known| {
            let base = known.route.base_us();
            known.network == network
                && (rtt == 0.0 || base == 0.0 || (base / SAME_RTT..base * SAME_RTT).contains(&rtt))
        };
        let former = former.and_then(|id| self.routes.iter().find(|(other, _)| *other == id));
        let found = former
            .filter(|(_, known)| fits(known))
            .or_else(|| self.routes.iter().find(|(_, known)| fits(known)));
        if let Some((id, _)) = found {
            return *id;
        }
        let id = RouteId(self.next_route);
        self.next_route += 1;
        let known = Known {
            network,
            route: Route::default(),
            used: now,
        };
        self.routes.push((id, known));
        id
    }

    /// The state of each stream, in the streams' order.
    fn present(&mut self, now: Duration, streams: &[Stream]) -> Vec<Member> {
        let mut former = std::mem::take(&mut self.members);
        let member = |stream: &Stream| {
            let mut member = former
                .remove(&stream.id)
                .unwrap_or_else(|| Member::new(now, stream));
            member.update(now, stream);
            member.route = Some(self.route_of(now, member.route, stream));
            member
        };
        streams.iter().map(member).collect()
    }

    fn choose_period(&mut self, streams: usize) {
        let min_rtt = self
            .routes
            .iter()
            .map(|(_, known)| known.route.base_us())
            .filter(|base| *base > 0.0)
            .fold(f64::MAX, f64::min);
        if min_rtt == f64::MAX {
            return;
        }
        let by_rtt = Duration::from_micros(min_rtt as u64) / ROUNDS_PER_RTT;
        let by_load = Duration::from_secs_f64(streams as f64 / STREAMS_PER_S);
        let period = by_rtt.max(by_load).clamp(LEAST_PERIOD, LONGEST_PERIOD);
        self.period = Some(period);
    }
}

impl Algorithm for Even {
    fn round(&mut self, now: Duration, streams: &[Stream]) -> Vec<Limits> {
        let mut members = self.present(now, streams);
        let demands = share::demands(streams, &members);
        let mut by_route: HashMap<RouteId, Vec<usize>> = HashMap::new();
        for (number, member) in members.iter().enumerate() {
            let route = member.route.expect("each was given one");
            by_route.entry(route).or_default().push(number);
        }
        for (id, known) in &mut self.routes {
            let Some(here) = by_route.get(id) else {
                continue;
            };
            known.used = now;
            let observed = Observation::of(streams, &members, &demands, here);
            known.route.update(now, &observed, self.config.queue);
        }
        self.balance.update(now, &mut self.routes);
        let mut limits = vec![Limits::FREE; streams.len()];
        for (id, known) in &self.routes {
            if let (Some(here), Some(budget)) = (by_route.get(id), known.route.window_segs()) {
                share::divide(budget, streams, &mut members, &demands, here, &mut limits);
            }
        }
        self.members = streams.iter().map(|s| s.id).zip(members).collect();
        self.routes
            .retain(|(_, known)| now.saturating_sub(known.used) < ROUTE_KEPT);
        self.choose_period(streams.len());
        limits
    }

    fn period(&self) -> Duration {
        // Before a round trip is known: soon enough for a path across an ocean.
        self.period.unwrap_or(Duration::from_millis(50))
    }

    fn beliefs(&self) -> Vec<String> {
        let text = |(_, known): &(RouteId, Known)| {
            let network = match known.network {
                Some(address) => format!("to {address}"),
                None => "to unknown".to_owned(),
            };
            format!("{network}: {}", known.route.belief())
        };
        self.routes.iter().map(text).collect()
    }
}
