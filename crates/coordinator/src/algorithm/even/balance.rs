// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Between routes.

use std::time::Duration;

use super::{Known, RouteId};

#[derive(Debug, Default)]
pub(super) struct Balance;

impl Balance {
    pub fn update(&mut self, _now: Duration, _routes: &mut [(RouteId, Known)]) {}
}
