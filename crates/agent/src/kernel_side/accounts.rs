// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The use of the maps that all jobs share (bpf/accounts.h): each owner has an account, and the
//! share of a job is released when the job is gone.
//!
//! The programs add to a job's counter first, then to its owner's, then to the host's. So a
//! reader in the reverse order never finds more in an account than in its jobs, except the use
//! of ended jobs that was not released yet: by this process, or by one that was killed.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::{MapCore, MapFlags};
use nix::sys::mman::{mmap, munmap, MapFlags as Mapping, ProtFlags};
use paceline_abi::{
    as_bytes, from_bytes, pl_account, pl_job, pl_place, pl_place_key, pl_seat, PL_ACCOUNTS,
    PL_MAX_JOBS,
};
use paceline_cgroup::Lock;
use paceline_history::Record;

use super::counters::unix_s;
use super::discover::Found;
use crate::error::{Error, Result};

/// A job that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its entry at the end.
    pub job: pl_job,
    /// Its record.
    pub record: Record,
}

/// The host's account; the others are owners'.
const HOST: usize = 0;

/// All accounts, mapped: the programs write there at any time.
#[derive(Debug)]
struct Accounts {
    first: NonNull<pl_account>,
    bytes: NonZeroUsize,
}

impl Accounts {
    pub fn map(map: impl AsFd) -> Result<Self> {
        let bytes = NonZeroUsize::new(PL_ACCOUNTS as usize * size_of::<pl_account>())
            .expect("there are accounts");
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping of a map of that size, which is kept until drop.
        let first = unsafe { mmap(None, bytes, protection, Mapping::MAP_SHARED, map, 0) }
            .map_err(|errno| Error::system("cannot map the accounts", errno.into()))?;
        Ok(Self {
            first: first.cast(),
            bytes,
        })
    }

    fn field(&self, account: usize, of: impl Fn(*mut pl_account) -> *mut u32) -> &AtomicU32 {
        assert!(account < PL_ACCOUNTS as usize);
        // SAFETY: inside the mapping, aligned, and all writes are atomic.
        unsafe { AtomicU32::from_ptr(of(self.first.as_ptr().add(account))) }
    }

    fn paths(&self, account: usize) -> &AtomicU32 {
        // SAFETY: `at` is valid, and only its field's address is taken.
        self.field(account, |at| unsafe { &raw mut (*at).used.paths })
    }

    fn turns(&self, account: usize) -> &AtomicU32 {
        // SAFETY: as in `paths`.
        self.field(account, |at| unsafe { &raw mut (*at).used.turns })
    }

    fn owner(&self, account: usize) -> &AtomicU32 {
        // SAFETY: as in `paths`.
        self.field(account, |at| unsafe { &raw mut (*at).owner_uid })
    }

    fn given(&self, account: usize) -> &AtomicU32 {
        // SAFETY: as in `paths`.
        self.field(account, |at| unsafe { &raw mut (*at).given })
    }

    /// Whether nothing is counted there. Connections of ended jobs may linger in groups.
    fn is_unused(&self, account: usize) -> bool {
        let zero = |counter: &AtomicU32| counter.load(Ordering::SeqCst) == 0;
        // SAFETY: as in `paths`.
        let groups = self.field(account, |at| unsafe { &raw mut (*at).used.groups });
        // SAFETY: as in `paths`.
        let members = self.field(account, |at| unsafe { &raw mut (*at).used.members });
        zero(self.paths(account)) && zero(self.turns(account)) && zero(groups) && zero(members)
    }

    /// The account of an owner, given to it if it has none. Under the lock of all changes.
    pub fn of(&self, owner: u32, jobs: &[(u64, pl_job)]) -> Result<u32> {
        let mut free = None;
        for account in 1..PL_ACCOUNTS as usize {
            let given = self.given(account).load(Ordering::SeqCst) != 0;
            if given && self.owner(account).load(Ordering::SeqCst) == owner {
                return Ok(account as u32);
            }
            let number = account as u32;
            let has_job = || jobs.iter().any(|(_, job)| job.account == number);
            if free.is_none() && (!given || (!has_job() && self.is_unused(account))) {
                free = Some(account);
            }
        }
        let account = free.ok_or(Error::TooManyJobs { limit: PL_MAX_JOBS })?;
        self.owner(account).store(owner, Ordering::SeqCst);
        self.given(account).store(1, Ordering::SeqCst);
        Ok(account as u32)
    }

