// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table on the terminal.
//!
//! A row per variant, a column per metric: the median and its ratio to the
//! bound. `*` marks the best of a column, `!` a number of which a claim fails.

use crate::claims::Claim;
use crate::paths;
use crate::quantity::{alone, family, name, precise, ratio, tail, value, Scale};
use crate::results::{larger_is_better, Results};

/// How to draw the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Colour by ANSI escapes. Marks are there with and without.
    pub color: bool,
    /// Columns of the terminal; further columns go into a further block.
    pub width: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            color: false,
            width: 100,
        }
    }
}

/// Draws heading, warnings, table, claims and notes. Every line ends in a line feed, and
/// none in a space.
#[must_use]
pub fn render(results: &Results, options: Options) -> String {
    let paint = Paint(options.color);
    let mut text = heading(results, paint);
    // Of drawn paths there are hundreds of columns: the page and the CSV have them.
    let shown = match results.paths.is_empty() {
        true => metrics(results),
        false => Vec::new(),
    };
    let columns: Vec<Column> = shown
        .into_iter()
        .map(|metric| Column::new(results, metric))
        .collect();
    if !results.paths.is_empty() {
        text.push('\n');
        text.push_str(&paths::table(results));
    }
    let names_width = names(results)
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let mut rest = columns.as_slice();
    while !rest.is_empty() {
        let fits = |count: &usize| {
            let widths = widths(&rest[..*count]);
            names_width + widths.iter().map(|width| GAP + width).sum::<usize>() <= options.width
        };
        let fitting = (1..=rest.len()).take_while(fits).last().unwrap_or(1);
        let (block, later) = rest.split_at(fitting);
        text.push('\n');
        text.push_str(&draw(results, block, names_width, paint));
        rest = later;
    }
    if !columns.is_empty() {
        text.push_str(&legend(results, &columns));
    }
    text.push_str(&claims(results, paint));
    if !results.notes.is_empty() {
        text.push('\n');
    }
    for note in &results.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    // Padding of the last column of each line.
    text.lines()
        .flat_map(|line| [line.trim_end(), "\n"])
        .collect()
}

/// The metrics of all variants, families together, each in the order in which
/// they first appear.
pub(crate) fn metrics(results: &Results) -> Vec<&str> {
    let mut metrics: Vec<&str> = Vec::new();
    for metric in results.variants.values().flat_map(|metrics| metrics.keys()) {
        if !metrics.contains(&metric.as_str()) {
            metrics.push(metric);
        }
    }
    let families: Vec<&str> = metrics.iter().map(|metric| family(metric)).collect();
    metrics.sort_by_key(|metric| families.iter().position(|f| *f == family(metric)));
    metrics
}

/// The best median of `metric`, if the variants differ in it. `ideal` is no competitor:
/// it is the link without a buffer's limit.
pub(crate) fn best(results: &Results, metric: &str) -> Option<f64> {
    let medians: Vec<f64> = results
        .variants
        .iter()
        .filter(|(variant, _)| *variant != "ideal")
        .filter_map(|(_, metrics)| Some(metrics.get(metric)?.median))
        .collect();
    let least = medians.iter().copied().reduce(f64::min)?;
    let greatest = medians.iter().copied().reduce(f64::max)?;
    (least < greatest).then_some(if larger_is_better(metric) {
        greatest
    } else {
        least
    })
}

/// Variant and metric of each claim that fails.
pub(crate) fn failures(results: &Results) -> Vec<(String, String)> {
    let failing = results.holds.iter().filter(|hold| !hold.pass);
    failing
        .filter_map(|hold| Claim::parse(&hold.claim).ok()?.subject())
        .collect()
}

/// The median over the bound, where there is a bound to divide by.
pub(crate) fn to_bound(results: &Results, metric: &str, value: f64) -> Option<f64> {
    let over = value / results.bounds.get(metric)?;
    over.is_finite().then_some(over)
}

