// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How Paceline reads the TOML files that people write.
//!
//! A kind of file is a type with serde's `Deserialize` and schemars' `JsonSchema`. Editors
//! use the schema, and [`Reader`] walks a [`Document`] along the same schema: it finds all
//! keys that are unknown, missing, of a wrong type, of an unknown word, without their unit or
//! out of range, each with its place and the right form. Checks that a schema cannot express
//! follow, at a [`Place`] of the document: [`Document::check`].
//!
//! Nothing here reads a file, a clock or global state.

#![forbid(unsafe_code)]

mod document;
mod nearest;
mod percent;
mod problem;
mod reader;
mod schema;
pub mod units;

pub use document::{Document, Place, Reported};
pub use nearest::{did_you_mean, nearest};
pub use percent::Percent;
pub use problem::{Problem, Problems};
pub use reader::{Format, Reader};
pub use schema::schema;
pub use units::quoted;
