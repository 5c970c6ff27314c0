// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records that an iterator of the kernel side writes.
//!
//! An iterator over socket storage keeps its place between two reads as a number of
//! sockets in a bucket (`bpf_sk_storage_map_seq_find_next`), and new sockets enter a
//! bucket at its head. So a connection that begins between two reads makes the iterator
//! show another one twice. One read is one walk under RCU, where this cannot happen: it is
//! as long as the kernel allows, and a record that still appears twice is kept once.

use std::collections::HashSet;
use std::hash::Hash;
use std::io::{self, ErrorKind, Read};

use paceline_abi::{from_bytes, Plain};

use crate::error::Result;

/// The kernel's limit of one read: 8 pages (`bpf_seq_read`), of 64 KB on some machines.
/// Its walk ends where the caller's buffer is full, and `Read::read_to_end` begins with
/// one of 32 bytes.
const ONE_READ: usize = 512 << 10;

/// All that an iterator writes, in as few reads as it takes.
pub(super) fn read_all(iterator: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut part = vec![0; ONE_READ];
    loop {
        match iterator.read(&mut part) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes.extend_from_slice(&part[..read]),
            // The kernel has skipped a million other sockets: go on from here.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The records in `bytes`; of those with the same key the last, which is the newest.
pub(super) fn records<T: Plain, K: Eq + Hash>(
    bytes: &[u8],
    key: impl Fn(&T) -> K,
) -> Result<Vec<T>> {
    let all: Vec<T> = bytes
        .chunks(size_of::<T>())
        .map(|record| Ok(from_bytes(record)?))
        .collect::<Result<_>>()?;
    let mut seen = HashSet::with_capacity(all.len());
    let mut once: Vec<T> = all
        .into_iter()
        .rev()
        .filter(|record| seen.insert(key(record)))
        .collect();
    once.reverse();
    Ok(once)
}

#[cfg(test)]
mod tests {
    use super::*;

    use paceline_abi::{as_bytes, pl_stream_record};

    /// One bucket of the kernel's, read as `bpf_seq_read` does, in which a socket begins
    /// between any two reads.
    struct Bucket {
        cookies: Vec<u64>,
        skip: usize,
        rest: Vec<u8>,
        ended: bool,
    }

    impl Bucket {
        fn of(count: u64) -> Self {
            Self {
                cookies: (1..=count).collect(),
                skip: 0,
                rest: Vec::new(),
                ended: false,
            }
        }
    }

    impl Read for Bucket {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.rest.is_empty() && !self.ended {
                while self.rest.len() < buffer.len() {
                    let Some(cookie) = self.cookies.get(self.skip) else {
                        self.ended = true;
                        break;
                    };
                    let record = pl_stream_record {
                        cookie: *cookie,
                        ..Default::default()
                    };
                    self.rest.extend_from_slice(as_bytes(&record));
                    self.skip += 1;
                }
                let next = self.cookies.len() as u64 + 1;
                self.cookies.insert(0, next);
            }
            let count = buffer.len().min(self.rest.len());
            buffer[..count].copy_from_slice(&self.rest[..count]);
            self.rest.drain(..count);
            Ok(count)
        }
    }

    fn cookies(bytes: &[u8]) -> Vec<u64> {
        bytes
            .chunks(size_of::<pl_stream_record>())
            .map(|record| from_bytes::<pl_stream_record>(record).unwrap().cookie)
            .collect()
    }

    #[test]
    fn a_connection_that_begins_meanwhile_makes_no_other_one_appear_twice() {
        let mut bytes = Vec::new();
        Bucket::of(8).read_to_end(&mut bytes).unwrap();
        // `read_to_end` ends the first walk after one record.
        assert_eq!(cookies(&bytes)[..2], [1, 1]);

        let bytes = read_all(&mut Bucket::of(8)).unwrap();
        assert_eq!(cookies(&bytes), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn the_newest_record_of_a_connection_counts() {
        let record = |cookie, acked_bytes| pl_stream_record {
            cookie,
            acked_bytes,
            ..Default::default()
        };
        let bytes: Vec<u8> = [record(7, 1), record(8, 2), record(7, 3)]
            .iter()
            .flat_map(|record| as_bytes(record).to_vec())
            .collect();
        let once = records(&bytes, |record: &pl_stream_record| record.cookie).unwrap();
        assert_eq!(once, [record(8, 2), record(7, 3)]);
        assert!(records(&bytes[1..], |record: &pl_stream_record| record.cookie).is_err());
    }
}
