// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The filters of an interface that keep TCP options out of a job's connections
//! (`bpf/options.bpf.c`).
//!
//! They belong to the job, which may outlive the command that started it, so they are attached
//! for good and not by links. Nothing is stored elsewhere: each filter's purpose is in its
//! own constants, which [`clean`] reads from the kernel.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, ProgramHandle, TcAttachPoint,
    TC_EGRESS, TC_INGRESS,
};
use nix::sched::{setns, CloneFlags};

use crate::interface::{self, Interface, Link};
use crate::{clsact, messages, refusal};

/// The compiled bpf/options.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/options.bpf.o"));

/// Each program's name, and where it is attached by TCX and by cls_bpf.
const POINTS: [(&str, sys::bpf_attach_type, TcAttachPoint); 2] = [
    ("pl_options_in", sys::BPF_TCX_INGRESS, TC_INGRESS),
    ("pl_options_out", sys::BPF_TCX_EGRESS, TC_EGRESS),
];
/// The map that the programs share with the kernel side.
const JOBS: &str = "pl_jobs";
/// Handles of cls_bpf; `paceline burst` has those below.
const FIRST_HANDLE: u32 = 0x1000;
/// Jobs with filters at one interface at the same time, at most.
const PLACES: u32 = 64;
/// In a handle: the clsact discipline was made for a job, and goes with the last filter.
const OURS: u32 = 0x10000;
/// Bytes of an Ethernet header.
const ETHERNET_BYTES: u32 = 14;
/// struct pl_options_config.
const CONFIG_BYTES: usize = 40;

/// A job's request.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Id of its cgroup.
    pub job: u64,
    /// Name of the interface.
    pub interface: &'a str,
    /// PL_NO_* of `bpf/paceline_abi.h`.
    pub without: u8,
}

/// Why a job cannot have it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such interface.
    #[error(transparent)]
    Interface(#[from] interface::Error),

    /// Its packets are not understood.
    #[error("packets of {interface} begin with neither an Ethernet nor an IP header: name another interface")]
    Link {
        /// Its name.
        interface: String,
    },

    /// The network namespace cannot be entered.
    #[error("cannot enter the network namespace {}: {source}", path.display())]
    Namespace {
        /// A file of it.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// libbpf or the verifier refused.
    #[error("{action}: {source}{}", refusal::hint(source))]
    Bpf {
        /// The action that failed.
        action: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },

    /// The embedded object lacks a part: a defect of the build.
    #[error("the embedded BPF object has no {0}")]
    Incomplete(&'static str),
}

type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn bpf(action: impl Into<String>, source: libbpf_rs::Error) -> Self {
        Self::Bpf {
            action: action.into(),
            source,
        }
    }

    fn attach(interface: &str, hint: &str, source: io::Error) -> Self {
        Self::bpf(format!("cannot attach to {interface}{hint}"), source.into())
    }
}

/// Purpose and place of a program: struct pl_options_config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Config {
    job: u64,
    namespace: (u64, u64),
    interface: u32,
    link_bytes: u32,
    without: u32,
}

impl Config {
    fn bytes(&self) -> [u8; CONFIG_BYTES] {
        let mut bytes = [0; CONFIG_BYTES];
        let (device, inode) = self.namespace;
        for (at, long) in [self.job, device, inode].into_iter().enumerate() {
            bytes[at * 8..][..8].copy_from_slice(&long.to_ne_bytes());
        }
        let words = [self.interface, self.link_bytes, self.without];
        for (at, word) in words.into_iter().enumerate() {
            bytes[24 + at * 4..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Self {
            job: long(0)?,
            namespace: (long(8)?, long(16)?),
            interface: word(24)?,
            link_bytes: word(28)?,
            without: word(32)?,
        })
    }
}

/// Attaches a job's filters to the interface of the network namespace of the process
/// `process`; none: of the caller. `jobs` is the kernel side's map of jobs.
///
/// # Errors
/// [`Error`]; [`clean`] then detaches any filters.
pub fn attach(wanted: &Wanted<'_>, process: Option<u32>, jobs: BorrowedFd<'_>) -> Result<()> {
    messages::route_libbpf_messages();
    let path = match process {
        Some(process) => format!("/proc/{process}/ns/net"),
        None => "/proc/thread-self/ns/net".to_owned(),
    };
    let failed = |source| Error::Namespace {
        path: path.clone().into(),
        source,
    };
    let namespace = File::open(&path).map_err(failed)?;
    let id = id(&namespace).map_err(failed)?;
    inside(&namespace, || attach_here(wanted, id, jobs)).map_err(failed)?
}

fn attach_here(wanted: &Wanted<'_>, namespace: (u64, u64), jobs: BorrowedFd<'_>) -> Result<()> {
    let interface = Interface::find(wanted.interface)?;
    let config = Config {
        job: wanted.job,
        namespace,
        interface: interface.index(),
        link_bytes: match interface.link() {
            Some(Link::Ethernet) => ETHERNET_BYTES,
            Some(Link::Ip) => 0,
            None => {
                return Err(Error::Link {
                    interface: wanted.interface.to_owned(),
                })
            }
        },
        without: wanted.without.into(),
    };
    let object = load(&config, Some(jobs))?;
    let attached = match attach_tcx(&object, &config)? {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            attach_classic(&object, &config)?
        }
        attached => attached.map_err(|error| (" by TCX", error)),
    };
    attached.map_err(|(hint, error)| Error::attach(wanted.interface, hint, error))
}

