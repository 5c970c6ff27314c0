// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading files that may change meanwhile.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use rustix::fs::{fstat, seek, SeekFrom};
use rustix::io::Errno;

use super::device::open_device;
use super::walk::Place;
use crate::chunk::CV;
use crate::store::stamp_of;
use crate::wire::{Stamp, MOST_SMALL};

/// Extents of one bite: where there are more, holes are sent as zeros.
const MOST_EXTENTS: usize = 1024;
/// A small file that changes while it is read is read so often.
const TRIES: usize = 3;

/// Opens a file, and its state then.
///
/// # Errors
/// The kernel's.
pub fn open(place: &Place) -> io::Result<(File, Stamp, u32)> {
    if place.is_device {
        return open_device(place);
    }
    let fd = place.root.read(&place.path)?;
    let stat = fstat(&fd)?;
    Ok((fd.into(), stamp_of(&stat), stat.st_mode & 0o7777))
}

/// The hash of all of a file.
///
/// # Errors
/// The kernel's.
pub fn hash_file(place: &Place) -> io::Result<CV> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(open(place)?.0)?;
    Ok(*hasher.finalize().as_bytes())
}

/// Reads a bite to the end of `body`. False if the file has become too short.
///
/// # Errors
/// The kernel's.
pub fn read_bite(file: &File, offset: u64, length: u64, body: &mut Vec<u8>) -> io::Result<bool> {
    let start = body.len();
    body.resize(start + length as usize, 0);
    match file.read_exact_at(&mut body[start..], offset) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// The parts of a bite that are no holes: offset in the bite, and length.
pub fn extents(file: &File, offset: u64, length: u64) -> Vec<(usize, usize)> {
    let whole = vec![(0, length as usize)];
    let end = offset + length;
    let (mut found, mut at) = (Vec::new(), offset);
    while at < end {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) if data < end => data,
            // All the rest is a hole.
            Ok(_) | Err(Errno::NXIO) => return found,
            Err(_) => return whole,
        };
        let hole = match seek(file, SeekFrom::Hole(data)) {
            Ok(hole) if hole > data => hole.min(end),
            _ => return whole,
        };
        found.push(((data - offset) as usize, (hole - data) as usize));
        at = hole;
        if found.len() > MOST_EXTENTS {
            return whole;
        }
    }
    found
}

/// A small file as it was at one moment.
#[derive(Debug)]
pub enum Small {
    /// Read.
    Whole {
        /// Its state.
        stamp: Stamp,
        /// Permission bits.
        mode: u32,
    },
    /// It kept changing, or has become large.
    Changed,
}

/// Appends a small file's bytes to `bytes`.
///
/// # Errors
/// The kernel's.
pub fn read_small(place: &Place, bytes: &mut Vec<u8>) -> io::Result<Small> {
    let start = bytes.len();
    for _ in 0..TRIES {
        bytes.truncate(start);
        let (mut file, before, mode) = open(place)?;
        (&mut file).take(MOST_SMALL + 1).read_to_end(bytes)?;
        let after = match place.is_device {
            true => open(place)?.1,
            false => stamp_of(&fstat(&file)?),
        };
        if before == after && (bytes.len() - start) as u64 == after.size && after.size <= MOST_SMALL
        {
            return Ok(Small::Whole { stamp: after, mode });
        }
    }
    bytes.truncate(start);
    Ok(Small::Changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_found() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4 << 20).expect("room");
        assert_eq!(extents(&file, 0, 1 << 20), []);
        file.write_all_at(&[1; 4096], (1 << 20) + 65_536)
            .expect("room");
        file.write_all_at(&[1; 4096], (3 << 20) - 4096)
            .expect("room");
        assert_eq!(extents(&file, 0, 1 << 20), []);
        assert_eq!(extents(&file, 1 << 20, 1 << 20), [(65_536, 4096)]);
        assert_eq!(extents(&file, 2 << 20, 1 << 20), [((1 << 20) - 4096, 4096)]);
        let mut body = vec![9];
        assert!(read_bite(&file, (3 << 20) - 1, 2, &mut body).expect("reads"));
        assert_eq!(body, [9, 1, 0]);
        assert!(!read_bite(&file, (4 << 20) - 1, 2, &mut body).expect("reads"));
    }
}
