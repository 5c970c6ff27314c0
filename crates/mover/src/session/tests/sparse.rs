// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holes are not sent.

use std::os::unix::fs::{FileExt, MetadataExt};

use super::*;

/// Bytes of one part of a disk image that was ever written; it has one in each 10 MiB.
const PART: usize = 52_000;
const EACH: u64 = 10 << 20;

#[test]
fn a_sparse_file_costs_little_more_than_its_data() {
    costs_little(250 << 20);
}

#[test]
#[ignore = "it hashes 10 GiB: make bench"]
fn a_sparse_file_of_10_gib_costs_little_more_than_its_data() {
    costs_little(10 << 30);
}

fn costs_little(size: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let from = directory.path().join("image");
    let file = File::create(&from).expect("ours");
    file.set_len(size).expect("ours");
    for n in 0..size / EACH {
        let at = EACH * n + n * 977;
        file.write_all_at(&bytes(PART, n), at).expect("room");
    }
    // It knows its blocks when they are on the disk.
    file.sync_all().expect("room");
    let to = directory.path().join("to");
    let counts = Arc::new(Hit {
        at: u64::MAX,
        bit: 0,
        read: AtomicU64::default(),
    });
    let counted = Damage {
        hit: Some(Arc::clone(&counts)),
        ..Damage::default()
    };
    let (sent, received, _) =
        runtime().block_on(transfer(&from, &to, &Options::default(), counted));
    sent.expect("undamaged");
    received.expect("undamaged");
    let blocks = |path: &Path| path.metadata().expect("there").blocks() * 512;
    let (data, there) = (blocks(&from), blocks(&to));
    let sent = counts.read.load(Ordering::Relaxed);
    println!("{data} bytes of data, {sent} sent, {there} at the destination");
    // 1.02 is allowed; the rest is for TLS.
    assert!(sent * 1000 <= data * 1018, "{sent} bytes for {data}");
    assert!(there * 100 <= data * 102, "{there} bytes of {data}");
    let hash = |path: &Path| {
        let mut hasher = blake3::Hasher::new();
        std::io::copy(&mut File::open(path).expect("there"), &mut hasher).expect("reads");
        hasher.finalize()
    };
    assert_eq!(hash(&from), hash(&to));
}
