// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address plan. Cluster c, from 1, is 10.c.0.0/24 and fd00:9a:c::/64: host n has the
//! number n + 1 there, the switch 254 (0xfe). The link w, from 0, has 10.254.w.0/30 and
//! fd00:9a:fe00:w::/64 between its two routers.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::topology::Topology;

/// Last part of a switch's addresses; hosts' are 1 to 250.
const SWITCH: u8 = 254;
/// Second byte of the links' addresses; clusters' are 1 to 32.
const WANS: u8 = 254;
/// The same in IPv6.
const WANS6: u16 = 0xfe00;
const UNIQUE_LOCAL: [u16; 2] = [0xfd00, 0x9a];

/// Both addresses of one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4.
    pub v4: Ipv4Addr,
    /// IPv6, as far as this kernel has it.
    pub v6: Ipv6Addr,
}

/// Of a host.
pub fn host(cluster: usize, number: u32) -> Addresses {
    in_cluster(
        cluster,
        u8::try_from(number + 1).expect("at most 250 hosts"),
    )
}

/// Of a cluster's switch, its hosts' gateway.
pub fn switch(cluster: usize) -> Addresses {
    in_cluster(cluster, SWITCH)
}

fn in_cluster(cluster: usize, last: u8) -> Addresses {
    let cluster = u8::try_from(cluster + 1).expect("at most 32 clusters");
    Addresses {
        v4: Ipv4Addr::new(10, cluster, 0, last),
        v6: v6(u16::from(cluster), 0, last),
    }
}

/// Of one end of a link: the router of its `from`, or of its `to`.
pub fn wan(wan: usize, is_from: bool) -> Addresses {
    let number = u8::try_from(wan).expect("at most 32 links");
    let last = if is_from { 1 } else { 2 };
    Addresses {
        v4: Ipv4Addr::new(10, WANS, number, last),
        v6: v6(WANS6, u16::from(number), last),
    }
}

/// Hardware address of one end of a link.
pub fn wan_mac(wan: usize, is_from: bool) -> String {
    // 02: given by an administrator, not by a maker.
    format!("02:9a:fe:00:{wan:02x}:{:02x}", if is_from { 1 } else { 2 })
}

fn v6(third: u16, fourth: u16, last: u8) -> Ipv6Addr {
    let [first, second] = UNIQUE_LOCAL;
    Ipv6Addr::new(first, second, third, fourth, 0, 0, 0, u16::from(last))
}

/// The networks of a cluster, as `ip route` takes them.
pub fn networks(cluster: usize) -> [String; 2] {
    let Addresses { v4, v6 } = in_cluster(cluster, 0);
    [format!("{v4}/24"), format!("{v6}/64")]
}

/// /etc/hosts of every node.
pub fn hosts_file(topology: &Topology, ipv6: bool) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    let mut add = |addresses: Addresses, name: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {name}", addresses.v4);
        if ipv6 {
            let _ = writeln!(text, "{} {name}", addresses.v6);
        }
    };
    for (name, cluster, number) in topology.hosts() {
        add(host(cluster, number), &name);
    }
    for (at, cluster) in topology.clusters.iter().enumerate() {
        add(switch(at), &cluster.name);
    }
    text
}
