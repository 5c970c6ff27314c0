// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline set` of a job's owner.
//!
//! A user may put own jobs under any policy that the administrator lists, and may set
//! single keys that are harmless, or within the bounds of the listed policies
//! ([`paceline_policy::change::Owner`]). Attached jobs are excluded.

use paceline_policy::change::{check_owner, Assignment};
use paceline_policy::PolicyError;

use super::client::listed;
use super::request::{Answer, Asked, Code, Refused, Setting};
use super::Service;
use crate::error::Error;
use crate::peer::Peer;
use crate::set::{set_own, Change};
use paceline_callers::Call;

impl Service {
    pub(super) fn set(&self, call: &Call) -> Result<Answer, Refused> {
        // The client must be alive: others may hold its socket.
        let peer = Peer::of(&call.stream, &call.credentials)?;
        let malformed = || Refused::new(Code::Malformed, "not a valid request".to_owned());
        let setting = Setting::read(&call.request).ok_or_else(malformed)?;
        let change = self.allowed(&setting.set)?;
        let report = set_own(&self.hierarchy, peer.user, setting.job, &change)?;
        tracing::info!(
            "user {} has changed job {}: keys {}, running connections {}",
            peer.user,
            setting.job,
            report.keys.len(),
            report.connections
        );
        Ok(Answer::Set(Box::new(report)))
    }

    fn allowed(&self, asked: &Asked) -> Result<Change, Refused> {
        Ok(match asked {
            Asked::Reset => Change::Reset,
            Asked::Policy(name) => Change::Policy(Box::new(self.listed(name)?.clone())),
            Asked::Keys(keys) => {
                let parse = |text: &String| text.parse::<Assignment>();
                let keys: Result<Vec<_>, _> = keys.iter().map(parse).collect();
                let refused = |what| Error::from(PolicyError::Settings(vec![what]));
                let keys = keys.map_err(refused)?;
                check_owner(&keys, self.config.policies()).map_err(Error::from)?;
                Change::Keys(keys)
            }
        })
    }
}

impl Asked {
    /// A policy from the agent's list; a file by its path.
    pub fn policy(name: &str) -> Self {
        Self::Policy(listed(name))
    }

    /// Single keys.
    pub fn keys(assignments: &[Assignment]) -> Self {
        let text = |one: &Assignment| match &one.value {
            Some(value) => format!("{}={value}", one.key),
            None => format!("{}=", one.key),
        };
        Self::Keys(assignments.iter().map(text).collect())
    }
}
