// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline send` and `receive` between processes on this host.

mod content;
mod disk;
mod memory;
mod namespaces;
mod proxy;
mod scratch;

use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::time::Duration;

use scratch::{assert_same, text, Ended, Scratch};

#[test]
fn a_tree_is_the_same_at_the_other_side_of_ssh() {
    let scratch = Scratch::new();
    scratch.tree();
    scratch.send(&["from/tree", "localhost:@to/"]).ok();
    assert_same(&scratch.path("from/tree"), &scratch.path("to/tree"));
    let again = scratch
        .send(&["from/tree", "localhost:@to/", "--json"])
        .ok();
    assert!(text(&again.stdout).contains("\"placed\":0"), "{again:?}");
    // And back, its content alone, into a directory that is not there.
    scratch.receive(&["localhost:@to/tree/", "@back/new"]).ok();
    assert_same(&scratch.path("from/tree"), &scratch.path("back/new"));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn one_file_gets_its_new_name_or_goes_into_a_directory() {
    let scratch = Scratch::new();
    scratch.write("from/a", 700_000);
    scratch.send(&["from/a", "localhost:@to/new"]).ok();
    assert_same(&scratch.path("from/a"), &scratch.path("to/new"));
    scratch.send(&["from/a", "localhost:@to"]).ok();
    assert_same(&scratch.path("from/a"), &scratch.path("to/a"));
    scratch.send(&["from/a", "localhost:@to/deep/er/"]).ok();
    assert_same(&scratch.path("from/a"), &scratch.path("to/deep/er/a"));
}

#[test]
fn a_standing_receiver_accepts_clients_with_the_token() {
    let scratch = Scratch::new();
    scratch.tree();
    let receiver = scratch.receiver(&["--token-file", "@token"]);
    let to = receiver.url("/x");
    scratch
        .send(&["--token-file", "@token", "from/tree", &to])
        .ok();
    assert_same(&scratch.path("from/tree"), &scratch.path("to/x/tree"));
    let plain = ["--token-file", "@token", "--data", "plain", "from/tree"];
    scratch
        .send(&[&plain[..], &[&receiver.url("/y")]].concat())
        .ok();
    assert_same(&scratch.path("from/tree"), &scratch.path("to/y/tree"));
    let wrong = scratch.send(&["--token-file", "@other", "from/tree", &to]);
    wrong.fails_with(7, "wrong token");
    scratch
        .send(&["from/tree", &to])
        .fails_with(7, "--token-file");
    let out = receiver.url("/../out");
    let refused = scratch.send(&["--token-file", "@token", "from/tree", &out]);
    refused.fails_with(7, "..");
    symlink(scratch.path("from"), scratch.path("to/link")).expect("ours");
    for path in ["/link", "/link/x/"] {
        let refused = scratch.send(&["--token-file", "@token", "from/tree", &receiver.url(path)]);
        assert_ne!(refused.0.status.code(), Some(0), "{path}");
    }
    assert!(!scratch.path("from/x").exists() && !scratch.path("out").exists());
}

/// At a socket outside of the root, which the receiver itself may not write.
#[test]
fn a_standing_receiver_counts_what_it_takes() {
    let scratch = Scratch::new();
    scratch.write("from/a", 700_000);
    let metrics = scratch.path("metrics");
    let address = metrics.to_str().expect("text");
    let receiver = scratch.receiver(&["--token-file", "@token", "--metrics", address]);
    let to = receiver.url("/");
    scratch
        .send(&["--token-file", "@token", "from/a", &to])
        .ok();
    let wrong = scratch.send(&["--token-file", "@other", "from/a", &to]);
    wrong.fails_with(7, "wrong token");
    // A page is made once a second.
    scratch.wait_until("all is counted", || {
        let page = scratch::page(&metrics);
        let value = |name: &str| {
            let mut lines = page.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
            value.unwrap_or_default()
        };
        value("paceline_receiver_transfers_total{outcome=\"done\"}") == 1
            && value("paceline_receiver_transfers_total{outcome=\"failed\"}") == 0
            && value("paceline_receiver_running_transfers") == 0
            && value("paceline_receiver_written_bytes_total") == 700_000
            && value("paceline_receiver_entries_total") == 1
            && value("paceline_receiver_refused_connections_total") >= 1
    });
}

/// By token and by certificate: who does not show what is asked for is refused.
#[test]
fn with_tls_both_sides_know_each_other_or_nothing_is_sent() {
    let scratch = Scratch::new();
    scratch.write("from/a", 300_000);
    scratch.certificates();
    let own = ["--cert", "@host.pem", "--key", "@host.key"];
    let token = ["--token-file", "@token"];
    let by_token = scratch.receiver(&[&own[..], &token].concat());
    let by_certificate = scratch.receiver(&[&own[..], &["--ca", "@ca.pem"]].concat());
    let shown = ["--cert", "@client.pem", "--key", "@client.key"];
    let trusted = ["--ca", "@ca.pem"];
    let pinned = ["--pin", "@host.pem"];
    let other = ["--pin", "@client.pem"];
    let send = |receiver: &scratch::Receiver, path: &str, options: &[&[&str]]| {
        let to = receiver.url(path);
        scratch.send(&[&options.concat()[..], &["from/a", &to]].concat())
    };
    send(&by_token, "/1", &[&token, &trusted]).ok();
    send(&by_token, "/2", &[&token, &pinned]).ok();
    send(&by_certificate, "/3", &[&shown, &trusted]).ok();
    send(&by_certificate, "/4", &[&shown, &pinned]).ok();
    for name in ["to/1", "to/2", "to/3", "to/4"] {
        assert_same(&scratch.path("from/a"), &scratch.path(name));
    }
    let refused: [(&scratch::Receiver, Vec<&[&str]>); 5] = [
        (&by_token, vec![&token, &other]),
        (&by_token, vec![&["--token-file", "@other"], &trusted]),
        (&by_token, vec![&trusted]),
        (&by_certificate, vec![&trusted]),
        (&by_certificate, vec![&token, &trusted]),
    ];
    for (number, (receiver, options)) in refused.into_iter().enumerate() {
        let ended = send(receiver, "/no", &options);
        let code = ended.0.status.code();
        // A client without a certificate sees the connection break.
        assert!(
            matches!(code, Some(4 | 7)),
            "{number}: {}",
            text(&ended.0.stderr)
        );
    }
    assert!(!scratch.path("to/no").exists());
}

#[test]
fn a_dry_run_lists_the_changes_and_makes_none() {
    let scratch = Scratch::new();
    scratch.tree();
    scratch.write("to/tree/extra", 10);
    let dry = ["-n", "--delete", "from/tree", "localhost:@to"];
    let stdout = text(&scratch.send(&dry).ok().stdout);
    assert!(
        stdout.contains("would copy tree/large (3000001 bytes)"),
        "{stdout}"
    );
    assert!(stdout.contains("would delete tree/extra"), "{stdout}");
    assert!(scratch.path("to/tree/extra").exists());
    assert!(!scratch.path("to/tree/large").exists());
    let into_nothing = scratch
        .send(&["-n", "from/tree", "localhost:@to/no/such"])
        .ok();
    assert!(text(&into_nothing.stdout).contains("would copy"));
    assert!(!scratch.path("to/no").exists());
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn delete_and_filters_keep_what_they_exclude() {
    let scratch = Scratch::new();
    for name in ["keep.c", "drop.o", "build/x", "important.o"] {
        scratch.write(&format!("from/tree/{name}"), 100);
    }
    for name in ["old", "olddir/a/b", "protected.o"] {
        scratch.write(&format!("to/tree/{name}"), 100);
    }
    let filters = [
        "--exclude",
        "*.o",
        "--exclude",
        "build/",
        "--include",
        "important.o",
    ];
    let path = ["from/tree/", "localhost:@to/tree", "--delete"];
    let few = scratch.send(&[&path[..], &filters, &["--max-delete", "1"]].concat());
    few.fails_with(1, "--max-delete 1");
    assert!(scratch.path("to/tree/old").exists());
    scratch.send(&[&path[..], &filters].concat()).ok();
    let mut there = scratch.names("to/tree");
    there.sort();
    assert_eq!(there, ["important.o", "keep.c", "protected.o"]);
}

#[test]
fn holes_stay_holes_and_are_not_sent() {
    let scratch = Scratch::new();
    scratch.write("from/sparse", 0);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(scratch.path("from/sparse"));
    let file = file.expect("ours");
    file.set_len(200_000_000).expect("room");
    for at in [5_000_000, 150_000_000] {
        std::os::unix::fs::FileExt::write_all_at(&file, b"data", at).expect("room");
    }
    let sent = scratch.send(&["from/sparse", "localhost:@to/"]).ok();
    drop(sent);
    assert_same(&scratch.path("from/sparse"), &scratch.path("to/sparse"));
    let blocks = |path| scratch.path(path).metadata().expect("there").blocks();
    assert!(blocks("to/sparse") <= blocks("from/sparse") + 16);
}

#[test]
fn unreadable_files_are_listed_and_the_others_are_copied() {
    let scratch = Scratch::new();
    scratch.tree();
    std::fs::create_dir_all(scratch.path("to/tree/large/in-the-way")).expect("ours");
    let part = scratch.send(&["from/tree", "localhost:@to"]);
    part.fails_with(1, "tree/large");
    assert!(scratch.path("to/tree/small/7").exists());
    std::fs::remove_dir_all(scratch.path("to/tree/large")).expect("ours");
    scratch.send(&["from/tree", "localhost:@to"]).ok();
    assert_same(&scratch.path("from/tree"), &scratch.path("to/tree"));
}

#[test]
fn usage_errors_name_the_right_form() {
    let scratch = Scratch::new();
    scratch.write("from/a", 10);
    for (arguments, message) in [
        (&["from/a"][..], "[USER@]HOST:DST"),
        (&["from/a", "to"], "cp"),
        (&["from/none", "localhost:@to"], "from/none"),
        (
            &["from/a", "localhost:@to", "--exclude", "["],
            "not a pattern",
        ),
        (
            &["from/a", "localhost:@to", "--chunk", "100KB"],
            "power of two",
        ),
        (
            &["from/a", "localhost:@to", "--token-file", "x"],
            "paceline://",
        ),
    ] {
        scratch.send(arguments).fails_with(2, message);
    }
    let no_shell = scratch.send(&["--ssh", "/no/such/ssh", "from/a", "localhost:@to"]);
    no_shell.fails_with(4, "/no/such/ssh");
    let no_program = [
        "--remote-command",
        "/no/such/paceline",
        "from/a",
        "localhost:@to",
    ];
    scratch.send(&no_program).fails_with(4, "no paceline");
    let open = scratch.receive(&["--listen", "127.0.0.1:0", "--root", "@to"]);
    open.fails_with(2, "--token-file");
}

/// Each side is killed at each point, several times; then the same command ends it.
#[test]
fn after_a_kill_at_any_point_the_same_command_ends_it() {
    for point in [
        "source-sends:1",
        "source-sends:9",
        "sink-wrote:1",
        "sink-wrote:7",
        "sink-noted:2",
        "sink-wrote-small:1",
        "sink-wrote-small:150",
        "sink-synced:1",
        "sink-synced:2",
        "sink-committed:1",
        "sink-committed:2",
        "sink-placed:1",
        "sink-placed-small:1",
        "sink-placed-small:77",
        "sink-finishes:1",
    ] {
        let scratch = Scratch::new();
        scratch.tree();
        let command = [
            "from/tree",
            "localhost:@to",
            "--chunk",
            "256KiB",
            "--streams",
            "3",
        ];
        let killed = scratch.killed_at(point, &command);
        assert_ne!(killed.status.code(), Some(0), "{point}: {killed:?}");
        let ended = scratch.send(&command).ok();
        assert_same(&scratch.path("from/tree"), &scratch.path("to/tree"));
        assert_eq!(
            scratch.leftovers(),
            Vec::<String>::new(),
            "{point}: {ended:?}"
        );
    }
}

/// Killed at moments that a seed draws, until it is complete.
#[test]
fn after_kills_at_random_moments_the_same_command_ends_it() {
    let mut seed: u64 = 20_040_607;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut resumed = 0;
    for round in 0..4 {
        let scratch = Scratch::new();
        scratch.tree();
        scratch.write("from/tree/huge", 40_000_000);
        // Thirteen seconds of it: none of six runs ends by itself, however late it is looked at.
        let command = [
            "from/tree",
            "localhost:@to",
            "--rate",
            "24mbit",
            "--chunk",
            "256KiB",
            "--json",
        ];
        for number in 0..6 {
            let mut child = scratch.start(&command);
            // One of them has sent something, however slowly this machine starts programs.
            if number == 0 {
                scratch.wait_until_running();
            }
            std::thread::sleep(Duration::from_millis(100 + draw(900)));
            let side = match draw(2) {
                0 => child.id(),
                _ => scratch::helper_of(child.id()).unwrap_or(child.id()),
            };
            scratch::kill(side);
            child.wait().expect("it ends");
        }
        let ended = scratch.send(&command[..2]).ok();
        let stdout = text(&ended.stdout);
        resumed += u32::from(stdout.contains("from an earlier run"));
        assert_same(&scratch.path("from/tree"), &scratch.path("to/tree"));
        assert_eq!(scratch.leftovers(), Vec::<String>::new(), "round {round}");
    }
    assert!(resumed > 0, "nothing was resumed in any round");
}

#[test]
fn an_interrupted_command_reports_it_and_transfers_lists_it() {
    let scratch = Scratch::new();
    scratch.write("from/huge", 60_000_000);
    let command = ["from/huge", "localhost:@to", "--rate", "40mbit", "--json"];
    let mut child = scratch.start(&command);
    let id = scratch.wait_until_running();
    let stopped = scratch.paceline(&["transfers", "stop", &id[..8]]);
    stopped.ok();
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(4));
    let listed = scratch.paceline(&["transfers"]).ok();
    assert!(text(&listed.stdout).contains("interrupted"), "{listed:?}");
    scratch
        .paceline(&["transfers", "stop", &id])
        .fails_with(1, "not running");
    scratch.send(&["from/huge", "localhost:@to"]).ok();
    let listed = scratch.paceline(&["transfers", &id, "--json"]).ok();
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!(listed[0]["state"], "done");
    assert_eq!(listed[0]["bytes_done"], 60_000_000);
}

/// Streams and rate, in both directions; no stream that ends so takes a bite with it.
#[test]
fn a_transfer_that_runs_takes_changes() {
    for (direction, from, to, there) in [
        ("send", "from/huge", "localhost:@to/", "to/huge"),
        ("receive", "localhost:@to/huge", "@back/", "back/huge"),
    ] {
        let scratch = Scratch::new();
        let from_here = from.rsplit('@').next().unwrap_or(from);
        scratch.write(from_here, 40_000_000);
        let command = [direction, from, to, "--rate", "24mbit", "--json"];
        let mut child = scratch.command_with_remote(&command);
        let child = child.stdout(std::process::Stdio::piped()).spawn();
        let child = child.expect("it starts");
        let id = scratch.wait_until_running();
        let set =
            |change: &[&str]| scratch.paceline(&[&["transfers", "set", &id[..8]], change].concat());
        for streams in [5, 1] {
            set(&["--streams", &streams.to_string()]).ok();
            scratch.wait_until("so many streams", || scratch.streams_of(&id) == streams);
        }
        set(&["--streams", "0"]).fails_with(2, "1 to 256");
        set(&["--rate", "fast"]).fails_with(2, "fast");
        set(&[]).fails_with(2, "--streams");
        set(&["--rate", "none"]).ok();
        let ended = Ended(child.wait_with_output().expect("it ends")).ok();
        let stdout = text(&ended.stdout);
        assert!(
            !stdout.contains("stream_lost") && !stdout.contains("sent_again"),
            "{stdout}"
        );
        assert_same(&scratch.path(from_here), &scratch.path(there));
        set(&["--streams", "3"]).fails_with(1, "not running");
        let left = scratch.names("state/paceline/transfers");
        assert!(left.iter().all(|name| !name.ends_with(".sock")), "{left:?}");
    }
}

#[test]
fn a_lost_connection_is_made_again_while_the_others_go_on() {
    let scratch = Scratch::new();
    scratch.write("from/huge", 40_000_000);
    let receiver = scratch.receiver(&["--token-file", "@token"]);
    let proxy = proxy::Proxy::new(receiver.address(), 1_000_000);
    let to = format!("paceline://{}/", proxy.address);
    let own = ["send", "--token-file", "@token", "--streams", "2", "--json"];
    let slow = ["--rate", "24mbit", "from/huge", &to];
    let mut child = scratch.command_with_remote(&[&own[..], &slow].concat());
    let child = child.stdout(std::process::Stdio::piped()).spawn();
    let child = child.expect("it starts");
    let id = scratch.wait_until_running();
    // The control connection, two for data, and the one that was made again.
    let made = || proxy.made.load(std::sync::atomic::Ordering::SeqCst);
    scratch.wait_until("made again", || made() == 4);
    scratch.wait_until("two again", || scratch.streams_of(&id) == 2);
    scratch
        .paceline(&["transfers", "set", &id, "--rate", "none"])
        .ok();
    let ended = Ended(child.wait_with_output().expect("it ends")).ok();
    assert_eq!(text(&ended.stdout).matches("stream_lost").count(), 1);
    assert_same(&scratch.path("from/huge"), &scratch.path("to/huge"));
    assert_eq!(made(), 4);
}

/// Round trips cost: entries go with the first words, and nobody waits for an answer before.
#[test]
fn entries_are_sent_before_the_other_side_has_replied() {
    let scratch = Scratch::new();
    scratch.write("from/some-name", 300_000);
    // It keeps its end of the pipe open, and says nothing.
    let mute = "#!/bin/sh\nexec cat 4>&1 > \"${0%mute}received\"\n";
    scratch.script("mute", mute);
    let mut child = scratch.start(&["--ssh", "@mute", "from/some-name", "localhost:@to"]);
    scratch.wait_until("the entry is told", || {
        let received = std::fs::read(scratch.path("received")).unwrap_or_default();
        received.windows(9).any(|part| part == b"some-name")
    });
    scratch::kill(child.id());
    let _ = child.wait();
}

#[test]
fn a_token_is_in_no_command_line() {
    let scratch = Scratch::new();
    scratch.write("from/huge", 30_000_000);
    let receiver = scratch.receiver(&["--token-file", "@token"]);
    let token = std::fs::read_to_string(scratch.path("token")).expect("ours");
    let url = receiver.url("/");
    let command = [
        "--token-file",
        "@token",
        "from/huge",
        &url,
        "--rate",
        "80mbit",
    ];
    let mut child = scratch.start(&command);
    scratch.wait_until_running();
    for pid in [child.id(), receiver.id()] {
        for file in ["cmdline", "environ"] {
            let seen = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            assert!(!text(&seen).contains(token.trim()), "{file}");
        }
    }
    scratch::kill(child.id());
    child.wait().expect("it ends");
}

/// Data connections go where ssh reached the other side, whatever its name means here.
#[test]
fn between_network_namespaces_both_ways() {
    if !is_root() {
        println!("skipped: network namespaces need root");
        return;
    }
    let scratch = Scratch::new();
    scratch.tree();
    let net = namespaces::Namespaces::new();
    net.shell(&scratch.path("shell"));
    let run = |arguments: &[&str]| {
        let mut command = net.enter(&scratch.command_with_remote(arguments));
        Ended(command.output().expect("it starts")).ok()
    };
    run(&[
        "send",
        "from/tree",
        "no-such-name.invalid:@to",
        "--streams",
        "8",
    ]);
    assert_same(&scratch.path("from/tree"), &scratch.path("to/tree"));
    let ports = ["--ports", "50123-50123", "--data", "plain"];
    run(&[
        &["receive", "no-such-name.invalid:@to/tree", "@back"],
        &ports[..],
    ]
    .concat());
    assert_same(&scratch.path("from/tree"), &scratch.path("back/tree"));
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn permissions_are_kept_but_for_setuid() {
    let scratch = Scratch::new();
    for (name, mode) in [("a", 0o4755), ("b", 0o640), ("c", 0o400)] {
        let path = format!("from/{name}");
        scratch.write(&path, 300_000);
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(scratch.path(&path), mode).expect("ours");
    }
    scratch.send(&["from/", "localhost:@to"]).ok();
    let mode = |name: &str| scratch.path(name).metadata().expect("there").mode() & 0o7777;
    assert_eq!(["to/a", "to/b", "to/c"].map(mode), [0o755, 0o640, 0o400]);
}
