// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[transfer]]` in experiment files, from outside: what is wrong is named with file, line
//! and key, and what is right becomes the plan that one expects.

use std::path::Path;

use paceline_experiment::plan::Workload;
use paceline_experiment::Experiment;

fn parse(text: &str) -> Result<Experiment, String> {
    Experiment::parse(text, Path::new("experiments/mover.toml")).map_err(|error| error.to_string())
}

const TRANSFER: &str = r#"
title = "Files"
description = "On two clusters."

[link]
rate = "100mbit"
one_way_delay = "10ms"
buffer = "64KiB"
clusters = [2, 2]

[[transfer]]
name = "small"
hosts = 2
files = 2000
quick_files = 10
size = "1KB"
largest = "1MB"
repeats = 3

[variant.cubic]
congestion = "cubic"
"#;

#[test]
fn a_transfer_is_a_workload() {
    for (quick, files) in [(false, 2000), (true, 10)] {
        let plans = parse(TRANSFER).unwrap().shards(quick, None, &[]).unwrap();
        let [Workload::Transfer(transfer)] = &plans[0].workloads[..] else {
            panic!("{:?}", plans[0].workloads);
        };
        assert_eq!((transfer.hosts, transfer.files), (2, files));
        let sizes = (transfer.smallest_bytes, transfer.largest_bytes);
        assert_eq!(sizes, (1000, 1_000_000));
        assert_eq!((transfer.streams, transfer.plain), (None, false));
        assert_eq!((transfer.rate_bps, &transfer.beside), (None, &None));
        assert_eq!(
            (plans[0].steps(), plans[0].workloads[0].label()),
            (3, "small")
        );
    }
    let one = TRANSFER.replace("largest = \"1MB\"\n", "streams = 7\nquick = \"2KB\"\n");
    let plans = parse(&one).unwrap().shards(true, None, &[]).unwrap();
    let Workload::Transfer(transfer) = &plans[0].workloads[0] else {
        panic!("{:?}", plans[0].workloads);
    };
    assert_eq!(
        (transfer.smallest_bytes, transfer.largest_bytes),
        (2000, 2000)
    );
    assert_eq!(transfer.streams, Some(7));
    let beside = "hosts = 1\nrate = \"50mbit\"\nbeside = \"bbr\"";
    let beside = TRANSFER.replace("hosts = 2", beside);
    let plans = parse(&beside).unwrap().shards(true, None, &[]).unwrap();
    let Workload::Transfer(transfer) = &plans[0].workloads[0] else {
        panic!("{:?}", plans[0].workloads);
    };
    assert_eq!(transfer.rate_bps, Some(50_000_000));
    assert_eq!(transfer.beside.as_deref(), Some("bbr"));
}

#[test]
fn errors_name_the_invalid_key() {
    let wrong = [
        ("hosts = 2", "hosts = 3", "hosts of a cluster, 2"),
        ("hosts = 2", "hosts = 0", "hosts"),
        (
            "hosts = 2",
            "hosts = 2\nbeside = \"cubic\"",
            "less than the number of hosts of a cluster, 2",
        ),
        ("hosts = 2", "rate = \"7bit\"", "8bit or more"),
        ("size = \"1KB\"", "size = \"2MB\"", "at most largest"),
        (
            "size = \"1KB\"",
            "size = \"1KB\"\nquick = \"2MB\"",
            "at most largest",
        ),
        ("size = \"1KB\"", "size = \"0B\"", "size"),
        ("files = 2000", "files = 20000", "512 MiB"),
        ("files = 2000", "files = 0", "files"),
        ("repeats = 3", "streams = 300", "256"),
        ("clusters = [2, 2]\n", "", "two clusters"),
        ("clusters = [2, 2]", "clusters = [4]", "two clusters"),
    ];
    for (right, wrong, expected) in wrong {
        let error = parse(&TRANSFER.replacen(right, wrong, 1)).unwrap_err();
        assert!(error.contains(expected), "{wrong}: {error}");
    }
    let again = format!("{TRANSFER}\n[[transfer]]\nname = \"small\"\nsize = \"1MB\"\n");
    assert!(parse(&again).unwrap_err().contains("has the name"));
}
