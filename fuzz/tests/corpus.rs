// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All files that the fuzzer found worth keeping, and this repository's own.

use std::fs;
use std::path::{Path, PathBuf};

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| {
        panic!("{}: {error}", directory.display());
    });
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.is_file()).collect()
}

fn try_all(directory: &Path, target: paceline_fuzz::Target) -> usize {
    let files = files(directory);
    for path in &files {
        // As for the fuzzer, what is not text is none of the readers' business.
        if let Ok(text) = fs::read_to_string(path) {
            // Shown if the next line panics.
            println!("{}", path.display());
            target(&text);
        }
    }
    files.len()
}

#[test]
fn no_file_that_was_found_makes_a_reader_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in paceline_fuzz::TARGETS {
        let tried = try_all(&corpus.join(name), target);
        assert!(tried > 10, "{name}: only {tried} files");
    }
}

/// Each reader is given what was found for any of them.
#[test]
fn every_problem_is_at_a_place_of_its_text() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for name in [
        "agent-config",
        "experiment",
        "gateway-config",
        "link",
        "policy",
        "scenario",
        "topology",
    ] {
        let tried = try_all(&corpus.join(name), paceline_fuzz::inputs);
        assert!(tried > 10, "{name}: only {tried} files");
    }
}

#[test]
fn nor_do_those_of_this_repository() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    assert!(try_all(&experiments, paceline_fuzz::experiment) > 10);
    assert!(try_all(&experiments, paceline_fuzz::scenario) > 10);
    assert!(try_all(&experiments.join("topologies"), paceline_fuzz::topology) > 0);
}

#[test]
fn nothing_that_was_said_at_a_socket_makes_its_listener_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, said) in paceline_fuzz::SOCKETS {
        let files = files(&corpus.join(name));
        for path in &files {
            println!("{}", path.display());
            said(&fs::read(path).expect("a file"));
        }
        assert!(files.len() > 10, "{name}: only {} files", files.len());
    }
}