    /// Releases the shares of jobs that are gone; `jobs` reads those that are not.
    pub fn settle(&self, jobs: impl FnOnce() -> Result<Vec<(u64, pl_job)>>) -> Result<()> {
        let accounts = 0..PL_ACCOUNTS as usize;
        let load = |counter: &AtomicU32| counter.load(Ordering::SeqCst);
        let found: Vec<(u32, u32)> = accounts
            .map(|account| (load(self.paths(account)), load(self.turns(account))))
            .collect();
        let mut living = vec![(0, 0); found.len()];
        for (_, job) in jobs()? {
            for account in [HOST, job.account as usize] {
                if let Some((paths, turns)) = living.get_mut(account) {
                    *paths += job.used.paths;
                    *turns += job.used.turns;
                }
            }
        }
        for (account, (found, living)) in found.iter().zip(&living).enumerate() {
            let gone = (
                found.0.saturating_sub(living.0),
                found.1.saturating_sub(living.1),
            );
            if gone.0 != 0 {
                self.paths(account).fetch_sub(gone.0, Ordering::SeqCst);
            }
            if gone.1 != 0 {
                self.turns(account).fetch_sub(gone.1, Ordering::SeqCst);
            }
        }
        Ok(())
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, to which no reference is left.
        let _ = unsafe { munmap(self.first.cast(), self.bytes.get()) };
    }
}

impl Found {
    /// Writes a job's entry; from now on its sockets get the policy.
    pub fn put_job(&self, _lock: &Lock, id: u64, job: &pl_job) -> Result<()> {
        let accounts = Accounts::map(self.map_of("pl_accounts")?)?;
        let job = pl_job {
            account: accounts.of(job.owner_uid, &self.jobs()?)?,
            ..*job
        };
        match self
            .map_of("pl_jobs")?
            .update(&id.to_ne_bytes(), as_bytes(&job), MapFlags::ANY)
        {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::TooBig => {
                Err(Error::TooManyJobs { limit: PL_MAX_JOBS })
            }
            Err(error) => Err(Error::bpf("cannot write the job's entry", error)),
        }
    }

