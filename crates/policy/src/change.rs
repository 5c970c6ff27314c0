// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single keys of a policy: given another value, and read.
//!
//! A key's row in `KEYS` has the effect of a new value on a running connection, and the values
//! that the owner of a job may set without root.

use std::str::FromStr;

use paceline_input::units::Time;
use toml::{Table, Value};

use crate::error::PolicyError;
use crate::policy::Policy;

/// `KEY=VALUE`: a dotted key of a policy file, and its value without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// As `ack.delay`.
    pub key: String,
    /// `None` (`KEY=`): the key, or the whole table, is left out, as the kernel does.
    pub value: Option<String>,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let text = paceline_input::quoted(text);
            format!("{text:?} is no KEY=VALUE: write, for example, ack.delay=12ms")
        };
        let (key, value) = text.split_once('=').ok_or_else(wrong)?;
        let (key, value) = (key.trim(), value.trim());
        let part = |part: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            !part.is_empty() && part.chars().all(allowed)
        };
        if !key.split('.').all(part) {
            return Err(wrong());
        }
        Ok(Self {
            key: key.to_owned(),
            value: Some(value.to_owned()).filter(|value| !value.is_empty()),
        })
    }
}

/// The effect of a key's new value on a running connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    /// It has the new value at once.
    Now,
    /// Only a smaller one: the kernel never raises rttvar to a larger minimum RTO
    /// (tcp_rtt_estimator), so a larger one has no effect.
    Smaller,
    /// Nothing: new connections only.
    Never,
}

/// The values that the owner of a job may set by the agent, without root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Any value that a file may have: it is gentler than the kernel, or at the owner's expense.
    Any,
    /// Not less than the least of the policies that the administrator lists.
    NotLess,
    /// Not more than the most of these, or the kernel's own.
    NotMore,
    /// Nothing: by the name of a listed policy only.
    Nothing,
}

/// One row for each key of a policy file.
const KEYS: [(&str, Running, Owner); 28] = [
    ("base", Running::Now, Owner::Nothing),
    ("startup.target", Running::Now, Owner::Nothing),
    ("startup.initial_rate", Running::Now, Owner::Nothing),
    ("startup.half_life", Running::Now, Owner::Nothing),
    ("startup.phases", Running::Now, Owner::Nothing),
    ("startup.breaker", Running::Now, Owner::Nothing),
    ("startup.breaker.loss", Running::Now, Owner::Nothing),
    ("startup.breaker.starts", Running::Now, Owner::Nothing),
    ("startup.breaker.hold", Running::Now, Owner::Nothing),
    ("rto.least", Running::Smaller, Owner::NotLess),
    ("rto.jitter", Running::Smaller, Owner::Any),
    ("rto.backoff", Running::Now, Owner::Nothing),
    ("ack.delay", Running::Now, Owner::Any),
    ("rto.most", Running::Now, Owner::Nothing),
    ("ack.every", Running::Now, Owner::Nothing),
    ("window.again", Running::Now, Owner::Nothing),
    ("window.fixed", Running::Now, Owner::Nothing),
    ("socket.nodelay", Running::Now, Owner::Any),
    ("window.initial", Running::Never, Owner::NotMore),
    ("streams.even", Running::Now, Owner::Nothing),
    ("spacing.clustered", Running::Now, Owner::Nothing),
    ("spacing.line_rate", Running::Now, Owner::Nothing),
    ("spacing.gap", Running::Now, Owner::Nothing),
    ("options.interface", Running::Never, Owner::Nothing),
    ("options.timestamps", Running::Never, Owner::Nothing),
    ("options.window_scaling", Running::Never, Owner::Nothing),
    ("options.sack", Running::Never, Owner::Nothing),
    ("report.held_out", Running::Now, Owner::Any),
];

/// The kernel's initial window, segments (TCP_INIT_CWND).
const KERNELS_INITIAL: u64 = 10;
/// The kernel's minimum RTO, microseconds (TCP_RTO_MIN).
const KERNELS_RTO_US: u64 = 200_000;

/// Whether running connections follow a key, of a policy that was the one and is the other.
pub fn follows(key: &str, was: &Policy, is: &Policy) -> bool {
    match row(key).1 {
        Running::Now => true,
        Running::Smaller => most_rto_us(is) <= most_rto_us(was),
        Running::Never => false,
    }
}

