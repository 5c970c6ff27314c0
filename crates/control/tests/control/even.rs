// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Even streams: connections to one destination share a window.

use paceline_abi::pl_path;
use paceline_control::{pl_tcp, Even, PL_NO_SSTHRESH};
use proptest::prelude::*;

/// In one step a stream's window comes so much nearer to its part (PL_EVEN_STEP_SEGS).
const STEP: u32 = 5;
const LEAST: u32 = 2;

/// One stream, as TCP has it.
#[derive(Clone, Default)]
struct Stream {
    even: Even,
    cwnd: u32,
    ssthresh: u32,
    in_flight: u32,
    delivered: u32,
    waiting: bool,
    recovering: bool,
}

#[derive(Default)]
struct Host {
    path: pl_path,
    now_us: u64,
}

impl Stream {
    fn new(cwnd: u32) -> Self {
        Stream {
            cwnd,
            ssthresh: PL_NO_SSTHRESH,
            ..Stream::default()
        }
    }

    fn old(cwnd: u32) -> Self {
        Stream {
            ssthresh: cwnd,
            ..Stream::new(cwnd)
        }
    }

    fn send(&mut self, host: &mut Host) {
        host.now_us += 10;
        let tcp = pl_tcp {
            now_us: host.now_us,
            cwnd: self.cwnd,
            ssthresh: self.ssthresh,
            in_flight: self.in_flight,
            delivered_segs: self.delivered,
            app_limited: self.waiting.into(),
            recovering: self.recovering.into(),
            ..pl_tcp::default()
        };
        let orders = self.even.before_send(&mut host.path, &tcp);
        if orders.cwnd != 0 {
            self.cwnd = orders.cwnd;
        }
        if orders.ssthresh != 0 {
            self.ssthresh = orders.ssthresh;
        }
        self.in_flight = self.in_flight.max(self.cwnd);
    }

    /// A loss: CUBIC goes to 70 %.
    fn lose(&mut self, host: &mut Host) {
        self.ssthresh = (self.cwnd * 7 / 10).max(2);
        self.even.lost(&mut host.path, self.cwnd, self.ssthresh);
        self.recovering = true;
    }

    fn recover(&mut self) {
        self.recovering = false;
        self.cwnd = self.ssthresh;
        self.in_flight = self.cwnd;
    }
}

fn all_send(host: &mut Host, streams: &mut [Stream]) {
    for stream in streams {
        stream.in_flight = stream.in_flight.min(stream.cwnd);
        stream.send(host);
    }
}

/// Sends until nothing changes any more.
fn settle(host: &mut Host, streams: &mut [Stream]) {
    for _ in 0..1000 {
        all_send(host, streams);
    }
}

fn sum(streams: &[Stream]) -> u32 {
    streams.iter().map(|stream| stream.cwnd).sum()
}

#[test]
fn windows_become_equal_and_their_sum_stays() {
    let mut host = Host::default();
    let mut streams = [100, 20, 60, 7, 13].map(Stream::old);
    all_send(&mut host, &mut streams);
    // Whoever comes later counts for no more than an equal part.
    let all = host.path.even_segs;
    settle(&mut host, &mut streams);
    assert_eq!(host.path.even_segs, all);
    assert_eq!(sum(&streams), all);
    for stream in &streams {
        assert!(stream.cwnd.abs_diff(all / 5) <= 1, "{}", stream.cwnd);
    }
}

#[test]
fn growth_and_loss_of_one_are_shared_by_all() {
    let mut host = Host::default();
    let mut streams = vec![Stream::old(50); 10];
    settle(&mut host, &mut streams);
    streams[3].cwnd += 20;
    settle(&mut host, &mut streams);
    assert_eq!(sum(&streams), 520);
    assert!(streams.iter().all(|stream| stream.cwnd == 52));

    streams[7].lose(&mut host);
    assert_eq!(host.path.even_segs, 520 - (52 - 36));
    all_send(&mut host, &mut streams);
    assert_eq!(streams[7].cwnd, 52, "the kernel has it while it repairs");
    streams[7].recover();
    settle(&mut host, &mut streams);
    assert_eq!(sum(&streams), 504);
    assert!(streams.iter().all(|stream| stream.cwnd.abs_diff(50) <= 1));
}

#[test]
fn a_spurious_loss_costs_nobody_anything() {
    let mut host = Host::default();
    let mut streams = vec![Stream::old(40); 4];
    settle(&mut host, &mut streams);
    streams[0].lose(&mut host);
    assert_eq!(host.path.even_segs, 148);
    streams[0].even.undo(&mut host.path);
    streams[0].recovering = false;
    settle(&mut host, &mut streams);
    assert_eq!(sum(&streams), 160);
    // What an undo gave back it does not give twice.
    streams[0].even.undo(&mut host.path);
    assert_eq!(host.path.even_segs, 160);
}

