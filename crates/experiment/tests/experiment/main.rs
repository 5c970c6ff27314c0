// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of experiments: what is read, and what is refused.

mod file;
mod impairments;
mod messages;
mod paper;
mod paths;
mod programs;
mod transfers;
