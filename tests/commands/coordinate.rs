// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline coordinate`, from outside.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

fn coordinate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.arg("coordinate").args(arguments);
    command
}

fn output(arguments: &[&str]) -> Output {
    coordinate(arguments).output().expect("started")
}

fn error(arguments: &[&str], code: i32) -> String {
    let output = output(arguments);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}

struct Serving(Child);

impl Serving {
    /// Its word is that it listens.
    fn start(arguments: &[&str]) -> (Self, String) {
        let mut child = coordinate(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        let stderr = child.stderr.as_mut().expect("piped");
        BufReader::new(stderr).read_line(&mut line).expect("a line");
        let place = line.trim().strip_prefix("coordinator at ");
        let place = place.unwrap_or_else(|| panic!("{line}")).to_owned();
        (Self(child), place)
    }

    fn interrupt(&mut self) -> Option<i32> {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGINT).expect("ours");
        self.0.wait().expect("ours").code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn serve_status_set_and_a_clean_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("c.sock");
    let socket = socket.to_str().expect("text");
    let (mut serving, place) = Serving::start(&["serve", "--listen", socket]);
    assert_eq!(place, socket);
    let status = output(&["status", "--to", socket, "--json"]);
    assert!(status.status.success(), "{status:?}");
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!(status["algorithm"], "even");
    assert!(output(&[
        "set",
        "--to",
        socket,
        "--algorithm",
        "scoreboard:headroom=4"
    ])
    .status
    .success());
    let status = output(&["status", "--to", socket]);
    let text = String::from_utf8(status.stdout).expect("text");
    assert!(
        text.contains("algorithm of new groups scoreboard:headroom=4"),
        "{text}"
    );
    let busy = error(&["serve", "--listen", socket], 1);
    assert!(busy.contains("already listens on this socket"), "{busy}");
    assert_eq!(serving.interrupt(), Some(0));
    assert!(!Path::new(socket).exists(), "nothing is left behind");
    let gone = error(&["status", "--to", socket], 1);
    assert!(
        gone.contains("start one with paceline coordinate serve"),
        "{gone}"
    );
}

#[test]
fn a_token_over_loopback() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| {
        let path = directory.path().join(name);
        path.to_str().expect("text").to_owned()
    };
    let (token, other) = (path("token"), path("other"));
    for file in [&token, &other] {
        assert!(output(&["token", file]).status.success());
    }
    let listen = ["serve", "--listen", "127.0.0.1:0"];
    let open = error(&listen, 1);
    assert!(open.contains("it needs a token"), "{open}");
    let everywhere = error(
        &["serve", "--listen", "0.0.0.0:0", "--token-file", &token],
        1,
    );
    assert!(everywhere.contains("needs TLS"), "{everywhere}");
    let (_serving, place) = Serving::start(&[&listen[..], &["--token-file", &token]].concat());
    let status = output(&["status", "--to", &place, "--token-file", &token]);
    assert!(status.status.success(), "{status:?}");
    let wrong = error(&["status", "--to", &place, "--token-file", &other], 1);
    assert!(wrong.contains("wrong token"), "{wrong}");
}

#[test]
fn refusals_are_shown_by_their_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| {
        directory
            .path()
            .join(name)
            .to_str()
            .expect("text")
            .to_owned()
    };
    let (token, other, socket) = (path("token"), path("other"), path("c.sock"));
    for file in [&token, &other] {
        assert!(output(&["token", file]).status.success());
    }
    let (_serving, place) = Serving::start(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--listen",
        &socket,
        "--token-file",
        &token,
    ]);
    for _ in 0..2 {
        error(&["status", "--to", &place, "--token-file", &other], 1);
    }
    let text = output(&["status", "--to", &socket]).stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains(", 2 refused\n"), "{text}");
    assert!(text.contains("  refused, wrong token: 2, last "), "{text}");
    assert!(text.contains("ago: 127.0.0.1:"), "{text}");
}

#[test]
fn invalid_arguments() {
    for (arguments, code, part) in [
        (&["serve", "--algorithm", "fair"][..], 2, "use one of even"),
        (&["serve", "--round", "5ms"][..], 1, "20ms to 60s"),
        (
            &["serve", "--listen", "127.0.0.1"][..],
            2,
            "is not an address",
        ),
        (&["serve", "--group", "a b"][..], 1, "is not a name"),
        (&["serve", "--ca", "x"][..], 2, "--cert"),
        (&["status", "--pin", "abc"][..], 1, "64 hexadecimal digits"),
        (&["join"][..], 2, "--group"),
    ] {
        let text = error(arguments, code);
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
}
