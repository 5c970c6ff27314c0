// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dumbbell. Each sender host has a link of its own to the router; the
//! router's link to the receiver host is the bottleneck:
//!
//! ```text
//! sender0 eth0 --- edge0 router wan === eth0 receiver
//! sender1 eth0 --- edge1
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::{CaseError, Doing, Namespace};
use crate::plan;

/// A shaper lets this much through at line rate: two packets, the least with
/// which the kernel's tbf keeps up with its rate.
const SHAPER_BURST_BYTES: u32 = 3100;
/// Preamble, frame check sequence and gap, which a kernel queue does not see:
/// with it a link of 500 Mbit/s carries what an Ethernet of that speed would.
pub const FRAMING_BYTES: u32 = 24;
/// Ethernet header, which a kernel queue does see.
pub const ETHERNET_HEADER_BYTES: u32 = 14;
/// Queue of a host's own link: deep enough never to drop, as a host's own
/// interface does not drop what its TCP sends.
const EDGE_QUEUE_BYTES: u32 = 64_000_000;

/// What makes the path between router and receiver slow, long and shallow.
pub trait Bottleneck: Sync {
    /// Makes the interfaces `wan` in `router` and `eth0` in `receiver`, joined by
    /// a link of the rate, delay and buffer of `wanted`. Addresses are none of
    /// its business.
    fn install(
        &self,
        router: &Namespace,
        receiver: &Namespace,
        wanted: &plan::Topology,
    ) -> Result<(), CaseError>;

    /// Changes the rate of the installed link, bits per second.
    fn set_rate(
        &self,
        router: &Namespace,
        wanted: &plan::Topology,
        rate_bps: u64,
    ) -> Result<(), CaseError>;
}

/// The kernel's own queues: tbf with a drop-tail queue towards the receiver, and
/// netem on the way back, which holds the whole round trip's delay. TCP sees only
/// the sum, and in this order netem's queue is never part of the bottleneck's.
#[derive(Debug)]
pub struct KernelBottleneck;

impl KernelBottleneck {
    fn shaper(verb: &str, wanted: &plan::Topology, rate_bps: u64) -> String {
        format!(
            "qdisc {verb} dev wan root tbf rate {rate_bps}bit burst {SHAPER_BURST_BYTES} limit {} overhead {FRAMING_BYTES}\n",
            wanted.buffer_bytes
        )
    }
}

impl Bottleneck for KernelBottleneck {
    fn install(
        &self,
        router: &Namespace,
        receiver: &Namespace,
        wanted: &plan::Topology,
    ) -> Result<(), CaseError> {
        router.ip(&format!(
            "link add wan type veth peer name eth0 netns {}\n",
            receiver.path()
        ))?;
        router.tc(&Self::shaper("add", wanted, wanted.rate_bps))?;
        let round_trip_ns = 2 * wanted.one_way_delay_ns;
        if round_trip_ns == 0 {
            return Ok(());
        }
        receiver.tc(&format!(
            "qdisc add dev eth0 root netem delay {}us limit 100000\n",
            round_trip_ns / 1000
        ))
    }

    fn set_rate(
        &self,
        router: &Namespace,
        wanted: &plan::Topology,
        rate_bps: u64,
    ) -> Result<(), CaseError> {
        router.tc(&Self::shaper("change", wanted, rate_bps))
    }
}

/// A built network. Dropping it takes everything down.
pub struct Network<'a> {
    /// What was asked for.
    pub wanted: plan::Topology,
    /// The hosts that send.
    pub senders: Vec<Arc<Namespace>>,
    /// Joins them to the receiver.
    pub router: Namespace,
    /// The host that receives.
    pub receiver: Namespace,
    bottleneck: &'a dyn Bottleneck,
}

