// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a workload does on one host, and what the host's kernel says of it: connections,
//! policies, packets, CPU.

pub mod adaptation;
pub mod connection;
pub mod coordination;
pub mod cpu;
pub mod empty_loop;
pub mod sample;
pub mod windows;
