// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is linked into Paceline, held against deny.toml: `cargo deny` reads the same file,
//! takes minutes to build, and is not on every machine.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        // It is of all platforms: a build downloads less, and the first run of this the rest.
        .args(["metadata", "--format-version", "1", "--locked"])
        .arg("--all-features")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn list<'v>(value: &'v toml::Value, table: &str, key: &str) -> &'v [toml::Value] {
    value[table][key].as_array().expect("a list")
}

#[test]
fn licences_sources_and_bans_are_those_of_deny_toml() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml");
    let text = std::fs::read_to_string(file).expect("deny.toml");
    let rules: toml::Value = toml::from_str(&text).expect("TOML");
    let allowed: Vec<&str> = list(&rules, "licenses", "allow")
        .iter()
        .filter_map(toml::Value::as_str)
        .collect();
    let banned: Vec<&str> = list(&rules, "bans", "deny")
        .iter()
        .filter_map(|ban| ban["crate"].as_str())
        .collect();
    assert!(!allowed.is_empty() && !banned.is_empty());

    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        // One of the workspace has no source.
        if let Some(source) = package["source"].as_str() {
            if source != "registry+https://github.com/rust-lang/crates.io-index" {
                wrong.push(format!("{name}: from {source}"));
            }
        }
        if banned.contains(&name) {
            wrong.push(format!("{name}: banned"));
        }
        let licence = package["license"].as_str().unwrap_or_default();
        let expression = Expression::parse_mode(licence, ParseMode::LAX);
        let permitted = |requirement: &LicenseReq| {
            let licence = requirement.license.id();
            licence.is_some_and(|id| allowed.contains(&id.name))
        };
        if !expression.is_ok_and(|expression| expression.evaluate(permitted)) {
            wrong.push(format!("{name}: licence {licence:?}"));
        }
    }
    assert!(packages.len() > 100, "only {} packages", packages.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