/// The largest minimum RTO of a connection: with all of the jitter.
fn most_rto_us(policy: &Policy) -> u64 {
    let jitter = number_of(policy, "rto.jitter").unwrap_or(0);
    number_of(policy, "rto.least").map_or(KERNELS_RTO_US, |least| least + jitter)
}

/// The values of this key that the owner of a job may set.
pub fn owner(key: &str) -> Owner {
    row(key).2
}

fn row(key: &str) -> (&'static str, Running, Owner) {
    let rows = KEYS.into_iter().find(|(known, ..)| *known == key);
    rows.unwrap_or(("", Running::Now, Owner::Nothing))
}

/// Whether it is a key, or a table of keys.
fn is_known(key: &str) -> bool {
    KEYS.into_iter().any(|(known, ..)| {
        let below = known.strip_prefix(key);
        below.is_some_and(|below| below.is_empty() || below.starts_with('.'))
    })
}

impl Policy {
    /// This policy with other values of some keys, checked as a file is checked.
    ///
    /// # Errors
    /// [`PolicyError::Settings`] with every problem of the whole policy that results.
    pub fn with(&self, assignments: &[Assignment]) -> Result<Self, PolicyError> {
        let mut table = self.to_table();
        let mut problems = Vec::new();
        for (number, assignment) in assignments.iter().enumerate() {
            let key = &assignment.key;
            if matches!(key.as_str(), "name" | "description") {
                problems.push(format!(
                    "{key}: is no setting: give another policy by --policy"
                ));
            }
            if assignments[..number].iter().any(|other| other.key == *key) {
                problems.push(format!("{key}: is given twice"));
            }
            // The reader does not see a key that is left out.
            if assignment.value.is_none() && !is_known(key) {
                problems.push(format!(
                    "{key}: unknown key, so there is nothing to leave out"
                ));
            }
            put(&mut table, key, assignment.value.as_deref());
        }
        let text = toml::to_string(&table).expect("a table of strings and integers");
        let policy = Policy::parse(&text, "set");
        if let Err(PolicyError::Invalid(found)) = &policy {
            problems.extend(
                found
                    .list
                    .iter()
                    .map(paceline_input::Problem::without_place),
            );
        }
        if problems.is_empty() {
            policy
        } else {
            Err(PolicyError::Settings(problems))
        }
    }

    /// All keys with their values, as `ack.delay` and `12ms`, in the order of a file; name
    /// and description are none.
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        flatten("", &self.to_table(), &mut settings);
        settings.retain(|(key, _)| !matches!(key.as_str(), "name" | "description"));
        settings
    }

    fn to_table(&self) -> Table {
        Table::try_from(self).expect("a policy is strings and integers in tables")
    }
}

