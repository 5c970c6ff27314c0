// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paceline's emulator as the bottleneck.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use paceline_emulator::{
    disable_offloads, Buffer, Change, Direction, Emulator, EmulatorError, LinkConfig, Observe,
    Port, Report, Settings,
};

use super::{Bottleneck, CaseError, Namespace};
use crate::plan::Topology;
use crate::record::LinkReading;

/// Largest IP packet on the link, bytes.
const MTU: u32 = 1500;

/// The emulator between router and receiver, in a namespace of its own:
///
/// ```text
/// router wan --- router [emulator] receiver --- eth0 receiver
/// ```
#[derive(Debug, Default)]
pub struct EmulatedBottleneck {
    running: Mutex<Option<(Emulator, Namespace)>>,
}

impl EmulatedBottleneck {
    fn running(&self) -> MutexGuard<'_, Option<(Emulator, Namespace)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the link did so far; nothing before there is one.
    fn report(&self) -> Result<Report, CaseError> {
        match &*self.running() {
            Some((emulator, _)) => emulator.report().map_err(emulator_error),
            None => Ok(Report::default()),
        }
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
        // The link's own interfaces only pass on what others send.
        place.sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
        place.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        for (host, interface, port) in [(router, "wan", "router"), (far, interface, "receiver")] {
            host.ip(&format!(
                "link add {interface} type veth peer name {port} netns {}\n",
                place.path()
            ))?;
            place.ip(&format!("link set dev {port} up\n"))?;
            host.enter(|| disable_offloads(interface).map_err(emulator_error))?;
        }
        let line = LinkConfig::new(
            wanted.rate_bps,
            wanted.one_way_delay_ns,
            Buffer::Bytes(wanted.buffer_bytes),
        );
        let open = |port: &str| place.enter(|| Port::open(port, MTU).map_err(emulator_error));
        // Bandwidth is sampled at the router, as in the other backends.
        let settings = Settings {
            forward: line.clone(),
            reverse: line,
            observe: Observe::NOTHING,
        };
        let link = Emulator::start(open("router")?, open("receiver")?, settings)
            .map_err(emulator_error)?;
        *self.running() = Some((link, place));
        Ok(())
    }

    fn set_rate(
        &self,
        _router: &Namespace,
        _wanted: &Topology,
        rate_bps: u64,
    ) -> Result<(), CaseError> {
        let running = self.running();
        let Some((link, _)) = &*running else {
            return Err(CaseError::Unexpected(
                "the link's rate was to be changed before there was a link",
            ));
        };
        for direction in [Direction::Forward, Direction::Reverse] {
            let change = Change {
                rate_bits: Some(rate_bps),
                ..Change::default()
            };
            link.control()
                .change(direction, change)
                .map_err(emulator_error)?;
        }
        Ok(())
    }

    /// The buffer as the link itself counted it when it began to drop. From outside,
    /// what waits in the buffer and what is on its way to the far end look the same.
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
        Ok(problems.iter().map(ToString::to_string).collect())
    }
}

fn emulator_error(error: EmulatorError) -> CaseError {
    CaseError::System {
        doing: "setting the link up".to_owned(),
        source: io::Error::other(error),
    }
}
