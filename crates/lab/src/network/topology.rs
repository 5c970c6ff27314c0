// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dumbbell. Each sender host has its own link to the router; the router's link to the
//! receiver host is the bottleneck:
//!
//! ```text
//! sender0 eth0 --- edge0 router wan === eth0 receiver
//! sender1 eth0 --- edge1
//! ```
//!
//! With two clusters the far router stands in the receiver's place, and the
//! bottleneck is there in both directions (`clusters.rs`). So it does where gateways may run
//! on both routers (`gateways.rs`), before a single receiver. With one cluster the router is a
//! switch between all hosts, and there is no link but theirs (`one_switch.rs`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use paceline_experiment::plan::{self, HostQueue};
use paceline_experiment::record::LinkReading;
use paceline_net::capture::Sampler;
use paceline_net::shaper::{shaper, EDGE_QUEUE_BYTES, SHAPER_HANDLE};
use paceline_net::{Doing, Error, Namespace};

use super::clusters::{far_link, Far};
use super::{gateways, one_switch};
use crate::host::connection;
use crate::CaseError;

/// The bottleneck between router and receiver: rate, delay and buffer.
pub trait Bottleneck: Sync {
    /// Makes the interfaces `wan` in `router` and `interface` in `far`, joined by a
    /// link of the rates, delay and buffer of `wanted`, not impaired: the receiver itself, or the
    /// router of a far cluster, towards which and from which the link is the same.
    /// It sets no addresses.
    fn install(
        &self,
        router: &Namespace,
        far: &Namespace,
        interface: &str,
        wanted: &plan::Topology,
    ) -> Result<(), CaseError>;

    /// Changes the installed link, between the same namespaces, to `wanted`; its interfaces
    /// stay. With `cut` all packets in flight are lost.
    fn change(
        &self,
        router: &Namespace,
        far: &Namespace,
        wanted: &plan::Topology,
        cut: bool,
    ) -> Result<(), CaseError>;

    /// Measurements that the installed link itself provides.
    fn read_back(&self, reading: LinkReading) -> LinkReading {
        reading
    }

    /// Why the measurements over the link so far are invalid.
    fn problems(&self) -> Result<Vec<String>, CaseError> {
        Ok(Vec::new())
    }
}

/// A built network. Dropping it takes everything down.
pub struct Network<'a> {
    /// The requested link.
    pub wanted: plan::Topology,
    /// The hosts that send; with two clusters, those of the near one; with one, all.
    pub senders: Vec<Arc<Namespace>>,
    /// Joins them to the receiver.
    pub router: Namespace,
    /// The host that receives; with two clusters, the first of the far one; with one, its
    /// second host.
    pub receiver: Arc<Namespace>,
    /// The far side of two clusters.
    pub far: Option<Far>,
    bottleneck: &'a dyn Bottleneck,
}

impl<'a> Network<'a> {
    /// Builds `wanted` and writes `sysctl` on every host.
    pub fn build(
        wanted: &plan::Topology,
        sysctl: &BTreeMap<String, String>,
        bottleneck: &'a dyn Bottleneck,
    ) -> Result<Self, CaseError> {
        let router = new_router("router")?;
        let links: Vec<u8> = (0..wanted.senders).map(sender_link).collect();
        let mut at_switch = Vec::new();
        let (receiver, far) = if wanted.one_switch {
            at_switch = attach_hosts(&router, "host", &links, wanted)?;
            (at_switch[one_switch::RECEIVER].clone(), None)
        } else if wanted.far_hosts == 0 && !wanted.gateways {
            let receiver = Arc::new(Namespace::create("receiver")?);
            bottleneck.install(&router, &receiver, "eth0", wanted)?;
            router.ip(&configuration("wan", RECEIVER_LINK, true, wanted))?;
            receiver.ip(&configuration("eth0", RECEIVER_LINK, false, wanted))?;
            if cuts_packets(wanted) {
                receiver.enter(|| switch_offload_off("eth0"))?;
            }
            (receiver, None)
        } else {
            let far = Far::build(&router, wanted, bottleneck)?;
            (far.hosts[0].clone(), Some(far))
        };
        let senders = match wanted.one_switch {
            true => at_switch,
            false => attach_hosts(&router, "sender", &links, wanted)?,
        };
        if wanted.gateways {
            gateways::join_lan(&router, &links, wanted.ip)?;
        }
        let network = Network {
            wanted: wanted.clone(),
            senders,
            router,
            receiver,
            far,
            bottleneck,
        };
        for host in network.hosts() {
            network.prepare_host(host, sysctl)?;
        }
        Ok(network)
    }

