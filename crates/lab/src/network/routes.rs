// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routes beside the link: lines of their own between router and receiver, which differ in
//! rate, queue and round trip (kamezawa-2004, 6.1). Connections to a route's address of the
//! receiver use it, there and back.

use std::net::SocketAddr;

use paceline_experiment::plan::Route;
use paceline_net::shaper::shaper;

use super::kernel_link::delay;
use super::topology::{
    configuration, host_address, interface, router_address, sender_link, switch_offload_off,
    Network,
};
use crate::CaseError;

/// Numbers of their links: behind those of all senders.
const FIRST_LINK: u8 = 251;

/// The receiver's address on route `number`.
pub fn receiver_address(network: &Network, number: usize) -> SocketAddr {
    SocketAddr::new(host_address(link(number), network.wanted.ip), 0)
}

fn link(number: usize) -> u8 {
    FIRST_LINK + u8::try_from(number).expect("the experiment was checked: at most four routes")
}

/// Makes the routes, each that of the next hosts.
pub fn add(network: &Network, routes: &[Route]) -> Result<(), CaseError> {
    let (wanted, router, receiver) = (&network.wanted, &network.router, &network.receiver);
    let mut hosts = 0..;
    for (number, route) in routes.iter().enumerate() {
        let (ours, theirs) = (format!("route{number}"), format!("eth{}", number + 1));
        let link = link(number);
        let at_router = router_address(link, wanted.ip);
        router.ip(&format!(
            "link add {ours} type veth peer name {theirs} netns {}\n{}",
            receiver.path(),
            configuration(&ours, link, true, wanted)
        ))?;
        let mut lines = interface(&theirs, host_address(link, wanted.ip), wanted);
        for host in hosts.by_ref().take(route.hosts as usize) {
            let host = host_address(sender_link(host), wanted.ip);
            lines += &format!("route add {host} via {at_router}\n");
        }
        receiver.ip(&lines)?;
        router.tc(&shaper(
            "add",
            &ours,
            route.rate_bps,
            route.buffer_bytes,
            wanted.mtu,
        ))?;
        receiver.tc(&delay(&theirs, route.rtt_ns))?;
        if !wanted.offload {
            router.enter(|| switch_offload_off(&ours))?;
            receiver.enter(|| switch_offload_off(&theirs))?;
        }
    }
    Ok(())
}

/// Removes them: the receiver's ends and the routes over them go with the router's ends.
pub fn remove(network: &Network, routes: &[Route]) -> Result<(), CaseError> {
    let lines: String = (0..routes.len())
        .map(|number| format!("link del route{number}\n"))
        .collect();
    Ok(network.router.ip(&lines)?)
}
