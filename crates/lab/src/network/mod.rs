// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network of a plan: built of hosts, routers and a bottleneck, read back, changed while
//! it is used, and watched.

pub(crate) mod calibrate;
pub(crate) mod changes;
pub(crate) mod clusters;
mod codel;
pub(crate) mod emulated;
pub(crate) mod gateways;
pub(crate) mod impairments;
pub(crate) mod kernel_link;
mod one_switch;
pub(crate) mod packets;
pub(crate) mod routes;
pub mod topology;
pub(crate) mod validity;
pub(crate) mod wan;

use paceline_experiment::plan::Means;

use self::emulated::EmulatedBottleneck;
use self::kernel_link::KernelBottleneck;
use self::topology::Bottleneck;

/// A bottleneck made of `means`.
pub fn bottleneck(means: Means) -> Box<dyn Bottleneck> {
    match means {
        Means::Kernel => Box::new(KernelBottleneck::default()),
        Means::Emulator => Box::new(EmulatedBottleneck::default()),
    }
}
