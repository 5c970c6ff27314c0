// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[transfer]]` of experiments: `paceline send` of this very program from the near hosts to
//! the far ones, of files that are made for it and removed after it.
//!
//! From one host, the command goes to a standing receiver with TLS and a token. From several, it
//! runs on the first near host and reaches the others by a [`door`]: a remote shell over one
//! TCP connection, in the place of ssh, whose own round trips are not the mover's.
//! A policy is the command's `--policy`.

#![forbid(unsafe_code)]

pub mod door;
mod hosts;
mod tree;

use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use paceline_experiment::plan::{Adaptation, PolicySource, Transfer};
use paceline_net::clock::now_ns;
use paceline_net::Doing;

pub use hosts::Host;

/// Port of standing receivers.
const PORT: u16 = 7412;
/// From one look at a process to the next.
const LOOK: Duration = Duration::from_millis(100);
/// A receiver listens within this, on a busy machine, too.
const START: Duration = Duration::from_secs(60);
/// A transfer takes no longer.
const LIMIT: Duration = Duration::from_secs(1800);
/// Standard errors of several hosts.
const LOG: &str = "words";
/// Last lines of a command's output in an error.
const LAST_LINES: usize = 8;

/// The command's message where there can be no policy: it goes on without.
const NOT_ADAPTED: &str = "sent without --policy";

/// Why a transfer has no result.
#[derive(Debug, thiserror::Error)]
pub enum CourierError {
    /// A system call failed.
    #[error(transparent)]
    System(#[from] paceline_net::Error),
    /// A command did not do what it should.
    #[error("{what}: {problem}")]
    Command {
        /// The command.
        what: &'static str,
        /// Its exit status, and its last words.
        problem: String,
    },
    /// A certificate could not be made.
    #[error("making a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

type Result<T> = std::result::Result<T, CourierError>;

/// Result of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// From the command's start to its end, nanoseconds.
    pub elapsed_ns: u64,
    /// Bytes of all files.
    pub payload_bytes: u64,
    /// When the last piece of each stream was acknowledged, nanoseconds; of one host only.
    pub streams_ns: Vec<u64>,
}

/// A transfer that is prepared: its files are there, and its receiver listens.
pub struct Prepared<'a> {
    transfer: &'a Transfer,
    near: &'a [Host<'a>],
    far: &'a [Host<'a>],
    place: tempfile::TempDir,
    policy: Option<String>,
    payload_bytes: u64,
    receiver: Option<Receiver>,
    _doors: Vec<door::Door>,
}

