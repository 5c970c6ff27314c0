// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--device`: what is on block devices. As root, with loop devices.

#[allow(dead_code, reason = "another test uses the rest")]
mod scratch;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use scratch::{text, Scratch};

/// All journals are in /dev.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A loop device, until it is dropped.
struct Loop(PathBuf);

impl Loop {
    /// Of a file of `size` bytes of its own. `None`, told, where there can be none.
    fn new(scratch: &Scratch, name: &str, size: u64) -> Option<Self> {
        let path = scratch.path(name);
        File::create(&path)
            .and_then(|file| file.set_len(size))
            .expect("room");
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&path)
            .output();
        match made {
            Ok(made) if made.status.success() => Some(Self(text(&made.stdout).trim().into())),
            made => {
                println!("skipped: no loop device: {made:?}");
                None
            }
        }
    }

    fn name(&self) -> &str {
        self.0.to_str().expect("text")
    }

    fn write(&self, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        let file = File::options().write(true).open(&self.0).expect("root");
        file.write_all_at(bytes, 0).expect("room");
        file.sync_all().expect("a device");
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("-d").arg(&self.0).status();
        assert!(detached.expect("util-linux").success());
    }
}

fn first(path: &Path, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut file = File::open(path).expect("there");
    file.read_exact(&mut bytes).expect("so much");
    bytes
}

const SIZE: usize = 6 << 20;

#[test]
fn a_device_goes_onto_a_device_and_into_a_file() {
    let _alone = alone();
    let scratch = Scratch::new();
    let Some(from) = Loop::new(&scratch, "from/image", SIZE as u64) else {
        return;
    };
    let Some(to) = Loop::new(&scratch, "to/image", SIZE as u64 + (1 << 20)) else {
        return;
    };
    scratch.write("from/content", SIZE);
    let content = fs::read(scratch.path("from/content")).expect("ours");
    from.write(&content);
    // What was on it, beyond what is sent, stays.
    to.write(&vec![7; SIZE + (1 << 20)]);
    let onto = format!("localhost:{}", to.name());
    // Without the option neither is touched.
    let failed = scratch.send(&[from.name(), &onto]);
    failed.fails_with(1, "--device");
    let failed = scratch.send(&["from/content", &onto]);
    failed.fails_with(1, "--device");
    scratch.send(&["--device", from.name(), &onto]).ok();
    assert!(first(&to.0, SIZE) == content);
    assert_eq!(first(&to.0, SIZE + 1)[SIZE], 7);
    let is_device = |path: &Path| {
        use std::os::unix::fs::FileTypeExt;
        let kind = fs::symlink_metadata(path).expect("there").file_type();
        kind.is_block_device()
    };
    assert!(is_device(&to.0));
    // Its name says nothing of what is on it: it is sent again.
    from.write(&[9; 4096]);
    let file = ["--device", from.name(), "localhost:@to/file"];
    scratch.send(&file).ok();
    assert_eq!(first(&scratch.path("to/file"), 4096), [9; 4096]);
    from.write(&content[..4096]);
    scratch.send(&file).ok();
    assert!(fs::read(scratch.path("to/file")).expect("there") == content);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
    assert!(!Path::new("/dev/.paceline").exists());
}

#[test]
fn holes_of_a_file_are_zeros_on_a_device() {
    let _alone = alone();
    let scratch = Scratch::new();
    let Some(to) = Loop::new(&scratch, "to/image", SIZE as u64) else {
        return;
    };
    to.write(&vec![7; SIZE]);
    let path = scratch.path("from/holes");
    let file = File::create(&path).expect("ours");
    file.set_len(SIZE as u64 - 1000).expect("room");
    std::os::unix::fs::FileExt::write_all_at(&file, &[1; 70_000], 3 << 20).expect("room");
    let onto = format!("localhost:{}", to.name());
    scratch.send(&["--device", "from/holes", &onto]).ok();
    let mut wanted = fs::read(&path).expect("ours");
    wanted.resize(SIZE, 7);
    assert!(first(&to.0, SIZE) == wanted);
    // A link to a device, as names of volumes are, is followed.
    std::os::unix::fs::symlink(&to.0, scratch.path("to/volume")).expect("ours");
    to.write(&vec![8; SIZE]);
    scratch
        .send(&["--device", "from/holes", "localhost:@to/volume"])
        .ok();
    assert!(first(&to.0, SIZE - 1000) == wanted[..SIZE - 1000]);
}

#[test]
fn devices_that_are_too_small_or_in_use_are_refused() {
    let _alone = alone();
    let scratch = Scratch::new();
    let Some(to) = Loop::new(&scratch, "to/image", SIZE as u64 - 4096) else {
        return;
    };
    scratch.write("from/content", SIZE);
    scratch.write("from/small", 1000);
    to.write(&vec![7; SIZE - 4096]);
    let onto = format!("localhost:{}", to.name());
    let large = scratch.send(&["--device", "from/content", &onto]);
    large.fails_with(1, "the device has 6287360 bytes");
    let small = scratch.send(&["--device", "from/small", &onto]);
    small.fails_with(1, "256 KiB");
    let directory = scratch.send(&["--device", "from/", &onto]);
    directory.fails_with(2, "--device");
    // As a mount has it.
    use std::os::unix::fs::OpenOptionsExt;
    let held = File::options()
        .read(true)
        .custom_flags(nix::libc::O_EXCL)
        .open(&to.0)
        .expect("free");
    let busy = scratch.send(&["--device", "from/content", &onto]);
    assert_ne!(busy.0.status.code(), Some(0));
    assert!(text(&busy.0.stderr).contains("busy"), "{:?}", busy.0);
    drop(held);
    assert!(first(&to.0, SIZE - 4096).iter().all(|byte| *byte == 7));
}

#[test]
fn a_killed_transfer_of_a_device_continues() {
    let _alone = alone();
    let scratch = Scratch::new();
    let Some(from) = Loop::new(&scratch, "from/image", SIZE as u64) else {
        return;
    };
    let Some(to) = Loop::new(&scratch, "to/image", SIZE as u64) else {
        return;
    };
    scratch.write("from/content", SIZE);
    let content = fs::read(scratch.path("from/content")).expect("ours");
    from.write(&content);
    let onto = format!("localhost:{}", to.name());
    let command = ["--device", "--json", from.name(), &onto];
    scratch.killed_at("sink-noted:3", &command);
    let ended = scratch.send(&command).ok();
    let stdout = text(&ended.stdout);
    let resumed = stdout.lines().last().expect("a line");
    assert!(!resumed.contains("\"resumed_bytes\":0"), "{resumed}");
    assert!(first(&to.0, SIZE) == content);
    // It was written between two runs: nothing of the first counts.
    scratch.killed_at("sink-noted:3", &command);
    from.write(&vec![5; SIZE]);
    scratch.send(&command).ok();
    assert!(first(&to.0, SIZE).iter().all(|byte| *byte == 5));
    assert!(!Path::new("/dev/.paceline").exists());
}
