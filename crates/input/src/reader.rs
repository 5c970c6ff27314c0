// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a document into a type, and finds all that does not fit the type's schema.
//!
//! serde stops at the first error. So the document is first walked along the schema, which
//! finds them all with their places, and deserialized when nothing is wrong with it.

use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::de::{DeInteger, DeTable, DeValue, Deserializer};

use crate::document::{Document, Place};
use crate::nearest::{did_you_mean, nearest};
use crate::percent::{self, Percent};
use crate::problem::{bare_or_quoted, Problems};
use crate::schema::{
    branches, choices, example, is_any, of_type, properties, quantity, required, right, schema,
    whole_range,
};
use crate::units::{parse, quoted, Quantity};

/// A `format` of a schema's strings, and the check that reports a problem with one.
pub type Format<'c> = (&'static str, &'c dyn Fn(&str) -> Result<(), String>);

/// The format that is no [`Quantity`], and that all readers know, too.
const PERCENT: Format<'static> = (percent::FORMAT, &|text| text.parse::<Percent>().map(drop));

/// Reads documents of one kind.
#[derive(Clone, Debug)]
pub struct Reader<T> {
    schema: Value,
    read: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + JsonSchema> Default for Reader<T> {
    fn default() -> Self {
        Reader {
            schema: schema::<T>(),
            read: PhantomData,
        }
    }
}

impl<T: DeserializeOwned + JsonSchema> Reader<T> {
    /// Reads a document. `formats` are those of its schema, beside the quantities, which
    /// all readers know.
    ///
    /// # Errors
    /// All that is no TOML, or else all that does not fit the schema.
    pub fn read(&self, document: &Document, formats: &[Format<'_>]) -> Result<T, Problems> {
        let tree = document.tree()?;
        document.check(|place| {
            let walk = Walk {
                root: &self.schema,
                formats,
            };
            walk.table(&[&self.schema], tree.get_ref(), place);
            Ok(())
        })?;
        T::deserialize(Deserializer::from(tree)).map_err(|error| document.misread(&error))
    }
}

struct Walk<'r> {
    root: &'r Value,
    formats: &'r [Format<'r>],
}

impl Walk<'_> {
    fn value(&self, schema: &Value, value: &DeValue<'_>, place: &Place<'_>) {
        if is_any(schema) {
            return;
        }
        let whole = of_type(schema, "integer");
        let numbers = of_type(schema, "number");
        let texts = of_type(schema, "string");
        let lists = of_type(schema, "array");
        let tables = of_type(schema, "object");
        let has_unit =
            |text: &&Value| quantity(text).is_some() || text["format"] == percent::FORMAT;
        let united = texts.iter().any(has_unit);
        match value {
            DeValue::String(text) if !texts.is_empty() => self.text(schema, &texts, text, place),
            DeValue::Integer(number) if !whole.is_empty() => whole_number(whole[0], number, place),
            DeValue::Integer(number) if !numbers.is_empty() => {
                let text = number.to_string();
                self::number(numbers[0], text.parse().ok(), &text, place);
            }
            DeValue::Float(number) if !numbers.is_empty() => {
                let text = number.as_str().replace('_', "");
                self::number(numbers[0], text.parse().ok(), &text, place);
            }
            // The unit is missing, and its error shows the right form.
            DeValue::Integer(number) if united => {
                self.text(schema, &texts, &number.to_string(), place);
            }
            DeValue::Float(number) if united => {
                self.text(schema, &texts, number.as_str(), place);
            }
            DeValue::Boolean(_) if !of_type(schema, "boolean").is_empty() => {}
            DeValue::Array(items) if !lists.is_empty() => {
                length(lists[0], items.len(), place);
                for (index, item) in items.iter().enumerate() {
                    self.value(&lists[0]["items"], item.get_ref(), &place.item(index));
                }
            }
            DeValue::Table(table) if !tables.is_empty() => self.table(&tables, table, place),
            _ => {
                let found = kind(value);
                let right = right(schema, &place.dotted());
                place.wrong(format!("{found} does not fit: write {right}"));
            }
        }
    }

    /// A text, or a number whose unit is missing.
    fn text(&self, schema: &Value, schemas: &[&Value], text: &str, place: &Place<'_>) {
        let words: Vec<&str> = schemas.iter().flat_map(|schema| choices(schema)).collect();
        if words.contains(&text) {
            return;
        }
        let free = schemas.iter().find(|schema| choices(schema).is_empty());
        let Some(free) = free else {
            let text = quoted(text);
            let meant = did_you_mean(nearest(&text, words.iter().copied()));
            let right = right(schema, &place.dotted());
            place.wrong(format!("{text:?} is not known{meant}; write {right}"));
            return;
        };
        let problem = match quantity(free) {
            Some(quantity) => {
                // That of the key, or of its type.
                let ranges = [&schema["x-range"], &free["x-range"]];
                let given = ranges.into_iter().find(|range| range.is_array());
                within(quantity, given.unwrap_or(&Value::Null), text)
            }
            None => {
                let known = |(format, _): &&Format<'_>| free["format"] == **format;
                let check = self.formats.iter().chain([&PERCENT]).find(known);
                check.map_or(Ok(()), |(_, check)| check(text))
            }
        };
        if let Err(problem) = problem {
            place.wrong(problem);
        }
    }

    /// A table, of one kind or of one of several, which differ in a key each.
    fn table(&self, schemas: &[&Value], table: &DeTable<'_>, place: &Place<'_>) {
        let known = properties(schemas);
        let others = schemas
            .iter()
            .map(|schema| &schema["additionalProperties"])
            .find(|others| others.is_object() || **others == true);
        let mut meant = Vec::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            let place = place.key(name);
            let listed = known.iter().find(|(known, _)| *known == name);
            match (listed.map(|(_, schema)| *schema), others) {
                (Some(schema), _) | (None, Some(schema)) => {
                    self.value(schema, value.get_ref(), &place);
                }
                (None, None) => meant.extend(self.unknown(name, &known, &place)),
            }
        }
        if let [schema] = schemas {
            for key in required(schema) {
                let misspelt = meant.contains(&key);
                if !misspelt && !table.keys().any(|found| found.get_ref() == key) {
                    missing(schema, key, place);
                }
            }
        } else if table.len() != 1 && meant.is_empty() {
            let keys: Vec<&str> = known.iter().map(|(key, _)| *key).collect();
            place.wrong(format!("write one of {} in it", keys.join(", ")));
        }
    }

    /// The known key that was probably meant.
    fn unknown<'k>(
        &self,
        name: &str,
        known: &[(&'k str, &Value)],
        place: &Place<'_>,
    ) -> Option<&'k str> {
        let keys: Vec<&str> = known.iter().map(|(key, _)| *key).collect();
        let meant = nearest(name, keys.iter().copied());
        let mut elsewhere = Vec::new();
        if meant.is_none() {
            tables_with(name, self.root, "", &mut elsewhere);
        }
        place.wrong_key(match &elsewhere[..] {
            [table] => format!("not a key of this table: write it under {table}"),
            _ => format!(
                "unknown key{}; known here: {}",
                did_you_mean(meant),
                keys.join(", ")
            ),
        });
        meant
    }
}

