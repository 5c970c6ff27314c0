// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline emulate` from outside: what its options say is what packets meet, and
//! what it writes is what happened to them. Needs root.

#[path = "../common/mod.rs"]
mod common;

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{is_root, output, paceline};
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;

const ADDRESSES: [&str; 2] = ["10.97.0.1", "10.97.0.2"];
const PORT: u16 = 7000;
/// Long enough for any machine.
const NEVER: Duration = Duration::from_secs(60);

/// Two hosts and the place between them, as named network namespaces.
struct Place {
    names: [String; 3],
    directory: tempfile::TempDir,
}

impl Place {
    fn new(test: &str) -> Self {
        let names =
            ["a", "b", "link"].map(|part| format!("emu-{test}-{part}-{}", std::process::id()));
        let place = Place {
            names,
            directory: tempfile::tempdir().unwrap(),
        };
        let [left, right, link] = &place.names;
        for name in &place.names {
            ip(&format!("netns add {name}"));
            // No packet but the test's: IPv6 sends some by itself, and one may be dropped.
            inside(name, || {
                std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
            });
        }
        for (host, port, address) in [(left, "left", ADDRESSES[0]), (right, "right", ADDRESSES[1])]
        {
            ip(&format!(
                "-n {host} link add eth0 type veth peer name {port} netns {link}"
            ));
            ip(&format!("-n {host} address add {address}/24 dev eth0"));
            ip(&format!("-n {host} link set eth0 up"));
            ip(&format!("-n {link} link set {port} up"));
            inside(host, || {
                paceline_emulator::disable_offloads("eth0").unwrap()
            });
        }
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn interfaces(&self) -> [String; 2] {
        ["left", "right"].map(|port| format!("{}:{port}", self.names[2]))
    }

    fn start(&self, arguments: &[&str]) -> Link {
        let control = self.file("control");
        let child = paceline()
            .args(["emulate", "run"])
            .args(self.interfaces())
            .args(["--json", "--control", control.to_str().unwrap()])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut link = Link { child, control };
        while link.ask("show", &[]).is_none() {
            assert_eq!(link.child.try_wait().unwrap(), None, "the link ended");
        }
        link
    }

    fn sockets(&self) -> [UdpSocket; 2] {
        [0, 1].map(|host| {
            let socket = inside(&self.names[host], || {
                UdpSocket::bind((ADDRESSES[host], PORT)).unwrap()
            });
            socket.connect((ADDRESSES[1 - host], PORT)).unwrap();
            socket.set_read_timeout(Some(NEVER)).unwrap();
            socket
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns delete {name}"));
        }
    }
}

struct Link {
    child: Child,
    control: PathBuf,
}

impl Link {
    /// What it answers; `None` while nobody listens.
    fn ask(&self, what: &str, arguments: &[&str]) -> Option<Value> {
        let control = self.control.to_str().unwrap();
        let output = output(&[&["emulate", what, control], arguments].concat());
        let text = if output.stdout.is_empty() {
            b"null"
        } else {
            &output.stdout[..]
        };
        output
            .status
            .success()
            .then(|| serde_json::from_slice(text).unwrap())
    }

    /// Whether so many packets, at least, have been offered to the first direction and each is
    /// either dropped or out of it.
    fn has_carried_or_dropped(&self, packets: u64) -> bool {
        let report = self.ask("show", &[]).expect("the link is there");
        let count = |what: &str| report["forward"][what]["packets"].as_u64().unwrap();
        count("offered") >= packets && count("in_flight") == 0
    }

    /// Ends it as Ctrl-C does, and returns its report.
    fn finish(mut self) -> Value {
        // SAFETY: a signal to our own child, which was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        let output = std::mem::replace(&mut self.child, Command::new("true").spawn().unwrap());
        let output = output.wait_with_output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
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

/// Sends until the other side has heard it, so that addresses are resolved.
fn greet([left, right]: &[UdpSocket; 2]) {
    let mut buffer = [0; 16];
    left.send(b"hello").unwrap();
    right.recv(&mut buffer).unwrap();
    right.send(b"hello").unwrap();
    left.recv(&mut buffer).unwrap();
}

/// Interface, time in nanoseconds and payload number of the numbered packets.
fn captured(path: &Path) -> Vec<(u32, u128, u32)> {
    let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            // Ethernet, IPv4, UDP, and four bytes.
            if packet.original_len == 14 + 20 + 8 + 4 {
                let number = packet.data[42..46].try_into().unwrap();
                packets.push((
                    packet.interface_id,
                    packet.timestamp.as_nanos(),
                    u32::from_be_bytes(number),
                ));
            }
        }
    }
    packets
}

#[test]
fn packets_take_the_requested_time_and_the_capture_shows_it() {
    if !is_root() {
        return;
    }
    const SENT: u64 = 200;
    let place = Place::new("take");
    let (pcapng, out) = (place.file("packets.pcapng"), place.file("out"));
    let link = place.start(&[
        "--rate",
        "800kbit",
        "--delay",
        "7ms",
        "--buffer",
        "3KB",
        "--capture",
        pcapng.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    let [left, right] = &place.sockets();
    greet(&[left.try_clone().unwrap(), right.try_clone().unwrap()]);
    // 46 bytes and framing take 700 us at 800 kbit/s; 3 KB hold 65 of them.
    for number in 0..SENT as u32 {
        left.send(&number.to_be_bytes()).unwrap();
    }
    let mut buffer = [0; 16];
    let mut received = Vec::new();
    // Until the link has nothing any more, and then what it had handed over.
    while !link.has_carried_or_dropped(SENT) {
        std::thread::yield_now();
    }
    right.set_nonblocking(true).unwrap();
    while let Ok(length) = right.recv(&mut buffer) {
        assert_eq!(length, 4);
        received.push(u32::from_be_bytes(buffer[..4].try_into().unwrap()));
    }
    let report = link.finish();
    let dropped = report["forward"]["dropped"]["packets"].as_u64().unwrap();
    assert_eq!(received.len() as u64 + dropped, SENT);
    assert!(received.is_sorted() && dropped > 0, "{dropped} dropped");

    let packets = captured(&pcapng);
    let seen = |interface| packets.iter().filter(move |packet| packet.0 == interface);
    assert_eq!(seen(0).count() as u64, SENT);
    assert_eq!(seen(1).map(|packet| packet.2).collect::<Vec<_>>(), received);
    // The first of them found the line idle: 700 us on it, and 7 ms.
    let came = seen(0).next().unwrap().1;
    let left_at: Vec<u128> = seen(1).map(|packet| packet.1).collect();
    let first = left_at[0] - came;
    assert!((7_699_000..7_701_000).contains(&first), "{first}");
    // And those behind it leave one by one; two clocks are read to a microsecond.
    let gaps = left_at.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.min().unwrap() >= 699_000);

    let drops = std::fs::read_to_string(out.join("drops.csv")).unwrap();
    assert_eq!(drops.lines().count() as u64, dropped + 1);
    assert!(drops
        .lines()
        .nth(1)
        .unwrap()
        .ends_with(",buffer,46,17,10.97.0.1:7000,10.97.0.2:7000"));
    for name in ["load.csv", "load.parquet", "drops.parquet", "report.json"] {
        assert!(out.join(name).metadata().unwrap().len() > 0, "{name}");
    }
}

#[test]
fn a_running_link_is_changed_and_a_dead_ones_socket_is_replaced() {
    if !is_root() {
        return;
    }
    let place = Place::new("change");
    let options = ["--rate", "100mbit", "--delay", "1ms", "--buffer", "64KiB"];
    let mut link = place.start(&options);
    let sockets = place.sockets();
    greet(&sockets);
    assert!(link
        .ask("change", &["--direction", "forward", "--loss", "100%"])
        .is_some());
    for wrong in [&["--rate", "0bit"][..], &["--buffer", "1KB"], &[]] {
        assert!(link.ask("change", wrong).is_none(), "{wrong:?}");
    }
    let [left, right] = &sockets;
    left.send(b"lost").unwrap();
    right.send(b"not").unwrap();
    let mut buffer = [0; 16];
    assert_eq!(left.recv(&mut buffer).unwrap(), 3);
    // Of two interfaces the kernel may hand over first what was sent last.
    let lost = || link.ask("show", &[]).unwrap()["forward"]["lost"]["packets"].as_u64();
    assert!((0..1000).any(|_| lost() == Some(1)), "{:?}", lost());

    link.child.kill().unwrap();
    link.child.wait().unwrap();
    assert!(link.control.exists());
    // Who asks there is told, and the next link takes its place.
    let control = link.control.to_str().unwrap();
    let shown = output(&["emulate", "show", control]);
    let shown = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(shown.contains("its process was killed"), "{shown}");
    let link = place.start(&options);
    // The same sockets: a process that another test starts may still hold the port of closed ones.
    greet(&sockets);
    let control = link.control.clone();
    link.finish();
    assert!(!control.exists());
}

#[test]
fn each_invalid_argument_is_one_clear_error() {
    if !is_root() {
        return;
    }
    let place = Place::new("wrong");
    let file = place.file("wan.toml");
    std::fs::write(
        &file,
        "[link]\nrate = \"1mbit\"\nbuffer = \"64KiB\"\nlos = \"1%\"\n",
    )
    .unwrap();
    let [first, second] = place.interfaces();
    let cases: [(&[&str], &str); 5] = [
        (
            &[&first, &first, "--rate", "1mbit", "--buffer", "64KiB"],
            " is given for both ends",
        ),
        (
            &[&first, &second, "--file", file.to_str().unwrap()],
            "wan.toml:4:1: link.los: unknown key, did you mean \"loss\"?",
        ),
        (
            &[
                &first,
                "nowhere:eth0",
                "--rate",
                "1mbit",
                "--buffer",
                "64KiB",
            ],
            "no network namespace /run/netns/nowhere",
        ),
        (
            &[&first, "lo0", "--rate", "1mbit", "--buffer", "64KiB"],
            "cannot find interface lo0",
        ),
        (
            &[&first, &second, "--rate", "1mbit", "--buffer", "1KiB"],
            "it needs at least 1514 bytes",
        ),
    ];
    for (arguments, wanted) in cases {
        let output = output(&[&["emulate", "run"], arguments].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains(wanted),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn without_a_control_socket_no_partial_file_is_left() {
    if !is_root() {
        return;
    }
    let place = Place::new("deaf");
    let pcapng = place.file("packets.pcapng");
    let nowhere = place.file("nowhere/control");
    let [first, second] = place.interfaces();
    let output = output(&[
        "emulate",
        "run",
        &first,
        &second,
        "--rate",
        "1mbit",
        "--buffer",
        "64KiB",
        "--capture",
        pcapng.to_str().unwrap(),
        "--control",
        nowhere.to_str().unwrap(),
    ]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("cannot listen at"), "{error}");
    // A whole file, which says that it has both interfaces and no packet.
    assert_eq!(captured(&pcapng), []);
}
