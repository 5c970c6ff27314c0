// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator against closed forms, papers and properties.

mod beowulf;
mod closed_forms;
mod coordination;
mod properties;
mod sweeps;
