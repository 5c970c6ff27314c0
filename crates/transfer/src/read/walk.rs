// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The entries of the sources, while data flow already.

use std::collections::hash_map::{Entry as Slot, HashMap};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::{WalkBuilder, WalkState};
use rustix::fs::FileType;

use super::file::{hash_file, open};
use super::filter::Filter;
use crate::store::{read_attributes, special_of, Root, Which};
use crate::wire::{check_path, is_temporary, Entry, EntryKind, Stamp, JOURNALS};

/// Threads that read directories. The bound is the disk, not the processor.
const THREADS: usize = 2;

/// Where an entry is at the source.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directory that was named, or that has the file that was.
    pub root: Arc<Root>,
    /// Below it.
    pub path: Vec<u8>,
    /// A block device, whose content is sent.
    pub is_device: bool,
}

/// A finding of the walk.
#[derive(Debug)]
pub enum Seen {
    /// An entry, without its number.
    Entry(Entry, Place),
    /// A path below the destination that cannot be sent, and the reason.
    Trouble(Vec<u8>, String),
}

struct Top {
    directory: PathBuf,
    root: Arc<Root>,
    /// Below the destination.
    prefix: Vec<u8>,
    /// A file alone.
    file: Option<Vec<u8>>,
}

/// The sources as they were named.
pub struct Tops(Vec<Top>);

impl Tops {
    /// Opens them. A directory with a slash at its end stands for its content; another for itself,
    /// as rsync has it.
    ///
    /// # Errors
    /// The source, and the kernel's error about it.
    pub fn open(sources: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        let tops = sources
            .iter()
            .map(|source| Top::open(source).map_err(|error| (source.clone(), error)));
        Ok(Self(tops.collect::<Result<_, _>>()?))
    }

    /// There is one, and it is a file.
    pub fn is_one_file(&self) -> bool {
        matches!(&self.0[..], [top] if top.file.is_some())
    }
}

impl Top {
    fn open(source: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(source)?;
        let no_name =
            || io::Error::new(io::ErrorKind::InvalidInput, "it has no name to be sent by");
        if metadata.is_dir() {
            let is_content = source.as_os_str().as_bytes().ends_with(b"/");
            let directory = source.canonicalize()?;
            let name = source.file_name().or(directory.file_name());
            let prefix = match is_content {
                true => Vec::new(),
                false => name.ok_or_else(no_name)?.as_bytes().to_vec(),
            };
            return Ok(Self {
                root: Arc::new(Root::open(&directory, false)?),
                directory,
                prefix,
                file: None,
            });
        }
        // The name is the given one; a link stands for its target.
        let name = source.file_name().ok_or_else(no_name)?.as_bytes().to_vec();
        let file = source.canonicalize()?;
        let directory = file.parent().unwrap_or(Path::new("/")).to_owned();
        let own = file.file_name().ok_or_else(no_name)?.as_bytes().to_vec();
        Ok(Self {
            root: Arc::new(Root::open(&directory, false)?),
            directory,
            prefix: name,
            file: Some(own),
        })
    }
}

/// Parts of an entry that are read beside its state.
#[derive(Debug, Clone, Copy, Default)]
pub struct More {
    /// All of a file, for its hash.
    pub hash: bool,
    /// Extended attributes.
    pub attributes: Which,
    /// Owners.
    pub owner: bool,
    /// Which names are of one file.
    pub hard_links: bool,
    /// Devices, FIFOs and sockets are entries.
    pub specials: bool,
    /// The content of a block device is sent, if that is named as the source.
    pub device: bool,
}

/// Files that have several names: device and inode, and the first of the names.
type Names = Mutex<HashMap<(u64, u64), Vec<u8>>>;

impl More {
    fn read(self, mut entry: Entry, place: Place) -> Seen {
        if !self.owner {
            entry.owner = None;
        }
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        if self.hash && is_file {
            // A file that cannot be read fails when it is wanted.
            entry.root = hash_file(&place).ok();
        }
        let may_have = is_file || entry.kind == EntryKind::Directory;
        if self.attributes.is_none() || !may_have || place.is_device {
            return Seen::Entry(entry, place);
        }
        let read = match is_file {
            true => place
                .root
                .read(&place.path)
                .and_then(|fd| read_attributes(fd, self.attributes)),
            false => place
                .root
                .directory(&place.path)
                .and_then(|fd| read_attributes(fd, self.attributes)),
        };
        match read {
            Ok(attributes) => {
                entry.attributes = attributes;
                Seen::Entry(entry, place)
            }
            Err(error) => Seen::Trouble(entry.path, error.to_string()),
        }
    }
}

