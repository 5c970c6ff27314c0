// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The backend `sim`: a case in the discrete-event simulator, whose senders run the same source
//! of the control laws. It has no kernel, no CPU and no offload: differences from the virtual
//! backend come from the kernel, and agreement from the laws.

mod network;
mod workloads;

use network::Network;
use paceline_experiment::plan::{
    Adaptation, Impairments, Plan, PolicySource, Topology, When, Workload,
};
use paceline_experiment::record::{LinkReading, Record};
use paceline_policy::Policy;
use paceline_simulator::sender::config::{Algorithm, SenderConfig, Stack};

/// Simulated time after which a workload counts as stalled, nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Why a case cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedError {
    /// The simulator has none of that.
    #[error("{shard}: the simulator has {what}: use --backend virtual")]
    Unsupported {
        /// Which shard.
        shard: String,
        /// The missing feature.
        what: String,
    },
    /// The policy of a variant.
    #[error("{shard}: {message}")]
    Policy {
        /// Which shard.
        shard: String,
        /// The problem.
        message: String,
    },
    /// Something never ended.
    #[error("{shard}: the run did not end within an hour of simulated time")]
    Stalled {
        /// Which shard.
        shard: String,
    },
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
}

/// Callbacks of a case: its progress, and whether to stop.
pub struct Watch<'w> {
    /// Steps that are done, as in [`Record::Progress`].
    pub step: &'w dyn Fn(u64),
    /// Whether to stop.
    pub halt: &'w dyn Fn() -> bool,
}

/// Keeps the plans that can be simulated. Returns notes about the others.
///
/// # Errors
/// Why none can be, or the error of a policy.
pub fn leave_out(plans: &mut Vec<Plan>) -> Result<Vec<String>, SimulatedError> {
    let mut notes = Vec::new();
    let mut first = None;
    let mut able = Vec::new();
    for plan in std::mem::take(plans) {
        match check(&plan) {
            Ok(()) => able.push(plan),
            Err(SimulatedError::Unsupported { shard, what }) => {
                notes.push(format!("left out: {shard}, for the simulator has {what}"));
                first.get_or_insert(SimulatedError::Unsupported { shard, what });
            }
            Err(error) => return Err(error),
        }
    }
    *plans = able;
    match first {
        Some(error) if plans.is_empty() => Err(error),
        _ => Ok(notes),
    }
}

/// Whether `plan` can be simulated at all.
fn check(plan: &Plan) -> Result<(), SimulatedError> {
    let no = |what: &str| {
        Err(SimulatedError::Unsupported {
            shard: plan.shard_name(),
            what: what.to_owned(),
        })
    };
    if plan.topology.is_cluster() {
        return no("no clusters");
    }
    if plan.topology.cross.is_some() {
        return no("no cross traffic beside bursts");
    }
    if plan.adaptation.gateway.is_some() {
        return no("no gateways");
    }
    for step in &plan.topology.steps {
        if step.change.cut || step.change.loss.is_some() {
            return no("no links that are cut, or whose loss changes");
        }
        match step.when {
            When::Burst { after_ns: 0, .. } => {}
            When::Burst { .. } => return no("no links that change within a burst"),
            When::Time { .. } if plan.workloads.iter().any(is_burst) => {
                return no("no links that change at a time while there are bursts");
            }
            When::Time { .. } => {}
        }
    }
    let lossy = Impairments {
        loss: plan.topology.impairments.loss,
        ..Impairments::default()
    };
    if plan.topology.impairments != lossy {
        return no("no links that delay, reorder, police or mark packets by themselves, nor ways back with a rate or slots");
    }
    if let Some(queue) = plan.topology.host_queue {
        return no(&format!("no {} of the hosts", queue.name()));
    }
    if plan.topology.offload {
        return no("no segmentation offload");
    }
    if let Some(name) = plan.adaptation.sysctl.keys().next() {
        return no(&format!("no sysctl, {name} among them"));
    }
    for workload in &plan.workloads {
        match workload {
            Workload::Burst(burst) if burst.chunks.len() > 1 => {
                return no("no bursts that differ");
            }
            Workload::Burst(burst) if burst.nagle || burst.header_bytes > 0 => {
                return no("no writes, but whole messages");
            }
            Workload::Burst(burst) if burst.fresh || burst.renew > 0 => {
                return no("no connections one after another")
            }
            Workload::Burst(burst) if burst.empty_loop => return no("no CPU"),
            Workload::Bulk(bulk) if bulk.sample_repeat.is_some() => {
                return no("no record of a flow's packets");
            }
            Workload::Bulk(bulk) if bulk.groups.iter().any(|g| g.edge_rate_bps.is_some()) => {
                return no("no hosts with links of their own");
            }
            Workload::Streams(streams) if streams.pause.is_some() => {
                return no("no programs that stand still");
            }
            Workload::Ranks(_) | Workload::RealProgram(_) => return no("no ranks"),
            Workload::Transfer(_) => return no("no programs"),
            Workload::Messages(_) | Workload::Netpipe(_) => {
                return no("no writes, but whole messages")
            }
            _ => {}
        }
    }
    sender(plan, &plan.adaptation).map(|_| ())
}

