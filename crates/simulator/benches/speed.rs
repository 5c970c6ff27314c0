// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events per second. `table1`: ten seconds of feng-2000's Table 1 with 60 clients, by
//! algorithm; the throughput's element is a packet delivered. `scale`: half a second of
//! experiments/burstiness-scale.toml with a thousand clients and more; it is an event.

use std::path::Path;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use paceline_simulator::event::SECOND;
use paceline_simulator::measures;
use paceline_simulator::scenario::{Plan, Scenario};

const TABLE_1: &str = r#"
title = "Table 1"
duration = "10s"
[link.gateway]
rate = "50mbit"
delay = "25ms"
queue = { packets = 50 }
[tcp]
window = 20
[sender.reno]
stack = "ns-2"
[sender.vegas]
stack = "ns-2"
[sender.paceline]
algorithm = "cubic"
policy = "lfn"
[flows.clients]
count = 60
tcp = "reno"
edge_rate = "10mbit"
edge_delay = "25ms"
path = ["gateway"]
source.poisson = "10ms"
[axis.tcp]
set = "flows.clients.tcp"
values = ["udp", "reno", "newreno", "vegas", "cubic", "paceline"]
"#;

fn plans() -> Vec<(String, Plan)> {
    let scenario = Scenario::parse(TABLE_1, Path::new("table1.toml")).expect("a good scenario");
    let points = scenario.points().iter();
    points
        .map(|point| (point.tail(), scenario.plan(point).expect("a good point")))
        .collect()
}

fn speed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("table1");
    group.sample_size(20);
    for (name, plan) in plans() {
        let outcome = measures::run(&plan, 1, false, &|| false).expect("not stopped");
        group.throughput(Throughput::Elements(outcome.delivered));
        group.bench_function(name, |bencher| {
            bencher.iter(|| measures::run(&plan, 1, false, &|| false));
        });
    }
    group.finish();
}

fn scale(criterion: &mut Criterion) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/burstiness-scale.toml");
    let scenario = Scenario::load(&file).expect("a good scenario");
    let mut group = criterion.benchmark_group("scale");
    group.sample_size(10);
    for point in scenario.points() {
        // A million clients would take minutes.
        if point.variant == "1m" {
            continue;
        }
        let mut plan = scenario.plan(point).expect("a good point");
        plan.duration_ns = SECOND / 2;
        plan.steady_ns = None;
        let outcome = measures::run(&plan, 1, false, &|| false).expect("not stopped");
        group.throughput(Throughput::Elements(outcome.events));
        group.bench_function(&point.variant, |bencher| {
            bencher.iter(|| measures::run(&plan, 1, false, &|| false));
        });
    }
    group.finish();
}

criterion_group!(benches, speed, scale);
criterion_main!(benches);
