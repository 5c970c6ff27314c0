// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP in simulated time.
#![allow(missing_docs)]

pub mod agenda;
pub mod event;
pub mod link;
pub mod measures;
pub mod meter;
pub mod model;
pub mod output;
pub mod page;
pub mod random;
pub mod receiver;
pub mod red;
pub mod scenario;
pub mod sender;
pub mod source;
pub mod statistics;
pub mod sweep;
pub mod world;
