// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration file: what it means, and all that is wrong with one at once.

use std::path::Path;

use paceline_gateway::config::{Config, Connect};
use paceline_gateway::session::Rate;

const PIN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn problems(text: &str) -> String {
    let problems = Config::parse(text, "gw.toml", Path::new("")).expect_err("it is wrong");
    problems.to_string()
}

#[test]
fn a_file_sets_each_value() {
    let text = format!(
        "name = \"near\"\ntoken = \"token\"\n[peer.far]\naddress = \"gw.far:7420\"\n\
         fingerprint = \"{PIN}\"\nrate = {{ reserve = \"100mbit\" }}\n\
         [socks]\nlisten = \"127.0.0.1:1080\"\npeer = \"far\"\n\
         [accept]\nto = [\"10.2.0.0/16\"]\nports = [\"22\"]\n"
    );
    let config = Config::parse(&text, "gw.toml", Path::new("/etc/paceline")).expect("good");
    assert_eq!(
        config.identity.token.as_deref(),
        Some(Path::new("/etc/paceline/token"))
    );
    let far = &config.peers["far"];
    assert_eq!(far.rate, Rate::Reserve(100_000_000));
    assert_eq!(
        (far.memory, far.mtu, far.patience),
        (64 << 20, 1_452, 90_000_000_000)
    );
    let allows = |to: &str| config.allow.allows(to.parse().expect("an address"), &[]);
    assert!(allows("10.2.3.4:22") && !allows("10.2.3.4:23") && !allows("10.3.3.4:22"));
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = "name = \"near\"\nlisten = \"here\"\n[peer.far]\naddress = \"gw.far\"\n\
                rate = { reserve = \"100mbit\", learned = \"1gbit\" }\n\
                weights = [{ to = \"here\", weight = 2 }]\n\
                [socks]\nlisten = \"127.0.0.1:1080\"\npeer = \"fra\"\n\
                [accept]\nto = [\"10.2.0.0/33\"]\nports = [\"0\"]\n";
    let output = problems(text);
    for expected in [
        "gw.toml:2:10: listen: needs an address and a port",
        "gw.toml:2:10: listen: to listen takes a certificate",
        "gw.toml:4:11: peer.far.address: needs a host and a port",
        "gw.toml:4:11: peer.far.address: nothing identifies this peer",
        "gw.toml:5:1: peer.far.rate: needs one of the two",
        "gw.toml:6:19: peer.far.weights.to: needs a network",
        "gw.toml:9:8: socks.peer: there is no table [peer.fra]",
        "gw.toml:11:7: accept.to: needs a network",
        "gw.toml:12:10: accept.ports: needs a port",
    ] {
        assert!(output.contains(expected), "{expected}\n\n{output}");
    }
}

#[test]
fn connections_are_taken_as_listed() {
    let base = format!(
        "name = \"near\"\n[peer.far]\naddress = \"gw.far:7420\"\nfingerprint = \"{PIN}\"\n"
    );
    let text = format!(
        "{base}[transparent]\ninterface = \"eth0\"\npeer = \"far\"\n\
         to = [\"10.2.0.0/16\", \"fd00:2::/64\"]\nports = [\"22\"]\n"
    );
    let config = Config::parse(&text, "gw.toml", Path::new("")).expect("good");
    let taken = config.transparent.expect("it is there");
    let is_taken = |to: &str| taken.to.allows(to.parse().expect("an address"), &[]);
    assert!(is_taken("10.2.3.4:22") && is_taken("[fd00:2::1]:22") && !is_taken("10.2.3.4:23"));
    assert_eq!(
        (taken.interface.as_deref(), taken.port),
        (Some("eth0"), 7_421)
    );

    assert_eq!(taken.connect, None);
    for (asked, connect) in [("honest", Connect::Honest), ("fast", Connect::Fast)] {
        let text = format!("{text}connect = \"{asked}\"\n");
        let config = Config::parse(&text, "gw.toml", Path::new("")).expect("good");
        assert_eq!(config.transparent.expect("there").connect, Some(connect));
    }

    let text = format!(
        "{base}[transparent]\ninterface = \"a b\"\npeer = \"fra\"\n\
         to = [\"10.2.0.0/33\"]\nports = [\"0\"]\n"
    );
    let output = problems(&text);
    for expected in [
        "gw.toml:6:13: transparent.interface: needs the name of an interface",
        "gw.toml:7:8: transparent.peer: there is no table [peer.fra]",
        "gw.toml:8:7: transparent.to: needs a network",
    ] {
        assert!(output.contains(expected), "{expected}\n\n{output}");
    }

    // Names that the kernel refuses (dev_valid_name).
    for name in ["", "eth0:1", ".", "..", "an-interface-of-16"] {
        let output = problems(&text.replace("a b", name));
        assert!(
            output.contains("needs the name of an interface"),
            "{name}: {output}"
        );
    }
}

#[test]
fn a_peer_that_nobody_could_verify_is_refused() {
    let output = problems("name = \"near\"\n[peer.far]\n");
    assert!(output.contains("neither side can connect"), "{output}");
    let listens = "name = \"near\"\nlisten = \"0.0.0.0:7420\"\ncertificate = \"c\"\nkey = \"k\"\n";
    let output = problems(&format!("{listens}[peer.far]\n"));
    assert!(output.contains("nothing identifies this peer"), "{output}");
    let output = problems("name = \"near\"\n[peer]\n");
    assert!(output.contains("no peer"), "{output}");
    let output = problems("name = \"near\"\n[peer.far]\nleg = \"tcp\"\n");
    assert!(
        output.contains("gw.toml:3:7: peer.far.leg: the side that connects chooses"),
        "{output}"
    );
}
