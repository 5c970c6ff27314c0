// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Features that a job lacked because its share of the maps of all jobs was used up.

use paceline_abi::{pl_job, pl_shortage};

/// One sentence for each thing.
pub fn warnings(full: &pl_shortage) -> Vec<String> {
    [
        (
            full.paths,
            "times a connection had no start-up law: the job has reached its limit of paths, one per destination and phase (paths_full)",
        ),
        (
            full.turns,
            "times a message was sent without turns: the job has reached its limit of network namespaces (turns_full)",
        ),
        (
            full.groups,
            "times a connection joined no group: the job has reached its limit of groups (groups_full)",
        ),
        (
            full.members,
            "times a connection joined no group: the group or the job has reached its limit of connections in groups (members_full)",
        ),
        (
            full.storage,
            "connections were left unchanged: the kernel had no memory for Paceline's socket storage (no_storage)",
        ),
    ]
    .into_iter()
    .filter(|(count, _)| *count != 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect()
}

/// Of a job that has ended.
pub fn warn(place: &str, job: Option<&pl_job>) {
    for what in job.iter().flat_map(|job| warnings(&job.full)) {
        tracing::warn!("{place}: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sufficient_resources_are_not_reported() {
        assert!(warnings(&pl_shortage::default()).is_empty());
        let lines = warnings(&pl_shortage {
            groups: 2,
            ..Default::default()
        });
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("2 times") && lines[0].contains("groups_full"));
    }
}
