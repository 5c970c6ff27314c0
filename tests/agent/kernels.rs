// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `doctor` says on the kernels of Debian's suites, in guests of the virtual lab. The
//! texts are in `snapshots/`; with `PACELINE_SNAPSHOTS=write` they are written anew.

#[path = "../common/mod.rs"]
mod common;

use std::path::Path;

use common::guest::{guest, has_qemu, NO_GUEST};

/// These depend on the guest's memory or change with each release: only how they came out.
const VARYING: [&str; 4] = ["kernel", "receive buffer", "send buffer", "buffer limits"];
/// A tenth below the verifier's limit: newer kernels tell more states apart, and what
/// comes near does not load on one of them.
const MOST_VERIFIED: u64 = 900_000;

/// How much a suite decides.
#[derive(PartialEq)]
enum Weight {
    /// It must be there, and work.
    Released,
    /// It must work if it can be had.
    Unreleased,
    /// It is told what does not work yet.
    Coming,
}

fn doctor_is_as_ever(suite: &str, weight: Weight) {
    if !has_qemu() {
        return;
    }
    let output = guest(suite, &[], &["paceline", "-vv", "doctor", "--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NO_GUEST) && weight != Weight::Released {
        println!("nothing is decided: no guest with the kernel of {suite}: {error}");
        return;
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no report on {suite}: {error}"));
    let mut text = String::new();
    for check in report["checks"].as_array().expect("a list") {
        let part = |key: &str| check[key].as_str().expect("a string");
        let name = part("name");
        let found = match VARYING.contains(&name) {
            true => "...",
            false => part("found"),
        };
        text += format!("{:<4}  {name:<15}  {found}", part("level")).trim_end();
        text += "\n";
    }
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/agent/snapshots");
    let file = place.join(format!("doctor-{suite}.txt"));
    if std::env::var("PACELINE_SNAPSHOTS").as_deref() == Ok("write") {
        std::fs::create_dir_all(&place).expect("made");
        std::fs::write(&file, &text).expect("written");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        text,
        expected,
        "doctor on {suite} is not {}",
        file.display()
    );
    assert_eq!(report["can_run"], true);
    let verified = verified(&error);
    assert!(verified.len() > 10, "{error}");
    for (program, count) in verified {
        assert!(
            count <= MOST_VERIFIED,
            "{program} on {suite}: {count} instructions verified"
        );
    }
}

/// Programs that were loaded, and so many instructions did the verifier look at.
fn verified(log: &str) -> Vec<(&str, u64)> {
    log.lines()
        .filter_map(|line| {
            let (line, _) = line.split_once(" instructions verified")?;
            let (place, count) = line.rsplit_once(": ")?;
            Some((place.rsplit_once(' ')?.1, count.parse().ok()?))
        })
        .collect()
}

#[test]
fn doctor_on_bookworm() {
    doctor_is_as_ever("bookworm", Weight::Released);
}

#[test]
fn doctor_on_trixie() {
    doctor_is_as_ever("trixie", Weight::Released);
}

#[test]
fn doctor_on_sid() {
    doctor_is_as_ever("sid", Weight::Unreleased);
}

#[test]
fn doctor_on_experimental() {
    doctor_is_as_ever("experimental", Weight::Coming);
}
