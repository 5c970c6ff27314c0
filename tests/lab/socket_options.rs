// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The socket options of parallel streams, and everybody else's, on the stock kernel of the
//! virtual backend, which is older than most hosts'; `paceline`'s own tests ask the same of
//! this host's. It needs QEMU and a kernel package; without QEMU it is skipped, except under
//! CI. It is its own harness, because the guest's first process is this very program.

use std::error::Error;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use paceline_agent::group::{Bounds, Group};
use paceline_agent::job::{Job, JobOptions};
use paceline_experiment::plan::Plan;
use paceline_experiment::record::Sink;
use paceline_experiment::Experiment;
use paceline_machine::{guest, prepare, run as boot, Choice, Machine};
use paceline_net::Namespace;
use paceline_policy::Policy;

const NAME: &str = "socket_options_of_the_stock_kernel";

/// A machine has a plan, whatever it does.
const EXPERIMENT: &str = r#"
title = "None"
description = "Not run."

[link]
rate = "100mbit"
one_way_delay = "5ms"
buffer = "64KiB"

[[burst]]
size = "10KB"
gap = "100ms"
count = 1

[variant.cubic]
congestion = "cubic"
"#;

// include/paceline.h
const TCP_ATTACHGROUP: i32 = 0x50_4c01;
const TCP_WININFO: i32 = 0x50_4c02;
const TCP_STREAMBYTES: i32 = 0x50_4c03;
const SET_PAGE: u32 = 1;
const SET_LIMITS: u32 = 2;
/// Bytes of `struct paceline_wininfo` before its streams, and of each of these.
const HEADER: usize = 32;
const STREAM: usize = 48;

/// Levels and names of options that are not Paceline's: `TCP_INFO`, `TCP_CONGESTION`,
/// `TCP_MAXSEG`, an unknown one, `SO_SNDBUF`, `SO_RCVBUF`, `IP_TOS`, and two of iptables that
/// are larger than a page.
const GETS: [(i32, i32); 9] = [
    (6, 11),
    (6, 13),
    (6, 2),
    (6, 0x50_4c7f),
    (1, 7),
    (1, 8),
    (0, 1),
    (0, 64),
    (0, 65),
];
const GET_BYTES: [usize; 4] = [4, 256, 4096, 70_000];
/// `TCP_NODELAY`, `SO_SNDBUF`, `TCP_CONGESTION` of nothing, an unknown one, and one of
/// iptables.
const SETS: [(i32, i32); 5] = [(6, 1), (1, 7), (6, 13), (6, 0x50_4c7f), (0, 64)];
const SET_BYTES: [usize; 4] = [0, 4, 4096, 200_000];

fn main() {
    if guest::is_guest_init() {
        guest::init_main(in_the_guest);
    }
    if std::env::args().any(|argument| argument == "--list") {
        println!("{NAME}: test");
        return;
    }
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    if let Err(error) = qemu {
        assert!(
            std::env::var_os("CI").is_none(),
            "qemu-system-x86_64: {error}"
        );
        println!("{NAME}: skipped: needs qemu-system-x86_64");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("none.toml");
    fs::write(&path, EXPERIMENT).expect("written");
    let experiment = Experiment::load(&path).expect("it is valid");
    let plans = experiment.shards(false, None, &[]).expect("it has shards");
    let machine = Machine {
        image: prepare(&Choice::default()).expect("an image"),
        shift: 0,
        patience: Duration::from_secs(600),
        log: None,
    };
    boot(&machine, &plans[0], &[], &|_| (), &|| false).unwrap_or_else(|error| panic!("{error}"));
    println!("{NAME}: ok");
}

/// Panics in the guest would end its kernel with many words of its own.
fn in_the_guest(_: &Plan, _: Sink) -> Result<(), Box<dyn Error>> {
    std::panic::catch_unwind(checks).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("a panic without words").into()
    })
}

fn checks() {
    let hosts = Hosts::new();
    let outside = hosts.connect();
    let options = JobOptions::new(Policy::load("lfn").expect("a preset"));
    let mut holder = Command::new("ip");
    holder.args(["-batch", "-"]).stdin(Stdio::piped());
    let (job, mut held) = Job::start(&options, &mut holder).expect("a job");
    fs::write(job.path().join("cgroup.procs"), "0").expect("inside");
    let inside = [hosts.connect(), hosts.connect()];

    foreign_options_are_as_without_paceline(&inside[0], &outside);
    groups(&inside, &outside);

    drop((inside, outside, held.stdin.take()));
    drop(held.wait());
}

fn foreign_options_are_as_without_paceline(inside: &TcpStream, outside: &TcpStream) {
    for (level, name) in GETS {
        for bytes in GET_BYTES {
            let lengths = [inside, outside].map(|socket| {
                let (returned, length) = get(socket, level, name, &mut vec![0xaa; bytes]);
                (returned.map_err(errno), length)
            });
            assert_eq!(lengths[0], lengths[1], "get {level} {name} {bytes}");
        }
    }
    for (level, name) in SETS {
        for bytes in SET_BYTES {
            let results = [inside, outside].map(|socket| set(socket, level, name, &vec![0; bytes]));
            assert_eq!(results[0], results[1], "set {level} {name} {bytes}");
        }
    }
}