/// The headers of the tables that have a key.
fn tables_with(key: &str, schema: &Value, path: &str, found: &mut Vec<String>) {
    let join = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    for branch in branches(schema) {
        let (table, header) = match branch["type"] == "array" {
            true => (&branch["items"], format!("[[{path}]]")),
            false => (branch, format!("[{path}]")),
        };
        let known = properties(&[table]);
        if !path.is_empty() && known.iter().any(|(known, _)| *known == key) {
            found.push(header);
        }
        for (name, value) in known {
            tables_with(key, value, &join(name), found);
        }
        if table["additionalProperties"].is_object() {
            tables_with(key, &table["additionalProperties"], &join("NAME"), found);
        }
    }
}

fn missing(schema: &Value, key: &str, place: &Place<'_>) {
    let value = &schema["properties"][key];
    // Below a table's header it would be that table's.
    let top = if place.is_root() {
        " at the top of the file"
    } else {
        ""
    };
    let place = place.key(key);
    place.wrong(match example(value) {
        Some(example) => format!("missing: write {} = {example}{top}", bare_or_quoted(key)),
        None => format!("missing: write {}", right(value, &place.dotted())),
    });
}

fn whole_number(schema: &Value, number: &DeInteger<'_>, place: &Place<'_>) {
    let (least, most) = whole_range(schema);
    let value = i128::from_str_radix(number.as_str(), number.radix()).ok();
    if !value.is_some_and(|value| (least..=most).contains(&value)) {
        let number = quoted(&number.to_string());
        place.wrong(format!("{number} is out of range: {least} to {most}"));
    }
}

fn number(schema: &Value, value: Option<f64>, text: &str, place: &Place<'_>) {
    let bound = |key: &str| schema[key].as_f64();
    let above = bound("exclusiveMinimum");
    let least = bound("minimum");
    let most = bound("maximum");
    let fits = value.is_some_and(|value| {
        above.is_none_or(|above| value > above)
            && least.is_none_or(|least| value >= least)
            && most.is_none_or(|most| value <= most)
    });
    let bounded = above.or(least).or(most).is_some();
    if bounded && !value.is_some_and(f64::is_finite) {
        place.wrong(format!("{} is not a finite number", quoted(text)));
    } else if !fits {
        let range = [
            above.map(|above| format!("above {above}")),
            least.map(|least| format!("at least {least}")),
            most.map(|most| format!("at most {most}")),
        ];
        let range: Vec<String> = range.into_iter().flatten().collect();
        let text = quoted(text);
        place.wrong(format!("{text} is out of range: {}", range.join(", ")));
    }
}

/// A text as a quantity between two that are written in the same way.
fn within(quantity: Quantity, range: &Value, text: &str) -> Result<(), String> {
    let value = parse(quantity, text).map_err(|error| error.to_string())?;
    let bound = |index: usize| range[index].as_str();
    let parsed = |index: usize| parse(quantity, bound(index)?).ok();
    let fits =
        parsed(0).is_none_or(|least| value >= least) && parsed(1).is_none_or(|most| value <= most);
    if fits {
        return Ok(());
    }
    let text = quoted(text);
    Err(match (bound(0), bound(1)) {
        (Some(least), Some(most)) => format!("{text} is out of range: {least} to {most}"),
        (Some(least), None) => format!("{text} is out of range: {least} or more"),
        (_, most) => format!("{text} is out of range: up to {}", most.unwrap_or_default()),
    })
}

fn length(schema: &Value, items: usize, place: &Place<'_>) {
    let bound = |key: &str| schema[key].as_u64().map(|bound| bound as usize);
    let (least, most) = (bound("minItems").unwrap_or(0), bound("maxItems"));
    if items >= least && most.is_none_or(|most| items <= most) {
        return;
    }
    let right = match most {
        Some(most) if most == least => format!("{least}"),
        Some(most) => format!("{least} to {most}"),
        None => format!("{least} or more"),
    };
    place.wrong(format!("has {items} items: write {right}"));
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time of day",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
