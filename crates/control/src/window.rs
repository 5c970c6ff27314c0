// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The window cap (`bpf/control/window_cap.h`).

use paceline_abi::pl_uwnd;

use crate::bindings::{self, pl_orders, pl_tcp, pl_window};

/// The bounds of one connection's window, from outside. [`Default`] is a connection without
/// bounds.
#[derive(Debug, Clone, Default)]
pub struct Window {
    window: pl_window,
}

impl Window {
    /// Called before a transmission. `tcp.cwnd` is the base's cwnd ([`Window::base_cwnd`]).
    /// The orders' window is the effective cwnd, which is 0 only if the base's is.
    pub fn before_send(&mut self, uwnd: &pl_uwnd, tcp: &pl_tcp) -> pl_orders {
        let mut orders = pl_orders::default();
        // SAFETY: valid references to plain structs; the C function keeps none.
        unsafe { bindings::paceline_window_before_send(&mut self.window, uwnd, tcp, &mut orders) };
        orders
    }

    /// The base algorithm's cwnd, where the connection has `cwnd`.
    pub fn base_cwnd(&self, cwnd: u32) -> u32 {
        // SAFETY: as above.
        unsafe { bindings::paceline_window_base_cwnd(&self.window, cwnd) }
    }

    /// The window that the base is to grow from.
    pub fn before_growth(&mut self, cwnd: u32) -> u32 {
        // SAFETY: as above.
        unsafe { bindings::paceline_window_before_growth(&mut self.window, cwnd) }
    }

    /// The cwnd for the base while it handles an ACK.
    pub fn before_ack(&self, cwnd: u32) -> u32 {
        // SAFETY: as above.
        unsafe { bindings::paceline_window_before_ack(&self.window, cwnd) }
    }

    /// And the effective cwnd after it.
    pub fn after_ack(&self, cwnd: u32) -> u32 {
        // SAFETY: as above.
        unsafe { bindings::paceline_window_after_ack(&self.window, cwnd) }
    }

    /// A loss, with so many segments in flight: the window that the base is to reduce.
    pub fn lost(&mut self, cwnd: u32, packets_out: u32) -> u32 {
        // SAFETY: as above.
        unsafe { bindings::paceline_window_lost(&mut self.window, cwnd, packets_out) }
    }

    /// The loss was spurious, and the base restores `cwnd`: the window to restore instead.
    pub fn undo(&mut self, cwnd: u32) -> u32 {
        // SAFETY: as above.
        unsafe { bindings::paceline_window_undo(&mut self.window, cwnd) }
    }

    /// Another law has set the base's window.
    pub fn set(&mut self) {
        // SAFETY: as above.
        unsafe { bindings::paceline_window_set(&mut self.window) }
    }

    /// The law's state of the connection.
    pub fn raw(&self) -> &pl_window {
        &self.window
    }
}

/// Adds a bound to others, unless its lease has ended: all hold, and the cap above the
/// lift.
pub fn uwnd_add(to: &mut pl_uwnd, other: &pl_uwnd, now_us: u64) {
    // SAFETY: as above.
    unsafe { bindings::paceline_uwnd_add(to, other, now_us) }
}
