// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The documentation's tables of figures say what the committed results say. A table stands
//! between `<!-- table: NAME -->` and `<!-- end of table -->`. With
//! `PACELINE_SNAPSHOTS=write` the tables are written anew.

mod markdown;
mod random_paths;
mod record;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

/// The documents that have tables, from the repository's root.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/results/README.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_tables_of_the_documentation_are_those_of_the_results() {
    let mut shown = Vec::new();
    for document in DOCUMENTS {
        let path = root().join(document);
        let committed = fs::read_to_string(&path).expect("a document");
        let filled = markdown::fill(&committed, |name| {
            shown.push(name.to_owned());
            tables::table(name)
        })
        .unwrap_or_else(|error| panic!("{document}: {error}"));
        if std::env::var("PACELINE_SNAPSHOTS").as_deref() == Ok("write") {
            fs::write(&path, &filled).expect("written");
            continue;
        }
        let differing: Vec<_> = committed
            .lines()
            .zip(filled.lines())
            .filter(|(committed, filled)| committed != filled)
            .collect();
        assert!(
            committed == filled,
            "{document} differs from the committed results (left the document, right the \
             results); PACELINE_SNAPSHOTS=write writes it anew: {differing:#?}"
        );
    }
    shown.sort();
    assert_eq!(shown, tables::NAMES, "each table stands in one place");
}

#[test]
fn a_changed_figure_and_a_broken_marker_are_found() {
    let text = "before\n<!-- table: one -->\n\n1 ms\n\n<!-- end of table -->\nafter\n";
    let fill = |text: &str| markdown::fill(text, |name| (name == "one").then(|| "1 ms".into()));
    assert_eq!(fill(text).as_deref(), Ok(text));
    assert_eq!(fill(&text.replace("1 ms", "2 ms")).as_deref(), Ok(text));
    let unknown = fill(&text.replace("one", "two")).expect_err("no such table");
    assert!(unknown.contains("two"), "{unknown}");
    let endless = fill(&text.replace("<!-- end", "<!-- and")).expect_err("no end");
    assert!(endless.contains("end of table"), "{endless}");
}
