// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A coordinator of flows: the very algorithms of `paceline coordinate`. Reports and
//! answers take no time, as on the hosts of one cluster; a round trip is long against both.

use std::net::IpAddr;
use std::time::Duration;

use paceline_coordinator::algorithm::{lease, Algorithm, Choice, Stream, StreamId};

use super::flow::{Flow, Group};
use crate::event::{NEVER, US};

/// Flows whose windows one algorithm bounds.
pub struct Coordination {
    /// Its name.
    pub name: String,
    choice: Choice,
    algorithm: Box<dyn Algorithm>,
    members: Vec<Member>,
    until: u64,
    /// Kept from round to round for their memory.
    streams: Vec<Stream>,
    present: Vec<u32>,
}

/// A flow of the group, and where its host sends it.
struct Member {
    flow: u32,
    destination: Option<IpAddr>,
}

impl Coordination {
    /// A coordinator without state and flows. It runs until `until`,
    /// nanoseconds; [`NEVER`]: to the end.
    pub fn new(name: &str, choice: Choice, until: u64) -> Self {
        Coordination {
            name: name.to_owned(),
            algorithm: choice.start(),
            choice,
            members: Vec::new(),
            until,
            streams: Vec::new(),
            present: Vec::new(),
        }
    }

    /// Adds a flow by its number. Streams to different networks have different routes.
    pub fn add(&mut self, flow: u32, destination: Option<IpAddr>) {
        self.members.push(Member { flow, destination });
    }

    /// The flows' numbers.
    pub fn flows(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().map(|member| member.flow)
    }

    /// A round of the connections that are there and not complete. Returns when the next one
    /// is, if there is one.
    pub(super) fn round(&mut self, now: u64, flows: &mut [Flow], groups: &[Group]) -> Option<u64> {
        if now >= self.until {
            return None;
        }
        self.streams.clear();
        self.present.clear();
        for member in &self.members {
            let flow = &flows[member.flow as usize];
            let config = &groups[flow.group as usize].sender;
            // Without a handshake it exists before it begins to send.
            let opening = config.handshake && now < flow.opens;
            if opening || flow.completed != NEVER {
                continue;
            }
            let mut sample = flow.sender.report(member.flow.into(), config);
            sample.destination = member.destination;
            self.present.push(member.flow);
            self.streams.push(Stream {
                id: StreamId {
                    client: flow.turn,
                    cookie: sample.cookie,
                },
                taken: Duration::from_nanos(now),
                sample,
            });
        }
        let limits = self
            .algorithm
            .round(Duration::from_nanos(now), &self.streams);
        let period = self.choice.period_of(&*self.algorithm);
        let until_us = (Duration::from_nanos(now) + lease(period)).as_nanos() as u64 / US;
        for (number, limits) in self.present.iter().zip(limits) {
            flows[*number as usize].sender.limit(limits, until_us);
        }
        Some(now + period.as_nanos() as u64)
    }
}
