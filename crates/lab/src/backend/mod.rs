// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a plan runs: each takes one and gives its records.
//!
//! - `virtual`: [`paceline_machine`] outside, [`guest_main`] inside;
//! - [`live`]: on this machine's kernel;
//! - `sim`: [`paceline_simulated`].

pub mod live;

use paceline_experiment::plan::Means;
use paceline_machine::guest;

use crate::network::bottleneck;
use crate::workload;

/// The first process of a guest that was booted for a plan, or for a command: runs it and
/// powers off.
pub fn guest_main() -> ! {
    guest::init_main(|plan, sink| {
        let means = plan.topology.bottleneck.unwrap_or(Means::Kernel);
        Ok(workload::run(plan, &*bottleneck(means), sink)?)
    })
}
