// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether an error is about a file that the user wrote: the command's work has not begun.

use paceline_emulator::file::FileError;
use paceline_experiment::ExperimentError;
use paceline_gateway::config::ConfigError;
use paceline_lab::run::RunError;
use paceline_simulator::scenario::ScenarioError;
use paceline_simulator::study::StudyError;
use paceline_simulator::sweep::SweepError;
use paceline_testbed::TopologyError;

/// An experiment, a topology, a scenario, a link or a gateway that cannot be read, makes no sense,
/// or lacks what the command line names.
pub fn is_cause_of(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<ExperimentError>()
            || cause.is::<TopologyError>()
            || cause.is::<ScenarioError>()
            || cause.is::<FileError>()
            || cause.is::<ConfigError>()
            || matches!(
                cause.downcast_ref(),
                Some(RunError::Experiment(_) | RunError::Program { .. })
            )
            || matches!(
                cause.downcast_ref(),
                Some(StudyError::Scenario(_) | StudyError::Sweep(SweepError::Scenario(_)))
            )
    })
}
