// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rates, sizes and times as people write them in policies and experiments.
//!
//! A value is a decimal number followed directly by its unit: `500mbit`, `128KiB`,
//! `1.5ms`. A number without a unit is refused, because it does not distinguish bits from
//! bytes or milliseconds from seconds. `Mbit` is as good as `mbit`, and `kB` as `KB`; `b`
//! alone is nothing, for it may be either. All arithmetic is exact: a value that is not
//! whole in bits per second, bytes or microseconds is refused rather than rounded.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The kind of quantity of a text: its units, and examples for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bits of payload per second: `bit`, `kbit`, `mbit`, `gbit` (powers of ten).
    Rate,
    /// Bytes: `B`, `KB`, `MB`, `GB` (powers of ten), `KiB`, `MiB`, `GiB` (powers of two).
    Size,
    /// `us`, `ms`, `s`, `min`, `h`.
    Time,
    /// A part of a whole in thousandths: `%`.
    Share,
}

impl Quantity {
    pub(crate) const ALL: [Self; 4] = [Self::Rate, Self::Size, Self::Time, Self::Share];

    /// Units and their value in the base unit (bit/s, bytes, microseconds, thousandths).
    const fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Rate => &[
                ("bit", 1),
                ("kbit", 1_000),
                ("mbit", 1_000_000),
                ("gbit", 1_000_000_000),
            ],
            Self::Size => &[
                ("B", 1),
                ("KB", 1_000),
                ("KiB", 1 << 10),
                ("MB", 1_000_000),
                ("MiB", 1 << 20),
                ("GB", 1_000_000_000),
                ("GiB", 1 << 30),
            ],
            Self::Time => &[
                ("us", 1),
                ("ms", 1_000),
                ("s", 1_000_000),
                ("min", 60_000_000),
                ("h", 3_600_000_000),
            ],
            Self::Share => &[("%", 10)],
        }
    }

    /// For messages.
    pub(crate) const fn examples(self) -> &'static str {
        match self {
            Self::Rate => "\"500mbit\" or \"2.5gbit\"",
            Self::Size => "\"128KiB\" or \"100KB\"",
            Self::Time => "\"10ms\" or \"60s\"",
            Self::Share => "\"2%\" or \"0.5%\"",
        }
    }

    /// The schema of such a text.
    fn schema(self) -> Schema {
        let units: Vec<String> = self
            .units()
            .iter()
            .map(|unit| self.pattern(unit.0))
            .collect();
        let pattern = format!(r"^[0-9]+(\.[0-9]+)?({})$", units.join("|"));
        let examples: Vec<&str> = self.examples().split('"').skip(1).step_by(2).collect();
        let format = self.to_string();
        json_schema!({
            "type": "string", "format": format, "pattern": pattern, "examples": examples
        })
    }

    /// A unit as a regular expression, as [`Quantity::scale`] accepts it.
    fn pattern(self, unit: &str) -> String {
        let either = |c: char| format!("[{}{}]", c.to_ascii_uppercase(), c.to_ascii_lowercase());
        match (self, unit) {
            (Self::Rate, _) => unit.chars().map(either).collect(),
            (Self::Size, "KB") => "[Kk]B".to_owned(),
            _ => unit.to_owned(),
        }
    }

    const fn base(self) -> &'static str {
        match self {
            Self::Rate => "bit per second",
            Self::Size => "byte",
            Self::Time => "microsecond",
            Self::Share => "thousandth (0.1%)",
        }
    }

    /// The value of `unit`, if it is one. The letters' case of a rate says nothing: there
    /// are no millibits.
    fn scale(self, unit: &str) -> Option<u64> {
        let is = |name: &str| match self {
            Self::Rate => name.eq_ignore_ascii_case(unit),
            Self::Size => name == unit || (name == "KB" && unit == "kB"),
            Self::Time | Self::Share => name == unit,
        };
        self.units()
            .iter()
            .find(|(name, _)| is(name))
            .map(|(_, scale)| *scale)
    }

    /// The unit meant by `wrong`, if it is a known unit in other letters
    /// (`Mbit/s`, `kib`, `sec`).
    fn nearest_unit(self, wrong: &str) -> Option<&'static str> {
        let lower = wrong.to_lowercase();
        let plain: &str = match self {
            // Not "MBps": those would be bytes.
            Self::Rate if wrong.ends_with("bps") => &lower.replace("bps", "bit"),
            Self::Rate => lower.trim_end_matches("/s").trim_end_matches('s'),
            Self::Size => lower.trim_end_matches("ytes").trim_end_matches("yte"),
            Self::Time => match lower.as_str() {
                "sec" | "secs" | "second" | "seconds" => "s",
                "usec" | "µs" | "μs" => "us",
                "msec" => "ms",
                "m" | "mins" | "minute" | "minutes" => "min",
                "hour" | "hours" => "h",
                other => other,
            },
            Self::Share => match lower.as_str() {
                "percent" => "%",
                other => other,
            },
        };
        self.units()
            .iter()
            .map(|(unit, _)| *unit)
            .find(|unit| unit.to_lowercase() == plain)
    }

    /// The shortest exact way to write `value`, which is in the base unit.
    fn canonical(self, value: u64) -> String {
        let base = match self {
            Self::Time if value == 0 => return "0s".to_owned(),
            Self::Share if value.is_multiple_of(10) => return format!("{}%", value / 10),
            Self::Share => return format!("{}.{}%", value / 10, value % 10),
            Self::Rate | Self::Size | Self::Time => self.units()[0].0,
        };
        let mut best = format!("{value}{base}");
        for (unit, scale) in &self.units()[1..] {
            let text = format!("{}{unit}", value / scale);
            if value.is_multiple_of(*scale) && text.len() < best.len() {
                best = text;
            }
        }
        best
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "rate",
            Self::Size => "size",
            Self::Time => "time",
            Self::Share => "share",
        })
    }
}

