// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a large group costs: one coordinator in a process of its own, 10,000 streams on
//! 200 simulated hosts over loopback's TCP with a token, rounds of one second.
//!
//! `cargo bench -p paceline-coordinator --bench scale [-- SECONDS [ALGORITHM...]]`

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use paceline_coordinator::client::{self, Access, ClientConfig, Control, Target};
use paceline_coordinator::local::{Cap, LocalError, LocalStreams, StreamSample};
use paceline_coordinator::protocol::Request;
use paceline_coordinator::server::{Endpoint, Server, ServerConfig};
use paceline_coordinator::status::Status;
use paceline_security::Token;

const HOSTS: usize = 200;
const STREAMS_PER_HOST: u64 = 50;
const NETWORKS: usize = 16;
const PERIOD: Duration = Duration::from_secs(1);
const TOKEN: &[u8] = b"of the benchmark alone";
const SERVE: &str = "PACELINE_BENCH_SERVE";

/// A host whose streams deliver what their windows allow.
struct Simulated {
    host: usize,
    streams: Vec<StreamSample>,
    last: Instant,
}

impl Simulated {
    fn new(host: usize) -> Self {
        let network = (host % NETWORKS) as u8;
        let stream = |cookie| StreamSample {
            cookie,
            destination: Some(IpAddr::V4(Ipv4Addr::new(10, 1, network, 1))),
            inflight_segs: 20,
            cwnd_segs: 20,
            ssthresh_segs: i32::MAX as u32,
            mss_bytes: 1448,
            srtt_us: 100_000 + 2_000 * u32::from(network),
            min_rtt_us: 99_000 + 2_000 * u32::from(network),
            acked_bytes: 0,
            delivered_segs: 0,
            unsent_bytes: 4_000_000,
            total_bytes: 1 << 40,
            retransmitted_segs: 0,
            recovering: false,
        };
        Self {
            host,
            streams: (0..STREAMS_PER_HOST).map(stream).collect(),
            last: Instant::now(),
        }
    }
}

impl LocalStreams for Simulated {
    fn streams(&mut self) -> Result<Vec<StreamSample>, LocalError> {
        let passed = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let rtts = passed * 1e6 / f64::from(stream.srtt_us);
            let segs = rtts * f64::from(stream.inflight_segs);
            stream.delivered_segs += segs as u32;
            stream.acked_bytes += segs as u64 * u64::from(stream.mss_bytes);
            // Some loss, not in step.
            let turn = stream.acked_bytes / 7919 + number as u64 + self.host as u64;
            if turn.is_multiple_of(50) {
                stream.retransmitted_segs += 1;
            }
        }
        Ok(self.streams.clone())
    }

    fn apply(&mut self, caps: &[Cap], _lease: Duration) -> Result<(), LocalError> {
        for cap in caps {
            if let Some(stream) = self.streams.get_mut(cap.cookie as usize) {
                if cap.max_segs > 0 {
                    stream.cwnd_segs = cap.max_segs.min(1000);
                    stream.inflight_segs = stream.cwnd_segs;
                }
            }
        }
        Ok(())
    }
}

fn serve(algorithm: &str) {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let choice = algorithm.parse().expect("an algorithm");
    let mut config = ServerConfig::new(vec![Endpoint::Tcp(listen)], choice);
    config.token = Some(Token::new(TOKEN));
    config.period = Some(PERIOD);
    runtime().block_on(async {
        let server = Server::bind(config).await.expect("loopback");
        println!("{}", server.addresses()[0]);
        server.run(std::future::pending()).await.expect("no log");
    });
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time of a process so far, seconds.
fn cpu_s(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("proc");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name") + 2..]
        .split(' ')
        .collect();
    // utime and stime are fields 14 and 15, and two went with the name.
    let ticks: u64 = [11, 12]
        .map(|n| fields[n].parse::<u64>().expect("ticks"))
        .iter()
        .sum();
    // SAFETY: no memory is passed.
    ticks as f64 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

/// Most memory that a process had, megabytes.
fn peak_mb(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("proc");
    let line = status
        .lines()
        .find(|l| l.starts_with("VmHWM:"))
        .expect("VmHWM");
    let kb: f64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|kb| kb.parse().ok())
        .expect("kB");
    kb / 1e3
}

fn measure(algorithm: &str, length: Duration) {
    let mut child = Command::new(std::env::current_exe().expect("itself"))
        .env(SERVE, algorithm)
        .stdout(Stdio::piped())
        .spawn()
        .expect("itself again");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("a line");
    let child = Killed(child);
    let mut access = Access::new(Target::Tcp(line.trim().to_owned()));
    access.token = Some(Token::new(TOKEN));
    let status = runtime().block_on(async {
        let mut hosts = tokio::task::JoinSet::new();
        for host in 0..HOSTS {
            let config = ClientConfig {
                access: access.clone(),
                group: "scale".to_owned(),
                host: format!("host{host}"),
                patience: None,
            };
            hosts.spawn(async move {
                let mut local = Simulated::new(host);
                client::join(&config, &mut local, std::future::pending()).await
            });
        }
        // All are in, and the first rounds are over.
        tokio::time::sleep(3 * PERIOD).await;
        let (from, cpu_from) = (Instant::now(), cpu_s(child.0.id()));
        tokio::time::sleep(length).await;
        let cpu = (cpu_s(child.0.id()) - cpu_from) / from.elapsed().as_secs_f64();
        let mut control = Control::connect(&access, "bench").await.expect("in");
        let request = Request::Status { group: None };
        let answer = control.ask(request).await.expect("a status");
        let status: Status = serde_json::from_str(&answer).expect("JSON");
        (status, cpu)
    });
    let (status, cpu) = status;
    let group = &status.groups[0];
    let last = group.last.as_ref().expect("rounds");
    println!(
        "{algorithm:<20} {} clients, {} streams, {} rounds: {:.1} % of a core, {:.0} MB, \
         round p50 {:.1} ms, p99 {:.1} ms, slowest {:.1} ms",
        last.clients,
        last.streams,
        group.latency.rounds,
        cpu * 100.0,
        peak_mb(child.0.id()),
        group.latency.p50_ms,
        group.latency.p99_ms,
        group.latency.max_ms,
    );
}

fn main() {
    if let Ok(algorithm) = std::env::var(SERVE) {
        serve(&algorithm);
        return;
    }
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    let length = arguments.first().map_or(Ok(30), |seconds| seconds.parse());
    let length = Duration::from_secs(length.expect("seconds"));
    let mut algorithms: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    if algorithms.is_empty() {
        algorithms = vec!["even", "scoreboard", "none"];
    }
    for algorithm in algorithms {
        measure(algorithm, length);
    }
}
