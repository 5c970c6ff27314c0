// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Common parts of figures: a canvas, axes, and the colour of a variant.
//!
//! maud writes no element that ends in a slash, as SVG's do. It escapes every value that is
//! written here all the same: nothing else writes one.

use std::fmt::{Display, Write};

use indexmap::IndexMap;
use maud::{html, Escaper, Markup, PreEscaped, Render};

use crate::results::Results;

use super::xml::legal;

/// Ink of text, of secondary text, and of grid lines.
pub const INK: &str = "#1b2430";
/// Secondary text. Contrast on white 5.9:1.
pub const FAINT: &str = "#5b6776";
/// Grid lines.
pub const GRID: &str = "#e3e8ee";
/// Fonts of the system: the page loads none.
pub const FONT: &str =
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

/// Colours that the usual names always have, so that reports can be laid side by side. From
/// the palette of Okabe and Ito, which every kind of colour vision distinguishes, the light
/// ones darkened to be seen on white.
const NAMED: [(&str, &str); 10] = [
    ("paceline", "#0072b2"),
    ("lfn", "#0072b2"),
    ("cubic", "#d55e00"),
    ("cubic-no-idle-restart", "#e69f00"),
    ("bbr", "#009e73"),
    ("paper", "#b8578f"),
    ("pce", "#b8578f"),
    ("reno", "#3d9fd6"),
    ("all", "#5b4bb3"),
    ("ideal", "#6b7280"),
];

/// For all other variants, in their order, while they last.
const OTHERS: [&str; 8] = [
    "#5b4bb3", "#8c510a", "#3d9fd6", "#7f1d4e", "#4d7c0f", "#b45309", "#0f766e", "#6b7280",
];

/// One colour per variant, the same in every figure of the report.
pub fn colors(
    results: &Results,
    others: impl Iterator<Item = String>,
) -> IndexMap<String, &'static str> {
    let mut names: Vec<String> = results.variants.keys().cloned().collect();
    for name in others {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let named = |name: &str| {
        NAMED
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, color)| *color)
    };
    let mut used: Vec<&str> = Vec::new();
    let mut colors = IndexMap::new();
    for name in &names {
        if let Some(color) = named(name).filter(|color| !used.contains(color)) {
            used.push(color);
            colors.insert(name.clone(), color);
        }
    }
    for name in names {
        if !colors.contains_key(&name) {
            let all = NAMED.iter().map(|(_, color)| *color).chain(OTHERS);
            // With more variants than colours, the labels alone distinguish them.
            let free = OTHERS
                .into_iter()
                .chain(all)
                .find(|color| !used.contains(color));
            let color = free.unwrap_or(OTHERS[colors.len() % OTHERS.len()]);
            used.push(color);
            colors.insert(name, color);
        }
    }
    colors
}

/// A drawing under construction, in user units that are pixels at full size.
pub struct Canvas {
    body: String,
    width: f64,
}

/// Where a text is held.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// Where it begins.
    Start,
    /// In its middle.
    Middle,
    /// Where it ends.
    End,
}

/// How a text looks.
#[derive(Clone, Copy)]
pub enum Style {
    /// As all of them.
    Plain,
    /// With this weight: 400 is plain, 700 bold.
    Weight(u16),
    /// Digits of one width, spaces kept: for columns of numbers.
    Tabular,
    /// Upwards, turned about the place where it is held.
    Turned,
}

/// Names and values, which are escaped when they are written.
type Attributes<'a> = [(&'static str, &'a dyn Display)];

