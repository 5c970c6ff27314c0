// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owner of a job, and the user of its command.

use std::io;
use std::path::PathBuf;

use nix::unistd::{Gid, Uid, User};

/// The user who started this program; with sudo, the user behind it.
pub fn owner() -> u32 {
    std::env::var("SUDO_UID")
        .ok()
        .and_then(|uid| uid.parse().ok())
        .unwrap_or_else(|| Uid::current().as_raw())
}

/// A user's numbers, looked up before the fork.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The name.
    pub name: String,
    /// The home directory.
    pub home: PathBuf,
    /// The user's number.
    pub uid: libc::uid_t,
    /// The number of the user's own group.
    pub gid: libc::gid_t,
    /// All groups of the user.
    pub groups: Vec<libc::gid_t>,
}

impl Identity {
    /// Of the user with this name; `None` where there is no such user.
    ///
    /// # Errors
    /// Where the users or their groups cannot be read.
    pub fn of(name: &str) -> io::Result<Option<Self>> {
        let Ok(c_name) = std::ffi::CString::new(name) else {
            return Ok(None);
        };
        let Some(user) = User::from_name(name)? else {
            return Ok(None);
        };
        let groups = nix::unistd::getgrouplist(&c_name, user.gid)?;
        Ok(Some(Self {
            name: user.name,
            home: user.dir,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_an_unknown_one_is_none() {
        let root = Identity::of("root").unwrap().expect("root");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert!(Identity::of("no-such-user-here").unwrap().is_none());
        assert!(Identity::of("with\0zero").unwrap().is_none());
    }
}