/// Why a text is not a rate, size or time.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UnitError {
    /// There is no number at the start.
    #[error("{text:?} is not a {quantity}: write a number with its unit, as {}", .quantity.examples())]
    NotANumber { quantity: Quantity, text: String },
    /// A bare number.
    #[error("{text} has no unit: write a {quantity} as {}", .quantity.examples())]
    NoUnit { quantity: Quantity, text: String },
    /// The unit is unknown, and no known one resembles it.
    #[error("{unit:?} is not a unit of a {quantity}: use {}", unit_list(*.quantity))]
    UnknownUnit { quantity: Quantity, unit: String },
    /// The unit is a known one in a form that is not accepted.
    #[error("{unit:?} is not a unit of a {quantity}: write \"{number}{nearest}\"")]
    MisspeltUnit {
        quantity: Quantity,
        unit: String,
        number: String,
        nearest: &'static str,
    },
    /// More decimals than the base unit can hold.
    #[error("\"{text}\" is finer than one {}", .quantity.base())]
    TooFine { quantity: Quantity, text: String },
    /// Does not fit 64 bits of the base unit.
    #[error("\"{text}\" is too large a {quantity}")]
    TooLarge { quantity: Quantity, text: String },
}

fn unit_list(quantity: Quantity) -> String {
    let names: Vec<_> = quantity.units().iter().map(|(unit, _)| *unit).collect();
    names.join(", ")
}

/// Longer texts than this are cut in messages; no sensible value is near it.
const LONGEST_TEXT: usize = 40;

