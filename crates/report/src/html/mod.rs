// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `report.html`: one file that opens offline, on any screen and on paper.
//!
//! The page is well-formed XML, loads nothing, and runs no script.

mod against;
mod chart;
pub mod comparison;
mod document;
mod figure;
mod paper;
pub mod svg;
mod traffic;

use indexmap::IndexMap;

use crate::quantity::{alone, family, headline, name, precise, ratio, tail, value, Scale};
use crate::results::{Checked, Results};
use crate::series::Report;
use crate::table::{best, failures, metrics, to_bound, verdict};
use svg::{colors, escape};

pub use document::document;

/// The small-multiples figure alone, as an SVG file: bandwidth over one chunk of
/// `part` (such as `10MB`), one panel per variant on the same axes. `None` if the
/// report has no series of that part.
#[must_use]
pub fn figure_svg(report: &Report, part: &str) -> Option<String> {
    figure::figure(report, part)
}

/// The traffic of `part` in the manner of the paper that the results name, as an SVG
/// file. `None` if they name none, or there is no traffic of that part.
#[must_use]
pub fn traffic_svg(report: &Report, part: &str) -> Option<String> {
    let mut traffic = report.results.paper.iter();
    let traffic =
        traffic.find_map(|paper| paper.traffic.as_ref().filter(|_| paper.is_about(part)))?;
    traffic::figure(report, traffic, part)
}

/// The whole page.
#[must_use]
pub fn page(report: &Report) -> String {
    let results = &report.results;
    let colors = colors(
        results,
        report.series.iter().map(|series| series.variant.clone()),
    );
    let title = escape(results.title.as_deref().unwrap_or(&results.experiment));
    let mut body = String::new();
    body.push_str(&heading(results, &title));
    body.push_str(&question(results));
    body.push_str(&paper::section(report, &colors));
    body.push_str(&figures(report));
    body.push_str(&charts(results, &colors));
    body.push_str(&tables(results, &colors));
    body.push_str(&claims(results));
    body.push_str(&how(results));
    document(&title, &body)
}

/// A page about results whose figures are another crate's: `figures` is markup.
#[must_use]
pub fn page_around(results: &Results, figures: &str) -> String {
    let title = escape(results.title.as_deref().unwrap_or(&results.experiment));
    let body = [
        heading(results, &title),
        question(results),
        figures.to_owned(),
        claims(results),
        how(results),
    ];
    document(&title, &body.concat())
}

fn heading(results: &Results, title: &str) -> String {
    let verdict = if !results.valid {
        "<p class=\"verdict bad\">\u{2717} this run is invalid</p>\n".to_owned()
    } else if results.holds.is_empty() {
        String::new()
    } else {
        let (class, mark) = if results.all_hold() {
            ("good", '\u{2713}')
        } else {
            ("bad", '\u{2717}')
        };
        format!(
            "<p class=\"verdict {class}\">{mark} {}</p>\n",
            verdict(results)
        )
    };
    let mut text = format!(
        "<header>\n<p class=\"kind\">Paceline \u{b7} {} \u{b7} {} backend</p>\n<h1>{title}</h1>\n{verdict}</header>\n",
        escape(&results.experiment),
        escape(&results.backend)
    );
    if !results.valid || !results.warnings.is_empty() {
        let class = if results.valid {
            "alert"
        } else {
            "alert invalid"
        };
        text.push_str(&format!("<div class=\"{class}\" role=\"alert\">\n"));
        if !results.valid {
            text.push_str(
                "<p><strong>Do not use these numbers: the run is invalid.</strong></p>\n",
            );
        }
        match results.warnings.as_slice() {
            [] => {}
            [one] => text.push_str(&format!(
                "<p><strong>Warning:</strong> {}</p>\n",
                escape(one)
            )),
            all => {
                text.push_str("<p><strong>Warnings:</strong></p>\n<ul>\n");
                text.extend(
                    all.iter()
                        .map(|warning| format!("<li>{}</li>\n", escape(warning))),
                );
                text.push_str("</ul>\n");
            }
        }
        text.push_str("</div>\n");
    }
    text
}

