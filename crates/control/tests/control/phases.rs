// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The phase law: what a connection takes with it from one phase to another.

use std::collections::HashMap;

use crate::support::{delivery_rate, ssthresh};
use paceline_abi::{pl_path, pl_policy, PL_CLASSES};
use paceline_control::{
    phase_class, pl_orders, pl_tcp, Phases, Startup, State, PL_LEAD_SEGS, PL_NO_SSTHRESH,
    PL_PHASE_CLASS_BITS, PL_PHASE_SLOTS,
};
use proptest::prelude::*;

const NEVER_USED: u64 = 1_000;

/// One connection and the paths of its phases, as bpf/congestion.bpf.c has them.
struct Connection {
    policy: pl_policy,
    startup: Startup,
    phases: Phases,
    paths: HashMap<u32, pl_path>,
    phase: u32,
    tcp: pl_tcp,
}

impl Connection {
    fn new(policy: pl_policy) -> Self {
        Self {
            policy,
            startup: Startup::default(),
            phases: Phases::default(),
            paths: HashMap::new(),
            phase: 0,
            tcp: pl_tcp {
                now_us: NEVER_USED,
                cwnd: 10,
                ssthresh: PL_NO_SSTHRESH,
                srtt_us: 20_000,
                min_rtt_us: 20_000,
                mss: 1448,
                unsent: 1 << 20,
                gso_segs: 44,
                ..Default::default()
            },
        }
    }

    /// What the kernel would have after carrying the orders out.
    fn apply(&mut self, orders: pl_orders) -> pl_orders {
        if orders.cwnd != 0 {
            self.tcp.cwnd = orders.cwnd;
        }
        if orders.ssthresh != 0 {
            self.tcp.ssthresh = orders.ssthresh;
        }
        orders
    }

    fn switch(&mut self, phase: u32) -> pl_orders {
        self.tcp.now_us += 1_000;
        let mut old = self.paths.remove(&self.phase).unwrap_or_default();
        let mut new = self.paths.remove(&phase).unwrap_or_default();
        let orders = self.phases.switch(
            phase,
            &mut self.startup,
            &mut old,
            &mut new,
            &self.policy,
            &self.tcp,
        );
        self.paths.insert(self.phase, old);
        self.paths.insert(phase, new);
        self.phase = phase;
        self.apply(orders)
    }

    fn before_send(&mut self) -> pl_orders {
        let path = self.paths.entry(self.phase).or_default();
        let orders = self.startup.before_send(path, &self.policy, &self.tcp);
        self.apply(orders)
    }

    fn on_ack(&mut self) {
        let path = self.paths.entry(self.phase).or_default();
        let orders = self.startup.on_ack(path, &self.policy, &self.tcp);
        self.apply(orders);
    }

    /// What a phase has learned, set from outside.
    fn knows(&mut self, phase: u32, mbit: u64) {
        self.paths.insert(
            phase,
            pl_path {
                rate_bps: crate::support::mbit(mbit),
                confirmed_us: self.tcp.now_us,
                min_rtt_us: 20_000,
                min_rtt_at_us: self.tcp.now_us,
                ..Default::default()
            },
        );
    }
}

fn bdp(mbit: u64) -> u32 {
    (crate::support::mbit(mbit) / 50 / 1448) as u32
}

/// matsuda-2005, 3.1 and Figure 2: 582 before the collective, 49 in it.
#[test]
fn the_papers_mode_restores_ssthresh_and_starts_slowly_and_paced() {
    let mut c = Connection::new(ssthresh());
    (c.tcp.cwnd, c.tcp.ssthresh) = (600, 582);
    let orders = c.switch(1);
    // A class not seen yet: as a new connection.
    assert_eq!(
        (orders.cwnd, orders.ssthresh),
        (PL_LEAD_SEGS, PL_NO_SSTHRESH)
    );
    (c.tcp.cwnd, c.tcp.ssthresh) = (50, 49);
    let orders = c.switch(0);
    assert_eq!((orders.cwnd, orders.ssthresh), (PL_LEAD_SEGS, 582));
    let orders = c.before_send();
    assert_eq!(c.startup.state(), State::Paced);
    assert_eq!(orders.pacing_bps, 582 * 1448 * 50);
    let orders = c.switch(1);
    assert_eq!(orders.ssthresh, 49);
    assert_eq!(c.phases.raw().switches, 3);
}

