// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A line for each round, in CSV where the file's name ends so, else in JSON.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::status::RoundRecord;
use crate::{Error, Result};

/// See the module's text. The file is written over.
pub(crate) struct RoundLog {
    path: PathBuf,
    form: Form,
}

enum Form {
    Csv(Box<csv::Writer<BufWriter<File>>>),
    Json(BufWriter<File>),
}

#[derive(Serialize)]
struct Line<'a> {
    group: &'a str,
    round: u64,
    time_s: f64,
    algorithm: &'a str,
    clients: usize,
    reported: usize,
    streams: usize,
    inflight_min: u32,
    inflight_max: u32,
    inflight_mean: f64,
    inflight_total: u64,
    inflight_spread: f64,
    limit_total: u64,
    acked_bytes: u64,
    fastest_acked_bytes: u64,
    slowest_acked_bytes: u64,
    retransmitted_segs: u64,
    recovering: usize,
    latency_ms: f64,
}

impl RoundLog {
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|source| Error::Log {
            path: path.to_owned(),
            source,
        })?;
        let file = BufWriter::new(file);
        let csv = path.extension().is_some_and(|ending| ending == "csv");
        Ok(Self {
            path: path.to_owned(),
            form: match csv {
                true => Form::Csv(Box::new(csv::Writer::from_writer(file))),
                false => Form::Json(file),
            },
        })
    }

    /// Each line is written through: a reader sees the round that has ended.
    pub fn add(&mut self, group: &str, record: &RoundRecord, latency_ms: f64) -> Result<()> {
        let acked = |progress: &Option<crate::status::Progress>| {
            progress.as_ref().map_or(0, |progress| progress.acked_bytes)
        };
        let line = Line {
            group,
            round: record.round,
            time_s: record.time_s,
            algorithm: &record.algorithm,
            clients: record.clients,
            reported: record.reported,
            streams: record.streams,
            inflight_min: record.inflight_min,
            inflight_max: record.inflight_max,
            inflight_mean: record.inflight_mean,
            inflight_total: record.inflight_total,
            inflight_spread: record.inflight_spread,
            limit_total: record.limit_total,
            acked_bytes: record.acked_bytes,
            fastest_acked_bytes: acked(&record.fastest),
            slowest_acked_bytes: acked(&record.slowest),
            retransmitted_segs: record.retransmitted_segs,
            recovering: record.recovering,
            latency_ms,
        };
        self.write(&line).map_err(|source| Error::Log {
            path: self.path.clone(),
            source,
        })
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        match &mut self.form {
            Form::Csv(writer) => {
                writer.serialize(line).map_err(io::Error::other)?;
                writer.flush()
            }
            Form::Json(writer) => {
                serde_json::to_writer(&mut *writer, line)?;
                writer.write_all(b"\n")?;
                writer.flush()
            }
        }
    }
}