/// Problems of an owner's values; `listed`: the policies that the administrator allows by name.
///
/// # Errors
/// One line for each key that is not the owner's to set.
pub fn check_owner<'p>(
    assignments: &[Assignment],
    listed: impl Iterator<Item = &'p Policy> + Clone,
) -> Result<(), PolicyError> {
    let mut problems = Vec::new();
    for Assignment { key, value } in assignments {
        let number = value.as_deref().and_then(number);
        match (owner(key), number) {
            (Owner::Any, _) => {}
            // Left out is the kernel's own; the policy's check refuses a value that is no number.
            (Owner::NotLess | Owner::NotMore, None) => {}
            (Owner::NotLess, Some(asked)) => {
                let least = listed.clone().filter_map(|policy| number_of(policy, key)).min();
                if asked < least.unwrap_or(KERNELS_RTO_US) {
                    problems.push(format!(
                        "{key}: less than any policy that the administrator lists has: ask for more, or be root"
                    ));
                }
            }
            (Owner::NotMore, Some(asked)) => {
                let most = listed.clone().filter_map(|policy| number_of(policy, key)).max();
                if asked > most.unwrap_or(0).max(KERNELS_INITIAL) {
                    problems.push(format!(
                        "{key}: more than any policy that the administrator lists has: ask for less, or be root"
                    ));
                }
            }
            (Owner::Nothing, _) if !is_known(key) => {
                problems.push(format!("{key}: is no key that can be set"));
            }
            (Owner::Nothing, _) => problems.push(format!(
                "{key}: only root sets this key: without root use --policy with one of the listed policies, or set {}",
                owners()
            )),
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(PolicyError::Settings(problems))
    }
}

fn owners() -> String {
    let keys = KEYS
        .into_iter()
        .filter(|(.., owner)| *owner != Owner::Nothing);
    let keys: Vec<&str> = keys.map(|(key, ..)| key).collect();
    keys.join(", ")
}

fn number_of(policy: &Policy, key: &str) -> Option<u64> {
    let settings = policy.settings();
    let (_, value) = settings.iter().find(|(known, _)| known == key)?;
    number(value)
}

/// To compare: a time in microseconds, or a count. "tick" is less than all that a file may have.
fn number(value: &str) -> Option<u64> {
    if let Ok(count) = value.parse() {
        return Some(count);
    }
    match value {
        "tick" => Some(1),
        time => time.parse::<Time>().ok().map(Time::micros),
    }
}

/// The value at a dotted key, or nothing there.
fn put(table: &mut Table, key: &str, value: Option<&str>) {
    let Some((first, rest)) = key.split_once('.') else {
        match value {
            Some(value) => drop(table.insert(key.to_owned(), typed(value))),
            None => drop(table.remove(key)),
        }
        return;
    };
    let below = table.entry(first).or_insert_with(|| Table::new().into());
    // As `breaker = "off"` that gets keys.
    if !below.is_table() {
        *below = Table::new().into();
    }
    if let Value::Table(below) = below {
        put(below, rest, value);
        if below.is_empty() {
            table.remove(first);
        }
    }
}

/// A file's values without quotes are counts and switches; all others are strings.
fn typed(value: &str) -> Value {
    if let Ok(count) = value.parse::<i64>() {
        return Value::Integer(count);
    }
    match value {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        text => Value::String(text.to_owned()),
    }
}

fn flatten(above: &str, table: &Table, settings: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let key = match above {
            "" => key.clone(),
            above => format!("{above}.{key}"),
        };
        match value {
            Value::Table(below) => flatten(&key, below, settings),
            Value::String(text) => settings.push((key, text.clone())),
            other => settings.push((key, other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(policy: &Policy, assignments: &[&str]) -> Result<Policy, PolicyError> {
        let parse = |text: &&str| text.parse::<Assignment>().unwrap();
        policy.with(&assignments.iter().map(parse).collect::<Vec<_>>())
    }

    fn lfn() -> Policy {
        Policy::preset("lfn").unwrap()
    }

    /// Every dotted key of the file's schema.
    fn keys_of(
        schema: &serde_json::Value,
        all: &serde_json::Value,
        at: &str,
        to: &mut Vec<String>,
    ) {
        let schema = match schema["$ref"].as_str() {
            Some(name) => &all["$defs"][name.rsplit('/').next().unwrap()],
            None => schema,
        };
        for part in ["anyOf", "oneOf"] {
            for one in schema[part].as_array().into_iter().flatten() {
                keys_of(one, all, at, to);
            }
        }
        let Some(properties) = schema["properties"].as_object() else {
            return;
        };
        to.retain(|key| key != at);
        for (key, below) in properties {
            let key = match at {
                "" => key.clone(),
                at => format!("{at}.{key}"),
            };
            to.push(key.clone());
            keys_of(below, all, &key, to);
        }
    }

    #[test]
    fn each_key_of_the_file_has_a_row() {
        let schema = crate::schema();
        let mut keys = Vec::new();
        keys_of(&schema, &schema, "", &mut keys);
        keys.retain(|key| !matches!(key.as_str(), "name" | "description"));
        assert!(keys.len() > 12, "{keys:?}");
        for key in &keys {
            assert_eq!(row(key).0, key, "KEYS of this file lacks it");
        }
    }

    #[test]
    fn keys_get_other_values_and_all_else_stays() {
        let changed = set(
            &lfn(),
            &[
                "ack.delay=12ms",
                "window.initial=20",
                "startup.breaker.loss=10%",
                "rto.jitter=",
            ],
        )
        .unwrap();
        let mut expected = lfn().settings();
        for (key, value) in [("ack.delay", "12ms"), ("startup.breaker.loss", "10%")] {
            let of_key = expected.iter_mut().find(|(known, _)| known == key);
            of_key.unwrap().1 = value.to_owned();
        }
        expected.retain(|(key, _)| key != "rto.jitter");
        let at = expected
            .iter()
            .position(|(key, _)| key == "ack.delay")
            .unwrap();
        expected.insert(at + 1, ("window.initial".to_owned(), "20".to_owned()));
        assert_eq!(changed.settings(), expected);
        assert_eq!(changed.name, "lfn");
        // From a word to a table, and back.
        let off = set(&changed, &["startup.breaker=off"]).unwrap();
        assert_eq!(off.startup.as_ref().unwrap().breaker, None);
        let on = set(&off, &["startup.breaker.starts=3"]).unwrap();
        assert_eq!(on.startup.unwrap().breaker.unwrap().starts, 3);
        // A whole table.
        assert_eq!(set(&lfn(), &["startup="]).unwrap().startup, None);
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let wrong = set(
            &lfn(),
            &[
                "ack.dely=12ms",
                "rto.least=1ms",
                "name=x",
                "base=keep",
                "base=keep",
            ],
        );
        let message = wrong.unwrap_err().to_string();
        for part in [
            "ack.dely: unknown key",
            "rto.least: 1ms is out of range",
            "name: is no setting",
            "base: is given twice",
        ] {
            assert!(message.contains(part), "{part} in {message}");
        }
        let message = set(&lfn(), &["ack.dely=", "sta="]).unwrap_err().to_string();
        for part in ["ack.dely: unknown key", "sta: unknown key"] {
            assert!(message.contains(part), "{part} in {message}");
        }
        // The whole policy that results is checked.
        let message = set(&lfn(), &["base=keep"]).unwrap_err().to_string();
        assert!(
            message.contains("startup.target: needs a wrapped"),
            "{message}"
        );
    }

    #[test]
    fn malformed_assignments_are_refused() {
        for text in [
            "ack.delay",
            "=1",
            "ack..delay=1",
            "a b=1",
            "[ack]=1",
            "ack.=1",
        ] {
            let message = text.parse::<Assignment>().unwrap_err();
            assert!(message.contains("KEY=VALUE"), "{message}");
        }
        let unset: Assignment = "ack.delay=".parse().unwrap();
        assert_eq!(unset.value, None);
    }

    #[test]
    fn only_a_smaller_minimum_rto_reaches_running_connections() {
        let least =
            |text: &str| set(&Policy::parse("name = \"a\"", "a").unwrap(), &[text]).unwrap();
        let (short, long) = (least("rto.least=8ms"), least("rto.least=40ms"));
        assert!(follows("rto.least", &long, &short));
        assert!(!follows("rto.least", &short, &long));
        let none = Policy::parse("name = \"a\"", "a").unwrap();
        assert!(follows("rto.least", &none, &long) && !follows("rto.least", &long, &none));
        let jitter = set(&short, &["rto.jitter=4ms"]).unwrap();
        assert!(!follows("rto.jitter", &short, &jitter) && follows("rto.jitter", &jitter, &short));
        assert!(follows("ack.delay", &short, &long) && !follows("window.initial", &short, &long));
    }

    #[test]
    fn an_owner_sets_what_is_harmless_or_within_what_is_listed() {
        let listed = [set(&lfn(), &["rto.least=8ms", "window.initial=16"]).unwrap()];
        let check = |text: &str| {
            let assignment: Assignment = text.parse().unwrap();
            check_owner(&[assignment], listed.iter()).map_err(|error| error.to_string())
        };
        for fine in [
            "ack.delay=tick",
            "rto.jitter=9ms",
            "rto.least=8ms",
            "rto.least=200ms",
            "rto.least=",
            "window.initial=16",
            "window.initial=1",
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        for (refused, part) in [
            ("rto.least=7ms", "rto.least: less than any"),
            ("rto.least=tick", "rto.least: less than any"),
            ("window.initial=17", "window.initial: more than any"),
            ("base=bbr", "base: only root"),
            (
                "startup.initial_rate=1gbit",
                "startup.initial_rate: only root",
            ),
            ("startup=", "startup: only root"),
            ("ack.every=4", "ack.every: only root"),
        ] {
            let message = check(refused).unwrap_err();
            assert!(message.starts_with(part), "{message}");
        }
        // Where no listed policy has the key, the kernel's own value is the bound.
        let none = |text: &str| check_owner(&[text.parse().unwrap()], std::iter::empty());
        assert!(none("rto.least=199ms").is_err() && none("rto.least=200ms").is_ok());
        assert!(none("window.initial=11").is_err() && none("window.initial=10").is_ok());
    }
}
