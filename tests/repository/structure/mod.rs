// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The house's plan, held against the source: which crate may use which, no circle among a
//! crate's modules, no crate, no file and not the repository too long (ARCHITECTURE.md, "The
//! house").

mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use modules::{circles, named_crates, Source};

/// Lines of a package, with its tests and benchmarks, and of a folder of `tests`, at most: more
/// is not one thing any more.
const LONGEST_CRATE: usize = 10_000;
/// Lines of a file at most.
const LONGEST_FILE: usize = 600;
/// Lines of a function's body in the kernel side at most, with its braces.
const LONGEST_FUNCTION: usize = 80;

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
    &[
        "collect",
        "courier",
        "limits",
        "machine",
        "simulated",
        "testbed",
        "top",
    ],
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

/// Crates of the workspace that a manifest's tables with this ending name, also those of one
/// target alone.
fn named_in(manifest: &toml::Table, table: &str) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(toml::Table::values);
    let tables = targets.filter_map(toml::Value::as_table);
    tables
        .chain([manifest])
        .filter_map(|holder| holder.get(table).and_then(toml::Value::as_table))
        .flat_map(toml::Table::keys)
        .filter_map(|name| name.strip_prefix("paceline-"))
        .map(str::to_owned)
        .collect()
}

/// What a crate's manifest and source have against the floors.
fn ties<'t>(
    package: &str,
    manifest: &str,
    texts: impl IntoIterator<Item = &'t String>,
) -> Vec<String> {
    let manifest: toml::Table = toml::from_str(manifest).expect("TOML");
    let declared = named_in(&manifest, "dependencies");
    let all = ["dependencies", "build-dependencies", "dev-dependencies"];
    let all: BTreeSet<String> = all.iter().flat_map(|t| named_in(&manifest, t)).collect();
    let texts = texts.into_iter();
    let mut used: BTreeSet<String> = texts.flat_map(|text| named_crates(text)).collect();
    // The crate itself, under its own name.
    used.remove(package);
    // A name like that of a crate, which is none.
    used.retain(|name| FLOORS.iter().any(|floor| floor.contains(&name.as_str())));
    let above = all
        .union(&used)
        .filter(|&name| floor(name) >= floor(package));
    let upwards = above.map(|name| format!("{package} uses {name}, which is not below it"));
    let unused = declared.difference(&used);
    let unused = unused.map(|name| format!("{package} depends on {name} and does not use it"));
    upwards.chain(unused).collect()
}

