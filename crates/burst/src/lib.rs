// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets per window of time at an interface, counted by the kernel
//! (`bpf/burst.bpf.c`).
//!
//! The programs are independent of jobs: they belong to the requesting process,
//! and are gone with it. Nothing is pinned.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "links of BPF programs")]
mod attach;
mod classic;
mod error;
mod filter;
#[allow(unsafe_code, reason = "a struct as the bytes that BPF reads")]
mod layout;
#[allow(unsafe_code, reason = "a map that the kernel shares")]
mod ring;

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, ObjectBuilder, OpenObject};
use paceline_bpf::{interface, messages, permission};

pub use attach::{Attach, Kind};
pub use error::{Error, Result};
pub use filter::{Filter, FilterError};
pub use paceline_bpf::interface::Interface;

/// The compiled bpf/burst.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/burst.bpf.o"));

/// Shortest window, nanoseconds: packets mostly take less from the clock to their
/// counter than this.
pub const LEAST_WINDOW_NS: u64 = 100_000;
/// Longest window, nanoseconds: an hour.
pub const MOST_WINDOW_NS: u64 = 3_600_000_000_000;
/// A window is read so long after its end, nanoseconds: a packet may have read the
/// clock before the end and not be counted yet, while its CPU handles an interrupt or
/// does not run this virtual machine.
const GRACE_NS: u64 = 20_000_000;

/// Direction of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Those that it received.
    In,
    /// Those that it is to send, before its queue.
    Out,
    /// Both, summed.
    Both,
}

/// Options of a count.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where.
    pub interface: Interface,
    /// Which way.
    pub direction: Direction,
    /// Which packets.
    pub filter: Filter,
    /// Length of a window, nanoseconds: [`LEAST_WINDOW_NS`] to [`MOST_WINDOW_NS`].
    pub window_ns: u64,
    /// CLOCK_MONOTONIC at which one window begins, nanoseconds; the others follow and
    /// precede it without gaps.
    pub origin_ns: u64,
    /// A packet that stands for several segments (GSO, GRO) counts as one.
    pub whole_packets: bool,
    /// By which of the kernel's hooks.
    pub attach: Attach,
}

/// Counts of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets: segments, unless [`Options::whole_packets`] is set.
    pub packets: u64,
    /// Bytes of frames as on the wire, with their link header, without FCS and gap.
    pub bytes: u64,
}

/// A window that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// CLOCK_MONOTONIC at its start, nanoseconds.
    pub start_ns: u64,
    /// `None` if this process read too late, after the counters were used again.
    pub counts: Option<Counts>,
}

/// Running counters. Dropping it removes them, and so does the end of the process.
#[derive(Debug)]
pub struct Meter {
    attachment: attach::Attachment,
    ring: ring::Ring,
    interface: Interface,
    window_ns: u64,
    origin_ns: u64,
    /// Since the origin: the next one to be read.
    next: u64,
}