impl<'a> Network<'a> {
    /// Builds `wanted` and writes `sysctl` on every host.
    pub fn build(
        wanted: &plan::Topology,
        sysctl: &BTreeMap<String, String>,
        bottleneck: &'a dyn Bottleneck,
    ) -> Result<Self, CaseError> {
        let router = Namespace::create("router")?;
        let receiver = Namespace::create("receiver")?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        router.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        // A router asks for neighbours from its link-local address, which without
        // this is not usable in its first second: forwarded packets would be lost.
        router.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
        bottleneck.install(&router, &receiver, wanted)?;
        let mut senders = Vec::new();
        let mut at_router = configuration("wan", RECEIVER_LINK, true, wanted);
        for index in 0..wanted.senders {
            let sender = Namespace::create(&format!("sender{index}"))?;
            let edge = format!("edge{index}");
            at_router += &format!(
                "link add {edge} type veth peer name eth0 netns {}\n",
                sender.path()
            );
            at_router += &configuration(&edge, sender_link(index), true, wanted);
            senders.push(Arc::new(sender));
        }
        // All in one: starting a program takes longer than what it does here.
        router.ip(&at_router)?;
        receiver.ip(&configuration("eth0", RECEIVER_LINK, false, wanted))?;
        for (index, sender) in (0..).zip(&senders) {
            sender.ip(&configuration("eth0", sender_link(index), false, wanted))?;
            sender.tc(&format!(
                "qdisc add dev eth0 root tbf rate {}bit burst {SHAPER_BURST_BYTES} limit {EDGE_QUEUE_BYTES} overhead {FRAMING_BYTES}\n",
                wanted.edge_rate_bps
            ))?;
        }
        if !wanted.offload {
            let edges = (0..wanted.senders).map(|index| format!("edge{index}"));
            router.enter(|| {
                edges
                    .chain(["wan".to_owned()])
                    .try_for_each(|device| switch_offload_off(&device))
            })?;
            for host in senders.iter().map(Arc::as_ref).chain([&receiver]) {
                host.enter(|| switch_offload_off("eth0"))?;
            }
        }
        for host in senders.iter().map(Arc::as_ref).chain([&receiver]) {
            // The kernel's own first values; only the ceiling is raised.
            host.sysctl(
                "net.ipv4.tcp_rmem",
                &format!("4096 131072 {}", wanted.socket_buffer_bytes),
            )?;
            host.sysctl(
                "net.ipv4.tcp_wmem",
                &format!("4096 87380 {}", wanted.socket_buffer_bytes),
            )?;
            // Or the second connection would inherit the first one's ssthresh.
            host.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
            for (key, value) in sysctl {
                host.sysctl(key, value)?;
            }
        }
        Ok(Network {
            wanted: wanted.clone(),
            senders,
            router,
            receiver,
            bottleneck,
        })
    }

    /// The receiver's address and a port.
    pub fn receiver_address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(host_address(RECEIVER_LINK, self.wanted.ip), port)
    }

    /// Changes the bottleneck's rate, bits per second.
    pub fn set_rate(&self, rate_bps: u64) -> Result<(), CaseError> {
        self.bottleneck
            .set_rate(&self.router, &self.wanted, rate_bps)
    }
}

const RECEIVER_LINK: u8 = 0;

fn sender_link(index: u32) -> u8 {
    u8::try_from(index + 1).expect("the experiment was checked: at most 250 senders")
}

/// The host's end of link `number`; the router's end is `router_address`.
fn host_address(number: u8, ip: u8) -> IpAddr {
    if ip == 6 {
        IpAddr::V6(Ipv6Addr::new(
            0xfd00,
            0x9a,
            u16::from(number),
            0,
            0,
            0,
            0,
            1,
        ))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 154, number, 1))
    }
}

fn router_address(number: u8, ip: u8) -> IpAddr {
    if ip == 6 {
        IpAddr::V6(Ipv6Addr::new(
            0xfd00,
            0x9a,
            u16::from(number),
            0,
            0,
            0,
            0,
            254,
        ))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 154, number, 254))
    }
}

/// Segments that leave back to back without offload, 12 KB. The stack itself makes
/// packets of up to 64 KB for any device, so switching TSO off is not enough. One
/// segment each would cost a guest of 10^9 instructions a second more than it has:
/// at 500 Mbit/s the CPU, not the link, would be the bottleneck.
const UNOFFLOADED_SEGMENTS: u32 = 8;

/// Lines of `ip` that bring one end of a link up.
fn configuration(device: &str, link: u8, is_router: bool, wanted: &plan::Topology) -> String {
    let ip = wanted.ip;
    let address = if is_router {
        router_address(link, ip)
    } else {
        host_address(link, ip)
    };
    // Without nodad an IPv6 address is unusable for its first second.
    let (bits, option) = if ip == 6 { (64, " nodad") } else { (24, "") };
    let mut lines = String::new();
    if !wanted.offload {
        lines += &format!("link set dev {device} gso_max_segs {UNOFFLOADED_SEGMENTS}\n");
    }
    lines += &format!("addr add {address}/{bits} dev {device}{option}\nlink set dev {device} up\n");
    if !is_router {
        lines += &format!(
            "link set lo up\nroute add default via {}\n",
            router_address(link, ip)
        );
    }
    lines
}

/// `ethtool -K DEVICE tso off gso off gro off`, without the program.
fn switch_offload_off(device: &str) -> Result<(), CaseError> {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    #[repr(C)]
    struct Request {
        name: [libc::c_char; libc::IFNAMSIZ],
        value: *mut Value,
        rest: [u8; 16],
    }
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    // linux/ethtool.h
    const ETHTOOL_STSO: u32 = 0x1f;
    const ETHTOOL_SGSO: u32 = 0x24;
    const ETHTOOL_SGRO: u32 = 0x2c;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").doing("opening a socket for ethtool")?;
    for command in [ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO] {
        let mut value = Value { command, data: 0 };
        let mut request = Request {
            name: [0; libc::IFNAMSIZ],
            value: &mut value,
            rest: [0; 16],
        };
        for (to, from) in request
            .name
            .iter_mut()
            .zip(device.bytes().take(libc::IFNAMSIZ - 1))
        {
            *to = from as libc::c_char;
        }
        // SAFETY: the request is laid out as struct ifreq with ifr_data pointing
        // to a struct ethtool_value; both outlive the call.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) };
        nix::errno::Errno::result(result)
            .doing(format!("switching offload {command:#x} of {device} off"))?;
    }
    Ok(())
}
