// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generated parts of a Markdown document, between comments.

const END: &str = "<!-- end of table -->";

/// The name in a line that begins a table.
fn begins(line: &str) -> Option<&str> {
    line.strip_prefix("<!-- table: ")?.strip_suffix(" -->")
}

/// `text` with each table replaced by what `make` returns for its name.
///
/// # Errors
/// Says which table has no end, or that `make` knows none of that name.
pub fn fill(text: &str, mut make: impl FnMut(&str) -> Option<String>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        filled.push_str(line);
        filled.push('\n');
        let Some(name) = begins(line) else { continue };
        let table = make(name).ok_or_else(|| format!("there is no table `{name}`"))?;
        filled.push_str(&format!("\n{}\n\n{END}\n", table.trim_end()));
        loop {
            match lines.next() {
                Some(END) => break,
                Some(line) if begins(line).is_none() => {}
                _ => return Err(format!("table `{name}` has no `{END}` after it")),
            }
        }
    }
    Ok(filled)
}
