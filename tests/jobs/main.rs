// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs with connections, and what users and root see of them. Each test takes its turn with the
//! host's kernel side (`common::alone`), so in one program they run as one after the other.

#[path = "../common/mod.rs"]
mod common;

mod agent;
mod attach;
mod doctor_job;
mod even_streams;
mod groups;
mod one_side;
mod phases;
mod report;
mod rto;
mod run;
mod step;
mod strangers;
mod verdict;
