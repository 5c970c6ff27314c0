// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens the destination: a directory, the one of a file, or a block device.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;

use super::{Bounds, Commits, Job, Sink, Target, Used};
use crate::session::progress::{shown, Progress};
use paceline_conduit::control::Outbox;
use paceline_conduit::{Error, Result};
use paceline_transfer::store::{short as short_id, Found, Journal, Root, Temporary};
use paceline_transfer::wire::{check_path, Reason};

/// Number and length of waits for another run of the same transfer that is about to end.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Opens a destination. Returns the new name of the one file, if it gets another.
pub(super) fn open(
    job: Job,
    one_file: bool,
    outbox: Outbox,
    progress: Arc<Progress>,
) -> Result<(Sink, Option<Vec<u8>>)> {
    let dry_run = job.options.dry_run;
    if job.options.part.is_some() && matches!(job.target, Target::Below(..)) {
        let text = "a standing receiver writes alone";
        return Err(Error::stop(Reason::Refused, text));
    }
    if job.options.owner {
        if matches!(job.target, Target::Below(..)) {
            let text = "a standing receiver gives files to nobody else: leave out --owner";
            return Err(Error::stop(Reason::Refused, text));
        }
        if !rustix::process::geteuid().is_root() {
            let text = "--owner: the destination is not written by root";
            return Err(Error::stop(Reason::Usage, text));
        }
    }
    if job.options.specials && matches!(job.target, Target::Below(..)) {
        let text = "a standing receiver makes no devices, FIFOs or sockets: leave out --specials";
        return Err(Error::stop(Reason::Refused, text));
    }
    if job.options.device {
        if matches!(job.target, Target::Below(..)) || job.options.part.is_some() {
            let text = "--device: neither with a standing receiver nor with several hosts";
            return Err(Error::stop(Reason::Refused, text));
        }
        if !one_file {
            let text = "--device: expected one source, a block device or a file";
            return Err(Error::stop(Reason::Usage, text));
        }
    }
    let mut device = None;
    let (root, rename) = match &job.target {
        Target::Operator(path) if job.options.device && is_device(path) => {
            let (root, name, own) = onto_device(path, dry_run)?;
            device = own;
            (root, Some(name))
        }
        Target::Operator(path) => operators(path, one_file, dry_run)?,
        Target::Below(root, path, _) => below(root, path, one_file, dry_run)?,
    };
    let bounds = match &job.target {
        Target::Operator(_) => Bounds::none(),
        Target::Below(_, _, bounds) => bounds.clone(),
    };
    let (journal, found) = match dry_run {
        true => (None, Found::default()),
        false => {
            let (journal, found) = journal(&root, &job)?;
            (Some(journal), found)
        }
    };
    let sink = Sink {
        options: job.options,
        filter: job.filter,
        secret: job.secret,
        id: short_id(&job.id),
        root,
        outbox,
        progress,
        journal: Mutex::new(journal),
        known: Mutex::new(found.files),
        unsure_since: found.unsure_since,
        is_resumed: found.is_resumed,
        files: Mutex::default(),
        commits: Commits::default(),
        named: Mutex::default(),
        received: AtomicU64::new(0),
        to_come: AtomicU64::new(0),
        files_to_come: AtomicU64::new(0),
        bounds,
        used: Used::default(),
        device,
        is_waiting: AtomicBool::new(false),
        plan: Mutex::default(),
        summary: Mutex::default(),
        progressed: tokio::sync::Notify::new(),
        stopped: Mutex::default(),
        is_stopped: AtomicBool::new(false),
        is_all_there: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    };
    Ok((sink, rename))
}

fn journal(root: &Root, job: &Job) -> Result<(Journal, Found)> {
    for _ in 0..TRIES {
        match Journal::open_of(
            root,
            &job.id,
            job.options.fresh,
            job.options.part.unwrap_or(0),
        ) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(source) => {
                let path = "the destination's journal (.paceline)".to_owned();
                return Err(Error::Io { path, source });
            }
            Ok(opened) => return Ok(opened),
        }
    }
    let text = "this transfer is under way already: see paceline transfers";
    Err(Error::stop(Reason::Refused, text))
}