/// `text`, cut if it is very long.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Parses `text` into the base unit of `quantity`.
pub(crate) fn parse(quantity: Quantity, text: &str) -> Result<u64, UnitError> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let well_formed =
        !whole.is_empty() && !decimals.contains('.') && number.contains('.') != decimals.is_empty();
    if !well_formed {
        return Err(UnitError::NotANumber {
            quantity,
            text: quoted(text),
        });
    }
    if unit.is_empty() {
        return Err(UnitError::NoUnit {
            quantity,
            text: quoted(text),
        });
    }
    let Some(scale) = quantity.scale(unit) else {
        let trimmed = unit.trim();
        return Err(match quantity.nearest_unit(trimmed) {
            Some(nearest) => UnitError::MisspeltUnit {
                quantity,
                unit: quoted(unit),
                number: quoted(number),
                nearest,
            },
            None => UnitError::UnknownUnit {
                quantity,
                unit: quoted(trimmed),
            },
        });
    };

    let too_large = || UnitError::TooLarge {
        quantity,
        text: quoted(text),
    };
    let too_fine = || UnitError::TooFine {
        quantity,
        text: quoted(text),
    };
    let decimals = decimals.trim_end_matches('0');
    let digits = u32::try_from(decimals.len()).map_err(|_| too_fine())?;
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let fraction = if decimals.is_empty() {
        0
    } else {
        // A scale of at most 3.6e9 cannot make more than ten decimals whole.
        let power = 10u128.checked_pow(digits).ok_or_else(too_fine)?;
        let scaled = decimals
            .parse::<u128>()
            .ok()
            .and_then(|decimals| decimals.checked_mul(u128::from(scale)))
            .ok_or_else(too_fine)?;
        if scaled % power != 0 {
            return Err(too_fine());
        }
        u64::try_from(scaled / power).map_err(|_| too_large())?
    };
    whole
        .checked_mul(scale)
        .and_then(|value| value.checked_add(fraction))
        .ok_or_else(too_large)
}

/// Parses a rate such as `500mbit` into bits of payload per second.
///
/// # Errors
/// When the text is not a decimal number with one of the units `bit`, `kbit`,
/// `mbit`, `gbit` in any case, or does not come to whole bits per second that fit 64 bits.
pub fn parse_rate(text: &str) -> Result<u64, UnitError> {
    parse(Quantity::Rate, text)
}

/// Parses a size such as `128KiB` (powers of two) or `100KB` (powers of ten) into bytes.
///
/// # Errors
/// When the text is not a decimal number with one of the units `B`, `KB`,
/// `KiB`, `MB`, `MiB`, `GB`, `GiB`, or does not come to whole bytes that fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    parse(Quantity::Size, text)
}

/// Parses a time such as `10ms`, exact to the microsecond.
///
/// # Errors
/// When the text is not a decimal number with one of the units `us`, `ms`,
/// `s`, `min`, `h`, or does not come to whole microseconds that fit 64 bits.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    parse(Quantity::Time, text).map(Duration::from_micros)
}

macro_rules! quantity_type {
    ($(#[$doc:meta])* $name:ident, $quantity:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&$quantity.canonical(self.0))
            }
        }

        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse($quantity, text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $quantity.schema()
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // Any: only then a bare number reaches the visitor, which explains it.
                deserializer.deserialize_any(QuantityVisitor($quantity)).map(Self)
            }
        }
    };
}

quantity_type! {
    /// A rate in bits of payload per second, written as `500mbit`.
    Rate, Quantity::Rate
}
quantity_type! {
    /// A size in bytes, written as `128KiB` or `100KB`.
    Size, Quantity::Size
}
quantity_type! {
    /// A time in whole microseconds, written as `10ms`.
    Time, Quantity::Time
}

quantity_type! {
    /// A part of a whole in thousandths, written as `2%` or `0.5%`.
    Share, Quantity::Share
}

impl Rate {
    /// A rate of so many bits per second.
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Self(bits)
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Whole bytes per second, rounded down: the unit of the kernel side.
    pub const fn bytes_per_second(self) -> u64 {
        self.0 / 8
    }
}

impl Size {
    /// A size of so many bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Time {
    /// A time of so many microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// A time of so many milliseconds; saturates at the largest time.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// A time of so many seconds; saturates at the largest time.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Microseconds.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Seconds.
    pub fn secs_f64(self) -> f64 {
        self.duration().as_secs_f64()
    }

    /// The same as [`Duration`].
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl Share {
    /// A share of so many thousandths.
    pub const fn from_permille(permille: u64) -> Self {
        Self(permille)
    }

    /// Thousandths.
    pub const fn permille(self) -> u64 {
        self.0
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        time.duration()
    }
}

struct QuantityVisitor(Quantity);

impl QuantityVisitor {
    fn bare<E: de::Error>(&self, number: impl fmt::Display) -> E {
        E::custom(UnitError::NoUnit {
            quantity: self.0,
            text: number.to_string(),
        })
    }
}

impl Visitor<'_> for QuantityVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} as {}", self.0, self.0.examples())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        parse(self.0, text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        Err(self.bare(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Err(self.bare(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
        Err(self.bare(number))
    }
}
