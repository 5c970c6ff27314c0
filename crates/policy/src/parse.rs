// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the keys of a file to a policy: the checks that a schema cannot express.

use paceline_input::units::Time;
use paceline_input::{Document, Place, Problem, Problems, Reader};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::error::PolicyError;
use crate::file::{self, BreakerKey, File, FORMATS};
use crate::policy::{
    Ack, Backoff, Base, Breaker, Gap, Policy, Rto, Spacing, Startup, Target, TickTime, Window,
    MOST_TIMER,
};

const HALF_LIFE: Time = Time::from_secs(60);
/// The tick of the coarsest kernel (HZ = 100).
const LONGEST_TICK: Time = Time::from_millis(10);

const NEEDS_BASE: &str = "needs a wrapped algorithm, and base is \"keep\": write base = \"cubic\" (or \"reno\", \"bbr\")";
const NEEDS_TARGET: &str = "has no effect while startup.target is off: write target = \"delivery-rate\" (or \"ssthresh\"), or leave this out";

impl Policy {
    /// Reads a policy from TOML text; `file` is the name for messages.
    ///
    /// # Errors
    /// [`PolicyError::Invalid`] with every problem found, each with line,
    /// column, key and the right form.
    pub fn parse(text: &str, file: &str) -> Result<Self, PolicyError> {
        Ok(policy(text, file)?)
    }
}

/// A policy inside another document (an experiment, a message): the same rules
/// as in a file of its own, so that there is one reader of policies.
impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = toml::Table::deserialize(deserializer)?;
        let text = toml::to_string(&table).map_err(D::Error::custom)?;
        policy(&text, "policy").map_err(|problems| {
            let lines: Vec<_> = problems.list.iter().map(Problem::without_place).collect();
            D::Error::custom(lines.join("; "))
        })
    }
}

fn policy(text: &str, file: &str) -> Result<Policy, Problems> {
    let document = Document::new(file, text);
    let file = Reader::<File>::default().read(&document, &FORMATS)?;
    document.check(|place| Ok(from(file, place)))
}

/// A policy; it is none where a problem was reported.
fn from(file: File, place: &Place<'_>) -> Policy {
    let base = file.base;
    Policy {
        name: file.name,
        description: file.description,
        base,
        startup: file
            .startup
            .and_then(|keys| startup(&keys, base, &place.key("startup"))),
        rto: file
            .rto
            .and_then(|keys| rto(&keys, base, &place.key("rto"))),
        ack: file
            .ack
            .and_then(|keys| keys.delay)
            .map(|delay| Ack { delay }),
        window: file
            .window
            .and_then(|keys| keys.initial)
            .map(|initial| Window { initial }),
        spacing: file
            .spacing
            .and_then(|keys| spacing(&keys, base, &place.key("spacing"))),
    }
}

/// Reports those of the keys that are there.
fn needless(keys: &[(&str, bool)], place: &Place<'_>, why: &str) {
    for (key, _) in keys.iter().filter(|(_, is_there)| *is_there) {
        place.key(key).wrong_key(why);
    }
}

