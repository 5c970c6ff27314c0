// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gateway without a network: its configuration, and its sessions in virtual time.

#[path = "../common/mod.rs"]
mod common;

mod config;
mod learned;
mod properties;
mod session;
