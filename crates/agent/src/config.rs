// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may run which jobs: /etc/paceline/agent.toml.

use std::io::ErrorKind;
use std::path::Path;

use nix::unistd::Group;
use paceline_policy::{presets, Policy};
use toml::de::{DeTable, DeValue};
use toml::Spanned;

use crate::error::{Error, Result};

/// Where the configuration is, if it is anywhere.
pub const DEFAULT_CONFIG: &str = "/etc/paceline/agent.toml";

/// Without a file, or without the key.
const DEFAULT_GROUPS: [&str; 1] = ["paceline"];
/// Those that no policy file is needed for and that shorten no timer.
const DEFAULT_POLICIES: [&str; 3] = ["standard", "pace", "lfn"];

/// A configuration that was checked: its groups exist, its policies are valid.
#[derive(Debug, Clone)]
pub struct Config {
    groups: Vec<(String, libc::gid_t)>,
    policies: Vec<(String, Policy)>,
}

/// What the texts of a list are looked up by; on failure it says what is wrong.
type Lookup<'l, T> = &'l dyn Fn(&str) -> std::result::Result<T, String>;

impl Config {
    /// Reads `path`; without one [`DEFAULT_CONFIG`], which may be absent.
    ///
    /// # Errors
    /// [`Error::Configuration`], or that the file cannot be read.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let file = path.unwrap_or(Path::new(DEFAULT_CONFIG));
        let text = match std::fs::read_to_string(file) {
            Err(error) if path.is_none() && error.kind() == ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| Error::path("read", file, error))?,
        };
        Self::parse(&text, &file.display().to_string(), &group_id)
    }

    fn parse(text: &str, file: &str, group_id: Lookup<libc::gid_t>) -> Result<Self> {
        let mut reader = Reader {
            text,
            file,
            problems: Vec::new(),
        };
        let table = match DeTable::parse(text) {
            Ok(table) => table,
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                reader.report(at, &format!("not TOML: {}", error.message().trim_end()));
                return Err(reader.error());
            }
        };
        let table = table.get_ref();
        for key in table.keys() {
            if !["groups", "policies"].contains(&key.get_ref().as_ref()) {
                let what = format!(
                    "{}: unknown key; known here: groups, policies",
                    key.get_ref().escape_debug()
                );
                reader.report(key.span().start, &what);
            }
        }
        let groups = reader.list(table, "groups", &DEFAULT_GROUPS, group_id);
        let policies = reader.list(table, "policies", &DEFAULT_POLICIES, &policy);
        if reader.problems.is_empty() {
            return Ok(Self { groups, policies });
        }
        Err(reader.error())
    }

    /// Whether members of this group may run jobs.
    pub(crate) fn admits(&self, group: libc::gid_t) -> bool {
        self.groups.iter().any(|(_, id)| *id == group)
    }

    /// The policy that is listed by this name or path.
    pub(crate) fn policy(&self, name: &str) -> Option<&Policy> {
        let (_, policy) = self.policies.iter().find(|(listed, _)| listed == name)?;
        Some(policy)
    }

    /// For messages.
    pub(crate) fn group_names(&self) -> String {
        names(&self.groups)
    }

    /// For messages.
    pub(crate) fn policy_names(&self) -> String {
        names(&self.policies)
    }
}

/// For the fuzzer: agent.toml, on a machine that has any group.
pub fn fuzz(text: &str) {
    // Panics are what is looked for.
    let _ = Config::parse(text, "agent.toml", &|_| Ok(1));
}

fn names<T>(list: &[(String, T)]) -> String {
    let names: Vec<&str> = list.iter().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return "none".to_owned();
    }
    names.join(", ")
}

fn group_id(name: &str) -> std::result::Result<libc::gid_t, String> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!(
            "no group named {name:?} on this host; name one that exists, or make it: groupadd --system {name}"
        )),
        Err(errno) => Err(format!("cannot look up group {name:?}: {errno}")),
    }
}

fn policy(name: &str) -> std::result::Result<Policy, String> {
    let is_path = name.contains('/') || name.ends_with(".toml");
    if is_path && !name.starts_with('/') {
        return Err(format!(
            "{name:?} is neither a preset ({}) nor an absolute path; write /etc/paceline/NAME.toml",
            presets::names().collect::<Vec<_>>().join(", ")
        ));
    }
    Policy::load(name).map_err(|error| error.to_string())
}

