// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links of the documentation to files of this repository and to their headings lead
//! somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// All documents below a directory.
fn documents(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let is_made = name.starts_with('.') || name == "target" || name == "results";
        if path.is_dir() && (!is_made || path.ends_with("docs/results")) {
            documents(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// Lines outside of code blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line);
        }
    }
    lines
}

/// The anchors that a forge gives to a document's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c => c.is_alphanumeric().then_some(c),
        });
        kept.collect()
    };
    headings.map(anchor).collect()
}

/// Targets of the links in a text: what is between `](` and `)`.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text).join("\n");
    let parts = prose.split("](").skip(1);
    let target = |part: &str| part.split_once(')').map(|(target, _)| target.to_owned());
    let targets = parts.filter_map(target);
    // What has a space is no target.
    targets.filter(|target| !target.contains(' ')).collect()
}

/// What leads nowhere in a document.
fn dead(document: &Path, text: &str) -> Vec<String> {
    let directory = document.parent().expect("a directory");
    let local = targets(text)
        .into_iter()
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    local
        .filter(|target| {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => document.to_owned(),
                file => directory.join(file),
            };
            let is_document = path.extension().is_some_and(|ending| ending == "md");
            let has_anchor = || {
                let text = fs::read_to_string(&path).unwrap_or_default();
                anchors(&text).contains(anchor)
            };
            !path.exists() || is_document && !anchor.is_empty() && !has_anchor()
        })
        .map(|target| format!("{}: {target}", document.display()))
        .collect()
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    documents(&root, &mut found);
    assert!(found.len() > 30, "only {found:?}");
    let texts = found.iter().map(|path| {
        let text = fs::read_to_string(path).expect("text");
        (path, text)
    });
    let dead: Vec<String> = texts.flat_map(|(path, text)| dead(path, &text)).collect();
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn a_dead_link_is_found() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = "# `One` heading, two\n[a](#one-heading-two) [b](docs/guide.md#reading-status)\n\
                [c](https://x.y/#z) [d](#two)\n```\n[e](nowhere.md)\n```\n[f](nowhere.md)\n\
                [g](docs/guide.md#nowhere)\n";
    // Its own headings are those of the file.
    let of = |target: &str| {
        dead(&here, text)
            .iter()
            .any(|message| message.ends_with(target))
    };
    assert!(anchors(text).contains("one-heading-two"));
    assert!(of(": nowhere.md") && of(": docs/guide.md#nowhere") && of(": #two"));
    assert!(!of("#reading-status") && !of("#z"));
}