/// One line about the link, requested and measured.
pub(crate) fn link(results: &Results) -> String {
    let link = &results.link;
    format!(
        "{} (measured {}), {} one way (measured {}), buffer {}",
        alone("rate_bps", link.rate_bps.asked),
        precise("rate_bps", link.rate_bps.measured),
        alone("delay_s", link.one_way_delay_s.asked),
        precise("delay_s", link.one_way_delay_s.measured),
        alone("buffer_bytes", link.buffer_bytes as f64),
    )
}

/// How many claims hold. Empty if there is none.
pub(crate) fn verdict(results: &Results) -> String {
    let failing = results.holds.iter().filter(|hold| !hold.pass).count();
    match (results.holds.len(), failing) {
        (0, _) => String::new(),
        (1, 0) => "the claim holds".to_owned(),
        (1, _) => "the claim fails".to_owned(),
        (all, 0) => format!("all {all} claims hold"),
        (all, 1) => format!("1 of {all} claims fails"),
        (all, failing) => format!("{failing} of {all} claims fail"),
    }
}

/// Spaces between columns.
const GAP: usize = 2;
const BOUND: &str = "bound";

#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.0 && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
    fn bold(self, text: &str) -> String {
        self.with("1", text)
    }
    fn good(self, text: &str) -> String {
        self.with("32", text)
    }
    fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }
}

fn heading(results: &Results, paint: Paint) -> String {
    let mut text = match &results.title {
        Some(title) => format!("{}: {title}\n", paint.bold(&results.experiment)),
        None => format!("{}\n", paint.bold(&results.experiment)),
    };
    text.push_str(&format!(
        "backend {}, kernel {}, seed {}\n",
        results.backend, results.kernel, results.seed
    ));
    let which = match results.paths.is_empty() {
        true => "link",
        false => "first path",
    };
    text.push_str(&format!("{which} {}\n", link(results)));
    if !results.valid {
        text.push_str(&paint.bad("INVALID: the numbers of this run do not count."));
        text.push('\n');
    }
    for warning in &results.warnings {
        text.push_str(&format!("{} {warning}\n", paint.bad("warning:")));
    }
    text
}

struct Column<'a> {
    metric: &'a str,
    scale: Scale,
    /// Per row of [`names`]: number and ratio.
    cells: Vec<Option<(String, String)>>,
    number_width: usize,
    ratio_width: usize,
}

impl<'a> Column<'a> {
    fn new(results: &Results, metric: &'a str) -> Self {
        let values: Vec<Option<f64>> = names(results)
            .map(|row| match row {
                BOUND => results.bounds.get(metric).copied(),
                variant => Some(results.variants.get(variant)?.get(metric)?.median),
            })
            .collect();
        let scale = Scale::fit(metric, values.iter().flatten().copied());
        let cells: Vec<Option<(String, String)>> = values
            .iter()
            .zip(names(results))
            .map(|(value, row)| {
                let over = if row == BOUND {
                    None
                } else {
                    to_bound(results, metric, (*value)?)
                };
                Some((
                    scale.number((*value)?),
                    over.map_or(String::new(), |over| ratio(over) + "x"),
                ))
            })
            .collect();
        let widest = |part: fn(&(String, String)) -> &String| {
            cells
                .iter()
                .flatten()
                .map(|cell| part(cell).chars().count())
                .max()
                .unwrap_or(0)
        };
        let (number_width, ratio_width) = (widest(|c| &c.0), widest(|c| &c.1));
        Column {
            metric,
            scale,
            number_width,
            ratio_width,
            cells,
        }
    }

    fn heads(&self) -> [String; 2] {
        let unit = match self.scale.unit {
            "" => String::new(),
            unit => format!(", {unit}"),
        };
        [name(self.metric) + &unit, tail(self.metric).to_owned()]
    }

    /// Number, ratio, and a place for the mark.
    fn cells_width(&self) -> usize {
        self.number_width + usize::from(self.ratio_width > 0) + self.ratio_width + 2
    }
}

