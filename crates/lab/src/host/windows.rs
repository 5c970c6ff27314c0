// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether this machine's kernel ever gave a connection a window that no TCP computes.
//!
//! A kernel that skips a congestion control's program hands TCP the bytes on its stack, as
//! ssthresh or as the window of an undo: 2165326096 segments were seen. Stock kernels do not
//! skip (docs/experiments.md, "Skipped programs"). A measurement on one that does is not the
//! algorithm.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Segments. A window of 1.5 GB: a hundred times the BDP of the lab's fastest path.
const MOST_SEGS: u32 = 1 << 20;
/// The kernel's "none" of a slow-start threshold (include/net/tcp.h).
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// The first impossible one that this process has seen: cwnd above, ssthresh below; or 0.
static JUMPED: AtomicU64 = AtomicU64::new(0);

/// A window at one moment, segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    /// Congestion window.
    pub cwnd: u32,
    /// Slow-start threshold.
    pub ssthresh: u32,
}

impl Windows {
    /// Whether no TCP computes it.
    fn is_impossible(self) -> bool {
        self.cwnd > MOST_SEGS || (self.ssthresh > MOST_SEGS && self.ssthresh != NO_THRESHOLD)
    }
}

/// Records a connection's values from the kernel, if they are impossible.
pub fn note(windows: Windows) {
    if windows.is_impossible() {
        let seen = u64::from(windows.cwnd) << 32 | u64::from(windows.ssthresh);
        // The first one is enough.
        let _ = JUMPED.compare_exchange(0, seen, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The first impossible window that was noted in this process, once.
pub fn take_jump() -> Option<Windows> {
    match JUMPED.swap(0, Ordering::Relaxed) {
        0 => None,
        seen => Some(Windows {
            cwnd: (seen >> 32) as u32,
            ssthresh: seen as u32,
        }),
    }
}

/// The kernel's log, from a moment on. Where it cannot be read, as in most containers, it
/// has nothing to say.
pub struct KernelLog(Option<File>);

impl KernelLog {
    /// From now on.
    pub fn start() -> Self {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file));
        KernelLog(opened.ok())
    }

    /// The first warning of TCP since then. The kernel gives most of them once in its life.
    pub fn tcp_warning(&mut self) -> Option<String> {
        let file = self.0.as_mut()?;
        // One record a read (Documentation/ABI/testing/dev-kmsg).
        let mut record = [0; 8192];
        loop {
            match file.read(&mut record) {
                Ok(0) => return None,
                Ok(length) => {
                    let text = String::from_utf8_lossy(&record[..length]);
                    if let Some(warning) = tcp_warning(&text) {
                        return Some(warning.to_owned());
                    }
                }
                // Records were overwritten before they could be read: on to the next.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

/// The text of a record that is a warning at a line of TCP's source.
fn tcp_warning(record: &str) -> Option<&str> {
    let text = record.split_once(';').map_or(record, |(_, text)| text);
    let line = text.lines().next()?;
    (line.contains("WARNING:") && line.contains("net/ipv4/tcp")).then_some(line)
}

/// Why a run in which that happened is invalid.
pub fn problems(log: &mut KernelLog) -> Vec<String> {
    let jumped = take_jump().map(|windows| {
        format!(
            "a connection had a window of {} segments and ssthresh {}, which no TCP computes: this kernel skips programs of congestion controls (docs/experiments.md, \"Skipped programs\"); --backend virtual does not",
            windows.cwnd, windows.ssthresh
        )
    });
    let warned = log
        .tcp_warning()
        .map(|warning| format!("this kernel's TCP warned of itself: {warning}"));
    jumped.into_iter().chain(warned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_jumped_is_reported_once() {
        let of = |cwnd, ssthresh| Windows { cwnd, ssthresh };
        for possible in [of(10, NO_THRESHOLD), of(MOST_SEGS, MOST_SEGS)] {
            assert!(!possible.is_impossible(), "{possible:?}");
        }
        let stale = 2_165_326_096;
        for windows in [of(stale, 100), of(10, stale)] {
            note(of(10, NO_THRESHOLD));
            note(windows);
            note(of(MOST_SEGS + 1, 7));
            let found = problems(&mut KernelLog(None));
            assert_eq!(found.len(), 1);
            assert!(found[0].contains("2165326096"), "{found:?}");
            assert!(problems(&mut KernelLog(None)).is_empty());
        }
    }

    #[test]
    fn warnings_of_tcp_are_found_in_either_form() {
        for text in [
            "4,1187,98436545,-;WARNING: CPU: 1 PID: 0 at net/ipv4/tcp_input.c:2725 tcp_undo_cwnd_reduction+0x9d/0xb0\n SUBSYSTEM=x\n",
            "4,1187,98436545,-;WARNING: net/ipv4/tcp_input.c:2725 at tcp_undo_cwnd_reduction+0x9d/0xb0, CPU#1: swapper/1/0\n",
        ] {
            let warning = tcp_warning(text).expect("it is one");
            assert!(warning.starts_with("WARNING: ") && !warning.contains("SUBSYSTEM"));
        }
        for text in [
            "4,1,2,-;WARNING: CPU: 1 PID: 0 at kernel/workqueue.c:10 x+0x9d/0xb0\n",
            "6,1,2,-;TCP: request_sock_TCP: Possible SYN flooding on port 80 (net/ipv4/tcp)\n",
        ] {
            assert_eq!(tcp_warning(text), None);
        }
    }
}
