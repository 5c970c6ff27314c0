// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline top` on a pseudo terminal: what a user sees, and what is left of the terminal.

#[path = "../common/mod.rs"]
mod common;

use std::os::unix::process::CommandExt;

use common::terminal::Terminal;
use common::{alone, output, paceline, transfer_on_all, Net, Peer, SERVER4};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

const STREAMS: usize = 4;
const BYTES: usize = 2_000_000;
/// Changes of the window's size together with a key.
const CHANGES: u16 = 2000;

fn top() -> Terminal {
    let mut command = paceline();
    command.args(["top", "--interval", "100ms"]);
    Terminal::start(command)
}

/// The words of the line that begins with a word.
fn row<'a>(screen: &'a str, first: &str) -> Vec<&'a str> {
    let lines = screen.lines().map(|line| line.split_whitespace().collect());
    let mut rows = lines.filter(|words: &Vec<&str>| words.first() == Some(&first));
    rows.next().unwrap_or_default()
}

#[test]
fn a_job_its_connections_and_its_group() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let run = ["run", "--policy", "lfn", "--group", "bulk", "--"];
    let mut client = Peer::start(&net, 0, Some(&run));
    let mut server = net.peer(1);
    let port = server.ask(&format!("listen {SERVER4}"));
    client.ask(&format!("connect-many {SERVER4} {port} {STREAMS}"));
    server.ask(&format!("accept-many {STREAMS}"));

    let mut top = top();
    let peer = format!("{SERVER4}:{port}");
    // The last line that is drawn: the whole screen is there with it.
    let screen = top.until_shown("established, policy lfn, group bulk");
    assert!(
        screen.contains("jobs 1   connections 4   groups 1"),
        "{screen}"
    );
    assert_eq!(row(&screen, &peer)[1], "paceline_cubic", "{screen}");
    // From the sixth of nine columns on, and round to the second.
    top.press("sssss");
    top.until_shown("by infl");

    // As much on each stream: the slowest and the fastest are alike.
    top.press("g");
    top.until_shown("bulk: 0 of 4 bounded");
    let uid = nix::unistd::geteuid().to_string();
    transfer_on_all(&mut client, &mut server, BYTES);
    let screen = top.until("all is acknowledged", |screen| {
        row(screen, "bulk").ends_with(&["2.0MB", "2.0MB", "1.00"])
    });
    assert_eq!(row(&screen, "bulk")[1..3], [&*uid, "4"], "{screen}");
    assert!(screen.contains('│') && screen.contains("total"), "{screen}");

    top.press("\t");
    let screen = top.until_shown("4 connections under the policy so far");
    assert_eq!(row(&screen, "bulk")[1..3], ["lfn", &*uid], "{screen}");

    // A wider window has room for a reason on each line.
    top.press("c");
    top.resize(40, 160);
    let screen = top.until_shown("CHANGES AND REASONS");
    assert!(screen
        .lines()
        .any(|line| line.contains(&peer) && line.contains("minimum RTO")));
    top.resize(24, 80);
    top.press("?");
    top.until_shown("any key returns");
    top.press("x");

    // With the job the kernel side ends; it goes on looking, and sees the next one.
    client.end();
    server.end();
    top.until_shown("No job runs:");
    let client = net.job(0, "pace");
    top.press("j");
    top.until("the next job", |screen| {
        screen
            .lines()
            .any(|line| line.split_whitespace().nth(1) == Some("pace"))
    });
    client.end();

    top.press("q");
    let (status, screen) = top.end();
    assert_eq!(status.code(), Some(0), "{screen}");
}

#[test]
fn a_gateway_has_its_line() {
    let Some(_alone) = alone() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let file = "name = \"near\"\ncontrol = \"near.sock\"\n[peer.far]\n\
                address = \"127.0.0.1:9\"\nfingerprint = \"";
    let file = format!("{file}{}\"\n", "ab".repeat(32));
    std::fs::write(place.path().join("near.toml"), file).unwrap();
    let mut gateway = paceline()
        .args(["gateway", "serve", "--config", "near.toml"])
        .current_dir(place.path())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut command = paceline();
    command
        .args(["top", "--interval", "100ms", "--gateway", "near.sock"])
        .current_dir(place.path());
    let mut top = Terminal::start(command);
    top.until_shown("gateway near  far: not connected");
    // The line goes with the gateway.
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    top.until("the gateway is gone", |screen| {
        !screen.contains("gateway near")
    });
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

#[test]
fn a_key_that_comes_with_a_new_size_of_the_window_is_taken() {
    let Some(_alone) = alone() else {
        return;
    };
    let mut top = top();
    top.until_shown("No job runs:");
    // Now and then both are there when it looks.
    for round in 0..CHANGES {
        top.resize(30 + round % 2, 100);
        top.press("?");
        top.until_shown("any key returns");
        top.press("x");
        top.until_shown("No job runs:");
    }
    top.press("q");
    assert_eq!(top.end().0.code(), Some(0));
}

#[test]
fn every_end_gives_the_terminal_back() {
    let Some(_alone) = alone() else {
        return;
    };
    for keys in ["q", "\x03", "\x1b"] {
        let mut top = top();
        top.until_shown("No job runs:");
        top.press(keys);
        assert_eq!(top.end().0.code(), Some(0), "{keys:?}");
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let top = top();
        top.until_shown("No job runs:");
        kill(Pid::from_raw(top.process.id() as i32), signal).unwrap();
        assert_eq!(top.end().0.code(), Some(0), "{signal}");
    }
    let top = top();
    top.until_shown("No job runs:");
    assert!(top.hang_up().code().is_some(), "it ends by itself");
}

#[test]
fn without_a_terminal_it_names_what_is_for_programs() {
    let output = output(&["top"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("paceline status --json"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn an_interval_that_is_no_live_view_is_refused() {
    for interval in ["99ms", "61s"] {
        let output = output(&["top", "--interval", interval]);
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(interval), "{message}");
        assert!(message.contains("100ms to 60s"), "{message}");
    }
}

#[test]
fn without_root_an_error_names_what_is_needed_and_nothing_is_drawn() {
    let mut command = paceline();
    command.arg("top");
    if nix::unistd::geteuid().is_root() {
        // SAFETY: system calls on numbers, between fork and exec.
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
    let (status, screen) = Terminal::start(command).end();
    assert_eq!(status.code(), Some(1));
    let message = screen.replace('\n', "");
    assert!(message.contains("paceline top needs root"), "{screen}");
    assert!(message.contains("CAP_BPF"), "{screen}");
}
