// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two hosts, with or without a link between them, and `paceline burst` as a child.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use paceline_burst::monotonic_ns;
use serde_json::Value;

use crate::common::paceline;

pub const ADDRESSES: [&str; 2] = ["10.96.0.1", "10.96.0.2"];
pub const ADDRESSES6: [&str; 2] = ["fd96::1", "fd96::2"];

/// Named network namespaces, each host with `eth0`.
pub struct Place {
    pub names: Vec<String>,
}

impl Place {
    /// Two hosts on one cable.
    pub fn cable() -> Self {
        let place = Place::of(&["a", "b"]);
        let [a, b] = [&place.names[0], &place.names[1]];
        ip(&format!(
            "-n {a} link add eth0 type veth peer name eth0 netns {b}"
        ));
        place.addresses();
        place
    }

    /// Two hosts, each on a cable to a third namespace's `left` and `right`.
    pub fn link() -> Self {
        let place = Place::of(&["a", "b", "link"]);
        let link = &place.names[2];
        for (host, port) in place.names.iter().zip(["left", "right"]) {
            ip(&format!(
                "-n {host} link add eth0 type veth peer name {port} netns {link}"
            ));
            ip(&format!("-n {link} link set {port} up"));
            inside(host, || {
                paceline_emulator::disable_offloads("eth0").unwrap();
            });
        }
        place.addresses();
        place
    }

    fn of(parts: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let names = parts
            .iter()
            .map(|part| format!("burst-{}-{number}-{part}", std::process::id()))
            .collect();
        let place = Place { names };
        for name in &place.names {
            ip(&format!("netns add {name}"));
        }
        place
    }

    fn addresses(&self) {
        for (host, (four, six)) in self.names.iter().zip(ADDRESSES.iter().zip(ADDRESSES6)) {
            ip(&format!("-n {host} address add {four}/24 dev eth0"));
            ip(&format!("-n {host} address add {six}/64 dev eth0 nodad"));
            ip(&format!("-n {host} link set lo up"));
            ip(&format!("-n {host} link set eth0 up"));
        }
    }

    /// `NETNS:IF`.
    pub fn interface(&self, host: usize, name: &str) -> String {
        format!("{}:{name}", self.names[host])
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

/// What `tc ARGUMENTS` says in a namespace.
pub fn tc(namespace: &str, arguments: &str) -> String {
    let output = Command::new("tc")
        .args(["-n", namespace])
        .args(arguments.split(' '))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

pub fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    let namespace = File::open(Path::new("/run/netns").join(namespace)).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: plain system call about the calling thread.
            assert_eq!(
                unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) },
                0
            );
            work()
        });
        thread.join().unwrap()
    })
}

/// A running `paceline burst --json`.
pub struct Burst {
    pub child: Child,
    lines: BufReader<ChildStdout>,
    /// Its first line.
    pub start: Value,
}

impl Burst {
    /// Returns once it counts.
    pub fn start(interface: &str, arguments: &[&str]) -> Self {
        let mut child = paceline()
            .args(["burst", "--dev", interface, "--json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut error = String::new();
            let mut stderr = child.stderr.take().unwrap();
            stderr.read_to_string(&mut error).unwrap();
            panic!("burst {interface} {arguments:?}: {error}");
        }
        let start: Value = serde_json::from_str(&line).unwrap();
        let first_ns = start["first_start_ns"].as_u64().unwrap();
        while monotonic_ns() < first_ns {
            std::thread::sleep(Duration::from_millis(1));
        }
        Burst {
            child,
            lines,
            start,
        }
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a signal to our own child, which was not waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Lets it count all that was sent before now, and ends it; all of its lines.
    pub fn end_after_this(mut self) -> Vec<Value> {
        let now_ns = monotonic_ns();
        let mut lines: Vec<Value> = Vec::new();
        let start_ns = |line: &Value| line["start_ns"].as_u64();
        while lines.last().and_then(start_ns).unwrap_or(0) <= now_ns {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            lines.push(serde_json::from_str(&line).expect("it still counts"));
        }
        self.signal(libc::SIGINT);
        let (rest, status, error) = self.finish();
        assert!(status.success() && error.is_empty(), "{status} {error}");
        lines.extend(rest);
        assert_eq!(lines.last().unwrap()["kind"], "end");
        lines
    }

    /// The rest of its lines, its end and what it complained of.
    pub fn finish(mut self) -> (Vec<Value>, ExitStatus, String) {
        let lines = (&mut self.lines)
            .lines()
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .collect();
        let mut error = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut error).unwrap();
        (lines, self.child.wait().unwrap(), error)
    }

    /// Its last line, once it has ended well.
    pub fn end(self) -> Value {
        let (lines, status, error) = self.finish();
        assert!(status.success() && error.is_empty(), "{status} {error}");
        let end = lines.last().expect("a last line").clone();
        assert_eq!(end["kind"], "end");
        end
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
