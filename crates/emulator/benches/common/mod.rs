// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A place for a link and the probe beside it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

use paceline_emulator::Port;

/// A network namespace.
pub struct Place {
    namespace: File,
    mtu: u32,
}

impl Place {
    /// A new one with two cables, `outer0`-`inner0` and `outer1`-`inner1`, for packets
    /// of `mtu` bytes.
    pub fn new(mtu: u32) -> Self {
        let namespace = thread::spawn(|| {
            // SAFETY: plain system call about the calling thread.
            assert_eq!(
                unsafe { libc::unshare(libc::CLONE_NEWNET) },
                0,
                "needs root"
            );
            File::open("/proc/thread-self/ns/net").expect("a namespace")
        });
        let place = Place {
            namespace: namespace.join().expect("a namespace"),
            mtu,
        };
        place.inside(|| {
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("sysctl");
            for cable in 0..2 {
                ip(&format!(
                    "link add outer{cable} mtu {mtu} type veth peer name inner{cable} mtu {mtu}"
                ));
                ip(&format!("link set outer{cable} up"));
                ip(&format!("link set inner{cable} up"));
            }
        });
        place
    }

    /// Runs `work` inside.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.namespace, work)
    }

    /// Opens interfaces.
    pub fn open<const N: usize>(&self, interfaces: [&str; N]) -> [Port; N] {
        self.inside(|| interfaces.map(|name| Port::open(name, self.mtu).expect("a port")))
    }
}

/// Runs `work` in a thread that is in `namespace`.
pub fn in_namespace<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // SAFETY: plain system call about the calling thread.
            assert_eq!(
                unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) },
                0
            );
            work()
        });
        inside.join().expect("no panic")
    })
}

/// Runs `ip`.
pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("ip").success(), "ip {arguments}");
}