#[test]
fn with_nothing_in_flight_the_next_burst_starts_at_the_phases_own_rate() {
    let mut c = Connection::new(delivery_rate());
    c.knows(0, 400);
    c.knows(1, 10);
    c.tcp.cwnd = 700;
    c.switch(1);
    c.before_send();
    assert_eq!(c.startup.raw().rate_bps, crate::support::mbit(10));
    c.tcp.packets_out = 0;
    c.switch(0);
    c.before_send();
    assert_eq!(c.startup.raw().rate_bps, crate::support::mbit(400));
    assert_eq!(c.paths[&1].active, 0, "the other phase's path was left");
}

/// Alone 41 segments, a packet of 400 Mbit/s and a quarter; each of sixteen has one, of two segments.
#[test]
fn the_spare_of_a_window_is_a_packet_of_the_share() {
    let full = bdp(400) + 1;
    for (others, window) in [(0, full + 41 + 1), (15, (full + 16 * 2) / 16 + 1)] {
        let mut c = Connection::new(delivery_rate());
        c.knows(0, 400);
        let path = c.paths.get_mut(&0).expect("it knows this path");
        (path.active, path.started_us) = (others, c.tcp.now_us);
        (c.tcp.packets_out, c.phase) = (20, 1);
        assert_eq!(c.switch(0).cwnd, window, "beside {others}");
    }
}

#[test]
fn with_data_in_flight_the_window_becomes_the_phases_and_what_is_missing_is_paced() {
    let mut c = Connection::new(delivery_rate());
    c.knows(0, 400);
    (c.tcp.cwnd, c.tcp.ssthresh, c.tcp.packets_out) = (20, 15, 20);
    c.phase = 1;
    let orders = c.switch(0);
    assert!(
        orders.cwnd > bdp(400) && orders.cwnd < bdp(400) + 44,
        "{orders:?}"
    );
    assert_eq!(orders.pacing_bps, crate::support::mbit(400));
    assert_eq!((orders.settled, orders.stop), (1, 0));
    assert_eq!(c.paths[&0].active, 1);
    // And back into the small share.
    c.knows(1, 10);
    c.tcp.packets_out = orders.cwnd;
    let orders = c.switch(1);
    assert!(orders.cwnd < 40, "{orders:?}");
    assert_eq!((c.paths[&0].active, c.paths[&1].active), (0, 1));
}

#[test]
fn an_unknown_phase_with_data_in_flight_goes_on_as_it_is() {
    let mut c = Connection::new(delivery_rate());
    (c.tcp.cwnd, c.tcp.ssthresh, c.tcp.packets_out) = (200, 150, 200);
    let orders = c.switch(3);
    assert_eq!((orders.cwnd, orders.ssthresh, orders.pacing_bps), (0, 0, 0));
    // It is learned meanwhile: 16 segments a millisecond, less a sixteenth.
    for block in 1..=8 {
        c.tcp.now_us += 1_000;
        c.tcp.delivered_segs = 16 * block;
        c.on_ack();
    }
    (c.tcp.packets_out, c.tcp.unsent) = (0, 0);
    c.on_ack();
    let (learned, given) = (c.paths[&3].rate_bps, 16 * 1448 * 1_000);
    assert!(learned > given * 7 / 8 && learned <= given, "{learned}");
}

#[test]
fn a_phase_seen_for_the_first_time_begins_as_a_new_connection() {
    let mut c = Connection::new(delivery_rate());
    (c.tcp.cwnd, c.tcp.ssthresh) = (900, 450);
    let orders = c.switch(2);
    assert_eq!(
        (orders.cwnd, orders.ssthresh),
        (PL_LEAD_SEGS, PL_NO_SSTHRESH)
    );
}

#[test]
fn values_that_are_too_old_are_not_used() {
    let mut c = Connection::new(delivery_rate());
    (c.tcp.cwnd, c.tcp.ssthresh) = (600, 582);
    c.knows(0, 400);
    c.switch(1);
    // Half a minute is half a half-life: still whole.
    c.tcp.now_us += 30_000_000;
    (c.tcp.cwnd, c.tcp.ssthresh) = (50, 49);
    c.switch(0);
    c.before_send();
    assert_eq!(c.startup.raw().rate_bps, crate::support::mbit(400));
    (c.tcp.cwnd, c.tcp.ssthresh, c.tcp.packets_out) = (600, 582, 0);
    c.switch(1);
    // Forty half-lives: nothing is left of rate and ssthresh.
    c.tcp.now_us += 40 * 60_000_000;
    c.tcp.cwnd = 600;
    let orders = c.switch(0);
    assert_eq!(
        (orders.cwnd, orders.ssthresh),
        (PL_LEAD_SEGS, PL_NO_SSTHRESH)
    );
}