/// Walks all sources. Several threads call `report`; once it returns false, the walk ends.
pub fn walk(tops: &Tops, filter: &Filter, more: More, report: &(dyn Fn(Seen) -> bool + Sync)) {
    let report = &|seen| {
        report(match seen {
            Seen::Entry(entry, place) => more.read(entry, place),
            seen => seen,
        })
    };
    let names = Names::default();
    let look = &Look { more, names };
    for top in &tops.0 {
        match &top.file {
            Some(name) => {
                let path = top.directory.join(std::ffi::OsStr::from_bytes(name));
                let seen = match path.symlink_metadata() {
                    Ok(metadata) => look.at(top, &top.prefix, name.clone(), (&path, &metadata)),
                    Err(error) => Some(Seen::Trouble(top.prefix.clone(), error.to_string())),
                };
                if seen.is_some_and(|seen| !report(seen)) {
                    return;
                }
            }
            None => walk_directory(top, filter, look, report),
        }
    }
}

fn walk_directory(top: &Top, filter: &Filter, look: &Look, report: &(dyn Fn(Seen) -> bool + Sync)) {
    let walker = WalkBuilder::new(&top.directory)
        .standard_filters(false)
        .follow_links(false)
        .threads(THREADS)
        .build_parallel();
    walker.run(|| {
        Box::new(|entry| {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return state(report(trouble(top, &error))),
            };
            let own = match entry.path().strip_prefix(&top.directory) {
                Ok(own) => own.as_os_str().as_bytes().to_vec(),
                Err(_) => return WalkState::Continue,
            };
            let name = own.rsplit(|byte| *byte == b'/').next().unwrap_or(&own);
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            let is_ours = name == JOURNALS.as_bytes() || is_temporary(name);
            let path = joined(&top.prefix, &own);
            if is_ours || (!own.is_empty() && !filter.takes(&path, is_directory)) {
                return WalkState::Skip;
            }
            let seen = match entry.path().symlink_metadata() {
                Ok(metadata) => look.at(top, &path, own, (entry.path(), &metadata)),
                Err(error) => Some(Seen::Trouble(path, error.to_string())),
            };
            state(seen.is_none_or(report))
        })
    });
}

fn state(goes_on: bool) -> WalkState {
    match goes_on {
        true => WalkState::Continue,
        false => WalkState::Quit,
    }
}

fn trouble(top: &Top, error: &ignore::Error) -> Seen {
    let path = match error {
        ignore::Error::WithPath { path, .. } => path.as_path(),
        ignore::Error::WithDepth { err, .. } => match &**err {
            ignore::Error::WithPath { path, .. } => path.as_path(),
            _ => Path::new(""),
        },
        _ => Path::new(""),
    };
    let own = path.strip_prefix(&top.directory).unwrap_or(path);
    let what = match error.io_error() {
        Some(error) => error.to_string(),
        None => error.to_string(),
    };
    Seen::Trouble(joined(&top.prefix, own.as_os_str().as_bytes()), what)
}

fn joined(prefix: &[u8], own: &[u8]) -> Vec<u8> {
    match (prefix.is_empty(), own.is_empty()) {
        (true, _) => own.to_vec(),
        (false, true) => prefix.to_vec(),
        (false, false) => [prefix, own].join(&b'/'),
    }
}

/// Looks at entries.
struct Look {
    more: More,
    names: Names,
}

impl Look {
    fn at(
        &self,
        top: &Top,
        path: &[u8],
        own: Vec<u8>,
        (whole, metadata): (&Path, &Metadata),
    ) -> Option<Seen> {
        let is_device =
            self.more.device && top.file.is_some() && metadata.file_type().is_block_device();
        let kind = check_path(path)
            .map_err(|error| error.to_string())
            .and_then(|()| match is_device {
                true => Ok(EntryKind::File { dense: true }),
                false => self.kind(path, whole, metadata),
            });
        let place = Place {
            root: Arc::clone(&top.root),
            path: own,
            is_device,
        };
        let of_device = match is_device {
            true => open(&place).map(|(_, stamp, _)| Some(stamp)),
            false => Ok(None),
        };
        let of_device = of_device.map_err(|error| error.to_string());
        let (kind, of_device) = match kind.and_then(|kind| Ok((kind, of_device?))) {
            Ok(kind) => kind,
            Err(what) => return Some(Seen::Trouble(path.to_vec(), what)),
        };
        let entry = Entry {
            n: 0,
            path: path.to_vec(),
            kind,
            mode: metadata.mode() & 0o7777,
            stamp: of_device.unwrap_or(Stamp {
                size: metadata.size(),
                mtime: (metadata.mtime(), metadata.mtime_nsec() as u32),
                ctime: (metadata.ctime(), metadata.ctime_nsec() as u32),
                ino: metadata.ino(),
            }),
            root: None,
            attributes: Vec::new(),
            owner: Some((metadata.uid(), metadata.gid())),
        };
        Some(Seen::Entry(entry, place))
    }

