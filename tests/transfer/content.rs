// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is compared by its content, and hashes that are written down.

use std::fs;
use std::time::{Duration, SystemTime};

use super::scratch::{assert_same, text, Scratch};

#[test]
fn with_update_hash_the_content_decides() {
    let scratch = Scratch::new();
    scratch.tree();
    scratch.send(&["from/tree", "localhost:@to"]).ok();
    // One bit, and nobody sees it from outside; another only looks new.
    for name in ["large", "small/77"] {
        let path = scratch.path("to/tree").join(name);
        let before = path.metadata().expect("there").modified().expect("a time");
        let mut content = fs::read(&path).expect("there");
        content[1000] ^= 1;
        fs::write(&path, content).expect("ours");
        let file = fs::File::options().write(true).open(path).expect("ours");
        file.set_modified(before).expect("ours");
    }
    let touched = fs::File::options()
        .write(true)
        .open(scratch.path("to/tree/small/78"));
    let earlier = SystemTime::now() - Duration::from_secs(1000);
    touched.expect("ours").set_modified(earlier).expect("ours");
    fs::write(scratch.path("to/tree/small/79"), "another size").expect("ours");
    let placed = |options: &[&str]| {
        let command = [&["from/tree", "localhost:@to", "--json"], options].concat();
        let ended = scratch.send(&command).ok();
        let last = text(&ended.stdout)
            .lines()
            .last()
            .expect("finish")
            .to_owned();
        let last: serde_json::Value = serde_json::from_str(&last).expect("JSON");
        last["placed"].as_u64().expect("a number")
    };
    assert_eq!(placed(&["--update", "hash"]), 3);
    assert_same(&scratch.path("from/tree"), &scratch.path("to/tree"));
    assert_eq!(placed(&["--update", "hash"]), 0);
}

/// What is sent, what is there already, and what an earlier run began.
#[test]
fn the_hash_file_has_all_files() {
    let scratch = Scratch::new();
    scratch.tree();
    scratch.write("from/tree/a\\b\nc", 300_000);
    let lines = |name: &str| {
        let content = fs::read_to_string(scratch.path(name)).expect("written");
        let mut lines: Vec<_> = content.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let point = "sink-noted:2";
    scratch.killed_at(point, &["from/tree", "localhost:@to", "--chunk", "256KiB"]);
    let from = "from/tree";
    scratch
        .send(&[from, "localhost:@to", "--hash-file", "1"])
        .ok();
    scratch
        .send(&[from, "localhost:@to", "--hash-file", "2"])
        .ok();
    scratch
        .receive(&["localhost:@to/tree", "@back", "--hash-file", "3"])
        .ok();
    assert_eq!(lines("1"), lines("2"));
    assert_eq!(lines("1"), lines("3"));
    assert_eq!(lines("1").len(), 200 + 2 + 6 + 1 + 1 + 1);
    let hash = |content: &[u8]| blake3::hash(content).to_hex().to_string();
    for name in ["large", "small/7", "sparse", "deep/a/b/c/larger"] {
        let content = fs::read(scratch.path("from/tree").join(name)).expect("ours");
        let line = format!("{}  tree/{name}", hash(&content));
        assert!(lines("1").contains(&line), "{line}");
    }
    let odd = fs::read(scratch.path("from/tree/a\\b\nc")).expect("ours");
    let line = format!("\\{}  tree/a\\\\b\\nc", hash(&odd));
    assert!(lines("1").contains(&line), "{line}");
    let nowhere = ["from/tree", "localhost:@to", "--hash-file", "no/such/f"];
    scratch.send(&nowhere).fails_with(2, "--hash-file");
}
