// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Send rate of one side.
//!
//! - *Reserve*: a rate that was allocated in advance (kamezawa-2004, 8). It ignores loss, so
//!   it is an explicit choice.
//! - *Learned*: the rate that the path delivers, estimated as in BBR (Cardwell et al., ACM Queue
//!   14(5), 2016), and kept from building a queue.
//!
//! The breaker ends a reservation that the path does not honour.

mod breaker;
mod learned;

pub use breaker::Breaker;
pub use learned::Learned;

use crate::session::time::Nanos;

/// A rate as configured, bits per second on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// This one, whatever is lost.
    Reserve(u64),
    /// The rate that the path delivers, at most this.
    Learned {
        /// Bits per second.
        most: u64,
    },
}

/// Measurements of one report.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Time of its arrival.
    pub now: Nanos,
    /// Bytes that arrived, with the datagrams' overhead.
    pub arrived: u64,
    /// Bytes that are lost by number; loss in a silence is no sign of a rate too high.
    pub lost: u64,
    /// Latest round trip, nanoseconds.
    pub rtt: Nanos,
    /// Shortest round trip, nanoseconds.
    pub least_rtt: Nanos,
    /// There was less to send than the rate permits.
    pub was_idle: bool,
    /// The other side received nothing for a while.
    pub was_silent: bool,
}

/// The law in force.
#[derive(Debug)]
pub struct Law {
    reserve: Option<(u64, Breaker)>,
    learned: Learned,
}

impl Law {
    /// As configured.
    pub fn new(rate: Rate) -> Self {
        match rate {
            Rate::Reserve(rate) => Self {
                reserve: Some((rate, Breaker::default())),
                learned: Learned::new(rate),
            },
            Rate::Learned { most } => Self {
                reserve: None,
                learned: Learned::new(most),
            },
        }
    }

    /// Bits per second.
    pub fn rate(&self) -> u64 {
        match &self.reserve {
            Some((rate, _)) => *rate,
            None => self.learned.rate(),
        }
    }

    /// A report came. True if the breaker ends the reservation with it.
    pub fn sample(&mut self, sample: &Sample) -> bool {
        let Some((_, breaker)) = &mut self.reserve else {
            self.learned.sample(sample);
            return false;
        };
        let Some(delivered) = breaker.sample(sample) else {
            return false;
        };
        self.learned.start_at(delivered);
        self.reserve = None;
        true
    }
}
