// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finding the kernel side by walking the kernel's BPF objects.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;

use libbpf_rs::libbpf_sys;
use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, ProgramHandle};
use paceline_abi::{from_bytes, pl_job, pl_seat};

use super::programs::cgroup_programs;
use super::{describe_identity, identity};
use crate::error::{Error, Result};

/// BPF_STRUCT_OPS_STATE_INUSE of the kernel's linux/bpf.h: registered.
const STATE_IN_USE: u32 = 1;

/// A live kernel side, of this build or of another.
#[derive(Debug)]
pub(crate) struct Found {
    identity: u64,
    maps: BTreeMap<String, MapHandle>,
    congestion: Vec<MapHandle>,
    /// The programs of jobs' cgroups, by name.
    pub(super) programs: BTreeMap<&'static str, ProgramHandle>,
}

/// The live kernel side, if there is one.
///
/// Several generations may be in the kernel at once, because a congestion
/// control lives until its last socket closes; only one has an identity.
pub(crate) fn find() -> Result<Option<Found>> {
    for info in MapInfoIter::default() {
        let is_meta = info.name == "pl_meta"
            && info.ty == MapType::Array
            && (info.key_size, info.value_size, info.max_entries) == (4, 8, 1);
        if !is_meta {
            continue;
        }
        let Ok(meta) = MapHandle::from_map_id(info.id) else {
            continue;
        };
        let identity = read_identity(&meta)?;
        if identity == 0 {
            continue;
        }
        let (maps, programs) = companions(info.id);
        if !maps.contains_key("pl_jobs") {
            // Being freed, or not ours after all.
            continue;
        }
        return Ok(Some(Found {
            identity,
            maps,
            programs,
            congestion: registered_congestion(),
        }));
    }
    Ok(None)
}

/// Unregisters congestion controls without a live kernel side: leftovers of a process
/// that was killed while it loaded or retired.
pub(crate) fn unregister_strays() -> Result<()> {
    registered_congestion().iter().try_for_each(unregister)
}

impl Found {
    /// Whether this build made it, so that its records can be read.
    pub fn is_ours(&self) -> bool {
        let size = |name: &str| self.maps.get(name).map(|map| map.value_size() as usize);
        self.identity == identity() && size("pl_jobs") == Some(size_of::<pl_job>())
    }

    /// Fails where another build made it.
    pub fn require_ours(&self, jobs: impl FnOnce() -> String) -> Result<()> {
        if self.is_ours() {
            return Ok(());
        }
        Err(Error::OtherBuild {
            found: describe_identity(self.identity),
            ours: describe_identity(identity()),
            jobs: jobs(),
        })
    }

    /// A map of the kernel side by its name in the kernel.
    pub fn map(&self, name: &str) -> Option<&MapHandle> {
        self.maps.get(name)
    }

    /// Whether a congestion control's map of this name is registered.
    pub fn registered(&self, name: &str) -> bool {
        self.congestion.iter().any(|map| map.name() == name)
    }

    /// Names of the registered congestion controls' maps.
    pub fn congestion(&self) -> Vec<String> {
        self.congestion
            .iter()
            .map(|map| map.name().to_string_lossy().into_owned())
            .collect()
    }

    /// Ids of the jobs' cgroups: the key's form is common to all builds.
    pub fn job_ids(&self) -> BTreeSet<u64> {
        self.maps["pl_jobs"]
            .keys()
            .filter_map(|key| Some(u64::from_ne_bytes(key.try_into().ok()?)))
            .collect()
    }

    /// How many jobs a user has, those attached to services apart.
    pub fn jobs_of(&self, owner: u32) -> Result<usize> {
        let map = &self.maps["pl_jobs"];
        let attached = pl_seat::PL_SEAT_ATTACHED as u32;
        let mut count = 0;
        for key in map.keys() {
            let entry = map
                .lookup(&key, MapFlags::ANY)
                .map_err(|error| Error::bpf("cannot read the job's entry", error))?;
            if let Some(entry) = entry {
                let job: pl_job = from_bytes(&entry)?;
                count += usize::from(job.owner_uid == owner && job.seat != attached);
            }
        }
        Ok(count)
    }

    /// Ends this kernel side. Sockets that still use a congestion control of it
    /// keep that until they close.
    pub fn retire(self) -> Result<()> {
        // First the identity, so that a process killed here leaves strays and
        // not a half-live kernel side.
        self.maps["pl_meta"]
            .update(&0u32.to_ne_bytes(), &0u64.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::bpf("cannot write pl_meta", error))?;
        for map in &self.congestion {
            unregister(map)?;
        }
        Ok(())
    }
}

fn read_identity(meta: &MapHandle) -> Result<u64> {
    let value = meta
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| Error::bpf("cannot read pl_meta", error))?;
    Ok(value
        .and_then(|value| value.try_into().ok())
        .map_or(0, u64::from_ne_bytes))
}

/// The maps that some program holds together with the map `meta`, and the programs among
/// all of their holders that cgroups carry.
fn companions(
    meta: u32,
) -> (
    BTreeMap<String, MapHandle>,
    BTreeMap<&'static str, ProgramHandle>,
) {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let holders: Vec<ProgramInfo> = ProgInfoIter::with_query_opts(options).collect();
    let ids: BTreeSet<u32> = holders
        .iter()
        .filter(|program| program.map_ids.contains(&meta))
        .flat_map(|program| program.map_ids.iter().copied())
        .collect();
    let programs = cgroup_programs().filter_map(|(name, _)| {
        holders
            .iter()
            .filter(|program| program.name == name)
            .filter(|program| program.map_ids.iter().any(|map| ids.contains(map)))
            .find_map(|program| ProgramHandle::from_prog_id(program.id).ok())
            .map(|program| (name, program))
    });
    let programs = programs.collect();
    let maps = ids
        .into_iter()
        .filter_map(|id| MapHandle::from_map_id(id).ok())
        .map(|map| (map.name().to_string_lossy().into_owned(), map))
        .collect();
    (maps, programs)
}

fn registered_congestion() -> Vec<MapHandle> {
    MapInfoIter::default()
        .filter(|info| info.ty == MapType::StructOps)
        .filter(|info| info.name.to_string_lossy().starts_with("paceline_"))
        .filter_map(|info| MapHandle::from_map_id(info.id).ok())
        .filter(|map| {
            // The value starts with a reference count and the state.
            matches!(map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY), Ok(Some(value))
                if value.get(4..8) == Some(&STATE_IN_USE.to_ne_bytes()))
        })
        .collect()
}

fn unregister(map: &MapHandle) -> Result<()> {
    use std::os::fd::AsFd;
    let key = 0u32;
    // SAFETY: the key is four bytes, as struct_ops maps have it.
    let result = unsafe {
        libbpf_sys::bpf_map_delete_elem(map.as_fd().as_raw_fd(), (&raw const key).cast())
    };
    // EINPROGRESS: unregistered already, its sockets have not closed yet.
    if result == 0 || result == -libc::EINPROGRESS || result == -libc::ENOENT {
        return Ok(());
    }
    Err(Error::bpf(
        format!("cannot unregister {}", map.name().to_string_lossy()),
        libbpf_rs::Error::from_raw_os_error(-result),
    ))
}
