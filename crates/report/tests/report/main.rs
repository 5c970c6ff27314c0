// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The crate from outside.

mod claims;
mod comparison;
mod escaping;
mod interactive;
mod ladder;
mod paper;
mod paths;
mod precision;
mod results;
mod sample;
mod views;
