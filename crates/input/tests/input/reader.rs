// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the reader says of files that are wrong, and that the schema says the same.

use indexmap::IndexMap;
use paceline_input::units::{Rate, Size, Time};
use paceline_input::{Document, Percent, Problems, Reader};
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;

const MOST: Size = Size::from_bytes(1 << 20);

/// A file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Test")]
struct File {
    /// One line.
    #[schemars(extend("examples" = ["near"], "format" = "small"))]
    name: String,
    count: u32,
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 10))]
    hosts: u8,
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1.0))]
    weight: Option<f64>,
    rate: Rate,
    loss: Option<Loss>,
    pair: Option<[u32; 2]>,
    #[serde(default)]
    step: Vec<Step>,
    #[serde(default)]
    variant: IndexMap<String, Variant>,
    source: Option<Source>,
    #[schemars(with = "Option<serde_json::Value>")]
    anything: Option<toml::Value>,
}

fn two() -> u8 {
    2
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Loss {
    Share(#[allow(dead_code)] Percent),
    #[allow(dead_code)]
    Bursts {
        to_bad: Percent,
        to_good: Percent,
    },
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Step {
    at: Time,
    #[schemars(extend("x-range" = ["1514B", MOST]))]
    #[allow(dead_code)]
    buffer: Option<Size>,
}

/// Something that is compared.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Variant {
    #[allow(dead_code)]
    base: Option<Base>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Base {
    /// With a comment.
    Cubic,
    /// With another one.
    NewReno,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Source {
    Poisson(#[allow(dead_code)] Time),
    Bulk(Bulk),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Bulk {
    #[allow(dead_code)]
    size: Option<Size>,
}

const GOOD: &str = r#"
name = "near"
count = 3
rate = "1gbit"
loss = "0.1%"
pair = [8, 8]
anything = [1979-05-27, { x = 1 }]

[[step]]
at = "1s"

[[step]]
at = "2s"
buffer = "128KiB"

[variant.cubic]
base = "cubic"

[source.bulk]
"#;

fn small(text: &str) -> Result<(), String> {
    let is_small = text.chars().all(|c| c.is_ascii_lowercase());
    is_small
        .then_some(())
        .ok_or_else(|| format!("{text:?} is not small"))
}

fn read(text: &str) -> Result<File, Problems> {
    Reader::<File>::default().read(&Document::new("f.toml", text), &[("small", &small)])
}

#[test]
fn a_good_file_is_read() {
    let file = read(GOOD).unwrap();
    assert_eq!((file.name.as_str(), file.count, file.hosts), ("near", 3, 2));
    assert_eq!(file.step[1].at, Time::from_secs(2));
    assert!(matches!(file.loss, Some(Loss::Share(_))));
    assert!(matches!(
        file.source,
        Some(Source::Bulk(Bulk { size: None }))
    ));
    assert!(file.weight.is_none() && file.anything.is_some() && file.pair == Some([8, 8]));
    assert!(file.variant["cubic"].base.is_some() && file.rate.bits_per_second() == 1_000_000_000);
}

/// The only line for the good file with `from` replaced by `to`.
fn line(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    read(&GOOD.replacen(from, to, 1)).expect_err(to).to_string()
}

#[test]
fn errors_name_the_place_and_the_right_form() {
    let cases = [
        ("name = \"near\"", "", "1:1: name: missing: write name = \"near\" at the top of the file"),
        ("name = \"near\"", "nmae = \"near\"", "2:1: nmae: unknown key, did you mean \"name\"?; known here: name, count, hosts, weight, rate, loss, pair, step, variant, source, anything"),
        ("\"near\"", "\"NEAR\"", "2:8: name: \"NEAR\" is not small"),
        ("\"near\"", "7", "2:8: name: a whole number does not fit: write a string in quotes, as \"near\""),
        ("count = 3", "count = -1", "3:9: count: -1 is out of range: 0 to 4294967295"),
        ("count = 3", "count = 3.5", "3:9: count: a number does not fit: write a whole number, as 1"),
        ("count = 3", "count = 3\nhosts = 0x0b", "4:9: hosts: 0x0b is out of range: 1 to 10"),
        ("count = 3", "count = 3\nweight = 0", "4:10: weight: 0 is out of range: above 0, at most 1"),
        ("count = 3", "count = 3\nweight = 1.5", "4:10: weight: 1.5 is out of range: above 0, at most 1"),
        ("count = 3", "count = 3\nweight = nan", "4:10: weight: nan is not a finite number"),
        ("count = 3", "count = 3\ncount = 4", "4:1: count: is given already: leave one of the two out"),
        ("rate = \"1gbit\"\n", "", "1:1: rate: missing: write rate = \"500mbit\" at the top of the file"),
        ("\"1gbit\"", "1_000", "4:8: rate: 1000 has no unit: write a rate as \"500mbit\" or \"2.5gbit\""),
        ("\"1gbit\"", "\"1Gbps\"", "4:8: rate: \"Gbps\" is not a unit of a rate: write \"1gbit\""),
        ("\"1gbit\"", "[]", "4:8: rate: a list does not fit: write a rate as \"500mbit\" or \"2.5gbit\""),
        ("\"0.1%\"", "\"101%\"", "5:8: loss: \"101%\" is not a share: write 0% to 100%, as \"0.1%\""),
        ("\"0.1%\"", "0.1", "5:8: loss: \"0.1\" is not a share: write 0% to 100%, as \"0.1%\""),
        ("\"0.1%\"", "true", "5:8: loss: true or false does not fit: write a string in quotes, as \"0.1%\", or a table [loss] with to_bad, to_good"),
        ("\"0.1%\"", "{ to_bad = \"1%\" }", "5:1: loss.to_good: missing: write to_good = \"0.1%\""),
        ("[8, 8]", "[8, 8, 8]", "6:8: pair: has 3 items: write 2"),
        ("[8, 8]", "[8, \"8\"]", "6:12: pair: a string does not fit: write a whole number, as 1"),
        ("at = \"1s\"", "at = \"1 second\"", "10:6: step.at: \" second\" is not a unit of a time: write \"1s\""),
        ("at = \"2s\"", "", "12:1: step.at: missing: write at = \"10ms\""),
        ("\"128KiB\"", "\"1KB\"", "14:10: step.buffer: 1KB is out of range: 1514B to 1MiB"),
        ("buffer = \"128KiB\"", "base = \"cubic\"", "14:1: step.base: not a key of this table: write it under [variant.NAME]"),
        ("base = \"cubic\"", "buffer = \"128KiB\"", "17:1: variant.cubic.buffer: not a key of this table: write it under [[step]]"),
        ("\"cubic\"", "\"newreno\"", "17:8: variant.cubic.base: \"newreno\" is not known, did you mean \"new-reno\"?; write one of \"cubic\", \"new-reno\""),
        ("[source.bulk]", "[source]", "19:2: source: write one of poisson, bulk in it"),
        ("[source.bulk]", "[source]\nbulk = {}\npoisson = \"1s\"", "19:2: source: write one of poisson, bulk in it"),
        ("[source.bulk]", "[source]\nblk = {}", "20:1: source.blk: unknown key, did you mean \"bulk\"?; known here: poisson, bulk"),
        ("[source.bulk]", "[source.bulk]\nrate = \"1mbit\"", "20:1: source.bulk.rate: unknown key; known here: size"),
        ("[variant.cubic]", "[variant.\"a b\"]\nx = 1", "17:1: variant.\"a b\".x: unknown key; known here: base"),
        ("[[step]]", "[step]", "12:3: step: is given already: leave one of the two out"),
        ("count = 3", "count = ", "3:9: not TOML: string values must be quoted, expected literal string"),
    ];
    for (from, to, wanted) in cases {
        assert_eq!(line(from, to), format!("f.toml:{wanted}"), "{to}");
    }
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_text() {
    let text = "rate = 5\ncuont = 1\nhosts = 99\n[[step]]\nat = 1\n[[step]]\n[variant]\nx = 7\n";
    let problems = read(text).unwrap_err();
    let keys: Vec<(usize, &str)> = problems
        .list
        .iter()
        .map(|p| (p.line, p.key.as_str()))
        .collect();
    let expected = [
        (1, "name"),
        (1, "rate"),
        (2, "cuont"),
        (3, "hosts"),
        (5, "step.at"),
        (6, "step.at"),
        (8, "variant.x"),
    ];
    assert_eq!(keys, expected, "{problems}");
    let twice = read("a = 1\na = 2\nb = [\nc = 3\nc = 4\n").unwrap_err();
    assert!(twice.list.len() > 1, "{twice}");
}

#[test]
fn places_below_a_document_are_found() {
    let document = Document::new("f.toml", GOOD);
    let problems = document.check(|place| {
        place.key("step").item(1).key("buffer").wrong("a");
        place.key("step").item(1).key("buffer").wrong_key("b");
        place
            .key("step")
            .item(0)
            .key("buffer")
            .wrong("is not there");
        place.key("variant").key("cubic").wrong("a table");
        place.key("pair").item(1).wrong("an item");
        Err::<(), _>(place.key("nothing").key("at all").wrong("the file"))
    });
    let expected = "f.toml:1:1: nothing.\"at all\": the file
f.toml:6:12: pair: an item
f.toml:9:1: step.buffer: is not there
f.toml:14:1: step.buffer: b
f.toml:14:10: step.buffer: a
f.toml:16:10: variant.cubic: a table";
    assert_eq!(problems.unwrap_err().to_string(), expected);
    assert_eq!(document.check(|_| Ok(7)), Ok(7));
}

#[test]
fn a_document_inside_of_another_has_its_places_there() {
    let inner = Document::new("inner", "base = 7\n");
    let inner = Reader::<Variant>::default().read(&inner, &[]).unwrap_err();
    let outer = Document::new("f.toml", GOOD);
    let problems =
        outer.check(|place| Err::<(), _>(place.key("variant").key("cubic").adopt(&inner)));
    let message = problems.unwrap_err().to_string();
    assert!(
        message.starts_with("f.toml:17:1: variant.cubic.base: a whole number"),
        "{message}"
    );
}

#[test]
fn the_schema_has_no_null_and_no_reference() {
    let schema = paceline_input::schema::<File>();
    let text = schema.to_string();
    assert!(!text.contains("null") && !text.contains("$ref"), "{text}");
    assert_eq!(schema["properties"]["hosts"]["default"], 2);
    assert_eq!(schema["properties"]["name"]["description"], "One line.");
    assert_eq!(
        schema["required"],
        serde_json::json!(["name", "count", "rate"])
    );
}

/// A line of the good file, or something like it.
fn piece() -> impl Strategy<Value = String> {
    let lines: Vec<String> = GOOD.lines().map(str::to_owned).collect();
    prop_oneof![
        8 => prop::sample::select(lines),
        2 => "[a-z]{1,6} = (\"[0-9.]{0,4}[a-zA-Z%]{0,4}\"|[0-9.-]{1,5}|true|\\[\\]|\\{\\})",
        1 => "\\PC{0,12}",
    ]
}

proptest! {
    /// A value, or problems whose places are in the text.
    #[test]
    fn no_text_makes_the_reader_panic(pieces in prop::collection::vec(piece(), 0..20)) {
        let text = pieces.join("\n");
        if let Err(problems) = read(&text) {
            prop_assert!(!problems.list.is_empty());
            for problem in &problems.list {
                let line = text.split('\n').nth(problem.line - 1);
                let columns = line.map(|line| line.chars().count() + 1);
                prop_assert!(columns.is_some_and(|most| (1..=most).contains(&problem.column)), "{}", problem);
                // What fits the schema fits the type.
                prop_assert!(!problem.key.is_empty() || problem.what.starts_with("not TOML"), "{}", problem);
                prop_assert!(!problem.what.is_empty() && !problem.what.contains('\n'), "{}", problem);
            }
        }
    }
}
