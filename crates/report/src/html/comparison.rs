// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several runs in one page, for decisions: the question, the network, the winner, its
//! advantage, the confidence.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use maud::{html, Markup};
use percent_encoding::{percent_encode, AsciiSet, NON_ALPHANUMERIC};

use super::about::title;
use super::document::document;
use crate::interval;
use crate::precision::BASELINE;
use crate::quantity::{alone, headline, ratio, tail};
use crate::results::{larger_is_better, Metric, Results};
use crate::table::{link, metrics, verdict};

/// No competitor: the link without a buffer's limit.
const IDEAL: &str = "ideal";

/// Within this factor there is no winner.
const LEVEL: f64 = 1.005;

/// One run, and where its own page is.
#[derive(Debug)]
pub struct Run<'a> {
    /// Its results.
    pub results: &'a Results,
    /// Its `report.html`: relative to the directory of this page, or absolute.
    pub page: PathBuf,
}

/// Characters that stay unescaped in a path's address: RFC 3986, 2.3, and its own separator.
/// A colon is not among them: it would make a directory's name a scheme.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// The file's address, whatever its name is.
fn address(file: &Path) -> String {
    let path = percent_encode(file.as_os_str().as_bytes(), PLAIN);
    match file.is_absolute() {
        true => format!("file://{path}"),
        false => path.to_string(),
    }
}

/// The page.
#[must_use]
pub fn comparison(runs: &[Run]) -> String {
    let body = html! {
        header {
            p.kind { "Paceline" }
            h1 {
                @match runs {
                    [_] => "One experiment",
                    runs => { (runs.len()) " experiments" }
                }
                " of TCP"
            }
        }
        (overview(runs))
        @for (number, run) in (1..).zip(runs) { (section(number, run)) }
        footer {
            "The interval says between which values the ratio of the true medians lies, nine \
             times in ten or more often, if the runs are independent of each other; where less \
             than six were made there is none. Every run is in the results.json beside each \
             experiment\u{2019}s own page."
        }
    };
    document("Experiments of TCP", &body)
}

fn overview(runs: &[Run]) -> Markup {
    let row = |number: usize, results: &Results| {
        let class = match results.valid && results.all_hold() {
            true => "good",
            false => "bad",
        };
        let claims = match verdict(results) {
            _ if !results.valid => "the run is invalid".to_owned(),
            verdict if verdict.is_empty() => "\u{2013}".to_owned(),
            verdict => verdict,
        };
        html! {
            tr {
                th { a href={ "#run-" (number) } { (title(results)) } }
                td { (network(results)) }
                td { (winners(results)) }
                td class=(class) { (claims) }
            }
        }
    };
    html! {
        section {
            h2 { "Who won" }
            div.wide { table {
                thead { tr { th {} th { "network" } th { "first in" } th { "claims" } } }
                tbody { @for (number, run) in (1..).zip(runs) { (row(number, run.results)) } }
            } }
        }
    }
}

fn network(results: &Results) -> String {
    let link = &results.link;
    format!(
        "{}, {} one way, {} of buffer",
        alone("rate_bps", link.rate_bps.asked),
        alone("delay_s", link.one_way_delay_s.asked),
        alone("buffer_bytes", link.buffer_bytes as f64),
    )
}

/// How often each variant was first, the most successful one first.
fn winners(results: &Results) -> String {
    let contests = contests(results);
    let mut wins: Vec<(&str, usize)> = Vec::new();
    for contest in &contests {
        let [(first, winner), (_, next), ..] = contest.ranking[..] else {
            continue;
        };
        let winner = match times_as_good(contest.metric, winner, next) {
            times if times < LEVEL => "level",
            _ => first,
        };
        match wins.iter_mut().find(|(name, _)| *name == winner) {
            Some((_, count)) => *count += 1,
            None => wins.push((winner, 1)),
        }
    }
    wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let phrases = wins
        .iter()
        .map(|(name, count)| format!("{name} {count} of {}", contests.len()));
    match wins.is_empty() {
        true => "nothing to compare".to_owned(),
        false => phrases.collect::<Vec<_>>().join(", "),
    }
}

