// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel side: finds, loads, registers and retires it.
//!
//! Nothing is pinned and no file is written. A registered congestion control
//! outlives the process that loaded it, and so does a program attached to a
//! cgroup; both hold the maps. Any later command finds them again by walking the
//! kernel's objects ([`discover`]), loads the short-lived programs (iterators,
//! the sockops program of a new job) and lets them share those maps.
//!
//! Life of the kernel side, all under [`paceline_cgroup::Lock`]:
//!
//! ```text
//!   absent --load--> loaded --register, bind maps--> carried --write identity--> live
//!   live --last job ends: identity = 0, unregister--> lingering --last socket closes--> absent
//! ```
//!
//! A process killed on the way to `live` leaves an identity of 0, which
//! [`discover`] treats as absent and [`discover::unregister_strays`] removes.

mod accounts;
mod btf;
pub(crate) mod counters;
pub(crate) mod discover;
pub(crate) mod groups;
mod loading;
mod pages;
pub(crate) mod policies;
mod programs;
mod records;
mod runs;

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys;
use libbpf_rs::{
    Iter, Link, MapCore, MapFlags, MapType, Object, ObjectBuilder, OpenObject, ProgramMut,
    ProgramType,
};
use paceline_abi::{
    from_bytes, pl_connection_record, pl_job, pl_outside_record, pl_path, pl_path_key,
    pl_path_slot, PL_ABI_VERSION,
};
use paceline_bpf::messages::route_libbpf_messages;
use paceline_cgroup::Lock;
use paceline_policy::Base;

use crate::error::{Error, Result};
use crate::options::JobOptions;
pub(crate) use accounts::Ended;
pub(crate) use btf::{bbr_form, load_bbr_module, BbrForm};
use discover::Found;
use groups::STREAMS_PROGRAM;
pub(crate) use programs::{detach_from, detach_unasked};
use programs::{programs_for, CONNECTION_PROGRAM};
use records::records;
pub(crate) use runs::UNKNOWN as UNKNOWN_RUN;

/// The compiled bpf/paceline.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/paceline.bpf.o"));

/// The `release` member that all of Paceline's congestion controls share.
const LEAVE_PROGRAM: &str = "pl_leave";
/// The iterator that writes one record per connection with socket storage.
pub(crate) const STATUS_PROGRAM: &str = "pl_status";
/// The iterator that writes one record per socket which a job's process has and the job has not.
pub(crate) const OUTSIDE_PROGRAM: &str = "pl_outside";

/// ABI version in the low half, build of the BPF object in the high half. Never
/// zero.
pub fn identity() -> u64 {
    let build: u32 = env!("PACELINE_BPF_BUILD")
        .parse()
        .expect("build.rs wrote a number");
    u64::from(build) << 32 | u64::from(PL_ABI_VERSION)
}

/// An identity for people: `abi 1, build 5f3a90c1`.
pub fn describe_identity(identity: u64) -> String {
    format!("abi {}, build {:08x}", identity as u32, identity >> 32)
}

/// The kernel side that this process has loaded: maps shared with the registered one, and
/// programs of its own.
#[derive(Debug)]
pub struct KernelSide {
    object: Object,
}

impl KernelSide {
    /// The live kernel side with all parts that a job needs; only the missing ones are loaded.
    ///
    /// # Errors
    /// [`Error::OtherBuild`] where another build carries jobs,
    /// [`Error::BaseUnavailable`] where the kernel cannot wrap its base,
    /// [`Error::Bpf`] where it refuses the programs.
    pub(crate) fn ensure(lock: &Lock, found: Option<Found>, options: &JobOptions) -> Result<Found> {
        let policy = &options.policy;
        let wanted = congestion_map(options)?;
        let missing = match (&found, wanted) {
            (_, None) => None,
            (Some(found), Some(name)) if found.registered(name) => None,
            (_, Some(name)) => Some(name),
        };
        let is_loaded = |name: &str| found.as_ref().is_some_and(|found| found.has_program(name));
        let programs: Vec<&str> = programs_for(policy)
            .map(|(name, _)| name)
            .filter(|name| !is_loaded(name))
            .collect();
        let found = match found {
            Some(found) if missing.is_none() && programs.is_empty() => return Ok(found),
            found => found,
        };
        let mut side = Self::load(found.as_ref(), missing, Some(&programs)).map_err(|error| match (error, missing) {
            // The functions are in the kernel's BTF, but it does not let BPF
            // call them, or the verifier refuses: say which base needs them.
            (error @ Error::Bpf { .. }, Some(_)) if !error.is_refusal() => Error::BaseUnavailable {
                policy: policy.name.clone(),
                base: policy.base.kernel_name().unwrap_or("keep"),
                why: format!(
                    "{error}; see paceline doctor (on arm64, kernels before 6.10 lack the CUBIC and BBR functions), and paceline -vv for the verifier's log"
                ),
            },
            (error, _) => error,
        })?;
        if let Some(name) = missing {
            side.register(name)?;
        }
        if programs.contains(&CONNECTION_PROGRAM) {
            side.bind_maps(CONNECTION_PROGRAM)?;
        }
        side.write_identity(lock)?;
        // It holds the programs from here on, until a cgroup does.
        discover::find()?.ok_or(Error::Incomplete {
            what: "kernel side, although it was just loaded: another program removed it",
        })
    }

