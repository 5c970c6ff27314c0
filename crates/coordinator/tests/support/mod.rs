// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared by tests and the figures: a small deterministic model of senders at a
//! bottleneck.
#![allow(dead_code)]

pub mod cases;
pub mod host;
pub mod model;
pub mod sender;
