// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One task that owns all groups: nothing is shared, nothing is locked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, Instant};

use super::refusals::Refusals;
use super::ServerConfig;
use crate::algorithm::Choice;
use crate::group::Group;
use crate::local::StreamSample;
use crate::protocol::{check_name, Join, Message, Request, MOST_FRAME};
use crate::round_log::RoundLog;
use crate::status::Status;
use crate::{Error, Result};

/// A client is gone after this many rounds without a report, if that is longer than the
/// time that was set.
const SILENT_ROUNDS: u32 = 5;
/// An empty group is kept this long: its clients may be on their way back.
const EMPTY_KEPT: Duration = Duration::from_secs(60);
/// An idle hub checks its groups this often.
const IDLE: Duration = Duration::from_secs(1);

/// Where a member is.
#[derive(Debug, Clone)]
pub(super) struct Place {
    group: String,
    client: u32,
}

pub(super) enum Event {
    Join {
        joined: Join,
        messages: mpsc::Sender<Message>,
        answer: oneshot::Sender<Result<Place>>,
    },
    Report {
        place: Place,
        round: u64,
        taken_us: u64,
        streams: Vec<StreamSample>,
    },
    Leave {
        place: Place,
    },
    Request {
        request: Request,
        answer: oneshot::Sender<std::result::Result<String, String>>,
    },
}

struct Running {
    group: Group,
    /// When the next round begins, or the one that is under way ends.
    due: Duration,
    begun: Option<Instant>,
    emptied: Option<Duration>,
}

pub(super) struct Hub {
    config: Arc<ServerConfig>,
    refusals: Arc<Refusals>,
    origin: Instant,
    algorithm: Choice,
    groups: BTreeMap<String, Running>,
    messages: HashMap<u32, mpsc::Sender<Message>>,
    next_client: u32,
    log: Option<RoundLog>,
}

impl Hub {
    pub fn new(config: Arc<ServerConfig>, refusals: Arc<Refusals>) -> Result<Self> {
        let log = config.log.as_deref().map(RoundLog::create).transpose()?;
        Ok(Self {
            algorithm: config.algorithm.clone(),
            config,
            refusals,
            origin: Instant::now(),
            groups: BTreeMap::new(),
            messages: HashMap::new(),
            next_client: 0,
            log,
        })
    }

