// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of a real program on the hosts: an MPI launcher, or a server and its client.

use std::ffi::CString;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_net::Doing;
use paceline_testbed::mark::Process;
use paceline_testbed::node;
use paceline_testbed::site::Site;

use super::place::Place;
use super::{CaseError, Job};

/// The program. It ends when this is dropped, and with it all that runs on the hosts.
pub struct Running<'a> {
    site: &'a Site,
    server: Option<Child>,
    /// The launcher, or the client, once it has been started.
    main: Option<(Child, Process)>,
    pub started: Instant,
}

impl<'a> Running<'a> {
    /// Nothing yet.
    pub fn on(site: &'a Site) -> Self {
        Running {
            site,
            server: None,
            main: None,
            started: Instant::now(),
        }
    }

    /// Starts the server on a host; see [`is_ready`].
    pub fn serve(
        &mut self,
        command: Command,
        place: &Place,
        job: Option<&Arc<Job>>,
    ) -> Result<(), CaseError> {
        self.server = Some(self.spawn(command, place, true, (0, job))?);
        Ok(())
    }

    /// Starts the program itself on `host`, in `job` if that is where it belongs.
    pub fn start(
        &mut self,
        command: Command,
        place: &Place,
        (host, job): (usize, Option<&Arc<Job>>),
    ) -> Result<(), CaseError> {
        self.started = Instant::now();
        let child = self.spawn(command, place, false, (host, job))?;
        let process = Process::open(child.id()).doing("watching a program")?;
        self.main = Some((child, process));
        Ok(())
    }

    fn spawn(
        &self,
        mut command: Command,
        place: &Place,
        is_server: bool,
        (host, job): (usize, Option<&Arc<Job>>),
    ) -> Result<Child, CaseError> {
        place.hold(&mut command, is_server)?;
        let entrance = self.site.entrance(host)?;
        let directory = CString::new(place.work().as_os_str().as_bytes())
            .map_err(|_| CaseError::Unexpected("a temporary directory has a NUL in its name"))?;
        // SAFETY: system calls only, on what was made before the fork.
        unsafe {
            command.pre_exec(move || {
                node::join(&entrance)?;
                match libc::chdir(directory.as_ptr()) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        let program = command.get_program().to_string_lossy().into_owned();
        Job::inside(job, || {
            Ok(command.spawn().doing(format!("starting {program}"))?)
        })
    }

    /// How the server ended, if it did.
    pub fn server_ended(&mut self) -> Result<Option<ExitStatus>, CaseError> {
        match &mut self.server {
            Some(server) => Ok(server.try_wait().doing("looking at a server")?),
            None => Ok(None),
        }
    }

    /// How the program ended, if it does so within `patience`.
    pub fn ended_within(&mut self, patience: Duration) -> Result<Option<ExitStatus>, CaseError> {
        let Some((child, process)) = &mut self.main else {
            return Ok(None);
        };
        let waiting = "waiting for a program";
        process.wait_for(patience).doing(waiting)?;
        Ok(child.try_wait().doing(waiting)?)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let main = self.main.take().map(|(child, _)| child);
        for mut child in main.into_iter().chain(self.server.take()) {
            drop(child.kill());
            drop(child.wait());
        }
        // Before the job ends, which they are in. What stays, the next command ends.
        drop(self.site.end_all());
    }
}

/// Whether something listens on a port of the host that this is called in: by its own
/// loopback, so that the link has not been used yet.
pub fn is_ready(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// An exit status in words.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}
