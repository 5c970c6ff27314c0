// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two network namespaces joined by a veth pair, and a peer program that makes
//! TCP connections in them on command.
//!
//! The peer program is this test binary itself, started again with
//! `PACELINE_TEST_PEER` set: it needs nothing installed.

#![allow(dead_code, unused_imports)] // each test file uses its own part

pub mod agent;
mod alone;
pub mod capture;
pub mod guest;
pub mod host;
pub mod kept;
pub mod lab;
pub mod messages;
pub mod mpi;
pub mod noise;
pub mod packets;
pub mod service;
pub mod setting;
pub mod sites;
pub mod streams;
pub mod terminal;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub use alone::{is_root, job_alive};
pub use kept::alone;
use paceline_agent::cgroup::Hierarchy;

pub const SERVER4: &str = "10.98.0.2";
pub const SERVER6: &str = "fd98::2";

/// The binary under test.
pub fn paceline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.env_remove("SUDO_UID");
    command
}

/// Runs `paceline ARGUMENTS` and returns what it wrote.
pub fn output(arguments: &[&str]) -> Output {
    paceline().args(arguments).output().expect("paceline runs")
}

/// `paceline status --json`, without the kept job.
pub fn status() -> serde_json::Value {
    let output = output(&["status", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let mut status = serde_json::from_slice(&output.stdout).expect("status writes JSON");
    assert_windows_are_possible(&status);
    kept::leave_out(&mut status);
    status
}

/// A kernel that skips programs of congestion controls gives connections windows of
/// billions of segments (docs/experiments.md): what a test sees there is no fault of ours.
fn assert_windows_are_possible(status: &serde_json::Value) {
    const MOST_SEGS: u64 = 1 << 20;
    const NO_THRESHOLD: u64 = 0x7fff_ffff;
    let jobs = status["jobs"].as_array().into_iter().flatten();
    for connection in jobs.flat_map(|job| job["connections"].as_array().into_iter().flatten()) {
        let [cwnd, ssthresh] = ["cwnd_segs", "ssthresh_segs"].map(|key| connection[key].as_u64());
        assert!(
            cwnd <= Some(MOST_SEGS)
                && (ssthresh <= Some(MOST_SEGS) || ssthresh == Some(NO_THRESHOLD)),
            "invalid: this machine's kernel skips programs of congestion controls: {connection}"
        );
    }
}

/// The running jobs whose cgroup's path contains `part`.
pub fn jobs(status: &serde_json::Value, part: &str) -> Vec<serde_json::Value> {
    status["jobs"]
        .as_array()
        .expect("jobs is a list")
        .iter()
        .filter(|job| {
            job["cgroup"]
                .as_str()
                .is_some_and(|path| path.contains(part))
        })
        .cloned()
        .collect()
}

/// Repeats `status` until `done` says so.
pub fn wait_for(what: &str, mut done: impl FnMut(&serde_json::Value) -> bool) {
    for _ in 0..600 {
        if done(&status()) {
            return;
        }
    }
    panic!("never came: {what}");
}

/// The cgroup v2 directory of this test process.
pub fn own_cgroup() -> PathBuf {
    let hierarchy = Hierarchy::find().expect("a cgroup v2 hierarchy");
    hierarchy.own().expect("our cgroup").path().to_path_buf()
}

/// Removes a cgroup whose last process is about to end.
pub fn remove_when_empty(cgroup: &std::path::Path) {
    for _ in 0..1000 {
        match std::fs::remove_dir(cgroup) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::yield_now(),
            _ => return,
        }
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}

/// A policy file that goes with the test.
pub struct PolicyFile(PathBuf);

impl PolicyFile {
    pub fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}-{}.toml", std::process::id()));
        std::fs::write(&path, format!("name = \"{name}\"\n{text}")).unwrap();
        PolicyFile(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for PolicyFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// Two namespaces, `10.98.0.1`/`fd98::1` and `10.98.0.2`/`fd98::2`.
pub struct Net {
    names: [String; 2],
}

impl Net {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let tag = format!(
            "{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let net = Net {
            names: [format!("pltest-{tag}-a"), format!("pltest-{tag}-b")],
        };
        for name in &net.names {
            ip(&format!("netns add {name}"));
            ip(&format!("-n {name} link set lo up"));
        }
        let [a, b] = &net.names;
        ip(&format!(
            "-n {a} link add v type veth peer name v netns {b}"
        ));
        for (name, host) in [(a, 1), (b, 2)] {
            ip(&format!("-n {name} addr add 10.98.0.{host}/24 dev v"));
            ip(&format!("-n {name} addr add fd98::{host}/64 dev v nodad"));
            ip(&format!("-n {name} link set v up"));
        }
        net
    }

    /// Makes `command` start in namespace 0 or 1.
    pub fn enter(&self, host: usize, command: &mut Command) {
        let namespace = File::open(format!("/run/netns/{}", self.names[host])).unwrap();
        // SAFETY: one system call on a descriptor that the closure owns.
        unsafe {
            command.pre_exec(move || {
                match libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
    }

    /// `ip` in a namespace.
    pub fn ip(&self, host: usize, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.names[host]));
    }

    /// Sets a sysctl of a namespace, by its path below /proc/sys.
    pub fn sysctl(&self, host: usize, name: &str, value: &str) {
        let namespace = File::open(format!("/run/netns/{}", self.names[host])).unwrap();
        let (file, value) = (format!("/proc/sys/{name}"), value.to_owned());
        // A thread of its own: the namespace is a thread's.
        let thread = std::thread::spawn(move || {
            // SAFETY: one system call on an open descriptor.
            let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0);
            std::fs::write(&file, value).unwrap_or_else(|error| panic!("{file}: {error}"));
        });
        thread.join().unwrap();
    }

    /// Checksums of what leaves are made before it does, so that they are looked at where it
    /// arrives.
    pub fn without_checksum_offload(&self, host: usize) {
        const SIOCETHTOOL: libc::Ioctl = 0x8946;
        const ETHTOOL_STXCSUM: u32 = 0x17;
        let namespace = File::open(format!("/run/netns/{}", self.names[host])).unwrap();
        let thread = std::thread::spawn(move || {
            let mut asked = [ETHTOOL_STXCSUM, 0];
            // SAFETY: plain calls; `asked` lives across that which reads it.
            unsafe {
                assert_eq!(libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET), 0);
                let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
                let mut request: libc::ifreq = std::mem::zeroed();
                request.ifr_name[0] = b'v' as libc::c_char;
                request.ifr_ifru.ifru_data = asked.as_mut_ptr().cast();
                assert_eq!(libc::ioctl(socket, SIOCETHTOOL, &raw mut request), 0);
                libc::close(socket);
            }
        });
        thread.join().unwrap();
    }

    /// Names of the namespaces.
    pub fn names(&self) -> &[String; 2] {
        &self.names
    }

    /// From here on what reaches host 1 by IPv4 is not answered.
    pub fn silence(&self) {
        ip(&format!("-n {} addr del {SERVER4}/24 dev v", self.names[1]));
    }

    /// A peer without paceline.
    pub fn peer(&self, host: usize) -> Peer {
        Peer::start(self, host, None)
    }

    /// A peer under `paceline run --policy POLICY`.
    pub fn job(&self, host: usize, policy: &str) -> Peer {
        Peer::start(self, host, Some(&["run", "--policy", policy, "--"]))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// A running peer program: answers each command with one line, and ends when
/// nobody can send commands any more.
pub struct Peer {
    pub process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// `wrapper`: arguments of paceline before the peer's own command line.
    pub fn start(net: &Net, host: usize, wrapper: Option<&[&str]>) -> Self {
        let mut command = match wrapper {
            Some(arguments) => {
                let mut command = paceline();
                command
                    .args(arguments)
                    .arg(std::env::current_exe().unwrap());
                command
            }
            None => Command::new(std::env::current_exe().unwrap()),
        };
        net.enter(host, &mut command);
        Self::spawn(command)
    }

    /// Starts a peer by a command that ends with this test binary.
    pub fn spawn(mut command: Command) -> Self {
        // SAFETY: signal() is async-signal-safe. Who started the tests may have had
        // these ignored (nohup, a shell's background), and that is inherited.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        let mut process = command
            .args([
                "--exact",
                "common::peer_program",
                "--ignored",
                "--nocapture",
            ])
            .args(["--test-threads", "1"])
            .env("PACELINE_TEST_PEER", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the peer starts");
        Peer {
            commands: process.stdin.take().unwrap(),
            answers: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    /// Sends one command and returns the answer; none when the peer is gone.
    pub fn try_ask(&mut self, command: &str) -> Option<String> {
        writeln!(self.commands, "{command}").ok()?;
        self.answer()
    }

    /// The answer to the last command; none when the peer is gone.
    fn answer(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.answers.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // The test harness writes lines of its own, not all ended.
            if let Some((_, answer)) = line.split_once('@') {
                return Some(answer.trim_end().to_owned());
            }
        }
    }

    pub fn ask(&mut self, command: &str) -> String {
        self.try_ask(command)
            .unwrap_or_else(|| panic!("the peer is gone before {command:?}"))
    }

    /// Lets the peer end and waits for the process that was started.
    pub fn end(mut self) {
        self.ask("exit");
        self.process.wait().unwrap();
    }
}

/// A connection from `client` to `server` at this address; both ends' answers
/// are the congestion control in use.
pub fn connect(client: &mut Peer, server: &mut Peer, address: &str) -> (String, String) {
    let port = server.ask(&format!("listen {address}"));
    let active = client.ask(&format!("connect {address} {port}"));
    let passive = server.ask("accept");
    (active, passive)
}

/// `bytes` on the latest connection of each. Both work at once: how much a sender may
/// hand over before the other end reads is this host's setting.
pub fn transfer(from: &mut Peer, to: &mut Peer, bytes: usize) {
    let commands = [format!("send {bytes}"), format!("receive {bytes}")];
    at_once(from, to, [&commands[0], &commands[1]]);
}

/// `bytes` on each connection, all of one peer's after the other.
pub fn transfer_on_all(from: &mut Peer, to: &mut Peer, bytes: usize) {
    let commands = [
        format!("send-on-all {bytes}"),
        format!("receive-on-all {bytes}"),
    ];
    at_once(from, to, [&commands[0], &commands[1]]);
}

/// Both at once, until both have done.
pub fn at_once(from: &mut Peer, to: &mut Peer, commands: [&str; 2]) {
    writeln!(from.commands, "{}", commands[0]).expect("the sender is there");
    to.ask(commands[1]);
    from.answer().expect("the sender is still there");
}

#[test]
#[ignore = "the peer program of the other tests"]
fn peer_program() {
    if std::env::var_os("PACELINE_TEST_PEER").is_none() {
        return;
    }
    allow_many_files();
    let mut listener = None;
    let mut streams: Vec<TcpStream> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["listen", address] => {
                let address: IpAddr = address.parse().unwrap();
                let socket = TcpListener::bind((address, 0)).unwrap();
                let port = socket.local_addr().unwrap().port();
                listener = Some(socket);
                port.to_string()
            }
            ["listen-multipath", address] => match multipath(address, 0, true) {
                Some(socket) => {
                    let socket = TcpListener::from(socket);
                    let port = socket.local_addr().unwrap().port();
                    listener = Some(socket);
                    port.to_string()
                }
                None => "none".to_owned(),
            },
            ["connect-multipath", address, port] => {
                let socket = multipath(address, port.parse().unwrap(), false);
                streams.push(socket.expect("there is Multipath TCP").into());
                congestion(streams.last().unwrap())
            }
            ["connect", address, port] => {
                let address: IpAddr = address.parse().unwrap();
                let stream = TcpStream::connect((address, port.parse().unwrap())).unwrap();
                streams.push(stream);
                congestion(streams.last().unwrap())
            }
            ["accept"] => {
                let (stream, _) = listener.as_ref().unwrap().accept().unwrap();
                streams.push(stream);
                congestion(streams.last().unwrap())
            }
            ["connect-many", address, port, count] => {
                let address: IpAddr = address.parse().unwrap();
                for _ in 0..count.parse().unwrap() {
                    let stream = TcpStream::connect((address, port.parse().unwrap())).unwrap();
                    streams.push(stream);
                }
                streams.len().to_string()
            }
            ["accept-many", count] => {
                for _ in 0..count.parse().unwrap() {
                    streams.push(listener.as_ref().unwrap().accept().unwrap().0);
                }
                streams.len().to_string()
            }
            ["send-on-all", bytes] => {
                let data = vec![0; bytes.parse().unwrap()];
                for stream in &mut streams {
                    stream.write_all(&data).unwrap();
                }
                "sent".to_owned()
            }
            ["receive-on-all", bytes] => {
                let mut data = vec![0; bytes.parse().unwrap()];
                for stream in &mut streams {
                    stream.read_exact(&mut data).unwrap();
                }
                "received".to_owned()
            }
            ["close-all"] => {
                streams.clear();
                "closed".to_owned()
            }
            ["congestion"] => congestion(streams.last().unwrap()),
            ["round-trip-us"] => round_trip_us(streams.last().unwrap()).to_string(),
            ["send", bytes] => {
                let data = vec![0; bytes.parse().unwrap()];
                streams.last_mut().unwrap().write_all(&data).unwrap();
                "sent".to_owned()
            }
            ["receive", bytes] => {
                let mut data = vec![0; bytes.parse().unwrap()];
                streams.last_mut().unwrap().read_exact(&mut data).unwrap();
                "received".to_owned()
            }
            ["active"] => paceline::ffi::paceline_active().to_string(),
            ["enter", class] => paceline::ffi::paceline_enter(class.parse().unwrap()).to_string(),
            ["leave"] => paceline::ffi::paceline_leave().to_string(),
            ["fork-and-enter", class] => {
                // SAFETY: the child calls libpaceline, which holds its lock over the
                // fork, and ends without running anything of the parent's.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let status = paceline::ffi::paceline_enter(class.parse().unwrap());
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(status) };
                }
                let mut status = 0;
                // SAFETY: waits for our own child.
                unsafe { libc::waitpid(child, &mut status, 0) };
                status.to_string()
            }
            ["pid"] => std::process::id().to_string(),
            ["uid"] => {
                // SAFETY: no arguments, cannot fail.
                let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
                format!("{uid} {gid} {}", std::env::var("HOME").unwrap())
            }
            ["cgroup"] => std::fs::read_to_string("/proc/self/cgroup")
                .unwrap()
                .lines()
                .find_map(|line| line.strip_prefix("0::").map(str::to_owned))
                .unwrap(),
            ["exit"] => {
                println!("@bye");
                return;
            }
            _ => streams
                .last_mut()
                .and_then(|stream| messages::carry_out(&words, stream))
                .unwrap_or_else(|| panic!("unknown command {line:?}")),
        };
        println!("@{answer}");
    }
}

/// A socket of Multipath TCP that listens, or is connected; none where the kernel has no
/// such sockets.
fn multipath(address: &str, port: u16, listens: bool) -> Option<OwnedFd> {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.parse::<Ipv4Addr>().unwrap().octets()),
        },
        sin_zero: [0; 8],
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: plain calls with a whole address; the new descriptor is owned at once.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
        if socket < 0 {
            return None;
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let pointer = (&raw const address).cast();
        let result = if listens {
            libc::bind(socket.as_raw_fd(), pointer, length) | libc::listen(socket.as_raw_fd(), 1)
        } else {
            libc::connect(socket.as_raw_fd(), pointer, length)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        Some(socket)
    }
}

/// As many as root may have: thousands of connections.
fn allow_many_files() {
    let limit = libc::rlimit {
        rlim_cur: 20_000,
        rlim_max: 20_000,
    };
    // SAFETY: reads one properly initialised struct.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
}

/// The least that this connection's kernel has seen.
fn round_trip_us(stream: &TcpStream) -> u32 {
    // SAFETY: tcp_info is plain data, for which zero is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` has room for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut length,
        )
    };
    assert_eq!(result, 0);
    info.tcpi_rtt
}

fn congestion(stream: &TcpStream) -> String {
    let mut name = [0u8; 16];
    let mut length = name.len() as libc::socklen_t;
    // SAFETY: `name` has room for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &mut length,
        )
    };
    assert_eq!(result, 0);
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}