fn startup(keys: &file::Startup, base: Base, place: &Place<'_>) -> Option<Startup> {
    let target = match keys.target {
        Some(file::Target::Ssthresh) => Target::Ssthresh,
        Some(file::Target::DeliveryRate) => Target::DeliveryRate,
        Some(file::Target::Off) | None => {
            let needing = [
                ("initial_rate", keys.initial_rate.is_some()),
                ("half_life", keys.half_life.is_some()),
                ("phases", keys.phases.is_some()),
                ("breaker", keys.breaker.is_some()),
            ];
            needless(&needing, place, NEEDS_TARGET);
            return None;
        }
    };
    match (base, target) {
        (Base::Keep, _) => {
            place.key("target").wrong(NEEDS_BASE);
        }
        (Base::Bbr, Target::Ssthresh) => {
            place.key("target").wrong("base \"bbr\" has no ssthresh to start from: write target = \"delivery-rate\", or base = \"cubic\"");
        }
        _ => {}
    }
    let remembers = target == Target::DeliveryRate;
    if !remembers && keys.half_life.is_some() {
        place.key("half_life").wrong_key("has no effect with target \"ssthresh\", which keeps no path state: write target = \"delivery-rate\", or leave this out");
    }
    Some(Startup {
        target,
        initial_rate: keys.initial_rate,
        half_life: remembers.then(|| keys.half_life.unwrap_or(HALF_LIFE)),
        phases: keys.phases.unwrap_or(true),
        breaker: match &keys.breaker {
            None => Some(Breaker::default()),
            Some(BreakerKey::Off(_)) => None,
            Some(BreakerKey::When(table)) => Some(Breaker {
                loss: table.loss,
                starts: table.starts,
                hold: table.hold,
            }),
        },
    })
}

fn rto(keys: &file::Rto, base: Base, place: &Place<'_>) -> Option<Rto> {
    let Some(least) = keys.least else {
        let needing = [
            ("jitter", keys.jitter.is_some()),
            ("backoff", keys.backoff.is_some()),
        ];
        let why = "has no effect without rto.least: write least = \"tick\", or leave this out";
        needless(&needing, place, why);
        return None;
    };
    let backoff = keys.backoff.unwrap_or_default();
    if backoff == Backoff::Linear && base == Base::Bbr {
        place.key("backoff").wrong("has no effect with base \"bbr\", because the kernel treats such a connection as in its initial slow start: leave this out, or write base = \"cubic\"");
    }
    if let Some(jitter) = keys.jitter {
        jitter_fits(least, jitter, &place.key("jitter"));
    }
    Some(Rto {
        least,
        jitter: keys.jitter,
        backoff,
    })
}

fn jitter_fits(least: TickTime, jitter: TickTime, place: &Place<'_>) {
    let longest = |time, ticks| match time {
        TickTime::Tick => LONGEST_TICK.micros() * ticks,
        TickTime::Time(time) => Time::micros(time),
    };
    let least = longest(least, 2);
    let sum = least + longest(jitter, 1);
    if sum > MOST_TIMER.micros() {
        let sum = Time::from_micros(sum);
        let right = match MOST_TIMER.micros().saturating_sub(least) {
            0 => "lower rto.least, or leave this out".to_owned(),
            room => format!("write \"{}\" or less", Time::from_micros(room)),
        };
        place.wrong(format!("adds up to {sum} with rto.least, and the kernel accepts at most {MOST_TIMER} (a \"tick\" is up to {LONGEST_TICK}): {right}"));
    }
}

fn spacing(keys: &file::Spacing, base: Base, place: &Place<'_>) -> Option<Spacing> {
    let given = [
        ("clustered", keys.clustered.is_some()),
        ("line_rate", keys.line_rate.is_some()),
        ("gap", keys.gap.is_some()),
    ];
    if base == Base::Keep {
        needless(&given, place, NEEDS_BASE);
        return None;
    }
    let clustered = keys.clustered == Some(true);
    if clustered && base == Base::Bbr {
        place.key("clustered").wrong("has no effect with base \"bbr\", which paces its own start: leave this out, or write base = \"cubic\"");
    }
    let gap = match (keys.line_rate, keys.gap) {
        (Some(line_rate), Some(gap)) => Some(Gap { line_rate, gap }),
        (Some(_), None) => {
            place.key("line_rate").wrong_key("has no effect without spacing.gap: write gap = \"64B\" (8 to 1023 bytes), or leave this out");
            None
        }
        (None, Some(_)) => {
            place
                .key("gap")
                .wrong_key("needs the interface's rate: write line_rate = \"1gbit\"");
            None
        }
        (None, None) => None,
    };
    (clustered || gap.is_some()).then_some(Spacing { clustered, gap })
}
