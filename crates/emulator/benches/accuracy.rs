// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How exact the emulator is on this machine, as two packet sockets beside it see it.
//! Needs root and two CPUs that have nothing else to do.
//!
//! `cargo bench -p paceline-emulator --bench accuracy -- [SECONDS]`, 10 if not said.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

use paceline_emulator::probe::{self, Load, Seen};
use paceline_emulator::{Buffer, Emulator, Lateness, LinkConfig, Observe, Port, Settings};

const FRAME: u32 = 1_514;
const WIRE: f64 = 1_538.0 / 1_514.0;
const SECOND: u64 = 1_000_000_000;

fn main() {
    let seconds = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse::<u64>().ok())
        .unwrap_or(10);
    println!("{seconds} s each, both directions at once, 1500-byte packets");
    let rates = [100_000_000, 1_000_000_000];
    for rate in rates {
        // Below the rate: what is added to the delay beside line and distance.
        let link = LinkConfig::new(rate, 5_000_000, Buffer::Bytes(1 << 20));
        run("delay", &link, rate / 100 * 98, 1, seconds);
        // Above it: rate and buffer.
        run("rate and buffer", &link, rate / 100 * 110, 1, seconds);
    }
}

fn run(what: &str, link: &LinkConfig, load_bits: u64, burst: u32, seconds: u64) {
    let place = Place::new();
    let settings = Settings {
        forward: link.clone(),
        reverse: link.clone(),
        observe: Observe::NOTHING,
    };
    let [first, second] = place.open("inner");
    let emulator = Emulator::start(first, second, settings).expect("a link");
    let load = Load {
        rate_bits: load_bits,
        frame_bytes: FRAME,
        burst,
        duration_ns: seconds * SECOND,
    };
    let stolen_before = stolen();
    let seen = probe::measure(place.open("outer"), [link, link], load);
    let report = emulator.stop().expect("a report");
    let asked = link.mean_rate_bits();
    println!(
        "\n{what}: {:.0} of {:.0} Mbit/s, CPU {:.0} %, real time {}, rests {}, stolen by the hypervisor {:.2} s{}",
        load_bits as f64 / 1e6,
        asked / 1e6,
        report.cpu_ns as f64 / report.duration_ns as f64 * 100.0,
        report.realtime,
        report.rests,
        stolen() - stolen_before,
        report
            .problems()
            .iter()
            .map(|problem| format!("\n  {problem}"))
            .collect::<String>()
    );
    for (seen, own) in seen.iter().zip([&report.forward, &report.reverse]) {
        show(seen, asked, load_bits);
        println!(
            "    its own: {}; dropped {}, missed {}, refused {}",
            lateness(own.lateness),
            own.dropped.packets,
            own.missed,
            own.refused
        );
    }
}

fn show(seen: &Seen, asked: f64, load_bits: u64) {
    println!(
        "  sent {} received {} expected drops {} not as expected {} reordered {} missed {} refused {}",
        seen.sent,
        seen.received,
        seen.expected_drops,
        seen.lost(),
        seen.reordered,
        seen.missed,
        seen.refused
    );
    println!("    later: {}", lateness(seen.late));
    println!("    earlier: {}", lateness(seen.early));
    let millis = seen.arrivals.as_slice().len();
    if load_bits as f64 > asked && millis > 1_400 {
        // Between the first packets and the last ones the line is never idle.
        let rates = seen.rates(100, 200..millis - 600, WIRE);
        let error = |rate: f64| (rate / asked - 1.0) * 100.0;
        let within = rates
            .iter()
            .filter(|rate| error(**rate).abs() <= 0.1)
            .count();
        println!(
            "    rate over any 100 ms: {:+.4} % to {:+.4} %, median {:+.4} %; within 0.1 % in {:.2} % of them",
            error(rates[0]),
            error(rates[rates.len() - 1]),
            error(rates[rates.len() / 2]),
            within as f64 / rates.len() as f64 * 100.0
        );
    }
}

/// CPU time that the hypervisor gave to others, seconds.
fn stolen() -> f64 {
    // The eighth number of the first line, in ticks of a hundredth of a second.
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let steal = stat
        .split_whitespace()
        .nth(8)
        .and_then(|ticks| ticks.parse::<f64>().ok());
    steal.unwrap_or(0.0) / 100.0
}

fn lateness(lateness: Lateness) -> String {
    format!(
        "median {:.1} us, p99 {:.1} us, max {:.1} us",
        lateness.median_ns as f64 / 1e3,
        lateness.p99_ns as f64 / 1e3,
        lateness.max_ns as f64 / 1e3
    )
}

/// A namespace with two cables: `outer0`-`inner0` and `outer1`-`inner1`.
struct Place(File);

impl Place {
    fn new() -> Self {
        let place = thread::spawn(|| {
            // SAFETY: plain system call about the calling thread.
            assert_eq!(
                unsafe { libc::unshare(libc::CLONE_NEWNET) },
                0,
                "needs root"
            );
            File::open("/proc/thread-self/ns/net").expect("a namespace")
        });
        let place = Place(place.join().expect("a namespace"));
        place.inside(|| {
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("sysctl");
            for cable in 0..2 {
                ip(&format!(
                    "link add outer{cable} type veth peer name inner{cable}"
                ));
                ip(&format!("link set outer{cable} up"));
                ip(&format!("link set inner{cable} up"));
            }
        });
        place
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                // SAFETY: plain system call about the calling thread.
                assert_eq!(
                    unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) },
                    0
                );
                work()
            });
            inside.join().expect("no panic")
        })
    }

    fn open(&self, side: &str) -> [Port; 2] {
        self.inside(|| {
            [0, 1].map(|cable| Port::open(&format!("{side}{cable}"), 1_500).expect("a port"))
        })
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("ip").success(), "ip {arguments}");
}
