// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of a real program on the hosts: an MPI launcher, or a server and its client.

use std::ffi::CString;
use std::fs;
use std::io;
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
        // SAFETY: system calls only, on data made before the fork.
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
        // Before the end of the job, which they are in. The next command ends a remainder.
        drop(self.site.end_all());
    }
}

/// Whether a TCP port of the calling thread's host has a listener. It reads the
/// kernel's table of sockets (proc(5), /proc/net/tcp): a connection to find out would be the
/// only one that a server like NPtcp serves.
///
/// # Errors
/// Where the tables cannot be read; a kernel without IPv6 has one of them only.
pub fn is_ready(port: u16) -> io::Result<bool> {
    // The thread has joined the host; its process may be elsewhere.
    for table in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        match fs::read_to_string(table) {
            Ok(sockets) if listens(&sockets, port) => return Ok(true),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(false)
}

/// Whether such a table has a socket in TCP_LISTEN (include/net/tcp_states.h) with this port.
fn listens(sockets: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next();
        let state = fields.nth(1);
        local.is_some_and(|local| local.ends_with(&ending)) && state == Some("0A")
    })
}

/// An exit status in words.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_seen_without_a_connection() {
        let listener = std::net::TcpListener::bind("[::1]:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        assert!(is_ready(port).expect("readable"));
        listener.set_nonblocking(true).expect("ours");
        let nobody = listener.accept().expect_err("nobody has come");
        assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn only_a_listener_with_that_port_counts() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n\
             0: 0100007F:138A 00000000:0000 0A 00000000:00000000 00:00000000\n\
             1: 0100007F:0016 0100007F:138B 01 00000000:00000000 00:00000000\n";
        assert!(listens(table, 5002));
        assert!(!listens(table, 22), "it is established");
        assert!(!listens(table, 5003), "it is the other end's");
    }
}