#[test]
fn a_window_comes_to_its_part_in_small_steps() {
    let mut host = Host::default();
    let mut streams = vec![Stream::old(100); 2];
    settle(&mut host, &mut streams);
    let mut new = Stream::new(10);
    new.send(&mut host);
    assert_eq!(new.cwnd, 10, "nothing is in flight yet");
    for in_flight in [10, 15, 20] {
        new.in_flight = in_flight;
        new.send(&mut host);
        assert_eq!(new.cwnd, in_flight + STEP);
    }
    // And without a slow start of its own: the others' window is known to be full.
    assert!(new.ssthresh <= new.cwnd);
}

#[test]
fn streams_that_begin_together_slow_start_together() {
    let mut host = Host::default();
    let mut streams = vec![Stream::new(10); 8];
    for round in 0..4 {
        for stream in &mut streams {
            stream.in_flight = stream.cwnd;
            stream.send(&mut host);
            stream.cwnd *= 2;
        }
        let doubled = 80 << (round + 1);
        settle(&mut host, &mut streams);
        assert_eq!(host.path.even_segs, doubled);
        assert!(streams.iter().all(|one| one.ssthresh == PL_NO_SSTHRESH));
    }
    // The first loss ends it for all of them.
    streams[0].lose(&mut host);
    settle(&mut host, &mut streams);
    assert!(streams[1..].iter().all(|one| one.ssthresh <= one.cwnd));
}

#[test]
fn a_leaving_stream_leaves_its_part_to_the_others() {
    let mut host = Host::default();
    let mut streams = vec![Stream::old(30); 6];
    settle(&mut host, &mut streams);
    let mut last = streams.pop().unwrap();
    last.even.leave(&mut host.path);
    settle(&mut host, &mut streams);
    assert_eq!(sum(&streams), 180);
    // Twice is once.
    last.even.leave(&mut host.path);
    assert_eq!(host.path.even_streams, 5);
    for stream in &mut streams {
        stream.even.leave(&mut host.path);
    }
    // The next one begins as if nothing had been.
    let mut next = Stream::old(7);
    next.send(&mut host);
    assert_eq!((next.cwnd, host.path.even_segs), (7, 7));
}

#[test]
fn a_path_that_was_forgotten_is_joined_anew() {
    let mut host = Host::default();
    let mut streams = vec![Stream::old(30); 3];
    settle(&mut host, &mut streams);
    host.path = pl_path::default();
    streams[0].lose(&mut host);
    streams[1].even.leave(&mut host.path);
    assert_eq!((host.path.even_streams, host.path.even_segs), (0, 0));
    streams[0].recover();
    settle(&mut host, &mut streams);
    assert_eq!(host.path.even_streams, 3);
    assert_eq!(sum(&streams), host.path.even_segs);
}

#[test]
fn the_remainder_of_the_division_goes_round() {
    let mut host = Host::default();
    let mut streams = vec![Stream::old(10); 4];
    settle(&mut host, &mut streams);
    streams[0].cwnd += 2;
    let mut more = [0; 4];
    for _ in 0..64 {
        host.now_us += 1 << 17;
        settle(&mut host, &mut streams);
        assert_eq!(sum(&streams), 42);
        for (more, stream) in more.iter_mut().zip(&streams) {
            *more += stream.cwnd - 10;
        }
    }
    assert!(more.iter().all(|more| (28..=36).contains(more)), "{more:?}");
}

/// So many round trips in which each delivers a window.
fn rounds(host: &mut Host, streams: &mut [Stream], count: u32) {
    for _ in 0..count {
        for stream in streams.iter_mut() {
            stream.delivered = stream.delivered.wrapping_add(stream.cwnd);
        }
        // What all have delivered is known when all have told of it.
        all_send(host, streams);
        all_send(host, streams);
    }
}

#[test]
fn a_stream_that_fell_behind_catches_up() {
    let mut host = Host::default();
    let mut streams = vec![Stream::old(40); 8];
    settle(&mut host, &mut streams);
    // The counters of a socket wrap, and what it had delivered before is its own.
    streams[0].delivered = u32::MAX - 5;
    streams[0].even = Even::default();
    host.path = pl_path::default();
    settle(&mut host, &mut streams);
    // Five round trips in which one of them waits for a timeout.
    rounds(&mut host, &mut streams[1..], 5);
    rounds(&mut host, &mut streams, 1);
    let (least, most) = (streams[0].cwnd, streams[1].cwnd);
    assert_eq!(least, 50, "a quarter more, and no more than that");
    assert!((34..40).contains(&most), "{most}");
    rounds(&mut host, &mut streams, 60);
    let before: Vec<u32> = streams.iter().map(|one| one.delivered).collect();
    assert!(streams.iter().all(|stream| stream.cwnd.abs_diff(40) <= 1));
    rounds(&mut host, &mut streams, 1);
    // In all they have delivered as much as each other, within half of a window.
    let start = u32::MAX - 5;
    let first = before[0].wrapping_sub(start);
    assert!(
        before[1..].iter().all(|other| other.abs_diff(first) < 20),
        "{before:?}"
    );
}

