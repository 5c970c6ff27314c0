// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of every page: head and style.

use maud::{html, Markup, PreEscaped, DOCTYPE};

use super::xml::legal;

/// Elements that HTML writes without an end and XML with a slash.
const META: &str = "<meta charset=\"utf-8\"/>\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>";

/// Style of our own, and of the charts.
const STYLE: &str = concat!(
    include_str!("../../assets/style.css"),
    include_str!("../../assets/uplot/uPlot.min.css"),
);

/// A page in the style of all of them.
#[must_use]
pub fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE) "\n"
        html lang="en" {
            head {
                (PreEscaped(META))
                title { (title) }
                style { "\n" (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    legal(&page.into_string()) + "\n"
}
