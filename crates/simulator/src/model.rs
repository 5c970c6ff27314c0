// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stochastic model of feng-2000, section 4: clients of TCP Reno, round trip by
//! round trip.
//!
//! In round n client i has X new packets (Poisson of mean lambda tau) and V left over;
//! its window W lets Y = min(X + V, W) of them go, and V' = X + V - Y stay. If the sum of
//! all Y is more than the path takes in a round, all windows halve together; else each
//! grows by one for a window's worth of packets sent, by Y/W.
//!
//! **The reading of the capacity.** The text of the paper has it as
//! "(mu_s/(8 x packet size) + B) tau". mu_s/(8 x packet size) is packets per second, B is
//! packets: they cannot be added, and B tau is packets times seconds. The capacity of a
//! round is the link's packets in it and its buffer: (mu_s/(8 x packet size)) tau + B,
//! which is used here; with Table 1's values 466.7 packets. As printed,
//! and with the dimensions overlooked, it would be 421.7: [`Capacity::Printed`], for
//! comparison.
//!
//! The window stays between 1 and the receiver's (Table 1: 20), which the text does not
//! say; without an upper bound it would grow for ever below capacity.

use rand_distr::{Distribution, Poisson};

use crate::meter::Spread;
use crate::random::{sequence, Purpose};

/// How the capacity of a round is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// rate * tau + buffer.
    RateAndBuffer,
    /// (rate + buffer) * tau.
    Printed,
}

/// The model's parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// Clients.
    pub clients: u32,
    /// Packets that each has per round, on average: lambda tau.
    pub packets_per_round: f64,
    /// Seconds of a round: tau.
    pub round_s: f64,
    /// Packets per second of the bottleneck.
    pub rate: f64,
    /// Packets that its buffer holds.
    pub buffer: f64,
    /// Receiver's window, packets.
    pub window: f64,
    /// Rounds before the steady state.
    pub warm_up: usize,
    /// Rounds in it.
    pub rounds: usize,
}

/// Results of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// Coefficient of variation of the packets per round.
    pub cov: f64,
    /// Their mean.
    pub mean: f64,
    /// Share of the rounds in which all windows halved.
    pub congested_share: f64,
}

impl Model {
    /// Capacity of a round, packets.
    pub fn capacity(&self, reading: Capacity) -> f64 {
        match reading {
            Capacity::RateAndBuffer => self.rate * self.round_s + self.buffer,
            Capacity::Printed => (self.rate + self.buffer) * self.round_s,
        }
    }

    /// Runs the model. `None` where there is nothing to send.
    pub fn run(&self, reading: Capacity, seed: u64) -> Option<Found> {
        let capacity = self.capacity(reading);
        let arrivals = Poisson::new(self.packets_per_round).ok()?;
        let mut chance = sequence(seed, Purpose::Model, u64::from(self.clients));
        let most = self.window.max(1.0);
        // The packets left over, the window, and the packets sent in this round.
        let mut clients = vec![(0.0f64, 1.0f64, 0.0f64); self.clients as usize];
        let mut counts = Vec::with_capacity(self.rounds);
        let mut congested = 0;
        for round in 0..self.warm_up + self.rounds {
            let mut sum = 0.0;
            for (left, window, sent) in &mut clients {
                let new: f64 = arrivals.sample(&mut chance);
                let waits = *left + new;
                *sent = waits.min(window.floor());
                *left = waits - *sent;
                sum += *sent;
            }
            let halves = sum > capacity;
            congested += usize::from(halves && round >= self.warm_up);
            for (_, window, sent) in &mut clients {
                *window = match halves {
                    true => (*window / 2.0).max(1.0),
                    false => (*window + *sent / *window).min(most),
                };
            }
            if round >= self.warm_up {
                counts.push(sum as u32);
            }
        }
        let spread = Spread::of(&counts, 1)?;
        Some(Found {
            cov: spread.cov(),
            mean: spread.mean,
            congested_share: congested as f64 / self.rounds as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table1(clients: u32) -> Model {
        Model {
            clients,
            packets_per_round: 10.0,
            round_s: 0.1,
            rate: 50e6 / 12_000.0,
            buffer: 50.0,
            window: 20.0,
            warm_up: 2_000,
            rounds: 20_000,
        }
    }

    #[test]
    fn the_capacity_of_table_1() {
        let model = table1(1);
        assert!((model.capacity(Capacity::RateAndBuffer) - 466.67).abs() < 0.01);
        assert!((model.capacity(Capacity::Printed) - 421.67).abs() < 0.01);
    }

    #[test]
    fn below_capacity_it_is_as_smooth_as_its_sources() {
        let found = table1(10).run(Capacity::RateAndBuffer, 1).expect("packets");
        assert!((found.mean - 100.0).abs() < 1.0, "{found:?}");
        assert!(found.cov <= 1.02 / 10.0 && found.congested_share == 0.0);
    }

    #[test]
    fn above_it_windows_halve_together() {
        let found = table1(60).run(Capacity::RateAndBuffer, 1).expect("packets");
        assert!(found.cov > 3.0 / 600f64.sqrt(), "{found:?}");
    }
}
