// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a policy from TOML, and says for every problem where it is and what
//! would be right.
//!
//! The tree with source positions is walked by hand: that finds all problems
//! in one go, names the full key, and can look at two keys at once.

mod spacing;

use std::fmt::Display;
use std::str::FromStr;

use toml::de::{DeTable, DeValue};

use crate::error::{Problem, ProblemKind};
use crate::policy::{
    Ack, Backoff, Base, Breaker, Policy, Rto, Startup, Target, TickTime, Window, LONGEST_NAME,
    MOST_TIMER,
};
use paceline_input::units::{quoted, Rate, Share, Time, UnitError};

const ROOT_KEYS: &[&str] = &[
    "name",
    "description",
    "base",
    "startup",
    "rto",
    "ack",
    "window",
    "spacing",
];
const STARTUP_KEYS: &[&str] = &["target", "initial_rate", "half_life", "phases", "breaker"];
const BREAKER_KEYS: &[&str] = &["loss", "starts", "hold"];
const RTO_KEYS: &[&str] = &["least", "jitter", "backoff"];
const ACK_KEYS: &[&str] = &["delay"];
const WINDOW_KEYS: &[&str] = &["initial"];

/// Where a misplaced key may belong.
const TABLES: &[(&str, &[&str])] = &[
    ("startup", STARTUP_KEYS),
    ("startup.breaker", BREAKER_KEYS),
    ("rto", RTO_KEYS),
    ("ack", ACK_KEYS),
    ("window", WINDOW_KEYS),
    ("spacing", spacing::KEYS),
];

const BASES: &[&str] = &["keep", "cubic", "reno", "bbr"];
const BACKOFFS: &[&str] = &["exponential", "linear"];
const TARGETS: &[&str] = &["off", "ssthresh", "delivery-rate"];

const LONGEST_DESCRIPTION: usize = 200;
/// PL_RATE_MIN_BPS of bpf/control/path.h: a slower start is left to the base.
const LEAST_RATE: Rate = Rate::from_bits_per_second(100_000);
const MOST_RATE: Rate = Rate::from_bits_per_second(1_000_000_000_000);
const DAY: Time = Time::from_secs(24 * 3600);
const HALF_LIFE: Time = Time::from_secs(60);
/// Two ticks of the finest kernel (HZ = 1000).
const LEAST_TIMER: Time = Time::from_millis(2);
/// The tick of the coarsest kernel (HZ = 100).
const LONGEST_TICK: Time = Time::from_millis(10);

/// A key of the file with its value.
struct Field<'t> {
    path: String,
    /// Byte offset of the key.
    key_at: usize,
    /// Byte offset of the value.
    value_at: usize,
    value: &'t DeValue<'t>,
}

/// A table of the file; the root has an empty path.
struct Section<'t> {
    path: String,
    table: &'t DeTable<'t>,
}

impl<'t> Section<'t> {
    fn field(&self, key: &str) -> Option<Field<'t>> {
        let (found, value) = self
            .table
            .iter()
            .find(|(found, _)| found.get_ref() == key)?;
        Some(Field {
            path: self.path_of(key),
            key_at: found.span().start,
            value_at: value.span().start,
            value: value.get_ref(),
        })
    }

    fn path_of(&self, key: &str) -> String {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let key = quoted(key);
        let key = if !key.is_empty() && key.chars().all(|c| bare(c) || c == '.') {
            key
        } else {
            format!("{key:?}")
        };
        if self.path.is_empty() {
            key
        } else {
            format!("{}.{key}", self.path)
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    problems: Vec<Problem>,
}

/// Reads a policy; the problems are in the order of the text and never empty.
pub(crate) fn policy(text: &str) -> Result<Policy, Vec<Problem>> {
    let mut reader = Reader {
        text,
        problems: Vec::new(),
    };
    let root = match DeTable::parse(text) {
        Ok(root) => root,
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            let message = error.message().trim_end().to_owned();
            reader.report(at, String::new(), ProblemKind::Syntax(message));
            return Err(reader.problems);
        }
    };
    let policy = reader.policy(&Section {
        path: String::new(),
        table: root.get_ref(),
    });
    if reader.problems.is_empty() {
        return Ok(policy);
    }
    reader
        .problems
        .sort_by_key(|problem| (problem.line, problem.column));
    Err(reader.problems)
}

