// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The highest rate at which the emulator loses nothing of its own making, both ways at
//! once, beside that of rattan (crates.io) in turn. Needs root and two CPUs that have
//! nothing else to do: the probe has the first, the link the second.
//!
//! `cargo bench -p paceline-emulator --bench throughput -- [RATTAN]`, where RATTAN is
//! its program; without it only ours.

mod common;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use paceline_emulator::probe::{self, Load, Seen};
use paceline_emulator::{Buffer, Emulator, LinkConfig, Observe, Port, Settings};

use common::Place;

/// Of the link, far above what is reached.
const RATE_BITS: u64 = 40_000_000_000;
const DELAY_NS: u64 = 1_000_000;
/// Holds all that is sent in a trial.
const BUFFER_PACKETS: u64 = 1 << 20;
/// Packets that the probe sends at a time.
const BURST: u32 = 8;
const TRIAL_NS: u64 = 2_000_000_000;
/// A rate is known to this factor.
const EXACT: f64 = 1.03;
/// Searches of each, in turn.
const TURNS: usize = 3;

fn main() {
    let rattan = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'))
        .map(PathBuf::from);
    println!(
        "packets of 1500 and 9000 bytes both ways at once, {} s a trial, {TURNS} searches in turn",
        TRIAL_NS / 1_000_000_000
    );
    for mtu in [1_500, 9_000] {
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for _ in 0..TURNS {
            ours.push(highest("Paceline", mtu, paceline));
            if let Some(program) = &rattan {
                theirs.push(highest("rattan", mtu, |mtu, load| {
                    beside_rattan(program, mtu, load)
                }));
            }
        }
        let own = median(&mut ours);
        println!("{mtu} bytes: Paceline {:.0} Mbit/s each way", own / 1e6);
        if rattan.is_some() {
            let other = median(&mut theirs);
            let ratio = own / other;
            println!(
                "{mtu} bytes: rattan {:.0} Mbit/s, ratio {ratio:.2}",
                other / 1e6
            );
        }
    }
}

/// The highest rate of which nothing is lost, bits per second of frames each way.
fn highest(name: &str, mtu: u32, trial: impl Fn(u32, Load) -> [Seen; 2]) -> f64 {
    let mut rate = 400e6;
    let mut carried = 0.0;
    let mut failed = f64::INFINITY;
    let mut shown = String::new();
    while failed > rate {
        let load = Load {
            rate_bits: rate as u64,
            frame_bytes: mtu + 14,
            burst: BURST,
            duration_ns: TRIAL_NS,
        };
        let seen = trial(mtu, load);
        let sent: f64 = seen.iter().map(|seen| rate_of(seen, mtu)).sum::<f64>() / 2.0;
        if seen
            .iter()
            .all(|seen| seen.lost() == 0 && seen.refused == 0)
        {
            if sent > carried {
                let late = seen.map(|seen| seen.late.median_ns).into_iter().max();
                shown = format!("median {:.0} us late", late.unwrap_or(0) as f64 / 1e3);
            }
            carried = carried.max(sent);
            if sent < 0.9 * rate {
                shown += ", as much as the probe sends";
                break;
            }
        } else {
            failed = rate;
        }
        rate = match failed.is_finite() {
            true if failed / carried.max(1e6) < EXACT => break,
            true => (carried.max(1e6) * failed).sqrt(),
            false => rate * 2.0,
        };
    }
    println!(
        "  {mtu} bytes, {name}: {:.0} Mbit/s each way, {shown}",
        carried / 1e6
    );
    carried
}

fn rate_of(seen: &Seen, mtu: u32) -> f64 {
    seen.sent as f64 * f64::from(mtu + 14) * 8.0 / (TRIAL_NS as f64 / 1e9)
}

fn link() -> LinkConfig {
    LinkConfig::new(RATE_BITS, DELAY_NS, Buffer::Packets(BUFFER_PACKETS))
}

fn paceline(mtu: u32, load: Load) -> [Seen; 2] {
    let place = Place::new(mtu);
    let settings = Settings {
        forward: link(),
        reverse: link(),
        observe: Observe::NOTHING,
    };
    run_on(1);
    let [first, second] = place.open(["inner0", "inner1"]);
    let emulator = Emulator::start(first, second, settings).expect("a link");
    run_on(0);
    let seen = probe::measure(place.open(["outer0", "outer1"]), [&link(), &link()], load);
    emulator.stop().expect("a report");
    seen
}

fn beside_rattan(program: &Path, mtu: u32, load: Load) -> [Seen; 2] {
    let rattan = Rattan::start(program, mtu);
    run_on(0);
    let ports = [
        rattan.open("left", "vL1-L-"),
        rattan.open("right", "vR1-R-"),
    ];
    probe::measure(ports, [&link(), &link()], load)
}

