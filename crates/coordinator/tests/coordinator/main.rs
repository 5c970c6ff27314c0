// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The coordinator: algorithms, protocol, server and clients.

#[path = "../support/mod.rs"]
mod support;

mod algorithms;
mod decoder;
mod regression;
mod security;
mod service;