fn is_device(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// The directory and the name of a block device, and the device. Its journal is beside it, so it is
/// gone after a restart of the machine, which is right: the device may have been written meanwhile.
fn onto_device(path: &Path, dry_run: bool) -> Result<(Root, Vec<u8>, Option<Arc<Temporary>>)> {
    let open = || {
        // /dev/GROUP/VOLUME is a link.
        let path = path.canonicalize()?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        let (root, name) = (Root::open(parent, false)?, name.as_bytes().to_vec());
        let device = match dry_run {
            true => None,
            false => Some(Arc::new(Temporary::device(&root, &name)?)),
        };
        Ok((root, name, device))
    };
    open().map_err(|source| Error::Io {
        path: path.display().to_string(),
        source,
    })
}

type Opened = (Root, Option<Vec<u8>>);

fn operators(path: &Path, one_file: bool, dry_run: bool) -> Result<Opened> {
    let error = |path: &Path| {
        let path = path.display().to_string();
        move |source| Error::Io { path, source }
    };
    let is_directory = path.as_os_str().as_bytes().ends_with(b"/") || path.is_dir();
    let (base, rename) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if one_file && !is_directory => {
            let base = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            (base, Some(name.as_bytes().to_vec()))
        }
        _ => (path, None),
    };
    if dry_run && !base.exists() {
        return Ok((nowhere(&std::env::temp_dir())?, rename));
    }
    let root = Root::open(base, !dry_run).map_err(error(base))?;
    Ok((root, rename))
}

fn below(root: &Path, path: &[u8], one_file: bool, dry_run: bool) -> Result<Opened> {
    let error = |source: io::Error| {
        let leads_out = [Errno::LOOP, Errno::XDEV].map(|errno| Some(errno.raw_os_error()));
        match leads_out.contains(&source.raw_os_error()) {
            true => Error::stop(
                Reason::Refused,
                format!("{}: it leads out of the receiver's root", shown(path)),
            ),
            false => Error::Io {
                path: shown(path),
                source,
            },
        }
    };
    let operators = Root::open(root, false).map_err(|source| Error::Io {
        path: root.display().to_string(),
        source,
    })?;
    let trimmed = trim(path);
    check_path(trimmed)?;
    let is_directory =
        path.ends_with(b"/") || trimmed.is_empty() || { operators.below(trimmed, false).is_ok() };
    let (base, rename) = match one_file && !is_directory {
        false => (trimmed, None),
        true => match trimmed.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&trimmed[..slash], Some(trimmed[slash + 1..].to_vec())),
            None => (&b""[..], Some(trimmed.to_vec())),
        },
    };
    if base.is_empty() {
        return Ok((operators, rename));
    }
    if dry_run && operators.below(base, false).is_err() {
        return Ok((nowhere(root)?, rename));
    }
    let root = operators.below(base, !dry_run).map_err(error)?;
    Ok((root, rename))
}

fn trim(path: &[u8]) -> &[u8] {
    let start = path
        .iter()
        .position(|byte| *byte != b'/')
        .unwrap_or(path.len());
    let end = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(start, |at| at + 1);
    &path[start..end]
}

/// For a dry run into a directory that is not there: one that was removed, in which nothing is
/// nor can be made. A standing receiver can make it below its root alone.
fn nowhere(place: &Path) -> Result<Root> {
    use std::sync::atomic::AtomicU32;
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = place.join(format!(".paceline-{}-{number}", std::process::id()));
    let open = || {
        std::fs::create_dir(&path)?;
        let root = Root::open(&path, false);
        std::fs::remove_dir(&path)?;
        root
    };
    open().map_err(|source| Error::Io {
        path: path.display().to_string(),
        source,
    })
}
