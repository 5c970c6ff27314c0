// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory with sources and destinations, and commands in it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_paceline");

pub struct Scratch(tempfile::TempDir);

/// How a command ended.
pub struct Ended(pub Output);

impl Ended {
    #[track_caller]
    pub fn ok(self) -> Output {
        // With `--json` the errors are among the events.
        let said = text(&self.0.stderr) + &text(&self.0.stdout);
        assert_eq!(self.0.status.code(), Some(0), "{said}");
        self.0
    }

    #[track_caller]
    pub fn fails_with(&self, code: i32, message: &str) {
        let stderr = text(&self.0.stderr);
        assert_eq!(self.0.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn kill(pid: u32) {
    let _ = signal::kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
}

/// The process that a command has started.
pub fn helper_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    // The thread that started it may be another one.
    let all = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).ok();
    let found: String = all.flatten().filter_map(of_thread).collect();
    let first = children
        .split_whitespace()
        .chain(found.split_whitespace())
        .next()?;
    first.parse().ok()
}

/// The page of a service's metrics.
pub fn page(socket: &Path) -> String {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("it listens");
    let asked = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(asked.as_bytes()).expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("it answers");
    page
}

/// Contents, links, times, permissions: the same.
#[track_caller]
pub fn assert_same(one: &Path, other: &Path) {
    let compared = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([one, other])
        .output()
        .expect("diffutils");
    assert!(compared.status.success(), "{compared:?}");
    let list = |top: &Path| {
        let found = Command::new("find")
            .arg(top)
            .args(["-printf", "%P %y %m %T@ %l\\0"])
            .output()
            .expect("findutils");
        let mut lines: Vec<String> = text(&found.stdout).split('\0').map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (one, other) = (list(one), list(other));
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one, other);
    }
    assert_eq!(one.len(), other.len());
}

impl Scratch {
    pub fn new() -> Self {
        Self::at(tempfile::tempdir().expect("a directory"))
    }

    /// In a file system without a disk, where there is one.
    pub fn without_a_disk() -> Self {
        match tempfile::tempdir_in("/dev/shm") {
            Ok(directory) => Self::at(directory),
            Err(_) => Self::new(),
        }
    }

    fn at(directory: tempfile::TempDir) -> Self {
        let scratch = Self(directory);
        for directory in ["from", "to", "back"] {
            fs::create_dir(scratch.path(directory)).expect("ours");
        }
        // ssh HOST COMMAND, without a host.
        scratch.script("shell", "#!/bin/sh\nshift\nexec /bin/sh -c \"exec $*\"\n");
        for token in ["token", "other"] {
            let path = scratch.path(token);
            let path = path.to_str().expect("ASCII");
            scratch.paceline(&["coordinate", "token", path]).ok();
        }
        scratch
    }

