// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a job went without because its part of what all jobs share was used up.

use paceline_abi::{pl_job, pl_shortage};

/// One sentence for each thing.
pub(crate) fn words(full: &pl_shortage) -> Vec<String> {
    [
        (
            full.paths,
            "times a connection had no start-up law: the job has as many paths (destinations and phases) in use as it may have (paths_full)",
        ),
        (
            full.turns,
            "times a message did not wait for others of its host: the job is in as many network namespaces as it may be (turns_full)",
        ),
        (
            full.groups,
            "times a connection came into no group: the job has as many groups as it may have (groups_full)",
        ),
        (
            full.members,
            "times a connection came into no group: the group or the job has as many connections in groups as it may have (members_full)",
        ),
        (
            full.storage,
            "connections were left alone: the kernel had no memory for what Paceline keeps with a socket (no_storage)",
        ),
    ]
    .into_iter()
    .filter(|(count, _)| *count != 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect()
}

/// Of a job that has ended.
pub(crate) fn warn(place: &str, job: Option<&pl_job>) {
    for what in job.iter().flat_map(|job| words(&job.full)) {
        tracing::warn!("{place}: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_enough_is_not_told() {
        assert!(words(&pl_shortage::default()).is_empty());
        let told = words(&pl_shortage {
            groups: 2,
            ..Default::default()
        });
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("2 times") && told[0].contains("groups_full"));
    }
}
