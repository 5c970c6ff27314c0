// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks this host and the paths to its peers for a gateway's needs, for `paceline doctor
//! --gateway`.

use std::fmt::Write as _;
use std::net::UdpSocket;

use paceline_net::nft;
use paceline_net::Error;

use crate::config::{Config, Connect};
use crate::wan::{path_mtu, PathMtu};

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Short fixed name.
    pub name: &'static str,
    /// The host or path meets the configuration.
    pub is_right: bool,
    /// The gateway needs it to run.
    pub is_needed: bool,
    /// The finding.
    pub found: String,
    /// Its consequence.
    pub meaning: &'static str,
    /// The remedy.
    pub advice: Option<String>,
}

/// All checks. A path MTU takes up to ten seconds if the peer does not answer.
pub async fn probes(config: &Config) -> Vec<Probe> {
    let mut probes = vec![offloads()];
    if let Some(taken) = &config.transparent {
        probes.push(tproxy());
        if taken.connect != Some(Connect::Fast) {
            probes.push(honest(taken.connect == Some(Connect::Honest)));
        }
    }
    for peer in config.peers.values() {
        if peer.address.is_some() {
            probes.push(mtu(&peer.name, peer.mtu, path_mtu(config, peer).await));
        }
    }
    probes
}

fn list(missing: Result<Vec<&'static str>, Error>) -> Result<(), String> {
    match missing {
        Ok(missing) if missing.is_empty() => Ok(()),
        Ok(missing) => Err(format!("missing: {}", missing.join(", "))),
        Err(error) => Err(error.to_string()),
    }
}

fn tproxy() -> Probe {
    let found = list(nft::missing_for_transparent());
    Probe {
        name: "gateway tproxy",
        is_right: found.is_ok(),
        is_needed: true,
        advice: found
            .is_err()
            .then(|| "install nftables and load the named modules; it needs root".to_owned()),
        found: found
            .err()
            .unwrap_or_else(|| "nftables takes its rules".to_owned()),
        meaning: "takes connections of hosts that are routed through the gateway",
    }
}

fn honest(is_needed: bool) -> Probe {
    let found = list(nft::missing_for_honest());
    Probe {
        name: "gateway connect",
        is_right: found.is_ok(),
        is_needed,
        advice: found
            .is_err()
            .then(|| "load the named modules, or write connect = \"fast\"".to_owned()),
        found: found
            .err()
            .unwrap_or_else(|| "SYNs are logged to the gateway".to_owned()),
        meaning: "a connect ends as its destination has it; without, each succeeds at once",
    }
}

fn offloads() -> Probe {
    let state = UdpSocket::bind(("127.0.0.1", 0))
        .and_then(|socket| quinn::udp::UdpSocketState::new((&socket).into()));
    let (is_right, found) = match state {
        Ok(state) => {
            let (send, receive) = (state.max_gso_segments(), state.gro_segments());
            let found = format!("{send} datagrams a call are sent, {receive} received");
            (send > 1 && receive > 1, found)
        }
        Err(error) => (false, error.to_string()),
    };
    Probe {
        name: "gateway udp",
        is_right,
        is_needed: false,
        found,
        meaning: "UDP_SEGMENT and UDP_GRO: without them each datagram costs a call of its own",
        advice: (!is_right).then(|| "a kernel from 5.0 on has both".to_owned()),
    }
}

fn mtu(peer: &str, configured: u16, found: Result<PathMtu, String>) -> Probe {
    let mut text = format!("{peer}: ");
    let is_right = match &found {
        Ok(found) => {
            let _ = write!(text, "{} bytes of UDP payload arrive", found.bytes);
            let _ = write!(text, ", mtu = {configured} is configured");
            found.bytes >= configured
        }
        Err(error) => {
            text += error;
            false
        }
    };
    let advice = match &found {
        Ok(found) if !is_right => Some(format!("write mtu = {} on both sides", found.bytes)),
        Ok(_) => None,
        // A handshake needs datagrams of the other side's mtu to arrive here.
        Err(_) => Some(
            "is the other gateway there, is UDP not blocked, and do datagrams of its mtu arrive \
             here? Where none do, a session goes by TCP"
                .to_owned(),
        ),
    };
    Probe {
        name: "gateway path",
        is_right,
        is_needed: false,
        found: text,
        meaning: "larger datagrams than the path carries never arrive",
        advice,
    }
}