    /// The live kernel side with one short-lived program, an iterator.
    pub(crate) fn join(found: &Found, program: &str) -> Result<Self> {
        Self::load(Some(found), None, Some(&[program]))
    }

    /// The live kernel side with only the parts that `status` reads.
    pub(crate) fn join_to_read(found: &Found) -> Result<Self> {
        Self::load(
            Some(found),
            None,
            Some(&[STATUS_PROGRAM, STREAMS_PROGRAM, OUTSIDE_PROGRAM]),
        )
    }

    /// Whether it is still the live one: it ends with the last job.
    pub(crate) fn is_live(&self) -> bool {
        let meta = self.map("pl_meta");
        let value = meta.map(|meta| meta.lookup(&0u32.to_ne_bytes(), MapFlags::ANY));
        matches!(value, Ok(Ok(Some(value))) if value == identity().to_ne_bytes())
    }

    /// Loads these programs, and a congestion control by its map's name, to see
    /// whether the kernel takes them. Leaves nothing behind.
    pub(crate) fn probe(programs: &[&str], congestion: Option<&str>) -> Result<()> {
        route_libbpf_messages();
        let mut open = open_object()?;
        choose_congestion(&mut open, congestion)?;
        choose_programs(&mut open, programs);
        loading::load(open).map(drop)
    }

    /// Registers a congestion control under a live kernel side's absence, to see
    /// whether the kernel takes it. The caller unregisters strays afterwards.
    pub(crate) fn probe_registering(_lock: &Lock, congestion: &str) -> Result<()> {
        Self::load(None, Some(congestion), Some(&[]))?.register(congestion)
    }

    /// `only`: the programs that are needed, which saves the others' verification.
    fn load(
        share: Option<&Found>,
        congestion: Option<&str>,
        only: Option<&[&str]>,
    ) -> Result<Self> {
        route_libbpf_messages();
        let mut open = open_object()?;
        choose_congestion(&mut open, congestion)?;
        if let Some(only) = only {
            choose_programs(&mut open, only);
        }
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if let Some(shared) = share.and_then(|found| found.map(&name)) {
                map.reuse_fd(shared.as_fd())
                    .map_err(|error| Error::bpf(format!("cannot share map {name}"), error))?;
            }
        }
        Ok(Self {
            object: loading::load(open)?,
        })
    }

    fn register(&mut self, name: &str) -> Result<()> {
        let mut map = self
            .object
            .maps_mut()
            .find(|map| map.name() == name)
            .ok_or(Error::Incomplete {
                what: "congestion control of that name",
            })?;
        let mut link = map
            .attach_struct_ops()
            .map_err(|error| Error::bpf(format!("cannot register {name}"), error))?;
        // The registration must outlive this process: a crash of paceline
        // leaves jobs adapted.
        link.disconnect();
        drop(link);
        // Every congestion control gives its path back when it leaves a socket.
        self.bind_maps(LEAVE_PROGRAM)
    }

    /// Makes `program` hold every shared map, whether it uses it or not, so
    /// that they live and are found as long as it does.
    fn bind_maps(&self, program: &str) -> Result<()> {
        let program = self.program(program)?;
        for map in self.object.maps() {
            if map.map_type() == MapType::StructOps || !map.autocreate() {
                continue;
            }
            // SAFETY: both descriptors are open for the duration of the call.
            let result = unsafe {
                libbpf_sys::bpf_prog_bind_map(
                    program.as_fd().as_raw_fd(),
                    map.as_fd().as_raw_fd(),
                    std::ptr::null(),
                )
            };
            // The program uses the map anyway.
            if result != 0 && result != -libc::EEXIST {
                return Err(Error::bpf(
                    format!("cannot bind map {}", map.name().to_string_lossy()),
                    libbpf_rs::Error::from_raw_os_error(-result),
                ));
            }
        }
        Ok(())
    }

    fn write_identity(&self, _lock: &Lock) -> Result<()> {
        self.map("pl_meta")?
            .update(
                &0u32.to_ne_bytes(),
                &identity().to_ne_bytes(),
                MapFlags::ANY,
            )
            .map_err(|error| Error::bpf("cannot write pl_meta", error))
    }

    fn map(&self, name: &'static str) -> Result<libbpf_rs::Map<'_>> {
        self.object
            .maps()
            .find(|map| map.name() == name)
            .ok_or(Error::Incomplete { what: name })
    }

    fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        self.object
            .progs_mut()
            .find(|program| program.name() == OsStr::new(name))
            .ok_or(Error::Incomplete {
                what: "program of that name",
            })
    }

    /// All jobs with their cgroups' ids.
    pub fn jobs(&self) -> Result<Vec<(u64, pl_job)>> {
        let mut jobs = Vec::new();
        for (key, value) in self.entries("pl_jobs")? {
            let id = <[u8; 8]>::try_from(key.as_slice()).map(u64::from_ne_bytes);
            jobs.push((
                id.expect("libbpf checked the key's size"),
                from_bytes(&value)?,
            ));
        }
        jobs.sort_by_key(|(id, _)| *id);
        Ok(jobs)
    }

    /// The path state of all jobs.
    pub fn paths(&self) -> Result<Vec<(pl_path_key, pl_path)>> {
        self.entries("pl_paths")?
            .iter()
            .map(|(key, value)| Ok((from_bytes(key)?, from_bytes::<pl_path_slot>(value)?.path)))
            .collect()
    }

    fn entries(&self, map: &'static str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let map = self.map(map)?;
        let mut entries = Vec::new();
        for key in map.keys() {
            // An entry that goes while this runs is not an error.
            if let Some(value) = map
                .lookup(&key, MapFlags::ANY)
                .map_err(|error| Error::bpf("cannot read a map", error))?
            {
                entries.push((key, value));
            }
        }
        Ok(entries)
    }

    /// Every connection with state of Paceline, in all network namespaces.
    pub fn connections(&self) -> Result<Vec<pl_connection_record>> {
        let connections = self.map("pl_connections")?;
        let link = self
            .program(STATUS_PROGRAM)?
            .attach_iter(connections.as_fd())
            .map_err(|error| Error::bpf("cannot read the connections", error))?;
        records(&read_iterator(&link)?, |record: &pl_connection_record| {
            record.cookie
        })
    }

    /// Names the job that `pl_adopt` and `pl_release` work on.
    pub(crate) fn set_subject(&self, _lock: &Lock, id: u64) -> Result<()> {
        self.map("pl_subject")?
            .update(&0u32.to_ne_bytes(), &id.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::bpf("cannot write pl_subject", error))
    }

    /// Sockets that the processes of a job have and the job has not.
    pub(crate) fn outside(&self, lock: &Lock, id: u64) -> Result<Vec<pl_outside_record>> {
        self.set_subject(lock, id)?;
        self.iterate(OUTSIDE_PROGRAM)?
            .chunks(size_of::<pl_outside_record>())
            .map(|record| Ok(from_bytes(record)?))
            .collect()
    }

    /// Runs an iterator over the TCP sockets of the calling thread's network namespace, or over
    /// files of tasks, and returns its output.
    pub(crate) fn iterate(&self, program: &str) -> Result<Vec<u8>> {
        let link = self
            .program(program)?
            .attach_iter_with_opts(libbpf_rs::IterOpts::None)
            .map_err(|error| Error::bpf(format!("cannot attach {program}"), error))?;
        read_iterator(&link)
    }
}

