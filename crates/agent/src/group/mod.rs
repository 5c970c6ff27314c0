// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The streams of a group on this host, and bounds of their windows, for a client of the
//! coordinator (kamezawa-2004, 5.1).
//!
//! A group belongs to a user: its streams are those of all jobs that this user owns. Root reads
//! the kernel side itself, for any owner. Other users ask the agent, which identifies them by
//! `SO_PEERCRED`.

mod protocol;
mod remote;
pub(crate) mod server;

#[doc(hidden)]
pub use protocol::fuzz;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use paceline_abi::{name_text, pl_stream_record, pl_uwnd, PL_LEASE_MAX_MS, PL_NAME_LEN};
use paceline_bpf::permission;
use paceline_launch::identity;
use paceline_net::clock::monotonic_us;

use crate::address::address;
use crate::error::{Error, Result};
use crate::kernel_side::groups::Streams;
use remote::Remote;

/// One connection of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// The kernel's socket cookie: never used twice while the host runs.
    pub cookie: u64,
    /// Cookie of the network namespace.
    pub netns: u64,
    /// Id of its job's cgroup.
    pub job: u64,
    /// Local end.
    pub local: SocketAddr,
    /// Remote end.
    pub remote: SocketAddr,
    /// TCP state, as include/net/tcp_states.h numbers them; 1 is established.
    pub state: u32,
    /// Maximum segment size, bytes.
    pub mss: u32,
    /// In flight: sent, and neither acknowledged (SACK included) nor marked lost; segments.
    pub inflight_segs: u32,
    /// The base algorithm's cwnd, segments.
    pub cwnd_segs: u32,
    /// Slow-start threshold, segments.
    pub ssthresh_segs: u32,
    /// The effective cwnd, where a bound makes it differ from `cwnd_segs`.
    pub uwnd_segs: Option<u32>,
    /// The stream's own bounds, set by [`Group::apply`], while their lease lasts; 0: none.
    pub min_segs: u32,
    /// As `min_segs`.
    pub max_segs: u32,
    /// Smoothed RTT, microseconds.
    pub srtt_us: u32,
    /// Minimum RTT, microseconds.
    pub min_rtt_us: u32,
    /// Payload that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Payload in the socket that was not sent yet.
    pub unsent_bytes: u32,
    /// Total payload of the stream, set by the program (`TCP_STREAMBYTES`); 0: not set.
    pub total_bytes: u64,
    /// Segments retransmitted so far, tail-loss probes included.
    pub retransmitted_segs: u32,
    /// Segments known to have arrived, by selective acknowledgement too; wraps.
    pub delivered_segs: u32,
    /// In Recovery or Loss.
    pub recovering: bool,
}

impl Stream {
    pub(crate) fn of(record: &pl_stream_record) -> Self {
        Self {
            cookie: record.cookie,
            netns: record.netns,
            job: record.job,
            local: SocketAddr::new(address(&record.local), record.local_port),
            remote: SocketAddr::new(address(&record.remote), record.remote_port),
            state: record.tcp_state,
            mss: record.mss,
            inflight_segs: record.inflight_segs,
            cwnd_segs: record.cwnd_segs,
            ssthresh_segs: record.ssthresh_segs,
            uwnd_segs: Some(record.uwnd_segs).filter(|segs| *segs != 0),
            min_segs: record.uwnd_min_segs,
            max_segs: record.uwnd_max_segs,
            srtt_us: record.srtt_us,
            min_rtt_us: record.min_rtt_us,
            acked_bytes: record.acked_bytes,
            unsent_bytes: record.unsent_bytes,
            total_bytes: record.total_bytes,
            retransmitted_segs: record.retransmitted_segs,
            delivered_segs: record.delivered_segs,
            recovering: record.recovering != 0,
        }
    }
}

/// Bounds of one stream's window, segments; 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The stream.
    pub cookie: u64,
    /// Lower bound of the effective cwnd, except during loss recovery.
    pub min_segs: u32,
    /// Upper bound of the effective cwnd.
    pub max_segs: u32,
}

/// A group of one user on this host. It keeps its programs loaded, for frequent queries.
#[derive(Debug)]
pub struct Group {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Direct(Local),
    Agent(Remote),
}

impl Group {
    /// The calling user's group of this name; for root, the group of the user behind sudo.
    /// Without the capabilities, by the agent at `directory` ([`crate::service::DIRECTORY`]).
    ///
    /// # Errors
    /// [`Error::GroupName`], [`Error::NoAgent`]; that there is no stream yet is no error.
    pub fn open(name: &str, directory: &Path) -> Result<Self> {
        if permission::capable() {
            return Self::of_owner(name, identity::owner());
        }
        Self::by_agent(name, directory)
    }

    /// The calling user's group of this name, by the agent at `directory`.
    ///
    /// # Errors
    /// [`Error::GroupName`], [`Error::NoAgent`].
    pub fn by_agent(name: &str, directory: &Path) -> Result<Self> {
        check_name(name)?;
        let remote = Remote::connect(directory, name)?;
        Ok(Self {
            source: Source::Agent(remote),
        })
    }

    /// The group of this name of any user. Needs root.
    ///
    /// # Errors
    /// [`Error::GroupName`], [`Error::NotPermitted`].
    pub fn of_owner(name: &str, owner: u32) -> Result<Self> {
        check_name(name)?;
        permission::require("reading a group")?;
        Ok(Self {
            source: Source::Direct(Local::new(name, owner)),
        })
    }

