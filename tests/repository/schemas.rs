// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schemas in `docs/schemas`, which editors are given, are what `paceline schema`
//! prints. With `PACELINE_SNAPSHOTS=write` they are written anew.

use std::fs;
use std::path::Path;
use std::process::Command;

const KINDS: [&str; 8] = [
    "policy",
    "link",
    "scenario",
    "experiment",
    "topology",
    "agent",
    "gateway",
    "agent-protocol",
];

fn printed(kind: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_paceline"))
        .args(["schema", kind])
        .output()
        .expect("paceline");
    assert!(output.status.success(), "{kind}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_schemas_of_the_documentation_are_those_of_the_readers() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    for kind in KINDS {
        let path = directory.join(format!("{kind}.json"));
        if std::env::var("PACELINE_SNAPSHOTS").as_deref() == Ok("write") {
            fs::write(&path, printed(kind)).expect("written");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == printed(kind), "{} differs", path.display());
    }
    let files = fs::read_dir(&directory).expect("schemas").flatten();
    assert_eq!(files.count(), KINDS.len(), "a schema of no reader");
}

/// Whoever writes a file learns of each key what it means.
#[test]
fn every_key_has_a_description() {
    fn undescribed(schema: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        if let Some(properties) = schema["properties"].as_object() {
            for (key, value) in properties {
                let path = format!("{path}.{key}");
                if value["description"].as_str().is_none_or(str::is_empty) {
                    found.push(path.clone());
                }
                undescribed(value, &path, found);
            }
        }
        for below in ["items", "additionalProperties"] {
            if schema[below].is_object() {
                undescribed(&schema[below], path, found);
            }
        }
        for several in ["anyOf", "oneOf"] {
            for branch in schema[several].as_array().into_iter().flatten() {
                undescribed(branch, path, found);
            }
        }
    }
    for kind in KINDS {
        let schema = serde_json::from_str(&printed(kind)).expect("JSON");
        let mut found = Vec::new();
        undescribed(&schema, kind, &mut found);
        assert!(found.is_empty(), "{found:?}");
    }
}