/// Room of a socket that does not ask for any, which rattan's do not: enough that the
/// kernel drops nothing of what rattan is late for. Bytes.
const SOCKET_BUFFER: &str = "67108864";
const DEFAULTS: [&str; 2] = [
    "/proc/sys/net/core/rmem_default",
    "/proc/sys/net/core/wmem_default",
];

/// The host's socket buffers for as long as rattan runs; as they were when this goes.
struct RoomySockets([String; 2]);

impl RoomySockets {
    fn set() -> Self {
        RoomySockets(DEFAULTS.map(|path| {
            let before = std::fs::read_to_string(path).expect("a sysctl");
            std::fs::write(path, SOCKET_BUFFER).expect("a sysctl");
            before
        }))
    }
}

impl Drop for RoomySockets {
    fn drop(&mut self) {
        for (path, before) in DEFAULTS.iter().zip(&self.0) {
            let _ = std::fs::write(path, before.trim());
        }
    }
}

/// rattan between two namespaces of its own; ends with this.
struct Rattan {
    child: Child,
    /// What its namespaces' names end in.
    id: String,
    mtu: u32,
    _config: tempfile::TempDir,
    _sockets: RoomySockets,
}

impl Rattan {
    fn start(program: &Path, mtu: u32) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("rattan.toml");
        let mut file = File::create(&config).expect("a file");
        file.write_all(RATTAN.as_bytes()).expect("a file");
        let sockets = RoomySockets::set();
        let before = namespaces();
        let child = Command::new(program)
            .args(["run", "--config"])
            .arg(&config)
            .args(["--left", "sleep", "60", "--right", "sleep", "60"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir(directory.path())
            .spawn()
            .expect("rattan");
        let begun = Instant::now();
        let id = loop {
            let new = namespaces().into_iter().find(|id| !before.contains(id));
            // It makes its interfaces after the namespaces.
            if let Some(id) = new.filter(|id| interface(id, "right", "vR1-R-").is_some()) {
                break id;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "rattan does not start"
            );
            std::thread::sleep(Duration::from_millis(50));
        };
        std::thread::sleep(Duration::from_secs(1));
        let rattan = Rattan {
            child,
            id,
            mtu,
            _config: directory,
            _sockets: sockets,
        };
        for side in ["left", "rattan", "right"] {
            for name in interfaces(&rattan.id, side) {
                inside(&rattan.id, side, || {
                    common::ip(&format!("link set {name} mtu {mtu}"))
                });
            }
        }
        rattan
    }

    fn open(&self, side: &str, interface_prefix: &str) -> Port {
        let name = interface(&self.id, side, interface_prefix).expect("its interface");
        inside(&self.id, side, || {
            Port::open(&name, self.mtu).expect("a port")
        })
    }
}

impl Drop for Rattan {
    fn drop(&mut self) {
        // It takes its namespaces away when it is asked to end.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        let _ = self.child.wait();
    }
}

/// What the names of rattan's namespaces end in.
fn namespaces() -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter_map(|name| Some(name.strip_prefix("ns-right-")?.to_owned()))
        .collect()
}

fn interfaces(id: &str, side: &str) -> Vec<String> {
    inside(id, side, || {
        let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        let names = text
            .lines()
            .filter_map(|line| Some(line.split_once(':')?.0.trim()));
        let cables = names.filter(|name| name.starts_with('v'));
        cables.map(str::to_owned).collect()
    })
}

fn interface(id: &str, side: &str, prefix: &str) -> Option<String> {
    interfaces(id, side)
        .into_iter()
        .find(|name| name.starts_with(prefix))
}

fn inside<T: Send>(id: &str, side: &str, work: impl FnOnce() -> T + Send) -> T {
    let namespace = File::open(format!("/run/netns/ns-{side}-{id}")).expect("a namespace");
    common::in_namespace(&namespace, work)
}

/// The calling thread and what it starts.
fn run_on(cpu: usize) {
    // SAFETY: a plain mask, and a system call about the calling thread.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut cpus);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &cpus);
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Without a limit that is reached, on the second CPU, 1 ms each way.
const RATTAN: &str = r#"
[env]
mode = "Isolated"
left_veth_count = 1
right_veth_count = 1
client_cores = [0]
server_cores = [0]

[cells.up]
type = "Delay"
delay = "1ms"

[cells.down]
type = "Delay"
delay = "1ms"

[links]
left = "up"
up = "right"
right = "down"
down = "left"

[resource]
cpu = [1]

[general]

[commands]
shell = "Default"
"#;
