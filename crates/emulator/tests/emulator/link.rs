// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link between two real hosts (network namespaces). Needs root.
//!
//! How fast this machine wakes a thread is not for a test to judge: figures
//! that depend on it are only looked at when the link itself says that the
//! run is to be trusted. What must always hold is asserted always.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use paceline_emulator::{
    disable_offloads, Buffer, Change, Direction, Emulator, EmulatorError, LinkConfig, Loss,
    Observe, Port, Reorder, Report, Settings, BIN_NS, ETHERNET_FRAMING,
};

const MTU: u32 = 1_500;
/// UDP payload of a full packet: MTU less IPv4 and UDP headers.
const FULL_PAYLOAD: usize = 1_472;
const FULL_FRAME: u64 = 1_514;

fn root() -> bool {
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } == 0 {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "needs root under CI"
    );
    eprintln!("skipped: needs root");
    false
}

/// A network namespace that lives as long as this descriptor.
struct Namespace(File);

impl Namespace {
    fn create() -> Namespace {
        let file = thread::spawn(|| {
            // SAFETY: plain system call about the calling thread.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Namespace(file.join().unwrap())
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: plain system call about the calling thread.
                assert_eq!(
                    unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) },
                    0
                );
                work()
            });
            thread.join().unwrap()
        })
    }

    fn ip(&self, arguments: &str) {
        let run = || {
            Command::new("ip")
                .args(arguments.split_whitespace())
                .status()
                .unwrap()
        };
        assert!(self.inside(run).success(), "ip {arguments}");
    }

    /// A cable from `eth0` here, offloads on as the kernel has them, to `peer`.
    fn connect(&self, address: &str, peer: &Namespace, peer_interface: &str) {
        self.inside(|| {
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap()
        });
        let peer_path = format!("/proc/{}/fd/{}", std::process::id(), peer.0.as_raw_fd());
        self.ip(&format!(
            "link add eth0 type veth peer name {peer_interface} netns {peer_path}"
        ));
        self.ip("link set eth0 up");
        self.ip(&format!("address add {address} dev eth0"));
        peer.ip(&format!("link set {peer_interface} up"));
    }
}

struct Hosts {
    left: Namespace,
    right: Namespace,
    link: Namespace,
}

impl Hosts {
    fn create() -> Hosts {
        let hosts = Hosts {
            left: Namespace::create(),
            right: Namespace::create(),
            link: Namespace::create(),
        };
        hosts.link.inside(|| {
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        });
        hosts.left.connect("10.0.0.1/24", &hosts.link, "left");
        hosts.right.connect("10.0.0.2/24", &hosts.link, "right");
        for host in [&hosts.left, &hosts.right] {
            host.inside(|| disable_offloads("eth0").unwrap());
        }
        hosts
    }

    fn try_start(
        &self,
        forward: LinkConfig,
        reverse: LinkConfig,
    ) -> Result<Emulator, EmulatorError> {
        let (left, right) = self.link.inside(|| {
            (
                Port::open("left", MTU).unwrap(),
                Port::open("right", MTU).unwrap(),
            )
        });
        Emulator::start(
            left,
            right,
            Settings {
                forward,
                reverse,
                observe: Observe {
                    longest_ns: 20_000 * BIN_NS,
                    most_drops: 1_000,
                    ..Observe::NOTHING
                },
            },
        )
    }

    fn start(&self, forward: LinkConfig, reverse: LinkConfig) -> Emulator {
        self.try_start(forward, reverse).unwrap()
    }

    fn udp(&self) -> (UdpSocket, UdpSocket) {
        let left = self
            .left
            .inside(|| UdpSocket::bind("10.0.0.1:7000").unwrap());
        let right = self
            .right
            .inside(|| UdpSocket::bind("10.0.0.2:7000").unwrap());
        for socket in [&left, &right] {
            socket
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
        }
        // What a test reads late, because links have the CPUs, must not be lost in the socket.
        let room: libc::c_int = 16 << 20;
        // SAFETY: the option's value is live and as long as is said.
        let set = unsafe {
            libc::setsockopt(
                right.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUFFORCE,
                (&raw const room).cast(),
                size_of_val(&room) as libc::socklen_t,
            )
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        left.connect("10.0.0.2:7000").unwrap();
        right.connect("10.0.0.1:7000").unwrap();
        (left, right)
    }
}

fn config(rate_bits: u64, delay_ms: u64, buffer_bytes: u64) -> LinkConfig {
    LinkConfig::new(rate_bits, delay_ms * BIN_NS, Buffer::Bytes(buffer_bytes))
}

fn conserved(report: &Report) {
    for direction in [&report.forward, &report.reverse] {
        assert_eq!(
            direction.offered.packets,
            direction.carried.packets
                + direction.dropped.packets
                + direction.dropped_early.packets
                + direction.lost.packets
                + direction.in_flight.packets
                + direction.refused
        );
    }
}

/// Sends `rounds` times 32 full packets, a millisecond apart, waits for as many
/// as come and returns how many and the time from the first to the last,
/// seconds.
fn blast(from: &UdpSocket, to: &UdpSocket, rounds: usize) -> (usize, f64) {
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                for _ in 0..32 {
                    from.send(&[7; FULL_PAYLOAD]).unwrap();
                }
                thread::sleep(Duration::from_millis(1));
            }
            // Short ones tell the receiver that it is over, one of them surely.
            for _ in 0..50 {
                from.send(&[0]).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
        let mut buffer = [0; 2_000];
        let (mut count, mut first, mut last) = (0, None, None);
        while to.recv(&mut buffer).unwrap() == FULL_PAYLOAD {
            let now = Instant::now();
            first.get_or_insert(now);
            last = Some(now);
            count += 1;
        }
        let seconds = last
            .zip(first)
            .map_or(0.0, |(last, first)| (last - first).as_secs_f64());
        (count, seconds)
    })
}