/// Loads the programs to see whether the kernel takes them.
///
/// # Errors
/// [`Error::Bpf`].
pub fn probe() -> Result<()> {
    messages::route_libbpf_messages();
    load(
        &Config::from_bytes(&[0; CONFIG_BYTES]).expect("its size"),
        None,
    )
    .map(drop)
}

fn load(config: &Config, jobs: Option<BorrowedFd<'_>>) -> Result<Object> {
    let mut open = ObjectBuilder::default()
        .name("pl_options")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(|error| Error::bpf("cannot open the BPF object of options", error))?;
    configure(&mut open, config, jobs)?;
    open.load()
        .map_err(|error| Error::bpf("the kernel refused the BPF programs of [options]", error))
}

fn configure(open: &mut OpenObject, config: &Config, jobs: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut configured = false;
    for mut map in open.maps_mut() {
        if map.name() == OsStr::new(JOBS) {
            if let Some(jobs) = jobs {
                map.reuse_fd(jobs)
                    .map_err(|error| Error::bpf("cannot share map pl_jobs", error))?;
            }
        } else if map.name().to_string_lossy().ends_with(".rodata") {
            let place = map.initial_value_mut();
            let place = place.and_then(|value| value.get_mut(..CONFIG_BYTES));
            place
                .ok_or(Error::Incomplete("configuration"))?
                .copy_from_slice(&config.bytes());
            configured = true;
        }
    }
    configured
        .then_some(())
        .ok_or(Error::Incomplete("configuration"))
}

fn program<'o>(object: &'o Object, name: &'static str) -> Result<libbpf_rs::Program<'o>> {
    object
        .progs()
        .find(|program| program.name() == OsStr::new(name))
        .ok_or(Error::Incomplete(name))
}

fn attach_tcx(object: &Object, config: &Config) -> Result<io::Result<()>> {
    let options = sys::bpf_prog_attach_opts {
        sz: size_of::<sys::bpf_prog_attach_opts>() as sys::size_t,
        // Before all others: another program may end the processing of a packet.
        flags: sys::BPF_F_BEFORE,
        ..Default::default()
    };
    for (name, place, _) in POINTS {
        let program = program(object, name)?;
        // SAFETY: program and options live across the call.
        let result = unsafe {
            sys::bpf_prog_attach_opts(
                program.as_fd().as_raw_fd(),
                config.interface as i32,
                place,
                &options,
            )
        };
        if result != 0 {
            return Ok(Err(io::Error::from_raw_os_error(-result)));
        }
    }
    Ok(Ok(()))
}

