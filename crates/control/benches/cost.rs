// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a call of a control law costs: `cargo bench -p paceline-control`.

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion};
use paceline_abi::{pl_path, pl_policy, pl_target, pl_uwnd};
use paceline_control::{pl_tcp, spacing_rate, Startup, State, Window};

fn policy() -> pl_policy {
    pl_policy {
        target: pl_target::PL_TARGET_DELIVERY_RATE as u8,
        initial_rate_bps: 62_500_000,
        half_life_ms: 60_000,
        breaker_permille: 20,
        breaker_starts: 2,
        breaker_hold_ms: 10_000,
        ..Default::default()
    }
}

fn tcp() -> pl_tcp {
    pl_tcp {
        now_us: 1_000_000,
        cwnd: 10,
        ssthresh: 800,
        srtt_us: 20_000,
        min_rtt_us: 20_000,
        mss: 1448,
        unsent: 1 << 20,
        ..Default::default()
    }
}

/// A start with `segs` segments on their way.
fn started(segs: u32) -> (Startup, pl_path, pl_tcp) {
    let (mut law, mut path, mut tcp) = (Startup::default(), pl_path::default(), tcp());
    for _ in 0..segs {
        law.before_send(&mut path, &policy(), &tcp);
        tcp.sent_segs += 1;
        tcp.packets_out += 1;
        tcp.nxt += 1448;
        tcp.now_us += 23;
    }
    assert_eq!(law.state(), State::Paced);
    (law, path, tcp)
}

fn before_send(criterion: &mut Criterion) {
    let policy = policy();
    let mut group = criterion.benchmark_group("before_send");
    group.bench_function("a burst begins", |bencher| {
        let (mut law, mut path, tcp) = (Startup::default(), pl_path::default(), tcp());
        bencher.iter(|| {
            law = Startup::default();
            path.active = 0;
            law.before_send(&mut path, black_box(&policy), black_box(&tcp))
        });
    });
    group.bench_function("a paced segment", |bencher| {
        let (mut law, mut path, tcp) = started(100);
        bencher.iter(|| law.before_send(&mut path, black_box(&policy), black_box(&tcp)));
    });
    group.bench_function("bulk transfer", |bencher| {
        let (mut law, mut path, tcp) = (Startup::default(), pl_path::default(), tcp());
        let tcp = pl_tcp {
            packets_out: 1,
            ..tcp
        };
        bencher.iter(|| law.before_send(&mut path, black_box(&policy), black_box(&tcp)));
    });
    group.finish();
}

fn on_ack(criterion: &mut Criterion) {
    let policy = policy();
    let mut group = criterion.benchmark_group("on_ack");
    group.bench_function("of the train", |bencher| {
        let (mut law, mut path, mut tcp) = started(200);
        tcp.delivered_segs = 60;
        tcp.packets_out -= 60;
        tcp.una += 60 * 1448;
        tcp.now_us += 20_000;
        tcp.rtt_us = 20_000;
        law.on_ack(&mut path, &policy, &tcp);
        assert_eq!(law.state(), State::Measured);
        bencher.iter(|| law.on_ack(&mut path, black_box(&policy), black_box(&tcp)));
    });
    group.bench_function("learning", |bencher| {
        let policy = pl_policy {
            initial_rate_bps: 0,
            ..policy
        };
        let (mut law, mut path, mut tcp) = (Startup::default(), pl_path::default(), tcp());
        law.before_send(&mut path, &policy, &tcp);
        tcp.packets_out = 100;
        tcp.sent_segs = 100;
        assert!(law.wants_ack(&tcp));
        bencher.iter(|| {
            tcp.now_us += 23;
            tcp.delivered_segs = tcp.delivered_segs.wrapping_add(2);
            law.on_ack(&mut path, black_box(&policy), black_box(&tcp))
        });
    });
    group.finish();
}

/// What a connection of a group pays more for each transmission, without the look-ups.
fn window(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("window");
    let cap = pl_uwnd {
        max_segs: 100,
        ..Default::default()
    };
    for (name, uwnd) in [("capped", cap), ("free", pl_uwnd::default())] {
        group.bench_function(name, |bencher| {
            let (mut window, mut tcp) = (Window::default(), tcp());
            tcp.cwnd = 500;
            bencher.iter(|| window.before_send(black_box(&uwnd), black_box(&tcp)));
        });
    }
    group.finish();
}

/// And one whose packets are spaced.
fn spacing(criterion: &mut Criterion) {
    let policy = pl_policy {
        clustered: 1,
        line_rate_bps: 125_000_000,
        gap_bytes: 64,
        ..policy()
    };
    let tcp = tcp();
    criterion.bench_function("spacing", |bencher| {
        bencher.iter(|| spacing_rate(black_box(&policy), black_box(&tcp), false));
    });
}

criterion_group!(benches, before_send, on_ack, window, spacing);
criterion_main!(benches);
