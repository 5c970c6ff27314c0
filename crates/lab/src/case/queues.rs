// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's queues of a node, as `tc` tells of them.

use std::process::{Command, Stdio};

use serde::Deserialize;

use super::{CaseError, Doing, Namespace};

/// A queue as `tc -j -r -s qdisc show` tells of it.
#[derive(Debug, Default, Deserialize)]
pub struct Queue {
    #[serde(default)]
    pub dev: String,
    pub kind: String,
    #[serde(default)]
    pub options: Shaper,
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub packets: u64,
    #[serde(default)]
    pub drops: u64,
}

#[derive(Debug, Default, Deserialize)]
pub struct Shaper {
    /// Bytes per second.
    pub rate: Option<u64>,
    /// Bytes.
    pub limit: Option<u64>,
}

/// The queues of a node.
pub fn queues(node: &Namespace) -> Result<Vec<Queue>, CaseError> {
    let output = node.enter(|| {
        Command::new("tc")
            .args(["-j", "-r", "-s", "qdisc", "show"])
            .stdin(Stdio::null())
            .output()
            .doing("starting tc")
    })?;
    if !output.status.success() {
        return Err(CaseError::Tool {
            tool: "tc",
            status: output.status,
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            input: "-j -r -s qdisc show\n".to_owned(),
        });
    }
    serde_json::from_slice(&output.stdout)
        .map_err(std::io::Error::other)
        .doing("reading what tc wrote")
}
