// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[messages]]`, `[[netpipe]]` and `[[outofcore]]`: the workloads of ligon-1999.

use paceline_input::units::{Size, Time};
use paceline_input::Place;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{one, File};
use crate::plan;

/// Packets that are recorded at most, for a ladder and a page.
const MOST_TRACED: u32 = 10_000;
/// The least size of the last message: one byte.
const LEAST_BYTES: &str = "1B";
/// The largest message; a buffer of each side holds it.
const MOST_BYTES: &str = "64MiB";
const MOST_MESSAGE_BYTES: u64 = 64 << 20;

/// Messages from one host to another, each size by itself; see [`plan::Messages`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    /// Tail of the metrics' names, in front of the size.
    #[serde(default)]
    pub name: String,
    /// Sizes of a message.
    #[schemars(length(min = 1))]
    pub sizes: Vec<Size>,
    /// Number of messages; with `direction = "both"`, of exchanges.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub count: u32,
    /// The same with `--quick`.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub quick: Option<u32>,
    /// One way, or both ways: each message is answered by one of the same size.
    #[serde(default)]
    pub direction: Direction,
    /// Number of messages, each a write of its own, before the answer; with
    /// `direction = "both"`.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub writes: u32,
    /// Time from a message, or an answer, to the next message.
    #[serde(default)]
    pub gap: Time,
    /// The receiver computes, and reads the received data once per this time.
    pub read_every: Option<Time>,
    /// The sender uses Nagle's algorithm (no TCP_NODELAY).
    #[serde(default)]
    pub nagle: bool,
    /// Repetitions, each on a new connection.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub repeats: u32,
    /// Number of packets, from the first message on, that are recorded: for the delay of ACKs
    /// and the ladder.
    #[serde(default)]
    #[schemars(range(max = MOST_TRACED))]
    pub trace: u32,
}

/// Where messages go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the sender to the receiver.
    #[default]
    One,
    /// Both ways in turn.
    Both,
}

/// Messages both ways in turn with growing sizes; see [`plan::Netpipe`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Netpipe {
    /// Tail of the metrics' names, in front of the size.
    #[serde(default)]
    pub name: String,
    /// The largest message.
    #[schemars(extend("x-range" = [LEAST_BYTES, MOST_BYTES]))]
    pub largest: Size,
    /// Trials of each size, of which the fastest counts.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub trials: u32,
    /// Trials with `--quick`.
    #[schemars(range(min = 1, max = 1000))]
    pub quick: Option<u32>,
    /// Target duration of a trial.
    #[schemars(extend("x-range" = ["1ms", "10s"]))]
    pub time: Time,
}

/// Jacobi's method on a matrix in files of all hosts; see [`plan::OutOfCore`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutOfCore {
    /// Tail of the metrics' names.
    #[serde(default)]
    pub name: String,
    /// Rows, and columns, of 8 bytes each.
    #[schemars(range(min = 1, max = 65_536))]
    pub side: u32,
    /// Stripe size: bytes of a file on one host before the next host follows.
    #[schemars(extend("x-range" = [LEAST_BYTES, MOST_BYTES]))]
    pub stripe: Size,
    /// Computation time of a rank in one iteration.
    pub compute: Time,
    /// Iterations.
    #[schemars(range(min = 1, max = 10_000))]
    pub iterations: u32,
    /// The same with `--quick`.
    pub quick: Option<u32>,
    /// Number of the first iteration that counts, from 1.
    #[serde(default = "one")]
    pub from_iteration: u32,
}

impl Messages {
    /// The workload of each size.
    pub(super) fn plans(&self, quick: bool) -> impl Iterator<Item = plan::Messages> + '_ {
        let count = match quick {
            true => self.quick.unwrap_or(self.count),
            false => self.count,
        };
        self.sizes.iter().map(move |size| plan::Messages {
            label: tails(&self.name, &size.to_string()),
            size_bytes: size.bytes(),
            count,
            answered: self.direction == Direction::Both,
            writes: self.writes,
            gap_ns: self.gap.micros() * 1000,
            read_every_ns: self.read_every.map_or(0, |every| every.micros() * 1000),
            nagle: self.nagle,
            repeats: self.repeats,
            trace: self.trace,
        })
    }
}

/// `NAME/TAIL`, or only the tail.
fn tails(name: &str, tail: &str) -> String {
    match name {
        "" => tail.to_owned(),
        name => format!("{name}/{tail}"),
    }
}

impl Netpipe {
    /// The workload.
    pub(super) fn plan(&self, quick: bool) -> plan::Netpipe {
        plan::Netpipe {
            label: self.name.clone(),
            sizes: plan::Netpipe::sizes_to(self.largest.bytes()),
            trials: match quick {
                true => self.quick.unwrap_or(self.trials),
                false => self.trials,
            },
            trial_ns: self.time.micros() * 1000,
        }
    }
}

impl OutOfCore {
    /// The program of ranks.
    pub(super) fn plan(&self, quick: bool) -> plan::OutOfCore {
        plan::OutOfCore {
            side: u64::from(self.side),
            stripe_bytes: self.stripe.bytes(),
            compute_ns: self.compute.micros() * 1000,
            iterations: match quick {
                true => self.quick.unwrap_or(self.iterations),
                false => self.iterations,
            },
            from_iteration: self.from_iteration,
        }
    }
}

/// Checks the file's workloads of this module.
pub(super) fn check(file: &File, place: &Place<'_>) {
    for (index, messages) in file.messages.iter().enumerate() {
        let place = place.key("messages").item(index);
        let wrong = |key: &str, problem: &str| place.key(key).wrong(problem);
        super::check::sizes(&messages.sizes, &place.key("sizes"));
        let most = |size: &Size| size.bytes() > MOST_MESSAGE_BYTES;
        if let Some(large) = messages.sizes.iter().position(most) {
            let problem = format!("must be at most {MOST_BYTES}");
            place.key("sizes").item(large).wrong(problem);
        }
        let one_way = messages.direction == Direction::One;
        if one_way && messages.writes > 1 {
            let problem = "needs direction = \"both\": an answer comes after so many messages";
            wrong("writes", problem);
        }
        if !one_way && messages.read_every.is_some() {
            let problem = "needs direction = \"one\": a receiver that answers reads at once";
            wrong("read_every", problem);
        }
        if messages.read_every.is_some_and(|every| every.micros() == 0) {
            wrong("read_every", "must be longer than 0, such as \"500ms\"");
        }
    }
    let ranks = match file.link.clusters[..] {
        [hosts] => Some(hosts),
        _ => None,
    };
    for (index, jacobi) in file.outofcore.iter().enumerate() {
        let place = place.key("outofcore").item(index);
        if jacobi.stripe.bytes() > 0 {
            let problem = ranks.and_then(|ranks| jacobi.plan(false).problem(ranks));
            if let Some(problem) = problem {
                place.key("side").wrong(problem);
            }
        }
        let least = jacobi
            .iterations
            .min(jacobi.quick.unwrap_or(jacobi.iterations));
        if jacobi.from_iteration == 0 || jacobi.from_iteration > least {
            let problem = "must be 1 to iterations, and to quick where that is given";
            place.key("from_iteration").wrong(problem);
        }
    }
}