fn groups(inside: &[TcpStream; 2], outside: &TcpStream) {
    let attach = |socket, name: &[u8]| set(socket, 6, TCP_ATTACHGROUP, name);
    assert_eq!(attach(outside, b"bulk"), Err(libc::ENOPROTOOPT));
    let mut page = vec![0; HEADER + 20 * STREAM];
    let (none, _) = get(&inside[0], 6, TCP_WININFO, &mut page);
    assert_eq!(none.map_err(errno), Err(libc::ENOTCONN));
    for socket in inside {
        assert_eq!(attach(socket, b"bulk"), Ok(()));
    }
    let total = 123_456_789_u64;
    let bytes = total.to_ne_bytes();
    assert_eq!(set(&inside[0], 6, TCP_STREAMBYTES, &bytes), Ok(()));

    let limits = |set: u32, least: u32, most: u32, lease_ms: u32| {
        [set, 0, least, most, lease_ms, 0]
            .map(u32::to_ne_bytes)
            .concat()
    };
    let apply = |limits: &[u8]| set(&inside[0], 6, TCP_WININFO, limits);
    assert_eq!(apply(&limits(SET_LIMITS, 2, 10, 60_000)), Ok(()));
    for wrong in [
        limits(SET_LIMITS, 11, 10, 1000),
        limits(0, 0, 0, 0),
        vec![0; 5000],
    ] {
        assert_eq!(apply(&wrong), Err(libc::EINVAL), "{} bytes", wrong.len());
    }
    assert_eq!(apply(&limits(SET_PAGE, 0, 0, 0)), Ok(()));

    let (got, length) = get(&inside[0], 6, TCP_WININFO, &mut page);
    got.expect("a page");
    assert_eq!(length, HEADER + 2 * STREAM);
    let word = |index: usize| u32::from_ne_bytes(page[4 * index..][..4].try_into().unwrap());
    // Page, pages, members, streams that follow, least and most.
    let header: Vec<u32> = (0..6).map(word).collect();
    assert_eq!(header, [0, 1, 2, 2, 2, 10]);
    let totals: Vec<u64> = (0..2)
        .map(|index| HEADER + index * STREAM + 16)
        .map(|at| u64::from_ne_bytes(page[at..][..8].try_into().unwrap()))
        .collect();
    assert!(totals.contains(&total), "{totals:?}");
    // As many as there is room for; and a buffer that is larger than a page.
    let (_, length) = get(&inside[0], 6, TCP_WININFO, &mut [0; HEADER + STREAM]);
    assert_eq!(length, HEADER + STREAM);
    let (large, length) = get(&inside[0], 6, TCP_WININFO, &mut vec![0; 70_000]);
    large.expect("a page");
    assert_eq!(length, HEADER + 2 * STREAM);

    // What a coordinator on this host sees of them, and does.
    let mut group = Group::of_owner("bulk", 0).expect("we are root");
    let streams = group.streams().expect("read");
    assert_eq!(streams.len(), 2);
    let bounds = Bounds {
        cookie: streams[0].cookie,
        min_segs: 0,
        max_segs: 3,
    };
    let applied = group.apply(&[bounds], Duration::from_secs(60));
    assert_eq!(applied.expect("applied"), 1);
    let most: Vec<u32> = group
        .streams()
        .expect("read")
        .iter()
        .map(|stream| stream.max_segs)
        .collect();
    assert!(most.contains(&3), "{most:?}");

    assert_eq!(attach(&inside[1], b""), Ok(()));
    assert_eq!(group.streams().expect("read").len(), 1);
}

/// Two hosts with a link, and somebody on one of them to connect to.
struct Hosts {
    client: Namespace,
    listener: TcpListener,
    _server: Namespace,
}

impl Hosts {
    fn new() -> Self {
        let [client, server] =
            ["client", "server"].map(|name| Namespace::create(name).expect(name));
        let peer = server.path();
        let lines = format!(
            "link add c type veth peer name s netns {peer}\naddr add 10.98.0.1/24 dev c\nlink set c up\n"
        );
        client.ip(&lines).expect("a link");
        server
            .ip("addr add 10.98.0.2/24 dev s\nlink set s up\n")
            .expect("its other end");
        let listener = server.enter(|| Ok(TcpListener::bind("10.98.0.2:0")));
        Self {
            client,
            listener: listener.expect("entered").expect("it listens"),
            _server: server,
        }
    }

    /// From the cgroup that this process is in. Nobody accepts it; the kernel does.
    fn connect(&self) -> TcpStream {
        let address = self.listener.local_addr().expect("bound");
        let stream = self.client.enter(|| Ok(TcpStream::connect(address)));
        stream.expect("entered").expect("connected")
    }
}

fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

fn get(socket: &TcpStream, level: i32, name: i32, buffer: &mut [u8]) -> (io::Result<()>, usize) {
    let mut length = buffer.len() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    let into = buffer.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `length` bytes, which the buffer has.
    let result = unsafe { libc::getsockopt(descriptor, level, name, into, &mut length) };
    let returned = match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    (returned, length as usize)
}

fn set(socket: &TcpStream, level: i32, name: i32, value: &[u8]) -> Result<(), i32> {
    let descriptor = socket.as_fd().as_raw_fd();
    let length = value.len() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes, which the value has.
    let result =
        unsafe { libc::setsockopt(descriptor, level, name, value.as_ptr().cast(), length) };
    match result {
        0 => Ok(()),
        _ => Err(errno(io::Error::last_os_error())),
    }
}