/// The readers below give a value even where there is a problem: one that was
/// reported makes the whole policy an error, so that value is never seen.
impl<'t> Reader<'t> {
    fn policy(&mut self, root: &Section<'t>) -> Policy {
        self.known_keys(root, ROOT_KEYS);
        let base = self.base(root);
        let startup = self.section(root, "startup");
        let rto = self.section(root, "rto");
        let ack = self.section(root, "ack");
        let window = self.section(root, "window");
        let spacing = self.section(root, "spacing");
        Policy {
            name: self.name(root),
            description: self.description(root),
            base: base.unwrap_or(Base::Keep),
            startup: startup.and_then(|section| self.startup(&section, base)),
            rto: rto.and_then(|section| self.rto(&section, base)),
            ack: ack.and_then(|section| self.ack(&section)),
            window: window.and_then(|section| self.window(&section)),
            spacing: spacing.and_then(|section| self.spacing(&section, base)),
        }
    }

    fn name(&mut self, root: &Section<'t>) -> String {
        let Some(field) = root.field("name") else {
            let right = "write name = \"my-policy\" at the top of the file";
            self.report(0, "name".to_owned(), ProblemKind::Missing { right });
            return String::new();
        };
        let Some(text) = self.string(&field, "write a name in quotes, as \"my-policy\"") else {
            return String::new();
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if text.is_empty() || text.len() > LONGEST_NAME || !text.chars().all(allowed) {
            let kind = ProblemKind::BadName {
                text: quoted(text),
                longest: LONGEST_NAME,
            };
            self.at_value(&field, kind);
        }
        text.to_owned()
    }

    fn description(&mut self, root: &Section<'t>) -> String {
        let text = root
            .field("description")
            .and_then(|field| Some((self.string(&field, "write a text in quotes")?, field)));
        let Some((text, field)) = text else {
            return String::new();
        };
        if text.chars().any(char::is_control) || text.chars().count() > LONGEST_DESCRIPTION {
            let longest = LONGEST_DESCRIPTION;
            self.at_value(&field, ProblemKind::BadDescription { longest });
        }
        text.to_owned()
    }

    /// `None` where the key is a problem.
    fn base(&mut self, root: &Section<'t>) -> Option<Base> {
        let Some(field) = root.field("base") else {
            return (!misspelt(root, "base", ROOT_KEYS)).then_some(Base::Keep);
        };
        match self.choice(&field, BASES, "write the algorithm in quotes, as \"cubic\"")? {
            "cubic" => Some(Base::Cubic),
            "reno" => Some(Base::Reno),
            "bbr" => Some(Base::Bbr),
            _ => Some(Base::Keep),
        }
    }

    fn startup(&mut self, section: &Section<'t>, base: Option<Base>) -> Option<Startup> {
        self.known_keys(section, STARTUP_KEYS);
        let initial_rate = section.field("initial_rate");
        let half_life = section.field("half_life");
        let phases = section.field("phases");
        let breaker = section.field("breaker");

        let target_field = section.field("target");
        let written = target_field
            .as_ref()
            .and_then(|field| self.choice(field, TARGETS, "write the target in quotes"));
        let target = match written {
            Some("ssthresh") => Target::Ssthresh,
            Some("delivery-rate") => Target::DeliveryRate,
            // A target was meant, and what is wrong with it is reported: read
            // the rest as under the default one.
            None if target_field.is_some() || misspelt(section, "target", STARTUP_KEYS) => {
                Target::DeliveryRate
            }
            _ => {
                for field in [initial_rate, half_life, phases, breaker]
                    .into_iter()
                    .flatten()
                {
                    self.report(field.key_at, field.path, ProblemKind::NeedsTarget);
                }
                return None;
            }
        };

        if let Some(field) = target_field.filter(|_| written.is_some()) {
            match (base, target) {
                // Reported, if base is itself a problem.
                (None, _) => {}
                (Some(Base::Keep), _) => self.at_value(&field, ProblemKind::TargetWithoutBase),
                (Some(Base::Bbr), Target::Ssthresh) => {
                    self.at_value(&field, ProblemKind::SsthreshOfBbr);
                }
                _ => {}
            }
        }
        let half_life = match (target, half_life) {
            (Target::Ssthresh, None) => None,
            (Target::Ssthresh, Some(field)) => {
                self.report(field.key_at, field.path, ProblemKind::NeedsDeliveryRate);
                None
            }
            (Target::DeliveryRate, None) => Some(HALF_LIFE),
            (Target::DeliveryRate, Some(field)) => {
                self.quantity(&field, Time::from_millis(100), DAY)
            }
        };
        Some(Startup {
            target,
            initial_rate: initial_rate
                .and_then(|field| self.quantity(&field, LEAST_RATE, MOST_RATE)),
            half_life,
            phases: phases.is_none_or(|field| self.boolean(&field, "write true or false")),
            breaker: match breaker {
                None => Some(Breaker::default()),
                Some(field) => self.breaker(&field),
            },
        })
    }

    /// `true` where the value is a problem: what an absent key means.
    fn boolean(&mut self, field: &Field<'t>, right: &'static str) -> bool {
        match field.value {
            DeValue::Boolean(value) => *value,
            _ => {
                self.wrong_type(field, right);
                true
            }
        }
    }

    fn breaker(&mut self, field: &Field<'t>) -> Option<Breaker> {
        let table = match field.value {
            DeValue::Table(table) => table,
            DeValue::String(text) if text == "off" => return None,
            _ => {
                self.wrong_type(
                    field,
                    "write \"off\", or a table [startup.breaker] with loss, starts and hold",
                );
                return None;
            }
        };
        let section = Section {
            path: field.path.clone(),
            table,
        };
        self.known_keys(&section, BREAKER_KEYS);
        let default = Breaker::default();
        let loss = section.field("loss").and_then(|field| {
            let (least, most) = (Share::from_permille(1), Share::from_permille(1000));
            self.quantity(&field, least, most)
        });
        let starts = section
            .field("starts")
            .and_then(|field| self.integer(&field, 1, 1000, "write a whole number, as 2"));
        let hold = section
            .field("hold")
            .and_then(|field| self.quantity(&field, Time::from_millis(10), DAY));
        Some(Breaker {
            loss: loss.unwrap_or(default.loss),
            starts: starts.unwrap_or(default.starts),
            hold: hold.unwrap_or(default.hold),
        })
    }

    fn rto(&mut self, section: &Section<'t>, base: Option<Base>) -> Option<Rto> {
        self.known_keys(section, RTO_KEYS);
        let jitter_field = section.field("jitter");
        let backoff_field = section.field("backoff");
        let Some(least) = section.field("least") else {
            for field in [jitter_field, backoff_field].into_iter().flatten() {
                self.report(field.key_at, field.path, ProblemKind::NeedsLeast);
            }
            return None;
        };
        let least = self.tick_time(&least, LEAST_TIMER, MOST_TIMER);
        let jitter = jitter_field
            .as_ref()
            .and_then(|field| self.tick_time(field, Time::from_micros(1), MOST_TIMER));
        let backoff = match backoff_field {
            None => Backoff::default(),
            Some(field) => match self.choice(&field, BACKOFFS, "write the backoff in quotes")? {
                "linear" => {
                    if base == Some(Base::Bbr) {
                        self.at_value(&field, ProblemKind::LinearOfBbr);
                    }
                    Backoff::Linear
                }
                _ => Backoff::Exponential,
            },
        };
        let least = least?;
        if let Some((field, jitter)) = jitter_field.zip(jitter) {
            self.jitter_fits(&field, least, jitter);
        }
        Some(Rto {
            least,
            jitter,
            backoff,
        })
    }

    fn jitter_fits(&mut self, field: &Field<'t>, least: TickTime, jitter: TickTime) {
        let longest = |time, ticks| match time {
            TickTime::Tick => LONGEST_TICK.micros() * ticks,
            TickTime::Time(time) => Time::micros(time),
        };
        let least = longest(least, 2);
        let sum = least + longest(jitter, 1);
        if sum > MOST_TIMER.micros() {
            let room = MOST_TIMER.micros().saturating_sub(least);
            let kind = ProblemKind::JitterTooLong {
                sum: Time::from_micros(sum),
                most: MOST_TIMER,
                room: Time::from_micros(room),
            };
            self.at_value(field, kind);
        }
    }

    fn ack(&mut self, section: &Section<'t>) -> Option<Ack> {
        self.known_keys(section, ACK_KEYS);
        let field = section.field("delay")?;
        let delay = self.tick_time(&field, LEAST_TIMER, MOST_TIMER)?;
        Some(Ack { delay })
    }

    fn window(&mut self, section: &Section<'t>) -> Option<Window> {
        self.known_keys(section, WINDOW_KEYS);
        let field = section.field("initial")?;
        let initial = self.integer(&field, 1, 1000, "write a whole number of segments, as 10")?;
        Some(Window { initial })
    }

    fn section(&mut self, root: &Section<'t>, key: &str) -> Option<Section<'t>> {
        let field = root.field(key)?;
        let DeValue::Table(table) = field.value else {
            self.wrong_type(
                &field,
                match key {
                    "startup" => "write a line [startup] above its keys",
                    "rto" => "write a line [rto] above its keys",
                    "ack" => "write a line [ack] above its keys",
                    "spacing" => "write a line [spacing] above its keys",
                    _ => "write a line [window] above its keys",
                },
            );
            return None;
        };
        Some(Section {
            path: field.path,
            table,
        })
    }

    fn known_keys(&mut self, section: &Section<'t>, known: &'static [&'static str]) {
        for key in section.table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let nearest = nearest(name, known);
                let elsewhere = TABLES
                    .iter()
                    .find(|(table, keys)| *table != section.path && keys.contains(&name));
                let kind = match (nearest, elsewhere) {
                    (None, Some((table, _))) => ProblemKind::MisplacedKey { table },
                    _ => ProblemKind::UnknownKey { nearest, known },
                };
                self.report(key.span().start, section.path_of(name), kind);
            }
        }
    }

    fn string(&mut self, field: &Field<'t>, right: &'static str) -> Option<&'t str> {
        match field.value {
            DeValue::String(text) => Some(text),
            _ => {
                self.wrong_type(field, right);
                None
            }
        }
    }

