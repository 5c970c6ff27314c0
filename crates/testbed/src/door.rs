// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sockets at which commands request a node, of the process that holds the nodes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use paceline_net::{Doing, Error};

use super::node::Node;
use super::socket::{self, Reply, Request};

/// Longest wait for a silent client.
const PATIENCE: Duration = Duration::from_secs(2);

/// The requests.
pub trait Holder {
    /// All nodes.
    fn nodes(&self) -> Vec<&Node>;
    /// The answer to [`Request::Describe`].
    fn describe(&self) -> Reply;
}

/// The listeners, and the processes on their way in.
#[derive(Debug)]
pub struct Door {
    listeners: Vec<UnixListener>,
    /// Connections of processes that have a node's descriptors and are not inside yet: if this
    /// process ends before, they see it by their closed connection.
    entering: Vec<UnixStream>,
}

impl Door {
    /// Listens in the network of each of `nodes`, under the name `lab`.
    pub fn open(lab: &str, nodes: &[&Node]) -> Result<Self, Error> {
        let listen = |node: &&Node| {
            node.network().enter(|| {
                socket::listen(lab).doing(format!("listening in {}", node.network().name()))
            })
        };
        Ok(Door {
            listeners: nodes.iter().map(listen).collect::<Result<_, _>>()?,
            entering: Vec::new(),
        })
    }

    /// Listens here, too.
    pub fn add(&mut self, listener: UnixListener) {
        self.listeners.push(listener);
    }

    /// Answers the next request; false when `stop` is readable.
    pub fn answer_next(&mut self, holder: &impl Holder, stop: Option<BorrowedFd>) -> bool {
        let mut sources: Vec<PollFd> = Vec::new();
        let listeners = self.listeners.iter().map(AsFd::as_fd);
        let others = self.entering.iter().map(AsFd::as_fd).chain(stop);
        for source in listeners.chain(others) {
            sources.push(PollFd::new(source, PollFlags::POLLIN));
        }
        // It fails at a signal, which the next call handles.
        let _ = poll(&mut sources, PollTimeout::NONE);
        let ready: Vec<bool> = sources
            .iter()
            .map(|source| source.any().unwrap_or_default())
            .collect();
        if stop.is_some() && ready.last() == Some(&true) {
            return false;
        }
        let (callers, inside) = ready.split_at(self.listeners.len());
        let mut inside = inside.iter();
        self.entering
            .retain(|_| !inside.next().copied().unwrap_or_default());
        for (index, _) in callers.iter().enumerate().filter(|(_, ready)| **ready) {
            if let Ok((stream, _)) = self.listeners[index].accept() {
                // A client may go away before its answer.
                let _ = self.answer(holder, stream);
            }
        }
        true
    }

    fn answer(&mut self, holder: &impl Holder, stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        if socket::peer(&stream)?.uid() != 0 {
            return Ok(());
        }
        match socket::read(&stream)? {
            Some(Request::Describe) => socket::write(&stream, &holder.describe()),
            Some(Request::Enter(name)) => {
                let nodes = holder.nodes();
                match nodes.iter().find(|node| node.network().name() == name) {
                    Some(node) => {
                        socket::send_node(&stream, node.descriptors())?;
                        self.entering.push(stream);
                        Ok(())
                    }
                    None => {
                        let known: Vec<&str> =
                            nodes.iter().map(|node| node.network().name()).collect();
                        socket::write(&stream, &Reply::NoSuchNode(known.join(", ")))
                    }
                }
            }
            None => Ok(()),
        }
    }
}
