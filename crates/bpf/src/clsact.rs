// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filters of cls_bpf in an interface's clsact queueing discipline, for kernels without TCX
//! (before 6.6). They outlive the process that made them.
//!
//! Interfaces are named by their number in the calling thread's network namespace.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{TcAttachPoint, TC_EGRESS, TC_INGRESS};

use crate::netlink;

/// Filters of the lowest priority number get a packet first.
pub const PRIORITY: u32 = 1;

/// Whether the discipline was made, and not there already.
///
/// # Errors
/// Where the kernel has none, or refuses.
pub fn make(interface: u32) -> io::Result<bool> {
    // SAFETY: the struct lives across the call.
    let result = unsafe { sys::bpf_tc_hook_create(&mut hook(interface, TC_INGRESS | TC_EGRESS)) };
    match -result {
        0 => Ok(true),
        libc::EEXIST => Ok(false),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Removes the discipline unless any filters are attached there.
pub fn remove(interface: u32) {
    match netlink::filters(interface) {
        Ok(0) => {
            // SAFETY: the struct lives across the call.
            unsafe { sys::bpf_tc_hook_destroy(&mut hook(interface, TC_INGRESS | TC_EGRESS)) };
        }
        Ok(_) => {}
        Err(error) => tracing::debug!("cannot remove clsact from interface {interface}: {error}"),
    }
}

/// Attaches a program as the filter of this handle.
///
/// # Errors
/// The kernel's: a filter of another kind has [`PRIORITY`], or this handle is taken.
pub fn attach(
    interface: u32,
    handle: u32,
    point: TcAttachPoint,
    program: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut options = options(handle);
    options.prog_fd = program.as_raw_fd();
    // SAFETY: both structs live across the call.
    let result = unsafe { sys::bpf_tc_attach(&hook(interface, point), &mut options) };
    match result {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// The id of the program of the filter with this handle.
pub fn program_id(interface: u32, handle: u32, point: TcAttachPoint) -> Option<u32> {
    let mut options = options(handle);
    // SAFETY: both structs live across the call.
    let result = unsafe { sys::bpf_tc_query(&hook(interface, point), &mut options) };
    (result == 0).then_some(options.prog_id)
}

/// Detaches the filter with this handle.
pub fn detach(interface: u32, handle: u32, point: TcAttachPoint) {
    // SAFETY: both structs live across the call.
    let result = unsafe { sys::bpf_tc_detach(&hook(interface, point), &options(handle)) };
    if result != 0 {
        let error = io::Error::from_raw_os_error(-result);
        tracing::debug!("cannot detach from interface {interface}: {error}");
    }
}

fn hook(interface: u32, point: TcAttachPoint) -> sys::bpf_tc_hook {
    sys::bpf_tc_hook {
        sz: size_of::<sys::bpf_tc_hook>() as sys::size_t,
        ifindex: interface as i32,
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
