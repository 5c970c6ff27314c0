// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A workload's part on one host, and the host kernel's information about it: connections,
//! policies, packets, CPU.

pub mod adaptation;
pub mod connection;
pub mod coordination;
pub mod cpu;
pub mod empty_loop;
pub mod trace;
pub mod windows;