fn question(results: &Results) -> String {
    let mut text = String::from("<section>\n<h2>What was asked</h2>\n");
    if let Some(description) = &results.description {
        let paragraphs = description
            .split("\n\n")
            .map(str::trim)
            .filter(|p| !p.is_empty());
        text.extend(paragraphs.map(|paragraph| format!("<p>{}</p>\n", escape(paragraph))));
    }
    let link = &results.link;
    text.push_str(
        "<h3>The link</h3>\n<div class=\"wide\"><table>\n<thead><tr><th></th><th class=\"number\">asked</th>\
         <th class=\"number\">measured</th><th class=\"number\">difference</th></tr></thead>\n<tbody>\n",
    );
    let mut row = |name: &str, metric: &str, asked: f64, measured: Option<f64>| {
        let off = measured
            .map(|measured| (measured / asked - 1.0) * 100.0)
            .filter(|off| off.is_finite());
        text.push_str(&format!(
            "<tr><th>{name}</th><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
            alone(metric, asked),
            measured.map_or("\u{2013}".to_owned(), |measured| precise(metric, measured)),
            off.map_or("\u{2013}".to_owned(), |off| format!("{off:+.2} %")),
        ));
    };
    let mut checked =
        |name, metric, both: Checked| row(name, metric, both.asked, Some(both.measured));
    checked("rate", "rate_bps", link.rate_bps);
    checked("delay, one way", "delay_s", link.one_way_delay_s);
    row(
        "buffer",
        "buffer_bytes",
        link.buffer_bytes as f64,
        link.buffer_measured_bytes.map(|b| b as f64),
    );
    if let Some(rate) = link.edge_rate_bps {
        row("rate of the hosts' own links", "rate_bps", rate, None);
    }
    if let Some(rtt) = link.rtt_s {
        row("round trip, nothing queued", "rtt_s", rtt, None);
    }
    text.push_str("</tbody>\n</table></div>\n</section>\n");
    text
}

fn figures(report: &Report) -> String {
    let parts = figure::parts(report);
    let drawn: Vec<String> = parts
        .iter()
        .filter_map(|part| {
            Some(format!(
                "<h3>{}</h3>\n<figure>\n{}</figure>\n",
                escape(part),
                figure::figure(report, part)?
            ))
        })
        .collect();
    if drawn.is_empty() {
        return String::new();
    }
    if !report
        .series
        .iter()
        .any(|series| series.x_label.contains("chunk"))
    {
        let bandwidth = report
            .series
            .iter()
            .all(|series| series.y_label.starts_with("bandwidth"));
        let (heading, of) = match bandwidth {
            true => (
                "Bandwidth over time",
                "What passed the link, sample by sample. ",
            ),
            false => ("Over time", ""),
        };
        return format!(
            "<section>\n<h2>{heading}</h2>\n<p>{of}Every panel of a figure has the same axes.</p>\n{}</section>\n",
            drawn.concat()
        );
    }
    format!(
        "<section>\n<h2>Bandwidth over one chunk</h2>\n<p>What passed the link, sample by sample, from the chunk\u{2019}s \
         first write on. Every panel has the same axes, and its area is the chunk: the sooner it ends, the better. The \
         completion also counts the reply\u{2019}s way back; the bound is that of the completion.</p>\n{}</section>\n",
        drawn.concat()
    )
}

/// The metrics, grouped by family.
fn families(results: &Results) -> Vec<Vec<&str>> {
    let all = metrics(results);
    all.chunk_by(|a, b| family(a) == family(b))
        .map(<[&str]>::to_vec)
        .collect()
}

fn charts(results: &Results, colors: &IndexMap<String, &'static str>) -> String {
    let families = families(results);
    if families.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<section>\n<h2>Each variant against the bound</h2>\n<p>The dot is the median, the line goes from the least run to \
         the greatest; \u{d7} is the median over the bound.</p>\n",
    );
    for family in families {
        text.push_str(&format!(
            "<h3>{}</h3>\n<figure>\n{}</figure>\n",
            escape(&headline(family[0])),
            chart::chart(results, &family, colors)
        ));
    }
    text.push_str("</section>\n");
    text
}

fn tables(results: &Results, colors: &IndexMap<String, &'static str>) -> String {
    let families = families(results);
    if families.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<section>\n<h2>The numbers</h2>\n<p>Median, then least and greatest run. Underlined: the best of the variants. \
         Red: a claim about it fails.</p>\n",
    );
    for family in families {
        text.push_str(&table(results, &family, colors));
    }
    text.push_str("</section>\n");
    text
}

