// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a switch costs a program: `cargo bench -p paceline-phase`.

use criterion::{criterion_group, criterion_main, Criterion};
use paceline::{ffi, Page, Phases};

fn cost(c: &mut Criterion) {
    let phases = Phases::new(Page::unshared().expect("memory"));
    c.bench_function("enter and leave", |b| {
        b.iter(|| {
            phases.enter(1).expect("in range");
            phases.leave().expect("entered");
        })
    });
    c.bench_function("begin and end", |b| {
        b.iter(|| {
            let token = phases.begin(1).expect("in range");
            phases.end(token).expect("begun");
        })
    });
    // Nobody listens: as in a program that does not run under Paceline.
    std::env::set_var("PACELINE_SOCKET", "/nonexistent");
    c.bench_function("enter and leave without an agent", |b| {
        b.iter(|| {
            ffi::paceline_enter(1);
            ffi::paceline_leave();
        })
    });
}

criterion_group!(benches, cost);
criterion_main!(benches);
