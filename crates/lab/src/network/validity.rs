// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that the network did nothing unplanned. Packets may be dropped in the queues that the
//! experiment describes, and nowhere else.

use std::collections::BTreeMap;
use std::fs;

use paceline_experiment::plan::{HostQueue, Plan, Topology, Workload};
use paceline_net::queues::{queues, Queue};
use paceline_net::{Doing, Namespace};

use super::topology::Network;
use crate::host::windows::{self, KernelLog};
use crate::CaseError;

/// A receive buffer holds a window of half its size, because of the overhead of a packet
/// beside its payload (tcp_adv_win_scale of tcp(7)); so does a send buffer.
const BUFFER_PER_WINDOW: u64 = 2;

/// Drops of each interface of a node.
type Drops = BTreeMap<String, u64>;

/// Drops before the workloads began.
pub struct Watch {
    by_processors: u64,
    /// By the name of the node. An interface may drop what the kernel sends by itself (MLD,
    /// duplicate address detection) before the other end of its cable is up.
    by_nodes: BTreeMap<String, Drops>,
    log: KernelLog,
}

impl Watch {
    /// The link was read back, which fills its buffer, before this.
    pub fn start(network: &Network) -> Result<Self, CaseError> {
        // Earlier windows are not of this run.
        windows::take_jump();
        let mut by_nodes = BTreeMap::new();
        for node in nodes(network) {
            by_nodes.insert(node.name().to_owned(), drops(node)?);
        }
        Ok(Self {
            by_processors: dropped_by_processors()?,
            by_nodes,
            log: KernelLog::start(),
        })
    }

    /// Why the run is invalid, after its workloads.
    pub fn problems(&mut self, network: &Network, plan: &Plan) -> Result<Vec<String>, CaseError> {
        let mut problems = Vec::new();
        for host in network.hosts() {
            let modelled = |queue: &Queue| own_drops(&network.wanted, queue);
            problems.extend(self.dropped(host, modelled)?);
        }
        let one_switch = network.wanted.one_switch;
        let ports = one_switch || network.wanted.switch_buffer_bytes > 0;
        let modelled = |queue: &Queue| {
            let described = queue.dev == "wan" || queue.dev.starts_with("route");
            let policed = network.wanted.impairments.policer.is_some();
            let (kind, codel) = (queue.kind.as_str(), network.wanted.impairments.codel);
            // netem counts the drops of the queue within it.
            let delayed = one_switch && kind == "netem";
            (kind == "tbf"
                || delayed
                || policed && kind == "clsact"
                || codel.is_some() && kind == "codel")
                && (described || ports && queue.dev.starts_with("edge"))
        };
        problems.extend(self.dropped(&network.router, modelled)?);
        if let Some(far) = &network.far {
            problems.extend(self.dropped(&far.router, modelled)?);
        }
        let by_processors = dropped_by_processors()? - self.by_processors;
        if by_processors > 0 {
            problems.push(format!(
                "this machine's processors dropped {by_processors} packets that waited for them (/proc/net/softnet_stat): raise net.core.netdev_max_backlog, or make the link slower"
            ));
        }
        problems.extend(small_buffers(network, plan)?);
        problems.extend(windows::problems(&mut self.log));
        Ok(problems)
    }

    fn dropped(
        &self,
        node: &Namespace,
        modelled: impl Fn(&Queue) -> bool,
    ) -> Result<Vec<String>, CaseError> {
        let before = self.by_nodes.get(node.name());
        dropped_since(before.unwrap_or(&Drops::new()), node, modelled)
    }
}

/// Those whose interfaces are watched: hosts and routers.
fn nodes<'a>(network: &'a Network<'_>) -> impl Iterator<Item = &'a Namespace> {
    let far = network.far.iter().map(|far| &far.router);
    let routers = std::iter::once(&network.router).chain(far);
    network.hosts().chain(routers)
}

/// Drops of a node's interfaces since they were created.
fn drops(node: &Namespace) -> Result<Drops, CaseError> {
    let text = node
        .enter(|| fs::read_to_string("/proc/thread-self/net/dev").doing("reading /proc/net/dev"))?;
    interface_drops(&text)
}

