// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent's configuration, /etc/paceline/agent.toml: users and their policies.

use std::io::ErrorKind;
use std::path::Path;

use nix::unistd::Group;
use paceline_input::{Document, Format, Place, Problems, Reader};
use paceline_policy::{presets, Policy};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::{Error, Result};

/// Default path of the configuration.
pub const DEFAULT_CONFIG: &str = "/etc/paceline/agent.toml";

/// The default without a file or without the key.
const DEFAULT_GROUPS: [&str; 1] = ["paceline"];
/// Presets that every user may use by default: none is for study only.
const DEFAULT_POLICIES: [&str; 3] = ["standard", "pace", "lfn"];

/// A configuration that was checked: its groups exist, its policies are valid.
#[derive(Debug, Clone)]
pub struct Config {
    groups: Vec<(String, libc::gid_t)>,
    policies: Vec<(String, Policy)>,
}

/// The keys of the agent's configuration. Editors show these comments.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Configuration of Paceline's agent")]
struct File {
    /// Groups whose members may run jobs; absent: the group paceline.
    #[schemars(extend("examples" = [DEFAULT_GROUPS], "items" = items("group")))]
    groups: Vec<String>,
    /// Policies that these users may use: presets, and absolute paths of policy files.
    #[schemars(extend("examples" = [DEFAULT_POLICIES], "items" = items("policy")))]
    policies: Vec<String>,
}

/// Items of a list, in the file's schema.
fn items(format: &str) -> serde_json::Value {
    serde_json::json!({ "type": "string", "format": format })
}

/// The JSON schema of the file.
pub fn schema() -> serde_json::Value {
    paceline_input::schema::<File>()
}

impl Default for File {
    fn default() -> Self {
        File {
            groups: DEFAULT_GROUPS.map(str::to_owned).into(),
            policies: DEFAULT_POLICIES.map(str::to_owned).into(),
        }
    }
}

/// Looks up a name of a list; the error is a message.
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
        let document = Document::new(file, text);
        let formats: [Format<'_>; 2] = [
            ("group", &|name| group_id(name).map(drop)),
            ("policy", &|name| policy(name).map(drop)),
        ];
        let keys = Reader::<File>::default().read(&document, &formats)?;
        Ok(document.check(|place| {
            Ok(Self {
                groups: look_up(keys.groups, &place.key("groups"), group_id),
                policies: look_up(keys.policies, &place.key("policies"), &policy),
            })
        })?)
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

    /// All policies that are listed.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> + Clone {
        self.policies.iter().map(|(_, policy)| policy)
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

/// For the fuzzer: the problems of an agent.toml, on a machine where every group exists.
pub fn fuzz(text: &str) -> Option<Problems> {
    match Config::parse(text, "agent.toml", &|_| Ok(1)) {
        Err(Error::Configuration(problems)) => Some(problems),
        _ => None,
    }
}

/// The names of a list with their values.
fn look_up<T>(names: Vec<String>, place: &Place<'_>, lookup: Lookup<T>) -> Vec<(String, T)> {
    let mut found = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        match lookup(&name) {
            Ok(value) => found.push((name, value)),
            Err(what) => {
                place.item(index).wrong(what);
            }
        }
    }
    found
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
    fn a_file_lists_permitted_groups_and_policies() {
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
            ("agent.toml:2:28: groups: a whole number", "a string"),
            ("agent.toml:3:13: policies: there is no preset", "\"lfn\"?"),
            ("agent.toml:3:20: policies: \"mine.toml\"", "absolute path"),
        ];
        for (line, (start, part)) in lines.iter().zip(expected) {
            assert!(line.starts_with(start), "{line}");
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn an_invalid_toml_file_is_reported_as_not_toml() {
        let problems = problems("groups = [\n");
        assert!(problems.starts_with("agent.toml:"), "{problems}");
        assert!(problems.contains("not TOML"), "{problems}");
    }

    #[test]
    fn a_list_must_be_one() {
        assert!(problems("policies = \"lfn\"\n").contains("write a list"));
    }
}