/// The content of an element.
enum Content<'a> {
    Nothing,
    /// Drawn text.
    Text(&'a str),
    /// The tooltip.
    Title(&'a str),
}

/// Appends an element on a line of its own.
fn element(svg: &mut String, name: &'static str, attributes: &Attributes, content: Content) {
    open(svg, name, attributes);
    let inside = match content {
        Content::Nothing => {
            svg.push_str("/>\n");
            return;
        }
        Content::Text(text) => html! { (text) },
        Content::Title(text) => html! { title { (text) } },
    };
    svg.push('>');
    inside.render_to(svg);
    svg.push_str("</");
    svg.push_str(name);
    svg.push_str(">\n");
}

/// Appends the start of an element, up to where it ends or its content begins.
fn open(svg: &mut String, name: &'static str, attributes: &Attributes) {
    svg.push('<');
    svg.push_str(name);
    for (key, value) in attributes {
        svg.push(' ');
        svg.push_str(key);
        svg.push_str("=\"");
        write!(Escaper::new(svg), "{value}").expect("a string has room");
        svg.push('"');
    }
}

impl Canvas {
    /// An empty drawing of this width.
    pub fn new(width: f64) -> Self {
        Canvas {
            body: String::new(),
            width,
        }
    }

    /// A straight line. `dash` is an SVG dash pattern, empty for a solid line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str, width: f64, dash: &str) {
        let (x1, y1, x2, y2) = (short(from.0), short(from.1), short(to.0), short(to.1));
        let all: [(_, &dyn Display); 7] = [
            ("x1", &x1),
            ("y1", &y1),
            ("x2", &x2),
            ("y2", &y2),
            ("stroke", &color),
            ("stroke-width", &width),
            ("stroke-dasharray", &dash),
        ];
        self.element("line", without_dash(&all, dash), Content::Nothing);
    }

    /// A text of `size` pixels.
    pub fn text(
        &mut self,
        at: (f64, f64),
        anchor: Anchor,
        color: &str,
        size: f64,
        style: Style,
        text: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (short(at.0), short(at.1));
        let styled: Option<(_, String)> = match style {
            Style::Plain => None,
            Style::Weight(weight) => Some(("font-weight", weight.to_string())),
            Style::Tabular => Some((
                "style",
                "font-variant-numeric:tabular-nums;white-space:pre".to_owned(),
            )),
            Style::Turned => Some(("transform", format!("rotate(-90 {x} {y})"))),
        };
        let mut all: Vec<(_, &dyn Display)> = vec![
            ("x", &x),
            ("y", &y),
            ("text-anchor", &anchor),
            ("fill", &color),
            ("font-size", &size),
        ];
        all.extend(
            styled
                .iter()
                .map(|(key, value)| (*key, value as &dyn Display)),
        );
        self.element("text", &all, Content::Text(text));
    }

    /// A dot; `title` is shown when it is pointed at.
    pub fn circle(&mut self, at: (f64, f64), radius: f64, color: &str, title: &str) {
        self.element(
            "circle",
            &[
                ("cx", &short(at.0)),
                ("cy", &short(at.1)),
                ("r", &radius),
                ("fill", &color),
                ("stroke", &"#fff"),
                ("stroke-width", &1.5),
            ],
            Content::Title(title),
        );
    }

    /// A bar: filled, or only its outline.
    pub fn bar(
        &mut self,
        from: (f64, f64),
        size: (f64, f64),
        color: &str,
        filled: bool,
        title: &str,
    ) {
        // The stroke lies on the edge: half of it inside.
        let (from, size) = match filled {
            true => (from, size),
            false => (
                (from.0 + 0.8, from.1 + 0.8),
                ((size.0 - 1.6).max(0.0), (size.1 - 0.8).max(0.0)),
            ),
        };
        let (x, y, width, height) = (short(from.0), short(from.1), short(size.0), short(size.1));
        let all: [(_, &dyn Display); 8] = [
            ("x", &x),
            ("y", &y),
            ("width", &width),
            ("height", &height),
            ("fill", &color),
            ("fill-opacity", &0.14),
            ("stroke", &color),
            ("stroke-width", &1.6),
        ];
        let painted = if filled { &all[..5] } else { &all };
        self.element("rect", painted, Content::Title(title));
    }

    /// A box with round corners, filled white.
    pub fn rounded(&mut self, from: (f64, f64), size: (f64, f64), color: &str, title: &str) {
        self.element(
            "rect",
            &[
                ("x", &short(from.0)),
                ("y", &short(from.1)),
                ("width", &short(size.0)),
                ("height", &short(size.1)),
                ("rx", &8),
                ("fill", &"#fff"),
                ("stroke", &color),
                ("stroke-width", &1.5),
            ],
            Content::Title(title),
        );
    }

    /// A path with a filled area under it, both in one colour.
    pub fn area(&mut self, outline: &str, floor: &str, color: &str) {
        self.element(
            "path",
            &[
                ("d", &format_args!("{outline}{floor}")),
                ("fill", &color),
                ("fill-opacity", &0.28),
            ],
            Content::Nothing,
        );
        self.stroke(outline, color, 1.3, "");
    }

    /// A path, `dash` as in [`Canvas::line`].
    pub fn path(&mut self, outline: &str, color: &str, dash: &str) {
        self.stroke(outline, color, 1.5, dash);
    }

    fn stroke(&mut self, outline: &str, color: &str, width: f64, dash: &str) {
        let all: [(_, &dyn Display); 6] = [
            ("d", &outline),
            ("fill", &"none"),
            ("stroke", &color),
            ("stroke-width", &width),
            ("stroke-linejoin", &"round"),
            ("stroke-dasharray", &dash),
        ];
        self.element("path", without_dash(&all, dash), Content::Nothing);
    }

    /// The finished drawing, `height` high, on white. `title` is for screen readers.
    pub fn finish(self, height: f64, title: &str) -> Markup {
        let (width, height) = (short(self.width), short(height));
        let mut svg = String::new();
        open(
            &mut svg,
            "svg",
            &[
                ("xmlns", &"http://www.w3.org/2000/svg"),
                ("viewBox", &format_args!("0 0 {width} {height}")),
                ("width", &width),
                ("height", &height),
                ("role", &"img"),
                ("font-family", &FONT),
            ],
        );
        svg.push_str(">\n");
        element(&mut svg, "title", &[], Content::Text(title));
        let white: [(_, &dyn Display); 3] =
            [("width", &width), ("height", &height), ("fill", &"#fff")];
        element(&mut svg, "rect", &white, Content::Nothing);
        svg.push_str(&self.body);
        svg.push_str("</svg>\n");
        PreEscaped(legal(&svg))
    }

    fn element(&mut self, name: &'static str, attributes: &Attributes, content: Content) {
        element(&mut self.body, name, attributes, content);
    }
}

