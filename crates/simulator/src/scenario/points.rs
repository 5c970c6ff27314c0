// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Variants and axes: every point of a sweep, and the file as it is there.

use paceline_input::{Document, Place, Problem, Reader, Reported};

use super::file::File;
use super::FORMATS;

/// Points at most, for a list of them.
const MOST_POINTS: usize = 100_000;

/// One point of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The variant.
    pub variant: String,
    /// Axes and their values, in the order of the file.
    pub values: Vec<(String, toml::Value)>,
    /// Runs.
    pub seeds: u32,
}

impl Point {
    /// The values, as metrics' names end in them.
    pub fn tail(&self) -> String {
        let values: Vec<String> = self.values.iter().map(|(_, value)| label(value)).collect();
        values.join("/")
    }
}

/// A value in a metric's name.
pub fn label(value: &toml::Value) -> String {
    let text = match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.replace(['/', ' ', '"'], "-")
}

/// The name of the only variant of a file that has none.
pub const ONLY: &str = "run";

/// All points of a file, variant after variant.
pub(super) fn all(file: &File, place: &Place<'_>) -> Result<Vec<Point>, Reported> {
    let mut combinations: Vec<(Vec<(String, toml::Value)>, u32)> = vec![(Vec::new(), file.seeds)];
    for (name, axis) in &file.axis {
        let mut next = Vec::new();
        for (values, seeds) in &combinations {
            for value in &axis.values {
                let number = value
                    .as_float()
                    .or(value.as_integer().map(|number| number as f64));
                let more = axis
                    .more
                    .zip(number)
                    .filter(|(more, number)| (more.from..=more.to).contains(number));
                let seeds = more.map_or(*seeds, |(more, _)| more.seeds.max(*seeds));
                let mut values = values.clone();
                values.push((name.clone(), value.clone()));
                next.push((values, seeds));
            }
            if next.len() > MOST_POINTS {
                let problem = format!("makes more than {MOST_POINTS} points");
                return Err(place.key("axis").key(name).wrong(problem));
            }
        }
        combinations = next;
    }
    let variants: Vec<&str> = match file.variant.is_empty() {
        true => vec![ONLY],
        false => file.variant.keys().map(String::as_str).collect(),
    };
    if variants.len() * combinations.len() > MOST_POINTS {
        let problem = format!("makes more than {MOST_POINTS} points");
        return Err(place.key("variant").wrong(problem));
    }
    let point = |variant: &str, (values, seeds): &(Vec<_>, u32)| Point {
        variant: variant.to_owned(),
        values: values.clone(),
        seeds: *seeds,
    };
    Ok(variants
        .iter()
        .flat_map(|variant| combinations.iter().map(|one| point(variant, one)))
        .collect())
}

/// The file with a point's settings in it.
pub(super) fn at(
    table: &toml::Table,
    file: &File,
    point: &Point,
    place: &Place<'_>,
    reader: &Reader<File>,
) -> Result<File, Reported> {
    let variant = place.key("variant").key(&point.variant);
    let settings = file.variant.get(&point.variant).into_iter();
    let mut settings: Vec<(&str, &toml::Value, Place<'_>)> = settings
        .flat_map(|of| &of.set)
        .map(|(key, value)| (key.as_str(), value, variant.key("set").key(key)))
        .collect();
    for (name, value) in &point.values {
        let axis = place.key("axis").key(name);
        settings.push((&file.axis[name].set, value, axis.key("set")));
    }
    let mut table = table.clone();
    for (key, value, place) in &settings {
        put(&mut table, key, value).map_err(|problem| place.wrong_key(problem))?;
    }
    let varied = Document::new("", table.to_string());
    reader.read(&varied, &FORMATS).map_err(|problems| {
        let report = |problem: &Problem| {
            // Keys that are not set here were read before, and are right.
            let set = settings
                .iter()
                .rfind(|(key, ..)| problem.key.starts_with(key));
            let place = set.map_or(&variant, |(_, _, place)| place);
            place.wrong(problem.without_place())
        };
        let reported: Vec<Reported> = problems.list.iter().map(report).collect();
        reported[0]
    })
}

fn put(table: &mut toml::Table, key: &str, value: &toml::Value) -> Result<(), String> {
    let (tables, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut at = table;
    for name in tables.split('.').filter(|name| !name.is_empty()) {
        at = at
            .get_mut(name)
            .and_then(toml::Value::as_table_mut)
            .ok_or_else(|| {
                format!("there is no table \"{name}\" for \"{key}\": name a key of this file, such as \"flows.clients.count\"")
            })?;
    }
    if matches!(key.split('.').next(), Some("variant" | "axis" | "holds")) {
        return Err(format!("\"{key}\" cannot be varied"));
    }
    at.insert(last.to_owned(), value.clone());
    Ok(())
}
