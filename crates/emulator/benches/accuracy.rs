// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How exact the emulator is on this machine, as two packet sockets beside it see it.
//! Needs root and two CPUs that have nothing else to do.
//!
//! `cargo bench -p paceline-emulator --bench accuracy -- [SECONDS [MBIT]...]`, 10 s at 100
//! and 1000 Mbit/s if not said.

mod common;

use paceline_emulator::probe::{self, Load, Seen, Stalls};
use paceline_emulator::{Buffer, Emulator, Lateness, LinkConfig, Observe, Settings};

use common::Place;

const FRAME: u32 = 1_514;
const WIRE: f64 = 1_538.0 / 1_514.0;
const SECOND: u64 = 1_000_000_000;
/// Before, between and after the runs the machine is watched for as long as they take, but at most so long, seconds.
const ALONE_S: u64 = 60;

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<u64>().ok());
    let seconds = numbers.next().unwrap_or(10);
    let mut rates: Vec<u64> = numbers.map(|mbit| mbit * 1_000_000).collect();
    if rates.is_empty() {
        rates = vec![100_000_000, 1_000_000_000];
    }
    println!("{seconds} s each, both directions at once, 1500-byte packets");
    alone(seconds);
    for rate in rates {
        // Below the rate: what is added to the delay beside line and distance.
        let link = LinkConfig::new(rate, 5_000_000, Buffer::Bytes(1 << 20));
        run("delay", &link, rate / 100 * 98, 1, seconds);
        // Above it: rate and buffer.
        run("rate and buffer", &link, rate / 100 * 110, 1, seconds);
        alone(seconds);
    }
}

/// What of all this the machine does to a thread that has nothing to carry.
fn alone(seconds: u64) {
    let stalls = Stalls::watch(seconds.min(ALONE_S) * SECOND);
    println!(
        "\nthe machine alone, no emulator: a thread that only reads the clock stood still for {:.1} us at most; within 0.1 % in {:.2} % of 100 ms",
        stalls.longest_ns as f64 / 1e3,
        stalls.punctual(100, 1_000) * 100.0
    );
}

fn run(what: &str, link: &LinkConfig, load_bits: u64, burst: u32, seconds: u64) {
    let place = Place::new(1_500);
    let settings = Settings {
        forward: link.clone(),
        reverse: link.clone(),
        observe: Observe::NOTHING,
    };
    let [first, second] = place.open(["inner0", "inner1"]);
    let emulator = Emulator::start(first, second, settings).expect("a link");
    let load = Load {
        rate_bits: load_bits,
        frame_bytes: FRAME,
        burst,
        duration_ns: seconds * SECOND,
    };
    let stolen_before = stolen();
    let seen = probe::measure(place.open(["outer0", "outer1"]), [link, link], load);
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
        let rates = seen.rates(100, 200..millis - 600, WIRE, asked);
        let error = |rate: f64| (rate / asked - 1.0) * 100.0;
        let within = rates
            .iter()
            .filter(|rate| error(**rate).abs() <= 0.1)
            .count();
        println!(
            "    rate over any 100 ms: {:+.4} % to {:+.4} %, median {:+.4} %; within 0.1 % in {:.2} % of {}; in {} more the sender stood still",
            error(rates[0]),
            error(rates[rates.len() - 1]),
            error(rates[rates.len() / 2]),
            within as f64 / rates.len() as f64 * 100.0,
            rates.len(),
            (millis - 800 - 99).saturating_sub(rates.len())
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