/// The attributes without the last one, which is the dash pattern, where that is empty.
fn without_dash<'s, 'a>(all: &'s Attributes<'a>, dash: &str) -> &'s Attributes<'a> {
    match dash {
        "" => &all[..all.len() - 1],
        _ => all,
    }
}

/// A coordinate with a tenth of a pixel, the visible precision.
pub fn short(number: f64) -> String {
    let text = format!("{number:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// The number, or 1 in place of one that is no length.
pub fn positive(number: f64) -> f64 {
    if number > 0.0 {
        number
    } else {
        1.0
    }
}

/// Round values from 0 up to `end`, about `count` steps of 1, 2 or 5 times a
/// power of ten. Only 0 if `end` is not a positive number.
pub fn ticks(end: f64, count: usize) -> Vec<f64> {
    if !(end > 0.0 && end.is_finite()) {
        return vec![0.0];
    }
    let rough = end / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(rough);
    (0..=count + 1)
        .map(|i| i as f64 * step)
        .take_while(|tick| *tick <= end * 1.0001)
        .collect()
}

/// A tick's label: as many decimals as the step needs.
pub fn tick_label(tick: f64, ticks: &[f64]) -> String {
    let step = ticks.get(1).copied().unwrap_or(1.0);
    let decimals = if step > 0.0 {
        (-step.log10().floor()).clamp(0.0, 6.0) as usize
    } else {
        0
    };
    format!("{tick:.decimals$}")
}
