// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The JSON schema of a kind of file, made from the types that it is read into, and the
//! parts of it that the reader uses for its messages.
//!
//! Beside the standard keywords there are two: `format` may name a quantity with its unit
//! (`rate`, `size`, `time`, `share`, `percent`), and `x-range` is `[least, most]` of such a
//! quantity, where `null` is no bound. Editors show both and check neither.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use crate::units::Quantity;

/// The schema of files that are read into `T`, draft 7, which editors know.
pub fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(without_null as fn(&mut Schema));
    settings.into_generator().into_root_schema_for::<T>().into()
}

/// TOML has no null: absent values are left out.
fn without_null(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut() {
        if let Some(Value::Array(types)) = object.get_mut("type") {
            types.retain(|name| name != "null");
            if let [only] = &types[..] {
                let only = only.clone();
                object.insert("type".to_owned(), only);
            }
        }
        if let Some(Value::Array(values)) = object.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
        if object.get("default").is_some_and(Value::is_null) {
            object.remove("default");
        }
        for keyword in ["anyOf", "oneOf"] {
            let Some(Value::Array(branches)) = object.get_mut(keyword) else {
                continue;
            };
            branches.retain(|branch| branch["type"] != "null");
            if let [Value::Object(only)] = &branches[..] {
                let only = only.clone();
                object.remove(keyword);
                for (key, value) in only {
                    // A key's own entries go before those of its type.
                    object.entry(key).or_insert(value);
                }
            }
        }
    }
    transform_subschemas(&mut (without_null as fn(&mut Schema)), schema);
}

/// The forms of a value: the schema itself, or each of its alternatives.
pub(crate) fn branches(schema: &Value) -> Vec<&Value> {
    for keyword in ["anyOf", "oneOf"] {
        if let Some(of) = schema[keyword].as_array() {
            return of.iter().flat_map(branches).collect();
        }
    }
    vec![schema]
}

/// The alternatives of this type; `integer` is one of `number` as well.
pub(crate) fn of_type<'s>(schema: &'s Value, name: &str) -> Vec<&'s Value> {
    let mut found = branches(schema);
    found
        .retain(|branch| branch["type"] == name || name == "string" && !choices(branch).is_empty());
    found
}

/// Whether any value will do.
pub(crate) fn is_any(schema: &Value) -> bool {
    let constraints = ["type", "const", "enum", "anyOf", "oneOf"];
    schema
        .as_object()
        .is_none_or(|object| !constraints.iter().any(|key| object.contains_key(*key)))
}

/// The words that are listed.
pub(crate) fn choices(schema: &Value) -> Vec<&str> {
    let listed = schema["enum"].as_array().map_or(&[][..], Vec::as_slice);
    listed
        .iter()
        .chain(schema.get("const"))
        .filter_map(Value::as_str)
        .collect()
}

/// The keys of a table with their schemas: those of all alternatives.
pub(crate) fn properties<'s>(tables: &[&'s Value]) -> Vec<(&'s str, &'s Value)> {
    let of = tables
        .iter()
        .filter_map(|table| table["properties"].as_object());
    of.flatten()
        .map(|(key, value)| (key.as_str(), value))
        .collect()
}

/// The keys that a table must have.
pub(crate) fn required(table: &Value) -> Vec<&str> {
    let keys = table["required"].as_array().map_or(&[][..], Vec::as_slice);
    keys.iter().filter_map(Value::as_str).collect()
}

/// The quantity whose unit a text must have.
pub(crate) fn quantity(schema: &Value) -> Option<Quantity> {
    let format = schema["format"].as_str()?;
    Quantity::ALL
        .into_iter()
        .find(|quantity| quantity.to_string() == format)
}

/// The least and the most of whole numbers: those that are given, or what their type holds.
pub(crate) fn whole_range(schema: &Value) -> (i128, i128) {
    let (least, most) = match schema["format"].as_str() {
        Some("uint8") => (0, u8::MAX.into()),
        Some("uint16") => (0, u16::MAX.into()),
        Some("uint32") => (0, u32::MAX.into()),
        Some("uint64" | "uint") => (0, u64::MAX.into()),
        Some("int32") => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN.into(), i64::MAX.into()),
    };
    let given = |key: &str| schema[key].as_number()?.as_i128();
    (
        given("minimum").unwrap_or(least),
        given("maximum").unwrap_or(most),
    )
}

/// Keys that messages list at most.
const MOST_KEYS: usize = 6;

/// The right form of the value of `key`, which is a full one: the text after "write".
pub(crate) fn right(schema: &Value, key: &str) -> String {
    let mut forms: Vec<String> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for branch in branches(schema) {
        let listed = choices(branch);
        if listed.is_empty() {
            forms.extend(form(branch, key));
        }
        words.extend(listed.iter().map(|word| format!("\"{word}\"")));
    }
    match &words[..] {
        [] => {}
        [word] => forms.insert(0, word.clone()),
        words => forms.insert(0, format!("one of {}", words.join(", "))),
    }
    forms.dedup();
    forms.join(", or ")
}

fn form(branch: &Value, key: &str) -> Option<String> {
    let like = || example(branch).map_or_else(String::new, |text| format!(", as {text}"));
    Some(match branch["type"].as_str()? {
        "string" => match quantity(branch) {
            Some(quantity) => format!("a {quantity} as {}", quantity.examples()),
            None => format!("a string in quotes{}", like()),
        },
        "integer" => format!("a whole number{}", like()),
        "number" => format!("a number{}", like()),
        "boolean" => "true or false".to_owned(),
        "array" if branch["items"]["type"] == "object" => {
            format!("tables [[{key}]]{}", with_keys(&branch["items"]))
        }
        "array" => format!("a list{}", like()),
        "object" => match properties(&[branch])[..] {
            [] => format!("tables [{key}.NAME]"),
            _ => format!("a table [{key}]{}", with_keys(branch)),
        },
        _ => return None,
    })
}

fn with_keys(table: &Value) -> String {
    let mut keys = required(table);
    if keys.is_empty() {
        keys = properties(&[table])
            .into_iter()
            .map(|(key, _)| key)
            .collect();
    }
    let more = if keys.len() > MOST_KEYS { ", ..." } else { "" };
    keys.truncate(MOST_KEYS);
    match keys[..] {
        [] => String::new(),
        _ => format!(" with {}{more}", keys.join(", ")),
    }
}

/// A value as a file may have it.
pub(crate) fn example(schema: &Value) -> Option<String> {
    let is_informative =
        |value: &&Value| !matches!(value.to_string().as_str(), "\"\"" | "[]" | "{}");
    let given = schema["examples"].get(0);
    if let Some(value) = given.or_else(|| schema.get("default").filter(is_informative)) {
        return Some(value.to_string());
    }
    let branch = *branches(schema).first()?;
    if let Some(word) = choices(branch).first() {
        return Some(format!("\"{word}\""));
    }
    match branch["type"].as_str()? {
        "integer" => Some(whole_range(branch).0.max(1).to_string()),
        "array" => Some(format!("[{}]", example(&branch["items"])?)),
        _ => branch["examples"].get(0).map(Value::to_string),
    }
}
