// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The links by which a cluster reaches each other one: the fewest, unless the file sets
//! others. Such a way is for the packets of that pair of clusters only, so routers use the
//! source address, too.

use std::collections::VecDeque;

use super::topology::Wan;

/// The links of the shortest ways, of those that are as short the first in the file:
/// `next_hop[at][to]` is an index of `wans`, none where there is no way, or nothing
/// to do.
pub fn shortest(clusters: usize, wans: &[Wan]) -> Vec<Vec<Option<usize>>> {
    let distance: Vec<Vec<Option<usize>>> = (0..clusters)
        .map(|to| distances(clusters, wans, to))
        .collect();
    let first = |at: usize, to: usize| {
        let links = distance[to][at]?;
        wans.iter().position(|wan| {
            let beyond = wan.across(at).and_then(|beyond| distance[to][beyond]);
            beyond.is_some_and(|left| left + 1 == links)
        })
    };
    (0..clusters)
        .map(|at| (0..clusters).map(|to| first(at, to)).collect())
        .collect()
}

/// How many links each cluster is away from `to`.
fn distances(clusters: usize, wans: &[Wan], to: usize) -> Vec<Option<usize>> {
    let mut distance = vec![None; clusters];
    distance[to] = Some(0);
    let mut queue = VecDeque::from([(to, 0)]);
    while let Some((at, links)) = queue.pop_front() {
        for beyond in wans.iter().filter_map(|wan| wan.across(at)) {
            if distance[beyond].is_none() {
                distance[beyond] = Some(links + 1);
                queue.push_back((beyond, links + 1));
            }
        }
    }
    distance
}