/// One family: variants down and tails across, or the reverse if there are more
/// tails than variants.
fn table(results: &Results, metrics: &[&str], colors: &IndexMap<String, &'static str>) -> String {
    let failures = failures(results);
    let has_bound = metrics
        .iter()
        .any(|metric| results.bounds.contains_key(*metric));
    let variants: Vec<Option<&str>> = has_bound
        .then_some(None)
        .into_iter()
        .chain(
            results
                .variants
                .keys()
                .map(|variant| Some(variant.as_str())),
        )
        .filter(|row| {
            row.is_none_or(|v| metrics.iter().any(|m| results.variants[v].contains_key(*m)))
        })
        .collect();
    let scales: Vec<Scale> = metrics
        .iter()
        .map(|metric| {
            let medians = results
                .variants
                .values()
                .filter_map(|of| Some(of.get(*metric)?.median));
            Scale::fit(metric, medians.chain(results.bounds.get(*metric).copied()))
        })
        .collect();
    let variant_head = |variant: Option<&str>| match variant {
        None => "bound".to_owned(),
        Some(variant) => format!(
            "<span class=\"swatch\" style=\"background:{}\"></span>{}",
            colors[variant],
            escape(variant)
        ),
    };
    let metric_head = |index: usize| {
        let unit = if scales[index].unit.is_empty() {
            String::new()
        } else {
            format!(", {}", scales[index].unit)
        };
        let tail = if tail(metrics[index]).is_empty() {
            name(metrics[index])
        } else {
            tail(metrics[index]).to_owned()
        };
        escape(&format!("{tail}{unit}"))
    };
    let cell = |variant: Option<&str>, index: usize| {
        let (metric, scale) = (metrics[index], scales[index]);
        let Some(variant) = variant else {
            let bound = results
                .bounds
                .get(metric)
                .map_or(String::new(), |bound| scale.number(*bound));
            return format!("<td class=\"number\">{bound}</td>");
        };
        let Some(found) = results.variants[variant].get(metric) else {
            return "<td class=\"number\"></td>".to_owned();
        };
        let mut class = String::from("number");
        if variant != "ideal" && best(results, metric) == Some(found.median) {
            class.push_str(" best");
        }
        if failures.iter().any(|(v, m)| v == variant && m == metric) {
            class.push_str(" failed");
        }
        let over = to_bound(results, metric, found.median).map_or(String::new(), |over| {
            format!(" \u{b7} {}\u{d7}", ratio(over))
        });
        format!(
            "<td class=\"{class}\"><strong>{}</strong>{over}<small>{}\u{2013}{}</small></td>",
            scale.number(found.median),
            scale.number(found.min),
            scale.number(found.max)
        )
    };
    let mut text = format!(
        "<h3>{}</h3>\n<div class=\"wide\"><table>\n<thead><tr><th></th>",
        escape(&headline(metrics[0]))
    );
    let heads = |text: &mut String, across: &mut dyn Iterator<Item = String>| {
        text.extend(across.map(|head| format!("<th class=\"number\">{head}</th>")));
        text.push_str("</tr></thead>\n<tbody>\n");
    };
    if metrics.len() <= variants.len() {
        heads(&mut text, &mut (0..metrics.len()).map(metric_head));
        for &variant in &variants {
            text.push_str(&format!("<tr><th>{}</th>", variant_head(variant)));
            text.extend((0..metrics.len()).map(|index| cell(variant, index)));
            text.push_str("</tr>\n");
        }
    } else {
        heads(
            &mut text,
            &mut variants.iter().map(|variant| variant_head(*variant)),
        );
        for index in 0..metrics.len() {
            text.push_str(&format!("<tr><th>{}</th>", metric_head(index)));
            text.extend(variants.iter().map(|variant| cell(*variant, index)));
            text.push_str("</tr>\n");
        }
    }
    text.push_str("</tbody>\n</table></div>\n");
    text
}

fn claims(results: &Results) -> String {
    if results.holds.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<section>\n<h2>What had to hold</h2>\n<p>The value is the left side over the quantity that the right side names; \
         where the right side is a plain number, the left side itself.</p>\n<div class=\"wide\"><table>\n<thead><tr><th></th>\
         <th>claim</th><th class=\"number\">value</th></tr></thead>\n<tbody>\n",
    );
    let (failing, holding): (Vec<_>, Vec<_>) = results.holds.iter().partition(|hold| !hold.pass);
    for hold in failing.into_iter().chain(holding) {
        let (class, verdict) = if hold.pass {
            ("good", "\u{2713} holds")
        } else {
            ("bad", "\u{2717} fails")
        };
        text.push_str(&format!(
            "<tr><th class=\"{class}\">{verdict}</th><td><code>{}</code></td><td class=\"number\">{}</td></tr>\n",
            escape(&hold.claim),
            value(hold.value)
        ));
    }
    text.push_str("</tbody>\n</table></div>\n</section>\n");
    text
}

fn how(results: &Results) -> String {
    let mut text =
        String::from("<section>\n<h2>How it was run</h2>\n<div class=\"wide\"><table>\n<tbody>\n");
    let mut row = |name: &str, value: String| {
        text.push_str(&format!(
            "<tr><th>{name}</th><td>{}</td></tr>\n",
            escape(&value)
        ));
    };
    row("experiment", results.experiment.clone());
    row("backend", results.backend.clone());
    row("kernel", results.kernel.clone());
    row("seed", results.seed.to_string());
    row("CPU idle", format!("{:.1} %", results.cpu_idle * 100.0));
    row("valid", if results.valid { "yes" } else { "no" }.to_owned());
    text.push_str("</tbody>\n</table></div>\n");
    if let Some(command) = &results.command {
        text.push_str(&format!(
            "<p>To run it again:</p>\n<pre>{}</pre>\n",
            escape(command)
        ));
    }
    if !results.notes.is_empty() {
        text.push_str("<h3>Notes</h3>\n<ul>\n");
        text.extend(
            results
                .notes
                .iter()
                .map(|note| format!("<li>{}</li>\n", escape(note))),
        );
        text.push_str("</ul>\n");
    }
    text.push_str("</section>\n<footer>Every run behind each median is in results.json, every sample in the CSV files beside this page.</footer>\n");
    text
}
