// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments' replacement for ssh: a command by one TCP connection, its input and output over
//! it. Without any protection: both ends are in the networks of one experiment.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use paceline_net::process::end_with_this_thread;
use paceline_net::Doing;

use crate::{Host, Result};

/// Port of doors.
const PORT: u16 = 2222;
/// Longest wait for the command's last words after the end of its input: a host that is gone sends
/// none, and its connection does not end by itself.
const LAST_OUTPUT: Duration = Duration::from_secs(10);
/// A command is no longer, bytes.
const LONGEST: u32 = 64 << 10;

/// Takes commands at a host until it is dropped.
pub(crate) struct Door {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
    /// Closes the door from within its network.
    descriptor: OwnedFd,
    serving: Option<JoinHandle<()>>,
}

impl Door {
    /// At this host.
    ///
    /// Commands' standard errors are added to the file `log`.
    pub fn open(host: &Host, log: &Path) -> Result<Self> {
        let log = File::options().append(true).create(true).open(log);
        let log = Arc::new(log.doing("making a file")?);
        let address = SocketAddr::new(host.address, PORT);
        let descriptor = host.network.duplicate()?;
        let listener = host
            .network
            .enter(|| TcpListener::bind(address).doing("opening a door"))?;
        let closed = Arc::new(AtomicBool::new(false));
        let (inside, is_closed) = (host.network.duplicate()?, Arc::clone(&closed));
        let serving = thread::spawn(move || {
            // Its children are in its network.
            if nix::sched::setns(&inside, nix::sched::CloneFlags::CLONE_NEWNET).is_err() {
                return;
            }
            while let Ok((stream, _)) = listener.accept() {
                if is_closed.load(Ordering::Relaxed) {
                    break;
                }
                let log = Arc::clone(&log);
                // A thread inherits its network.
                thread::spawn(move || {
                    if let Err(error) = serve(&stream, &log) {
                        eprintln!("a command of a transfer: {error}");
                    }
                    drop(stream.shutdown(Shutdown::Both));
                });
            }
        });
        Ok(Self {
            address,
            closed,
            descriptor,
            serving: Some(serving),
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        let (address, network) = (self.address, &self.descriptor);
        thread::scope(|scope| {
            scope.spawn(|| {
                let entered = nix::sched::setns(network, nix::sched::CloneFlags::CLONE_NEWNET);
                drop(entered.map(|()| TcpStream::connect(address)));
            });
        });
        if let Some(serving) = self.serving.take() {
            drop(serving.join());
        }
    }
}

/// Runs the command that a connection asks for. It ends with the connection: its input does.
fn serve(mut stream: &TcpStream, log: &File) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > LONGEST {
        return Err(io::Error::other("it is too long"));
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    let mut command = text.split_whitespace();
    let program = command.next().ok_or(io::Error::other("it is empty"))?;
    let half = || Ok::<_, io::Error>(Stdio::from(OwnedFd::from(stream.try_clone()?)));
    let mut called = Command::new(program);
    called
        .args(command)
        .stdin(half()?)
        .stdout(half()?)
        .stderr(log.try_clone()?);
    // This thread waits for it.
    end_with_this_thread(&mut called);
    called.spawn()?.wait().map(drop)
}

/// `paceline lab reach HOST COMMAND`: the mover calls it like ssh.
///
/// # Errors
/// Those of the connection.
pub fn reach(host: &str, command: &str) -> io::Result<ExitCode> {
    let mut stream = TcpStream::connect((host, PORT))?;
    stream.set_nodelay(true)?;
    let length = u32::try_from(command.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], command.as_bytes()].concat())?;
    let to = stream.try_clone()?;
    thread::spawn(move || {
        drop(pass(io::stdin().lock(), &to));
        drop(to.shutdown(Shutdown::Write));
        thread::sleep(LAST_OUTPUT);
        drop(to.shutdown(Shutdown::Both));
    });
    pass(&stream, io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

/// Passes bytes on as they come: a buffer would hold them back.
fn pass(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&bytes[..count])?;
        to.flush()?;
    }
}
