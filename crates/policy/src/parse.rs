// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the keys of a file to a policy: the checks that a schema cannot express.

use paceline_input::units::Time;
use paceline_input::{Document, Place, Problem, Problems, Reader};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::error::PolicyError;
use crate::file::{self, BreakerKey, File, FORMATS};
use crate::policy::{
    Ack, Backoff, Base, Breaker, Gap, MinimumRto, Options, Policy, Report, Rto, Socket, Spacing,
    Startup, Streams, Target, TickTime, Window, MOST_TIMER, QUICK,
};

const HALF_LIFE: Time = Time::from_secs(60);
/// The tick of the coarsest kernel (HZ = 100).
const LONGEST_TICK: Time = Time::from_millis(10);

const NEEDS_BASE: &str = "needs a wrapped algorithm, and base is \"keep\": write base = \"cubic\" (or \"reno\", \"bbr\")";
const BBRS_WINDOW: &str = "has no effect with base \"bbr\", which sets its window at each ACK: leave this out, or write base = \"cubic\"";
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
    if let Some(keys) = &file.window {
        fixed_alone(keys, &file, &place.key("window"));
    }
    let has_law = has_law(&file);
    Policy {
        startup: file
            .startup
            .and_then(|keys| startup(&keys, base, &place.key("startup"))),
        rto: file
            .rto
            .and_then(|keys| rto(&keys, base, &place.key("rto"))),
        ack: file
            .ack
            .and_then(|keys| ack(&keys, base, &place.key("ack"))),
        window: file
            .window
            .and_then(|keys| window(&keys, base, &place.key("window"))),
        streams: file
            .streams
            .and_then(|keys| streams(&keys, base, &place.key("streams"))),
        spacing: file
            .spacing
            .and_then(|keys| spacing(&keys, base, &place.key("spacing"))),
        socket: file
            .socket
            .and_then(|keys| keys.nodelay)
            .filter(|nodelay| *nodelay)
            .map(|nodelay| Socket { nodelay }),
        options: file
            .options
            .and_then(|keys| options(keys, &place.key("options"))),
        report: file
            .report
            .and_then(|keys| report(&keys, has_law, &place.key("report"))),
        name: file.name,
        description: file.description,
        base,
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
    let minimum = minimum_rto(keys, base, place);
    let most = keys.most;
    (minimum.is_some() || most.is_some()).then_some(Rto { minimum, most })
}

