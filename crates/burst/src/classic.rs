// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cls_bpf, for kernels without TCX (before 6.6).
//!
//! Such a filter outlives the process that made it. Each process takes a place, and with it the
//! handle of its filters and an abstract Unix socket in the interface's network namespace. A
//! place whose socket is free belongs to no living process, so the next start removes its
//! leftovers.

use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{Program, ProgramHandle, TcAttachPoint, TC_EGRESS, TC_INGRESS};

use super::Interface;
use crate::error::{Error, Result};

/// Processes that count at one interface at the same time, at most.
const PLACES: u32 = 16;
/// In a handle: the clsact discipline was made by `paceline burst`, and goes with the
/// last of its filters.
const OURS: u32 = 0x100;
/// Filters of the least number see a packet first.
const PRIORITY: u32 = 1;
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
        let mut ours = make_discipline(interface)?;
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
                        detach(interface, handle, point);
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
            let mut options = options(classic.handle);
            options.prog_fd = program.as_fd().as_raw_fd();
            // SAFETY: both structs live across the call.
            let result = unsafe { sys::bpf_tc_attach(&hook(interface, *point), &mut options) };
            if result != 0 {
                return Err(Error::system(
                    format!(
                        "cannot attach to {} by cls_bpf (another kind of filter may have priority {PRIORITY})",
                        interface.name()
                    ),
                    std::io::Error::from_raw_os_error(-result),
                ));
            }
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
            detach(&self.interface, self.handle, *point);
        }
        if self.handle & OURS != 0 {
            remove_discipline(&self.interface);
        }
    }
}

fn sign(interface: &Interface, place: u32) -> std::io::Result<UnixListener> {
    let name = format!("paceline-burst-{}-{place}", interface.index());
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Whether it was made, and not there already.
fn make_discipline(interface: &Interface) -> Result<bool> {
    // SAFETY: the struct lives across the call.
    let result = unsafe { sys::bpf_tc_hook_create(&mut hook(interface, TC_INGRESS | TC_EGRESS)) };
    match -result {
        0 => Ok(true),
        libc::EEXIST => Ok(false),
        error => Err(Error::system(
            format!(
                "cannot attach to {} by cls_bpf: no clsact",
                interface.name()
            ),
            std::io::Error::from_raw_os_error(error),
        )),
    }
}

/// Unless other filters are attached there.
fn remove_discipline(interface: &Interface) {
    match super::netlink::filters(interface.index()) {
        Ok(0) => {
            // SAFETY: the struct lives across the call.
            unsafe { sys::bpf_tc_hook_destroy(&mut hook(interface, TC_INGRESS | TC_EGRESS)) };
        }
        Ok(_) => {}
        Err(error) => tracing::debug!("cannot remove clsact from {}: {error}", interface.name()),
    }
}

/// Whether one of our programs is there.
fn has_filter(interface: &Interface, handle: u32, point: TcAttachPoint) -> bool {
    let mut options = options(handle);
    // SAFETY: both structs live across the call.
    let result = unsafe { sys::bpf_tc_query(&hook(interface, point), &mut options) };
    result == 0
        && ProgramHandle::from_prog_id(options.prog_id)
            .is_ok_and(|program| program.name().to_string_lossy().starts_with(NAME_START))
}

fn detach(interface: &Interface, handle: u32, point: TcAttachPoint) {
    // SAFETY: both structs live across the call.
    let result = unsafe { sys::bpf_tc_detach(&hook(interface, point), &options(handle)) };
    if result != 0 {
        let error = std::io::Error::from_raw_os_error(-result);
        tracing::debug!("cannot detach from {}: {error}", interface.name());
    }
}

fn hook(interface: &Interface, point: TcAttachPoint) -> sys::bpf_tc_hook {
    sys::bpf_tc_hook {
        sz: size_of::<sys::bpf_tc_hook>() as sys::size_t,
        ifindex: interface.index() as i32,
        attach_point: point,
        ..Default::default()
    }
}

fn options(handle: u32) -> sys::bpf_tc_opts {
    sys::bpf_tc_opts {
        sz: size_of::<sys::bpf_tc_opts>() as sys::size_t,
        handle,
        priority: PRIORITY,
        ..Default::default()
    }
}