    /// Its kind, or the reason not to send it.
    fn kind(&self, path: &[u8], whole: &Path, metadata: &Metadata) -> Result<EntryKind, String> {
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Ok(EntryKind::Directory);
        }
        if kind.is_file() {
            let dense = metadata.blocks().saturating_mul(512) >= metadata.size();
            let first = self.first_name(path, metadata);
            return Ok(first.map_or(EntryKind::File { dense }, EntryKind::HardLink));
        }
        if kind.is_symlink() {
            let to = std::fs::read_link(whole).map_err(|error| error.to_string())?;
            return Ok(EntryKind::Link(to.into_os_string().into_vec()));
        }
        let special = special_of(FileType::from_raw_mode(metadata.mode()), metadata.rdev());
        match special.filter(|_| self.more.specials) {
            Some(special) => Ok(EntryKind::Special(special)),
            None => Err(
                "a device, FIFO or socket is not sent without --specials, nor what is on a block \
                 device without --device"
                    .to_owned(),
            ),
        }
    }

    /// The name by which the file was seen before; `None`: it is the first, or the only one.
    fn first_name(&self, path: &[u8], metadata: &Metadata) -> Option<Vec<u8>> {
        if !self.more.hard_links || metadata.nlink() < 2 {
            return None;
        }
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        match names.entry((metadata.dev(), metadata.ino())) {
            Slot::Occupied(first) if first.get() != path => Some(first.get().clone()),
            Slot::Occupied(_) => None,
            Slot::Vacant(free) => {
                free.insert(path.to_vec());
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(sources: &[PathBuf], rules: &[(bool, String)]) -> (Vec<Vec<u8>>, Vec<String>) {
        let tops = Tops::open(sources)
            .map_err(|(_, error)| error)
            .expect("sources");
        let filter = Filter::new(rules).expect("patterns");
        let (found, troubles) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        walk(&tops, &filter, More::default(), &|seen| {
            match seen {
                Seen::Entry(entry, _) => found.lock().unwrap().push(entry.path),
                Seen::Trouble(_, what) => troubles.lock().unwrap().push(what),
            }
            true
        });
        let mut found = found.into_inner().unwrap();
        found.sort();
        (found, troubles.into_inner().unwrap())
    }

    #[test]
    fn a_slash_at_the_end_means_what_is_inside() {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path().join("top");
        let odd = std::ffi::OsString::from_vec(b"n\xff\nx".to_vec());
        std::fs::create_dir_all(top.join("a/.paceline/x")).expect("ours");
        std::fs::write(top.join("a").join(&odd), "1").expect("ours");
        std::fs::write(top.join("a/.b.paceline-0123456789abcdef"), "1").expect("ours");
        std::fs::write(top.join(".hidden"), "1").expect("ours");
        std::os::unix::fs::symlink("nowhere", top.join("link")).expect("ours");
        rustix::fs::mkfifoat(rustix::fs::CWD, top.join("fifo"), rustix::fs::Mode::RWXU)
            .expect("ours");
        let (found, troubles) = paths(std::slice::from_ref(&top), &[]);
        let names = [
            &b"top"[..],
            b"top/.hidden",
            b"top/a",
            b"top/a/n\xff\nx",
            b"top/link",
        ];
        assert_eq!(found, names);
        assert_eq!(troubles.len(), 1, "{troubles:?}");
        let inside = PathBuf::from(format!("{}/", top.display()));
        let (found, _) = paths(&[inside], &[(false, "a/".to_owned())]);
        assert_eq!(found, [&b""[..], b".hidden", b"link"]);
        let (found, _) = paths(&[top.join(".hidden"), top.join("a")], &[]);
        assert_eq!(found, [&b".hidden"[..], b"a", b"a/n\xff\nx"]);
        assert!(Tops::open(&[top.join("none")]).is_err());
    }
}
