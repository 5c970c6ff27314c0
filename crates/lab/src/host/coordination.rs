// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A coordinator for the streams of a workload, and the client on the one machine of all
//! of the lab's hosts: the commands that a user would start.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use paceline_coordinator::algorithm::Choice;
use paceline_net::process::end_with_this_thread;
use paceline_net::Doing;

use super::adaptation::GROUP;
use crate::CaseError;

/// How long the coordinator may take to listen, in steps of [`STEP`].
const STEPS: u32 = 1000;
const STEP: Duration = Duration::from_millis(10);

/// Both processes, for as long as they are needed.
pub struct Coordination {
    server: Child,
    client: Child,
    place: tempfile::TempDir,
}

impl Coordination {
    /// Starts them with an algorithm of the coordinator.
    pub fn start(algorithm: &Choice) -> Result<Self, CaseError> {
        std::fs::create_dir_all(std::env::temp_dir()).doing("making a directory")?;
        let place = tempfile::Builder::new()
            .prefix("paceline-lab-")
            .tempdir()
            .doing("making a directory for the coordinator's socket")?;
        let socket = place.path().join("socket");
        let algorithm = algorithm.to_string();
        let mut server = command(&["serve", "--algorithm", &algorithm, "--listen"], &socket)?;
        for _ in 0..STEPS {
            if socket.exists() {
                break;
            }
            if server.try_wait().doing("starting a coordinator")?.is_some() {
                return Err(CaseError::Unexpected(
                    "the coordinator ended while it started",
                ));
            }
            std::thread::sleep(STEP);
        }
        let client = command(&["join", "--group", GROUP, "--to"], &socket);
        match client {
            Ok(client) => Ok(Coordination {
                server,
                client,
                place,
            }),
            Err(error) => {
                end(&mut server);
                Err(error)
            }
        }
    }

    /// Waits until the coordinator has this many streams. A user starts the coordinator
    /// before a transfer, and the start-up time of two programs in a guest is not part of the
    /// transfer.
    pub fn await_streams(&mut self, streams: usize) -> Result<(), CaseError> {
        let socket = self.place.path().join("socket");
        for _ in 0..STEPS {
            let status = arguments(&["status", "--json", "--to"], &socket)
                .stderr(Stdio::null())
                .output()
                .doing("querying the coordinator")?;
            let status: serde_json::Value =
                serde_json::from_slice(&status.stdout).unwrap_or_default();
            let groups = status["groups"].as_array().into_iter().flatten();
            let clients =
                groups.flat_map(|group| group["clients"].as_array().into_iter().flatten());
            let known: u64 = clients
                .filter_map(|client| client["streams"].as_u64())
                .sum();
            if known == streams as u64 {
                return Ok(());
            }
            if self.failed() {
                break;
            }
            std::thread::sleep(STEP);
        }
        Err(CaseError::Unexpected(
            "the coordinator does not know the streams",
        ))
    }

    /// Kills the coordinator; its client goes on trying to reach it.
    pub fn kill_server(&mut self) {
        end(&mut self.server);
    }

    /// The client's end, if it has ended by itself.
    pub fn failed(&mut self) -> bool {
        !matches!(self.client.try_wait(), Ok(None))
    }
}

impl Drop for Coordination {
    fn drop(&mut self) {
        end(&mut self.client);
        end(&mut self.server);
    }
}

fn end(child: &mut Child) {
    // One that has ended cannot be killed again.
    drop(child.kill());
    drop(child.wait());
}

fn arguments(arguments: &[&str], socket: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("paceline")
        .arg("coordinate")
        .args(arguments)
        .arg(socket)
        .stdin(Stdio::null());
    command
}

fn command(of: &[&str], socket: &Path) -> Result<Child, CaseError> {
    let mut command = arguments(of, socket);
    command.stdout(Stdio::null());
    end_with_this_thread(&mut command);
    Ok(command.spawn().doing("starting a coordinator")?)
}
