// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several runs in one page, for who decides rather than measures: what was asked, what
//! the network was, who won, by how much, how sure.

use super::document::document;
use super::svg::escape;
use crate::interval;
use crate::precision::BASELINE;
use crate::quantity::{alone, headline, ratio, tail};
use crate::results::{larger_is_better, Metric, Results};
use crate::table::{link, metrics, verdict};

/// No competitor: what the link would give without a buffer's limit.
const IDEAL: &str = "ideal";

/// Closer than this, nobody has won: a factor.
const LEVEL: f64 = 1.005;

/// One run, and where its own page is.
#[derive(Debug)]
pub struct Run<'a> {
    /// What it found.
    pub results: &'a Results,
    /// The address of `report.html`, as seen from the page.
    pub page: String,
}

/// The page.
#[must_use]
pub fn comparison(runs: &[Run]) -> String {
    let mut body = format!(
        "<header>\n<p class=\"kind\">Paceline</p>\n<h1>{} of TCP</h1>\n</header>\n",
        match runs {
            [_] => "One experiment".to_owned(),
            runs => format!("{} experiments", runs.len()),
        }
    );
    body.push_str(&overview(runs));
    for (number, run) in (1..).zip(runs) {
        body.push_str(&section(number, run));
    }
    body.push_str(
        "<footer>The interval says between which values the ratio of the true medians lies, nine times in ten or more \
         often, if the runs are independent of each other; where less than six were made there is none. Every \
         run is in the results.json beside each experiment\u{2019}s own page.</footer>\n",
    );
    document("Experiments of TCP", &body)
}

fn overview(runs: &[Run]) -> String {
    let mut text = String::from(
        "<section>\n<h2>Who won</h2>\n<div class=\"wide\"><table>\n<thead><tr><th></th><th>network</th><th>first in</th>\
         <th>claims</th></tr></thead>\n<tbody>\n",
    );
    for (number, run) in (1..).zip(runs) {
        let results = run.results;
        let title = escape(results.title.as_deref().unwrap_or(&results.experiment));
        let claims = match verdict(results) {
            verdict if verdict.is_empty() => "\u{2013}".to_owned(),
            verdict => verdict,
        };
        let (class, claims) = match results.valid {
            true if results.all_hold() => ("good", claims),
            true => ("bad", claims),
            false => ("bad", "the run is invalid".to_owned()),
        };
        text.push_str(&format!(
            "<tr><th><a href=\"#run-{number}\">{title}</a></th><td>{}</td><td>{}</td><td class=\"{class}\">{claims}</td></tr>\n",
            escape(&network(results)),
            escape(&winners(results)),
        ));
    }
    text.push_str("</tbody>\n</table></div>\n</section>\n");
    text
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
    let told = wins
        .iter()
        .map(|(name, count)| format!("{name} {count} of {}", contests.len()));
    match wins.is_empty() {
        true => "nothing to compare".to_owned(),
        false => told.collect::<Vec<_>>().join(", "),
    }
}

fn section(number: usize, run: &Run) -> String {
    let results = run.results;
    let title = escape(results.title.as_deref().unwrap_or(&results.experiment));
    let asked = results.description.as_deref().unwrap_or_default();
    let asked = asked.split("\n\n").next().unwrap_or_default().trim();
    let mut text = format!("<section id=\"run-{number}\">\n<h2>{number}. {title}</h2>\n");
    if !asked.is_empty() {
        text.push_str(&format!("<p>{}</p>\n", escape(asked)));
    }
    text.push_str(&format!(
        "<p class=\"faint\">Link {}. Backend {}, kernel {}. <a href=\"{}\">All of it</a></p>\n",
        escape(&link(results)),
        escape(&results.backend),
        escape(&results.kernel),
        escape(&run.page),
    ));
    if !results.valid {
        text.push_str("<div class=\"alert invalid\" role=\"alert\">\n<p><strong>Do not use these numbers: the run is invalid.</strong></p>\n");
        text.extend(
            results
                .warnings
                .iter()
                .map(|warning| format!("<p>{}</p>\n", escape(warning))),
        );
        text.push_str("</div>\n");
    }
    let contests = contests(results);
    if contests.is_empty() {
        text.push_str("<p>Nothing to compare: a single variant, or none that differ.</p>\n");
    } else {
        text.push_str(&table(results, &contests));
    }
    text.push_str("</section>\n");
    text
}

/// The variants by one metric, the best one first.
struct Contest<'a> {
    metric: &'a str,
    ranking: Vec<(&'a str, &'a Metric)>,
}

/// Of the metrics with a bound: those that say how well it went, not how.
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

fn table(results: &Results, contests: &[Contest]) -> String {
    let baseline = results.variants.keys().find(|name| *name == BASELINE);
    let mut text = String::from(
        "<div class=\"wide\"><table>\n<thead><tr><th></th><th>first</th><th class=\"number\">median</th>\
         <th class=\"number\">of the bound</th><th>second</th><th class=\"number\">better by</th>",
    );
    if baseline.is_some() {
        text.push_str(&format!(
            "<th class=\"number\">better than {BASELINE} by</th>"
        ));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for contest in contests {
        let [(first, winner), (second, next), ..] = contest.ranking[..] else {
            continue;
        };
        let name = match tail(contest.metric) {
            "" => headline(contest.metric),
            tail => format!("{}, {tail}", headline(contest.metric)),
        };
        text.push_str(&format!(
            "<tr><th>{}</th><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}\u{d7}</td><td>{}</td>{}",
            escape(&name),
            escape(first),
            alone(contest.metric, winner.median),
            ratio(winner.median / results.bounds[contest.metric]),
            escape(second),
            advantage(contest.metric, winner, next),
        ));
        if let Some(baseline) = baseline {
            let found = contest.ranking.iter().find(|(name, _)| name == baseline);
            text.push_str(&match found {
                Some((_, found)) if first != baseline => advantage(contest.metric, winner, found),
                _ => "<td class=\"number\">\u{2013}</td>".to_owned(),
            });
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table></div>\n");
    text
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

/// How many times as good the winner is, and between which values that lies.
fn advantage(metric: &str, winner: &Metric, other: &Metric) -> String {
    let times = times_as_good(metric, winner, other);
    let (above, below) = by_size(metric, winner, other);
    if !times.is_finite() {
        return "<td class=\"number\">\u{2013}</td>".to_owned();
    }
    let sure = match interval::of_ratio(&above.runs, &below.runs) {
        None => "too few runs to be sure".to_owned(),
        Some([least, greatest]) if least <= 1.0 => {
            format!("{}\u{2013}{}: not sure", ratio(least), ratio(greatest))
        }
        Some([least, greatest]) => format!("{}\u{2013}{}", ratio(least), ratio(greatest)),
    };
    format!(
        "<td class=\"number\"><strong>{}\u{d7}</strong><small>{sure}</small></td>",
        ratio(times)
    )
}
