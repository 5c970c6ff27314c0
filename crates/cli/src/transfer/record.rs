// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers of this user on this host, for `paceline transfers`: one small file each.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use paceline_mover::session::Progress;
use serde::{Deserialize, Serialize};

/// Files of transfers that have ended are kept for so long, seconds: a week.
const KEPT_S: u64 = 7 * 24 * 3600;

/// The state of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Under way.
    Running,
    /// Complete.
    Done,
    /// The same command continues it.
    Interrupted,
    /// It ended with errors.
    Failed,
}

/// A transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct About {
    /// First digits of its identity.
    pub id: String,
    /// Where files come from.
    pub from: Vec<String>,
    /// And where they go.
    pub to: String,
}

/// The record of a transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The transfer.
    #[serde(flatten)]
    pub about: About,
    /// Its state.
    pub state: State,
    /// The command's process, and when that started (clock ticks since boot).
    pub pid: u32,
    /// See `pid`.
    pub pid_start: u64,
    /// Seconds since 1970.
    pub started_s: u64,
    /// Seconds since 1970.
    pub updated_s: u64,
    /// Entries that were found, and that are done.
    pub entries: u64,
    /// See `entries`.
    pub entries_done: u64,
    /// Bytes of files that were found, that are done, and that were sent in this run.
    pub bytes: u64,
    /// See `bytes`.
    pub bytes_done: u64,
    /// See `bytes`.
    pub bytes_sent: u64,
    /// Data connections.
    pub streams: u64,
    /// The command's exit code.
    pub exit_code: Option<u8>,
    /// A dry run leaves no record.
    #[serde(skip)]
    is_dry: bool,
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// Where the records are.
pub fn directory() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|path| path.is_absolute()).or_else(|| {
        let home = std::env::var_os("HOME").map(PathBuf::from)?;
        Some(home.join(".local/state"))
    });
    Some(state?.join("paceline/transfers"))
}

/// When a process started; `None` if there is none of this number.
fn start_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may have anything in it; the start is field 22 (proc(5)).
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

impl Record {
    /// Of a transfer that begins.
    pub fn new(about: About, is_dry: bool) -> Self {
        let pid = std::process::id();
        Self {
            about,
            state: State::Running,
            pid,
            pid_start: start_of(pid).unwrap_or(0),
            started_s: now_s(),
            updated_s: 0,
            entries: 0,
            entries_done: 0,
            bytes: 0,
            bytes_done: 0,
            bytes_sent: 0,
            streams: 0,
            exit_code: None,
            is_dry,
        }
    }

    /// The command's process is there.
    pub fn is_alive(&self) -> bool {
        start_of(self.pid) == Some(self.pid_start)
    }

    /// Writes it down. A transfer does not fail because its record cannot be written.
    pub fn write(&self, progress: &Progress, state: State, exit_code: Option<u8>) {
        if self.is_dry {
            return;
        }
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let record = Self {
            state,
            updated_s: now_s(),
            entries: count(&progress.entries),
            entries_done: count(&progress.entries_done),
            bytes: count(&progress.bytes),
            bytes_done: count(&progress.bytes_done),
            bytes_sent: count(&progress.bytes_sent),
            streams: count(&progress.streams),
            exit_code,
            ..self.clone()
        };
        if let Err(error) = record.store() {
            tracing::info!("no record for paceline transfers: {error}");
        }
    }

    fn store(&self) -> std::io::Result<()> {
        let Some(directory) = directory() else {
            return Ok(());
        };
        fs::create_dir_all(&directory)?;
        let own = directory.join(format!("{}.json", self.about.id));
        let new = directory.join(format!(".{}-{}", self.about.id, self.pid));
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(&new, own)
    }
}

/// All records, the latest last. Old ones are removed.
pub fn all(directory: &Path) -> Vec<Record> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut records = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let read = fs::read(&path).ok();
        let record = read.and_then(|text| serde_json::from_slice::<Record>(&text).ok());
        let Some(mut record) = record else {
            continue;
        };
        if record.state == State::Running && !record.is_alive() {
            record.state = State::Interrupted;
        }
        let age_s = now_s().saturating_sub(record.updated_s);
        if record.state != State::Running && age_s > KEPT_S {
            let _ = fs::remove_file(path);
            continue;
        }
        records.push(record);
    }
    records.sort_by_key(|record| record.started_s);
    records
}
