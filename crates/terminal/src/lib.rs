// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results on a terminal, or wherever stdout leads: text, JSON and tables.

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal, Write};

use anyhow::Context;

/// Text from outside (names of processes, cgroups, groups and hosts are arbitrary), as it may
/// go to a terminal: invisible characters are escaped. A line stays one.
pub fn foreign(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // What `escape_debug` means for literals of Rust.
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

/// The same of several lines.
fn lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(foreign).collect();
    lines.join("\n")
}

/// Writes text to stdout, in which nothing but its lines controls a terminal. A reader that
/// has gone (`| head`) is no failure.
pub fn print(text: &str) -> anyhow::Result<()> {
    write(&lines(text))
}

/// Writes a value as JSON, whose strings stay the same: characters that could control a
/// terminal are escapes of JSON.
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print_json_text(&serde_json::to_string_pretty(value)?)
}

/// The same of a text that is JSON already.
pub fn print_json_text(text: &str) -> anyhow::Result<()> {
    write(&json(text))
}

fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    for character in text.trim_end().chars() {
        // Below 0x20 they are escaped already, if they are in a string.
        match character as u32 {
            code @ 0x7f..=0x9f => out.push_str(&format!("\\u{code:04x}")),
            _ => out.push(character),
        }
    }
    out.push('\n');
    out
}

/// Clears the terminal, if stdout is one.
pub fn clear() -> anyhow::Result<()> {
    match io::stdout().is_terminal() {
        true => write("\x1b[H\x1b[2J"),
        false => Ok(()),
    }
}

/// Prints an error on stderr.
pub fn print_error(text: &str) {
    eprintln!("paceline: error: {}", lines(text));
}

fn write(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

/// Rows as a table with aligned columns, each line indented, of untrusted cells. The last
/// column is not padded.
pub fn table(indent: &str, rows: &[Vec<String>]) -> String {
    let shown = |row: &Vec<String>| row.iter().map(|cell| foreign(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(shown).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::from(indent);
        for (column, cell) in row.iter().enumerate() {
            let padding = match column + 1 == row.len() {
                true => 0,
                false => widths[column] - cell.chars().count() + 2,
            };
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A duration for people, of a job or a view: `41 s`, `3 min`, `2 h 5 min`.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::{foreign, json, lines, table};

    #[test]
    fn nothing_foreign_controls_a_terminal() {
        assert_eq!(
            foreign("\x1b[2J\n\u{9b}31m\u{202e}x"),
            r"\u{1b}[2J\n\u{9b}31m\u{202e}x"
        );
        assert_eq!(
            foreign(r#"dev-sda\x2d1 "it's" Grüße 漢字"#),
            r#"dev-sda\x2d1 "it's" Grüße 漢字"#
        );
        assert_eq!(lines("a\x07\nb\n"), "a\\u{7}\nb\n");
        let rows = [vec!["a\nb".to_owned(), "c".to_owned()]];
        assert_eq!(table("", &rows), "a\\nb  c\n");
    }

    #[test]
    fn json_keeps_the_text_without_control_characters() {
        let name = "\x1b[2J\u{9b}31m\x7f";
        let text = json(&serde_json::to_string(name).unwrap());
        assert!(!text.trim_end().chars().any(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), name);
    }

    #[test]
    fn columns_line_up() {
        let rows =
            [["a", "bb", "c"], ["aaa", "b", "ccc"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table("  ", &rows), "  a    bb  c\n  aaa  b   ccc\n");
    }
}