    /// A program.
    pub fn script(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).expect("ours");
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(path, mode).expect("ours");
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub fn write(&self, path: &str, length: usize) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("it has")).expect("ours");
        let mut state = length as u64 + 1;
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        fs::write(path, bytes).expect("room");
    }

    /// Large, small, empty, with holes, with odd names, with links.
    pub fn tree(&self) {
        use std::os::unix::ffi::OsStrExt;
        self.write("from/tree/large", 3_000_001);
        self.write("from/tree/deep/a/b/c/larger", 2 << 20);
        for n in 0..200 {
            self.write(&format!("from/tree/small/{n}"), n * 53);
        }
        let odd = [
            &b"\xff\xfe"[..],
            b"new\nline",
            b" ",
            b"-rf",
            "ä\u{202e}x".as_bytes(),
            b"*",
        ];
        for name in odd {
            let path = self.path("from/tree/odd");
            fs::create_dir_all(&path).expect("ours");
            fs::write(path.join(std::ffi::OsStr::from_bytes(name)), name).expect("ours");
        }
        let long = format!("from/tree/odd/{}", "n".repeat(255));
        self.write(&long, 300_000);
        let sparse = fs::File::create(self.path("from/tree/sparse")).expect("ours");
        sparse.set_len(5_000_000).expect("room");
        sparse.write_all_at(b"x", 3_333_333).expect("room");
        std::os::unix::fs::symlink("../nowhere", self.path("from/tree/deep/link")).expect("ours");
        std::os::unix::fs::symlink("/etc", self.path("from/tree/absolute")).expect("ours");
        fs::create_dir(self.path("from/tree/empty")).expect("ours");
        let mode = fs::Permissions::from_mode(0o751);
        fs::set_permissions(self.path("from/tree/deep"), mode).expect("ours");
    }

    /// Of an authority, of a host at 127.0.0.1, of a client.
    pub fn certificates(&self) {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
        let params = |name: &str| CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let mut authority = params("authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = authority.self_signed(&key).expect("signed");
        self.keep("ca.pem", &certificate.pem());
        let issuer = Issuer::new(authority, key);
        for (file, name) in [("host", "127.0.0.1"), ("client", "client")] {
            let key = KeyPair::generate().expect("a key");
            let certificate = params(name).signed_by(&key, &issuer).expect("signed");
            self.keep(&format!("{file}.pem"), &certificate.pem());
            self.keep(&format!("{file}.key"), &key.serialize_pem());
        }
    }

    fn keep(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("ours");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(self.path(name), mode).expect("ours");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        let place = |argument: &&str| {
            let at = |name: &str| self.path(name).to_str().expect("ASCII").to_owned();
            [
                "token",
                "other",
                "to",
                "back",
                "ca.pem",
                "host.pem",
                "host.key",
                "client.pem",
                "client.key",
                "mute",
            ]
            .iter()
            .fold((*argument).to_owned(), |text, name| {
                text.replace(&format!("@{name}"), &at(name))
            })
        };
        command
            .args(arguments.iter().map(place))
            .current_dir(self.0.path())
            .env("PACELINE_SSH", self.path("shell"))
            .env("XDG_STATE_HOME", self.path("state"))
            .stdin(Stdio::null());
        command
    }

    pub fn paceline(&self, arguments: &[&str]) -> Ended {
        Ended(self.command(arguments).output().expect("it starts"))
    }

    fn with_remote<'a>(role: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
        let mut all = vec![role];
        let is_local = arguments.contains(&"--listen") || arguments.contains(&"--remote-command");
        if !is_local {
            all.extend(["--remote-command", PROGRAM]);
        }
        all.extend(arguments);
        all
    }

    /// `send` or `receive` by the shell, not started.
    pub fn command_with_remote(&self, arguments: &[&str]) -> Command {
        self.command(&Self::with_remote(arguments[0], &arguments[1..]))
    }

    pub fn send(&self, arguments: &[&str]) -> Ended {
        self.paceline(&Self::with_remote("send", arguments))
    }

    pub fn receive(&self, arguments: &[&str]) -> Ended {
        self.paceline(&Self::with_remote("receive", arguments))
    }

    /// `send`, under way.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(&Self::with_remote("send", arguments))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts")
    }

    /// `send`, under way, with its stdout.
    pub fn start_to_be_read(&self, arguments: &[&str]) -> Child {
        self.command(&Self::with_remote("send", arguments))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts")
    }

    /// `send`, with a disk that fails at a point.
    pub fn failing_at(&self, point: &str, arguments: &[&str]) -> Ended {
        let mut command = self.command(&Self::with_remote("send", arguments));
        command.env("PACELINE_MOVER_FAIL", point);
        Ended(command.output().expect("it starts"))
    }

    /// `send`, of which one side is killed at a point.
    pub fn killed_at(&self, point: &str, arguments: &[&str]) -> Output {
        self.command(&Self::with_remote("send", arguments))
            .env("PACELINE_MOVER_KILL", point)
            .output()
            .expect("it starts")
    }

    /// Until it is so.
    pub fn wait_until(&self, what: &str, is: impl Fn() -> bool) {
        for _ in 0..600 {
            if is() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("never: {what}");
    }

    /// Until `paceline transfers` shows one that has sent something: its ID.
    pub fn wait_until_running(&self) -> String {
        for _ in 0..600 {
            let listed = self.paceline(&["transfers", "--json"]).ok();
            let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
            if listed[0]["state"] == "running" && listed[0]["bytes_sent"].as_u64() > Some(0) {
                return listed[0]["id"].as_str().expect("an ID").to_owned();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("it never ran");
    }

    /// Data connections of a transfer.
    pub fn streams_of(&self, id: &str) -> u64 {
        let listed = self.paceline(&["transfers", id, "--json"]).ok();
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        listed[0]["streams"].as_u64().expect("a number")
    }

    /// A standing receiver of `to`.
    pub fn receiver(&self, arguments: &[&str]) -> Receiver {
        let own = ["receive", "--listen", "127.0.0.1:0", "--root", "@to"];
        let mut child = self
            .command(&[&own[..], arguments].concat())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let address = loop {
            let line = lines.next().expect("a line").expect("text");
            match line.strip_prefix("receiver at ") {
                Some(address) => break address.to_owned(),
                None => assert!(line.starts_with("metrics at "), "{line}"),
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Receiver(child, address)
    }

    pub fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).expect("ours").flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// What Paceline should have removed.
    pub fn leftovers(&self) -> Vec<String> {
        let found = Command::new("find")
            .arg(self.0.path())
            .args(["-name", "*.paceline*", "-printf", "%P\\n"])
            .output()
            .expect("findutils");
        text(&found.stdout).lines().map(str::to_owned).collect()
    }

    /// A file system with these options (tmpfs(5)) at `to/small`.
    pub fn small_disk(&self, options: &str) -> SmallDisk {
        let path = self.path("to/small");
        fs::create_dir(&path).expect("ours");
        mount(&["-t", "tmpfs", "-o", options, "none"], &path);
        SmallDisk(path)
    }
}

pub struct Receiver(Child, String);

impl Receiver {
    pub fn url(&self, path: &str) -> String {
        format!("paceline://{}{path}", self.1)
    }

    pub fn address(&self) -> &str {
        &self.1
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        kill(self.0.id());
        let _ = self.0.wait();
    }
}

pub struct SmallDisk(PathBuf);

impl SmallDisk {
    pub fn grow(&self, options: &str) {
        mount(&["-o", &format!("remount,{options}")], &self.0);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str], path: &Path) {
    let mounted = Command::new("mount").args(arguments).arg(path).status();
    assert!(mounted.expect("mount").success(), "{arguments:?}");
}
