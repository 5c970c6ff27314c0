// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is counted.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use paceline_burst::Interface;

use crate::common::{is_root, output, paceline};
use crate::place::{inside, Burst, Place, ADDRESSES, ADDRESSES6};

fn count(burst: Burst) -> (u64, u64) {
    let lines = burst.end_after_this();
    let end = lines.last().unwrap();
    (
        end["packets"].as_u64().unwrap(),
        end["bytes"].as_u64().unwrap(),
    )
}

fn send(from: &UdpSocket, to: &str, port: u16, packets: u32) {
    for _ in 0..packets {
        from.send_to(&[0; 100], (to, port)).unwrap();
    }
}

#[test]
fn filters_count_what_was_sent_and_nothing_else() {
    if !is_root() {
        return;
    }
    let place = Place::cable();
    let cases: [(&str, u64); 14] = [
        ("udp port 7000", 370),
        ("udp dst port 7000-7001 ip", 500),
        ("udp dst port 7001", 200),
        ("src port 6999 and udp", 570),
        ("udp dst port 6999", 0),
        ("tcp port 7000", 0),
        ("ip6 udp", 70),
        ("src host fd96::1 dst port 7000-7001", 70),
        ("host 10.96.0.0/24 udp", 500),
        ("dst host 10.96.0.1 udp", 0),
        ("src host 10.96.0.1 dst host 10.96.0.2 udp", 500),
        ("proto 17 dst port 7000", 370),
        ("vlan udp", 40),
        ("vlan 7 udp dst port 7000 host 10.96.0.2", 25),
    ];
    let interface = place.interface(1, "eth0");
    // What carries a tag is counted by filters that do not ask for it, too.
    let tagged = |filter: &str| match filter {
        "udp port 7000"
        | "udp dst port 7000-7001 ip"
        | "src port 6999 and udp"
        | "host 10.96.0.0/24 udp"
        | "src host 10.96.0.1 dst host 10.96.0.2 udp"
        | "proto 17 dst port 7000" => 40,
        _ => 0,
    };
    let bursts: Vec<_> = cases
        .iter()
        .map(|(filter, _)| Burst::start(&interface, &["--filter", filter]))
        .collect();
    inside(&place.names[0], || {
        let four = UdpSocket::bind((ADDRESSES[0], 6999)).unwrap();
        send(&four, ADDRESSES[1], 7000, 300);
        send(&four, ADDRESSES[1], 7001, 200);
        let six = UdpSocket::bind((ADDRESSES6[0], 6999)).unwrap();
        send(&six, ADDRESSES6[1], 7000, 70);
        send_tagged("eth0", 7, 25);
        send_tagged("eth0", 8, 15);
    });
    for ((filter, wanted), burst) in cases.iter().zip(bursts) {
        assert_eq!(burst.start["filter"], filter.replace(" and", ""));
        let (packets, bytes) = count(burst);
        assert_eq!(packets, wanted + tagged(filter), "{filter}");
        if *filter == "ip6 udp" {
            assert_eq!(bytes, 70 * (14 + 40 + 8 + 100));
        }
        if *filter == "udp dst port 7001" {
            assert_eq!(bytes, 200 * (14 + 20 + 8 + 100));
        }
    }
}

/// UDP frames from port 6999 to port 7000 with a VLAN tag, by a packet socket.
fn send_tagged(interface: &str, vlan: u16, frames: u32) {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x81, 0]);
    frame.extend(vlan.to_be_bytes());
    frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0]);
    for address in ADDRESSES {
        frame.extend(address.parse::<std::net::Ipv4Addr>().unwrap().octets());
    }
    frame.extend([6999_u16.to_be_bytes(), 7000_u16.to_be_bytes()].concat());
    frame.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    // SAFETY: sockaddr_ll is plain data, for which zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = Interface::find(interface).unwrap().index() as i32;
    // SAFETY: the frame and the address live across the calls; the socket is closed.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        assert!(socket >= 0);
        for _ in 0..frames {
            let sent = libc::sendto(
                socket,
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            );
            assert_eq!(sent, frame.len() as isize);
        }
        libc::close(socket);
    }
}

#[test]
fn a_gso_packet_counts_as_its_segments_unless_whole_ones_are_asked_for() {
    if !is_root() {
        return;
    }
    let place = Place::cable();
    let interface = place.interface(0, "eth0");
    let arguments = ["--filter", "tcp dst port 7000", "--direction", "out"];
    let segments = Burst::start(&interface, &arguments);
    let whole = Burst::start(&interface, &[&arguments[..], &["--whole-packets"]].concat());
    let listener = inside(&place.names[1], || {
        TcpListener::bind((ADDRESSES[1], 7000)).unwrap()
    });
    let mut sender = inside(&place.names[0], || {
        TcpStream::connect((ADDRESSES[1], 7000)).unwrap()
    });
    let (mut receiver, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; 4 << 20];
        receiver.read_exact(&mut bytes).unwrap();
        receiver
    });
    sender.write_all(&vec![0; 4 << 20]).unwrap();
    let receiver = reader.join().unwrap();
    let (sent, payload) = sent(&sender);
    // Nothing more is sent until both have counted: the connection stays open, and what
    // was written has arrived.
    let (packets, bytes) = count(segments);
    assert_eq!(packets, u64::from(sent));
    // Ethernet, IP and TCP with time stamps; the SYN has 8 bytes more of options.
    assert_eq!(bytes, payload + packets * (14 + 20 + 32) + 8);
    let (packets, fewer_bytes) = count(whole);
    assert!(packets < u64::from(sent) / 4, "{packets} of {sent}");
    assert!(fewer_bytes < bytes);
    drop(receiver);
}