/// Widths of columns that stand side by side. A family's name stands once above
/// its columns, the last of which makes room for it if it must.
fn widths(columns: &[Column]) -> Vec<usize> {
    let mut widths = Vec::new();
    for group in columns.chunk_by(|a, b| a.heads()[0] == b.heads()[0]) {
        let own = group
            .iter()
            .map(|column| column.cells_width().max(column.heads()[1].chars().count()));
        widths.extend(own);
        let start = widths.len() - group.len();
        let used = widths[start..].iter().sum::<usize>() + GAP * (group.len() - 1);
        let missing = group[0].heads()[0].chars().count().saturating_sub(used);
        *widths.last_mut().expect("a group has a column") += missing;
    }
    widths
}

/// The rows: the bound if there is one, and the variants.
fn names(results: &Results) -> impl Iterator<Item = &str> {
    let bound = (!results.bounds.is_empty()).then_some(BOUND);
    bound
        .into_iter()
        .chain(results.variants.keys().map(String::as_str))
}

fn draw(results: &Results, columns: &[Column], names_width: usize, paint: Paint) -> String {
    let failures = failures(results);
    let mut text = String::new();
    let widths = widths(columns);
    let head = |text: &mut String, shown: &str, width: usize| {
        text.push_str(&" ".repeat(GAP));
        text.push_str(&paint.bold(shown));
        text.push_str(&" ".repeat(width - shown.chars().count()));
    };
    text.push_str(&" ".repeat(names_width));
    let mut rest = widths.as_slice();
    for group in columns.chunk_by(|a, b| a.heads()[0] == b.heads()[0]) {
        let (of_group, later) = rest.split_at(group.len());
        head(
            &mut text,
            &group[0].heads()[0],
            of_group.iter().sum::<usize>() + GAP * (group.len() - 1),
        );
        rest = later;
    }
    text.push('\n');
    text.push_str(&" ".repeat(names_width));
    for (column, width) in columns.iter().zip(&widths) {
        head(&mut text, &column.heads()[1], *width);
    }
    text.push('\n');
    for (row, variant) in names(results).enumerate() {
        text.push_str(&format!("{variant:<names_width$}"));
        for (column, column_width) in columns.iter().zip(&widths) {
            let shown = match &column.cells[row] {
                None => String::new(),
                Some((number, over)) => {
                    let median = results
                        .variants
                        .get(variant)
                        .and_then(|v| Some(v.get(column.metric)?.median));
                    let is_best = median.is_some()
                        && variant != "ideal"
                        && median == best(results, column.metric);
                    let failed = failures
                        .iter()
                        .any(|(v, m)| v == variant && m == column.metric);
                    let mut cell = format!("{number:>width$}", width = column.number_width);
                    if column.ratio_width > 0 {
                        cell.push_str(&format!(" {over:>width$}", width = column.ratio_width));
                    }
                    cell.push_str(match (is_best, failed) {
                        (true, true) => "*!",
                        (true, false) => "* ",
                        (false, true) => "! ",
                        (false, false) => "  ",
                    });
                    match (is_best, failed) {
                        (_, true) => paint.bad(&cell),
                        (true, false) => paint.good(&cell),
                        (false, false) => cell,
                    }
                }
            };
            let width = if shown.is_empty() {
                0
            } else {
                column.cells_width()
            };
            text.push_str(&" ".repeat(GAP));
            text.push_str(&shown);
            text.push_str(&" ".repeat(column_width - width));
        }
        text.push('\n');
    }
    text
}

fn legend(results: &Results, columns: &[Column]) -> String {
    let mut parts = vec!["medians"];
    if columns.iter().any(|column| column.ratio_width > 0) {
        parts.push("1.00x is the bound");
    }
    if columns
        .iter()
        .any(|column| best(results, column.metric).is_some())
    {
        parts.push("* best of its column");
    }
    if !failures(results).is_empty() {
        parts.push("! fails a claim");
    }
    format!("\n{}\n", parts.join("; "))
}

fn claims(results: &Results, paint: Paint) -> String {
    if results.holds.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n");
    for hold in &results.holds {
        let verdict = if hold.pass {
            paint.good("holds")
        } else {
            paint.bad("FAILS")
        };
        text.push_str(&format!(
            "{verdict}  {}  ({})\n",
            hold.claim,
            value(hold.value)
        ));
    }
    text.push_str(&verdict(results));
    text.push('\n');
    text
}