    /// Runs until all senders of events are gone.
    pub async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        loop {
            let idle = self.now() + IDLE;
            let due = self.groups.values().map(|running| running.due).min();
            let until = self.origin + due.unwrap_or(idle).min(idle);
            tokio::select! {
                // Frequent reports do not delay a round that is due.
                biased;
                () = sleep_until(until) => self.rounds(),
                event = events.recv() => match event {
                    Some(event) => self.handle(event),
                    None => return,
                },
            }
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Join {
                joined,
                messages,
                answer,
            } => {
                let place = self.join(joined, messages);
                if let Err(Ok(place)) = answer.send(place) {
                    self.leave(&place);
                }
            }
            Event::Report {
                place,
                round,
                taken_us,
                streams,
            } => self.report(&place, round, taken_us, streams),
            Event::Leave { place } => self.leave(&place),
            Event::Request { request, answer } => {
                // A client that has gone needs no answer.
                let _ = answer.send(self.answer(request));
            }
        }
    }

    fn join(&mut self, joined: Join, messages: mpsc::Sender<Message>) -> Result<Place> {
        let served = &self.config.groups;
        if !served.is_empty() && !served.contains(&joined.group) {
            return Err(Error::NoSuchGroup {
                group: joined.group,
                served: served.clone(),
            });
        }
        let full = |what, limit| Err(Error::Full { what, limit });
        let limits = &self.config.limits;
        if self.messages.len() >= limits.clients {
            return full("clients", limits.clients);
        }
        if !self.groups.contains_key(&joined.group) && self.groups.len() >= limits.groups {
            return full("groups", limits.groups);
        }
        let now = self.now();
        let client = self.next_client;
        self.next_client = self.next_client.wrapping_add(1);
        let running = self
            .groups
            .entry(joined.group.clone())
            .or_insert_with(|| Running {
                group: Group::new(self.algorithm.clone(), self.config.period),
                due: now,
                begun: None,
                emptied: None,
            });
        tracing::info!("{} joins group {}", joined.host, joined.group);
        running.group.join(client, joined.host, now);
        if running.emptied.take().is_some() {
            running.due = now;
        }
        self.messages.insert(client, messages);
        Ok(Place {
            group: joined.group,
            client,
        })
    }

    fn report(&mut self, place: &Place, round: u64, taken_us: u64, streams: Vec<StreamSample>) {
        let now = self.now();
        let others: usize = self.groups.values().map(|r| r.group.streams()).sum();
        let Some(running) = self.groups.get_mut(&place.group) else {
            return;
        };
        let before = running.group.members.get(&place.client);
        let others = others - before.map_or(0, |member| member.streams.len());
        let limit = self.config.limits.streams;
        if others + streams.len() > limit {
            let error = Error::Full {
                what: "streams",
                limit,
            };
            self.dismiss(place, error.reason(), &error.to_string());
            return;
        }
        let taken = running
            .group
            .report(place.client, round, taken_us, streams, now);
        match taken {
            Ok(()) if running.group.complete() => self.finish(&place.group.clone()),
            Ok(()) => {}
            Err(violation) => self.dismiss(place, "protocol error", violation.0),
        }
    }

    /// Dismisses a client, with the reason if it still reads. It may come again: the
    /// cause may be over.
    fn dismiss(&mut self, place: &Place, reason: &'static str, text: &str) {
        if let Some(messages) = self.messages.get(&place.client) {
            let group = self.groups.get(&place.group);
            let member = group.and_then(|running| running.group.members.get(&place.client));
            let host = member.map_or("a client", |member| &member.host);
            let whole = format!("{host} of group {}: {text}", place.group);
            tracing::warn!("dismissed: {whole}");
            self.refusals.add(reason, &whole);
            let refusal = Message::Refused {
                for_good: false,
                text: text.to_owned(),
            };
            let _ = messages.try_send(refusal);
        }
        self.leave(place);
    }

    fn leave(&mut self, place: &Place) {
        self.messages.remove(&place.client);
        let now = self.now();
        let Some(running) = self.groups.get_mut(&place.group) else {
            return;
        };
        if let Some(member) = running.group.members.remove(&place.client) {
            tracing::info!("{} leaves group {}", member.host, place.group);
        }
        if running.group.members.is_empty() {
            running.emptied = Some(now);
        } else if running.group.complete() {
            self.finish(&place.group.clone());
        }
    }

    /// Begins and ends the rounds that are due.
    fn rounds(&mut self) {
        let now = self.now();
        let due: Vec<String> = self
            .groups
            .iter()
            .filter(|(_, running)| running.due <= now)
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            self.step(&name, now);
        }
    }

    fn step(&mut self, name: &str, now: Duration) {
        let timeout = self.config.timeout;
        let Some(running) = self.groups.get_mut(name) else {
            return;
        };
        if running.begun.is_some() {
            self.finish(name);
            return;
        }
        let patience = timeout.max(SILENT_ROUNDS * running.group.period());
        for client in running.group.silent(now, patience) {
            let place = Place {
                group: name.to_owned(),
                client,
            };
            self.dismiss(&place, "silent", "no report for too long");
        }
        let Some(running) = self.groups.get_mut(name) else {
            return;
        };
        if let Some(emptied) = running.emptied {
            running.due = now + IDLE;
            if now.saturating_sub(emptied) > EMPTY_KEPT {
                self.groups.remove(name);
            }
            return;
        }
        let (round, until) = running.group.begin(now);
        running.begun = Some(Instant::now());
        running.due = until;
        let clients: Vec<u32> = running.group.members.keys().copied().collect();
        for client in clients {
            self.send(name, client, Message::Poll { round });
        }
        if self.groups.get(name).is_some_and(|r| r.group.complete()) {
            self.finish(name);
        }
    }

    /// Ends the round that is under way.
    fn finish(&mut self, name: &str) {
        let now = self.now();
        let Some(running) = self.groups.get_mut(name) else {
            return;
        };
        let Some(begun) = running.begun.take() else {
            return;
        };
        let orders = running.group.finish(now);
        let round = running.group.round;
        let lease_ms = running.group.lease().as_millis().min(u32::MAX.into()) as u32;
        let started = begun.duration_since(self.origin);
        running.due = (started + running.group.period()).max(now);
        for order in orders {
            let message = Message::Caps {
                round,
                lease_ms,
                caps: order.caps,
            };
            self.send(name, order.client, message);
        }
        let latency = begun.elapsed();
        let Some(running) = self.groups.get_mut(name) else {
            return;
        };
        running.group.history.add_latency(latency);
        let record = running.group.history.last();
        if let (Some(log), Some(record)) = (&mut self.log, record) {
            if let Err(error) = log.add(name, record, latency.as_secs_f64() * 1e3) {
                tracing::warn!("{error}; the log ends here");
                self.log = None;
            }
        }
    }

    /// A client that does not take its messages is gone.
    fn send(&mut self, name: &str, client: u32, message: Message) {
        let full = self
            .messages
            .get(&client)
            .is_some_and(|messages| messages.try_send(message).is_err());
        if full {
            tracing::warn!("a client of group {name} does not read its messages");
            let place = Place {
                group: name.to_owned(),
                client,
            };
            self.leave(&place);
        }
    }

    fn answer(&mut self, request: Request) -> std::result::Result<String, String> {
        match request {
            Request::Status { group } => self.status(group.as_deref()),
            Request::Set { group, algorithm } => {
                let choice: Choice = algorithm
                    .parse()
                    .map_err(|error: crate::algorithm::ChoiceError| error.to_string())?;
                match &group {
                    None => {
                        for running in self.groups.values_mut() {
                            running.group.set(choice.clone());
                        }
                        self.algorithm = choice;
                    }
                    Some(name) => {
                        let known = self.groups.get_mut(name);
                        let running = known.ok_or_else(|| no_group(name))?;
                        running.group.set(choice);
                    }
                }
                tracing::info!("algorithm {algorithm} for {group:?}");
                Ok("{}".to_owned())
            }
        }
    }

    fn status(&self, group: Option<&str>) -> std::result::Result<String, String> {
        if let Some(name) = group {
            check_name(name).map_err(|error| error.to_string())?;
            if !self.groups.contains_key(name) {
                return Err(no_group(name));
            }
        }
        let now = self.now();
        let refusals = self.refusals.list();
        let text = |history: bool| {
            let chosen = |name: &str| group.is_none_or(|group| group == name);
            let status = Status {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_s: now.as_secs_f64(),
                algorithm: self.algorithm.to_string(),
                refused: refusals.iter().map(|refusal| refusal.count).sum(),
                refusals: refusals.clone(),
                groups: self
                    .groups
                    .iter()
                    .filter(|(name, _)| chosen(name))
                    .map(|(name, running)| running.group.status(name, now, history))
                    .collect(),
            };
            serde_json::to_string(&status).map_err(|error| error.to_string())
        };
        // The answer's own few bytes.
        let fits = |text: &String| text.len() + 64 <= MOST_FRAME;
        let full = text(true)?;
        if fits(&full) {
            return Ok(full);
        }
        let short = text(false)?;
        match fits(&short) {
            true => Ok(short),
            false => Err("too many clients for one answer: request one group".to_owned()),
        }
    }
}

fn no_group(name: &str) -> String {
    format!("there is no group {name:?}: paceline coordinate status lists the groups")
}