/// Whether a host's queue may drop: its discipline does so by itself, and the shaper above
/// it counts that too. fq keeps what it has. The receiver's is the queue of a way back that has
/// a rate.
fn own_drops(wanted: &Topology, queue: &Queue) -> bool {
    if wanted.impairments.return_rate_bps.is_some() && queue.kind == "netem" {
        return true;
    }
    let discipline = wanted
        .host_queue
        .filter(|discipline| *discipline != HostQueue::Fq);
    discipline.is_some_and(|own| [own.name(), "tbf"].contains(&queue.kind.as_str()))
}

/// Packets that a node's interfaces and queues dropped, but for the `modelled` queues.
pub fn dropped(
    node: &Namespace,
    modelled: impl Fn(&Queue) -> bool,
) -> Result<Vec<String>, CaseError> {
    dropped_since(&Drops::new(), node, modelled)
}

/// The same, without earlier drops.
fn dropped_since(
    before: &Drops,
    node: &Namespace,
    modelled: impl Fn(&Queue) -> bool,
) -> Result<Vec<String>, CaseError> {
    let name = node.name();
    let mut problems = Vec::new();
    for queue in queues(node)? {
        if queue.drops > 0 && !modelled(&queue) {
            problems.push(format!(
                "{name}: {} packets were dropped in the queue of {} ({}), which is to hold all that its host sends: fewer or slower senders, or a smaller link.socket_buffer, fit it",
                queue.drops, queue.dev, queue.kind
            ));
        }
    }
    for (device, packets) in since(before, drops(node)?) {
        problems.push(format!(
            "{name}: the interface {device} dropped {packets} packets outside of the queues that the experiment describes: a slower link, or fewer hosts, leave this machine the time for them"
        ));
    }
    Ok(problems)
}

/// Drops between two readings.
fn since(before: &Drops, after: Drops) -> Drops {
    let more = after.into_iter().map(|(device, packets)| {
        let earlier = before.get(&device).copied().unwrap_or_default();
        (device, packets - earlier)
    });
    more.filter(|(_, packets)| *packets > 0).collect()
}

/// Interfaces that dropped packets, and how many, from the text of /proc/net/dev.
fn interface_drops(text: &str) -> Result<Drops, CaseError> {
    // Two lines of headings; then, behind the name, receive: bytes packets errs drop …,
    // eight in all, and as many of transmit.
    const RECEIVED: usize = 3;
    const SENT: usize = 8 + RECEIVED;
    let mut drops = Drops::new();
    for line in text.lines().skip(2) {
        let fields = line.split_once(':').and_then(|(device, rest)| {
            let numbers: Vec<u64> = rest
                .split_ascii_whitespace()
                .filter_map(|number| number.parse().ok())
                .collect();
            Some((
                device.trim().to_owned(),
                numbers.get(RECEIVED)? + numbers.get(SENT)?,
            ))
        });
        match fields {
            Some((_, 0)) => {}
            Some((device, packets)) => {
                drops.insert(device, packets);
            }
            None => {
                return Err(CaseError::Unexpected(
                    "/proc/net/dev does not have the form that proc_pid_net(5) describes",
                ))
            }
        }
    }
    Ok(drops)
}

/// Packets dropped since boot because a processor's backlog was full.
fn dropped_by_processors() -> Result<u64, CaseError> {
    let text =
        fs::read_to_string("/proc/net/softnet_stat").doing("reading /proc/net/softnet_stat")?;
    softnet_drops(&text).ok_or(CaseError::Unexpected(
        "/proc/net/softnet_stat does not have a number of drops on each line",
    ))
}

/// A line for each processor; the second number, hexadecimal, counts its drops.
fn softnet_drops(text: &str) -> Option<u64> {
    text.lines()
        .map(|line| u64::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok())
        .sum()
}

/// Checks that the hosts' socket buffers hold the path's window.
fn small_buffers(network: &Network, plan: &Plan) -> Result<Option<String>, CaseError> {
    let topology = &plan.topology;
    let links: Vec<Topology> = (0..=topology.steps.len())
        .map(|steps| topology.after(steps))
        .collect();
    let windows = links
        .iter()
        .flat_map(|link| plan.workloads.iter().map(|of| window_bytes(link, of)));
    let needed = BUFFER_PER_WINDOW * windows.max().unwrap_or(0);
    for host in network.hosts() {
        for key in ["tcp_rmem", "tcp_wmem"] {
            let text = host.enter(|| {
                let path = format!("/proc/sys/net/ipv4/{key}");
                fs::read_to_string(&path).doing(format!("reading {path}"))
            })?;
            let most: u64 = text
                .split_ascii_whitespace()
                .nth(2)
                .and_then(|most| most.parse().ok())
                .ok_or(CaseError::Unexpected(
                    "net.ipv4.tcp_rmem and tcp_wmem are three numbers",
                ))?;
            if most < needed {
                return Ok(Some(format!(
                    "{}: {key} allows a connection {most} bytes, and the path holds a window of {}: the buffers, not the congestion control, may have set the pace; raise link.socket_buffer to {needed}B at least",
                    host.name(),
                    needed / BUFFER_PER_WINDOW
                )));
            }
        }
    }
    Ok(None)
}

