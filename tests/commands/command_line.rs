// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the command line says and which code it exits with. Needs no root.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

fn paceline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_paceline"))
        .args(arguments)
        .output()
        .expect("paceline runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [
        &["run"][..],
        &["no-such-command"],
        &["attach"],
        &["doctor", "--rate", "5"],
    ] {
        assert_eq!(paceline(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_bare_number_shows_the_right_form() {
    let message = text(&paceline(&["doctor", "--rtt", "20"]).stderr);
    assert!(message.contains("10ms"), "{message}");
}

#[test]
fn the_exit_codes_are_in_the_help() {
    let help = text(&paceline(&["--help"]).stdout);
    for code in ["125", "126", "127", "128"] {
        assert!(help.contains(code), "{code}");
    }
}

#[test]
fn an_unknown_policy_is_named_before_anything_starts() {
    let output = paceline(&["run", "--policy", "no-such-policy", "--", "echo", "started"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    assert!(text(&output.stderr).contains("no-such-policy"));
}

#[test]
fn a_launcher_of_remote_ranks_gets_the_form_that_works() {
    let output = paceline(&[
        "run",
        "--policy",
        "pace",
        "--",
        "srun",
        "--no-such-option",
        "./prog",
    ]);
    let message = text(&output.stderr);
    assert!(
        message.contains("srun [OPTIONS] paceline run --policy pace -- ./prog"),
        "{message}"
    );
}

/// As root, drops to a user without capabilities, so that it always is one.
fn unprivileged(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.args(arguments);
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        // SAFETY: plain system calls on numbers, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // Only the bounding set goes: the binary stays readable.
                for capability in [12, 21, 39] {
                    if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
    }
    command.output().expect("paceline runs")
}

#[test]
fn without_root_an_error_names_what_is_needed() {
    for (arguments, code) in [
        (&["run", "--", "true"][..], 125),
        (&["status"], 1),
        (&["attach", "--cgroup", "/"], 1),
        (&["detach", "--cgroup", "/"], 1),
    ] {
        let output = unprivileged(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let message = text(&output.stderr);
        assert!(
            message.contains("root") && message.contains("CAP_BPF"),
            "{message}"
        );
    }
}

#[test]
fn doctor_without_root_fails_and_still_reports() {
    let output = unprivileged(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["can_run"], false);
    let checks = report["checks"].as_array().unwrap();
    let privileges = checks
        .iter()
        .find(|check| check["name"] == "privileges")
        .unwrap();
    assert_eq!(privileges["level"], "fail");
    assert!(checks.iter().any(|check| check["name"] == "send buffer"));
}

#[test]
fn doctor_judges_buffers_against_the_path() {
    let level = |rate: &str| {
        let output = paceline(&["doctor", "--json", "--rate", rate, "--rtt", "10ms"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let check = checks
            .iter()
            .find(|check| check["name"] == "send buffer")
            .unwrap();
        check["level"].as_str().unwrap().to_owned()
    };
    assert_eq!(level("1mbit"), "ok");
    assert_eq!(level("900gbit"), "warn");
}
