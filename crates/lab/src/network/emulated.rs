// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paceline's emulator as the bottleneck.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use paceline_emulator::{
    disable_offloads, Buffer, Change, Codel, Direction, Emulator, EmulatorError, Jitter,
    LinkConfig, Loss, Observe, Policer, Port, Reorder, Report, Settings,
};
use paceline_experiment::plan::{self, Impairments, Topology};
use paceline_experiment::record::LinkReading;
use paceline_net::{Error, Namespace};

use super::topology::Bottleneck;
use crate::CaseError;

/// The emulator between router and receiver, in a namespace of its own:
///
/// ```text
/// router wan --- router [emulator] receiver --- eth0 receiver
/// ```
#[derive(Debug, Default)]
pub struct EmulatedBottleneck {
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    emulator: Emulator,
    place: Namespace,
    impairments: Impairments,
    /// Whether all packets are lost.
    down: bool,
    /// Of emulators in the same place before this one.
    problems: Vec<String>,
}

impl EmulatedBottleneck {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link's report so far; none before the link exists.
    fn report(&self) -> Result<Report, CaseError> {
        match &*self.running() {
            Some(running) => Ok(running.emulator.report().map_err(emulator_error)?),
            None => Ok(Report::default()),
        }
    }
}

/// Starts the link of `wanted` on the interfaces in `place`.
fn start(place: &Namespace, wanted: &Topology) -> Result<Emulator, CaseError> {
    let impairments = &wanted.impairments;
    let line = |rate_bps| {
        LinkConfig::new(
            rate_bps,
            wanted.one_way_delay_ns,
            Buffer::Bytes(wanted.buffer_bytes),
        )
    };
    let forward = LinkConfig {
        loss: impairments.loss.map(loss),
        jitter: (impairments.jitter_ns > 0).then_some(Jitter::Uniform {
            most_ns: impairments.jitter_ns,
        }),
        reorder: impairments.reorder.map(|reorder| Reorder {
            share: reorder.share,
            by_ns: reorder.by_ns,
        }),
        policer: impairments.policer.map(|policer| Policer {
            rate_bits: policer.rate_bps,
            burst_bytes: policer.burst_bytes,
        }),
        codel: impairments.codel.map(|codel| Codel {
            target_ns: codel.target_ns,
            interval_ns: codel.interval_ns,
            ecn: codel.ecn,
        }),
        buffer: buffer(wanted),
        ..line(wanted.rate_bps)
    };
    let reverse = LinkConfig {
        slot_ns: impairments.ack_slot_ns,
        ..line(impairments.return_rate_bps.unwrap_or(wanted.rate_bps))
    };
    let open = |port: &str| place.enter(|| Port::open(port, wanted.mtu).map_err(emulator_error));
    // Bandwidth is sampled at the router, as in the other backends.
    let settings = Settings {
        forward,
        reverse,
        observe: Observe::NOTHING,
    };
    Ok(Emulator::start(open("router")?, open("receiver")?, settings).map_err(emulator_error)?)
}

/// The queue towards the receiver.
fn buffer(wanted: &Topology) -> Buffer {
    match wanted.impairments.codel {
        Some(_) => Buffer::Packets(wanted.queue_packets()),
        None => Buffer::Bytes(wanted.buffer_bytes),
    }
}

fn loss(loss: plan::Loss) -> Loss {
    match loss {
        plan::Loss::Random { share } => Loss::Random { share },
        plan::Loss::Bursts {
            to_bad,
            to_good,
            good,
            bad,
        } => Loss::Bursts {
            to_bad,
            to_good,
            good,
            bad,
        },
    }
}

impl Bottleneck for EmulatedBottleneck {
    fn install(
        &self,
        router: &Namespace,
        far: &Namespace,
        interface: &str,
        wanted: &Topology,
    ) -> Result<(), CaseError> {
        let place = Namespace::create("link")?;
        // The link's own interfaces only forward.
        place.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
        place.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        for (host, interface, port) in [(router, "wan", "router"), (far, interface, "receiver")] {
            host.ip(&format!(
                "link add {interface} type veth peer name {port} netns {}\n",
                place.path()
            ))?;
            place.ip(&format!("link set dev {port} mtu {} up\n", wanted.mtu))?;
            host.enter(|| disable_offloads(interface).map_err(emulator_error))?;
        }
        let wanted = wanted.unimpaired();
        *self.running() = Some(Running {
            emulator: start(&place, &wanted)?,
            place,
            impairments: wanted.impairments,
            down: false,
            problems: Vec::new(),
        });
        Ok(())
    }

    fn change(
        &self,
        _router: &Namespace,
        _far: &Namespace,
        wanted: &Topology,
        cut: bool,
    ) -> Result<(), CaseError> {
        let mut running = self.running();
        let Some(running) = &mut *running else {
            return Err(CaseError::Unexpected(
                "a change of the link preceded its setup",
            ));
        };
        // Random impairments are part of a link; loss alone can change while it runs.
        let same = Impairments {
            loss: running.impairments.loss,
            ..wanted.impairments
        };
        if same != running.impairments {
            let report = running.emulator.report().map_err(emulator_error)?;
            let problems = report.problems();
            running
                .problems
                .extend(problems.iter().map(ToString::to_string));
            running.emulator = start(&running.place, wanted)?;
            running.impairments = wanted.impairments;
            return Ok(());
        }
        let of_share = |share| plan::Loss::Random { share };
        let (here, back_lost) = match wanted.down {
            true => (of_share(1.0), Some(of_share(1.0))),
            // Nothing but an outage makes the way back lose.
            false => {
                let here = wanted.impairments.loss.unwrap_or(of_share(0.0));
                (here, running.down.then(|| of_share(0.0)))
            }
        };
        running.down = wanted.down;
        running.impairments = wanted.impairments;
        let back = wanted.impairments.return_rate_bps;
        let ways = [
            (
                Direction::Forward,
                Some(wanted.rate_bps),
                buffer(wanted),
                Some(here),
            ),
            (
                Direction::Reverse,
                back.or(Some(wanted.rate_bps)),
                Buffer::Bytes(wanted.buffer_bytes),
                back_lost,
            ),
        ];
        for (direction, rate_bits, buffer, lost) in ways {
            let change = Change {
                rate_bits,
                delay_ns: Some(wanted.one_way_delay_ns),
                buffer: Some(buffer),
                loss: lost.map(loss),
                cut,
                ..Change::default()
            };
            let control = running.emulator.control();
            control.change(direction, change).map_err(emulator_error)?;
        }
        Ok(())
    }

    /// The buffer as the link itself counted it when it began to drop. From outside, queued
    /// packets and those in propagation look the same.
    fn read_back(&self, reading: LinkReading) -> LinkReading {
        let forward = self.report().unwrap_or_default().forward;
        let filled = forward.dropped.packets > 0;
        LinkReading {
            buffer_bytes: filled.then_some(forward.peak_backlog),
            ..reading
        }
    }

    fn problems(&self) -> Result<Vec<String>, CaseError> {
        let problems = self.report()?.problems();
        let before = self
            .running()
            .as_ref()
            .map(|running| running.problems.clone());
        let now = problems.iter().map(ToString::to_string);
        Ok(before.unwrap_or_default().into_iter().chain(now).collect())
    }
}

fn emulator_error(error: EmulatorError) -> Error {
    Error::System {
        doing: "setting the link up".to_owned(),
        source: io::Error::other(error),
    }
}
