// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control laws, as the kernel compiles them. One program, because linking costs more than
//! most of these tests.

#[path = "../support/mod.rs"]
mod support;

mod changing;
mod delivery_rate;
mod even;
mod gaps;
mod grid;
mod incast;
mod learning;
mod neighbour;
mod phases;
mod properties;
mod random_loss;
mod refill;
mod sharing;
mod short;
mod short_queue;
mod spacing;
mod ssthresh;
mod turns;
mod wanted;
mod wary;
mod window_cap;