impl Meter {
    /// Loads the programs and attaches them, in the calling thread's network namespace.
    /// The first window is the first that begins afterwards.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without root's capabilities, [`Error::Interface`] where
    /// the interface or the kernel does not support the request, [`Error::Bpf`] where
    /// the kernel refuses the programs.
    ///
    /// # Panics
    /// If the window is out of range.
    pub fn start(options: &Options) -> Result<Self> {
        assert!((LEAST_WINDOW_NS..=MOST_WINDOW_NS).contains(&options.window_ns));
        permission::require("paceline burst")?;
        messages::route_libbpf_messages();
        options.check()?;
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| Error::bpf("cannot count the CPUs", error))?;
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        let slots = ring::slots(options.window_ns, cpus);
        let (object, attachment) = attach::attach(options, |programs| {
            let mut open = open_object()?;
            configure(&mut open, &options.config(slots), (slots + 1) * cpus)?;
            for mut program in open.progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                program.set_autoload(programs.contains(&name.as_str()));
            }
            open.load()
                .map_err(|error| Error::bpf("the kernel refused burst's BPF programs", error))
        })?;
        let map = object
            .maps()
            .find(|map| map.name() == "pl_burst_slots")
            .ok_or(Error::Incomplete {
                what: "map pl_burst_slots",
            })?;
        let ring = ring::Ring::map(map.as_fd(), slots, cpus)?;
        // The one in which the programs were attached is not whole.
        let now = monotonic_ns();
        let next = match now.checked_sub(options.origin_ns) {
            Some(since) => since / options.window_ns + 1,
            None => 0,
        };
        // Attachments and mappings keep the kernel's objects; `object` may go.
        Ok(Meter {
            attachment,
            ring,
            interface: options.interface.clone(),
            window_ns: options.window_ns,
            origin_ns: options.origin_ns,
            next,
        })
    }

    /// Which hook was taken.
    pub fn kind(&self) -> Kind {
        self.attachment.kind()
    }

    /// How many windows the kernel holds before it uses their counters again.
    pub fn held_windows(&self) -> u32 {
        self.ring.slots()
    }

    /// CLOCK_MONOTONIC at the start of the next window to be read, nanoseconds.
    pub fn next_start_ns(&self) -> u64 {
        self.start_of(self.next)
    }

    /// CLOCK_MONOTONIC from which [`Meter::take`] has that window, nanoseconds.
    pub fn next_ready_ns(&self) -> u64 {
        self.start_of(self.next + 1).saturating_add(GRACE_NS)
    }

    /// The windows that are over and were not taken yet, in order.
    ///
    /// # Errors
    /// [`Error::Interface`] when the interface is gone, or the programs were detached
    /// from it.
    pub fn take(&mut self) -> Result<Vec<Window>> {
        // Before the read of the counters: windows after a detachment may lack packets.
        let now = monotonic_ns();
        self.attachment.check(&self.interface)?;
        let mut windows = Vec::new();
        while self.next_ready_ns() <= now {
            windows.push(Window {
                start_ns: self.start_of(self.next),
                counts: self.ring.read(self.next),
            });
            self.next += 1;
        }
        Ok(windows)
    }

    fn start_of(&self, window: u64) -> u64 {
        self.origin_ns
            .saturating_add(window.saturating_mul(self.window_ns))
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        if self.filter.is_empty() || self.interface.link().is_some() {
            return Ok(());
        }
        Err(Error::Interface {
            interface: self.interface.name().to_owned(),
            why: format!(
                "its frames begin with neither an Ethernet nor an IP header (type {}), so no filter applies: count all packets",
                self.interface.hardware_type()
            ),
        })
    }

    fn config(&self, slots: u32) -> layout::Config {
        layout::Config {
            origin_ns: self.origin_ns,
            window_ns: self.window_ns,
            slots,
            whole_packets: self.whole_packets.into(),
            ethernet: (self.interface.link() != Some(interface::Link::Ip)).into(),
            reserved: 0,
            filter: *self.filter.terms(),
            padding: 0,
        }
    }
}

fn open_object() -> Result<OpenObject> {
    ObjectBuilder::default()
        .name("pl_burst")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(|error| Error::bpf("cannot open the BPF object of burst", error))
}

fn configure(open: &mut OpenObject, config: &layout::Config, slots: u32) -> Result<()> {
    let mut configured = false;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name.ends_with(".rodata") {
            let bytes = config.bytes();
            let place = map
                .initial_value_mut()
                .and_then(|value| value.get_mut(..bytes.len()))
                .ok_or(Error::Incomplete {
                    what: "configuration",
                })?;
            place.copy_from_slice(bytes);
            configured = true;
        } else if name == "pl_burst_slots" {
            map.set_max_entries(slots)
                .map_err(|error| Error::bpf("cannot size the counters", error))?;
        }
    }
    match configured {
        true => Ok(()),
        false => Err(Error::Incomplete {
            what: "configuration",
        }),
    }
}

/// CLOCK_MONOTONIC, which the programs read, nanoseconds.
pub fn monotonic_ns() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    })
}
