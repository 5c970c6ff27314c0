// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `kill -9` of `paceline run` at any moment: the job goes on unharmed, and the
//! next command cleans.

mod common;

use std::time::Duration;

use common::{alone, connect, is_root, jobs, Net, SERVER4};

/// Kills at this many moments; PACELINE_KILLS asks for more.
const KILLS: u32 = 10;

/// A debug build takes some 150 ms to start its command: the moments are spread
/// over that and the time after.
const SPREAD: Duration = Duration::from_millis(400);

#[test]
fn a_killed_paceline_leaves_the_job_and_no_leftover() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let net = Net::new();
    let kills = std::env::var("PACELINE_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let mut survived = 0;
    for number in 0..kills {
        let mut client = net.job(0, "lfn");
        // Golden-ratio steps: the moments fall evenly, without a random state.
        let moment = SPREAD.mul_f64((f64::from(number) * 0.618_034).fract());
        std::thread::sleep(moment);
        client.process.kill().unwrap();
        client.process.wait().unwrap();
        let part = format!("paceline.{}.", client.process.id());

        // The command may be running by now or not, but not half.
        if client.try_ask("pid").is_some() {
            survived += 1;
            let mut server = net.peer(1);
            let (active, _) = connect(&mut client, &mut server, SERVER4);
            assert_eq!(active, "paceline_cubic", "kill {number} at {moment:?}");
            client.ask("send 100000");
            server.ask("receive 100000");
            client.ask("exit");
            server.end();
        }
        common::wait_for("the job's end", |status| jobs(status, &part).is_empty());
        let directory = std::fs::read_dir(common::own_cgroup())
            .unwrap()
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with(&part));
        assert!(
            directory.is_none(),
            "kill {number} at {moment:?}: {directory:?}"
        );
    }
    println!("{survived} of {kills} jobs had started and went on");
    if common::status()["jobs"].as_array().unwrap().is_empty() {
        let available =
            std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
        assert!(!available.contains("paceline"), "{available}");
    }
}