fn is_burst(workload: &Workload) -> bool {
    matches!(workload, Workload::Burst(_))
}

/// The senders of an adaptation.
fn sender(plan: &Plan, adaptation: &Adaptation) -> Result<SenderConfig, SimulatedError> {
    let policy = match &adaptation.policy {
        None => None,
        Some(PolicySource::Preset(name)) => Some(Policy::load(name)),
        Some(PolicySource::Text { file, text }) => Some(Policy::parse(text, file)),
    };
    let policy = policy.transpose().map_err(|error| SimulatedError::Policy {
        shard: plan.shard_name(),
        message: error.to_string(),
    })?;
    let of_policy = policy.as_ref().and_then(|policy| policy.base.kernel_name());
    let asked = adaptation.congestion.as_deref();
    let mut config = kind(plan, of_policy.or(asked).unwrap_or("cubic"))?;
    if let Some(policy) = &policy {
        config.follow(policy);
    }
    Ok(config)
}

/// A sender of the kernel's algorithm of this name.
fn kind(plan: &Plan, name: &str) -> Result<SenderConfig, SimulatedError> {
    let algorithm = match name {
        "cubic" => Algorithm::Cubic,
        // With selective acknowledgement, as Linux has it.
        "reno" => Algorithm::Sack,
        "bic" => Algorithm::Bic,
        other => {
            return Err(SimulatedError::Unsupported {
                shard: plan.shard_name(),
                what: format!("no {other}, but cubic, reno and bic"),
            });
        }
    };
    let mut config = SenderConfig::of(algorithm, Stack::Linux);
    let frame = plan.topology.frame();
    config.header_bytes = frame.overhead as u32;
    config.packet_bytes = frame.payload as u32 + config.header_bytes;
    config.ack_bytes = config.header_bytes;
    if plan.topology.initial_window > 0 {
        config.initial_window = plan.topology.initial_window;
    }
    Ok(config)
}

/// Runs a case that [`leave_out`] has left.
///
/// # Errors
/// [`SimulatedError`].
pub fn run(plan: &Plan, watch: &Watch) -> Result<Vec<Record>, SimulatedError> {
    let config = sender(plan, &plan.adaptation)?;
    let kernel = concat!("paceline ", env!("CARGO_PKG_VERSION"), ", simulated").to_owned();
    let mut records = vec![Record::Begin { kernel }, Record::Link(link(&plan.topology))];
    let mut runner = workloads::Runner {
        plan,
        network: Network::of(&plan.topology),
        watch,
        done: 0,
        records: &mut records,
    };
    for (index, workload) in plan.workloads.iter().enumerate() {
        match workload {
            Workload::Burst(burst) => runner.burst(index, &config, burst)?,
            Workload::Incast(incast) => runner.incast(index, &config, incast)?,
            Workload::Bulk(bulk) => runner.bulk(index, &config, bulk)?,
            Workload::Streams(streams) => runner.streams(index, &config, streams)?,
            Workload::Ranks(_)
            | Workload::RealProgram(_)
            | Workload::Transfer(_)
            | Workload::Messages(_)
            | Workload::Netpipe(_) => unreachable!("checked before"),
        }
    }
    records.push(Record::End);
    Ok(records)
}

/// A simulated link has the requested properties.
fn link(topology: &Topology) -> LinkReading {
    LinkReading {
        rate_bps: topology.rate_bps.min(topology.edge_rate_bps),
        rtt_ns: 2 * topology.one_way_delay_ns,
        buffer_bytes: Some(topology.buffer_bytes),
        largest_packet_bytes: topology.frame().payload,
    }
}