    /// All hosts: the near ones, then the receiver or the far ones, if they are others.
    pub fn hosts(&self) -> impl Iterator<Item = &Namespace> {
        let far = match &self.far {
            Some(far) => &far.hosts[..],
            None if self.wanted.one_switch => &[],
            None => std::slice::from_ref(&self.receiver),
        };
        self.senders.iter().chain(far).map(Arc::as_ref)
    }

    fn prepare_host(
        &self,
        host: &Namespace,
        sysctl: &BTreeMap<String, String>,
    ) -> Result<(), CaseError> {
        let most = self.wanted.socket_buffer_bytes;
        // The kernel's own first values; only the ceiling is raised. Message-passing
        // ranks send eagerly: their buffers take whole messages from the beginning.
        let (receive, send) = match self.wanted.is_cluster() {
            false => (131_072, 87_380),
            true => (most, most),
        };
        host.sysctl("net.ipv4.tcp_rmem", &format!("4096 {receive} {most}"))?;
        host.sysctl("net.ipv4.tcp_wmem", &format!("4096 {send} {most}"))?;
        // Or the second connection would inherit the first one's ssthresh.
        host.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
        if self.wanted.impairments.codel.is_some_and(|codel| codel.ecn) {
            host.sysctl("net.ipv4.tcp_ecn", "1")?;
        }
        Ok(sysctl
            .iter()
            .try_for_each(|(key, value)| host.sysctl(key, value))?)
    }

    /// The receiver's address and a port.
    pub fn receiver_address(&self, port: u16) -> SocketAddr {
        let link = match self.wanted.one_switch {
            true => sender_link(one_switch::RECEIVER as u32),
            false => RECEIVER_LINK,
        };
        SocketAddr::new(host_address(link, self.wanted.ip), port)
    }

    /// Listens in the receiver on a free port.
    pub fn listen(&self) -> Result<(TcpListener, SocketAddr), Error> {
        connection::listen(&self.receiver, self.receiver_address(0))
    }

    /// Starts a capture of the packets that reach the router from the first sender.
    pub fn capture(&self) -> Result<Sampler, Error> {
        Sampler::at(&self.router, "edge0")
    }

    /// Addresses of [`Network::hosts`], in their order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let ip = self.wanted.ip;
        self.links().map(move |link| host_address(link, ip))
    }

    /// Numbers of the links of [`Network::hosts`], in their order.
    fn links(&self) -> impl Iterator<Item = u8> {
        let far = match self.wanted.one_switch {
            true => 0,
            false => self.wanted.far_hosts.max(1),
        };
        let near = (0..self.wanted.senders).map(sender_link);
        near.chain((0..far).map(far_link))
    }

    /// Makes `name` the congestion control of all connections of all hosts that do not set
    /// another one. By their routes: a namespace's default is limited by a setting of the
    /// whole machine (net.ipv4.tcp_allowed_congestion_control).
    pub fn set_congestion(&self, name: &str) -> Result<(), CaseError> {
        for (host, link) in self.hosts().zip(self.links()) {
            let route = host_route(
                router_address(link, self.wanted.ip),
                self.wanted.initial_window,
            );
            let line = route.trim_end().replacen("add", "replace", 1);
            host.ip(&format!("{line} congctl {name}\n"))?;
        }
        Ok(())
    }

    /// Changes the bottleneck to the one of `wanted`; with `cut` all packets in flight are
    /// lost.
    pub fn change(&self, wanted: &plan::Topology, cut: bool) -> Result<(), CaseError> {
        let far = match &self.far {
            Some(far) => &far.router,
            None => &*self.receiver,
        };
        self.bottleneck.change(&self.router, far, wanted, cut)
    }
}

/// A namespace that forwards.
pub(super) fn new_router(name: &str) -> Result<Namespace, CaseError> {
    let router = Namespace::create(name)?;
    router.sysctl("net.ipv4.ip_forward", "1")?;
    router.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    // A router asks for neighbours from its link-local address, which without
    // this is not usable in its first second: forwarded packets would be lost.
    router.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
    Ok(router)
}

/// Whether packets are cut into segments before the bottleneck.
fn cuts_packets(wanted: &plan::Topology) -> bool {
    !wanted.offload && !wanted.is_cluster()
}

