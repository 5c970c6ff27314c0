// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cgroup of what runs without Paceline, as a service's.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{output, own_cgroup, remove_when_empty};

/// A cgroup that the test made, removed when empty.
pub struct Service(pub PathBuf);

impl Service {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "pltest-service-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = own_cgroup().join(name);
        std::fs::create_dir(&path).unwrap();
        Service(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub fn add(&self, pid: &str) {
        std::fs::write(self.0.join("cgroup.procs"), pid).unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A failed test may leave it attached.
        output(&["detach", "--cgroup", self.path()]);
        remove_when_empty(&self.0);
    }
}
