// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running link's control socket: one JSON object per line, one answer per line.
//!
//! ```text
//! {"change": {"direction": "forward", "rate": "100mbit", "outage": "200ms"}}  ->  {"changed": true}
//! {"report": {}}                                                              ->  {"report": {...}}
//! ```
//!
//! Only its owner may connect.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use paceline_input::units::{Rate, Size, Time};
use paceline_input::Percent;
use serde::{Deserialize, Serialize};

use crate::file::nanos;
use crate::{Buffer, Change, Control, Direction, Loss, Report};

/// Time limit for a line of a request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest line, bytes.
const LONGEST_BYTES: u64 = 4096;

/// A request to a link.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Change it.
    Change(ChangeRequest),
    /// Report the statistics so far.
    Report {},
}

/// The values to change; others stay.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// Which way; both if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// One way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Time>,
    /// Drop-tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Size>,
    /// Of each packet by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Percent>,
    /// All that is under way is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// For so long the line sends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<Time>,
}

/// A link's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It was changed.
    Changed(bool),
    /// Its report as JSON: [`Report`] and its problems in words.
    Report(serde_json::Value),
    /// The request is not possible; nothing was changed.
    Error(String),
}

impl ChangeRequest {
    /// As a link takes it.
    pub fn change(&self) -> Change {
        Change {
            rate_bits: self.rate.map(Rate::bits_per_second),
            delay_ns: self.delay.map(nanos),
            buffer: self.buffer.map(|size| Buffer::Bytes(size.bytes())),
            loss: self.loss.map(|share| Loss::Random {
                share: share.share(),
            }),
            cut: self.cut,
            outage_ns: self.outage.map(nanos),
        }
    }

    fn carry_out(&self, control: &Control) -> Answer {
        let change = self.change();
        if change == Change::default() {
            return Answer::Error(
                "nothing to change: give rate, delay, buffer, loss, cut or outage".to_owned(),
            );
        }
        let directions = match self.direction {
            Some(direction) => vec![direction],
            None => vec![Direction::Forward, Direction::Reverse],
        };
        // Both are checked before one is changed.
        let checked = directions
            .iter()
            .try_for_each(|direction| control.check(*direction, &change));
        match checked {
            Ok(()) => {
                for direction in directions {
                    // It was checked, and a link that has ended needs no change.
                    let _ = control.change(direction, change);
                }
                Answer::Changed(true)
            }
            Err(error) => Answer::Error(error.to_string()),
        }
    }
}

/// A report as the socket and `--json` show it.
pub fn report_json(report: &Report) -> serde_json::Value {
    let mut value = serde_json::to_value(report).unwrap_or_default();
    let problems = report.problems();
    value["problems"] = problems
        .iter()
        .map(|problem| serde_json::Value::String(problem.to_string()))
        .collect();
    value
}

/// Listens until it is dropped; the socket's file goes with it.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path` for `control`'s link. A socket there without a listener any more is
    /// replaced.
    ///
    /// # Errors
    /// When another process listens there, the path is not a socket, or the socket
    /// cannot be created.
    pub fn start(path: &Path, control: Control) -> io::Result<Self> {
        let listener = claim(path)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if stopping.load(Ordering::Relaxed) {
                        return;
                    }
                    // A client may hang up in between.
                    let _ = serve(&stream, &control);
                }
            })?;
        Ok(Server {
            path: path.to_owned(),
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread; if that fails, then it has ended.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// A socket at `path`, in place of one whose process was killed.
fn claim(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the path exists and is not a socket",
            ));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another link listens on this socket",
            ));
        }
        _ => {}
    }
    // Under another name until it listens and only its owner may connect: a client always
    // finds the dead one or this one.
    let new = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
    let _ = fs::remove_file(&new);
    let claimed = UnixListener::bind(&new).and_then(|listener| {
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        Ok(listener)
    });
    if claimed.is_err() {
        let _ = fs::remove_file(&new);
    }
    claimed
}

fn serve(stream: &UnixStream, control: &Control) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(LONGEST_BYTES).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_str(&line) {
            Ok(Request::Change(change)) => change.carry_out(control),
            Ok(Request::Report {}) => match control.report() {
                Ok(report) => Answer::Report(report_json(&report)),
                Err(error) => Answer::Error(error.to_string()),
            },
            Err(error) => Answer::Error(error.to_string()),
        };
        let mut line = serde_json::to_string(&answer)?;
        line.push('\n');
        (&mut &*stream).write_all(line.as_bytes())?;
    }
}

/// Sends a request to the link that listens at `path`.
///
/// # Errors
/// When no process listens there, or its answer is invalid.
pub fn ask(path: &Path, request: &Request) -> io::Result<Answer> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    (&mut &stream).write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}
