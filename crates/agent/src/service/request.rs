// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol between `paceline run` and the agent: one line of JSON in each direction.

use std::fmt;
use std::path::PathBuf;

use paceline_abi::PL_ABI_VERSION;
use paceline_history::{Counts, Record};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::set::Report;

/// Bytes of a request at most: a path of PATH_MAX, a name, and the JSON around them.
pub(super) const LONGEST: usize = 8192;

/// A request for a job. It does not identify the requesting process: the kernel does.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// PL_ABI_VERSION of the client.
    pub abi: u32,
    /// As the administrator lists it.
    pub policy: String,
    /// A name for `status`.
    pub group: Option<String>,
}

/// A question about the requesting process's own job.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    /// PL_ABI_VERSION of the client.
    pub abi: u32,
    pub about: About,
}

/// The questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum About {
    /// The counts of the connections that the job has made so far.
    Connections,
}

/// A request to change a job of the requesting user.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    /// PL_ABI_VERSION of the client.
    pub abi: u32,
    /// Id of the job's cgroup. The kernel side knows its owner.
    pub job: u64,
    pub set: Asked,
}

/// A request for the records of the requesting user's jobs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inquiry {
    /// PL_ABI_VERSION of the client.
    pub abi: u32,
    pub records: Inquire,
}

/// The records that are requested.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Inquire {
    /// The newest, in short.
    All,
    /// One, by [`crate::report::is_named`].
    Job(String),
}

/// The change that is requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// `KEY=VALUE`s.
    Keys(Vec<String>),
    /// A policy, as the administrator lists it.
    Policy(String),
    /// The policy that the job began with.
    Reset,
}

/// The agent's answer.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// The requesting process is in its job.
    Started(Started),
    /// The counts that were requested.
    Connections(Counts),
    /// The job has been changed.
    Set(Box<Report>),
    /// The step of the process is under the policy.
    Attached(Attached),
    /// The counts of a step's job.
    Reported(Reported),
    /// The records that were requested.
    Records(Vec<Record>),
    /// Nothing was changed.
    Refused(Refused),
}

/// A job that was made.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    /// Its directory.
    pub cgroup: PathBuf,
    /// Its processes may ask for phase pages.
    pub phases: bool,
    /// The cgroup is a scheduler's step or a container: the client stays in it.
    pub shared: bool,
}

/// A step that is under a policy.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Attached {
    /// Number of its job
    pub job: u64,
    /// Directory of the step's cgroup
    pub cgroup: PathBuf,
    /// With a policy of several phases: where the processes get their pages, for the variable
    /// PACELINE_SOCKET
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PathBuf>,
}

/// Outcome of a step's connections.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Reported {
    /// In one line, for people
    pub text: String,
    /// In numbers
    pub counts: Counts,
    /// Traffic of those connections, in one line, for people
    #[serde(default)]
    pub traffic: String,
}

/// Why there is no job.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Refused {
    pub code: Code,
    pub message: String,
}

/// The kinds of refusals, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Code {
    /// The client has another version.
    Version,
    /// The line is not a request.
    Malformed,
    /// The user is in none of the allowed groups.
    Group,
    /// The policy is not allowed.
    Policy,
    /// The user, or the host, has the maximum number of jobs.
    TooManyJobs,
    /// The client has ended, or the agent cannot see its process.
    Peer,
    /// The user has no such job.
    Job,
    /// The request is for root only.
    NotRoot,
    /// Any other failure.
    Failed,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = serde_json::to_value(self).map_err(|_| fmt::Error)?;
        f.write_str(name.as_str().unwrap_or_default())
    }
}

impl Refused {
    pub fn new(code: Code, message: String) -> Self {
        Self { code, message }
    }
}

impl From<paceline_cgroup::Error> for Refused {
    fn from(error: paceline_cgroup::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::TooManyJobs { .. } | Error::TooManyJobsOfUser { .. } => Code::TooManyJobs,
            Error::PeerGone { .. } | Error::PeerOutside { .. } => Code::Peer,
            Error::NoSuchJob { .. } => Code::Job,
            Error::Policy(_) => Code::Policy,
            _ => Code::Failed,
        };
        Self::new(code, error.to_string())
    }
}

/// Whether a whole line has come.
pub(super) fn is_complete(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\n")
}

impl Question {
    /// The question, if the line is one.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let question: Self = serde_json::from_slice(bytes).ok()?;
        (question.abi == PL_ABI_VERSION).then_some(question)
    }
}

impl Inquiry {
    /// The request, if the line is one.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let inquiry: Self = serde_json::from_slice(bytes).ok()?;
        (inquiry.abi == PL_ABI_VERSION).then_some(inquiry)
    }
}

impl Setting {
    /// The request, if the line is one.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let setting: Self = serde_json::from_slice(bytes).ok()?;
        (setting.abi == PL_ABI_VERSION).then_some(setting)
    }
}

