// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixtures for tests of one side and of both: a control connection over a pipe, recorded progress,
//! a runtime.

use std::sync::{Arc, Mutex};

use paceline_security as security;
use paceline_security::Protection;
use tokio::io::{duplex, split};

use super::progress::{Event, Progress};
use paceline_conduit::control::{BoxedRead, BoxedWrite, Control, SERVICE};

/// Recorded events, in order.
pub(super) type Events = Arc<Mutex<Vec<Event>>>;

pub(super) const SECRET: [u8; 32] = [3; 32];

/// Both ends of a control connection.
pub(super) async fn controls() -> (Control, Control) {
    let (one, other) = duplex(1 << 20);
    let halves = |end| {
        let (read, write) = split(end);
        let read = security::Reader::new(Box::new(read) as BoxedRead);
        (read, security::Writer::new(Box::new(write) as BoxedWrite))
    };
    let ((mut r1, mut w1), (mut r2, mut w2)) = (halves(one), halves(other));
    let kernel = Protection::Kernel;
    let (joined, accepted) = tokio::join!(
        security::join(&mut r1, &mut w1, &SERVICE, None, &kernel, b""),
        security::accept(&mut r2, &mut w2, &SERVICE, None, &kernel),
    );
    joined.expect("a pipe");
    accepted.expect("a pipe");
    (Control::new(r1, w1), Control::new(r2, w2))
}

pub(super) fn progress() -> (Arc<Progress>, Events) {
    let events = Events::default();
    let own = Arc::clone(&events);
    let on_event = move |event| own.lock().expect("no panic").push(event);
    (Progress::new(on_event), events)
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("threads")
}
