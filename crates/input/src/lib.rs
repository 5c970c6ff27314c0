// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How Paceline reads what people write: rates, sizes and times with their units.

#![forbid(unsafe_code)]

pub mod units;
