// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares as fine as a double, for chances that are far below a thousandth.

use std::borrow::Cow;
use std::fmt;

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Its format in schemas.
pub(crate) const FORMAT: &str = "percent";

/// `"0.1%"`: a share from 0 % to 100 %, as fine as a double.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Percent(f64);

impl Percent {
    /// 100 %.
    pub const ALL: Percent = Percent(1.0);

    /// From 0 to 1.
    pub fn share(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0 * 100.0)
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl std::str::FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').map(str::parse::<f64>);
        match number {
            Some(Ok(percent)) if (0.0..=100.0).contains(&percent) => Ok(Percent(percent / 100.0)),
            _ => Err(format!(
                "{text:?} is not a share: write 0% to 100%, as \"0.1%\""
            )),
        }
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Percent;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share such as \"0.1%\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Percent, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Percent {
    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": FORMAT, "examples": ["0.1%"] })
    }
}
