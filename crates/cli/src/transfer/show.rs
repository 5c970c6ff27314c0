// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of a transfer: a bar, lines, or JSON.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use paceline_mover::session::{Event, Progress};
use paceline_transfer::wire::Summary;
use serde_json::json;

use super::hash_file::HashFile;
use super::options::Options;
use super::record::Record;
use crate::output::{self, foreign};

/// The bar moves as often.
const BAR: Duration = Duration::from_millis(200);
/// And lines of JSON come, and the record is written.
const SLOW: Duration = Duration::from_secs(1);

/// Where the output goes.
pub struct Show {
    bar: Option<ProgressBar>,
    is_json: bool,
    is_quiet: bool,
    /// Each file is named.
    is_detailed: bool,
    is_dry: bool,
    began: Instant,
    failed: AtomicU64,
    hashes: Option<HashFile>,
}

impl Show {
    /// As the user wants it.
    pub fn new(options: &Options, verbose: u8) -> Result<Self> {
        let is_shown = options.progress || std::io::stderr().is_terminal();
        let bar = match is_shown && !options.quiet && !options.json && !options.dry_run {
            true => {
                let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
                let style =
                    "{bytes}/{total_bytes} {wide_bar} {msg} {binary_bytes_per_sec} ETA {eta}";
                bar.set_style(ProgressStyle::with_template(style)?);
                Some(bar)
            }
            false => None,
        };
        Ok(Self {
            bar,
            is_json: options.json,
            is_quiet: options.quiet,
            is_detailed: verbose > 0 || options.dry_run,
            is_dry: options.dry_run,
            began: Instant::now(),
            failed: AtomicU64::new(0),
            hashes: options
                .hash_file
                .as_deref()
                .map(HashFile::new)
                .transpose()?,
        })
    }

    /// How often [`progress`](Self::progress) is called.
    pub fn period(&self) -> Duration {
        match &self.bar {
            Some(_) => BAR,
            None => SLOW,
        }
    }

    /// Entries that failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    fn json(&self, value: &serde_json::Value) {
        // A reader that has gone ends no transfer.
        let _ = output::print_json_text(&value.to_string());
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(foreign(text)),
            None => eprintln!("{}", foreign(text)),
        }
    }

    /// It begins.
    pub fn start(&self, record: &Record) {
        if self.is_json {
            let about = &record.about;
            self.json(&json!({
                "event": "start", "id": about.id, "from": about.from, "to": about.to,
                "dry_run": self.is_dry,
            }));
        }
    }

    /// Something happened to an entry.
    pub fn event(&self, event: &Event) {
        if matches!(event, Event::Failed { .. }) {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        if let (Event::Hash { path, blake3 }, Some(hashes)) = (event, &self.hashes) {
            hashes.add(path, blake3);
        }
        if self.is_json {
            if let Ok(value) = serde_json::to_value(event) {
                self.json(&value);
            }
            return;
        }
        let would = if self.is_dry { "would " } else { "" };
        match event {
            Event::Failed { path, text } => self.line(&format!("paceline: {path}: {text}")),
            Event::StreamLost { stream, text } => {
                self.line(&format!(
                    "paceline: data connection {stream} is gone: {text}"
                ));
            }
            Event::SentAgain { path } => {
                self.line(&format!(
                    "paceline: {path}: a part came damaged and is sent again"
                ));
            }
            Event::Full { text } => {
                self.line(&format!(
                    "paceline: the destination is full, it waits for room: {text}"
                ));
            }
            Event::Carried { from, to, bytes } if self.is_detailed => {
                self.line(&format!("{from} to {to}: {bytes} bytes"));
            }
            Event::Changed { path } if !self.is_quiet => {
                self.line(&format!(
                    "paceline: {path}: it changed and is looked at again"
                ));
            }
            Event::Copied { path, size } if self.is_detailed => {
                self.print(&format!("{would}copy {path} ({size} bytes)"));
            }
            Event::Deleted { path } if self.is_detailed => {
                self.print(&format!("{would}delete {path}"));
            }
            _ => {}
        }
    }

    fn print(&self, text: &str) {
        match self.is_dry {
            true => {
                let _ = output::print(&(foreign(text) + "\n"));
            }
            false => self.line(text),
        }
    }

    /// Its progress.
    pub fn progress(&self, progress: &Progress) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (entries, done) = (count(&progress.entries), count(&progress.entries_done));
        if let Some(bar) = &self.bar {
            bar.set_length(count(&progress.bytes));
            bar.set_position(count(&progress.bytes_done));
            let more = match progress.is_walked.load(Ordering::Relaxed) {
                true => "",
                false => "+",
            };
            bar.set_message(format!("{done}/{entries}{more} entries"));
        }
        if self.is_json {
            self.json(&json!({
                "event": "progress",
                "elapsed_s": self.began.elapsed().as_secs_f64(),
                "entries": entries,
                "entries_done": done,
                "bytes": count(&progress.bytes),
                "bytes_done": count(&progress.bytes_done),
                "bytes_sent": count(&progress.bytes_sent),
                "walked": progress.is_walked.load(Ordering::Relaxed),
                "streams": count(&progress.streams),
            }));
        }
    }

    /// It is over.
    pub fn finish(&self, summary: &Summary, progress: &Progress, code: u8) -> Result<()> {
        self.clear();
        if let Some(hashes) = &self.hashes {
            hashes.end()?;
        }
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let sent = progress.bytes_sent.load(Ordering::Relaxed);
        if self.is_json {
            self.json(&json!({
                "event": "finish",
                "exit_code": code,
                "elapsed_s": elapsed_s,
                "bytes_sent": sent,
                "placed": summary.placed,
                "unchanged": summary.unchanged,
                "deleted": summary.deleted,
                "failed": summary.failed,
                "changed": summary.changed,
                "wrong": summary.wrong,
                "resumed_bytes": summary.resumed_bytes,
            }));
            return Ok(());
        }
        if self.is_quiet || self.is_dry {
            return Ok(());
        }
        let rate = (sent as f64 / elapsed_s.max(1e-3)) as u64;
        let mut text = format!(
            "{} entries placed, {} unchanged; {} sent in {elapsed_s:.1} s, {}/s",
            summary.placed,
            summary.unchanged,
            HumanBytes(sent),
            HumanBytes(rate),
        );
        for (count, what) in [
            (
                summary.resumed_bytes,
                "bytes were there from an earlier run",
            ),
            (summary.deleted, "deleted"),
            (summary.failed, "failed"),
            (summary.changed, "kept changing"),
            (summary.wrong, "with a wrong hash"),
        ] {
            if count > 0 {
                text.push_str(&format!("; {count} {what}"));
            }
        }
        output::print(&(text + "\n"))
    }

    /// It ended early.
    pub fn fail(&self, text: &str, code: u8) -> Result<()> {
        self.clear();
        if self.is_json {
            self.json(&json!({"event": "finish", "exit_code": code, "error": text}));
        }
        output::print_error(text);
        Ok(())
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
