// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command of this machine in a guest of the virtual lab.

#[path = "../common/mod.rs"]
mod common;

use common::guest::{guest, has_qemu};

#[test]
fn a_command_in_the_guest_is_as_one_here() {
    if !has_qemu() {
        return;
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "from the host\n").expect("written");
    let path = file.path().to_str().expect("UTF-8");
    // What goes on in the background holds its output open, and does not keep the guest.
    let script = format!(
        "sleep 100000 & read line <{path}; echo \"$line, $ANSWER, $(id -u), $(ip -br link)\"; \
         read own </proc/self/cgroup; echo \"$own\"; mkdir /sys/fs/cgroup/own && echo made; \
         printf 'no end of line' >&2; exit 7"
    );
    let arguments = ["--file", path, "--env", "ANSWER=42", "--file"];
    let tools = [
        "/usr/bin/sleep",
        "--file",
        "/usr/bin/id",
        "--file",
        "/usr/bin/mkdir",
    ];
    let output = guest(
        "bookworm",
        &[&arguments[..], &tools[..]].concat(),
        &["sh", "-c", &script],
    );
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(7), "{text}{error}");
    assert!(text.starts_with("from the host, 42, 0, lo "), "{text}");
    assert!(text.ends_with("0::/\nmade\n"), "{text}");
    assert!(error.ends_with("no end of line"), "{error}");
}

#[test]
fn a_missing_program_is_reported() {
    if !has_qemu() {
        return;
    }
    let output = guest("bookworm", &[], &["/no/such/program"]);
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(125), "{error}");
    assert!(error.contains("/no/such/program"), "{error}");
}
