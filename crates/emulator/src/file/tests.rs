// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of links, good and bad.

use super::*;
use crate::config::Codel;

fn parse(text: &str) -> Result<LinkFile, FileError> {
    let load = |name: &str| match name {
        "up.trace" => Trace::parse("1\n", name).map_err(FileError::Trace),
        _ => Err(FileError::Read {
            path: name.into(),
            source: std::io::ErrorKind::NotFound.into(),
        }),
    };
    LinkFile::parse(text, "wan.toml", 1_514, &load)
}

#[test]
fn all_keys() {
    let file = parse(
        r#"
        seed = 3
        [link]
        delay = "10ms"
        buffer = "128KiB"
        [forward]
        rate = "500mbit"
        jitter = "1ms"
        red = { least = "30KiB", most = "90KiB", probability = "10%" }
        loss = "0.001%"
        reorder = { share = "1%", by = "5ms" }
        duplicate = "0.1%"
        [[forward.step]]
        at = "10s"
        rate = "250mbit"
        [[forward.step]]
        at = "20s"
        outage = "500ms"
        [reverse]
        trace = "up.trace"
        buffer_packets = 100
        normal_jitter = "2ms"
        burst_loss = { to_bad = "1%", to_good = "25%" }
        "#,
    )
    .unwrap();
    let LinkFile { forward, reverse } = file;
    assert_eq!(forward.line, Line::Rate(500_000_000));
    assert_eq!(
        (forward.delay_ns, reverse.delay_ns),
        (10_000_000, 10_000_000)
    );
    assert_eq!(forward.buffer, Buffer::Bytes(131_072));
    assert_eq!(forward.loss, Some(Loss::Random { share: 0.00001 }));
    assert_eq!(forward.jitter, Some(Jitter::Uniform { most_ns: 1_000_000 }));
    assert_eq!(
        forward.red.map(|red| (red.weight, red.gentle)),
        Some((0.002, true))
    );
    assert_eq!(forward.steps.len(), 2);
    assert_eq!(forward.steps[1].change.outage_ns, Some(500_000_000));
    assert_eq!(reverse.buffer, Buffer::Packets(100));
    assert_eq!((forward.framing_bytes, reverse.framing_bytes), (24, -10));
    assert!(matches!(reverse.loss, Some(Loss::Bursts { bad, .. }) if bad == 1.0));
    assert_ne!(forward.seed, reverse.seed);
}

#[test]
fn errors_name_their_line() {
    let cases = [
        (
            "[link]\nbuffer_packets = 9",
            "wan.toml:1:2: link.rate: missing: write rate",
        ),
        (
            "[link]\nrate = \"1mbit\"",
            "wan.toml:1:2: link.buffer: missing: write buffer",
        ),
        (
            "[link]\nrate = 5\n",
            "wan.toml:2:8: link.rate: 5 has no unit",
        ),
        (
            "[link]\nrat = \"5mbit\"\n",
            "wan.toml:2:1: link.rat: unknown key, did you mean \"rate\"?",
        ),
        (
            "[link]\nrate = \"1mbit\"\nloss = \"1\"",
            "wan.toml:3:8: link.loss: \"1\" is not a share",
        ),
        (
            "[link]\nrate = \"1mbit\"\nloss = \"101%\"",
            "wan.toml:3:8: link.loss: ",
        ),
        (
            "[link]\nrate = \"1mbit\"\ntrace = \"up.trace\"\nbuffer_packets = 9",
            "wan.toml:3:1: link.trace: excludes rate, which is given already",
        ),
        (
            "[link]\nrate = \"1mbit\"\nbuffer = \"1KiB\"",
            "wan.toml:3:10: link.buffer: a buffer of 1024 bytes",
        ),
        (
            "[link]\nrate = \"1mbit\"\nbuffer = \"10KiB\"\n[[link.step]]\nat = \"1s\"",
            "wan.toml:4:1: link.step: changes nothing",
        ),
        (
            "[link]\ntrace = \"no\"\nbuffer_packets = 9",
            "wan.toml:2:9: link.trace: cannot read no: ",
        ),
        (
            "[link]\nrate = \"1mbit\"\nbuffer = \"10KiB\"\njitter = \"1ms\"",
            "wan.toml:4:10: link.jitter: jitter must be at most the delay",
        ),
    ];
    for (text, wanted) in cases {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{text:?}: {error}");
    }
}

#[test]
fn codel_has_a_target_below_its_interval() {
    let file = |keys: &str| {
        parse(&format!(
            "[link]\nrate = \"1mbit\"\nbuffer = \"64KiB\"\ncodel = {{ {keys} }}\n"
        ))
    };
    let LinkFile { forward, reverse } =
        file("target = \"5ms\", interval = \"100ms\", ecn = true").unwrap();
    let codel = Codel {
        target_ns: 5_000_000,
        interval_ns: 100_000_000,
        ecn: true,
    };
    assert_eq!(forward.codel, Some(codel));
    assert_eq!(reverse.codel, Some(codel));
    let wrong = file("target = \"100ms\", interval = \"100ms\"");
    let error = wrong.unwrap_err().to_string();
    assert!(
        error.contains("a target above 0 and below its interval"),
        "{error}"
    );
}

#[test]
fn each_problem_is_reported_once() {
    let problems = |text| parse(text).unwrap_err().to_string();
    let nothing = problems("");
    let lines: Vec<&str> = nothing.lines().collect();
    assert_eq!(lines.len(), 2, "{nothing}");
    assert!(
        lines[0].starts_with("wan.toml:1:1: link.rate: "),
        "{nothing}"
    );
    assert!(
        lines[1].starts_with("wan.toml:1:1: link.buffer: "),
        "{nothing}"
    );
    let several = problems(
        "[link]\nrate = \"1mbit\"\nbuffer = \"9KiB\"\n[reverse]\njitter = \"1ms\"\n[[link.step]]\nat = \"1s\"\n",
    );
    let expected = "wan.toml:5:10: reverse.jitter: jitter must be at most the delay\n\
        wan.toml:6:1: link.step: changes nothing";
    assert!(several.starts_with(expected), "{several}");
}
