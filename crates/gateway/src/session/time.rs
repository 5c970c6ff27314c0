// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time, which the owner passes to the session.

/// Nanoseconds of any clock that never goes back.
pub type Nanos = u64;
/// A millisecond.
pub const MS: Nanos = 1_000_000;
/// A second.
pub const SECOND: Nanos = 1_000 * MS;
