// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The controls of a sender, once its other keys are known; those that leave others without
//! effect are not for the same table.

use paceline_input::{Place, Reported};

use super::ns;
use crate::scenario::controls::{AtoTable, RtoTable, RttTable};
use crate::scenario::file::{SenderTable, LONGEST};
use crate::sender::config::{Ato, Estimator, SenderConfig, UNBOUNDED_BACKOFF};

/// Sets the controls that `tables` have, of which an earlier one's keys go before a later one's.
/// `at` is the place of a key.
pub(super) fn apply<'d>(
    tables: &[&SenderTable],
    config: &mut SenderConfig,
    at: &impl Fn(&str) -> Place<'d>,
) -> Result<(), Reported> {
    macro_rules! first {
        ($key:ident) => {
            tables
                .iter()
                .enumerate()
                .find_map(|(level, table)| table.$key.map(|value| (level, value)))
        };
    }
    // Keys without effect beside this one must not be in its table, nor in an earlier one.
    macro_rules! refuse {
        ($level:ident, $by:expr, $($key:ident),+) => {
            $(if first!($key).is_some_and(|(level, _)| level <= $level) {
                let key = stringify!($key);
                let problem = format!("has no effect with {}: remove one of them", $by);
                return Err(at(key).wrong_key(problem));
            })+
        };
    }
    let lawful = config.policy.is_some();
    if let Some((_, rtt)) = first!(rtt) {
        config.rto.estimator = match rtt {
            RttTable::Smoothed => Estimator::Smoothed,
            RttTable::Constant(time) => Estimator::Constant(ns(time)),
            RttTable::Shift(bits) => Estimator::Shifted(bits.into()),
        };
        if lawful && rtt != RttTable::Smoothed {
            let problem = "a policy's laws go by the kernel's estimator: write \"smoothed\"";
            return Err(at("rtt").wrong(problem));
        }
    }
    match first!(rto) {
        None | Some((_, RtoTable::Bounded)) => {}
        Some((level, RtoTable::Unbounded)) => {
            refuse!(level, "rto = \"unbounded\"", rto_min, rto_max);
            // One tick may be over at once.
            config.rto.floor_ns = 2 * config.timer_tick_ns;
            config.rto.floor_on_variance = false;
            config.rto.bound_ns = ns(LONGEST);
            config.rto.most_backoff = UNBOUNDED_BACKOFF;
        }
        Some((level, RtoTable::Constant(time))) => {
            refuse!(level, "a constant rto", rto_initial, rto_min, rto_max);
            config.rto.constant_ns = ns(time);
        }
    }
    match first!(ato) {
        None | Some((_, AtoTable::Fixed)) => {}
        Some((level, AtoTable::Quick)) => {
            refuse!(level, "ato = \"quick\"", ack_every, ack_delay);
            config.ack_every = 1;
        }
        Some((_, AtoTable::Estimated)) => config.ato = Ato::Estimated,
    }
    if let Some((_, again)) = first!(initial_window_again) {
        config.initial_window_again = again;
    }
    if let Some((level, segments)) = first!(fixed_window) {
        refuse!(level, "fixed_window", initial_window, initial_window_again);
        if lawful {
            let problem = "a policy's laws set the window: give a policy or a fixed_window";
            return Err(at("fixed_window").wrong(problem));
        }
        config.fixed_window = segments;
    }
    Ok(())
}