    fn choice(
        &mut self,
        field: &Field<'t>,
        choices: &'static [&'static str],
        right: &'static str,
    ) -> Option<&'static str> {
        let text = self.string(field, right)?;
        let found = choices.iter().copied().find(|choice| *choice == text);
        if found.is_none() {
            let kind = ProblemKind::UnknownChoice {
                text: quoted(text),
                nearest: nearest(text, choices),
                choices,
            };
            self.at_value(field, kind);
        }
        found
    }

    fn integer<T>(&mut self, field: &Field<'t>, least: T, most: T, right: &'static str) -> Option<T>
    where
        T: Copy + Display + TryFrom<i128> + PartialOrd,
    {
        let DeValue::Integer(number) = field.value else {
            self.wrong_type(field, right);
            return None;
        };
        let value = i128::from_str_radix(number.as_str(), number.radix())
            .ok()
            .and_then(|number| T::try_from(number).ok())
            .filter(|value| (least..=most).contains(value));
        if value.is_none() {
            self.out_of_range(field, &quoted(&number.to_string()), &least, &most);
        }
        value
    }

    /// A rate, time or share with its unit.
    fn quantity<T>(&mut self, field: &Field<'t>, least: T, most: T) -> Option<T>
    where
        T: Copy + Display + FromStr<Err = UnitError> + PartialOrd,
    {
        let bare;
        let text: &str = match field.value {
            DeValue::String(text) => text,
            // What is missing is the unit, and its error shows the right form.
            DeValue::Integer(number) => {
                bare = number.to_string();
                &bare
            }
            DeValue::Float(number) => number.as_str(),
            _ => {
                self.wrong_type(
                    field,
                    "write a number with its unit in quotes, as \"500mbit\", \"10ms\" or \"2%\"",
                );
                return None;
            }
        };
        match text.parse::<T>() {
            Ok(value) if (least..=most).contains(&value) => Some(value),
            Ok(value) => {
                self.out_of_range(field, &value, &least, &most);
                None
            }
            Err(error) => {
                self.at_value(field, ProblemKind::Unit(error));
                None
            }
        }
    }

    fn tick_time(&mut self, field: &Field<'t>, least: Time, most: Time) -> Option<TickTime> {
        match field.value {
            DeValue::String(text) if text == "tick" => Some(TickTime::Tick),
            _ => self.quantity(field, least, most).map(TickTime::Time),
        }
    }

    fn out_of_range(
        &mut self,
        field: &Field<'t>,
        value: &dyn Display,
        least: &dyn Display,
        most: &dyn Display,
    ) {
        let kind = ProblemKind::OutOfRange {
            value: value.to_string(),
            least: least.to_string(),
            most: most.to_string(),
        };
        self.at_value(field, kind);
    }

    fn wrong_type(&mut self, field: &Field<'t>, right: &'static str) {
        let found = match field.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date or time of day",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.at_value(field, ProblemKind::WrongType { found, right });
    }

    fn at_value(&mut self, field: &Field<'t>, kind: ProblemKind) {
        // The value of a table begins wherever its first key is.
        let at = match field.value {
            DeValue::Table(_) => field.key_at,
            _ => field.value_at,
        };
        self.report(at, field.path.clone(), kind);
    }

    fn report(&mut self, at: usize, key: String, kind: ProblemKind) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        self.problems.push(Problem {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            key,
            kind,
        });
    }
}

/// Whether the table has an unknown key that was probably meant to be `key`.
fn misspelt(section: &Section<'_>, key: &str, known: &[&'static str]) -> bool {
    let mut names = section.table.keys().map(|name| name.get_ref());
    names.any(|name| !known.contains(&&**name) && nearest(name, known) == Some(key))
}

/// The known word that `wrong` was probably meant to be.
pub(crate) fn nearest(wrong: &str, known: &[&'static str]) -> Option<&'static str> {
    let wrong = quoted(wrong).to_lowercase().replace('-', "_");
    let distance = |known: &str| {
        let known = known.replace('-', "_");
        strsim::osa_distance(&wrong, &known)
    };
    known
        .iter()
        .map(|known| (distance(known), *known))
        .filter(|(distance, known)| *distance <= known.len().div_ceil(3))
        .min()
        .map(|(_, known)| known)
}
