// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live meter and the emulator's record are two instruments: they see the same
//! packets in the same windows and must say the same of them.

use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::time::Duration;

use paceline_burst::monotonic_ns;
use paceline_report::burstiness::Scales;
use rand_distr::Distribution;
use serde_json::Value;

use crate::common::{is_root, output, paceline};
use crate::place::{inside, Burst, Place, ADDRESSES};

const WINDOW_NS: u64 = 20_000_000;
const WINDOWS: u64 = 250;

struct Emulator {
    child: Child,
    directory: tempfile::TempDir,
}

impl Emulator {
    fn start(place: &Place) -> (Self, u64) {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let child = paceline()
            .args(["emulate", "run"])
            .args(["left", "right"].map(|port| place.interface(2, port)))
            .args(["--rate", "100mbit", "--delay", "1ms", "--buffer", "1MB"])
            .args(["--bin", "20ms", "--for", "1h"])
            .args(["--control", &path("control"), "--out", &path("out")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started_ns = loop {
            let shown = output(&["emulate", "show", &path("control")]);
            if shown.status.success() {
                let report: Value = serde_json::from_slice(&shown.stdout).unwrap();
                break report["started_ns"].as_u64().unwrap();
            }
        };
        (Emulator { child, directory }, started_ns)
    }

    /// Packets offered to the link per bin, forward.
    fn finish(mut self) -> Vec<u64> {
        // SAFETY: a signal to our own child, which was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        self.child.wait().unwrap();
        let text = std::fs::read_to_string(self.directory.path().join("out/load.csv")).unwrap();
        let mut lines = text.lines();
        let heading = lines.next().unwrap().split(',');
        let column = heading
            .into_iter()
            .position(|name| name == "offered_packets");
        lines
            .filter(|line| line.starts_with("forward,"))
            .map(|line| line.split(',').nth(column.unwrap()).unwrap())
            .map(|packets| packets.parse().unwrap())
            .collect()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends `each` packets at a time, at moments of a Poisson process.
fn send(socket: &UdpSocket, per_second: f64, each: u32, until_ns: u64, seed: u64) {
    let gaps = rand_distr::Exp::new(per_second / f64::from(each)).unwrap();
    let mut random = rand_pcg::Pcg64Mcg::new(u128::from(seed));
    let mut due_ns = monotonic_ns() as f64;
    loop {
        due_ns += gaps.sample(&mut random) * 1e9;
        let now_ns = monotonic_ns();
        if now_ns >= until_ns {
            return;
        }
        let wait = Duration::from_nanos((due_ns as u64).saturating_sub(now_ns));
        std::thread::sleep(wait);
        for _ in 0..each {
            socket.send(&[0; 60]).unwrap();
        }
    }
}

/// The c.o.v. by the meter, by the record, and the Poisson reference.
fn measure(per_second: f64, each: u32) -> [f64; 3] {
    let place = Place::link();
    let (emulator, started_ns) = Emulator::start(&place);
    let sockets = [0, 1].map(|host| {
        let socket = inside(&place.names[host], || {
            UdpSocket::bind((ADDRESSES[host], 7000)).unwrap()
        });
        socket.connect((ADDRESSES[1 - host], 7000)).unwrap();
        socket
    });
    // So that the addresses are resolved.
    sockets[0].send(b"hello").unwrap();
    sockets[1].recv(&mut [0; 8]).unwrap();
    let (align, windows) = (started_ns.to_string(), WINDOWS.to_string());
    let burst = Burst::start(
        &place.interface(2, "left"),
        &["--window", "20ms", "--align", &align, "--windows", &windows],
    );
    let first_ns = burst.start["first_start_ns"].as_u64().unwrap();
    let end_ns = first_ns + WINDOWS * WINDOW_NS;
    send(&sockets[0], per_second, each, end_ns + WINDOW_NS, 1);
    let (lines, status, error) = burst.finish();
    assert!(status.success(), "{error}");
    let metered: Vec<u64> = lines
        .iter()
        .filter(|line| line["kind"] == "window")
        .map(|line| line["packets"].as_u64().unwrap())
        .collect();
    let first = ((first_ns - started_ns) / WINDOW_NS) as usize;
    assert_eq!((first_ns - started_ns) % WINDOW_NS, 0);
    let mut recorded = emulator.finish();
    recorded.resize(first + WINDOWS as usize, 0);
    let recorded = recorded.split_off(first);
    let sums = [&metered, &recorded].map(|counts| counts.iter().sum::<u64>());
    // A packet at the very edge of the first or the last window may be on either side.
    assert!(sums[0].abs_diff(sums[1]) <= 2 * u64::from(each), "{sums:?}");
    let [metered, recorded] =
        [metered, recorded].map(|counts| counts.into_iter().collect::<Scales>().base());
    let reported = &lines.last().unwrap()["since_start"]["cov"];
    let cov = metered.coefficient_of_variation().unwrap();
    assert!((reported.as_f64().unwrap() - cov).abs() < 1e-9);
    [
        cov,
        recorded.coefficient_of_variation().unwrap(),
        metered.poisson_reference().unwrap(),
    ]
}

#[test]
fn smooth_and_bursty_traffic_are_as_the_emulator_records_them() {
    if !is_root() {
        return;
    }
    let [metered, recorded, poisson] = measure(2_000.0, 1);
    println!("Poisson sender: {metered} metered, {recorded} recorded, {poisson} expected");
    assert!(
        (metered / recorded - 1.0).abs() < 0.01,
        "{metered} {recorded}"
    );
    // A batch of 20 has 20 times the variance, whatever the machine's load adds.
    let [metered, recorded, poisson] = measure(4_000.0, 20);
    println!("bursty sender: {metered} metered, {recorded} recorded, {poisson} of Poisson");
    assert!(
        (metered / recorded - 1.0).abs() < 0.01,
        "{metered} {recorded}"
    );
    assert!(metered / poisson > 3.0, "{metered} {poisson}");
}