#[test]
fn rate_delay_and_buffer_are_what_was_asked() {
    if !root() {
        return;
    }
    let hosts = Hosts::create();
    let link = hosts.start(
        config(200_000_000, 5, 131_072),
        config(100_000_000, 7, 131_072),
    );
    let (left, right) = hosts.udp();

    // None is shorter than the link, and one of them is hardly longer: the two programs wake
    // late on a busy machine, and not each time.
    let round_trips = (0..500).map(|_| round_trip(&left, &right));
    let quick = |time: &Duration| {
        assert!(*time >= Duration::from_millis(12), "{time:?}");
        *time < Duration::from_micros(12_600)
    };
    let quickest = round_trips.into_iter().find(quick);
    assert!(quickest.is_some(), "all round trips take longer");

    let (received, _) = blast(&left, &right, 600);
    let report = link.stop().unwrap();
    eprintln!("{report:?}", report = Summary(&report));
    conserved(&report);
    assert!(report.forward.peak_backlog <= 131_072);
    assert!(received as u64 <= report.forward.carried.packets);

    // The line itself, in logical time: full bins carry the rate, exactly.
    let wire = |frames: f64| frames * (FULL_FRAME + ETHERNET_FRAMING as u64) as f64 * 8.0;
    let bins = report.forward.carried_bins.as_slice();
    let bytes: u64 = bins.iter().map(|bytes| u64::from(*bytes)).sum();
    assert_eq!(bytes, report.forward.carried.bytes);
    let most = *bins.iter().max().unwrap();
    assert!(wire(f64::from(most) / FULL_FRAME as f64) <= 200_000.0 + wire(1.0));
    // And most of them were full while there was enough to send, however late the far end had
    // a look at it.
    let full = bins
        .iter()
        .filter(|bytes| wire(f64::from(**bytes) / FULL_FRAME as f64) > 180_000.0);
    assert!(full.count() > 300, "the line was hardly ever busy");
}

/// There and back, as the programs at the ends see it.
fn round_trip(left: &UdpSocket, right: &UdpSocket) -> Duration {
    let mut buffer = [0; 2_000];
    let start = Instant::now();
    left.send(b"ping").unwrap();
    right.recv(&mut buffer).unwrap();
    right.send(b"pong").unwrap();
    left.recv(&mut buffer).unwrap();
    start.elapsed()
}

struct Summary<'a>(&'a Report);

impl std::fmt::Debug for Summary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report {
            duration_ns,
            cpu_ns,
            realtime,
            rests,
            forward,
            reverse,
            ..
        } = self.0;
        write!(
            f,
            "cpu {:.2}, realtime {realtime}, rests {rests}",
            *cpu_ns as f64 / *duration_ns as f64
        )?;
        for d in [forward, reverse] {
            write!(
                f,
                "\n  offered {:?} carried {:?} dropped {:?} missed {} refused {} {:?}",
                d.offered, d.carried, d.dropped, d.missed, d.refused, d.lateness
            )?;
        }
        Ok(())
    }
}

