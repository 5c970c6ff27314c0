// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of jobs, for their owners and root: `paceline report`.
//!
//! Those of ended jobs are in the service's state directory, if it has one (systemd's
//! StateDirectory=); else they last as long as the agent.

use std::path::PathBuf;

use paceline_callers::Call;
use paceline_history::{History, Record};

use super::request::{Answer, Code, Inquire, Inquiry, Refused};
use super::Service;
use crate::peer::Peer;
use crate::report;

/// Records in one answer, which has a bounded length.
pub const MOST_RECORDS: usize = 64;
/// In the state directory.
const FILE: &str = "jobs.jsonl";

/// The history of this host, as a former agent left it.
pub(super) fn history() -> History {
    let directory = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    let path = directory.filter(|at| at.is_dir()).map(|at| at.join(FILE));
    match path.as_deref().map(History::in_file) {
        Some(Ok(history)) => history,
        Some(Err(error)) => {
            tracing::warn!("the history of ended jobs begins anew: {error}");
            History::default()
        }
        None => History::default(),
    }
}

impl Service {
    pub(super) fn records(&self, call: &Call) -> Result<Answer, Refused> {
        // The client must be alive: others may hold its socket.
        let user = Peer::of(&call.stream, &call.credentials)?.user;
        let malformed = || Refused::new(Code::Malformed, "not a valid request".to_owned());
        let inquiry = Inquiry::read(&call.request).ok_or_else(malformed)?;
        let mut records: Vec<Record> = report::live(&self.hierarchy)?;
        records.retain(|record| user == 0 || record.owner_uid == user);
        records.extend(self.tally.history(user));
        match inquiry.records {
            Inquire::Job(name) => {
                records.retain(|record| report::is_named(record, &name));
                records.truncate(1);
                if records.is_empty() {
                    let what = format!("there is no job {name} of user {user}, and none among the ended ones that are remembered");
                    return Err(Refused::new(Code::Job, what));
                }
            }
            Inquire::All => {
                records.truncate(MOST_RECORDS);
                for record in &mut records {
                    record.phases.clear();
                    record.trials.clear();
                }
            }
        }
        Ok(Answer::Records(records))
    }
}
