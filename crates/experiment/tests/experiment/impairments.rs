// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `[link]` refuses of loss, jitter, reordering, policers, CoDel and a slow way back.

use std::path::Path;

use paceline_experiment::Experiment;

/// The message for a link with these keys.
fn message(keys: &str) -> String {
    let text = format!(
        r#"title = "A title"
description = "What for"
link = {{ rate = "500mbit", one_way_delay = "10ms", buffer = "128KiB", {keys} }}
burst = [{{ size = "1MB", gap = "600ms", count = 10 }}]
variant = {{ cubic = {{ congestion = "cubic" }} }}
"#
    );
    let read = Experiment::parse(&text, Path::new("experiments/impaired.toml"));
    read.expect_err(keys).to_string()
}

#[test]
fn impairments_that_cannot_be_are_named() {
    for (keys, key, right) in [
        ("loss = \"100%\"", "loss", "must be less than 100%"),
        (
            "loss = { to_bad = \"1%\", to_good = \"0%\" }",
            "loss",
            "to_good must be more than 0%",
        ),
        (
            "jitter = \"11ms\"",
            "jitter",
            "must be at most one_way_delay",
        ),
        (
            "reorder = { share = \"60%\", by = \"5ms\" }",
            "reorder",
            "0.01% to 50%",
        ),
        (
            "reorder = { share = \"1%\", by = \"0ms\" }",
            "reorder.by",
            "1us to 1h",
        ),
        ("return_rate = \"0bit\"", "return_rate", "out of range"),
        (
            "policer = { rate = \"1mbit\", burst = \"1000B\" }",
            "policer",
            "1538B",
        ),
        ("ack_slots = \"2h\"", "ack_slots", "1us to 1h"),
        (
            "codel = { target = \"1ms\", interval = \"1ms\" }",
            "codel",
            "below its interval",
        ),
        // 128 KiB at 500 Mbit/s.
        (
            "codel = { target = \"1100us\", interval = \"10ms\" }",
            "codel",
            "at most half of the buffer's queueing delay, 2097us",
        ),
        (
            "codel = { target = \"2ms\", interval = \"2h\" }",
            "codel.interval",
            "1us to 1h",
        ),
        ("codel = { target = \"2ms\" }", "codel.interval", "missing"),
    ] {
        let message = message(keys);
        let place = format!(": link.{key}: ");
        assert!(
            message.contains(&place) && message.contains(right),
            "{keys}: {message}"
        );
    }
}
