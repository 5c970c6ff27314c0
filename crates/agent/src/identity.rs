// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owner of a job, and the user of its command.

use std::path::PathBuf;

use nix::unistd::{Gid, Uid, User};

use crate::error::{Error, Result};

/// The user who started this program; with sudo, the user behind it.
pub(crate) fn owner() -> u32 {
    std::env::var("SUDO_UID")
        .ok()
        .and_then(|uid| uid.parse().ok())
        .unwrap_or_else(|| Uid::current().as_raw())
}

/// A user's numbers, looked up before the fork.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub name: String,
    pub home: PathBuf,
    pub uid: libc::uid_t,
    pub gid: libc::gid_t,
    pub groups: Vec<libc::gid_t>,
}

impl Identity {
    /// Of the user with this name.
    ///
    /// # Errors
    /// [`Error::NoSuchUser`].
    pub fn of(name: &str) -> Result<Self> {
        let no_such_user = || Error::NoSuchUser {
            name: name.to_owned(),
        };
        let user = User::from_name(name)
            .map_err(|errno| Error::system(format!("cannot look up user {name}"), errno.into()))?
            .ok_or_else(no_such_user)?;
        let c_name = std::ffi::CString::new(name).map_err(|_| no_such_user())?;
        let groups = nix::unistd::getgrouplist(&c_name, user.gid)
            .map_err(|errno| Error::system(format!("cannot look up user {name}"), errno.into()))?;
        Ok(Self {
            name: user.name,
            home: user.dir,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_is_named() {
        let error = Identity::of("no-such-user-here").unwrap_err();
        assert!(error.to_string().contains("no-such-user-here"));
    }
}
