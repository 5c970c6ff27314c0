// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of ended jobs: so many per user and in all, on disk if there is a place for them.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::Record;

/// Records in all: of some kilobytes each.
const MOST: usize = 2048;
/// Records of one user: no user's jobs push out all others'.
const MOST_PER_USER: usize = 256;

/// The records, the newest at the end.
#[derive(Debug, Default)]
pub struct History {
    records: VecDeque<Record>,
    file: Option<PathBuf>,
    /// Lines in the file, those of records that were dropped included.
    lines: usize,
}

impl History {
    /// With the records of a file of one JSON object per line; where there is none, it is made
    /// with the first record. Lines that are no records are left out.
    ///
    /// # Errors
    /// Where the file is there and cannot be read.
    pub fn in_file(path: &Path) -> io::Result<Self> {
        let mut history = Self {
            file: Some(path.to_owned()),
            ..Self::default()
        };
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(history),
            file => file?,
        };
        for line in BufReader::new(file).lines() {
            history.lines += 1;
            if let Ok(record) = serde_json::from_str(&line?) {
                history.keep(record);
            }
        }
        Ok(history)
    }

    /// Adds a record. Above a limit the oldest one goes: of this user, or of the user with most.
    ///
    /// # Errors
    /// Where it cannot be written: then it is kept in memory alone.
    pub fn push(&mut self, record: Record) -> io::Result<()> {
        let line = line(&record);
        self.keep(record);
        let Some(path) = &self.file else {
            return Ok(());
        };
        if self.lines >= 2 * MOST {
            return self.rewrite();
        }
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        self.lines += 1;
        file.write_all(&line)
    }

    fn keep(&mut self, record: Record) {
        let owner = record.owner_uid;
        self.records.push_back(record);
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for record in &self.records {
            *counts.entry(record.owner_uid).or_default() += 1;
        }
        let full = match counts[&owner] > MOST_PER_USER {
            true => Some(owner),
            false if self.records.len() > MOST => {
                let most = counts.into_iter().max_by_key(|(_, count)| *count);
                most.map(|(owner, _)| owner)
            }
            false => None,
        };
        if let Some(owner) = full {
            let oldest = self.records.iter().position(|at| at.owner_uid == owner);
            oldest.and_then(|at| self.records.remove(at));
        }
    }

    /// The whole file anew, in one step.
    fn rewrite(&mut self) -> io::Result<()> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let directory = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        for record in &self.records {
            file.write_all(&line(record))?;
        }
        file.persist(path)?;
        self.lines = self.records.len();
        Ok(())
    }

    /// The record of a job, if `user` may see it: root sees all.
    #[must_use]
    pub fn of(&self, user: u32, job: u64) -> Option<&Record> {
        self.all_of(user).find(|record| record.job == job)
    }

    /// All records that `user` may see, the newest first.
    pub fn all_of(&self, user: u32) -> impl Iterator<Item = &Record> {
        let records = self.records.iter().rev();
        records.filter(move |record| user == 0 || record.owner_uid == user)
    }
}

fn line(record: &Record) -> Vec<u8> {
    let mut line = serde_json::to_vec(record).expect("numbers and strings always serialize");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(job: u64, owner_uid: u32) -> Record {
        Record {
            job,
            cgroup: None,
            owner_uid,
            policy: "lfn".to_owned(),
            started_unix_s: 1,
            ended_unix_s: Some(2),
            counts: crate::Counts::default(),
            phases: BTreeMap::new(),
            held_out_percent: 0,
            trials: Vec::new(),
        }
    }

    #[test]
    fn users_see_their_own_and_root_sees_all() {
        let mut history = History::default();
        history.push(record(1, 1000)).unwrap();
        history.push(record(2, 1001)).unwrap();
        assert!(history.of(1000, 1).is_some());
        assert!(history.of(1000, 2).is_none());
        assert!(history.of(0, 2).is_some());
        let jobs: Vec<u64> = history.all_of(0).map(|record| record.job).collect();
        assert_eq!(jobs, [2, 1]);
    }

    #[test]
    fn one_user_does_not_push_out_the_others() {
        let mut history = History::default();
        history.push(record(1, 1000)).unwrap();
        for job in 2..5_000 {
            history.push(record(job, 1001)).unwrap();
        }
        assert!(history.of(1000, 1).is_some());
        assert_eq!(history.records.len(), 1 + MOST_PER_USER);
        assert!(history.of(1001, 4_999).is_some());
        for job in 5_000..10_000 {
            history.push(record(job, job as u32)).unwrap();
        }
        assert_eq!(history.records.len(), MOST);
    }

    #[test]
    fn a_file_survives_a_restart_and_stays_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs");
        let mut history = History::in_file(&path).unwrap();
        for job in 0..3 * MOST as u64 {
            history.push(record(job, 1000)).unwrap();
        }
        // As it looks after a kill in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"job\":").unwrap();
        let again = History::in_file(&path).unwrap();
        assert_eq!(again.records, history.records);
        assert!(again.lines <= 2 * MOST + 1, "{}", again.lines);
        assert!(again.of(1000, 3 * MOST as u64 - 1).is_some());
    }
}
