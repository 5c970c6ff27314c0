// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a case could not be run to its end.

use std::io;

/// Why a case could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The network could not be made or read.
    #[error(transparent)]
    Network(#[from] paceline_net::Error),
    /// Paceline could not adapt a sender's job.
    #[error("policy for the senders: {message}")]
    Policy {
        /// The agent's message.
        message: String,
    },
    /// A real program did not run to its end, or its output has no result.
    #[error("[[program]] {program}: {problem}")]
    RealProgram {
        /// Its name.
        program: String,
        /// The problem.
        problem: String,
    },
    /// A transfer of files did not run to its end.
    #[error("[[transfer]]: {0}")]
    Transfer(#[from] paceline_courier::CourierError),
    /// The gateways at the ends of the link.
    #[error("the gateways: {0}")]
    Gateway(String),
    /// A rank's process failed.
    #[error("a rank failed: {0}")]
    Rank(String),
    /// The results cannot form a valid record.
    #[error("{0}")]
    Unexpected(&'static str),
    /// The measurement is invalid.
    #[error("the run is invalid: {0}")]
    Untrusted(String),
    /// The records could not be handed on.
    #[error("passing a record on: {0}")]
    Sink(io::Error),
}
