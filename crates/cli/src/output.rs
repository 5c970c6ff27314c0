// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writing results to stdout.

use std::io::{self, Write};

use anyhow::Context;

/// Writes text to stdout. A reader that has gone (`| head`) is no failure.
pub fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

/// Rows as a table with aligned columns, each line indented. The last column
/// is not padded.
pub fn table(indent: &str, rows: &[Vec<String>]) -> String {
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
    for row in rows {
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

#[cfg(test)]
mod tests {
    #[test]
    fn columns_line_up() {
        let rows =
            [["a", "bb", "c"], ["aaa", "b", "ccc"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(super::table("  ", &rows), "  a    bb  c\n  aaa  b   ccc\n");
    }
}
