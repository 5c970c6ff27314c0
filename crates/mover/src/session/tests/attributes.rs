// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended attributes and access control lists.

use rustix::fs::{fremovexattr, fsetxattr, XattrFlags};
use std::os::unix::fs::PermissionsExt;

use super::*;
use paceline_transfer::store::{read_attributes, Which};

const ALL: Which = Which {
    of_user: true,
    acls: true,
};

/// As the kernel has it (include/uapi/linux/posix_acl_xattr.h): the owner, one other user, the
/// group, the mask, all others.
fn acl() -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, may, id) in [
        (1u16, 6u16, u32::MAX),
        (2, 4, 12_345),
        (4, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&may.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    let file = File::open(path).expect("ours");
    fsetxattr(file, name, value, XattrFlags::empty()).is_ok()
}

#[test]
fn attributes_are_kept_if_they_are_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = (directory.path().join("from/"), directory.path().join("to/"));
    std::fs::create_dir_all(from.join("d")).expect("ours");
    std::fs::write(from.join("small"), "small").expect("ours");
    std::fs::write(from.join("large"), bytes(1 << 20, 1)).expect("ours");
    std::fs::write(from.join("d/none"), "none").expect("ours");
    let names = ["small", "large", "d", "d/none"];
    for name in ["small", "large", "d"] {
        if !set(&from.join(name), "user.note", b"\0kept\xff") {
            println!("skipped: no extended attributes here");
            return;
        }
    }
    let has_acls = set(&from.join("small"), "system.posix_acl_access", &acl())
        && set(&from.join("large"), "system.posix_acl_access", &acl())
        && set(&from.join("d"), "system.posix_acl_default", &acl());
    println!("access control lists: {has_acls}");
    let read = |top: &Path| {
        names.map(|name| {
            let file = File::open(top.join(name)).expect("there");
            let mode = file.metadata().expect("there").permissions().mode();
            (read_attributes(file, ALL).expect("ours"), mode)
        })
    };
    let runtime = runtime();
    let run = |options: &Options| {
        let (sent, received, _) =
            runtime.block_on(transfer(&from, &to, options, Damage::default()));
        sent.and(received).expect("undamaged")
    };
    run(&Options::default());
    assert!(read(&to).iter().all(|(own, _)| own.is_empty()));
    // Nothing is sent: they are set.
    let kept = Options {
        xattrs: true,
        acls: true,
        ..Options::default()
    };
    assert_eq!(run(&kept).written_bytes, 0);
    assert_eq!(read(&to), read(&from));
    std::fs::remove_dir_all(&to).expect("ours");
    run(&kept);
    assert_eq!(read(&to), read(&from));
    // What the source has no more, and what the directory's default would give.
    let small = File::open(from.join("small")).expect("ours");
    fremovexattr(small, "user.note").expect("ours");
    std::fs::remove_file(to.join("d/none")).expect("ours");
    run(&kept);
    assert_eq!(read(&to), read(&from));
    assert!(read(&to)[3].0.is_empty());
}

#[test]
fn root_keeps_owners_and_setuid_if_requested() {
    use rustix::fs::{chownat, AtFlags, CWD};
    use rustix::process::{geteuid, Gid, Uid};
    use std::os::unix::fs::MetadataExt;

    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = (directory.path().join("from/"), directory.path().join("to/"));
    std::fs::create_dir_all(from.join("d")).expect("ours");
    std::fs::write(from.join("small"), "small").expect("ours");
    std::fs::write(from.join("large"), bytes(1 << 20, 1)).expect("ours");
    std::os::unix::fs::symlink("small", from.join("link")).expect("ours");
    let (runtime, names) = (runtime(), ["d", "small", "large", "link"]);
    let run = |options: &Options| {
        let (sent, received, _) =
            runtime.block_on(transfer(&from, &to, options, Damage::default()));
        (sent, received)
    };
    let kept = Options {
        owner: true,
        ..Options::default()
    };
    if !geteuid().is_root() {
        let error = run(&kept).1.expect_err("not root");
        assert!(error.to_string().contains("--owner"), "{error}");
        println!("skipped: owners need root");
        return;
    }
    let state = |top: &Path| {
        names.map(|name| {
            let state = top.join(name).symlink_metadata().expect("there");
            (state.uid(), state.gid(), state.mode())
        })
    };
    for (n, name) in (1000..).zip(names) {
        let (user, group) = (Uid::from_raw(n), Gid::from_raw(n + 1000));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        chownat(CWD, from.join(name), Some(user), Some(group), flags).expect("root");
    }
    for (name, mode) in [("d", 0o2750), ("small", 0o4755), ("large", 0o6711)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(from.join(name), mode).expect("root");
    }
    run(&Options::default()).1.expect("undamaged");
    let plain = state(&to);
    assert!(plain
        .iter()
        .all(|(user, group, _)| (*user, *group) == (0, 0)));
    assert_eq!(plain[1].2 & 0o7777, 0o755);
    assert_eq!(run(&kept).1.expect("undamaged").written_bytes, 0);
    assert_eq!(state(&to), state(&from), "of what is there");
    std::fs::remove_dir_all(&to).expect("ours");
    run(&kept).1.expect("undamaged");
    assert_eq!(state(&to), state(&from), "of what is sent");
}
