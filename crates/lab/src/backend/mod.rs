// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a plan runs: each takes one and gives its records.
//!
//! - [`virtual_machine`], [`guest`]: the `virtual` backend, outside and inside;
//! - [`live`]: on this machine's kernel;
//! - [`simulated`]: in the simulator.

#[allow(unsafe_code, reason = "the first process of a guest")]
pub mod guest;
pub mod live;
pub mod simulated;
#[allow(unsafe_code, reason = "scheduling of QEMU")]
pub mod virtual_machine;
