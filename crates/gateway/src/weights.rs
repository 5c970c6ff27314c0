// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Share of the rate of a connection beside others, by its destination.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks and their weights. A destination in none of them has weight 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weights(Vec<(IpNet, u8)>);

impl Weights {
    /// Another network.
    pub fn add(&mut self, network: IpNet, weight: u8) {
        self.0.push((network, weight));
    }

    /// That of the longest network in which a destination is.
    pub fn of(&self, address: IpAddr) -> u8 {
        let address = address.to_canonical();
        let found = self
            .0
            .iter()
            .filter(|(network, _)| network.contains(&address));
        found
            .max_by_key(|(network, _)| network.prefix_len())
            .map_or(1, |(_, weight)| *weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_network_counts() {
        let mut weights = Weights::default();
        for (network, weight) in [("10.2.0.5/32", 9), ("10.2.0.0/16", 4), ("fd00::/16", 3)] {
            weights.add(network.parse().expect("one"), weight);
        }
        for (to, weight) in [
            ("10.2.0.5", 9),
            ("::ffff:10.2.0.5", 9),
            ("10.2.0.6", 4),
            ("fd00::1", 3),
            ("10.3.0.1", 1),
        ] {
            let address = to.parse().expect("an address");
            assert_eq!(weights.of(address), weight, "{to}");
        }
    }
}