type Attached = std::result::Result<(), (&'static str, io::Error)>;

fn attach_classic(object: &Object, config: &Config) -> Result<Attached> {
    let mut ours = match clsact::make(config.interface) {
        Ok(made) => made,
        Err(error) => return Ok(Err((" by cls_bpf: no clsact", error))),
    };
    let mut free = None;
    for place in FIRST_HANDLE..FIRST_HANDLE + PLACES {
        let taken = |handle| {
            let there = |point| clsact::program_id(config.interface, handle, point).is_some();
            POINTS.iter().any(|(.., point)| there(*point))
        };
        let of_discipline = taken(place | OURS);
        ours |= of_discipline;
        if !of_discipline && !taken(place) {
            free = free.or(Some(place));
        }
    }
    let Some(place) = free else {
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        return Ok(Err((": too many jobs with [options] are there", full)));
    };
    let handle = if ours { place | OURS } else { place };
    for (name, _, point) in POINTS {
        let program = program(object, name)?;
        let attached = clsact::attach(config.interface, handle, point, program.as_fd());
        if let Err(error) = attached {
            return Ok(Err((
                " by cls_bpf (another kind of filter may have priority 1)",
                error,
            )));
        }
    }
    Ok(Ok(()))
}

/// Detaches the filters of jobs that are gone, in all network namespaces.
pub fn clean(is_job: impl Fn(u64) -> bool) {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    for info in ProgInfoIter::with_query_opts(options) {
        let Some((_, place, point)) = POINTS
            .into_iter()
            .find(|(name, ..)| info.name == OsStr::new(name))
        else {
            continue;
        };
        let Some(config) = config_of(&info).filter(|config| !is_job(config.job)) else {
            continue;
        };
        let Ok(program) = ProgramHandle::from_prog_id(info.id) else {
            continue;
        };
        let Some(namespace) = namespace(config.namespace) else {
            tracing::debug!(
                "nobody is in network namespace {} any more",
                config.namespace.1
            );
            continue;
        };
        let done = inside(&namespace, || {
            detach(&program, info.id, config.interface, place, point)
        });
        match done {
            Ok(()) => tracing::debug!(
                "took program {} off interface {}",
                info.id,
                config.interface
            ),
            Err(error) => tracing::debug!("cannot enter a network namespace: {error}"),
        }
    }
}

fn detach(
    program: &ProgramHandle,
    id: u32,
    interface: u32,
    place: sys::bpf_attach_type,
    point: TcAttachPoint,
) {
    // SAFETY: the program is open for the duration of the call; no options are given.
    let result = unsafe {
        let program = program.as_fd().as_raw_fd();
        sys::bpf_prog_detach_opts(program, interface as i32, place, std::ptr::null())
    };
    if result == 0 {
        return;
    }
    for place in FIRST_HANDLE..FIRST_HANDLE + PLACES {
        for handle in [place, place | OURS] {
            if clsact::program_id(interface, handle, point) == Some(id) {
                clsact::detach(interface, handle, point);
                if handle & OURS != 0 {
                    clsact::remove(interface);
                }
            }
        }
    }
}

/// Purpose of a loaded program, by its constants. They are in a map of their own.
fn config_of(program: &ProgramInfo) -> Option<Config> {
    let maps = program.map_ids.iter();
    maps.filter_map(|id| MapHandle::from_map_id(*id).ok())
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
        .and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?)
        .and_then(|value| Config::from_bytes(&value))
}

/// Identity of a network namespace, by stat(2).
fn id(namespace: &File) -> io::Result<(u64, u64)> {
    let metadata = namespace.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// A network namespace that has a name, or a process in it.
fn namespace(wanted: (u64, u64)) -> Option<File> {
    let entries = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let of_processes = entries("/proc").map(|entry| entry.path().join("ns/net"));
    let named = entries("/run/netns").map(|entry| entry.path());
    [PathBuf::from("/proc/thread-self/ns/net")]
        .into_iter()
        .chain(named)
        .chain(of_processes)
        .find_map(|path: PathBuf| open_if(&path, wanted))
}

fn open_if(path: &Path, wanted: (u64, u64)) -> Option<File> {
    let file = File::open(path).ok()?;
    (id(&file).ok()? == wanted).then_some(file)
}

/// Does `work` in a network namespace, by a thread of its own: the caller stays in its own.
fn inside<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        });
        thread.join().expect("the thread does not panic")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_survives_its_byte_form() {
        let config = Config {
            job: 1 << 40,
            namespace: (4, 4_026_531_840),
            interface: 7,
            link_bytes: ETHERNET_BYTES,
            without: 5,
        };
        assert_eq!(Config::from_bytes(&config.bytes()), Some(config));
        assert_eq!(Config::from_bytes(&config.bytes()[1..36]), None);
    }
}