    /// Releases the shares of jobs that are gone. Under the lock of all changes.
    pub fn settle(&self) -> Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        self.delete_stray_counters()?;
        Accounts::map(self.map_of("pl_accounts")?)?.settle(|| self.jobs())
    }

    /// All jobs of a kernel side of this build, with their cgroups' ids.
    pub fn jobs(&self) -> Result<Vec<(u64, pl_job)>> {
        let mut jobs = Vec::new();
        for id in self.job_ids() {
            if let Some(job) = self.job(id)? {
                jobs.push((id, job));
            }
        }
        Ok(jobs)
    }

    /// A job's entry, if it is there.
    pub fn job(&self, id: u64) -> Result<Option<pl_job>> {
        let entry = self
            .map_of("pl_jobs")?
            .lookup(&id.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::bpf("cannot read the job's entry", error))?;
        Ok(entry.as_deref().map(from_bytes).transpose()?)
    }

    /// Deletes a job, its paths and its counters. Returns its entry and record, if this build
    /// can read them; `cgroup`: its directory, if known.
    pub fn delete_job(&self, id: u64, cgroup: Option<&Path>) -> Result<Option<Ended>> {
        if !self.is_ours() {
            self.delete_entry(id)?;
            return Ok(None);
        }
        let Some(job) = self.job(id)? else {
            return Ok(None);
        };
        let mut record = self.record(id, &job, cgroup.map(Path::to_path_buf), &[])?;
        // The entry last: after a kill the next command repeats the deletion.
        self.delete_paths(id, 1, job.used.paths)?;
        let phases = self
            .policy(id)?
            .is_some_and(|policy| policy.has_had_phases());
        self.delete_policy(id)?;
        let last = self
            .map_of("pl_jobs")?
            .lookup_and_delete(&id.to_ne_bytes())
            .map_err(|error| Error::bpf("cannot delete the job's entry", error))?;
        let last: pl_job = last.as_deref().map_or(Ok(job), from_bytes)?;
        // Connections that linger have made none since.
        self.delete_paths(id, job.used.paths + 1, last.used.paths)?;
        if last.used.turns != 0 {
            self.delete_all_of("pl_turns", id)?;
        }
        if last.policy.phases != 0 || phases {
            self.delete_all_of("pl_pages", id)?;
        }
        if last.seat == pl_seat::PL_SEAT_SHARED as u32 {
            self.delete_all_of("pl_runs", id)?;
        }
        self.delete_counters(id)?;
        record.ended_unix_s = Some(unix_s());
        Ok(Some(Ended { job: last, record }))
    }

    fn delete_entry(&self, id: u64) -> Result<()> {
        match self.map_of("pl_jobs")?.delete(&id.to_ne_bytes()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(Error::bpf("cannot delete the job's entry", error))
            }
            _ => Ok(()),
        }
    }

    /// The paths in the places `from` to `to` of a job.
    fn delete_paths(&self, job: u64, from: u32, to: u32) -> Result<()> {
        let places = self.map_of("pl_places")?;
        let paths = self.map_of("pl_paths")?;
        for place in from..=to {
            let key = pl_place_key {
                job,
                place,
                reserved: 0,
            };
            let at = places
                .lookup(as_bytes(&key), MapFlags::ANY)
                .map_err(|error| Error::bpf("cannot read pl_places", error))?;
            if let Some(at) = at {
                let at: pl_place = from_bytes(&at)?;
                // Already gone: success.
                let _ = paths.delete(as_bytes(&at.path));
                let _ = places.delete(as_bytes(&key));
            }
        }
        Ok(())
    }

    /// The entries of a map whose key begins with the job's id.
    pub(super) fn delete_all_of(&self, map: &'static str, job: u64) -> Result<()> {
        let map = self.map_of(map)?;
        let of_job: Vec<Vec<u8>> = map
            .keys()
            .filter(|key| key.starts_with(&job.to_ne_bytes()))
            .collect();
        for key in of_job {
            // Already gone: success.
            let _ = map.delete(&key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accounts in plain memory, as a map of the kernel would be.
    fn accounts() -> Accounts {
        let bytes = NonZeroUsize::new(PL_ACCOUNTS as usize * size_of::<pl_account>()).unwrap();
        let flags = Mapping::MAP_PRIVATE;
        // SAFETY: a new mapping, which is kept until drop.
        let first = unsafe {
            nix::sys::mman::mmap_anonymous(
                None,
                bytes,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                flags,
            )
        };
        Accounts {
            first: first.unwrap().cast(),
            bytes,
        }
    }

    fn job(account: u32, paths: u32) -> (u64, pl_job) {
        let mut job = pl_job {
            account,
            ..Default::default()
        };
        job.used.paths = paths;
        (u64::from(account), job)
    }

    #[test]
    fn an_owner_keeps_its_account_and_one_that_is_done_is_anothers() {
        let accounts = accounts();
        let first = accounts.of(1000, &[]).unwrap();
        assert_eq!(accounts.of(1000, &[]).unwrap(), first);
        let jobs = [job(first, 0)];
        let second = accounts.of(1001, &jobs).unwrap();
        assert_ne!(second, first);
        // It has no job any more, but paths that are not released yet.
        accounts.paths(first as usize).store(3, Ordering::SeqCst);
        assert_ne!(accounts.of(1002, &[]).unwrap(), first);
        accounts.settle(|| Ok(Vec::new())).unwrap();
        assert_eq!(accounts.of(1003, &[]).unwrap(), first);
    }

    #[test]
    fn quota_of_ended_jobs_is_returned() {
        let accounts = accounts();
        let account = accounts.of(1000, &[]).unwrap() as usize;
        accounts.paths(HOST).store(70, Ordering::SeqCst);
        accounts.paths(account).store(50, Ordering::SeqCst);
        accounts
            .settle(|| Ok(vec![job(account as u32, 30)]))
            .unwrap();
        assert_eq!(accounts.paths(HOST).load(Ordering::SeqCst), 30);
        assert_eq!(accounts.paths(account).load(Ordering::SeqCst), 30);
        // A job that makes paths at this moment is ahead of its account.
        accounts
            .settle(|| Ok(vec![job(account as u32, 31)]))
            .unwrap();
        assert_eq!(accounts.paths(account).load(Ordering::SeqCst), 30);
    }
}
