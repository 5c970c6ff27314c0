// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parallel streams that finish together (kamezawa-2004, section 5).

pub mod algorithm;
pub mod local;
pub mod protocol;
pub mod security;
