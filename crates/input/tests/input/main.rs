// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Users' TOML files: values with units, and errors with their places.

mod reader;
mod units;
