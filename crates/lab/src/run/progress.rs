// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a run is: a bar for each shard that runs and one for the whole with
//! the time left; on a file or pipe, plain lines.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use paceline_experiment::plan::Plan;

/// Time between two plain lines at least.
const PLAIN_PERIOD: Duration = Duration::from_secs(5);

/// Shows progress on standard error. Shared by the threads that run shards.
pub struct Progress {
    shards: Vec<Shard>,
    bars: MultiProgress,
    whole: ProgressBar,
    plain: bool,
    state: Mutex<State>,
}

struct Shard {
    name: String,
    steps: u64,
}

struct State {
    /// Steps done, per shard, all repetitions together.
    done: Vec<u64>,
    /// Steps of shards that were done before this run.
    before: u64,
    /// Bars of the shards that have begun.
    shown: Vec<Option<ProgressBar>>,
    last_line: Instant,
}

/// At the mean speed so far; `None` before the first step is done. Steps differ by minutes: by the
/// last ones alone, as in the bar's own estimate, years would be left after a long one.
fn time_left(gone: Duration, done: u64, total: u64) -> Option<Duration> {
    (done > 0).then(|| gone.mul_f64(total.saturating_sub(done) as f64 / done as f64))
}

impl Progress {
    /// Nothing has begun yet. Each of `plans` will be run `repetitions` times.
    pub fn new(plans: &[Plan], repetitions: u32, wanted: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if wanted && terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bars = MultiProgress::with_draw_target(target);
        let shards: Vec<Shard> = plans
            .iter()
            .map(|plan| Shard {
                name: plan.shard_name(),
                steps: plan.steps(),
            })
            .collect();
        let total = shards.iter().map(|shard| shard.steps).sum::<u64>() * u64::from(repetitions);
        let whole = bars.add(ProgressBar::new(total));
        if let Ok(style) =
            ProgressStyle::with_template("{wide_bar} {percent:>3} %  {elapsed} gone{msg}")
        {
            whole.set_style(style);
        }
        whole.enable_steady_tick(Duration::from_secs(1));
        let count = shards.len();
        let state = State {
            done: vec![0; count],
            before: 0,
            shown: vec![None; count],
            last_line: Instant::now(),
        };
        Progress {
            shards,
            bars,
            whole,
            plain: wanted && !terminal,
            state: Mutex::new(state),
        }
    }

    /// Shard `index` has done so many steps of repetition `round`, from 0.
    pub fn step(&self, index: usize, round: u32, steps: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = &self.shards[index];
        let bar = state.shown[index].get_or_insert_with(|| {
            let bar = self
                .bars
                .insert_before(&self.whole, ProgressBar::new(shard.steps));
            if let Ok(style) = ProgressStyle::with_template("{msg:32} {wide_bar} {pos:>4}/{len}") {
                bar.set_style(style);
            }
            bar.set_message(shard.name.clone());
            bar
        });
        bar.set_position(steps);
        state.done[index] = u64::from(round) * shard.steps + steps;
        let done = state.done.iter().sum::<u64>();
        self.whole.set_position(done);
        let total = self.whole.length().unwrap_or_default();
        let (gone, before) = (self.whole.elapsed(), state.before);
        let left = time_left(gone, done - before, total - before)
            .map(|left| format!(", about {} s to go", left.as_secs()));
        self.whole.set_message(left.clone().unwrap_or_default());
        if self.plain && (state.last_line.elapsed() >= PLAIN_PERIOD || done == total) {
            state.last_line = Instant::now();
            let percent = done * 100 / total.max(1);
            let left = left.unwrap_or_else(|| format!(", {} s gone", gone.as_secs()));
            eprintln!(
                "{percent:>3} %  {} {steps}/{}{left}",
                shard.name, shard.steps
            );
        }
    }

    /// So many repetitions will be needed, as it now seems.
    pub fn expect(&self, repetitions: u32) {
        let each = self.shards.iter().map(|shard| shard.steps).sum::<u64>();
        self.whole.set_length(each * u64::from(repetitions));
    }

    /// Repetition `round` of shard `index`, from 0, was done before.
    pub fn skip(&self, index: usize, round: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = &self.shards[index];
        state.done[index] = u64::from(round + 1) * shard.steps;
        state.before += shard.steps;
        self.whole.set_position(state.done.iter().sum());
        if self.plain {
            eprintln!("{} was done before", shard.name);
        }
    }

    /// Shard `index` is complete: its bar goes.
    pub fn finish(&self, index: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = &state.shown[index] {
            bar.finish_and_clear();
        }
    }

    /// The run is over, one way or another.
    pub fn end(&self) {
        self.whole.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_rounds_take_as_long_as_finished_ones() {
        let minute = Duration::from_secs(60);
        assert_eq!(time_left(minute, 3, 9), Some(2 * minute));
        assert_eq!(time_left(minute, 9, 9), Some(Duration::ZERO));
        assert_eq!(time_left(minute, 0, 9), None);
    }
}
