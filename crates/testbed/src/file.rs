// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A topology file as it is written. The keys are described in `docs/lab.md`.

use std::fmt;
use std::marker::PhantomData;

use indexmap::IndexMap;
use paceline_input::units::{Rate, Size, Time};
use serde::de::{value, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::Deserialize;
use toml::Spanned;

/// The file's content. Spans are for messages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Hosts around a switch.
    #[serde(default)]
    pub cluster: Vec<Spanned<Cluster>>,
    /// Links between clusters.
    #[serde(default)]
    pub wan: Vec<Spanned<Wan>>,
    /// Ways that are not the shortest.
    #[serde(default)]
    pub route: Vec<Spanned<Route>>,
    /// Congestion control of all connections that ask for none; absent: the machine's default.
    pub congestion: Option<Spanned<String>>,
    /// Written on every host.
    #[serde(default)]
    pub sysctl: IndexMap<String, Spanned<toml::Value>>,
}

/// Hosts around a switch.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Its hosts are called by it and their number, from 0.
    pub name: Spanned<String>,
    /// How many.
    pub hosts: Spanned<u32>,
    /// Each host's link to the switch, framing included.
    #[serde(default = "gigabit")]
    pub edge_rate: Spanned<Rate>,
    /// Drop-tail queue of each of the switch's ports towards a host.
    pub switch_buffer: Spanned<Size>,
}

/// A link between two clusters.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wan {
    /// Absent: FROM-TO.
    pub name: Option<Spanned<String>>,
    /// The cluster where forward begins.
    pub from: Spanned<String>,
    /// The other one.
    pub to: Spanned<String>,
    /// Line rate, framing included.
    pub rate: Spanned<Ways<Rate>>,
    /// Propagation.
    pub one_way_delay: Spanned<Ways<Time>>,
    /// Drop-tail queue in front of the line.
    pub buffer: Spanned<Ways<Size>>,
}

/// A way that is not the shortest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The cluster where it begins.
    pub from: Spanned<String>,
    /// The cluster where it ends.
    pub to: Spanned<String>,
    /// The links, in their order.
    pub via: Spanned<Path>,
    /// Only from `from` to `to`.
    #[serde(default)]
    pub one_way: bool,
}

/// One value for both directions, or one for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ways<T> {
    /// From the link's `from` to its `to`.
    pub forward: T,
    /// Back.
    pub reverse: T,
}

/// One link or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(pub Vec<String>);

/// What experiments have, too.
fn gigabit() -> Spanned<Rate> {
    Spanned::new(0..0, Rate::from_bits_per_second(1_000_000_000))
}

impl<'de, T: Deserialize<'de> + Copy> Deserialize<'de> for Ways<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By hand: serde's untagged enums would say that nothing matched, instead of
        // what is wrong with the value.
        deserializer.deserialize_any(WaysVisitor(PhantomData))
    }
}

struct WaysVisitor<T>(PhantomData<T>);

impl<T> WaysVisitor<T> {
    fn both<'de, E: Error>(value: impl IntoDeserializer<'de, E>) -> Result<Ways<T>, E>
    where
        T: Deserialize<'de> + Copy,
    {
        let value = T::deserialize(value.into_deserializer())?;
        Ok(Ways {
            forward: value,
            reverse: value,
        })
    }
}

impl<'de, T: Deserialize<'de> + Copy> Visitor<'de> for WaysVisitor<T> {
    type Value = Ways<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number with its unit, or { forward = ..., reverse = ... }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Ways<T>, E> {
        Self::both(text)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Ways<T>, E> {
        Self::both(number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Ways<T>, E> {
        Self::both(number)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Ways<T>, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Each<T> {
            forward: T,
            reverse: T,
        }
        let each = Each::deserialize(value::MapAccessDeserializer::new(map))?;
        Ok(Ways {
            forward: each.forward,
            reverse: each.reverse,
        })
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PathVisitor;
        impl<'de> Visitor<'de> for PathVisitor {
            type Value = Path;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a link's name, or several in the order of the way")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Path, E> {
                Ok(Path(vec![name.to_owned()]))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut names: A,
            ) -> Result<Path, A::Error> {
                let mut path = Vec::new();
                while let Some(name) = names.next_element()? {
                    path.push(name);
                }
                Ok(Path(path))
            }
        }
        deserializer.deserialize_any(PathVisitor)
    }
}
