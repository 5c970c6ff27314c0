// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What both sides have in memory.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use super::scratch::{helper_of, Scratch};

/// Largest resident set so far, bytes (proc(5), VmHWM).
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Of the command and of what it has started, at the end.
pub fn peaks(child: &mut Child) -> [u64; 2] {
    let mut most = [0; 2];
    while child.try_wait().expect("ours").is_none() {
        let pids = [Some(child.id()), helper_of(child.id())];
        for (most, pid) in most.iter_mut().zip(pids) {
            *most = pid.map_or(0, peak).max(*most);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(child.wait().expect("ours").code(), Some(0));
    most
}

/// So many names, a thousand in each directory, of files of 1 KB: the names are links, which
/// need no room, and each becomes a file.
pub fn names(directory: &Path, count: u64) {
    let base = directory.join("base");
    std::fs::create_dir_all(&base).expect("ours");
    for n in 0..1000 {
        let content = format!("{n:01024}");
        std::fs::write(base.join(n.to_string()), content).expect("room");
    }
    for d in 1..count / 1000 {
        let own = directory.join(d.to_string());
        std::fs::create_dir(&own).expect("ours");
        for n in 0..1000 {
            let n = n.to_string();
            std::fs::hard_link(base.join(&n), own.join(&n)).expect("ours");
        }
    }
}

/// Sends so many files of 1 KB. The peaks of both sides, bytes.
fn peaks_of(scratch: &Scratch, count: u64) -> [u64; 2] {
    let from = format!("from/{count}");
    names(&scratch.path(&from), count);
    let to = format!("localhost:@to/{count}");
    let most = peaks(&mut scratch.start(&[&format!("{from}/"), &to]));
    let there = scratch.path(&format!("to/{count}"));
    let last = there.join(format!("{}/999", count / 1000 - 1));
    assert_eq!(std::fs::read(last).expect("placed").len(), 1024);
    std::fs::remove_dir_all(there).expect("ours");
    most
}

/// Beyond what is under way nothing is kept of a file. How much that is depends on which side
/// waits for the other, and by how much: two runs on a busy machine differ by half. A million
/// files took 64 and 86 MiB; what kept 200 bytes of each would be beyond this bound.
#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let scratch = Scratch::without_a_disk();
    let most = peaks_of(&scratch, 200_000);
    println!("peaks of 200,000 files: {most:?} bytes");
    assert!(most.into_iter().all(|most| most < 112 << 20), "{most:?}");
}

#[test]
#[ignore = "it takes 6 GB of memory: make bench"]
fn a_million_files_take_256_mib_on_each_side() {
    let scratch = Scratch::without_a_disk();
    let began = std::time::Instant::now();
    let most = peaks_of(&scratch, 1_000_000);
    let per_s = 1e6 / began.elapsed().as_secs_f64();
    println!("peaks of 1,000,000 files: {most:?} bytes; {per_s:.0} files/s, made and removed");
    assert!(most.into_iter().all(|most| most <= 256 << 20), "{most:?}");
}
