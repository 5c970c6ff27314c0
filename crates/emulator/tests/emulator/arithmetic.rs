// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold for any traffic over any link.

use std::collections::VecDeque;

use paceline_emulator::{Buffer, Change, Delivered, Jitter, Link, LinkConfig, Loss, Reorder};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Arrive {
        after: u64,
        size: u32,
    },
    Deliver {
        after: u64,
    },
    Change {
        after: u64,
        rate_bits: u64,
        delay_ns: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..40_000, 60u32..1_600).prop_map(|(after, size)| Step::Arrive { after, size }),
        3 => (0u64..200_000).prop_map(|after| Step::Deliver { after }),
        1 => (0u64..100_000, 1_000_000u64..2_000_000_000, 0u64..500_000).prop_map(
            |(after, rate_bits, delay_ns)| Step::Change { after, rate_bits, delay_ns }
        ),
    ]
}

/// A link on which nothing happens by chance.
#[derive(Debug, Clone, Copy)]
struct Plain {
    rate_bits: u64,
    framing_bytes: i32,
    delay_ns: u64,
    buffer_bytes: u64,
}

impl Plain {
    fn config(&self) -> LinkConfig {
        LinkConfig {
            framing_bytes: self.framing_bytes,
            ..LinkConfig::new(
                self.rate_bits,
                self.delay_ns,
                Buffer::Bytes(self.buffer_bytes),
            )
        }
    }

    fn on_the_wire(&self, size: u32) -> u64 {
        u64::from(size) + self.framing_bytes as u64
    }
}

fn config() -> impl Strategy<Value = Plain> {
    (
        1_000_000u64..2_000_000_000,
        0i32..60,
        0u64..500_000,
        1_600u64..60_000,
    )
        .prop_map(|(rate_bits, framing_bytes, delay_ns, buffer_bytes)| Plain {
            rate_bits,
            framing_bytes,
            delay_ns,
            buffer_bytes,
        })
}

