// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link between two routers: the emulator, in a namespace of its own. All that a
//! lab's use of [`paceline_emulator`] is here.
//!
//! ```text
//! FROM's router wanN --- from [emulator] to --- wanN TO's router
//! ```

use std::io;

use paceline_emulator::{
    disable_offloads, Buffer, DirectionReport, Emulator, EmulatorError, LinkConfig, Observe, Port,
    Report, Settings,
};
use paceline_net::{Error, Namespace};

use super::state::{Lateness, Traffic};
use super::topology::{Line, Wan};

/// Largest IP packet on the link, bytes.
const MTU: u32 = 1500;

/// A link that runs.
#[derive(Debug)]
pub struct RunningWan {
    emulator: Emulator,
    // Its interfaces live as long as this does.
    _place: Namespace,
}

impl RunningWan {
    /// Makes the interface `device` in both routers and the link between them. The caller
    /// gives the interfaces their addresses and brings them up afterwards: packets of the
    /// kernel itself would otherwise wait for the link to begin, and be late.
    pub fn start(wan: &Wan, device: &str, from: &Namespace, to: &Namespace) -> Result<Self, Error> {
        let place = Namespace::create(&wan.name)?;
        // The link's own interfaces only forward.
        if super::has_ipv6() {
            for scope in ["all", "default"] {
                place.sysctl(&format!("net.ipv6.conf.{scope}.disable_ipv6"), "1")?;
            }
        }
        for (router, port) in [(from, "from"), (to, "to")] {
            router.ip(&format!(
                "link add {device} type veth peer name {port} netns {}\n",
                place.path()
            ))?;
            place.ip(&format!("link set dev {port} up\n"))?;
            router.enter(|| disable_offloads(device).map_err(|error| failed(wan, error)))?;
        }
        let open =
            |port: &str| place.enter(|| Port::open(port, MTU).map_err(|error| failed(wan, error)));
        let settings = Settings {
            forward: config(wan.forward),
            reverse: config(wan.reverse),
            observe: Observe::NOTHING,
        };
        let emulator = Emulator::start(open("from")?, open("to")?, settings)
            .map_err(|error| failed(wan, error))?;
        Ok(RunningWan {
            emulator,
            _place: place,
        })
    }

    /// The traffic of each direction so far, forward first, and the reasons why the link is
    /// invalid, if it is.
    pub fn traffic(&self) -> (Traffic, Traffic, Vec<String>) {
        match self.emulator.report() {
            Ok(report) => (
                traffic(&report.forward),
                traffic(&report.reverse),
                problems(&report),
            ),
            Err(error) => {
                let none = Traffic::default();
                (none, none, vec![error.to_string()])
            }
        }
    }
}

fn config(line: Line) -> LinkConfig {
    let buffer = Buffer::Bytes(line.buffer_bytes);
    LinkConfig::new(line.rate_bps, line.one_way_delay_ns, buffer)
}

fn traffic(report: &DirectionReport) -> Traffic {
    Traffic {
        carried_packets: report.carried.packets,
        carried_bytes: report.carried.bytes,
        dropped_packets: report.dropped.packets,
        peak_queue_bytes: Some(report.peak_backlog),
        late_s: Some(Lateness {
            whole: report.lateness.p99_ns as f64 / 1e9,
            recent: report.recent_lateness.p99_ns as f64 / 1e9,
        }),
    }
}

fn problems(report: &Report) -> Vec<String> {
    report.problems().iter().map(ToString::to_string).collect()
}

fn failed(wan: &Wan, error: EmulatorError) -> Error {
    Error::System {
        doing: format!("setting the link {} up", wan.name),
        source: io::Error::other(error),
    }
}
