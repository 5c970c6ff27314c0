// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline set`, and what a job has of it.

use std::process::Output;

use serde_json::Value;

use super::{jobs, output, status, Net, Peer, SERVER4};

/// So many fit into a listener's queue.
const AT_ONCE: usize = 100;

pub fn set(job: &str, arguments: &[&str]) -> Output {
    output(&[&["set", job], arguments].concat())
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The job that a peer program is.
pub fn job_of(peer: &Peer) -> Value {
    let part = format!("paceline.{}.", peer.process.id());
    jobs(&status(), &part).remove(0)
}

pub fn id_of(peer: &Peer) -> String {
    job_of(peer)["id"].to_string()
}

/// Value and origin of a key; null if the policy has it not.
pub fn key(job: &Value, key: &str) -> (Value, Value) {
    let keys = job["keys"].as_array().unwrap();
    let found = keys.iter().find(|known| known["key"] == key);
    found.map_or((Value::Null, Value::Null), |found| {
        (found["value"].clone(), found["origin"].clone())
    })
}

/// What all connections of a job have of this field.
pub fn of_all(job: &Value, field: &str) -> Vec<Value> {
    let connections = job["connections"].as_array().unwrap();
    let mut values: Vec<Value> = Vec::new();
    for connection in connections {
        if !values.contains(&connection[field]) {
            values.push(connection[field].clone());
        }
    }
    values
}

/// A client under a policy with so many connections to a server.
pub fn connected(net: &Net, policy: &str, count: usize) -> (Peer, Peer) {
    let (mut client, mut server) = (net.job(0, policy), net.peer(1));
    let port = server.ask(&format!("listen {SERVER4}"));
    let mut left = count;
    while left > 0 {
        let some = left.min(AT_ONCE);
        client.ask(&format!("connect-many {SERVER4} {port} {some}"));
        server.ask(&format!("accept-many {some}"));
        left -= some;
    }
    (client, server)
}
