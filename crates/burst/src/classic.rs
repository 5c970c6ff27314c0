// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cls_bpf, for kernels without TCX (before 6.6).
//!
//! Such a filter outlives the process that made it. Each process takes a place, and with it the
//! handle of its filters and an abstract Unix socket in the interface's network namespace. A
//! place whose socket is free belongs to no living process, so the next start removes its
//! leftovers.

use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use libbpf_rs::{Program, ProgramHandle, TcAttachPoint, TC_EGRESS, TC_INGRESS};
use paceline_bpf::clsact::{self, PRIORITY};

use super::Interface;
use crate::error::{Error, Result};

/// Processes that count at one interface at the same time, at most.
const PLACES: u32 = 16;
/// In a handle: the clsact discipline was made by `paceline burst`, and goes with the
/// last of its filters.
const OURS: u32 = 0x100;
const NAME_START: &str = "pl_burst_";

#[derive(Debug)]
pub(super) struct Classic {
    interface: Interface,
    handle: u32,
    places: Vec<TcAttachPoint>,
    /// Shows that this process lives.
    _sign: UnixListener,
}

impl Classic {
    pub fn attach(
        interface: &Interface,
        programs: &[(TcAttachPoint, Program<'_>)],
    ) -> Result<Self> {
        let mut ours = clsact::make(interface.index()).map_err(|error| {
            let name = interface.name();
            Error::system(
                format!("cannot attach to {name} by cls_bpf: no clsact"),
                error,
            )
        })?;
        let mut own = None;
        for place in 1..=PLACES {
            let sign = sign(interface, place);
            for handle in [place, place | OURS] {
                for point in [TC_INGRESS, TC_EGRESS] {
                    if !has_filter(interface, handle, point) {
                        continue;
                    }
                    ours |= handle & OURS != 0;
                    if sign.is_ok() {
                        tracing::info!(
                            "removing the filters that a killed paceline burst left on {}",
                            interface.name()
                        );
                        clsact::detach(interface.index(), handle, point);
                    }
                }
            }
            if let (None, Ok(sign)) = (&own, sign) {
                own = Some((place, sign));
            }
        }
        let Some((place, sign)) = own else {
            return Err(Error::Interface {
                interface: interface.name().to_owned(),
                why: format!("{PLACES} other paceline burst processes already count there"),
            });
        };
        let mut classic = Classic {
            interface: interface.clone(),
            handle: if ours { place | OURS } else { place },
            places: Vec::new(),
            _sign: sign,
        };
        for (point, program) in programs {
            clsact::attach(interface.index(), classic.handle, *point, program.as_fd()).map_err(|error| {
                Error::system(
                    format!(
                        "cannot attach to {} by cls_bpf (another kind of filter may have priority {PRIORITY})",
                        interface.name()
                    ),
                    error,
                )
            })?;
            classic.places.push(*point);
        }
        Ok(classic)
    }

    pub fn is_attached(&self) -> bool {
        self.places
            .iter()
            .all(|point| has_filter(&self.interface, self.handle, *point))
    }
}

impl Drop for Classic {
    fn drop(&mut self) {
        for point in &self.places {
            clsact::detach(self.interface.index(), self.handle, *point);
        }
        if self.handle & OURS != 0 {
            clsact::remove(self.interface.index());
        }
    }
}

fn sign(interface: &Interface, place: u32) -> std::io::Result<UnixListener> {
    let name = format!("paceline-burst-{}-{place}", interface.index());
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Whether one of our programs is there.
fn has_filter(interface: &Interface, handle: u32, point: TcAttachPoint) -> bool {
    clsact::program_id(interface.index(), handle, point)
        .and_then(|id| ProgramHandle::from_prog_id(id).ok())
        .is_some_and(|program| program.name().to_string_lossy().starts_with(NAME_START))
}
