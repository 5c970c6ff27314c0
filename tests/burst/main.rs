// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline burst` from outside: what it counts is what was sent, it agrees with the
//! emulator's record, and nothing of it stays. Needs root.

#[path = "../common/mod.rs"]
mod common;

mod agreement;
mod counting;
mod ending;
mod place;
