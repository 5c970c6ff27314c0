// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks a parsed file; each error is reported at its position.

use std::net::SocketAddr;
use std::path::Path;

use indexmap::IndexMap;
use ipnet::IpNet;
use paceline_input::{units, Place};

use super::keys::{File, PeerKeys, ProxyKeys, RateKeys, Source, TransparentKeys};
use super::{Config, Identity, Peer, Proxy, Transparent};
use crate::local::{Allow, Ports};
use crate::session::Rate;
use crate::weights::Weights;

/// Highest rate that is learned, unless configured, bits per second.
const MOST_LEARNED: u64 = 10_000_000_000;
/// UDP payload that each path of IPv6 carries (RFC 8200, 5: 1,280 bytes), and the largest one.
const MTUS: (u16, u16) = (1_232, 8_952);
/// UDP payload of a packet of 1,500 bytes with IPv6.
const MTU: u16 = 1_452;
/// Memory of a peer, bytes.
const MEMORY: u64 = 64 << 20;
/// Connections of a peer in each direction.
const STREAMS: u64 = 1_024;
/// Silence after which a peer is given up, seconds: longer than an outage of a minute.
const PATIENCE: u64 = 90;
/// Port beside the WAN's usual one (7420).
const TRANSPARENT_PORT: u16 = 7_421;

/// The configuration. Errors go to `place`.
pub(super) fn checked(file: &File, place: &Place, directory: &Path) -> Config {
    let path = |text: &String| directory.join(text);
    let certificate = match (&file.certificate, &file.key) {
        (Some(certificate), Some(key)) => Some((path(certificate), path(key))),
        (Some(_), None) => {
            place
                .key("certificate")
                .wrong("a certificate needs its key: key = \"FILE\"");
            None
        }
        (None, Some(_)) => {
            place
                .key("key")
                .wrong("a key needs its certificate: certificate = \"FILE\"");
            None
        }
        (None, None) => None,
    };
    let listen = file
        .listen
        .as_ref()
        .and_then(|text| address(text, &place.key("listen")));
    if file.listen.is_some() && file.certificate.is_none() {
        place
            .key("listen")
            .wrong("to listen takes a certificate: certificate = \"FILE\"");
    }
    let mut peers = IndexMap::new();
    for (name, keys) in &file.peer {
        let place = place.key("peer").key(name);
        peers.insert(name.clone(), peer(name, keys, file, &place));
    }
    if peers.is_empty() {
        place
            .key("peer")
            .wrong("no peer: a gateway needs a table [peer.NAME]");
    }
    let proxy = |keys: &Option<ProxyKeys>, key: &str| {
        let keys = keys.as_ref()?;
        let place = place.key(key);
        if !file.peer.contains_key(&keys.peer) {
            place
                .key("peer")
                .wrong(format!("there is no table [peer.{}]", keys.peer));
        }
        Some(Proxy {
            listen: address(&keys.listen, &place.key("listen"))?,
            peer: keys.peer.clone(),
        })
    };
    Config {
        name: file.name.clone(),
        listen,
        identity: Identity {
            token: file.token.as_ref().map(path),
            certificate,
            authorities: file.authorities.as_ref().map(path),
        },
        control: file.control.as_ref().map(path),
        socks: proxy(&file.socks, "socks"),
        http: proxy(&file.http, "http"),
        transparent: file
            .transparent
            .as_ref()
            .map(|keys| transparent(keys, file, &place.key("transparent"))),
        allow: file.accept.as_ref().map_or_else(Allow::default, |keys| {
            allow(&keys.to, keys.ports.as_deref(), &place.key("accept"))
        }),
        is_source_kept: is_source_kept(file, place),
        peers,
    }
}

fn is_source_kept(file: &File, place: &Place) -> bool {
    let is_kept = file.accept.as_ref().and_then(|keys| keys.source) == Some(Source::Keep);
    let has_interface = file
        .transparent
        .as_ref()
        .is_some_and(|keys| keys.interface.is_some());
    if is_kept && !has_interface {
        place.key("accept").key("source").wrong(
            "answers to hosts of the other site must pass this gateway: source = \"keep\" takes \
             [transparent] with an interface",
        );
    }
    is_kept
}

