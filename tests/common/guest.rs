// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands in a guest of the virtual lab.

use std::process::{Command, Output};

use super::kept::KEPT;
use super::noise::EXACT_CLOCK;
use super::paceline;

/// The newest kernel; not always to be had.
pub const UNRELEASED: &str = "sid";
/// Exit status of `lab guest` when there is no guest.
pub const NO_GUEST: i32 = 125;

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

/// Tests of this program, as libtest's arguments choose them, one after the other in one guest
/// with a kernel of Debian's. Its clock counts instructions, so they see no noise; none of
/// them may be skipped. `kept`: the kernel side stays loaded from test to test.
pub fn tests_in_guest(suite: &str, which: &[&str], kept: bool) {
    if !has_qemu() {
        return;
    }
    let tests = std::env::current_exe().expect("this program");
    let tests = tests.to_str().expect("UTF-8");
    let files = [env!("CARGO_BIN_EXE_paceline"), "/sbin/ip", "/sbin/tc"];
    let mut environment = vec!["CI=true".to_owned(), format!("{EXACT_CLOCK}=1")];
    if kept {
        environment.push(format!("{KEPT}=1"));
    }
    let mut options = Vec::new();
    for file in files {
        options.extend(["--file", file]);
    }
    for variable in &environment {
        options.extend(["--env", variable]);
    }
    let command = [&[tests], which, &["--nocapture"]].concat();
    let output = guest(suite, &options, &command);
    if suite == UNRELEASED && output.status.code() == Some(NO_GUEST) {
        println!("nothing is decided: no guest with the kernel of {suite}");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    println!("{suite}: {text}{error}");
    assert!(output.status.success(), "{suite}: {text}{error}");
    let ok = "test result: ok. ";
    let count = text.rsplit_once(ok).map_or("none", |(_, count)| count);
    // Those that are named, or some.
    let all = match which.split_first() {
        Some((&"--exact", named)) => count.starts_with(&format!("{} passed;", named.len())),
        _ => !count.starts_with("0 ") && count != "none",
    };
    assert!(all, "{suite}: {text}{error}");
    assert!(!text.contains("skipped"), "{suite}: {text}{error}");
}
