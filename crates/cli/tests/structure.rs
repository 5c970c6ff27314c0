// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The house's plan, held against the source: which crate may use which, no circle among a
//! crate's modules, no crate and no file too long (ARCHITECTURE.md, "The house").

#[path = "structure/modules.rs"]
mod modules;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use modules::{circles, named_crates, Source};

/// Lines of a crate's `src` at most: more is not one thing any more.
const LONGEST_CRATE: usize = 10_000;
/// Lines of a file at most.
const LONGEST_FILE: usize = 600;

/// Each crate uses those of floors below its own, and no others. From the ground up.
const FLOORS: [&[&str]; 9] = [
    &[
        "abi", "bpf", "callers", "cgroup", "launch", "metrics", "net", "report", "terminal",
        "transfer",
    ],
    &["history", "input", "security"],
    &["conduit", "control", "phase", "policy"],
    &["burst", "coordinator", "emulator", "gateway", "mover"],
    &["agent", "experiment", "simulator"],
    &["collect", "courier", "limits", "machine", "testbed", "top"],
    &["lab"],
    &["cli"],
    &["fuzz"],
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Packages of the workspace: name without `paceline-`, and directory.
fn packages() -> Vec<(String, PathBuf)> {
    let crates = fs::read_dir(root().join("crates")).expect("crates/");
    let mut packages: Vec<(String, PathBuf)> = crates
        .map(|entry| entry.expect("an entry").path())
        .filter(|directory| directory.join("Cargo.toml").exists())
        .chain([root().join("fuzz")])
        .map(|directory| {
            let name = directory.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), directory)
        })
        .collect();
    packages.sort();
    assert!(packages.len() > 10, "only {packages:?}");
    packages
}

/// Files below `directory` that end so, with their text.
fn files(directory: &Path, endings: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else {
        return found;
    };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        if path.file_name().is_some_and(|name| name == "target") {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, endings));
        } else if endings.contains(&ending.as_ref()) {
            let text = fs::read_to_string(&path).expect("text");
            found.push((path, text));
        }
    }
    found.sort();
    found
}

fn floor(package: &str) -> usize {
    let place = FLOORS.iter().position(|floor| floor.contains(&package));
    place.unwrap_or_else(|| panic!("crates/{package} is on no floor: see FLOORS"))
}

#[test]
fn crates_use_those_of_lower_floors_and_no_more_than_they_say() {
    let mut wrong = Vec::new();
    for (package, directory) in packages() {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("Cargo.toml");
        let manifest: toml::Table = toml::from_str(&manifest).expect("TOML");
        let own = |table: &str| -> BTreeSet<String> {
            let table = manifest.get(table).and_then(toml::Value::as_table);
            let names = table.into_iter().flat_map(toml::Table::keys);
            names
                .filter_map(|name| name.strip_prefix("paceline-"))
                .map(str::to_owned)
                .collect()
        };
        let said = own("dependencies");
        for dependency in &said {
            if floor(dependency) >= floor(&package) {
                wrong.push(format!(
                    "{package} uses {dependency}, which is not below it"
                ));
            }
        }
        let sources = files(&directory.join("src"), &["rs"]);
        let targets = files(&directory.join("fuzz_targets"), &["rs"]);
        let texts = sources.iter().chain(&targets);
        let used: BTreeSet<String> = texts.flat_map(|(_, text)| named_crates(text)).collect();
        for unused in said.difference(&used) {
            wrong.push(format!("{package} depends on {unused} and does not use it"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn modules_of_a_crate_make_no_circle() {
    let mut wrong = Vec::new();
    for (package, directory) in packages() {
        let src = directory.join("src");
        let sources = files(&src, &["rs"]);
        let sources: Vec<Source> = sources
            .iter()
            .map(|(path, text)| Source {
                place: path.strip_prefix(&src).expect("below src"),
                text,
            })
            .collect();
        assert!(!sources.is_empty(), "{package} has no source");
        let found = circles(&sources);
        wrong.extend(
            found
                .into_iter()
                .map(|circle| format!("{package}: {circle}")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_crate_and_no_file_is_too_long() {
    let mut wrong = Vec::new();
    let mut count = |path: &Path, text: &str| {
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            wrong.push(format!("{}: {lines} lines", path.display()));
        }
        lines
    };
    let mut long = Vec::new();
    for (package, directory) in packages() {
        let src = directory.join("src");
        let mut lines = 0;
        for (path, text) in files(&directory, &["rs"]) {
            let own = count(&path, &text);
            lines += if path.starts_with(&src) { own } else { 0 };
        }
        if lines > LONGEST_CRATE {
            long.push(format!("crates/{package}/src: {lines} lines"));
        }
    }
    for directory in ["bpf", "include", "mpi"] {
        for (path, text) in files(&root().join(directory), &["c", "h"]) {
            count(&path, &text);
        }
    }
    wrong.extend(long);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
