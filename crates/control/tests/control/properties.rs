// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds for any sequence of calls. In a debug build undefined behaviour
//! in the C text ends the process.

use paceline_abi::{pl_path, pl_policy, pl_target, pl_turn};
use paceline_control::{pl_orders, pl_tcp, Startup, State, PL_LEAD_SPEEDUP};
use proptest::prelude::*;

const CONNECTIONS: usize = 3;

#[derive(Debug, Clone)]
struct Call {
    index: usize,
    what: u8,
    tcp: pl_tcp,
}

fn target() -> impl Strategy<Value = u8> {
    prop_oneof![
        1 => Just(pl_target::PL_TARGET_SSTHRESH as u8),
        3 => Just(pl_target::PL_TARGET_DELIVERY_RATE as u8),
    ]
}

/// Any policy that can be written down, and some that cannot.
fn policy() -> impl Strategy<Value = pl_policy> {
    (
        target(),
        prop_oneof![Just(0), 12_500..125_000_000_000u64],
        prop_oneof![Just(0), any::<u32>()],
        (0..=1000u32, 0..5u32, any::<u32>()),
    )
        .prop_map(
            |(target, initial_rate_bps, half_life_ms, breaker)| pl_policy {
                target,
                initial_rate_bps,
                half_life_ms,
                breaker_permille: breaker.0,
                breaker_starts: breaker.1,
                breaker_hold_ms: breaker.2,
                ..Default::default()
            },
        )
}

/// Any bits at all.
fn any_tcp() -> impl Strategy<Value = pl_tcp> {
    (any::<u64>(), any::<[u32; 13]>(), any::<u8>()).prop_map(|(now_us, value, recovering)| pl_tcp {
        now_us,
        cwnd: value[0],
        ssthresh: value[1],
        srtt_us: value[2],
        min_rtt_us: value[3],
        mss: value[4],
        packets_out: if value[5] % 3 == 0 { 0 } else { value[5] },
        unsent: value[7],
        sent_segs: value[8],
        delivered_segs: value[9],
        retransmitted_segs: value[10],
        una: value[11],
        nxt: value[12],
        rtt_us: value[6],
        recovering,
        ..Default::default()
    })
}

/// What a kernel could show: steps from one moment to the next.
#[derive(Debug, Clone)]
struct Step {
    index: usize,
    what: u8,
    later_us: u64,
    segs: u32,
    lost: u32,
    cwnd: u32,
    ssthresh: u32,
    rtt_us: u32,
    recovering: bool,
    ends: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (
        (
            0..CONNECTIONS,
            0..20u8,
            any::<bool>(),
            prop::bool::weighted(0.05),
        ),
        prop_oneof![4 => 0..2_000u64, 1 => 0..100_000_000u64],
        (1..200u32, prop_oneof![3 => Just(0), 1 => 0..50u32]),
        (1..100_000u32, prop_oneof![Just(0x7fff_ffff), 2..100_000u32]),
        prop_oneof![1..1000u32, 1..2_000_000u32],
    )
        .prop_map(
            |((index, what, ends, recovering), later_us, segs, window, rtt_us)| Step {
                index,
                what,
                later_us,
                segs: segs.0,
                lost: segs.1,
                cwnd: window.0,
                ssthresh: window.1,
                rtt_us,
                recovering,
                ends,
            },
        )
}

/// A connection as the steps move it.
struct Connection {
    law: Startup,
    tcp: pl_tcp,
}

struct Job {
    connections: Vec<Connection>,
    path: pl_path,
    turn: pl_turn,
    policy: pl_policy,
    now_us: u64,
}

impl Job {
    fn new(policy: pl_policy, offset: u32, mss: u32) -> Self {
        let tcp = pl_tcp {
            mss,
            sent_segs: offset,
            delivered_segs: offset,
            retransmitted_segs: offset,
            una: offset,
            nxt: offset,
            ..Default::default()
        };
        let connection = || Connection {
            law: Startup::default(),
            tcp,
        };
        Self {
            connections: (0..CONNECTIONS).map(|_| connection()).collect(),
            path: pl_path::default(),
            turn: pl_turn::default(),
            policy,
            now_us: 1,
        }
    }

    fn check(&self, index: usize, orders: &pl_orders) {
        let law = &self.connections[index].law;
        let one_by_one = law.waits() || law.raw().spread_segs != 0;
        // A base may have one of one, and gets that back.
        assert!(
            orders.cwnd != 1 || one_by_one || law.raw().base_cwnd == 1,
            "a window of one: {orders:?}"
        );
        let waiting = self.connections.iter().filter(|one| one.law.waits());
        assert_eq!(self.turn.waiting as usize, waiting.count());
        assert!(self.path.active as usize <= CONNECTIONS, "{:?}", self.path);
        for connection in &self.connections {
            let raw = connection.law.raw();
            if connection.law.breaker_open(self.now_us) {
                assert!(raw.bad_starts > 0 && raw.breaker_opened > 0);
            }
            assert!(raw.bad_starts >= raw.breaker_opened * self.policy.breaker_starts);
        }
        if orders.stop != 0 {
            assert_eq!(self.connections[index].law.raw().pacing, 0);
        }
    }

