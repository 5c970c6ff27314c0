// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A second wall around a standing receiver: Landlock (landlock(7)).
//!
//! The code resolves a peer's paths below the root anyway. If that fails one day, the kernel
//! refuses to write elsewhere.

use std::io;
use std::path::Path;

use landlock::{
    path_beneath_rules, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, ABI,
};

/// Requested version: since Linux 6.2 it also stops truncation. Later ones are not about files.
const ASKED: ABI = ABI::V3;

/// The kernel's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// Nothing is written elsewhere.
    Whole,
    /// An old kernel: a file elsewhere could be cut to zero bytes, if it may be written at all.
    Partial,
    /// The kernel has no Landlock, or it is off.
    None,
}

/// From now on this thread, and those that it starts, write below `root` alone: files,
/// directories, links, names. Reading is as before. Call it before any other thread runs.
///
/// # Errors
/// The root cannot be opened, or the kernel's.
pub fn confine(root: &Path) -> io::Result<Sandbox> {
    // A rule whose path cannot be opened would be left out.
    std::fs::File::open(root)?;
    let writes = AccessFs::from_write(ASKED);
    let confined = Ruleset::default()
        .handle_access(writes)
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules([root], writes)))
        .and_then(|rules| rules.restrict_self());
    let status = confined.map_err(io::Error::other)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Sandbox::Whole,
        RulesetStatus::PartiallyEnforced => Sandbox::Partial,
        RulesetStatus::NotEnforced => Sandbox::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_below_the_root_is_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let (root, outside) = (directory.path().join("root"), directory.path().join("out"));
        fs::create_dir(&root).expect("ours");
        fs::create_dir(&outside).expect("ours");
        fs::write(outside.join("kept"), "kept").expect("ours");
        symlink(&outside, root.join("out")).expect("ours");
        let inside = root.clone();
        // Of this thread alone: the other tests go on.
        let sandbox = std::thread::spawn(move || {
            let sandbox = confine(&inside).expect("a directory");
            if sandbox == Sandbox::None {
                return sandbox;
            }
            fs::create_dir(inside.join("a")).expect("below");
            fs::write(inside.join("a/b"), "x").expect("below");
            fs::rename(inside.join("a/b"), inside.join("c")).expect("below");
            assert_eq!(fs::read(outside.join("kept")).expect("read"), b"kept");
            for place in [&outside, &inside.join("out")] {
                let refused = |result: io::Result<()>| {
                    let error = result.expect_err("outside of the root");
                    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
                };
                refused(fs::write(place.join("new"), "x"));
                refused(fs::create_dir(place.join("d")));
                refused(fs::remove_file(place.join("kept")));
                refused(symlink("x", place.join("l")));
                refused(
                    fs::rename(inside.join("c"), place.join("c")).map_err(|error| {
                        // Into another tree it looks like another file system.
                        match error.kind() {
                            io::ErrorKind::CrossesDevices => io::ErrorKind::PermissionDenied.into(),
                            _ => error,
                        }
                    }),
                );
            }
            sandbox
        });
        match sandbox.join().expect("no panic") {
            Sandbox::None => println!("skipped: this kernel has no Landlock"),
            sandbox => println!("{sandbox:?}"),
        }
        let none = confine(&directory.path().join("none")).expect_err("not there");
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