#[test]
fn a_stream_makes_up_for_a_bounded_part_of_its_idle_time() {
    let mut host = Host::default();
    let mut streams = vec![Stream::old(40); 4];
    settle(&mut host, &mut streams);
    rounds(&mut host, &mut streams[1..], 1000);
    // It comes back with a quarter more, for the time that eight windows take.
    let mut took = 0;
    rounds(&mut host, &mut streams, 1);
    while streams[0].cwnd > 41 {
        rounds(&mut host, &mut streams, 1);
        took += 1;
    }
    assert!((8..80).contains(&took), "{took}");
}

#[test]
fn an_app_limited_stream_has_no_part() {
    let mut host = Host::default();
    let mut streams = vec![Stream::old(50); 8];
    settle(&mut host, &mut streams);
    for stream in &mut streams[1..] {
        stream.waiting = true;
        stream.in_flight = 4;
        stream.send(&mut host);
        assert_eq!(stream.cwnd, 50, "its window is its own");
    }
    // What the one that is left grows by is its own, and what those have in flight is theirs.
    let left = 400 - 7 * 4;
    settle(&mut host, &mut streams[..1]);
    assert_eq!((streams[0].cwnd, host.path.even_streams), (left, 1));
    streams[0].cwnd += 1;
    settle(&mut host, &mut streams[..1]);
    assert_eq!(streams[0].cwnd, left + 1);
    // And back again, for no more than an equal part.
    for stream in &mut streams[1..] {
        stream.waiting = false;
    }
    settle(&mut host, &mut streams);
    assert_eq!(host.path.even_streams, 8);
    let part = host.path.even_segs / 8;
    assert!(streams
        .iter()
        .all(|one| one.cwnd == part || one.cwnd == part + 1));
}

#[test]
fn earlier_deliveries_of_others_do_not_count_against_them() {
    let mut host = Host::default();
    let mut streams = vec![Stream::old(60); 3];
    settle(&mut host, &mut streams);
    rounds(&mut host, &mut streams, 100);
    streams.push(Stream::old(60));
    settle(&mut host, &mut streams);
    rounds(&mut host, &mut streams, 3);
    assert!(streams.iter().all(|stream| stream.cwnd == 60));
}

#[derive(Clone, Debug)]
enum Event {
    Grow(usize, u32),
    Shrink(usize, u32),
    Lose(usize),
    Undo(usize),
    Recover(usize),
    Leave(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let index = 0..6usize;
    prop_oneof![
        (index.clone(), 1..200u32).prop_map(|(index, by)| Event::Grow(index, by)),
        (index.clone(), 1..200u32).prop_map(|(index, by)| Event::Shrink(index, by)),
        index.clone().prop_map(Event::Lose),
        index.clone().prop_map(Event::Undo),
        index.clone().prop_map(Event::Recover),
        index.prop_map(Event::Leave),
    ]
}

proptest! {
    /// Whatever comes: nobody has less than two segments, all together have what the path
    /// has, and those that do not repair are equal.
    #[test]
    fn after_anything_the_windows_are_equal(events in proptest::collection::vec(event(), 0..60)) {
        let mut host = Host::default();
        let mut streams = vec![Stream::old(20); 6];
        settle(&mut host, &mut streams);
        for event in events {
            match event {
                Event::Grow(index, by) if !streams[index].recovering => streams[index].cwnd += by,
                Event::Shrink(index, by) if !streams[index].recovering => {
                    streams[index].cwnd = streams[index].cwnd.saturating_sub(by).max(1);
                }
                Event::Lose(index) => streams[index].lose(&mut host),
                Event::Undo(index) if streams[index].recovering => {
                    streams[index].even.undo(&mut host.path);
                    streams[index].recovering = false;
                }
                Event::Recover(index) if streams[index].recovering => streams[index].recover(),
                Event::Leave(index) => streams[index].even.leave(&mut host.path),
                _ => {}
            }
            all_send(&mut host, &mut streams);
            let path = &host.path;
            prop_assert!(path.even_streams <= 6);
            prop_assert!(path.even_segs >= LEAST, "{path:?}");
            prop_assert!(path.even_segs < 20_000, "{path:?}");
        }
        for stream in &mut streams {
            if stream.recovering {
                stream.recover();
            }
        }
        settle(&mut host, &mut streams);
        let part = host.path.even_segs / 6;
        prop_assert_eq!(host.path.even_streams, 6);
        for stream in &streams {
            prop_assert!(stream.cwnd >= LEAST);
            prop_assert!(stream.cwnd == part.max(LEAST) || stream.cwnd == part + 1, "{}", stream.cwnd);
        }
    }
}