fn section(number: usize, run: &Run) -> Markup {
    let results = run.results;
    let asked = results.description.as_deref().unwrap_or_default();
    let asked = asked.split("\n\n").next().unwrap_or_default().trim();
    let contests = contests(results);
    html! {
        section id={ "run-" (number) } {
            h2 { (number) ". " (title(results)) }
            @if !asked.is_empty() { p { (asked) } }
            p.faint {
                "Link " (link(results)) ". Backend " (results.backend) ", kernel "
                (results.kernel) ". " a href=(address(&run.page)) { "All of it" }
            }
            @if !results.valid {
                div.alert.invalid role="alert" {
                    p { strong { "Do not use these numbers: the run is invalid." } }
                    @for warning in &results.warnings { p { (warning) } }
                }
            }
            @if contests.is_empty() {
                p { "Nothing to compare: a single variant, or none that differ." }
            } @else {
                (table(results, &contests))
            }
        }
    }
}

/// The variants by one metric, the best one first.
struct Contest<'a> {
    metric: &'a str,
    ranking: Vec<(&'a str, &'a Metric)>,
}

/// Of the metrics with a bound: those that rate the outcome.
fn contests(results: &Results) -> Vec<Contest<'_>> {
    let bounded = metrics(results)
        .into_iter()
        .filter(|metric| results.bounds.contains_key(*metric));
    bounded
        .filter_map(|metric| {
            let mut ranking: Vec<(&str, &Metric)> = results
                .variants
                .iter()
                .filter(|(name, _)| *name != IDEAL)
                .filter_map(|(name, found)| Some((name.as_str(), found.get(metric)?)))
                .collect();
            ranking.sort_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
            if larger_is_better(metric) {
                ranking.reverse();
            }
            (ranking.len() > 1).then_some(Contest { metric, ranking })
        })
        .collect()
}

fn table(results: &Results, contests: &[Contest]) -> Markup {
    let baseline = results.variants.keys().find(|name| *name == BASELINE);
    html! {
        div.wide { table {
            thead { tr {
                th {}
                th { "first" }
                th.number { "median" }
                th.number { "of the bound" }
                th { "second" }
                th.number { "better by" }
                @if baseline.is_some() { th.number { "better than " (BASELINE) " by" } }
            } }
            tbody { @for contest in contests { (row(results, contest, baseline)) } }
        } }
    }
}

fn row(results: &Results, contest: &Contest, baseline: Option<&String>) -> Markup {
    let metric = contest.metric;
    let [(first, winner), (second, next), ..] = contest.ranking[..] else {
        return Markup::default();
    };
    let of = |name: &str| contest.ranking.iter().find(|(other, _)| *other == name);
    html! {
        tr {
            th {
                (headline(metric))
                @if !tail(metric).is_empty() { ", " (tail(metric)) }
            }
            td { (first) }
            td.number { (alone(metric, winner.median)) }
            td.number { (ratio(winner.median / results.bounds[metric])) "\u{d7}" }
            td { (second) }
            (advantage(metric, winner, next))
            @if let Some(baseline) = baseline {
                @match of(baseline) {
                    Some((_, found)) if first != baseline => (advantage(metric, winner, found)),
                    _ => td.number { "\u{2013}" },
                }
            }
        }
    }
}

/// The winner and another one, the greater median first.
fn by_size<'a>(metric: &str, winner: &'a Metric, other: &'a Metric) -> (&'a Metric, &'a Metric) {
    match larger_is_better(metric) {
        true => (winner, other),
        false => (other, winner),
    }
}

fn times_as_good(metric: &str, winner: &Metric, other: &Metric) -> f64 {
    let (above, below) = by_size(metric, winner, other);
    above.median / below.median
}

/// The winner's advantage as a factor, and its interval.
fn advantage(metric: &str, winner: &Metric, other: &Metric) -> Markup {
    let times = times_as_good(metric, winner, other);
    let (above, below) = by_size(metric, winner, other);
    if !times.is_finite() {
        return html! { td.number { "\u{2013}" } };
    }
    let sure = match interval::of_ratio(&above.runs, &below.runs) {
        None => "too few runs to be sure".to_owned(),
        Some([least, greatest]) if least <= 1.0 => {
            format!("{}\u{2013}{}: not sure", ratio(least), ratio(greatest))
        }
        Some([least, greatest]) => format!("{}\u{2013}{}", ratio(least), ratio(greatest)),
    };
    html! {
        td.number { strong { (ratio(times)) "\u{d7}" } small { (sure) } }
    }
}
