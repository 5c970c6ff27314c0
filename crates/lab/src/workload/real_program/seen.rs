// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that a program's connections have the variant's policy.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use paceline_agent::status;
use paceline_experiment::record::Governed;
use paceline_net::connection::Congestion;
use paceline_net::{Doing, Error};

use super::CaseError;
use crate::network::topology::Network;

/// The first look, from the program's start; each other one comes after as long again,
/// because a look takes CPU time from the program.
const FIRST_LOOK: Duration = Duration::from_millis(500);

/// Whether a connection between the clusters has the variant's congestion control, at
/// both ends.
pub fn check(network: &Network, congestion: &Congestion) -> Result<(), CaseError> {
    let place = SocketAddr::new(network.receiver_address(0).ip(), 0);
    let listener = network
        .receiver
        .enter(|| TcpListener::bind(place).doing("listening on a host"))?;
    let address = listener.local_addr().doing("listening on a host")?;
    let stream =
        network.senders[0].enter(|| TcpStream::connect(address).doing("connecting two hosts"))?;
    let (accepted, _) = listener.accept().doing("connecting two hosts")?;
    congestion.check(&stream)?;
    Ok(congestion.check(&accepted)?)
}

/// Observations of a program's job.
pub struct Seen<'a> {
    cgroup: PathBuf,
    congestion: &'a Congestion,
    next: Duration,
    governed: Governed,
    /// By process; processes that ended meanwhile count, too.
    phases: BTreeMap<i32, u64>,
}

impl<'a> Seen<'a> {
    pub fn new(cgroup: &Path, congestion: &'a Congestion) -> Self {
        Seen {
            cgroup: cgroup.to_owned(),
            congestion,
            next: FIRST_LOOK,
            governed: Governed::default(),
            phases: BTreeMap::new(),
        }
    }

    /// Looks if it is time, so long after the program's start.
    pub fn look_after(&mut self, gone: Duration) -> Result<(), CaseError> {
        if gone < self.next {
            return Ok(());
        }
        self.next = gone * 2;
        self.look()
    }

    /// The last look.
    pub fn at_the_end(&mut self) -> Result<Governed, CaseError> {
        self.look()?;
        Ok(self.governed)
    }

    fn look(&mut self) -> Result<(), CaseError> {
        let status = status::status().map_err(|error| CaseError::Policy {
            message: error.to_string(),
        })?;
        let mut jobs = status.jobs.iter();
        let own = jobs.find(|job| job.cgroup.as_ref() == Some(&self.cgroup));
        let Some(job) = own else {
            return Ok(());
        };
        if job.refused > 0 {
            return Err(CaseError::Policy {
                message: format!(
                    "the kernel refused a setting on {} connections: see the output of paceline doctor",
                    job.refused
                ),
            });
        }
        for connection in &job.connections {
            let expected = self.congestion.expected.as_ref();
            // Connections not established yet and loopback ones do not have it.
            let governed = connection.reason == "none" && connection.state == "established";
            if let Some(expected) = expected.filter(|_| governed) {
                if connection.congestion != *expected {
                    return Err(Error::Congestion {
                        found: connection.congestion.clone(),
                        expected: expected.clone(),
                    }
                    .into());
                }
            }
        }
        for process in &job.processes {
            let entered = process
                .phases
                .iter()
                .flat_map(|phases| phases.entered.values());
            let most = self.phases.entry(process.pid).or_default();
            *most = (*most).max(entered.sum());
        }
        self.governed = Governed {
            connections: job.governed,
            phases: self.phases.values().sum(),
        };
        Ok(())
    }
}
