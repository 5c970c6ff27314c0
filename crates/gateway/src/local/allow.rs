// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Destinations that a peer may connect to. The dialled address decides, never a name.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

/// A range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// All of them.
    pub const ALL: Self = Self {
        first: 1,
        last: u16::MAX,
    };
}

impl std::fmt::Display for Ports {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}-{}", self.first, self.last)
    }
}

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if 1 <= first && first <= last => Ok(Self { first, last }),
            _ => Err("needs a port or a range of ports, such as \"22\" or \"1024-65535\""),
        }
    }
}

/// Allowed destinations: none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow {
    /// Networks.
    pub networks: Vec<IpNet>,
    /// Ports.
    pub ports: Vec<Ports>,
}

impl Allow {
    /// Whether an address may be dialled by a host with these addresses.
    pub fn allows(&self, to: SocketAddr, own: &[IpAddr]) -> bool {
        // ::ffff:127.0.0.1 is 127.0.0.1.
        let address = to.ip().to_canonical();
        let is_port = |ports: &Ports| (ports.first..=ports.last).contains(&to.port());
        if !self.ports.iter().any(is_port) || address.is_multicast() || address.is_unspecified() {
            return false;
        }
        let special = special(address);
        let is_own = own.iter().any(|one| one.to_canonical() == address);
        self.networks.iter().any(|network| {
            let is_meant = match (&special, is_own) {
                (Some(special), _) => special.contains(network),
                (None, true) => network.prefix_len() == network.max_prefix_len(),
                (None, false) => true,
            };
            network.contains(&address) && is_meant
        })
    }
}

/// The loopback or link-local network of an address.
fn special(address: IpAddr) -> Option<IpNet> {
    ["127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10"]
        .into_iter()
        .map(|network| network.parse::<IpNet>().expect("a network"))
        .find(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(networks: &[&str], ports: &[&str]) -> Allow {
        Allow {
            networks: networks
                .iter()
                .map(|text| text.parse().expect("one"))
                .collect(),
            ports: ports
                .iter()
                .map(|text| text.parse().expect("one"))
                .collect(),
        }
    }

    #[test]
    fn nothing_is_allowed_by_default() {
        let to = "10.2.0.1:80".parse().expect("an address");
        assert!(!Allow::default().allows(to, &[]));
        assert!(!allow(&["10.2.0.0/16"], &[]).allows(to, &[]));
    }

    #[test]
    fn loopback_link_local_and_own_addresses_must_be_meant() {
        let own = [
            "10.2.0.9".parse().expect("one"),
            "fd00::9".parse().expect("one"),
        ];
        let all = ["0.0.0.0/0", "::/0"];
        let named = [
            "127.0.0.0/8",
            "::1/128",
            "169.254.0.0/16",
            "fe80::/10",
            "10.2.0.9/32",
            "fd00::9/128",
        ];
        for (to, by_all, by_name) in [
            ("10.2.0.1:80", true, false),
            ("[fd00::1]:80", true, false),
            ("127.0.0.1:80", false, true),
            ("127.9.9.9:80", false, true),
            ("[::1]:80", false, true),
            ("[::ffff:127.0.0.1]:80", false, true),
            ("169.254.169.254:80", false, true),
            ("[fe80::1]:80", false, true),
            ("10.2.0.9:80", false, true),
            ("[fd00::9]:80", false, true),
            ("0.0.0.0:80", false, false),
            ("224.0.0.1:80", false, false),
        ] {
            let address = to.parse().expect("an address");
            assert_eq!(
                allow(&all, &["1-65535"]).allows(address, &own),
                by_all,
                "{to}"
            );
            assert_eq!(
                allow(&named, &["80"]).allows(address, &own),
                by_name,
                "{to}"
            );
            assert!(!allow(&named, &["81-90"]).allows(address, &own), "{to}");
        }
    }

    #[test]
    fn ports_that_are_none() {
        for wrong in ["", "0", "5-4", "65536", "a-b", "-5"] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
    }
}