impl Request {
    /// The request, checked.
    pub fn read(bytes: &[u8]) -> Result<Self, Refused> {
        let malformed = |what: String| Refused::new(Code::Malformed, what);
        if !is_complete(bytes) {
            let what = format!("a request is one line of less than {LONGEST} bytes");
            return Err(malformed(what));
        }
        // The version first: the rest of another version's request may look otherwise.
        let value: serde_json::Value = serde_json::from_slice(bytes)
            .map_err(|error| malformed(format!("a request is JSON: {error}")))?;
        let abi = value.get("abi").and_then(serde_json::Value::as_u64);
        if abi.is_some_and(|abi| abi != u64::from(PL_ABI_VERSION)) {
            return Err(Refused::new(
                Code::Version,
                "the versions of this paceline and of the agent differ: restart the agent with the installed paceline"
                    .to_owned(),
            ));
        }
        let request: Self = serde_json::from_value(value)
            .map_err(|error| malformed(format!("not a valid job request: {error}")))?;
        // `status` writes the name to a terminal, which may be root's.
        let group = request.group.as_deref().unwrap_or("");
        if group.chars().any(char::is_control) {
            let what = "a job's name has no control characters".to_owned();
            return Err(malformed(what));
        }
        Ok(request)
    }
}

impl Answer {
    /// As it is sent.
    pub fn to_line(&self) -> Vec<u8> {
        line(self)
    }
}

/// One line of JSON.
pub(super) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("strings and numbers always serialize");
    line.push(b'\n');
    line
}

/// For the fuzzer: bytes at jobs.sock, read as a request and as an agent's answer.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(request) = Request::read(bytes) {
        assert_eq!(Request::read(&line(&request)), Ok(request));
    }
    if let Some(setting) = Setting::read(bytes) {
        assert_eq!(Setting::read(&line(&setting)), Some(setting));
    }
    if let Some(inquiry) = Inquiry::read(bytes) {
        assert_eq!(Inquiry::read(&line(&inquiry)), Some(inquiry));
    }
    let _ = serde_json::from_slice::<Answer>(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        Request::read(text.as_bytes()).unwrap_err().code
    }

    #[test]
    fn a_request_survives_the_way() {
        let request = Request {
            abi: PL_ABI_VERSION,
            policy: "lfn".to_owned(),
            group: Some("a \"name\"".to_owned()),
        };
        let bytes = line(&request);
        assert!(is_complete(&bytes));
        assert_eq!(Request::read(&bytes), Ok(request));
    }

    #[test]
    fn a_question_differs_from_a_request() {
        let mut question = Question {
            abi: PL_ABI_VERSION,
            about: About::Connections,
        };
        let bytes = line(&question);
        assert_eq!(code(std::str::from_utf8(&bytes).unwrap()), Code::Malformed);
        assert_eq!(Question::read(&bytes).as_ref(), Some(&question));
        question.abi += 1;
        assert_eq!(Question::read(&line(&question)), None);
    }

    #[test]
    fn an_inquiry_differs_from_a_request() {
        let inquiry = Inquiry {
            abi: PL_ABI_VERSION,
            records: Inquire::Job("4711".to_owned()),
        };
        let bytes = line(&inquiry);
        assert_eq!(code(std::str::from_utf8(&bytes).unwrap()), Code::Malformed);
        assert_eq!(Inquiry::read(&bytes), Some(inquiry));
        let bare = format!("{{\"abi\":{PL_ABI_VERSION}}}\n");
        assert_eq!(Inquiry::read(bare.as_bytes()), None);
    }

    #[test]
    fn a_setting_differs_from_a_request() {
        let mut setting = Setting {
            abi: PL_ABI_VERSION,
            job: 7,
            set: Asked::Keys(vec!["ack.delay=12ms".to_owned()]),
        };
        let bytes = line(&setting);
        assert_eq!(code(std::str::from_utf8(&bytes).unwrap()), Code::Malformed);
        assert_eq!(Setting::read(&bytes).as_ref(), Some(&setting));
        setting.abi += 1;
        let bytes = line(&setting);
        assert_eq!(Setting::read(&bytes), None);
        assert_eq!(code(std::str::from_utf8(&bytes).unwrap()), Code::Version);
    }

    #[test]
    fn malformed_requests_are_refused() {
        let abi = PL_ABI_VERSION;
        for text in [
            "\n".to_owned(),
            "nonsense\n".to_owned(),
            "{}\n".to_owned(),
            format!("{{\"abi\":{abi}}}\n"),
            // No request names a user or a job.
            format!("{{\"abi\":{abi},\"policy\":\"lfn\",\"uid\":0}}\n"),
            // Cut at the limit.
            format!("{{\"abi\":{abi},\"policy\":\"lfn\"}}"),
            // It would reach the terminal of a reader of `status`.
            format!("{{\"abi\":{abi},\"policy\":\"lfn\",\"group\":\"\\u001b[2J\"}}\n"),
        ] {
            assert_eq!(code(&text), Code::Malformed, "{text:?}");
        }
        let other = format!("{{\"abi\":{},\"other\":1}}\n", abi + 1);
        assert_eq!(code(&other), Code::Version);
        assert_eq!(Code::TooManyJobs.to_string(), "too-many-jobs");
    }
}
