// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rank's part of a benchmark's skeleton.

use paceline::Phases;
use paceline_experiment::plan;
use paceline_experiment::skeleton::{Collective, Op, Skeleton};
use paceline_net::clock::{now_ns, sleep_until};

use super::messages::Mesh;
use super::rank::{enter, leave};
use crate::CaseError;

/// Runs it. When this rank completed the part before the loop, each iteration, and the
/// part after the loop: CLOCK_MONOTONIC, nanoseconds.
/// `begins` is called at each iteration.
pub fn run(
    mesh: &mut Mesh,
    plan: &plan::Skeleton,
    phases: Option<&Phases>,
    begins: impl Fn() -> Result<(), CaseError>,
) -> Result<Vec<u64>, CaseError> {
    let skeleton = of(plan)?;
    let rank = mesh.rank();
    let mut done_ns = Vec::new();
    perform(mesh, &skeleton.before(rank), phases)?;
    done_ns.push(now_ns());
    let iteration = skeleton.iteration(rank);
    for _ in 0..plan.iterations {
        begins()?;
        perform(mesh, &iteration, phases)?;
        done_ns.push(now_ns());
    }
    perform(mesh, &skeleton.after(rank), phases)?;
    done_ns.push(now_ns());
    Ok(done_ns)
}

/// The plan's skeleton, for its number of ranks.
pub fn of(plan: &plan::Skeleton) -> Result<Skeleton, CaseError> {
    Skeleton::new(
        plan.benchmark,
        plan.class,
        paceline_experiment::skeleton::RANKS,
    )
    .map_err(|_| CaseError::Unexpected("there is no such skeleton"))
}

fn perform(mesh: &mut Mesh, ops: &[Op], phases: Option<&Phases>) -> Result<(), CaseError> {
    for op in ops {
        match op {
            Op::Compute { nanoseconds } => sleep_until(now_ns() + nanoseconds),
            Op::Send { to, bytes, .. } => mesh.send(*to, *bytes)?,
            Op::Receive { from, bytes, .. } => mesh.receive(*from, *bytes)?,
            Op::Collective(collective) => {
                let class = class(collective);
                let phases = phases.filter(|_| class != 0);
                enter(phases, class)?;
                perform(mesh, &collective.expand(mesh.rank()), None)?;
                leave(phases)?;
            }
        }
    }
    Ok(())
}

/// The phase class of a collective: one for each kind, as the MPI shim has it for one
/// communicator; 0 for a barrier, which shares no bandwidth.
fn class(collective: &Collective) -> u32 {
    match collective {
        Collective::Barrier => 0,
        Collective::Allreduce { .. } => 1,
        Collective::Reduce { .. } => 2,
        Collective::Broadcast { .. } => 3,
        Collective::Alltoall { .. } => 4,
        Collective::Alltoallv { .. } => 5,
    }
}
