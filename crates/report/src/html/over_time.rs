// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The section of samples over time.

use maud::{html, Markup};

use crate::series::Report;

use super::{figure, interactive, ladder, panels};

/// A figure for each part of the experiment; nothing if there is no series.
pub fn section(report: &Report) -> Markup {
    let (heading, text) = texts(report);
    let figures = figures(report);
    html! {
        @if !figures.0.is_empty() {
            section {
                h2 { (heading) }
                p { (text) }
                (figures)
            }
        }
    }
}

fn texts(report: &Report) -> (&'static str, &'static str) {
    let mut series = report.series.iter();
    if series
        .clone()
        .any(|series| series.x_label.contains("chunk"))
    {
        return (
            "Bandwidth over one chunk",
            "What passed the link, sample by sample, from the chunk\u{2019}s first write on. Every \
             panel has the same axes, and its area is the chunk: the sooner it ends, the better. \
             The completion also counts the reply\u{2019}s way back; the bound is that of the \
             completion.",
        );
    }
    match series.all(|series| series.y_label.starts_with("bandwidth")) {
        true => (
            "Bandwidth over time",
            "What passed the link, sample by sample. Every panel of a figure has the same axes.",
        ),
        false => ("Over time", "Every panel of a figure has the same axes."),
    }
}

/// A figure under a heading for each part, and a chart to look closer; nothing if there is
/// no series. Once in a page: the charts' script is with them.
pub fn figures(report: &Report) -> Markup {
    // The figure has it upright beside its panels, where a long one is cut.
    let label = |part: &str| {
        let mut series = report.series.iter();
        series.find_map(|one| (one.experiment_part == part).then_some(&one.y_label))
    };
    let allowance = interactive::allowance(report);
    let parts = panels::parts(report);
    html! {
        @for part in parts.iter().filter(|part| ladder::is(part)) {
            @if let Some(svg) = ladder::figure(report, part) {
                h3 { (part) }
                figure {
                    (svg)
                    figcaption { "segments (solid) and ACKs (dashed), as seen beside the sender; dotted rails: a silence, shortened" }
                }
            }
        }
        @for part in parts.iter().filter(|part| !ladder::is(part)) {
            @if let Some(svg) = figure::figure(report, part) {
                h3 { (part) }
                figure {
                    (svg)
                    @if let Some(label) = label(part) { figcaption { (label) } }
                }
                (interactive::chart(report, part, allowance))
            }
        }
        @if !parts.is_empty() { (interactive::script()) }
    }
}
