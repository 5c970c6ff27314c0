// SPDX-License-Identifier: Apache-2.0 OR MIT
//! By which link a cluster reaches each other one. Routers decide by destination
//! alone, as IP does: what is asked for one pair of clusters binds all packets with
//! that destination at the clusters on the way.

use std::collections::VecDeque;

use super::topology::Wan;

/// A way that was asked for: the links from one cluster to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Index of the cluster where it begins.
    pub from: usize,
    /// Index of the cluster where it ends.
    pub to: usize,
    /// Indices of the links, in their order.
    pub links: Vec<usize>,
}

/// Why there are no routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteError {
    /// The links of the way with this index do not lead from its begin to its end.
    NotAWay(usize),
    /// Two ways disagree about a cluster's packets to another.
    Contradiction {
        /// Indices of the ways.
        ways: (usize, usize),
        /// The cluster where they part.
        at: usize,
    },
    /// Packets between these clusters would go round in a circle.
    Circle {
        /// Where they come from.
        from: usize,
        /// Where they never arrive.
        to: usize,
    },
    /// No link leads from the first to the second.
    Unreachable {
        /// The first cluster.
        from: usize,
        /// The second.
        to: usize,
    },
}

/// Routes of `clusters` clusters: those of `ways`, and for the rest the fewest links,
/// then the link that comes first in the file.
///
/// Returns `next_hop[at][to]`, an index of `wans`.
pub fn compute(
    clusters: usize,
    wans: &[Wan],
    ways: &[Way],
) -> Result<Vec<Vec<Option<usize>>>, RouteError> {
    let mut next_hop = vec![vec![None; clusters]; clusters];
    // Which way has asked for it.
    let mut asked: Vec<Vec<Option<usize>>> = vec![vec![None; clusters]; clusters];
    for (index, way) in ways.iter().enumerate() {
        let mut at = way.from;
        for &link in &way.links {
            let beyond = wans[link].across(at).ok_or(RouteError::NotAWay(index))?;
            if at == way.to {
                return Err(RouteError::NotAWay(index));
            }
            match (next_hop[at][way.to], asked[at][way.to]) {
                (Some(other), Some(first)) if other != link => {
                    let ways = (first, index);
                    return Err(RouteError::Contradiction { ways, at });
                }
                _ => {}
            }
            next_hop[at][way.to] = Some(link);
            asked[at][way.to] = Some(index);
            at = beyond;
        }
        if at != way.to {
            return Err(RouteError::NotAWay(index));
        }
    }
    for to in 0..clusters {
        shortest(wans, to, &mut next_hop);
    }
    for from in 0..clusters {
        for to in (0..clusters).filter(|&to| to != from) {
            if next_hop[from][to].is_none() {
                return Err(RouteError::Unreachable { from, to });
            }
            if path(wans, &next_hop, from, to).is_none() {
                return Err(RouteError::Circle { from, to });
            }
        }
    }
    Ok(next_hop)
}

/// Fills what is not decided of the routes to one cluster.
fn shortest(wans: &[Wan], to: usize, next_hop: &mut [Vec<Option<usize>>]) {
    let mut links = vec![usize::MAX; next_hop.len()];
    links[to] = 0;
    let mut queue = VecDeque::from([to]);
    while let Some(at) = queue.pop_front() {
        for wan in wans {
            if let Some(beyond) = wan.across(at).filter(|&beyond| links[beyond] == usize::MAX) {
                links[beyond] = links[at] + 1;
                queue.push_back(beyond);
            }
        }
    }
    for at in (0..next_hop.len()).filter(|&at| at != to && links[at] != usize::MAX) {
        if next_hop[at][to].is_none() {
            next_hop[at][to] = wans.iter().position(|wan| {
                wan.across(at)
                    .is_some_and(|beyond| links[beyond] + 1 == links[at])
            });
        }
    }
}

/// The links from one cluster to another; none where packets never arrive.
pub fn path(
    wans: &[Wan],
    next_hop: &[Vec<Option<usize>>],
    from: usize,
    to: usize,
) -> Option<Vec<usize>> {
    let mut links = Vec::new();
    let mut at = from;
    while at != to {
        // A way without a circle meets each cluster once.
        if links.len() >= next_hop.len() {
            return None;
        }
        let link = next_hop[at][to]?;
        links.push(link);
        at = wans[link].across(at)?;
    }
    Some(links)
}
