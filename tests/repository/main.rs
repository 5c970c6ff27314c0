// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold in the repository itself: its structure, licences, and generated files.

mod dependencies;
mod links;
mod result_tables;
mod schemas;
mod structure;