struct Receiver(Child);

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A machine that has just booted makes no random numbers for half a second (crng_init of
/// drivers/char/random.c). The first reader waits, and that is not to be the command.
fn await_random_numbers() -> Result<()> {
    let mut one = [0];
    let random = File::open("/dev/random").and_then(|mut file| file.read_exact(&mut one));
    Ok(random.doing("reading /dev/random")?)
}

impl<'a> Prepared<'a> {
    /// Makes the files by `seed`, and starts the receivers or doors. `near` and `far`: the
    /// hosts that take part, as many of each.
    ///
    /// # Errors
    /// [`CourierError`] with what failed first.
    pub fn new(
        transfer: &'a Transfer,
        adaptation: &Adaptation,
        seed: u64,
        (near, far): (&'a [Host<'a>], &'a [Host<'a>]),
    ) -> Result<Self> {
        let place = hosts::in_memory()?;
        let source = place.path().join("source");
        let payload_bytes = tree::make(&source, transfer, seed)?;
        fs::create_dir(place.path().join("sink")).doing("making a directory")?;
        await_random_numbers()?;
        let mut prepared = Self {
            transfer,
            near,
            far,
            policy: policy(adaptation, place.path())?,
            place,
            payload_bytes,
            receiver: None,
            _doors: Vec::new(),
        };
        match near.len() {
            1 => prepared.receiver = Some(prepared.receive()?),
            _ => {
                let all = near.iter().chain(far);
                let log = prepared.path(LOG);
                let open = |host| door::Door::open(host, &log);
                prepared._doors = all.map(open).collect::<Result<_>>()?;
            }
        }
        Ok(prepared)
    }

    /// Runs the command. `beat` is called now and then; its error ends the run.
    ///
    /// # Errors
    /// [`CourierError`]; that of `beat`.
    pub fn run<E: From<CourierError>>(
        self,
        mut beat: impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<Outcome, E> {
        let output = self.path("output");
        let mut command = match self.near.len() {
            1 => self.send_alone(),
            _ => self.send_together()?,
        };
        let command = with_stdout(&mut command, &output)?;
        let (exit, ended) = mpsc::channel();
        let begun_ns = now_ns();
        let mut child = self.near[0]
            .network
            .spawn(command)
            .map_err(CourierError::from)?;
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        // A thread waits for the end and notes its time at once: the elapsed time is the result.
        std::thread::spawn(move || drop(exit.send((child.wait(), now_ns()))));
        let begun = Instant::now();
        let (status, ended_ns) = loop {
            match ended.recv_timeout(LOOK) {
                Ok((status, at)) => break (status.doing("waiting for a command"), at),
                Err(_) => {
                    let went_on = beat();
                    if went_on.is_err() || begun.elapsed() > LIMIT {
                        let _ = kill(pid, Signal::SIGKILL);
                    }
                    went_on?;
                }
            }
        };
        let status = status.map_err(|error| E::from(error.into()))?;
        if !status.success() {
            let problem = format!("it ended with {status}{}", last_lines(&output));
            return Err(E::from(CourierError::Command {
                what: "paceline send",
                problem,
            }));
        }
        let text = fs::read_to_string(&output).unwrap_or_default();
        let log = self.path(LOG);
        let elsewhere = fs::read_to_string(&log).unwrap_or_default();
        if text.contains(NOT_ADAPTED) || elsewhere.contains(NOT_ADAPTED) {
            let problem = last_lines(&output) + &last_lines(&log);
            return Err(E::from(CourierError::Command {
                what: "paceline send --policy",
                problem: format!("it was not adapted{problem}"),
            }));
        }
        self.check().map_err(E::from)?;
        Ok(Outcome {
            elapsed_ns: ended_ns - begun_ns,
            payload_bytes: self.payload_bytes,
            streams_ns: streams(&text),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// `paceline`, which writes nothing outside of this place.
    fn paceline(&self) -> Command {
        let mut command = Command::new(hosts::program());
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    /// Starts a standing receiver.
    fn receive(&self) -> Result<Receiver> {
        let host = &self.far[0];
        let made = rcgen::generate_simple_self_signed(vec![host.address.to_string()])?;
        let write = |name: &str, text: &str| hosts::write_secret(&self.path(name), text);
        write("cert.pem", &made.cert.pem())?;
        write("key.pem", &made.signing_key.serialize_pem())?;
        let token = self
            .paceline()
            .args(["coordinate", "token"])
            .arg(self.path("token"))
            .output()
            .doing("making a token")?;
        if !token.status.success() {
            return Err(CourierError::Command {
                what: "paceline coordinate token",
                problem: String::from_utf8_lossy(&token.stderr).into_owned(),
            });
        }
        let log = self.path("receiver");
        let mut command = self.paceline();
        command
            .args(["receive", "--listen", &socket(host.address), "--root"])
            .arg(self.path("sink"));
        for (option, file) in [
            ("--token-file", "token"),
            ("--cert", "cert.pem"),
            ("--key", "key.pem"),
        ] {
            command.arg(option).arg(self.path(file));
        }
        let mut receiver = Receiver(host.network.spawn(with_stdout(&mut command, &log)?)?);
        let begun = Instant::now();
        loop {
            let address = (host.address, PORT);
            if host
                .network
                .enter(|| Ok(TcpStream::connect(address).is_ok()))?
            {
                return Ok(receiver);
            }
            let ended = receiver.0.try_wait().doing("looking at a receiver")?;
            if ended.is_some() || begun.elapsed() > START {
                return Err(CourierError::Command {
                    what: "paceline receive",
                    problem: format!("it does not listen{}", last_lines(&log)),
                });
            }
            std::thread::sleep(LOOK);
        }
    }

    fn send(&self) -> Command {
        let mut command = self.paceline();
        command.args(["send", "--json"]);
        if self.transfer.plain {
            command.args(["--data", "plain"]);
        }
        if let Some(rate) = self.transfer.rate_bps {
            command.args(["--rate", &format!("{rate}bit")]);
        }
        if let Some(streams) = self.transfer.streams {
            command.args(["--streams", &streams.to_string()]);
        }
        command
    }

    fn send_alone(&self) -> Command {
        let mut command = self.send();
        if let Some(policy) = &self.policy {
            command.args(["--policy", policy]);
        }
        for (option, file) in [("--token-file", "token"), ("--pin", "cert.pem")] {
            command.arg(option).arg(self.path(file));
        }
        command
            .arg(format!("{}/", self.path("source").display()))
            .arg(format!("paceline://{}/", socket(self.far[0].address)));
        command
    }

    fn send_together(&self) -> Result<Command> {
        let program = fs::read_link(hosts::program()).doing("finding this program")?;
        let names = |hosts: &[Host]| {
            let names: Vec<_> = hosts.iter().map(|host| host.address.to_string()).collect();
            names.join(",")
        };
        let program = program.display();
        let mut command = self.send();
        if let Some(policy) = &self.policy {
            command.args(["--policy", policy]);
        }
        command
            .args(["--from", &names(self.near), "--to", &names(self.far)])
            .args(["--ssh", &format!("{program} lab reach")])
            .args(["--remote-command", &program.to_string()])
            .arg(format!("{}/", self.path("source").display()))
            .arg(self.path("sink"));
        Ok(command)
    }

    /// Whether all files are there, by their sizes: the mover has compared the rest.
    fn check(&self) -> Result<()> {
        let size = |name: &str| tree::bytes(&self.path(name)).doing("reading a directory");
        let (sent, there) = (size("source")?, size("sink")?);
        match sent == there {
            true => Ok(()),
            false => Err(CourierError::Command {
                what: "paceline send",
                problem: format!("it reported that all is there, but {there} of {sent} bytes are"),
            }),
        }
    }
}

/// Both outputs go to a file.
fn with_stdout<'c>(command: &'c mut Command, path: &Path) -> Result<&'c mut Command> {
    let file = File::create(path).doing("making a file")?;
    let other = file.try_clone().doing("duplicating a descriptor")?;
    Ok(command
        .stdin(std::process::Stdio::null())
        .stdout(file)
        .stderr(other))
}

/// The end of a command's output, for an error.
fn last_lines(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
    match last.is_empty() {
        true => String::new(),
        false => format!(":\n{last}"),
    }
}

/// When each stream was over, by the command's events.
fn streams(output: &str) -> Vec<u64> {
    let events = output.lines().filter_map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_one = event["event"] == "stream" && event["bytes"].as_u64()? > 0;
        is_one.then(|| event["last_us"].as_u64())?
    });
    events.map(|us| us * 1000).collect()
}

fn socket(address: IpAddr) -> String {
    std::net::SocketAddr::new(address, PORT).to_string()
}

/// The adaptation's policy as `--policy` takes it.
fn policy(adaptation: &Adaptation, place: &Path) -> Result<Option<String>> {
    match &adaptation.policy {
        None => Ok(None),
        Some(PolicySource::Preset(name)) => Ok(Some(name.clone())),
        Some(PolicySource::Text { text, .. }) => {
            let path = place.join("policy.toml");
            fs::write(&path, text).doing("writing a policy")?;
            Ok(Some(path.display().to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_carried_something_count() {
        let output = concat!(
            "a line of the log\n",
            "{\"event\":\"stream\",\"stream\":0,\"bytes\":9,\"last_us\":1500}\n",
            "{\"event\":\"stream\",\"stream\":1,\"bytes\":0,\"last_us\":0}\n",
            "{\"event\":\"finish\",\"bytes\":9}\n",
            "{\"event\":\"stream\",\"stream\":2,\"bytes\":4,\"last_us\":1600}\n",
        );
        assert_eq!(streams(output), [1_500_000, 1_600_000]);
    }
}