    /// Its streams now.
    ///
    /// # Errors
    /// Where the kernel side cannot be read, or the agent does not answer; the next call asks
    /// again.
    pub fn streams(&mut self) -> Result<Vec<Stream>> {
        let records = match &mut self.source {
            Source::Direct(local) => local.streams()?,
            Source::Agent(remote) => remote.streams()?,
        };
        Ok(records.iter().map(Stream::of).collect())
    }

    /// Bounds the windows of these streams until `lease` has passed, 1 ms to 1 h; bounds
    /// of 0 and 0 free a stream at once. Streams that ended meanwhile, or are not of this
    /// group, are left out. Returns how many were bounded.
    ///
    /// # Errors
    /// [`Error::Bounds`]; otherwise as [`Group::streams`].
    pub fn apply(&mut self, bounds: &[Bounds], lease: Duration) -> Result<usize> {
        let lease_us = check_bounds(bounds, lease)?;
        match &mut self.source {
            Source::Direct(local) => local.apply(bounds, lease_us),
            Source::Agent(remote) => remote.apply(bounds, lease_us),
        }
    }
}

/// A group, read by a process with the capabilities.
#[derive(Debug)]
pub(crate) struct Local {
    name: String,
    owner: u32,
    kernel: Option<Streams>,
    /// Cookies that were seen in the group.
    known: HashSet<u64>,
}

impl Local {
    pub fn new(name: &str, owner: u32) -> Self {
        Self {
            name: name.to_owned(),
            owner,
            kernel: None,
            known: HashSet::new(),
        }
    }

    /// The live kernel side, which may be another one than last time.
    fn kernel(&mut self) -> Result<Option<&Streams>> {
        if self.kernel.as_ref().is_some_and(|kernel| !kernel.is_live()) {
            self.kernel = None;
        }
        if self.kernel.is_none() {
            self.kernel = Streams::open()?;
        }
        Ok(self.kernel.as_ref())
    }

    pub fn streams(&mut self) -> Result<Vec<pl_stream_record>> {
        let (name, owner) = (self.name.clone(), self.owner);
        let mut records = match self.kernel()? {
            Some(kernel) => kernel.read()?,
            None => Vec::new(),
        };
        records.retain(|record| {
            record.group.owner_uid == owner && name_text(&record.group.name) == name
        });
        self.known = records.iter().map(|record| record.cookie).collect();
        Ok(records)
    }

    pub fn apply(&mut self, bounds: &[Bounds], lease_us: u64) -> Result<usize> {
        if bounds
            .iter()
            .any(|bound| !self.known.contains(&bound.cookie))
        {
            self.streams()?;
        }
        let known = std::mem::take(&mut self.known);
        let until_us = monotonic_us() + lease_us;
        let mut applied = 0;
        if let Some(kernel) = self.kernel()? {
            for bound in bounds.iter().filter(|bound| known.contains(&bound.cookie)) {
                let uwnd = pl_uwnd {
                    min_segs: bound.min_segs,
                    max_segs: bound.max_segs,
                    until_us,
                };
                kernel.bound(bound.cookie, &uwnd)?;
                applied += 1;
            }
        }
        self.known = known;
        Ok(applied)
    }
}

/// The lease in microseconds.
fn check_bounds(bounds: &[Bounds], lease: Duration) -> Result<u64> {
    let most = Duration::from_millis(PL_LEASE_MAX_MS.into());
    if lease < Duration::from_millis(1) || lease > most {
        return Err(Error::Bounds {
            why: format!("a lease is 1ms to {most:?}, not {lease:?}"),
        });
    }
    let wrong = bounds
        .iter()
        .find(|bound| bound.max_segs != 0 && bound.min_segs > bound.max_segs);
    match wrong {
        None => Ok(lease.as_micros() as u64),
        Some(bound) => Err(Error::Bounds {
            why: format!(
                "min is {} segments and max {}: min must not exceed max",
                bound.min_segs, bound.max_segs
            ),
        }),
    }
}

/// Whether a group may have this name: 1 to 31 bytes without control characters. A longer name
/// would be truncated and name another group.
///
/// # Errors
/// [`Error::GroupName`].
pub fn check_name(name: &str) -> Result<()> {
    let longest = PL_NAME_LEN as usize - 1;
    let fits = !name.is_empty() && name.len() <= longest && !name.chars().any(char::is_control);
    fits.then_some(()).ok_or_else(|| Error::GroupName {
        name: name.to_owned(),
        longest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_be_cut_is_refused() {
        assert!(check_name("bulk").is_ok());
        assert!(check_name(&"x".repeat(31)).is_ok());
        for name in ["", "a\nb", &"x".repeat(32)] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains("1 to 31"), "{error}");
        }
    }

    #[test]
    fn bounds_that_no_window_fits_are_refused() {
        let bounds = |min_segs, max_segs| {
            [Bounds {
                cookie: 1,
                min_segs,
                max_segs,
            }]
        };
        let second = Duration::from_secs(1);
        assert_eq!(check_bounds(&bounds(3, 3), second).unwrap(), 1_000_000);
        assert!(check_bounds(&bounds(3, 0), second).is_ok());
        assert!(check_bounds(&bounds(4, 3), second).is_err());
        assert!(check_bounds(&bounds(0, 3), Duration::ZERO).is_err());
        assert!(check_bounds(&bounds(0, 3), Duration::from_secs(7200)).is_err());
    }
}
