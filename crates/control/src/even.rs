// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Even streams (`bpf/control/even.h`).

use paceline_abi::pl_path;

use crate::bindings::{self, pl_even, pl_orders, pl_tcp};

/// One of the connections that share a path's window. [`Default`] is one that has not sent
/// yet.
#[derive(Debug, Clone, Default)]
pub struct Even {
    even: pl_even,
}

impl Even {
    /// Called before a transmission. The orders have the window, and an ssthresh where slow
    /// start ends; zero means no change.
    pub fn before_send(&mut self, path: &mut pl_path, tcp: &pl_tcp) -> pl_orders {
        let mut orders = pl_orders::default();
        // SAFETY: valid references to plain structs; the C function keeps none.
        unsafe { bindings::paceline_even_before_send(&mut self.even, path, tcp, &mut orders) };
        orders
    }

    /// A loss, at which the base algorithm reduces the window from `cwnd` to `ssthresh`.
    pub fn lost(&mut self, path: &mut pl_path, cwnd: u32, ssthresh: u32) {
        // SAFETY: as above.
        unsafe { bindings::paceline_even_lost(&mut self.even, path, cwnd, ssthresh) }
    }

    /// The loss was spurious.
    pub fn undo(&mut self, path: &mut pl_path) {
        // SAFETY: as above.
        unsafe { bindings::paceline_even_undo(&mut self.even, path) }
    }

    /// The connection has nothing more to send, or ends.
    pub fn leave(&mut self, path: &mut pl_path) {
        // SAFETY: as above.
        unsafe { bindings::paceline_even_leave(&mut self.even, path) }
    }
}
