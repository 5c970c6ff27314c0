// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent's side: groups of users without root.
//!
//! A client stays connected and asks many times a second, so each has a thread. Access is
//! decided once, by SO_PEERCRED: a client names only groups of its own user.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{getsockopt, sockopt};

use super::protocol::{self, Question, LONGEST_QUESTION};
use super::{check_bounds, check_name, Local};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::listening::Listening;
use crate::peer::Peer;

/// Clients of one user at once: one for each transfer, and then some.
const MOST_PER_USER: usize = 16;
/// Of all users: each is a thread.
const MOST: usize = 256;
/// A client without a request for this time is closed; it may connect again.
const PATIENCE: Duration = Duration::from_secs(60);

/// A thread that serves groups until it is dropped.
#[derive(Debug)]
pub(crate) struct GroupServer {
    stop: EventFd,
    thread: Option<JoinHandle<()>>,
}

/// How many clients each user has.
type Clients = Arc<Mutex<HashMap<u32, usize>>>;

impl GroupServer {
    /// # Errors
    /// Where it cannot begin.
    pub fn at(socket: Listening, config: Config) -> Result<Self> {
        let path = socket.path().to_path_buf();
        let failed = |error| Error::path("listen at", &path, error);
        let stop = EventFd::new().map_err(|errno| failed(errno.into()))?;
        let stopped = stop.as_fd().try_clone_to_owned().map_err(failed)?;
        let thread = std::thread::Builder::new()
            .name("groups".to_owned())
            .spawn(move || {
                let clients = Clients::default();
                loop {
                    let mut sources = [
                        PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
                        PollFd::new(socket.as_fd(), PollFlags::POLLIN),
                    ];
                    match poll(&mut sources, PollTimeout::NONE) {
                        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                        Err(errno) => return tracing::warn!("cannot serve groups: {errno}"),
                    }
                    if sources[0].any().unwrap_or(false) {
                        return;
                    }
                    accept(socket.listener(), &config, &clients);
                }
            })
            .map_err(failed)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for GroupServer {
    fn drop(&mut self) {
        if self.stop.write(1).is_ok() {
            drop(self.thread.take().map(JoinHandle::join));
        }
    }
}

fn accept(listener: &UnixListener, config: &Config, clients: &Clients) {
    while let Ok((stream, _)) = listener.accept() {
        match admit(&stream, config, clients) {
            Ok(place) => spawn(stream, place),
            Err(why) => {
                tracing::info!("cannot serve a group's client: {why}");
                // The client waits for the answer to its first question.
                let _ = protocol::write_frame(&mut &stream, &protocol::failed_frame(&why));
            }
        }
    }
}

fn spawn(stream: UnixStream, place: Place) {
    let user = place.1;
    let spawned = std::thread::Builder::new()
        .name("group".to_owned())
        .spawn(move || {
            if let Err(error) = serve(stream, place.1) {
                tracing::debug!("a group's client of user {}: {error}", place.1);
            }
        });
    if let Err(error) = spawned {
        tracing::warn!("cannot serve a group's client of user {user}: {error}");
    }
}

/// A client's place among its user's, given back when dropped.
struct Place(Clients, u32);

impl Drop for Place {
    fn drop(&mut self) {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = clients.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.1);
            }
        }
    }
}

/// A place for a permitted client, or the reason of the refusal.
fn admit(stream: &UnixStream, config: &Config, clients: &Clients) -> Result<Place, String> {
    let credentials =
        getsockopt(stream, sockopt::PeerCredentials).map_err(|errno| errno.to_string())?;
    let peer = Peer::of(stream, &credentials).map_err(|error| error.to_string())?;
    let user = peer.user;
    if user != 0 && !peer.groups.iter().any(|group| config.admits(*group)) {
        return Err(format!(
            "user {user} is in none of the groups that may run jobs: {}",
            config.group_names()
        ));
    }
    let mut counts = clients.lock().unwrap_or_else(PoisonError::into_inner);
    let all: usize = counts.values().sum();
    let own = counts.get(&user).copied().unwrap_or(0);
    if own >= MOST_PER_USER || all >= MOST {
        return Err(format!(
            "too many clients: user {user} has {own} (limit {MOST_PER_USER}), all users together {all} (limit {MOST})"
        ));
    }
    counts.insert(user, own + 1);
    Ok(Place(clients.clone(), user))
}

fn serve(mut stream: UnixStream, user: u32) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let longest = 4 + paceline_abi::PL_NAME_LEN as usize;
    let Some(hello) = protocol::read_frame(&mut stream, longest)? else {
        return Ok(());
    };
    let name = protocol::read_hello(&hello).filter(|name| check_name(name).is_ok());
    let Some(name) = name else {
        let why = "the client's version and the agent's differ: restart the agent with the installed paceline";
        return protocol::write_frame(&mut stream, &protocol::failed_frame(why));
    };
    let mut group = Local::new(&name, user);
    while let Some(frame) = protocol::read_frame(&mut stream, LONGEST_QUESTION)? {
        let answer = match Question::read(&frame) {
            None => protocol::failed_frame("not a valid request"),
            Some(question) => answer(&mut group, question)
                .unwrap_or_else(|error| protocol::failed_frame(&error.to_string())),
        };
        protocol::write_frame(&mut stream, &answer)?;
    }
    Ok(())
}

fn answer(group: &mut Local, question: Question) -> Result<Vec<u8>> {
    match question {
        Question::List => Ok(protocol::list_frame(&group.streams()?)),
        Question::Apply { lease_us, bounds } => {
            let lease_us = check_bounds(&bounds, Duration::from_micros(lease_us))?;
            Ok(protocol::applied_frame(group.apply(&bounds, lease_us)?))
        }
    }
}
