// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places at which a test kills this process, or makes its disk fail. In all builds, because
//! tests are of the build that is shipped.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// `NAME:COUNT`: the process ends by SIGKILL when it comes there for that time.
const KILL: &str = "PACELINE_MOVER_KILL";
/// `NAME:COUNT:ERRNO`: from that time on the kernel answers with this number.
const FAIL: &str = "PACELINE_MOVER_FAIL";

struct Wanted {
    name: String,
    count: u64,
    errno: i32,
}

fn wanted(variable: &str) -> Option<Wanted> {
    let text = std::env::var(variable).ok()?;
    let mut parts = text.split(':');
    Some(Wanted {
        name: parts.next()?.to_owned(),
        count: parts.next()?.parse().ok()?,
        errno: parts.next().unwrap_or("0").parse().ok()?,
    })
}

/// Here a process may be killed.
pub fn point(name: &str) {
    static WANTED: OnceLock<Option<Wanted>> = OnceLock::new();
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let Some(wanted) = WANTED.get_or_init(|| wanted(KILL)) else {
        return;
    };
    if wanted.name == name && SEEN.fetch_add(1, Ordering::Relaxed) + 1 == wanted.count {
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

/// Here the disk may fail.
///
/// # Errors
/// The error that a test set.
pub fn disk(name: &str) -> io::Result<()> {
    static WANTED: OnceLock<Option<Wanted>> = OnceLock::new();
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let Some(wanted) = WANTED.get_or_init(|| wanted(FAIL)) else {
        return Ok(());
    };
    match wanted.name == name && SEEN.fetch_add(1, Ordering::Relaxed) + 1 >= wanted.count {
        true => Err(io::Error::from_raw_os_error(wanted.errno)),
        false => Ok(()),
    }
}