/// A collective's starts lose; those of one to one have nothing to do with it.
#[test]
fn a_breaker_is_its_phases_own() {
    let mut c = Connection::new(delivery_rate());
    c.knows(0, 400);
    c.knows(1, 400);
    c.switch(1);
    while !c.startup.breaker_open(c.tcp.now_us) {
        c.before_send();
        c.tcp.sent_segs += 200;
        c.tcp.packets_out = 200;
        c.tcp.now_us += 20_000;
        c.tcp.retransmitted_segs += 50;
        c.tcp.delivered_segs += 200;
        c.tcp.packets_out = 0;
        c.on_ack();
    }
    c.switch(0);
    assert!(!c.startup.breaker_open(c.tcp.now_us));
    c.before_send();
    assert_eq!(c.startup.state(), State::Paced);
    c.switch(1);
    assert!(c.startup.breaker_open(c.tcp.now_us));
    c.before_send();
    assert_eq!(c.startup.state(), State::Base);
}

#[test]
fn a_connection_remembers_the_classes_used_last() {
    let mut c = Connection::new(ssthresh());
    let classes = PL_PHASE_SLOTS + 3;
    for class in 0..classes {
        c.switch(class);
        c.tcp.ssthresh = 100 + class;
    }
    // Leaving the last one takes a slot as well: the seven before it are left.
    for class in (classes - PL_PHASE_SLOTS..classes - 1).rev() {
        assert_eq!(c.switch(class).ssthresh, 100 + class, "class {class}");
    }
    // The one that was left longest ago made room.
    assert_eq!(
        c.switch(classes - 1 - PL_PHASE_SLOTS).ssthresh,
        PL_NO_SSTHRESH
    );
}

#[test]
fn a_class_with_another_meaning_begins_anew_and_its_old_path_is_named() {
    let mut c = Connection::new(ssthresh());
    let before = 5 | (1 << PL_PHASE_CLASS_BITS);
    let after = 5 | (2 << PL_PHASE_CLASS_BITS);
    c.switch(before);
    c.tcp.ssthresh = 77;
    c.switch(0);
    assert_eq!(c.phases.stale(before), None);
    assert_eq!(c.phases.stale(after), Some(before));
    assert_eq!(c.switch(after).ssthresh, PL_NO_SSTHRESH);
    c.tcp.ssthresh = 88;
    c.switch(0);
    // It took the slot of the old meaning.
    assert_eq!(c.phases.stale(after), None);
    assert_eq!(c.switch(after).ssthresh, 88);
}

#[test]
fn a_rate_that_a_phase_was_learning_is_kept_when_it_is_left() {
    let mut c = Connection::new(delivery_rate());
    c.switch(1);
    c.before_send();
    assert_eq!(c.startup.raw().learning, 1);
    c.paths.get_mut(&1).expect("entered").learned_bps = crate::support::mbit(100);
    c.switch(0);
    let kept = c.paths[&1].rate_bps;
    assert!(
        kept > crate::support::mbit(90) && kept <= crate::support::mbit(100),
        "{kept}"
    );
}

#[test]
fn a_class_out_of_range_is_class_0() {
    assert_eq!(phase_class(PL_CLASSES), 0);
    assert_eq!(phase_class(0xff), 0);
    assert_eq!(
        phase_class((PL_CLASSES - 1) | (9 << PL_PHASE_CLASS_BITS)),
        PL_CLASSES - 1
    );
}

proptest! {
    /// Whatever the program writes and the connection is doing: nobody is counted
    /// on a path twice or for ever, and no order is absurd.
    #[test]
    fn any_sequence_of_switches_keeps_the_books(
        steps in prop::collection::vec((any::<u32>(), 0u32..2_000, 1u32..3_000, any::<bool>()), 1..60),
        paper in any::<bool>(),
    ) {
        let mut c = Connection::new(if paper { ssthresh() } else { delivery_rate() });
        for (phase, packets_out, cwnd, send) in steps {
            c.tcp.packets_out = packets_out;
            c.tcp.cwnd = cwnd;
            let phase = if phase_class(phase) == 0 { 0 } else { phase & 0x3ff };
            if phase != c.phase {
                let orders = c.switch(phase);
                prop_assert!(orders.cwnd < 1 << 20);
            }
            if send {
                c.before_send();
            }
            let counted: u32 = c.paths.values().map(|path| path.active).sum();
            prop_assert!(counted <= 1, "counted {counted} times");
        }
        c.startup.leave(c.paths.entry(c.phase).or_default());
        prop_assert!(c.paths.values().all(|path| path.active == 0));
    }
}