/// Name of the struct_ops map that a job needs registered; none where its
/// connections use the kernel's own algorithm.
fn congestion_map(options: &JobOptions) -> Result<Option<&'static str>> {
    let policy = &options.policy;
    if policy.base == Base::Bbr {
        load_bbr_module();
    }
    if !options.wraps() {
        return Ok(None);
    }
    match policy.base {
        Base::Keep => Ok(None),
        Base::Cubic => Ok(Some("paceline_cubic")),
        Base::Reno => Ok(Some("paceline_reno")),
        Base::Bbr => match bbr_form() {
            Some(form) => Ok(Some(form.map())),
            None => Err(Error::BaseUnavailable {
                policy: policy.name.clone(),
                base: "bbr",
                why: "it has no bbr_main with BTF; install or build the module tcp_bbr, or use base = \"cubic\"".to_owned(),
            }),
        },
    }
}

fn open_object() -> Result<OpenObject> {
    ObjectBuilder::default()
        .name("paceline")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(|error| Error::bpf("cannot open the embedded BPF object", error))
}

/// Leaves out all programs but these; those of struct_ops go by their maps.
fn choose_programs(open: &mut OpenObject, programs: &[&str]) {
    for mut program in open.progs_mut() {
        if program.prog_type() != ProgramType::StructOps {
            let chosen = programs.iter().any(|name| program.name() == *name);
            program.set_autoload(chosen);
        }
    }
}

/// Leaves out every struct_ops map but one. libbpf loads a struct_ops program
/// only if a map that stays uses it.
fn choose_congestion(open: &mut OpenObject, congestion: Option<&str>) -> Result<()> {
    for mut map in open.maps_mut() {
        if map.map_type() == MapType::StructOps {
            let chosen = congestion.is_some_and(|name| map.name() == name);
            map.set_autocreate(chosen)
                .map_err(|error| Error::bpf("cannot choose a congestion control", error))?;
        }
    }
    if let Some(name) = congestion {
        btf::fit_operations(open, name).map_err(|error| {
            Error::bpf(format!("cannot relocate {name} for this kernel"), error)
        })?;
    }
    Ok(())
}

fn read_iterator(link: &Link) -> Result<Vec<u8>> {
    let mut iterator =
        Iter::new(link).map_err(|error| Error::bpf("cannot start an iterator", error))?;
    records::read_all(&mut iterator)
        .map_err(|error| Error::system("cannot read an iterator", error))
}