#[test]
fn crates_use_only_lower_floors_and_all_they_declare() {
    let mut wrong = Vec::new();
    for (package, directory) in packages() {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("Cargo.toml");
        let sources = files(&directory.join("src"), &["rs"]);
        let targets = files(&directory.join("fuzz_targets"), &["rs"]);
        let texts = sources.iter().chain(&targets).map(|(_, text)| text);
        wrong.extend(ties(&package, &manifest, texts));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_tie_upwards_is_found_in_source_and_in_each_kind_of_dependency() {
    let (net, lab) = (
        "use paceline_net::x;".to_owned(),
        "paceline_lab::y();".to_owned(),
    );
    let table = |name: &str| format!("[{name}]\npaceline-lab.workspace = true");
    let own = "[dependencies]\npaceline-net.workspace = true";
    assert!(ties("agent", own, [&net]).is_empty());
    let up = "agent uses lab, which is not below it";
    assert_eq!(ties("agent", own, [&net, &lab]), [up]);
    let unused = "agent depends on net and does not use it";
    assert_eq!(ties("agent", own, []), [unused]);
    for name in ["build-dependencies", "dev-dependencies"] {
        assert_eq!(ties("agent", &table(name), []), [up], "{name}");
        let of_a_target = table(&format!("target.'cfg(unix)'.{name}"));
        assert_eq!(ties("agent", &of_a_target, []), [up], "{name}");
    }
    let beside = table("dependencies").replace("-lab", "-simulator");
    assert_eq!(
        ties("agent", &beside, [&"paceline_simulator".to_owned()]),
        ["agent uses simulator, which is not below it"]
    );
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
    let folders = folders_of_tests();
    let mut crates: BTreeMap<&Path, usize> = BTreeMap::new();
    let packages = packages();
    for directory in packages.iter().map(|(_, path)| path).chain(&folders) {
        let files = files(directory, &["rs"]);
        let lines = files.iter().map(|(path, text)| count(path, text)).sum();
        crates.insert(directory, lines);
    }
    for directory in ["bpf", "include", "mpi"] {
        for (path, text) in files(&root().join(directory), &["c", "h"]) {
            count(&path, &text);
        }
    }
    let long = crates.iter().filter(|(_, lines)| **lines > LONGEST_CRATE);
    wrong.extend(long.map(|(path, lines)| format!("{}: {lines} lines", path.display())));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Folders of `tests`, one for each part that a user knows.
fn folders_of_tests() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("tests")).expect("tests/");
    let entries = entries.map(|entry| entry.expect("an entry").path());
    let folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert!(folders.len() > 5, "only {folders:?}");
    folders
}

/// Files of `tests` that no manifest names and no other file declares, so that nothing runs them.
fn orphans(roots: &BTreeSet<PathBuf>, sources: &[(PathBuf, String)]) -> Vec<PathBuf> {
    let declared: BTreeSet<PathBuf> = sources
        .iter()
        .flat_map(|(path, text)| declared_in(path, text))
        .collect();
    let paths = sources.iter().map(|(path, _)| path);
    paths
        .filter(|path| !roots.contains(*path) && !declared.contains(*path))
        .cloned()
        .collect()
}

/// Where the files may be that `mod` in this one asks for.
fn declared_in(file: &Path, text: &str) -> Vec<PathBuf> {
    let folder = file.parent().expect("a folder");
    let mut found = Vec::new();
    let mut told = None;
    for line in text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"") {
            told = path.strip_suffix("\"]");
        }
        let module = line
            .strip_prefix("pub ")
            .unwrap_or(line)
            .strip_prefix("mod ");
        let Some(name) = module.and_then(|line| line.strip_suffix(';')) else {
            continue;
        };
        match told.take() {
            Some(path) => found.push(plain(&folder.join(path))),
            None => found.extend([
                folder.join(format!("{name}.rs")),
                folder.join(name).join("mod.rs"),
            ]),
        }
    }
    found
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path {
        if part == ".." {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[test]
fn each_file_of_tests_is_run() {
    let root = root().canonicalize().expect("the root");
    let mut roots = BTreeSet::new();
    for (_, directory) in packages() {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("Cargo.toml");
        let manifest: toml::Table = toml::from_str(&manifest).expect("TOML");
        let targets = manifest.get("test").and_then(toml::Value::as_array);
        let targets = targets.into_iter().flatten();
        let paths = targets.filter_map(|target| target.get("path")?.as_str());
        let directory = directory.canonicalize().expect("a package");
        roots.extend(paths.map(|path| plain(&directory.join(path))));
    }
    let sources = files(&root.join("tests"), &["rs"]);
    assert!(sources.len() > 50, "only {} files", sources.len());
    let left = orphans(&roots, &sources);
    assert!(
        left.is_empty(),
        "no manifest names these, no file declares them: {left:#?}"
    );
}

#[test]
fn a_file_of_tests_that_nothing_runs_is_found() {
    let sources = [
        (
            "/t/a/main.rs",
            "#[path = \"../b/mod.rs\"]\nmod common;\npub mod c;",
        ),
        ("/t/a/c.rs", ""),
        ("/t/b/mod.rs", "mod d;"),
        ("/t/b/d/mod.rs", ""),
        ("/t/a/left.rs", "mod main;"),
    ];
    let sources = sources.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
    let roots = BTreeSet::from([PathBuf::from("/t/a/main.rs")]);
    assert_eq!(orphans(&roots, &sources), [PathBuf::from("/t/a/left.rs")]);
}

/// Functions of C source that are too long: where the head begins, and the lines of the body.
fn long_functions(text: &str) -> Vec<(&str, usize)> {
    let mut long = Vec::new();
    let (mut head, mut from) = ("", None);
    for (number, line) in text.lines().enumerate() {
        match (line, from) {
            ("{", _) => from = Some(number),
            ("}", Some(first)) => {
                let lines = number - first + 1;
                if lines > LONGEST_FUNCTION {
                    long.push((head, lines));
                }
                from = None;
            }
            _ if line.starts_with(char::is_alphabetic) => head = line,
            _ => {}
        }
    }
    long
}

#[test]
fn no_function_of_the_kernel_side_is_too_long() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for (path, text) in files(&root().join("bpf"), &["c", "h"]) {
        seen += text.lines().filter(|line| *line == "}").count();
        let long = long_functions(&text);
        wrong.extend(
            long.iter()
                .map(|(name, lines)| format!("{}: {name}: {lines} lines", path.display())),
        );
    }
    assert!(seen > 300, "only {seen} functions");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_long_function_is_found() {
    let body = |lines: usize| "\tcall();\n".repeat(lines);
    let text = format!(
        "int told(void);\nint short(int a)\n{{\n{}}}\n\nint long(int a,\n\t int b)\n{{\n{}}}\n",
        body(LONGEST_FUNCTION - 2),
        body(LONGEST_FUNCTION - 1)
    );
    assert_eq!(
        long_functions(&text),
        [("int long(int a,", LONGEST_FUNCTION + 1)]
    );
}

/// The repository without its history: more than this is a record that a command makes again.
#[test]
fn the_repository_is_at_most_12_mb() {
    const MOST_BYTES: u64 = 12_000_000;
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output()
        .expect("git");
    if !listed.status.success() {
        eprintln!("skipped: this is no checkout of git, or another user's");
        return;
    }
    let names = String::from_utf8(listed.stdout).expect("UTF-8");
    let mut sizes: Vec<(u64, &str)> = names
        .split_terminator('\0')
        // A file that is deleted and not committed yet has none.
        .filter_map(|name| Some((fs::symlink_metadata(root().join(name)).ok()?.len(), name)))
        .collect();
    assert!(sizes.len() > 100, "only {} files", sizes.len());
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let all: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
    let largest = &sizes[..20];
    assert!(all <= MOST_BYTES, "{all} bytes; the largest: {largest:#?}");
}
