// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two sessions over a simulated link, in virtual time: the same seed gives the same run.

#![allow(dead_code, reason = "each test uses its part")]

pub mod link;
pub mod world;
