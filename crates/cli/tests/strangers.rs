// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others than the caller can do to a host with Paceline: names, numbers, locks, places.

mod common;

use std::process::Stdio;

use common::{alone, is_root, output, paceline, wait_for};

#[test]
fn a_name_with_escapes_controls_no_terminal() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let name = "\x1b[2J\u{9b}31m";
    let program =
        format!("import sys; open('/proc/self/comm', 'w').write({name:?}); sys.stdin.read()",);
    let mut job = paceline()
        .args(["run", "--policy", "standard", "--", "python3", "-c"])
        .arg(
            program
                .replace("\\u{1b}", "\\x1b")
                .replace("\\u{9b}", "\\x9b"),
        )
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mine = format!("paceline.{}.", job.id());
    wait_for("the process's name", |status| {
        let jobs = common::jobs(status, &mine);
        let shown = jobs.first().map(|job| job["processes"][0]["name"] == name);
        shown == Some(true)
    });
    for arguments in [&["status"][..], &["status", "--json"]] {
        let shown = String::from_utf8(output(arguments).stdout).unwrap();
        let controls = |c: char| c.is_control() && c != '\n';
        assert!(!shown.contains(controls), "{shown:?}");
    }
    drop(job.stdin.take());
    job.wait().unwrap();
}
