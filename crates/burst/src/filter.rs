// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which packets are counted: words as in `tcp dst port 5001 src host 10.0.0.0/8`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::layout::{self, Address, Ports, TAGGED};

/// Protocols that have a name here, with their number in IP.
const PROTOCOLS: [(&str, u16); 5] = [
    ("tcp", 6),
    ("udp", 17),
    ("sctp", 132),
    ("icmp", 1),
    ("icmp6", 58),
];
const ICMP6: u16 = 58;
/// For messages.
const TERMS: &str = "ip, ip6, tcp, udp, sctp, icmp, icmp6, proto N, [src|dst] host ADDRESS[/BITS], [src|dst] port N[-M], vlan [ID]";

/// A checked filter; all of its terms must hold. The default is every packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    text: String,
    terms: layout::Filter,
}

/// Errors of a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A word that is no term.
    #[error("{word:?} is not a filter term: use {TERMS}")]
    Unknown {
        /// The word.
        word: String,
    },
    /// The end came too early.
    #[error("{after:?} is followed by {wanted}, as in \"{example}\"")]
    Missing {
        /// The last word.
        after: String,
        /// The expected next word.
        wanted: &'static str,
        /// A right one.
        example: &'static str,
    },
    /// An invalid value.
    #[error("{word:?} is no {what}, as in \"{example}\"")]
    Value {
        /// The word.
        word: String,
        /// Its kind.
        what: &'static str,
        /// A right one.
        example: &'static str,
    },
    /// A term given twice.
    #[error("{term:?} is given twice: the two terms contradict or repeat each other")]
    Twice {
        /// The second.
        term: String,
    },
    /// Terms that exclude each other.
    #[error("no packet is {one} and {other}")]
    Contradiction {
        /// One of them.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
}

impl Filter {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// No term at all.
    pub fn is_empty(&self) -> bool {
        self.terms.active == 0
    }

    pub(super) fn terms(&self) -> &layout::Filter {
        &self.terms
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() {
            "all packets"
        } else {
            &self.text
        })
    }
}

#[derive(Clone, Copy)]
enum End {
    Either,
    Source,
    Destination,
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut terms = layout::Filter::default();
        let mut words = text
            .split_whitespace()
            .filter(|word| *word != "and")
            .peekable();
        let mut written: Vec<&str> = Vec::new();
        while let Some(word) = words.next() {
            written.push(word);
            let (end, word) = match word {
                "src" | "dst" => {
                    let next = words.next().ok_or_else(|| missing_end(word))?;
                    written.push(next);
                    if !matches!(next, "host" | "port") {
                        return Err(missing_end(word));
                    }
                    let end = match word {
                        "src" => End::Source,
                        _ => End::Destination,
                    };
                    (end, next)
                }
                _ => (End::Either, word),
            };
            match word {
                "ip" | "ipv4" => set(&mut terms.family, 0, 4, word)?,
                "ip6" | "ipv6" => set(&mut terms.family, 0, 6, word)?,
                "proto" => {
                    let value = words.next().ok_or(FilterError::Missing {
                        after: "proto".to_owned(),
                        wanted: "a protocol's number",
                        example: "proto 47",
                    })?;
                    written.push(value);
                    let number: u8 = value.parse().map_err(|_| FilterError::Value {
                        word: value.to_owned(),
                        what: "protocol's number, 0 to 255",
                        example: "proto 47",
                    })?;
                    set(
                        &mut terms.protocol,
                        layout::ANY,
                        number.into(),
                        &format!("proto {value}"),
                    )?;
                }
                "host" => {
                    let value = words.next().ok_or(FilterError::Missing {
                        after: "host".to_owned(),
                        wanted: "an address",
                        example: "host 10.0.0.1",
                    })?;
                    written.push(value);
                    let place = match end {
                        End::Either => &mut terms.either,
                        End::Source => &mut terms.source,
                        End::Destination => &mut terms.destination,
                    };
                    if place.family != 0 {
                        return Err(FilterError::Twice {
                            term: format!("host {value}"),
                        });
                    }
                    *place = address(value)?;
                }
                "port" => {
                    let value = words.next().ok_or(FilterError::Missing {
                        after: "port".to_owned(),
                        wanted: "a number or a range",
                        example: "port 5001-5010",
                    })?;
                    written.push(value);
                    let place = match end {
                        End::Either => &mut terms.either_port,
                        End::Source => &mut terms.source_port,
                        End::Destination => &mut terms.destination_port,
                    };
                    if place.asked != 0 {
                        return Err(FilterError::Twice {
                            term: format!("port {value}"),
                        });
                    }
                    *place = ports(value)?;
                }
                "vlan" => {
                    let id = match words.peek().and_then(|word| word.parse::<u16>().ok()) {
                        Some(id) if id <= 4094 => id,
                        Some(id) => {
                            return Err(FilterError::Value {
                                word: id.to_string(),
                                what: "VLAN's number, 0 to 4094",
                                example: "vlan 12",
                            })
                        }
                        None => TAGGED,
                    };
                    if id != TAGGED {
                        written.extend(words.next());
                    }
                    set(&mut terms.vlan, layout::ANY, id, "vlan")?;
                }
                _ => match PROTOCOLS.iter().find(|(name, _)| *name == word) {
                    Some((_, number)) => set(&mut terms.protocol, layout::ANY, *number, word)?,
                    None => {
                        return Err(FilterError::Unknown {
                            word: word.to_owned(),
                        })
                    }
                },
            }
        }
        terms.active = u16::from(!written.is_empty());
        check(&terms)?;
        Ok(Filter {
            text: written.join(" "),
            terms,
        })
    }
}