struct Reader<'t> {
    text: &'t str,
    file: &'t str,
    /// With their places in the text, to be put in its order.
    problems: Vec<(usize, String)>,
}

impl Reader<'_> {
    fn report(&mut self, at: usize, what: &str) {
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        let text = format!("{}:{line}:{column}: {what}", self.file);
        self.problems.push((at, text));
    }

    fn error(mut self) -> Error {
        self.problems.sort();
        let problems = self.problems.into_iter().map(|(_, line)| line).collect();
        Error::Configuration { problems }
    }

    /// The texts of a list with what they stand for; `default` where the key is absent.
    fn list<T>(
        &mut self,
        table: &DeTable,
        key: &str,
        default: &[&str],
        lookup: Lookup<T>,
    ) -> Vec<(String, T)> {
        let Some((_, value)) = table.iter().find(|(found, _)| found.get_ref() == key) else {
            let default = default.iter().map(|text| (0, (*text).to_owned()));
            return self.look_up(key, default.collect(), lookup);
        };
        let right = format!("{key}: write a list of names in quotes, as {key} = {default:?}");
        let DeValue::Array(items) = value.get_ref() else {
            self.report(value.span().start, &right);
            return Vec::new();
        };
        let mut texts = Vec::new();
        for item in items.iter() {
            match text_of(item) {
                Some(text) => texts.push((item.span().start, text)),
                None => self.report(item.span().start, &right),
            }
        }
        self.look_up(key, texts, lookup)
    }

    fn look_up<T>(
        &mut self,
        key: &str,
        texts: Vec<(usize, String)>,
        lookup: Lookup<T>,
    ) -> Vec<(String, T)> {
        let mut found = Vec::new();
        for (at, text) in texts {
            match lookup(&text) {
                Ok(value) => found.push((text, value)),
                Err(what) => self.report(at, &format!("{key}: {what}")),
            }
        }
        found
    }
}

fn text_of(value: &Spanned<DeValue>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        let known = |name: &str| match name {
            "paceline" => Ok(7),
            "hpc" => Ok(8),
            _ => group_id(name),
        };
        Config::parse(text, "agent.toml", &known)
    }

    fn problems(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        let config = parse("").unwrap();
        assert!(config.admits(7) && !config.admits(8));
        assert_eq!(config.policy_names(), "standard, pace, lfn");
        assert!(config.policy("rto").is_none());
    }

    #[test]
    fn a_file_says_who_may_run_what() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("site.toml");
        std::fs::write(&file, "name = \"site\"\n").unwrap();
        let path = file.to_str().unwrap();
        let text = format!("groups = [\"hpc\"]\npolicies = [\"rto\", {path:?}]\n");
        let config = parse(&text).unwrap();
        assert!(config.admits(8) && !config.admits(7));
        assert_eq!(config.policy(path).unwrap().name, "site");
        // By the path only, not by the name inside.
        assert!(config.policy("site").is_none());
        assert!(config.policy("lfn").is_none());
    }

    #[test]
    fn every_problem_is_named_with_its_place_and_the_right_form() {
        let text =
            "group = []\ngroups = [\"no-such-group\", 3]\npolicies = [\"lnf\", \"mine.toml\"]\n";
        let problems = problems(text);
        let lines: Vec<&str> = problems.lines().collect();
        assert_eq!(lines.len(), 5, "{problems}");
        let expected = [
            ("agent.toml:1:1: group: unknown key", "groups, policies"),
            ("agent.toml:2:11: groups: no group", "groupadd"),
            ("agent.toml:2:28: groups: write a list", "[\"paceline\"]"),
            ("agent.toml:3:13: policies: there is no preset", "\"lfn\"?"),
            ("agent.toml:3:20: policies: \"mine.toml\"", "absolute path"),
        ];
        for (line, (start, part)) in lines.iter().zip(expected) {
            assert!(line.starts_with(start), "{line}");
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn what_is_no_toml_is_said_to_be_none() {
        let problems = problems("groups = [\n");
        assert!(problems.starts_with("agent.toml:"), "{problems}");
        assert!(problems.contains("not TOML"), "{problems}");
    }

    #[test]
    fn a_list_must_be_one() {
        assert!(problems("policies = \"lfn\"\n").contains("write a list"));
    }
}