/// Largest inflight that one connection of a workload needs, bytes, where all of them
/// together are to fill the path.
fn window_bytes(topology: &Topology, workload: &Workload) -> u64 {
    let bytes_per_second = topology.rate_bps / 8;
    let rtt_ns = u128::from(2 * topology.one_way_delay_ns);
    let path = (u128::from(bytes_per_second) * rtt_ns / 1_000_000_000) as u64;
    let (connections, most) = match workload {
        Workload::Burst(burst) => {
            let most = burst.chunks.iter().map(|chunk| chunk.size_bytes).max();
            (burst.connections, most.unwrap_or(0))
        }
        Workload::Incast(incast) => (incast.senders, path),
        Workload::Messages(messages) => (1, messages.payload_bytes()),
        Workload::Netpipe(netpipe) => (1, netpipe.sizes.last().copied().unwrap_or(0)),
        Workload::Bulk(bulk) => (bulk.groups.iter().map(|group| group.flows).sum(), path),
        Workload::Streams(streams) => (streams.hosts * streams.per_host, path),
        // Each near host has a partner beyond the link.
        Workload::Ranks(_) | Workload::RealProgram(_) => (topology.senders, path),
        Workload::Transfer(transfer) => {
            let most = u64::from(transfer.files).saturating_mul(transfer.largest_bytes);
            (transfer.hosts, most)
        }
    };
    path.min(most) / u64::from(connections.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NET_DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
  eth0:  100000     100    0    2    0     0          0         0   100000     100    0    5    0     0       0          0
";

    #[test]
    fn interfaces_that_dropped_are_named() {
        let drops = interface_drops(NET_DEV).unwrap();
        assert_eq!(drops, [("eth0".to_owned(), 7)].into());
        let cut = NET_DEV.rsplit_once(" 5").unwrap().0;
        assert!(interface_drops(cut).is_err());
    }

    #[test]
    fn earlier_drops_are_not_reported() {
        let at = |packets| Drops::from([("eth0".to_owned(), packets)]);
        assert_eq!(since(&at(1), at(1)), Drops::new());
        assert_eq!(since(&at(1), at(3)), at(2));
        assert_eq!(since(&Drops::new(), at(3)), at(3));
    }

    #[test]
    fn drops_of_all_processors_are_added_up() {
        let text = "0000ffff 00000010 00000000\n00000001 00000002 00000000\n";
        assert_eq!(softnet_drops(text), Some(18));
        assert_eq!(softnet_drops("0\n"), None);
    }
    #[test]
    fn a_queue_that_drops_is_a_problem_unless_it_is_modelled() {
        if !nix::unistd::geteuid().is_root() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "needs root");
            eprintln!("skipped: needs root");
            return;
        }
        let node = Namespace::create("node").unwrap();
        node.ip("link add eth0 type veth peer name peer\naddr add 10.1.1.1/24 dev eth0\nlink set peer up\nlink set eth0 up\nneigh add 10.1.1.2 lladdr 02:00:00:00:00:01 dev eth0\n")
            .unwrap();
        node.tc("qdisc add dev eth0 root tbf rate 1mbit burst 3040 limit 5000\n")
            .unwrap();
        let all = || dropped(&node, |_| false).unwrap();
        assert_eq!(all(), [""; 0]);
        node.enter(|| {
            let socket = std::net::UdpSocket::bind("10.1.1.1:0").doing("a socket")?;
            for _ in 0..20 {
                // A full queue may be reported, too.
                drop(socket.send_to(&[0; 1000], "10.1.1.2:9"));
            }
            Ok(())
        })
        .unwrap();
        let problems = all();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with("node: ") && problems[0].contains("the queue of eth0 (tbf)")
        );
        let modelled = dropped(&node, |queue| queue.dev == "eth0").unwrap();
        assert_eq!(modelled, [""; 0]);
    }
}
