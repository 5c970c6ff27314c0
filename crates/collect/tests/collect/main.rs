// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of runs, and the reports that are made of them.

mod bulk;
mod burst;
mod messages;
