// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From an experiment to the plans of its shards: one for each variant, offload
//! and scenario, in the order of the file.

use paceline_input::units::Rate;

use super::{check, link, Bulk, Experiment, ExperimentError, Offload, Skeleton, Variant};
use crate::plan::{self, Adaptation, BurstShape, FlowGroup, Plan, Topology, Workload};
use crate::skeleton::{compute, Benchmark};

/// Ends the name of a variant that runs with segmentation offload.
const OFFLOAD_SUFFIX: &str = "+tso";

impl Experiment {
    /// The plans. `quick` takes the file's smaller counts; `only` keeps the
    /// variants named in it, with or without their suffix; empty keeps all.
    ///
    /// # Errors
    /// [`ExperimentError::NoVariant`] if `only` names an unknown one.
    pub fn shards(
        &self,
        quick: bool,
        seed: Option<u64>,
        only: &[String],
    ) -> Result<Vec<Plan>, ExperimentError> {
        let file = &self.file;
        let seed = seed.unwrap_or(file.seed);
        let workloads = self.workloads(quick);
        let mut plans = Vec::new();
        for link in link::links(file, self.senders(), (quick, seed)) {
            let offloads: &[bool] = match file.offload {
                Offload::Off => &[false],
                Offload::On => &[true],
                Offload::Both => &[false, true],
                Offload::Drawn => &[link.offload],
            };
            for &offload in offloads {
                for (name, variant) in &file.variants {
                    // Alone, offload is the experiment's; beside plain variants it
                    // is a variant of its own.
                    let suffix = if offload && file.offload == Offload::Both {
                        OFFLOAD_SUFFIX
                    } else {
                        ""
                    };
                    let full = format!("{name}{suffix}");
                    if !only.is_empty() && !only.iter().any(|asked| asked == name || *asked == full)
                    {
                        continue;
                    }
                    let sysctl = variant.sysctl.iter().map(|(key, value)| {
                        (
                            key.clone(),
                            value
                                .as_str()
                                .map_or_else(|| value.to_string(), str::to_owned),
                        )
                    });
                    plans.push(Plan {
                        variant: full,
                        scenario: link.name.clone(),
                        seed,
                        topology: topology_of(variant, link.topology.clone(), offload),
                        adaptation: Adaptation {
                            congestion: variant.congestion.clone(),
                            coordinate: variant.coordinate.clone(),
                            gateway: variant
                                .gateway
                                .as_ref()
                                .map(|keys| keys.plan(link.topology.ip, link.topology.mtu)),
                            policy: check::policy_source(name, variant).unwrap_or_default(),
                            sysctl: sysctl.collect(),
                        },
                        workloads: workloads.clone(),
                    });
                }
            }
        }
        let known = || file.variants.keys().cloned().collect::<Vec<_>>().join(", ");
        for asked in only {
            let base = asked.strip_suffix(OFFLOAD_SUFFIX).unwrap_or(asked);
            if !plans
                .iter()
                .any(|plan| plan.variant == *asked || plan.variant == base)
            {
                return Err(ExperimentError::NoVariant {
                    asked: asked.clone(),
                    known: known(),
                });
            }
        }
        Ok(plans)
    }

    /// Sender hosts that the workloads need, or hosts of the near cluster.
    fn senders(&self) -> u32 {
        if let Some(&near) = self.file.link.clusters.first() {
            return near;
        }
        let crossed = self.file.crosses().any(|cross| cross.is_some());
        let incast = self
            .file
            .incast
            .iter()
            .flat_map(|incast| incast.senders.iter().copied());
        let bulk = self.file.bulk.iter().map(|bulk| bulk.flows.len() as u32);
        let streams = self.file.streams.iter().map(|streams| streams.senders());
        let most = incast.chain(bulk).chain(streams).max().unwrap_or(1);
        // Other traffic comes from the last host, and bursts from the first.
        most.max(1 + u32::from(crossed))
    }

    fn workloads(&self, quick: bool) -> Vec<Workload> {
        let file = &self.file;
        let count =
            |full: u32, quickly: Option<u32>| if quick { quickly.unwrap_or(full) } else { full };
        let mut workloads = Vec::new();
        for burst in &file.burst {
            workloads.push(Workload::Burst(burst.plan(quick)));
        }
        for incast in &file.incast {
            for &senders in &incast.senders {
                for answer in &incast.answers {
                    workloads.push(Workload::Incast(plan::Incast {
                        label: format!("{answer}/{senders}"),
                        senders,
                        answer_bytes: answer.bytes(),
                        rounds: count(incast.rounds, incast.quick),
                        from_round: incast.from_round,
                        period_ns: incast.period.micros() * 1000,
                    }));
                }
            }
        }
        for bulk in &file.bulk {
            workloads.push(bulk_plan(bulk, quick));
        }
        let streams = file.streams.iter();
        workloads.extend(streams.map(|streams| Workload::Streams(streams.plan(quick))));
        let messages = file.messages.iter();
        let each = messages.flat_map(|messages| messages.plans(quick));
        workloads.extend(each.map(Workload::Messages));
        let netpipe = file.netpipe.iter();
        workloads.extend(netpipe.map(|netpipe| Workload::Netpipe(netpipe.plan(quick))));
        for skeleton in &file.skeleton {
            let each = skeleton.benchmarks.iter();
            workloads.extend(each.map(|&benchmark| skeleton_plan(benchmark, skeleton, quick)));
        }
        for all in &file.alltoall {
            workloads.extend(all.blocks.iter().map(|block| {
                Workload::Ranks(plan::Ranks {
                    label: block.to_string(),
                    program: plan::Program::AllToAll(plan::AllToAll {
                        block_bytes: block.bytes(),
                        rounds: count(all.rounds, all.quick),
                        from_round: all.from_round,
                    }),
                })
            }));
        }
        workloads.extend(file.outofcore.iter().map(|program| {
            Workload::Ranks(plan::Ranks {
                label: program.name.clone(),
                program: plan::Program::OutOfCore(program.plan(quick)),
            })
        }));
        let hosts = file.link.clusters.iter().sum();
        let programs = file.program.iter();
        workloads.extend(programs.map(|program| Workload::RealProgram(program.plan(hosts))));
        let transfers = file.transfer.iter();
        workloads.extend(transfers.map(|transfer| Workload::Transfer(transfer.plan(quick))));
        for switch in &file.switch {
            workloads.push(Workload::Ranks(plan::Ranks {
                label: switch.transfer.to_string(),
                program: plan::Program::Switch(plan::Switch {
                    cycles: count(switch.cycles, switch.quick),
                    from_cycle: switch.from_cycle,
                    block_bytes: switch.block.bytes(),
                    rounds: switch.rounds,
                    transfer_bytes: switch.transfer.bytes(),
                    pause_ns: switch.pause.micros() * 1000,
                }),
            }));
        }
        workloads
    }
}

