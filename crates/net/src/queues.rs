// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's queues of a node, as `tc` shows them.

use std::process::{Command, Stdio};

use serde::{Deserialize, Deserializer};

use crate::{Doing, Error, Namespace};

/// A queue as `tc -j -r -s qdisc show` shows it.
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
    #[serde(default, deserialize_with = "number")]
    pub rate: Option<u64>,
    /// Bytes.
    #[serde(default, deserialize_with = "number")]
    pub limit: Option<u64>,
}

/// Other disciplines have other things of the same name: netem's rate is a table.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_u64())
}

/// The queues of a node.
pub fn queues(node: &Namespace) -> Result<Vec<Queue>, Error> {
    let output = node.enter(|| {
        Command::new("tc")
            .args(["-j", "-r", "-s", "qdisc", "show"])
            .stdin(Stdio::null())
            .output()
            .doing("starting tc")
    })?;
    if !output.status.success() {
        return Err(Error::Tool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_line_with_a_rate_is_a_queue_too() {
        let json = r#"[
            {"kind":"tbf","handle":"1:","dev":"wan","options":{"rate":6250000,"limit":131072},"drops":3},
            {"kind":"netem","handle":"2:","dev":"far","options":{"limit":100000,"rate":{"rate":12500000000,"packetoverhead":0}}}
        ]"#;
        let queues: Vec<Queue> = serde_json::from_str(json).expect("queues");
        assert_eq!(queues[0].options.rate, Some(6_250_000));
        assert_eq!(
            (queues[1].options.rate, queues[1].options.limit),
            (None, Some(100_000))
        );
    }
}