/// New hosts with a link of the edge's rate to `router` each.
pub(super) fn attach_hosts(
    router: &Namespace,
    name: &str,
    links: &[u8],
    wanted: &plan::Topology,
) -> Result<Vec<Arc<Namespace>>, CaseError> {
    let mut hosts = Vec::new();
    let mut at_router = String::new();
    for (index, &link) in links.iter().enumerate() {
        let host = Namespace::create(&format!("{name}{index}"))?;
        let edge = format!("edge{index}");
        at_router += &format!(
            "link add {edge} type veth peer name eth0 netns {}\n",
            host.path()
        );
        at_router += &configuration(&edge, link, true, wanted);
        hosts.push(Arc::new(host));
    }
    // All in one: starting a program takes longer than its work here.
    router.ip(&at_router)?;
    if wanted.one_switch {
        let port = |index| one_switch::port(&format!("edge{index}"), wanted);
        router.tc(&(0..links.len()).map(port).collect::<String>())?;
    } else if wanted.switch_buffer_bytes > 0 {
        let port = |index| {
            let (rate_bps, buffer) = (wanted.edge_rate_bps, wanted.switch_buffer_bytes);
            shaper("add", &format!("edge{index}"), rate_bps, buffer, wanted.mtu)
        };
        router.tc(&(0..links.len()).map(port).collect::<String>())?;
    }
    for (&link, host) in links.iter().zip(&hosts) {
        host.ip(&configuration("eth0", link, false, wanted))?;
        host.tc(&(edge_shaper("add", wanted.edge_rate_bps, wanted.mtu) + &host_queue(wanted)))?;
        if cuts_packets(wanted) {
            host.enter(|| switch_offload_off("eth0"))?;
        }
    }
    if cuts_packets(wanted) {
        router.enter(|| {
            (0..links.len())
                .map(|index| format!("edge{index}"))
                .chain(["wan".to_owned()])
                .try_for_each(|device| switch_offload_off(&device))
        })?;
    }
    Ok(hosts)
}

/// Line of `tc` for a host's own link.
pub fn edge_shaper(verb: &str, rate_bps: u64, mtu: u32) -> String {
    shaper(verb, "eth0", rate_bps, EDGE_QUEUE_BYTES.into(), mtu)
}

/// Line of `tc` for the queueing discipline of a host's own interface: it dequeues at the
/// link's rate, as before the ring of a network card.
fn host_queue(wanted: &plan::Topology) -> String {
    let Some(queue) = wanted.host_queue else {
        return String::new();
    };
    // fq counts the shaper's segments one by one, but a card's fq whole TSO packets: its
    // packet limits are those of the link's own queue here.
    let options = match queue {
        HostQueue::Fq => " limit 100000 flow_limit 100000",
        HostQueue::PfifoFast | HostQueue::FqCodel => "",
    };
    let name = queue.name();
    format!("qdisc add dev eth0 parent {SHAPER_HANDLE}1 {name}{options}\n")
}

pub(super) const RECEIVER_LINK: u8 = 0;
/// The near hosts' links at the host of their gateway.
pub(super) const LAN: &str = "lan";

pub(super) fn sender_link(index: u32) -> u8 {
    u8::try_from(index + 1).expect("the experiment was checked: at most 250 senders")
}

/// The host's end of link `number`; the router's end is `router_address`.
pub(super) fn host_address(number: u8, ip: u8) -> IpAddr {
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

pub(super) fn router_address(number: u8, ip: u8) -> IpAddr {
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

/// Lines of `ip` that bring one end of a link up, and give hosts a default route.
pub(super) fn configuration(
    device: &str,
    link: u8,
    is_router: bool,
    wanted: &plan::Topology,
) -> String {
    let ip = wanted.ip;
    let at_router = router_address(link, ip);
    if is_router {
        return interface(device, at_router, wanted);
    }
    interface(device, host_address(link, ip), wanted)
        + &format!(
            "link set lo up\n{}",
            host_route(at_router, wanted.initial_window)
        )
}

/// Lines of `ip` that give an interface its address and bring it up.
pub(super) fn interface(device: &str, address: IpAddr, wanted: &plan::Topology) -> String {
    // Without nodad an IPv6 address is unusable for its first second.
    let (bits, option) = if wanted.ip == 6 {
        (64, " nodad")
    } else {
        (24, "")
    };
    let mtu = wanted.mtu;
    segment_limit(device, wanted)
        + &format!(
            "addr add {address}/{bits} dev {device}{option}\nlink set dev {device} mtu {mtu} up\n"
        )
}

/// Lines of `ip` that bound back-to-back packets out of an interface without offload.
fn segment_limit(device: &str, wanted: &plan::Topology) -> String {
    if wanted.offload {
        return String::new();
    }
    let segments = wanted.unoffloaded_segments();
    format!("link set dev {device} gso_max_segs {segments}\n")
}

pub(super) fn default_route(via: IpAddr) -> String {
    host_route(via, 0)
}

/// A default route whose connections begin with this window; 0: with the kernel's.
fn host_route(via: IpAddr, initial_window: u32) -> String {
    match initial_window {
        0 => format!("route add default via {via}\n"),
        window => format!("route add default via {via} initcwnd {window}\n"),
    }
}

/// `ethtool -K DEVICE tso off gso off gro off`, without the program.
pub(super) fn switch_offload_off(device: &str) -> Result<(), Error> {
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