fn peer(name: &str, keys: &PeerKeys, file: &File, place: &Place) -> Peer {
    let fingerprint = keys.fingerprint.as_ref().and_then(|text| {
        let parsed = fingerprint(text);
        if parsed.is_none() {
            place
                .key("fingerprint")
                .wrong("a fingerprint has 64 hexadecimal digits (SHA-256)");
        }
        parsed
    });
    match &keys.address {
        Some(text) => {
            let port = text
                .rsplit_once(':')
                .map(|(host, port)| (host, port.parse::<u16>()));
            if !matches!(port, Some((host, Ok(1..))) if !host.is_empty()) {
                place
                    .key("address")
                    .wrong("needs a host and a port, such as \"gw.far:7420\"");
            }
            if keys.fingerprint.is_none() && file.authorities.is_none() {
                place.key("address").wrong(
                    "nothing identifies this peer: give its fingerprint, or authorities \
                     at the top of the file",
                );
            }
        }
        None if keys.leg.is_some() => {
            place
                .key("leg")
                .wrong("the side that connects chooses: this one has no address");
        }
        None if file.listen.is_none() => {
            place.wrong(
                "neither side can connect: give its address, or listen at the top of the file",
            );
        }
        None => {
            if keys.fingerprint.is_none() && file.authorities.is_none() && file.token.is_none() {
                place.wrong(
                    "nothing identifies this peer: give its fingerprint, or token or \
                     authorities at the top of the file",
                );
            }
        }
    }
    let rate = match &keys.rate {
        None => Rate::Learned { most: MOST_LEARNED },
        Some(RateKeys {
            reserve: Some(rate),
            learned: None,
        }) => Rate::Reserve(rate.bits_per_second()),
        Some(RateKeys {
            reserve: None,
            learned: Some(most),
        }) => Rate::Learned {
            most: most.bits_per_second(),
        },
        Some(_) => {
            place.key("rate").wrong(
                "needs one of the two: { reserve = \"100mbit\" } or { learned = \"1gbit\" }",
            );
            Rate::Learned { most: MOST_LEARNED }
        }
    };
    let patience = keys
        .patience
        .map_or(PATIENCE * 1_000_000, units::Time::micros);
    Peer {
        name: name.to_owned(),
        address: keys.address.clone(),
        leg: keys.leg,
        fingerprint,
        rate,
        memory: keys.memory.map_or(MEMORY, units::Size::bytes),
        mtu: keys.mtu.unwrap_or(MTU).clamp(MTUS.0, MTUS.1),
        connections: keys.connections.unwrap_or(STREAMS),
        weights: weights(keys, place),
        patience: patience * 1_000,
    }
}

fn weights(keys: &PeerKeys, place: &Place) -> Weights {
    let mut weights = Weights::default();
    for (index, keys) in keys.weights.iter().flatten().enumerate() {
        match keys.to.parse::<IpNet>() {
            Ok(network) => weights.add(network, keys.weight),
            Err(_) => {
                let place = place.key("weights").item(index).key("to");
                place.wrong("needs a network, such as \"10.2.0.5/32\" or \"fd00:2::/64\"");
            }
        }
    }
    weights
}

fn address(text: &str, place: &Place) -> Option<SocketAddr> {
    let parsed = text.parse();
    if parsed.is_err() {
        place.wrong("needs an address and a port, such as \"0.0.0.0:7420\" or \"[::]:7420\"");
    }
    parsed.ok()
}

fn transparent(keys: &TransparentKeys, file: &File, place: &Place) -> Transparent {
    if !file.peer.contains_key(&keys.peer) {
        let what = format!("there is no table [peer.{}]", keys.peer);
        place.key("peer").wrong(what);
    }
    // dev_valid_name (net/core/dev.c), and nothing that nft would read otherwise.
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_@".contains(c);
    let is_interface = |name: &String| {
        (1..libc::IFNAMSIZ).contains(&name.len())
            && name.chars().all(is_name)
            && !name.trim_matches('.').is_empty()
    };
    if !keys.interface.as_ref().is_none_or(is_interface) {
        place.key("interface").wrong(
            "needs the name of an interface, such as \"eth0\": up to 15 letters, digits and .-_@",
        );
    }
    Transparent {
        interface: keys.interface.clone(),
        peer: keys.peer.clone(),
        to: allow(&keys.to, keys.ports.as_deref(), place),
        connect: keys.connect,
        port: keys.port.unwrap_or(TRANSPARENT_PORT),
    }
}

fn allow(to: &[String], listed: Option<&[String]>, place: &Place) -> Allow {
    let mut networks = Vec::new();
    for (index, text) in to.iter().enumerate() {
        match text.parse::<IpNet>() {
            Ok(network) => networks.push(network.trunc()),
            Err(_) => {
                let what = "needs a network, such as \"10.2.0.0/16\" or \"fd00:2::/64\"";
                place.key("to").item(index).wrong(what);
            }
        }
    }
    let mut ports = Vec::new();
    for (index, text) in listed.into_iter().flatten().enumerate() {
        match text.parse::<Ports>() {
            Ok(range) => ports.push(range),
            Err(what) => {
                place.key("ports").item(index).wrong(what);
            }
        }
    }
    if listed.is_none() {
        ports.push(Ports::ALL);
    }
    Allow { networks, ports }
}

fn fingerprint(text: &str) -> Option<[u8; 32]> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}
