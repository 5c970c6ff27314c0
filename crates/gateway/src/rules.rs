// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules that lead packets of other hosts to a transparent gateway (TPROXY): a table of nftables of
//! its own, and for each family a routing rule with a table of one local route. See the kernel's
//! Documentation/networking/tproxy.rst.
//!
//! They are removed when [`Rules`] is dropped. The next start removes rules of a killed gateway;
//! until then no socket takes the packets, and they are forwarded as if there were no rule.

use ipnet::IpNet;
use paceline_net::namespace::ip_of;
use paceline_net::{nft, Error};

use crate::config::Transparent;

/// Mark of packets that this host must take for its own, and number and priority of the routing
/// table and rule for it: "pl" in ASCII. Routing rules of the host's own come before and after.
pub const MARK: u32 = 0x706c;
/// Mark of packets of programs of this host whose connections are led here, until they are in.
const LED_MARK: u32 = 0x706e;
/// Mark of packets to destinations that this gateway dials for its peers: never taken again.
pub const LOOP_MARK: u32 = 0x706d;
/// Group to which the SYNs of honest connects are logged.
pub const GROUP: u16 = 0x706c;
/// A connection's first segment.
const SYN: &str = "tcp flags & (fin | syn | rst | ack) == syn";
const TABLE: &str = "paceline_gateway";

/// Rules that are in force.
#[derive(Debug)]
pub struct Rules {
    families: Vec<bool>,
}

impl Rules {
    /// Replaces the rules of a killed gateway. The listeners must be open: their port keeps two
    /// gateways of one network namespace apart.
    ///
    /// # Errors
    /// If `nft` or `ip` refuses, or is not there. Nothing is left then.
    pub fn add(transparent: &Transparent, is_honest: bool) -> Result<Self, Error> {
        remove_routes(&[false, true]);
        let families = families(transparent);
        // From here on an error removes all rules.
        let rules = Self { families };
        for is_v6 in &rules.families {
            let all = if *is_v6 { "::/0" } else { "0.0.0.0/0" };
            ip_of(
                *is_v6,
                &format!(
                    "route replace local {all} dev lo table {MARK}\n\
                     rule add fwmark {MARK:#x} lookup {MARK} pref {MARK}\n\
                     rule add fwmark {LED_MARK:#x} lookup {MARK} pref {MARK}\n"
                ),
            )?;
        }
        nft::apply(&ruleset(transparent, is_honest))?;
        Ok(rules)
    }
}

/// Leads the connections of programs in these cgroups (paths below the root of cgroup v2) here,
/// and no others.
///
/// # Errors
/// If `nft` refuses: there is no such cgroup, or cgroup v2 is not at /sys/fs/cgroup.
pub fn lead(cgroups: &[String]) -> Result<(), Error> {
    let mut rules = format!("flush chain inet {TABLE} output\n");
    for cgroup in cgroups {
        let level = cgroup.split('/').count();
        rules += &format!(
            "add rule inet {TABLE} output socket cgroupv2 level {level} \"{cgroup}\" jump led\n"
        );
    }
    nft::apply(&rules)
}

impl Drop for Rules {
    fn drop(&mut self) {
        if let Err(error) = nft::apply(&none()) {
            tracing::warn!("the table {TABLE} is left: {error}");
        }
        remove_routes(&self.families);
    }
}

/// Families of the destinations: false for IPv4, true for IPv6.
pub fn families(transparent: &Transparent) -> Vec<bool> {
    let has = |is_v6: bool| {
        let mut to = transparent.to.networks.iter();
        to.any(|network| matches!(network, IpNet::V6(_)) == is_v6)
    };
    [false, true].into_iter().filter(|v6| has(*v6)).collect()
}

/// Both commands fail where there is nothing to remove, which is no error.
fn remove_routes(families: &[bool]) {
    for is_v6 in families {
        for mark in [MARK, LED_MARK] {
            let rule = format!("rule del fwmark {mark:#x} lookup {MARK} pref {MARK}\n");
            // Starts that were killed half-way may have left more than one.
            while ip_of(*is_v6, &rule).is_ok() {}
        }
        let _ = ip_of(*is_v6, &format!("route flush table {MARK}\n"));
    }
}

/// Removes the table, whether it is there or not.
fn none() -> String {
    format!("table inet {TABLE}\ndelete table inet {TABLE}\n")
}

fn ruleset(transparent: &Transparent, is_honest: bool) -> String {
    let Transparent {
        interface,
        to,
        port,
        ..
    } = transparent;
    let list = |items: Vec<String>| items.join(", ");
    let ports = list(to.ports.iter().map(ToString::to_string).collect());
    let (mut let_go, mut led, mut rules) = (String::new(), String::new(), String::new());
    for is_v6 in families(transparent) {
        let family = if is_v6 { "ip6" } else { "ip" };
        let networks = to.networks.iter();
        let networks = networks.filter(|network| matches!(network, IpNet::V6(_)) == is_v6);
        let networks = list(networks.map(ToString::to_string).collect());
        let taken = format!(
            "add rule inet {TABLE} prerouting {family} daddr {{ {networks} }} \
             tcp dport {{ {ports} }}"
        );
        let lead = format!("tproxy {family} to :{port}");
        let protocol = if is_v6 { "ipv6" } else { "ipv4" };
        let own = format!("add rule inet {TABLE} prerouting iifname lo meta nfproto {protocol}");
        if is_honest {
            // `tproxy` ends a rule where no socket takes connections, so a killed gateway's
            // rule drops nothing.
            let held = format!("{SYN} {lead} log group {GROUP} queue-threshold 1 drop");
            let_go += &format!(
                "{own} meta mark {MARK:#x} {SYN} {lead} accept\n\
                 {own} meta mark {LED_MARK:#x} {held}\n"
            );
            rules += &format!("{taken} {held}\n");
        }
        let_go += &format!("{own} meta mark {LED_MARK:#x} meta l4proto tcp {lead} accept\n");
        led += &format!(
            "add rule inet {TABLE} led {family} daddr {{ {networks} }} tcp dport {{ {ports} }} \
             meta mark set {LED_MARK:#x}\n"
        );
        rules += &format!("{taken} {lead} meta mark set {MARK:#x} accept\n");
    }
    let others = match interface {
        Some(interface) => format!("iifname != \"{interface}\" return"),
        None => "return".to_owned(),
    };
    // First, connections of the gateway, also those to networks of a former configuration; but
    // `tproxy` decides about a SYN for one in TIME-WAIT, so that the host can begin anew. The
    // gateway takes no connections to its own addresses, such as ssh.
    format!(
        "{}add table inet {TABLE}\n\
         add chain inet {TABLE} prerouting {{ type filter hook prerouting priority mangle; }}\n\
         add chain inet {TABLE} output {{ type route hook output priority mangle; }}\n\
         add chain inet {TABLE} led\n\
         add rule inet {TABLE} led fib daddr type local return\n\
         {led}{let_go}\
         add rule inet {TABLE} prerouting {others}\n\
         add rule inet {TABLE} prerouting meta l4proto != tcp return\n\
         add rule inet {TABLE} prerouting meta mark {LOOP_MARK:#x} return\n\
         add rule inet {TABLE} prerouting tcp flags & (fin | syn | rst | ack) != syn \
         socket transparent 1 socket wildcard 0 \
         meta mark set {MARK:#x} accept\n\
         add rule inet {TABLE} prerouting fib daddr type local return\n\
         {rules}",
        none()
    )
}