fn missing_end(word: &str) -> FilterError {
    FilterError::Missing {
        after: word.to_owned(),
        wanted: "host or port",
        example: "src host 10.0.0.1",
    }
}

fn set(place: &mut u16, unset: u16, value: u16, term: &str) -> Result<(), FilterError> {
    if *place != unset {
        return Err(FilterError::Twice {
            term: term.to_owned(),
        });
    }
    *place = value;
    Ok(())
}

fn address(text: &str) -> Result<Address, FilterError> {
    let wrong = || FilterError::Value {
        word: text.to_owned(),
        what: "address or network",
        example: "host 10.0.0.0/8",
    };
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| wrong())?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let (family, octets, most) = match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            (4, octets, 32)
        }
        IpAddr::V6(address) => (6, address.octets(), 128),
    };
    let bits = bits.unwrap_or(most);
    if bits > most {
        return Err(wrong());
    }
    let mask = (!0_u128).checked_shl(128 - bits).unwrap_or(0).to_be_bytes();
    let octets: [u8; 16] = std::array::from_fn(|at| octets[at] & mask[at]);
    let words = |bytes: [u8; 16]| {
        std::array::from_fn(|word| std::array::from_fn(|byte| bytes[word * 4 + byte]))
    };
    Ok(Address {
        bits: words(octets),
        mask: words(mask),
        family,
    })
}

fn ports(text: &str) -> Result<Ports, FilterError> {
    let wrong = || FilterError::Value {
        word: text.to_owned(),
        what: "port or range of ports",
        example: "port 5001-5010",
    };
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let least = least.parse().map_err(|_| wrong())?;
    let most = most.parse().map_err(|_| wrong())?;
    if least > most {
        return Err(wrong());
    }
    Ok(Ports {
        least,
        most,
        asked: 1,
        reserved: 0,
    })
}

/// Refuses a filter that no packet can match.
fn check(terms: &layout::Filter) -> Result<(), FilterError> {
    let no = |one, other| Err(FilterError::Contradiction { one, other });
    let mut families = [
        u32::from(terms.family),
        terms.either.family,
        terms.source.family,
        terms.destination.family,
    ];
    families.sort_unstable();
    if families.contains(&4) && families.contains(&6) {
        return no("IPv4", "IPv6");
    }
    if terms.protocol == 1 && families.contains(&6) {
        return no("icmp", "IPv6 (write icmp6)");
    }
    if terms.protocol == ICMP6 && families.contains(&4) {
        return no("icmp6", "IPv4 (write icmp)");
    }
    let asks_port = [terms.either_port, terms.source_port, terms.destination_port]
        .iter()
        .any(|ports| ports.asked != 0);
    if asks_port && !matches!(terms.protocol, layout::ANY | 6 | 17 | 33 | 132 | 136) {
        return no("of a protocol without ports", "of a port");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Filter>().unwrap_err().to_string()
    }

    #[test]
    fn terms_come_in_any_order_and_may_be_joined() {
        let one: Filter = "tcp and src host 10.1.2.3/8 and dst port 5001-5010"
            .parse()
            .unwrap();
        let other: Filter = " dst port 5001-5010  tcp src host 10.0.0.0/8 "
            .parse()
            .unwrap();
        assert_eq!(one.terms, other.terms);
        assert_eq!(one.text(), "tcp src host 10.1.2.3/8 dst port 5001-5010");
        assert_eq!(one.terms.source.bits[0], [10, 0, 0, 0]);
        assert_eq!(one.terms.source.mask[0], [255, 0, 0, 0]);
        assert_eq!(one.terms.destination_port.most, 5010);
        let six: Filter = "udp host fd00::1 vlan 12".parse().unwrap();
        assert_eq!(six.terms.either.bits[0], [0xfd, 0, 0, 0]);
        assert_eq!(six.terms.either.mask, [[255; 4]; 4]);
        assert_eq!((six.terms.vlan, six.terms.protocol), (12, 17));
        assert_eq!("vlan tcp".parse::<Filter>().unwrap().terms.vlan, TAGGED);
        assert!("".parse::<Filter>().unwrap().is_empty());
        let all: Filter = "host 0.0.0.0/0".parse().unwrap();
        assert_eq!(all.terms.either.mask[0], [0; 4]);
    }

    #[test]
    fn an_error_names_the_right_form() {
        for (text, wanted) in [
            ("tcp 5001", "\"5001\" is not a filter term"),
            ("port", "followed by a number or a range"),
            ("port 70000", "no port or range of ports"),
            ("port 9-5", "no port or range of ports"),
            ("src 10.0.0.1", "\"src\" is followed by host or port"),
            ("host 10.0.0.1/33", "no address or network"),
            ("host example.org", "as in \"host 10.0.0.0/8\""),
            ("vlan 5000", "no VLAN's number"),
            ("proto tcp", "no protocol's number"),
            ("tcp udp", "\"udp\" is given twice"),
            ("ip host fd00::1", "no packet is IPv4 and IPv6"),
            ("icmp port 5", "without ports"),
        ] {
            assert!(error(text).contains(wanted), "{text}: {}", error(text));
        }
    }
}