/// Segments and bytes of payload that this side has sent, retransmissions included.
fn sent(stream: &TcpStream) -> (u32, u64) {
    // struct tcp_info of include/uapi/linux/tcp.h: tcpi_segs_out, tcpi_bytes_sent.
    let mut info = [0_u8; 232];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: `info` has room for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    assert!(result == 0 && length >= 208);
    (
        u32::from_ne_bytes(info[136..140].try_into().unwrap()),
        u64::from_ne_bytes(info[200..208].try_into().unwrap()),
    )
}

#[test]
fn both_ways_are_the_sum_and_every_hook_counts_the_same() {
    if !is_root() {
        return;
    }
    let place = Place::cable();
    let interface = place.interface(1, "eth0");
    let udp = ["--filter", "udp port 7000"];
    let with = |more: &[&str]| Burst::start(&interface, &[&udp, more].concat());
    let ways = ["in", "out", "both"].map(|way| with(&["--direction", way]));
    let hooks = ["tcx", "tc"].map(|hook| with(&["--attach", hook, "--direction", "both"]));
    let xdp = with(&["--attach", "xdp"]);
    let kinds = [&hooks[0], &hooks[1], &xdp].map(|burst| burst.start["hook"].clone());
    assert_eq!(kinds, ["tcx", "cls_bpf", "xdp"]);
    let [a, b] = [0, 1].map(|host| {
        inside(&place.names[host], || {
            UdpSocket::bind((ADDRESSES[host], 7000)).unwrap()
        })
    });
    send(&a, ADDRESSES[1], 7000, 200);
    send(&b, ADDRESSES[0], 7000, 100);
    assert_eq!(ways.map(|burst| count(burst).0), [200, 100, 300]);
    assert_eq!(hooks.map(|burst| count(burst).0), [300, 300]);
    assert_eq!(count(xdp), (200, 200 * (14 + 20 + 8 + 100)));
}

#[test]
fn a_process_that_is_stopped_loses_no_window() {
    if !is_root() {
        return;
    }
    let place = Place::cable();
    let arguments = ["--filter", "udp", "--window", "1ms"];
    let burst = Burst::start(&place.interface(1, "eth0"), &arguments);
    let first_ns = burst.start["first_start_ns"].as_u64().unwrap();
    burst.signal(libc::SIGSTOP);
    let socket = inside(&place.names[0], || {
        UdpSocket::bind((ADDRESSES[0], 0)).unwrap()
    });
    for _ in 0..100 {
        send(&socket, ADDRESSES[1], 7000, 10);
        std::thread::sleep(Duration::from_millis(10));
    }
    burst.signal(libc::SIGCONT);
    let lines = burst.end_after_this();
    let windows: Vec<_> = lines
        .iter()
        .filter(|line| line["kind"] == "window")
        .collect();
    let starts = windows
        .iter()
        .map(|line| line["start_ns"].as_u64().unwrap());
    assert!(starts.eq((0..windows.len() as u64).map(|at| first_ns + at * 1_000_000)));
    let packets = |line: &&serde_json::Value| line["packets"].as_u64().unwrap();
    let sum: u64 = windows.iter().map(packets).sum();
    let end = lines.last().unwrap();
    assert_eq!((sum, end["packets"].as_u64()), (1000, Some(1000)));
    assert_eq!(end["lost_windows"], 0);
    let dispersion = end["since_start"]["dispersion"].as_array().unwrap();
    let scales = dispersion.iter().map(|scale| scale["window_ns"].clone());
    assert!(scales.eq((0..dispersion.len()).map(|at| 1_000_000_u64 << at)));
    for key in ["windows", "mean_packets", "cov", "poisson_cov", "ratio"] {
        assert!(end["since_start"][key].is_number(), "{key}");
        assert!(end["last_minute"][key].is_number(), "{key}");
    }
}

#[test]
fn each_invalid_argument_is_one_clear_error() {
    if !is_root() {
        return;
    }
    let place = Place::cable();
    let there = place.interface(0, "eth0");
    let cases: [(&[&str], &str); 9] = [
        (&["eth7"], "there is no interface eth7"),
        (&["nowhere:eth0"], "no network namespace /run/netns/nowhere"),
        (
            &[&there, "--filter", "tcp prot 80"],
            "\"prot\" is not a filter term",
        ),
        (&[&there, "--filter", "port"], "followed by a number"),
        (&[&there, "--window", "10us"], "from 100us to 1h"),
        (&[&there, "--window", "100"], "100 has no unit"),
        (&[&there, "--duration", "10ms"], "shorter than a window"),
        (
            &[&there, "--align", "18446744073709551615"],
            "it may be at most one hour ahead",
        ),
        (
            &[&there, "--attach", "xdp", "--direction", "out"],
            "XDP sees only received packets",
        ),
    ];
    for (arguments, wanted) in cases {
        let output = output(&[&["burst", "--dev"], arguments].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(error.contains(wanted), "{error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn without_root_the_error_names_what_is_needed() {
    use std::os::unix::process::CommandExt;
    let mut command = paceline();
    command.args(["burst", "--dev", "lo", "--windows", "1"]);
    if is_root() {
        command.uid(65_534).gid(65_534);
    }
    let Ok(output) = command.output() else {
        // The binary may lie where only root can reach it.
        return;
    };
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("paceline burst needs root"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}
