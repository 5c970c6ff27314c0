// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates a job from a cgroup, a policy and the loaded kernel side.

use paceline_abi::{name_text, pl_seat};
use paceline_cgroup::{is_undividable, Cgroup, Hierarchy, Seat};
use paceline_net::clock::monotonic_us;

use crate::error::{Error, Result};
use crate::group;
use crate::kernel_side::policies::JobPolicy;
use crate::kernel_side::{discover, KernelSide};
use crate::leftovers;
use crate::options::{entry, JobOptions};
use crate::tuning;

/// Where a job is made, and for whom.
#[derive(Debug)]
pub(crate) struct Place {
    /// Where it lives.
    pub seat: Seat,
    /// The process that the job is named after, and whose end may end it.
    pub process: u32,
    /// The owner of the job.
    pub owner: u32,
    /// Jobs that this user may have at once.
    pub most: Option<usize>,
}

/// A job that was made, or found.
#[derive(Debug)]
pub(crate) struct Made {
    /// Its cgroup.
    pub cgroup: Cgroup,
    /// Of a scheduler's step or a container.
    pub shared: bool,
}

/// Creates a job's cgroup and applies its policy; `fill` moves the first process into the
/// cgroup that it is given. On error nothing is left behind.
pub(crate) fn make<T>(
    hierarchy: &Hierarchy,
    place: &Place,
    options: &JobOptions,
    fill: impl FnOnce(Option<&Cgroup>) -> Result<T>,
) -> Result<(Made, T)> {
    if let Some(name) = &options.group {
        group::check_name(name)?;
    }
    tuning::check(options)?;
    let options = &options.clone().resolved();
    // Held until a process is inside: other commands would remove a job's empty cgroup.
    let lock = hierarchy.lock()?;
    if let Seat::Shared(cgroup) = &place.seat {
        // Most of a step's ranks find the first one's job.
        let found = discover::find()?.filter(discover::Found::is_ours);
        if let Some(found) = found {
            if join_shared(hierarchy, &found, cgroup, place, options)? {
                return Ok((Made::shared(cgroup), fill(None)?));
            }
        }
    }
    let cleaned = leftovers::clean_for_next(hierarchy, &lock)?;
    if let Some(found) = &cleaned.found {
        found.require_ours(|| leftovers::describe_jobs(hierarchy, found))?;
        if let Some(limit) = place.most {
            if found.jobs_of(place.owner)? >= limit {
                return Err(Error::TooManyJobsOfUser { limit });
            }
        }
    }
    let made = Made::at(&place.seat, place.process)?;
    let started = KernelSide::ensure(&lock, cleaned.found, options)
        .and_then(|found| {
            let id = made.cgroup.id()?;
            let seat = match made.shared {
                true => pl_seat::PL_SEAT_SHARED,
                false => pl_seat::PL_SEAT_OWN,
            };
            let job = entry(options, place.owner, seat);
            // First: a policy without a job is forgotten by the next command.
            found.put_policy(&lock, id, &JobPolicy::begin(&options.policy, &job)?)?;
            found.put_job(&lock, id, &job)?;
            if made.shared {
                found.put_run(id, place.process, monotonic_us())?;
            }
            tuning::attach_options(&found, id, place.process, &options.policy)?;
            found.attach_to(&made.cgroup, &options.policy)
        })
        .and_then(|()| fill(made.own()));
    match started {
        Ok(value) => Ok((made, value)),
        Err(error) => {
            undo(&made);
            // With the job's entry gone, the kernel side may have none left.
            leftovers::clean(hierarchy, &lock)?;
            Err(error)
        }
    }
}

/// Joins the job of a shared cgroup, if there is one.
fn join_shared(
    hierarchy: &Hierarchy,
    found: &discover::Found,
    cgroup: &Cgroup,
    place: &Place,
    options: &JobOptions,
) -> Result<bool> {
    let id = cgroup.id()?;
    let Some(there) = found.job(id)? else {
        return Ok(false);
    };
    let shared = there.seat == pl_seat::PL_SEAT_SHARED as u32;
    // A shared job without a `paceline run` is a leftover; an attached one is for all.
    if shared && !found.has_run(hierarchy, id, cgroup)? {
        return Ok(false);
    }
    let asked = entry(options, place.owner, pl_seat::PL_SEAT_SHARED);
    let same = there.policy == asked.policy
        && there.policy_name == asked.policy_name
        && there.group == asked.group;
    if !same {
        return Err(Error::SharedWithOther {
            path: cgroup.path().to_path_buf(),
            policy: name_text(&there.policy_name),
            group: name_text(&there.group),
        });
    }
    if shared {
        found.put_run(id, place.process, monotonic_us())?;
    }
    Ok(true)
}

impl Made {
    fn shared(cgroup: &Cgroup) -> Self {
        Self {
            cgroup: cgroup.clone(),
            shared: true,
        }
    }

    fn at(seat: &Seat, process: u32) -> Result<Self> {
        let parent = match seat {
            Seat::Shared(cgroup) => return Ok(Self::shared(cgroup)),
            Seat::Below(parent) => parent,
        };
        match parent.create_job(process) {
            Ok(cgroup) => Ok(Self {
                cgroup,
                shared: false,
            }),
            Err(error) if is_undividable(&error) => match Seat::undivided(parent.clone()) {
                Seat::Shared(cgroup) => Ok(Self::shared(&cgroup)),
                Seat::Below(_) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The cgroup, if it was made for the job.
    fn own(&self) -> Option<&Cgroup> {
        (!self.shared).then_some(&self.cgroup)
    }
}

fn undo(made: &Made) {
    let removed = discover::find().and_then(|found| match found {
        Some(found) if made.shared => leftovers::release(&found, &made.cgroup),
        found => leftovers::remove_job(found.as_ref(), &made.cgroup),
    });
    if let Err(error) = removed {
        tracing::warn!("{error}");
    }
}
