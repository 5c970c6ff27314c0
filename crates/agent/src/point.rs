// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where tests kill a command. In all builds, because tests are of the build that is shipped.

/// Kills this process where PACELINE_KILL_AT names this point.
pub(crate) fn point(name: &str) {
    if std::env::var("PACELINE_KILL_AT").as_deref() == Ok(name) {
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    }
}
