// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs of a job's cgroup: the same for all jobs.
//!
//! They are loaded for the first job. The next one reuses them: to attach a loaded program
//! costs a thousandth of its verification.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;
use libbpf_rs::ProgramHandle;
use paceline_cgroup::Cgroup;
use paceline_policy::Policy;

use super::discover::Found;
use crate::error::{Error, Result};

/// The sockops program that applies a job's policy to its connections.
pub(super) const CONNECTION_PROGRAM: &str = "pl_connection";
/// A program of a cgroup, and its attach type.
type CgroupProgram = (&'static str, libbpf_sys::bpf_attach_type);

/// The programs of a job's cgroup.
const COMMON_PROGRAMS: [CgroupProgram; 4] = [
    (CONNECTION_PROGRAM, libbpf_sys::BPF_CGROUP_SOCK_OPS),
    ("pl_maker", libbpf_sys::BPF_CGROUP_INET_SOCK_CREATE),
    ("pl_set_option", libbpf_sys::BPF_CGROUP_SETSOCKOPT),
    ("pl_get_option", libbpf_sys::BPF_CGROUP_GETSOCKOPT),
];
/// Those that hold ACKs back: packets of other jobs' cgroups run no program.
const ACK_PROGRAMS: [CgroupProgram; 2] = [
    ("pl_arrivals", libbpf_sys::BPF_CGROUP_INET_INGRESS),
    ("pl_hold_acks", libbpf_sys::BPF_CGROUP_INET_EGRESS),
];

/// All that a cgroup may carry.
pub(super) fn cgroup_programs() -> impl Iterator<Item = CgroupProgram> {
    COMMON_PROGRAMS.into_iter().chain(ACK_PROGRAMS)
}

/// The programs on the cgroup of a job with this policy.
pub(super) fn programs_for(policy: &Policy) -> impl Iterator<Item = CgroupProgram> {
    let holds_acks = policy.holds_acks();
    let acks = ACK_PROGRAMS.into_iter().filter(move |_| holds_acks);
    COMMON_PROGRAMS.into_iter().chain(acks)
}

impl Found {
    /// Whether a program of cgroups is loaded.
    pub(super) fn has_program(&self, name: &str) -> bool {
        self.programs.contains_key(name)
    }

    /// Attaches the job's programs to a cgroup. They stay as long as the cgroup does,
    /// without a pin and without this process.
    pub fn attach_to(&self, cgroup: &Cgroup, policy: &Policy) -> Result<()> {
        let directory = cgroup.open()?;
        for (name, place) in programs_for(policy) {
            let program = self.programs.get(name).ok_or(Error::Incomplete {
                what: "program of that name",
            })?;
            // SAFETY: both descriptors are open for the duration of the call.
            let result = unsafe {
                libbpf_sys::bpf_prog_attach(
                    program.as_fd().as_raw_fd(),
                    directory.as_raw_fd(),
                    place,
                    libbpf_sys::BPF_F_ALLOW_MULTI,
                )
            };
            // It is there already: a command was killed before it was done.
            let there = || result == -libc::EINVAL && carries(&directory, name, place);
            if result != 0 && !there() {
                return Err(Error::bpf(
                    format!(
                        "cannot attach {name} to {} (another program may own a cgroup above it exclusively)",
                        cgroup.path().display()
                    ),
                    libbpf_rs::Error::from_raw_os_error(-result),
                ));
            }
        }
        Ok(())
    }
}

/// Detaches Paceline's programs of any build from a cgroup.
pub(crate) fn detach_from(cgroup: &Cgroup) -> Result<()> {
    detach(cgroup, cgroup_programs())
}

/// Detaches the programs that hold ACKs back, if the job's policy no longer has the key.
pub(crate) fn detach_unasked(cgroup: &Cgroup, policy: &Policy) -> Result<()> {
    match policy.holds_acks() {
        true => Ok(()),
        false => detach(cgroup, ACK_PROGRAMS.into_iter()),
    }
}

fn detach(cgroup: &Cgroup, programs: impl Iterator<Item = CgroupProgram>) -> Result<()> {
    let directory = cgroup.open()?;
    for (name, place) in programs {
        for program in attached_programs(&directory, name, place) {
            // SAFETY: both descriptors are open for the duration of the call.
            let result = unsafe {
                libbpf_sys::bpf_prog_detach2(program.as_raw_fd(), directory.as_raw_fd(), place)
            };
            if result != 0 && result != -libc::ENOENT {
                return Err(Error::bpf(
                    format!("cannot detach {name} from {}", cgroup.path().display()),
                    libbpf_rs::Error::from_raw_os_error(-result),
                ));
            }
        }
    }
    Ok(())
}

fn carries(directory: &File, name: &str, place: libbpf_sys::bpf_attach_type) -> bool {
    !attached_programs(directory, name, place).is_empty()
}

fn attached_programs(
    directory: &File,
    name: &str,
    place: libbpf_sys::bpf_attach_type,
) -> Vec<OwnedFd> {
    let mut ids = [0u32; 64];
    let mut count = ids.len() as u32;
    // SAFETY: `ids` has room for `count` identifiers.
    let result = unsafe {
        libbpf_sys::bpf_prog_query(
            directory.as_raw_fd(),
            place,
            0,
            std::ptr::null_mut(),
            ids.as_mut_ptr(),
            &mut count,
        )
    };
    if result != 0 {
        return Vec::new();
    }
    ids[..count as usize]
        .iter()
        .filter_map(|id| ProgramHandle::from_prog_id(*id).ok())
        .filter(|program| program.name() == name)
        .filter_map(|program| program.as_fd().try_clone_to_owned().ok())
        .collect()
}
