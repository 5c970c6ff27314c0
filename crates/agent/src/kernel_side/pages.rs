// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that a process shares with the kernel side (`pl_pages`): one small
//! map per process, which that process alone has mapped.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{self, bpf_map_create_opts};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use paceline_abi::{as_bytes, from_bytes, pl_job, pl_phase_page, pl_process_key};

use super::discover::Found;
use super::runs::key;
use crate::error::{Error, Result};

impl Found {
    /// The page of a job's process, made if it has none. `None` where the job's
    /// policy has no phases, or there is no such job.
    pub fn page(&self, job: u64, process: u32) -> Result<Option<OwnedFd>> {
        let follows = |entry: pl_job| entry.policy.phases != 0;
        if !self.job(job)?.is_some_and(follows) {
            return Ok(None);
        }
        let pages = self.map_of("pl_pages")?;
        let key = key(job, process);
        let page = match read_page(pages, &key)? {
            // The process had one already: it has executed another program.
            Some(page) => page,
            None => {
                let page = new_page()?;
                let descriptor = page.as_fd().as_raw_fd();
                pages
                    .update(as_bytes(&key), &descriptor.to_ne_bytes(), MapFlags::ANY)
                    .map_err(|error| Error::bpf("cannot give a process its page", error))?;
                page
            }
        };
        page.as_fd()
            .try_clone_to_owned()
            .map(Some)
            .map_err(|error| Error::system("cannot duplicate a page's descriptor", error))
    }

    /// Forgets a process's page. Gone already is success.
    pub fn delete_page(&self, job: u64, process: u32) -> Result<()> {
        match self
            .map_of("pl_pages")?
            .delete(as_bytes(&key(job, process)))
        {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::bpf("cannot delete a process's page", error)),
        }
    }

    /// All processes with phases, and the contents of their pages.
    pub fn pages(&self) -> Result<Vec<(pl_process_key, pl_phase_page)>> {
        let pages = self.map_of("pl_pages")?;
        let mut found = Vec::new();
        for bytes in pages.keys() {
            let key: pl_process_key = from_bytes(&bytes)?;
            // A process that ends while this runs is not an error.
            let Some(page) = read_page(pages, &key)? else {
                continue;
            };
            let content = page
                .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| Error::bpf("cannot read a process's page", error))?;
            if let Some(content) = content {
                // Array maps round their values up to eight bytes.
                found.push((key, from_bytes(&content[..size_of::<pl_phase_page>()])?));
            }
        }
        Ok(found)
    }

    pub(super) fn map_of(&self, name: &'static str) -> Result<&MapHandle> {
        self.map(name).ok_or(Error::Incomplete { what: name })
    }
}

/// Read from user space, an entry of a map of maps is the inner map's id.
fn read_page(pages: &MapHandle, key: &pl_process_key) -> Result<Option<MapHandle>> {
    let id = pages
        .lookup(as_bytes(key), MapFlags::ANY)
        .map_err(|error| Error::bpf("cannot read pl_pages", error))?;
    let id = id.and_then(|id| id.try_into().ok()).map(u32::from_ne_bytes);
    // Between the two steps the process may have ended.
    Ok(id.and_then(|id| MapHandle::from_map_id(id).ok()))
}

/// As `struct pl_page_map` of bpf/maps.h has it: the kernel compares.
fn new_page() -> Result<MapHandle> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    MapHandle::create(
        MapType::Array,
        Some(OsStr::new("pl_page")),
        size_of::<u32>() as u32,
        size_of::<pl_phase_page>() as u32,
        1,
        &options,
    )
    .map_err(|error| Error::bpf("cannot make a process's page", error))
}
