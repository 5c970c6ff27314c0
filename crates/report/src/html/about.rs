// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results in words: verdict, question, claims, origin.

use maud::{html, Markup};

use crate::quantity::{alone, precise, value};
use crate::results::{Checked, Hold, Results};
use crate::table::verdict;

/// The title, or without one the experiment's name.
pub fn title(results: &Results) -> &str {
    results.title.as_deref().unwrap_or(&results.experiment)
}

/// Title, verdict, and what a reader must know first.
pub fn heading(results: &Results) -> Markup {
    html! {
        header {
            p.kind {
                "Paceline \u{b7} " (results.experiment) " \u{b7} " (results.backend) " backend"
            }
            h1 { (title(results)) }
            @if !results.valid {
                p.verdict.bad { "\u{2717} this run is invalid" }
            } @else if !results.holds.is_empty() {
                @if results.all_hold() {
                    p.verdict.good { "\u{2713} " (verdict(results)) }
                } @else {
                    p.verdict.bad { "\u{2717} " (verdict(results)) }
                }
            }
        }
        @if !results.valid || !results.warnings.is_empty() {
            div.alert.invalid[!results.valid] role="alert" {
                @if !results.valid {
                    p { strong { "Do not use these numbers: the run is invalid." } }
                }
                @match results.warnings.as_slice() {
                    [] => {}
                    [one] => p { strong { "Warning:" } " " (one) }
                    all => {
                        p { strong { "Warnings:" } }
                        (list(all))
                    }
                }
            }
        }
    }
}

fn list(texts: &[String]) -> Markup {
    html! {
        ul { @for text in texts { li { (text) } } }
    }
}

/// The description, and the link as requested and measured.
pub fn question(results: &Results) -> Markup {
    let description = results.description.as_deref().unwrap_or_default();
    let paragraphs = description.split("\n\n").map(str::trim);
    html! {
        section {
            h2 { "What was asked" }
            @for paragraph in paragraphs.filter(|p| !p.is_empty()) { p { (paragraph) } }
            h3 {
                @if results.paths.is_empty() { "The link" } @else { "The first path's link" }
            }
            (link(results))
        }
    }
}

fn link(results: &Results) -> Markup {
    let link = &results.link;
    let row = |name: &str, metric: &str, asked: f64, measured: Option<f64>| {
        let off = measured
            .map(|measured| (measured / asked - 1.0) * 100.0)
            .filter(|off| off.is_finite());
        let none = || "\u{2013}".to_owned();
        html! {
            tr {
                th { (name) }
                td.number { (alone(metric, asked)) }
                td.number { (measured.map_or_else(none, |measured| precise(metric, measured))) }
                td.number { (off.map_or_else(none, |off| format!("{off:+.2} %"))) }
            }
        }
    };
    let checked = |name, metric, both: Checked| row(name, metric, both.asked, Some(both.measured));
    let buffer = link.buffer_bytes as f64;
    let measured_buffer = link.buffer_measured_bytes.map(|bytes| bytes as f64);
    html! {
        div.wide { table {
            thead { tr {
                th {} th.number { "asked" } th.number { "measured" } th.number { "difference" }
            } }
            tbody {
                (checked("rate", "rate_bps", link.rate_bps))
                (checked("delay, one way", "delay_s", link.one_way_delay_s))
                (row("buffer", "buffer_bytes", buffer, measured_buffer))
                @if let Some(rate) = link.edge_rate_bps {
                    (row("rate of the hosts' own links", "rate_bps", rate, None))
                }
                @if let Some(rtt) = link.rtt_s {
                    (row("round trip, nothing queued", "rtt_s", rtt, None))
                }
            }
        } }
    }
}

/// Each claim, those that fail first; nothing if there is none.
pub fn claims(results: &Results) -> Markup {
    let row = |hold: &Hold| {
        let (class, verdict) = match hold.pass {
            true => ("good", "\u{2713} holds"),
            false => ("bad", "\u{2717} fails"),
        };
        html! {
            tr {
                th class=(class) { (verdict) }
                td { code { (hold.claim) } }
                td.number { (value(hold.value)) }
            }
        }
    };
    let (failing, holding): (Vec<_>, Vec<_>) = results.holds.iter().partition(|hold| !hold.pass);
    html! {
        @if !results.holds.is_empty() {
            section {
                h2 { "What had to hold" }
                p {
                    "The value is the left side over the quantity that the right side names; \
                     where the right side is a plain number, the left side itself."
                }
                div.wide { table {
                    thead { tr { th {} th { "claim" } th.number { "value" } } }
                    tbody { @for hold in failing.into_iter().chain(holding) { (row(hold)) } }
                } }
            }
        }
    }
}

/// Backend, kernel, command, notes, and where the rest is.
pub fn how(results: &Results) -> Markup {
    let row = |name: &str, value: &str| {
        html! { tr { th { (name) } td { (value) } } }
    };
    html! {
        section {
            h2 { "How it was run" }
            div.wide { table { tbody {
                (row("experiment", &results.experiment))
                (row("backend", &results.backend))
                (row("kernel", &results.kernel))
                (row("seed", &results.seed.to_string()))
                (row("CPU idle", &format!("{:.1} %", results.cpu_idle * 100.0)))
                (row("valid", if results.valid { "yes" } else { "no" }))
            } } }
            @if let Some(command) = &results.command {
                p { "To run it again:" }
                pre { (command) }
            }
            @if !results.notes.is_empty() {
                h3 { "Notes" }
                (list(&results.notes))
            }
        }
        footer {
            "Every run behind each median is in results.json, every sample in the CSV files \
             beside this page."
        }
    }
}
