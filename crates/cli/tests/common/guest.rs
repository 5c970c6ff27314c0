// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands in a guest of the virtual lab.

use std::process::{Command, Output};

use super::paceline;

/// Whether there is a QEMU. In CI there must be.
pub fn has_qemu() -> bool {
    match Command::new("qemu-system-x86_64").arg("--version").output() {
        Ok(_) => true,
        Err(error) => {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "qemu-system-x86_64: {error}"
            );
            println!("skipped: needs qemu-system-x86_64");
            false
        }
    }
}

/// Runs `paceline lab guest --kernel KERNEL OPTIONS -- COMMAND`.
pub fn guest(kernel: &str, options: &[&str], command: &[&str]) -> Output {
    paceline()
        .args(["lab", "guest", "--kernel", kernel])
        .args(options)
        .arg("--")
        .args(command)
        .output()
        .expect("paceline runs")
}