proptest! {
    /// Packets are neither lost nor made, come out in order and never before
    /// line and delay allow; the buffer is never above its size.
    #[test]
    fn conserved_in_order_never_early(config in config(), steps in prop::collection::vec(step(), 1..400)) {
        let mut link = Link::new(config.config(), 0);
        let (mut now, mut id) = (0u64, 0u32);
        // Accepted and not yet out: id, size, arrival.
        let mut inside: VecDeque<(u32, u32, u64)> = VecDeque::new();
        let (mut fastest, mut shortest) = (config.rate_bits, config.delay_ns);
        let check = |delivered: Delivered<u32>, now, (rate_bits, delay_ns), inside: &mut VecDeque<_>| {
            let (id, size, arrival) = inside.pop_front().expect("nothing was inside");
            let on_the_line = config.on_the_wire(size) * 8_000_000_000 / rate_bits;
            prop_assert_eq!((delivered.packet, delivered.size), (id, size));
            prop_assert!(delivered.due <= now);
            prop_assert!(delivered.departure >= arrival + on_the_line);
            prop_assert!(delivered.due >= delivered.departure + delay_ns);
            Ok(())
        };
        for step in steps {
            match step {
                Step::Arrive { after, size } => {
                    now += after;
                    let before = link.backlog(now);
                    let accepted = link.arrive(now, size, id).is_ok();
                    prop_assert_eq!(accepted, before + u64::from(size) <= config.buffer_bytes);
                    prop_assert!(link.backlog(now) <= config.buffer_bytes);
                    if accepted {
                        inside.push_back((id, size, now));
                    }
                    id += 1;
                }
                Step::Deliver { after } => {
                    now += after;
                    while let Some(delivered) = link.deliver(now) {
                        check(delivered, now, (fastest, shortest), &mut inside)?;
                    }
                    prop_assert!(link.next_event().is_none_or(|due| due > now));
                }
                Step::Change { after, rate_bits, delay_ns } => {
                    now += after;
                    let change = Change { rate_bits: Some(rate_bits), delay_ns: Some(delay_ns), ..Change::default() };
                    link.change(now, &change);
                    fastest = fastest.max(rate_bits);
                    shortest = shortest.min(delay_ns);
                }
            }
            prop_assert_eq!(link.inside().packets, inside.len() as u64);
        }
        prop_assert!(link.peak_backlog() <= config.buffer_bytes);
        while let Some(delivered) = link.deliver(u64::MAX) {
            check(delivered, u64::MAX, (fastest, shortest), &mut inside)?;
        }
        prop_assert!(inside.is_empty());
    }

    /// Departures, deliveries and drops are those of a plain model that adds
    /// the exact times up as fractions.
    #[test]
    fn departures_match_exact_arithmetic(config in config(), packets in prop::collection::vec((0u64..60_000, 60u32..1_600), 1..300)) {
        let mut link = Link::new(config.config(), 0);
        let rate = u128::from(config.rate_bits);
        // Model times are in units of 1/rate ns, so that nothing is rounded.
        let mut line_free = 0u128;
        let mut waiting: VecDeque<(u128, u64)> = VecDeque::new();
        let mut now = 0u64;
        for (gap, size) in packets {
            now += gap;
            let exact_now = u128::from(now) * rate;
            while waiting.front().is_some_and(|(departure, _)| departure / rate <= u128::from(now)) {
                waiting.pop_front();
            }
            let held: u64 = waiting.iter().map(|(_, size)| size).sum();
            match link.arrive(now, size, ()) {
                Ok(schedule) => {
                    prop_assert!(held + u64::from(size) <= config.buffer_bytes);
                    let bits = u128::from(config.on_the_wire(size)) * 8;
                    // A line that is free within the same nanosecond is free.
                    let start = if exact_now / rate > line_free / rate { exact_now } else { line_free };
                    line_free = start + bits * 1_000_000_000;
                    prop_assert_eq!(u128::from(schedule.departure), line_free / rate);
                    prop_assert_eq!(schedule.delivery, schedule.departure + config.delay_ns);
                    waiting.push_back((line_free, u64::from(size)));
                }
                Err(_) => prop_assert!(held + u64::from(size) > config.buffer_bytes),
            }
        }
    }

    /// Whatever happens by chance: each packet that was accepted comes out once, when it
    /// is due, and what is due keeps the order of time; the same seed gives the same.
    #[test]
    fn chance_loses_nothing_uncounted(
        config in config(),
        seed in any::<u64>(),
        share in 0.0f64..1.0,
        jitter in prop::option::of(0u64..400_000),
        packets in prop::collection::vec((0u64..60_000, 60u32..1_600), 1..300),
    ) {
        let config = LinkConfig {
            jitter: jitter.map(|deviation_ns| Jitter::Normal { deviation_ns }),
            loss: Some(Loss::Bursts { to_bad: share, to_good: 0.5, good: 0.0, bad: share }),
            reorder: Some(Reorder { share, by_ns: 100_000 }),
            duplicate: share,
            seed,
            ..config.config()
        };
        let run = || {
            let mut link = Link::new(config.clone(), 0);
            let (mut now, mut accepted, mut out) = (0, 0, Vec::new());
            for (id, (gap, size)) in packets.iter().enumerate() {
                now += gap;
                accepted += usize::from(link.arrive(now, *size, id).is_ok());
                out.extend(std::iter::from_fn(|| link.deliver(now)));
            }
            out.extend(std::iter::from_fn(|| link.deliver(u64::MAX)));
            (accepted, out)
        };
        let (accepted, out) = run();
        prop_assert_eq!(out.len(), accepted);
        prop_assert!(out.is_sorted_by_key(|out| out.due));
        prop_assert!(out.iter().all(|out| out.due >= out.departure));
        let mut ids: Vec<_> = out.iter().map(|out| out.packet).collect();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), accepted);
        prop_assert_eq!(&out, &run().1);
    }
}
