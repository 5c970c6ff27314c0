// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The far one of two clusters:
//!
//! ```text
//! near hosts --- router wan === wan far router --- far hosts
//! ```

use std::sync::Arc;

use paceline_experiment::plan;
use paceline_net::Namespace;

use super::topology::{
    attach_hosts, default_route, host_address, interface, new_router, router_address, Bottleneck,
    RECEIVER_LINK,
};
use crate::CaseError;

/// Links with the numbers from here on lead to far hosts, but for the first: that
/// one is the receiver and has the receiver's number.
const FAR_LINKS: u8 = 100;
/// Between the two routers.
pub(super) const WAN_LINK: u8 = 254;
const _: () = assert!(
    plan::MOST_HOSTS < FAR_LINKS as u32 && FAR_LINKS as u32 + plan::MOST_HOSTS <= WAN_LINK as u32
);

/// The far side.
pub struct Far {
    /// Its hosts; the first one is the network's receiver.
    pub hosts: Vec<Arc<Namespace>>,
    /// Joins them to the link.
    pub router: Namespace,
}

impl Far {
    /// Builds everything beyond `router`'s interface `wan`.
    pub(super) fn build(
        router: &Namespace,
        wanted: &plan::Topology,
        bottleneck: &dyn Bottleneck,
    ) -> Result<Self, CaseError> {
        let far = new_router("far router")?;
        bottleneck.install(router, &far, "wan", wanted)?;
        let near_end = router_address(WAN_LINK, wanted.ip);
        let far_end = host_address(WAN_LINK, wanted.ip);
        router.ip(&(interface("wan", near_end, wanted) + &default_route(far_end)))?;
        far.ip(&(interface("wan", far_end, wanted) + &default_route(near_end)))?;
        // Neighbour entries across the link must outlast a long cut.
        let known = format!("net.ipv{}.neigh.wan.base_reachable_time_ms", wanted.ip);
        router.sysctl(&known, "86400000")?;
        far.sysctl(&known, "86400000")?;
        let links: Vec<u8> = (0..wanted.far_hosts.max(1)).map(far_link).collect();
        let hosts = attach_hosts(&far, "far", &links, wanted)?;
        Ok(Self { hosts, router: far })
    }
}

/// Number of the `index`-th far host's link.
pub(super) fn far_link(index: u32) -> u8 {
    match index {
        0 => RECEIVER_LINK,
        _ => FAR_LINKS + u8::try_from(index).expect("the experiment was checked"),
    }
}
