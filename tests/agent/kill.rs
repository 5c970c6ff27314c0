// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `kill -9` of `paceline run` and of the agent at any moment: the job goes on unharmed,
//! and the next command cleans.

#[path = "../common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::agent::{until, until_gone, Agent, USER};
use common::{alone, connect, jobs, transfer, Net, Peer, SERVER4};

/// Kills at this many moments; PACELINE_KILLS asks for more.
const KILLS: u32 = 10;

fn kills() -> u32 {
    std::env::var("PACELINE_KILLS").map_or(KILLS, |count| count.parse().unwrap())
}

/// When to kill: over the time that a job takes to start here, and half of it more.
struct Moments {
    spread: Duration,
}

impl Moments {
    fn of(start: impl FnOnce() -> Peer) -> Self {
        let begin = Instant::now();
        let mut client = start();
        client.ask("pid");
        let spread = begin.elapsed().mul_f64(1.5);
        client.end();
        Self { spread }
    }

    /// Golden-ratio steps: they fall evenly, without a random state.
    fn wait(&self, number: u32) -> String {
        let moment = self.spread.mul_f64((f64::from(number) * 0.618_034).fract());
        std::thread::sleep(moment);
        format!("kill {number} after {moment:?}")
    }
}

/// Whether the job's command runs. If it does, it is under its policy, and ends here.
fn went_on(client: &mut Peer, net: &Net, shown: &str) -> bool {
    if client.try_ask("pid").is_none() {
        return false;
    }
    let mut server = net.peer(1);
    let (active, _) = connect(client, &mut server, SERVER4);
    assert_eq!(active, "paceline_cubic", "{shown}");
    transfer(client, &mut server, 100_000);
    client.ask("exit");
    server.end();
    true
}

fn assert_nothing_is_loaded() {
    if common::status()["jobs"].as_array().unwrap().is_empty() {
        until("the end of the congestion controls", || {
            let available = "/proc/sys/net/ipv4/tcp_available_congestion_control";
            let available = std::fs::read_to_string(available).unwrap();
            !available.contains("paceline")
        });
    }
}

#[test]
fn a_killed_paceline_leaves_the_job_and_no_leftover() {
    let Some(_alone) = alone() else {
        return;
    };
    let net = Net::new();
    let moments = Moments::of(|| net.job(0, "lfn"));
    let mut survived = 0;
    for number in 0..kills() {
        let mut client = net.job(0, "lfn");
        let shown = moments.wait(number);
        client.process.kill().unwrap();
        client.process.wait().unwrap();
        let part = format!("paceline.{}.", client.process.id());

        // The command may be running by now or not, but not half.
        survived += u32::from(went_on(&mut client, &net, &shown));
        common::wait_for("the job's end", |status| jobs(status, &part).is_empty());
        let directory = std::fs::read_dir(common::own_cgroup())
            .unwrap()
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with(&part));
        assert!(directory.is_none(), "{shown}: {directory:?}");
    }
    println!("{survived} of {} jobs had started and went on", kills());
    assert_nothing_is_loaded();
}

/// The agent is killed while it starts, or while it makes a job for somebody.
#[test]
fn a_killed_agent_leaves_the_job_and_no_leftover() {
    let Some(_alone) = alone() else {
        return;
    };
    let (net, mut agent) = (Net::new(), Agent::start());
    let moments = Moments::of(|| agent.peer(USER, &net, "lfn"));
    let mut survived = 0;
    for number in 0..kills() {
        if number % 2 == 1 {
            agent.kill();
            agent.begin();
        }
        let mut client = agent.peer(USER, &net, "lfn");
        let process = client.process.id();
        let shown = moments.wait(number);
        agent.kill();
        if went_on(&mut client, &net, &shown) {
            survived += 1;
            assert!(client.process.wait().unwrap().success(), "{shown}");
        } else {
            let code = client.process.wait().unwrap().code();
            assert_eq!(code, Some(125), "{shown}: refused");
        }
        agent.restart();
        until_gone(process);
    }
    println!("{survived} of {} jobs had started and went on", kills());
    agent.kill();
    assert_nothing_is_loaded();
}