/// The topology of a variant: an ideal one has neither a limit of the queue nor of the window.
fn topology_of(variant: &Variant, topology: Topology, offload: bool) -> Topology {
    /// Bytes: more than all ranks together have under way.
    const UNLIMITED_BUFFER: u64 = 1 << 30;
    /// Segments: of full size, half of the largest socket buffer by default.
    const LARGE_WINDOW: u32 = 7000;
    let (buffer_bytes, initial_window) = match variant.ideal {
        true => (UNLIMITED_BUFFER, LARGE_WINDOW),
        false => (topology.buffer_bytes, topology.initial_window),
    };
    Topology {
        offload,
        edge_rate_bps: variant
            .edge_rate
            .map_or(topology.edge_rate_bps, Rate::bits_per_second),
        buffer_bytes,
        initial_window,
        ..topology
    }
}

fn skeleton_plan(benchmark: Benchmark, skeleton: &Skeleton, quick: bool) -> Workload {
    let iterations = match quick {
        true => skeleton.quick.unwrap_or(skeleton.iterations),
        false => skeleton.iterations,
    };
    // EP, for one, has a single iteration.
    let iterations = iterations.min(compute::iterations(benchmark, skeleton.class));
    Workload::Ranks(plan::Ranks {
        label: benchmark.name().to_owned(),
        program: plan::Program::Skeleton(plan::Skeleton {
            benchmark,
            class: skeleton.class,
            iterations,
            from_iteration: skeleton.from_iteration.min(iterations),
            repeats: skeleton.repeats,
            spread_ns: skeleton.spread.micros() * 1000,
        }),
    })
}

fn bulk_plan(bulk: &Bulk, quick: bool) -> Workload {
    let duration = if quick {
        bulk.quick.unwrap_or(bulk.duration)
    } else {
        bulk.duration
    };
    let groups = bulk.flows.iter().map(|flows| FlowGroup {
        name: flows.name.clone(),
        flows: flows.count,
        start_ns: flows.start.micros() * 1000,
        spread_ns: flows.spread.micros() * 1000,
        congestion: flows.congestion.clone(),
        edge_rate_bps: flows.edge_rate.map(Rate::bits_per_second),
        bursts: flows.burst.zip(flows.gap).map(|(size, gap)| BurstShape {
            size_bytes: size.bytes(),
            gap_ns: gap.micros() * 1000,
        }),
    });
    Workload::Bulk(plan::Bulk {
        label: bulk.name.clone(),
        duration_ns: duration.micros() * 1000,
        repeats: match quick {
            true => bulk.quick_repeats.unwrap_or(bulk.repeats),
            false => bulk.repeats,
        },
        sample_repeat: bulk.sample_repeat,
        groups: groups.collect(),
    })
}

#[cfg(test)]
mod tests {
    use paceline_input::units::Time;

    use super::*;
    use crate::skeleton::Class;

    fn skeleton(benchmark: Benchmark, repeats: u32) -> Skeleton {
        Skeleton {
            benchmarks: vec![benchmark],
            class: Class::B,
            iterations: 8,
            quick: Some(3),
            from_iteration: 3,
            repeats,
            spread: Time::default(),
        }
    }

    #[test]
    fn a_benchmark_of_one_iteration_counts_that_one() {
        let plan = skeleton_plan(Benchmark::Ep, &skeleton(Benchmark::Ep, 1), false);
        let Workload::Ranks(ranks) = plan else {
            panic!("a skeleton is a program of ranks");
        };
        let plan::Program::Skeleton(plan) = ranks.program else {
            panic!("a skeleton's program");
        };
        assert_eq!((plan.iterations, plan.from_iteration), (1, 1));
    }

    #[test]
    fn a_skeleton_that_is_run_again_takes_as_many_steps_again() {
        let again = skeleton(Benchmark::Mg, 5);
        assert_eq!(skeleton_plan(Benchmark::Mg, &again, false).steps(), 40);
        assert_eq!(skeleton_plan(Benchmark::Mg, &again, true).steps(), 15);
    }
}