    fn run(&mut self, step: &Step) {
        let before = self.path.rate_bps;
        let raw = self.connections[step.index].law.raw();
        let (started_at, learning) = (raw.rate_bps, raw.learning != 0);
        self.now_us += step.later_us;
        let Connection { law, tcp } = &mut self.connections[step.index];
        tcp.now_us = self.now_us;
        tcp.cwnd = step.cwnd;
        tcp.ssthresh = step.ssthresh;
        tcp.srtt_us = step.rtt_us;
        tcp.min_rtt_us = step.rtt_us;
        tcp.rtt_us = step.rtt_us;
        tcp.recovering = u8::from(step.recovering);
        let orders = match step.what {
            0 => {
                law.leave(&mut self.path);
                law.leave_turn(&mut self.turn, tcp)
            }
            1..=9 => {
                tcp.unsent = step.segs * tcp.mss;
                let mut orders = law.before_send(&mut self.path, &self.policy, tcp);
                let due = step.what.is_multiple_of(3);
                law.before_send_in_turn(&mut self.turn, &self.policy, tcp, due, &mut orders);
                if law.state() == State::Paced {
                    assert!(orders.pacing_bps > 0, "PACED without a pace");
                }
                tcp.sent_segs = tcp.sent_segs.wrapping_add(step.segs);
                tcp.packets_out += step.segs;
                tcp.nxt = tcp.nxt.wrapping_add(step.segs * tcp.mss);
                orders
            }
            _ => {
                let acked = if step.ends {
                    tcp.packets_out
                } else {
                    step.segs.min(tcp.packets_out)
                };
                tcp.packets_out -= acked;
                tcp.delivered_segs = tcp.delivered_segs.wrapping_add(acked);
                tcp.una = tcp.una.wrapping_add(acked * tcp.mss);
                tcp.retransmitted_segs = tcp.retransmitted_segs.wrapping_add(step.lost);
                tcp.unsent = if step.ends { 0 } else { step.segs };
                let mut orders = law.on_ack(&mut self.path, &self.policy, tcp);
                if law.waits() || law.has_turn() {
                    law.on_ack_in_turn(&mut self.turn, tcp, &mut orders);
                }
                if before != 0 && !learning {
                    // A lead says at most half of what it leaves at; a train, twice its rate.
                    let most = u64::from(PL_LEAD_SPEEDUP / 2) * before.max(started_at);
                    assert!(
                        self.path.rate_bps <= most,
                        "{} from {before}",
                        self.path.rate_bps
                    );
                }
                orders
            }
        };
        self.check(step.index, &orders);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bits_are_survived(
        policy in policy(),
        calls in prop::collection::vec(
            (0..CONNECTIONS, 0..8u8, any_tcp()).prop_map(|(index, what, tcp)| Call { index, what, tcp }),
            1..60,
        ),
    ) {
        let mut path = pl_path::default();
        let mut turn = pl_turn::default();
        let mut laws = vec![Startup::default(); CONNECTIONS];
        for call in &calls {
            let law = &mut laws[call.index];
            match call.what {
                0 => law.leave(&mut path),
                1..=3 => {
                    let mut orders = law.before_send(&mut path, &policy, &call.tcp);
                    let due = call.what != 1;
                    law.before_send_in_turn(&mut turn, &policy, &call.tcp, due, &mut orders);
                }
                _ => {
                    let mut orders = law.on_ack(&mut path, &policy, &call.tcp);
                    if law.waits() || law.has_turn() {
                        law.on_ack_in_turn(&mut turn, &call.tcp, &mut orders);
                    }
                }
            }
            prop_assert!(path.active as usize <= CONNECTIONS);
        }
        for law in &mut laws {
            law.leave(&mut path);
            law.leave_turn(&mut turn, &pl_tcp::default());
        }
        prop_assert_eq!(path.active, 0);
        prop_assert_eq!(turn.waiting, 0);
    }

    #[test]
    fn valid_kernel_states_get_valid_orders(
        policy in policy(),
        offset in prop_oneof![Just(0), any::<u32>()],
        mss in 88..9000u32,
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut job = Job::new(policy, offset, mss);
        for step in &steps {
            job.run(step);
        }
        for connection in &mut job.connections {
            connection.law.leave(&mut job.path);
        }
        prop_assert_eq!(job.path.active, 0);
    }
}