#[test]
fn tcp_crosses_whole_and_the_rate_can_change_on_the_way() {
    if !root() {
        return;
    }
    let hosts = Hosts::create();
    let link = hosts.start(
        config(400_000_000, 2, 262_144),
        config(400_000_000, 2, 262_144),
    );
    let listener = hosts
        .right
        .inside(|| TcpListener::bind("10.0.0.2:7001").unwrap());
    let mut client = hosts
        .left
        .inside(|| TcpStream::connect("10.0.0.2:7001").unwrap());
    let (mut server, _) = listener.accept().unwrap();
    let sent: Vec<u8> = (0..8_000_000u32).map(|n| (n / 7) as u8).collect();
    let control = link.control();
    let received = thread::scope(|scope| {
        scope.spawn(|| {
            let (first, second) = sent.split_at(sent.len() / 2);
            client.write_all(first).unwrap();
            for direction in [Direction::Forward, Direction::Reverse] {
                let slower = Change {
                    rate_bits: Some(100_000_000),
                    delay_ns: Some(3_000_000),
                    ..Change::default()
                };
                control.change(direction, slower).unwrap();
            }
            client.write_all(second).unwrap();
            drop(client);
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == sent, "bytes differ");
    let report = link.stop().unwrap();
    eprintln!("{:?}", Summary(&report));
    conserved(&report);
    assert!(report.forward.carried.bytes > 8_000_000);
    assert_eq!(report.forward.oversize + report.forward.without_checksum, 0);
    // After the change no millisecond carries more than 100 Mbit/s: four of
    // eight megabytes take 320 ms at least.
    let slow = report.forward.carried_bins.as_slice().iter().rev();
    assert!(slow
        .take(200)
        .all(|bytes| *bytes <= 12_500 + FULL_FRAME as u32));
}

#[test]
fn offloaded_packets_are_reported_and_not_carried() {
    if !root() {
        return;
    }
    let hosts = Hosts::create();
    // A cable whose end keeps its offloads: its packets come without checksum.
    let extra = Namespace::create();
    extra.connect("10.0.0.9/24", &hosts.link, "extra");
    extra.ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0");
    let (first, second) = hosts.link.inside(|| {
        (
            Port::open("extra", MTU).unwrap(),
            Port::open("right", MTU).unwrap(),
        )
    });
    let line = config(100_000_000, 1, 131_072);
    let settings = Settings {
        forward: line.clone(),
        reverse: line,
        observe: Observe::NOTHING,
    };
    let link = Emulator::start(first, second, settings).unwrap();
    let socket = extra.inside(|| UdpSocket::bind("10.0.0.9:7000").unwrap());
    socket.send_to(&[1; 100], "10.0.0.2:7000").unwrap();
    while link.report().unwrap().forward.without_checksum == 0 {
        thread::yield_now();
    }
    let report = link.stop().unwrap();
    assert_eq!(report.forward.offered.packets, 0);
    assert!(!report.problems().is_empty());
}

#[test]
fn a_link_that_cannot_be_is_refused_with_a_reason() {
    if !root() {
        return;
    }
    let error = Port::open("no-such-if", MTU).unwrap_err().to_string();
    assert!(error.contains("no-such-if"), "{error}");
    let line = config(0, 1, 131_072);
    let hosts = Hosts::create();
    let error = hosts.try_start(line.clone(), line).unwrap_err().to_string();
    assert!(error.contains("above 0 bit/s"), "{error}");
    let line = config(1_000_000, 1, 1_000);
    let error = hosts.try_start(line.clone(), line).unwrap_err().to_string();
    assert!(error.contains("1514"), "{error}");
}

/// The far end sees what the link says it did: each packet carries its number.
#[test]
fn random_impairments_are_counted_and_seen_at_the_far_end() {
    if !root() {
        return;
    }
    const PACKETS: u32 = 4_000;
    let hosts = Hosts::create();
    let mut forward = config(100_000_000, 5, 1 << 20);
    forward.loss = Some(Loss::Random { share: 0.05 });
    forward.reorder = Some(Reorder {
        share: 0.02,
        by_ns: 3_000_000,
    });
    forward.duplicate = 0.03;
    let link = hosts.start(forward, config(100_000_000, 5, 1 << 20));
    let (left, right) = hosts.udp();
    left.send(&[0; 1]).unwrap();
    let mut got = Vec::new();
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            for number in 1..=PACKETS {
                left.send(&number.to_be_bytes()).unwrap();
                if number % 16 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        // The end is when all is sent, and the link gets none and holds none any more.
        right.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4];
        // Reports that say so: between two the link has looked at what came.
        let (mut quiet, mut offered) = (0, 0);
        while quiet < 3 {
            let over = sender.is_finished();
            let forward = link.report().unwrap().forward;
            let same = forward.offered.packets == offered && forward.in_flight.packets == 0;
            quiet = if over && same { quiet + 1 } else { 0 };
            offered = forward.offered.packets;
            while let Ok(length) = right.recv(&mut buffer) {
                if length == 4 {
                    got.push(u32::from_be_bytes(buffer));
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
    });
    let report = link.stop().unwrap();
    conserved(&report);
    let forward = &report.forward;
    let late = got.windows(2).filter(|pair| pair[1] < pair[0]).count();
    let all = got.len() as u64;
    got.sort_unstable();
    got.dedup();
    eprintln!(
        "{} lost, {} twice, {late} overtaken",
        forward.lost.packets, forward.duplicated.packets
    );
    // The packets that resolve the address are carried too.
    let others = forward.offered.packets - u64::from(PACKETS);
    assert_eq!(forward.dropped.packets, 0);
    assert!((100..=300).contains(&forward.lost.packets));
    assert!((60..=180).contains(&forward.duplicated.packets));
    assert!((30..=160).contains(&late), "{late}");
    let lost = u64::from(PACKETS) - got.len() as u64;
    assert!(lost <= forward.lost.packets && forward.lost.packets <= lost + others);
    let twice = all - got.len() as u64;
    assert!(twice <= forward.duplicated.packets && forward.duplicated.packets <= twice + others);
    assert_eq!(forward.drops.len() as u64, forward.lost.packets);
    let flow = forward.drops[50].flow.expect("UDP");
    assert_eq!(flow.destination.to_string(), "10.0.0.2:7000");
}
