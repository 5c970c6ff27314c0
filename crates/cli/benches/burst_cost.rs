// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `paceline burst` adds to each packet: the kernel runs the attached programs a
//! million times over one packet (BPF_PROG_TEST_RUN), and counts their time under real
//! traffic (BPF_ENABLE_STATS). Needs root:
//!
//!     cargo bench -p paceline-cli --bench burst_cost

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::query::{ProgInfoIter, ProgramInfo};
use libbpf_rs::ProgramHandle;

const REPEAT: i32 = 1_000_000;
/// The least of so many runs: the rest is other people's work.
const RUNS: usize = 7;
const PACKETS: u64 = 300_000;
/// struct __sk_buff of include/uapi/linux/bpf.h, and two of its members, bytes.
const CONTEXT_BYTES: usize = 192;
const GSO_SEGS: usize = 164;
const GSO_SIZE: usize = 176;

fn main() {
    // cargo bench hands its own arguments on; there is nothing to choose here.
    if nix::unistd::geteuid().as_raw() != 0 {
        println!("skipped: needs root");
        return;
    }
    println!("ns per packet, least of {RUNS} runs of {REPEAT}");
    let empty = least(empty_program().as_fd(), &frame(false, None), 0);
    println!("{empty:>5}  a program that does nothing: the kernel's loop around it");
    let four = frame(false, None);
    let cases: [(&str, &[&str], Vec<u8>, u32); 8] = [
        ("all packets", &[], four.clone(), 0),
        ("all packets, GSO of 44 segments", &[], four.clone(), 44),
        ("whole packets", &["--whole-packets"], four.clone(), 44),
        (
            "tcp dst port 5001",
            &["--filter", "tcp dst port 5001"],
            four.clone(),
            0,
        ),
        (
            "tcp dst port 5001 src host 10.0.0.0/8",
            &["--filter", "tcp dst port 5001 src host 10.0.0.0/8"],
            four.clone(),
            0,
        ),
        (
            "the same, not matched",
            &["--filter", "tcp dst port 5002 src host 10.0.0.0/8"],
            four,
            0,
        ),
        (
            "ip6 tcp port 5001 host fd00::1",
            &["--filter", "ip6 tcp port 5001 host fd00::1"],
            frame(true, None),
            0,
        ),
        (
            "vlan 7 tcp port 5001",
            &["--filter", "vlan 7 tcp port 5001"],
            frame(false, Some(7)),
            0,
        ),
    ];
    for (name, arguments, frame, segments) in cases {
        let burst = Burst::start(arguments);
        let program = ProgramHandle::from_prog_id(burst.program.id).expect("it is attached");
        let least = least(program.as_fd(), &frame, segments);
        println!(
            "{least:>5}  {name}: {} without the loop",
            least.saturating_sub(empty)
        );
    }
    under_traffic();
}

/// `paceline burst` at the loopback interface.
struct Burst {
    child: Child,
    program: ProgramInfo,
}

impl Burst {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_paceline"))
            .args(["burst", "--dev", "lo", "--json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("paceline starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped"))
            .read_line(&mut line)
            .expect("a first line");
        let program = ProgInfoIter::default()
            .filter(|program| program.name == "pl_burst_in")
            .max_by_key(|program| program.id)
            .expect("a program that counts");
        Burst { child, program }
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns TC_ACT_UNSPEC.
fn empty_program() -> OwnedFd {
    let instruction = |code: u32, immediate: i32| {
        let mut instruction = sys::bpf_insn {
            code: code as u8,
            imm: immediate,
            ..Default::default()
        };
        instruction.set_dst_reg(0);
        instruction
    };
    let instructions = [
        instruction(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, -1),
        instruction(sys::BPF_JMP | sys::BPF_EXIT, 0),
    ];
    // SAFETY: the instructions live across the call; the descriptor is new.
    unsafe {
        let fd = sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_SCHED_CLS,
            c"empty".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as sys::size_t,
            std::ptr::null_mut(),
        );
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

/// The least mean time of one run, nanoseconds.
fn least(program: BorrowedFd<'_>, frame: &[u8], segments: u32) -> u32 {
    let runs = (0..RUNS).map(|_| run(program, frame, segments));
    runs.min().expect("some runs")
}

/// Mean time of one run, nanoseconds.
fn run(program: BorrowedFd<'_>, frame: &[u8], segments: u32) -> u32 {
    let mut context = [0_u8; CONTEXT_BYTES];
    if segments > 0 {
        context[GSO_SEGS..GSO_SEGS + 4].copy_from_slice(&segments.to_ne_bytes());
        context[GSO_SIZE..GSO_SIZE + 4].copy_from_slice(&1448_u32.to_ne_bytes());
    }
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: context.len() as u32,
        repeat: REPEAT,
        ..Default::default()
    };
    // SAFETY: frame and context live across the call, which only reads them.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    options.duration
}

/// TCP from 10.0.0.1 or fd00::1 to port 5001, 1500 bytes of IP.
fn frame(six: bool, vlan: Option<u16>) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    if six {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 5, 180, 6, 64]);
        for last in [1, 2] {
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
    } else {
        frame.extend([8, 0, 0x45, 0, 5, 220, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    }
    frame.extend([40_000_u16.to_be_bytes(), 5_001_u16.to_be_bytes()].concat());
    frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x10]);
    frame.resize(1514, 0);
    frame
}

fn under_traffic() {
    // SAFETY: plain call; the descriptor is new. The kernel counts while it is open.
    let statistics = unsafe {
        let fd = sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    };
    let burst = Burst::start(&[]);
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = receiver.local_addr().expect("bound");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for _ in 0..PACKETS {
        sender.send_to(&[0; 64], to).expect("loopback takes it");
    }
    let info = ProgInfoIter::default()
        .find(|program| program.id == burst.program.id)
        .expect("it is still attached");
    drop(statistics);
    println!(
        "{:>5.0}  all packets, {} of real traffic, with the kernel's two looks at the clock",
        info.run_time_ns as f64 / info.run_cnt as f64,
        info.run_cnt
    );
}
