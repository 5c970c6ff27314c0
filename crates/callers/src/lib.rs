// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Callers at a Unix socket whose request is still incomplete. No caller blocks another one.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{getsockopt, sockopt, UnixCredentials};

/// Time limit of a caller: libpaceline and `paceline run` send their request at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Concurrent callers of one user, so that one user cannot take all descriptors. More than the
/// ranks that a host starts in one moment.
const MOST_PER_USER: usize = 256;
/// Concurrent callers of all users. Each takes a descriptor; the agent's limit is far higher.
const MOST: usize = 2048;

/// The callers of one socket.
#[derive(Debug, Default)]
pub struct Callers {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    stream: UnixStream,
    credentials: UnixCredentials,
    request: Vec<u8>,
    until: Instant,
}

/// A caller whose request is known.
#[derive(Debug)]
pub struct Call {
    /// To answer by; it does not block.
    pub stream: UnixStream,
    /// The caller, as the kernel reports it.
    pub credentials: UnixCredentials,
    /// The request.
    pub request: Vec<u8>,
}

impl Callers {
    /// Takes all that have called at `listener`, which does not block. A caller that is not
    /// admitted gets the reason at once and takes no other caller's place.
    pub fn accept(
        &mut self,
        listener: &UnixListener,
        admit: impl Fn(&UnixStream, &UnixCredentials) -> Result<(), Vec<u8>>,
    ) {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_shortage(&error) && self.drop_one() => continue,
                Err(_) => return,
            };
            let caller = match Waiting::new(stream) {
                Ok(caller) => caller,
                Err(error) => {
                    tracing::info!("cannot serve a caller: {error}");
                    continue;
                }
            };
            match admit(&caller.stream, &caller.credentials) {
                Ok(()) => self.add(caller),
                // Into an empty buffer, which has room for it. A caller that has hung up misses it.
                Err(why) => drop((&caller.stream).write_all(&why)),
            }
        }
    }

    fn add(&mut self, caller: Waiting) {
        let same = |other: &Waiting| other.credentials.uid() == caller.credentials.uid();
        if self.waiting.iter().filter(|other| same(other)).count() >= MOST_PER_USER {
            // The one that has kept silent for the longest.
            let oldest = self.waiting.iter().position(same);
            drop(oldest.map(|at| self.waiting.remove(at)));
        } else if self.waiting.len() >= MOST {
            self.drop_one();
        }
        self.waiting.push(caller);
    }

    /// Closes the oldest caller of the user with the most callers. Returns whether there was
    /// one.
    fn drop_one(&mut self) -> bool {
        let mut counts = HashMap::new();
        for caller in &self.waiting {
            *counts.entry(caller.credentials.uid()).or_insert(0) += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let oldest = most.and_then(|(user, _)| {
            let of_user = |caller: &Waiting| caller.credentials.uid() == user;
            self.waiting.iter().position(of_user)
        });
        oldest.map(|at| self.waiting.remove(at)).is_some()
    }

    /// The descriptors to poll.
    pub fn sources(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.waiting
            .iter()
            .map(|caller| PollFd::new(caller.stream.as_fd(), PollFlags::POLLIN))
    }

    /// The time of the next check, even if no descriptor is ready.
    pub fn timeout(&self) -> PollTimeout {
        timeout(self.patience())
    }

    /// The remaining time of the oldest caller.
    pub fn patience(&self) -> Option<Duration> {
        let first = self.waiting.iter().map(|caller| caller.until).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    /// The callers whose request is complete, by `complete`, or has `longest` bytes. Callers
    /// that hung up or exceeded the time limit are closed.
    pub fn ready(&mut self, longest: usize, complete: impl Fn(&[u8]) -> bool) -> Vec<Call> {
        let now = Instant::now();
        let mut ready = Vec::new();
        for mut caller in std::mem::take(&mut self.waiting) {
            let open = caller.listen(longest);
            if complete(&caller.request) || caller.request.len() >= longest {
                ready.push(Call {
                    stream: caller.stream,
                    credentials: caller.credentials,
                    request: caller.request,
                });
            } else if open && now < caller.until {
                self.waiting.push(caller);
            }
        }
        ready
    }
}

/// For poll(2); without a time it waits for ever.
pub fn timeout(after: Option<Duration>) -> PollTimeout {
    after.map_or(PollTimeout::NONE, |after| {
        // Rounded up: waking before the time would only poll again.
        let after = after + Duration::from_millis(1);
        PollTimeout::try_from(after).unwrap_or(PollTimeout::MAX)
    })
}

/// No descriptor is left for another caller.
fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

impl Waiting {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let credentials = getsockopt(&stream, sockopt::PeerCredentials)?;
        Ok(Self {
            stream,
            credentials,
            request: Vec::new(),
            until: Instant::now() + PATIENCE,
        })
    }

    /// Reads the available bytes, up to `longest` in all; whether more may come.
    fn listen(&mut self, longest: usize) -> bool {
        let mut bytes = [0; 4096];
        while self.request.len() < longest {
            let room = bytes.len().min(longest - self.request.len());
            match self.stream.read(&mut bytes[..room]) {
                Ok(0) => return false,
                Ok(count) => self.request.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_caller_holds_nobody_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        listener.set_nonblocking(true).expect("it is a socket");
        let call = || UnixStream::connect(&path).expect("it listens");
        let line = |request: &[u8]| request.ends_with(b"\n");
        let mut callers = Callers::default();

        let _silent = call();
        let mut slow = call();
        slow.write_all(b"half").expect("it listens");
        let mut quick = call();
        quick.write_all(b"all\n").expect("it listens");
        callers.accept(&listener, |_, _| Ok(()));
        let ready = callers.ready(16, line);
        assert_eq!(ready.len(), 1);
        assert_eq!(ready[0].request, b"all\n");
        assert_eq!(ready[0].credentials.pid() as u32, std::process::id());

        slow.write_all(b" of it\n").expect("it listens");
        assert_eq!(callers.ready(16, line)[0].request, b"half of it\n");
        // Too long counts as complete: memory is bounded.
        let mut endless = call();
        endless.write_all(&[b'x'; 100]).expect("it listens");
        callers.accept(&listener, |_, _| Ok(()));
        assert_eq!(callers.ready(16, line)[0].request.len(), 16);
    }

    #[test]
    fn the_oldest_of_too_many_callers_goes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        listener.set_nonblocking(true).expect("it is a socket");
        let mut callers = Callers::default();
        let mut streams = Vec::new();
        for _ in 0..=MOST_PER_USER {
            streams.push(UnixStream::connect(&path).expect("it listens"));
            callers.accept(&listener, |_, _| Ok(()));
        }
        assert_eq!(callers.waiting.len(), MOST_PER_USER);
        let first = streams[0].read(&mut [0]).expect("it was hung up on");
        assert_eq!(first, 0);
    }

    #[test]
    fn a_refused_caller_gets_the_reason_and_takes_no_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        listener.set_nonblocking(true).expect("it is a socket");
        let mut callers = Callers::default();
        let mut stranger = UnixStream::connect(&path).expect("it listens");
        callers.accept(&listener, |_, _| Err(b"no\n".to_vec()));
        assert!(callers.waiting.is_empty());
        let mut answer = String::new();
        stranger
            .read_to_string(&mut answer)
            .expect("it is hung up on");
        assert_eq!(answer, "no\n");
    }
}
