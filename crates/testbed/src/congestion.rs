// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A congestion control for all connections of the hosts that set none: by their routes. The
//! defaults that a namespace may have are a setting of the whole machine
//! (net.ipv4.tcp_allowed_congestion_control), and so is the default.

use std::net::{IpAddr, SocketAddr};

use paceline_net::connection::{congestion_of, connect_from_here, listen_here, Congestion};
use paceline_net::{Doing, Error};

use super::address;
use super::has_ipv6;
use super::node::{Node, HOST_DEVICE};
use super::topology::Topology;

/// Gives the routes of every one of the `hosts` of a topology the congestion control `name`.
///
/// # Errors
/// If this kernel has none of that name.
pub fn set(topology: &Topology, hosts: &[Node], name: &str) -> Result<(), Error> {
    for ((_, cluster, _), node) in topology.hosts().zip(hosts) {
        let via = address::switch(cluster);
        let [v4, v6] = address::networks(cluster);
        let host = node.network();
        host.ip(&format!(
            "route replace default via {} congctl {name}\nroute replace {v4} dev {HOST_DEVICE} scope link congctl {name}\n",
            via.v4
        ))?;
        if has_ipv6() {
            // Replacing one of several equal routes of IPv6 is adding another one.
            host.ip6(&format!(
                "route del default via {0}\nroute add default via {0} congctl {name}\nroute del {v6} dev {HOST_DEVICE}\nroute add {v6} dev {HOST_DEVICE} congctl {name}\n",
                via.v6
            ))?;
        }
    }
    Ok(())
}

/// The congestion control of connections from each host to the next one, and from the last to
/// the first, at both ends and in each family: the name, or, where they differ, all names.
pub fn read(topology: &Topology, hosts: &[Node]) -> Result<Option<String>, Error> {
    let hosts: Vec<(IpAddr, IpAddr, &Node)> = topology
        .hosts()
        .zip(hosts)
        .map(|((_, cluster, number), node)| {
            let own = address::host(cluster, number);
            (own.v4.into(), own.v6.into(), node)
        })
        .collect();
    let mut found = Vec::new();
    let next = hosts.iter().cycle().skip(1);
    for (&(_, _, from), &(v4, v6, to)) in hosts.iter().zip(next) {
        for address in [Some(v4), has_ipv6().then_some(v6)].into_iter().flatten() {
            for name in between(from, to, address)? {
                if !found.contains(&name) {
                    found.push(name);
                }
            }
        }
    }
    Ok(Some(found.join(" ")).filter(|names| !names.is_empty()))
}

/// Of a new connection from one host to another: at its sender and at its receiver. A
/// connection to itself, over the loopback, is not tested.
fn between(from: &Node, to: &Node, address: IpAddr) -> Result<Vec<String>, Error> {
    if std::ptr::eq(from, to) {
        return Ok(Vec::new());
    }
    let any_port = SocketAddr::new(address, 0);
    let listener = to.network().enter(|| listen_here(any_port, None))?;
    let place = listener.local_addr().doing("reading the port")?;
    let sender = from
        .network()
        .enter(|| connect_from_here(place, &Congestion::ANY))?;
    let (receiver, _) = listener.accept().doing("accepting a connection")?;
    [&sender, &receiver]
        .map(congestion_of)
        .into_iter()
        .collect()
}