fn minimum_rto(keys: &file::Rto, base: Base, place: &Place<'_>) -> Option<MinimumRto> {
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
    Some(MinimumRto {
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

fn ack(keys: &file::Ack, base: Base, place: &Place<'_>) -> Option<Ack> {
    let (delay, every) = (keys.delay, keys.every);
    if every == Some(QUICK) {
        if base == Base::Keep {
            place.key("every").wrong(format!("1 {NEEDS_BASE}"));
        }
        if delay.is_some() {
            place.key("delay").wrong_key(
                "has no effect with every = 1, which delays no ACK: leave one of the two out",
            );
        }
    }
    (delay.is_some() || every.is_some()).then_some(Ack { delay, every })
}

fn window(keys: &file::Window, base: Base, place: &Place<'_>) -> Option<Window> {
    let (initial, fixed) = (keys.initial, keys.fixed);
    let again = keys.again == Some(true);
    if again && initial.is_none() && fixed.is_none() {
        place.key("again").wrong("needs the window that is meant: write initial = 20 (1 to 1000 segments), or leave this out");
    }
    let given = [("again", again), ("fixed", fixed.is_some())];
    if base == Base::Keep {
        needless(&given, place, NEEDS_BASE);
    }
    if base == Base::Bbr && again {
        place.key("again").wrong("has no effect with base \"bbr\", which keeps its window over idle: leave this out, or write base = \"cubic\"");
    }
    (initial.is_some() || fixed.is_some()).then_some(Window {
        initial,
        again,
        fixed,
    })
}

/// Beside a fixed window other keys of the window or the pace have no effect; nor has
/// the initial window beside a start-up law.
fn fixed_alone(keys: &file::Window, file: &File, place: &Place<'_>) {
    let targeted = |keys: &file::Startup| !matches!(keys.target, None | Some(file::Target::Off));
    let starts = file.startup.as_ref().is_some_and(targeted);
    if keys.again == Some(true) && starts {
        place.key("again").wrong("has no effect with startup.target, which sets the window of each start: leave one of the two out");
    }
    if keys.fixed.is_none() {
        return;
    }
    let fixed = place.key("fixed");
    if starts {
        fixed.wrong_key(
            "sets the window of a start, and startup.target does, too: leave one of the two out",
        );
    }
    if file.spacing.is_some() {
        fixed.wrong_key("does not grow, and packets are spaced by a window that does: leave this or the table spacing out");
    }
    let even = file.streams.as_ref().and_then(|keys| keys.even);
    if even == Some(true) {
        fixed.wrong_key("does not change, and with streams.even a window is an equal part of the path's: leave one of the two out");
    }
    if file.base == Base::Bbr {
        fixed.wrong_key(BBRS_WINDOW);
    }
    let why = "has no effect with window.fixed, which is the window from the start: leave one of the two out";
    let others = [
        ("initial", keys.initial.is_some()),
        ("again", keys.again == Some(true)),
    ];
    needless(&others, place, why);
}

fn options(keys: file::Options, place: &Place<'_>) -> Option<Options> {
    let taken_out = |key, value: Option<bool>| {
        if value == Some(true) {
            let why = "cannot be forced on: write false, or leave this out, and the connection has it as both hosts do";
            place.key(key).wrong(why);
        }
        value == Some(false)
    };
    let options = Options {
        timestamps: !taken_out("timestamps", keys.timestamps),
        window_scaling: !taken_out("window_scaling", keys.window_scaling),
        sack: !taken_out("sack", keys.sack),
        interface: keys.interface.unwrap_or_default(),
    };
    let forced = [keys.timestamps, keys.window_scaling, keys.sack].contains(&Some(true));
    if options.without() == 0 && !forced {
        place.wrong_key("takes no option out: write timestamps = false, window_scaling = false or sack = false, or leave the table out");
    }
    let name = &options.interface;
    if name.is_empty() {
        place.wrong_key("needs the interface by which the job's connections leave: write interface = \"eth0\" (ip link lists them)");
    } else if name.len() > file::LONGEST_INTERFACE
        || name.contains(['/', ':'])
        || name.contains(char::is_whitespace)
    {
        place.key("interface").wrong(format!("{:?} is no name of an interface: write 1 to {} bytes without spaces, / and :, as \"eth0\"", paceline_input::quoted(name), file::LONGEST_INTERFACE));
    }
    Some(options)
}

/// Whether a law changes the sending of bursts, so that held-out bursts differ from them.
fn has_law(file: &File) -> bool {
    let targeted = |keys: &file::Startup| !matches!(keys.target, None | Some(file::Target::Off));
    let spaced = |keys: &file::Spacing| keys.clustered == Some(true) || keys.gap.is_some();
    let even = |keys: &file::Streams| keys.even == Some(true);
    file.startup.as_ref().is_some_and(targeted)
        || file.spacing.as_ref().is_some_and(spaced)
        || file.streams.as_ref().is_some_and(even)
}

fn report(keys: &file::Report, has_law: bool, place: &Place<'_>) -> Option<Report> {
    let held_out = keys.held_out?;
    let place = place.key("held_out");
    if !held_out.permille().is_multiple_of(10) {
        place.wrong(format!(
            "{held_out} is no whole percentage: write \"{}%\"",
            held_out.permille().div_ceil(10)
        ));
    }
    if !has_law {
        place.wrong_key("has no effect where no law changes a burst: write startup.target = \"delivery-rate\", or leave this out");
    }
    Some(Report { held_out })
}

fn streams(keys: &file::Streams, base: Base, place: &Place<'_>) -> Option<Streams> {
    let even = place.key("even");
    match (keys.even, base) {
        (Some(_), Base::Keep) => {
            even.wrong_key(NEEDS_BASE);
        }
        (Some(true), Base::Bbr) => {
            even.wrong_key(BBRS_WINDOW);
        }
        _ => {}
    }
    let even = keys.even == Some(true);
    even.then_some(Streams { even })
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
