// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes the link while a workload runs: with a burst, or at a time.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paceline_experiment::plan::{Step, Topology, When};
use paceline_net::clock::now_ns;

use super::topology::Network;
use crate::CaseError;

/// The changes of one run of one workload.
pub struct Changes<'n> {
    network: &'n Network<'n>,
    steps: &'n [Step],
    state: Mutex<State>,
    /// Signalled when a change is due earlier, or at the end of all changes.
    changed: Condvar,
}

struct State {
    link: Topology,
    /// Due changes and their steps, in the order of time.
    due: VecDeque<(u64, usize)>,
    over: bool,
    problem: Option<CaseError>,
}

impl<'n> Changes<'n> {
    /// None has happened yet.
    pub fn of(network: &'n Network<'n>) -> Self {
        Changes {
            network,
            steps: &network.wanted.steps,
            state: Mutex::new(State {
                link: network.wanted.clone(),
                due: VecDeque::new(),
                over: false,
                problem: None,
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self, chosen: impl Fn(When) -> Option<u64>) {
        let mut state = self.state();
        for (index, step) in self.steps.iter().enumerate() {
            if let Some(time_ns) = chosen(step.when) {
                state.due.push_back((time_ns, index));
            }
        }
        state.due.make_contiguous().sort_unstable();
        self.changed.notify_all();
    }

    /// The workload begins at `begin_ns`: steps at a time count from there.
    pub fn begin(&self, begin_ns: u64) {
        self.plan(|when| match when {
            When::Time { at_ns } => Some(begin_ns + at_ns),
            When::Burst { .. } => None,
        });
    }

    /// Burst `number` comes next. Changes before it are made on return; the times of
    /// changes in it count from now on.
    pub fn next_burst(&self, number: u32) -> Result<(), CaseError> {
        let mut state = self.state();
        for (index, step) in self.steps.iter().enumerate() {
            if step.when
                == (When::Burst {
                    number,
                    after_ns: 0,
                })
            {
                self.apply(&mut state, index)?;
            }
        }
        drop(state);
        let now_ns = now_ns();
        self.plan(|when| match when {
            When::Burst {
                number: of,
                after_ns,
            } if of == number && after_ns > 0 => Some(now_ns + after_ns),
            _ => None,
        });
        Ok(())
    }

    fn apply(&self, state: &mut State, index: usize) -> Result<(), CaseError> {
        state.link = state.link.changed(&self.steps[index].change);
        let cut = self.steps[index].change.cut;
        self.network.change(&state.link, cut)
    }

    /// Makes the changes when they are due, until [`Changes::end`]. For a separate thread.
    pub fn keep(&self) {
        let mut state = self.state();
        while !state.over {
            let now = now_ns();
            let wait = match state.due.front() {
                Some(&(due_ns, index)) if due_ns <= now => {
                    state.due.pop_front();
                    if let Err(problem) = self.apply(&mut state, index) {
                        state.problem.get_or_insert(problem);
                    }
                    continue;
                }
                Some((due_ns, _)) => Duration::from_nanos(due_ns - now),
                None => Duration::MAX,
            };
            state = match wait {
                Duration::MAX => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                wait => {
                    self.changed
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    /// The workload is over: no more changes.
    pub fn end(&self) {
        self.state().over = true;
        self.changed.notify_all();
    }

    /// Restores the link. Returns the failure of a change, if there was one.
    pub fn restore(self) -> Result<(), CaseError> {
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(problem) = state.problem {
            return Err(problem);
        }
        if state.link == self.network.wanted {
            return Ok(());
        }
        self.network.change(&self.network.wanted, false)
    }
}

/// Runs a workload while the link of `network` changes by its plan.
pub fn during<'n, T>(
    network: &'n Network<'n>,
    work: impl FnOnce(&Changes<'n>) -> Result<T, CaseError>,
) -> Result<T, CaseError> {
    let changes = Changes::of(network);
    let done = std::thread::scope(|scope| {
        if !network.wanted.steps.is_empty() {
            scope.spawn(|| changes.keep());
        }
        let _end = End(&changes);
        work(&changes)
    });
    let restored = changes.restore();
    done.and_then(|done| restored.map(|()| done))
}

/// Ends the changes however the workload ends.
struct End<'c, 'n>(&'c Changes<'n>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
