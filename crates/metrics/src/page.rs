// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A page of metrics: made anew for each scrape, from the service's state then.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Series of one metric at most. A label's values may come from users (a policy's or a group's
/// name), and each value is a series that Prometheus keeps for ever.
pub const MOST_SERIES: usize = 64;
/// The value of the label under which those past [`MOST_SERIES`] are summed.
pub const OTHER: &str = "other";
/// Characters of a label's value at most. Names in Paceline have up to 63.
const LONGEST_VALUE: usize = 64;

type Labels = Vec<(&'static str, String)>;
type Float = Gauge<f64, AtomicU64>;

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, for callers that do not ask for the other.
    Text,
}

impl Form {
    /// The content type of HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Metrics and their values.
///
/// Names are given without the prefix `paceline_`, and those of counters without the ending
/// `_total`. A unit (base units: seconds, bytes) is the name's ending. A help text is one
/// sentence without its full stop.
#[derive(Debug)]
pub struct Page {
    registry: Registry,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            registry: Registry::with_prefix("paceline"),
        }
    }
}

impl Page {
    /// A value that goes up and down.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, value: f64) {
        let gauge = Float::default();
        gauge.set(value);
        self.registry.register(name, help, gauge);
    }

    /// A value that only grows while the service runs.
    pub fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        self.registry.register(name, help, counter);
    }

    /// A gauge for each value of a label. Values for the same are summed.
    pub fn gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = (String, f64)>,
    ) {
        let family = Family::<Labels, Float>::default();
        for (of, value) in bounded(values, |sum, value| sum + value) {
            family.get_or_create(&vec![(label, of)]).set(value);
        }
        self.registry.register(name, help, family);
    }

    /// A counter for each value of a label. Values for the same are summed.
    pub fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: impl IntoIterator<Item = (String, u64)>,
    ) {
        let family = Family::<Labels, Counter>::default();
        for (of, value) in bounded(values, u64::saturating_add) {
            family.get_or_create(&vec![(label, of)]).inc_by(value);
        }
        self.registry.register(name, help, family);
    }

    /// The page as text.
    pub fn text(&self, form: Form) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes all text");
        match form {
            Form::OpenMetrics => text,
            Form::Text => classic(&text),
        }
    }
}

/// The values by their label, the first [`MOST_SERIES`] less one in the order of their names and
/// the rest as one.
fn bounded<T: Copy>(
    values: impl IntoIterator<Item = (String, T)>,
    sum: impl Fn(T, T) -> T,
) -> BTreeMap<String, T> {
    let mut all = BTreeMap::new();
    for (mut label, value) in values {
        if let Some((cut, _)) = label.char_indices().nth(LONGEST_VALUE) {
            label.truncate(cut);
        }
        add(&mut all, label, value, &sum);
    }
    if all.len() <= MOST_SERIES {
        return all;
    }
    let mut kept = BTreeMap::new();
    for (number, (label, value)) in all.into_iter().enumerate() {
        let label = match number < MOST_SERIES - 1 {
            true => label,
            false => OTHER.to_owned(),
        };
        add(&mut kept, label, value, &sum);
    }
    kept
}

fn add<T: Copy>(to: &mut BTreeMap<String, T>, label: String, value: T, sum: impl Fn(T, T) -> T) {
    to.entry(label)
        .and_modify(|old| *old = sum(*old, value))
        .or_insert(value);
}

/// The same in Prometheus' older format, in which a counter's ending belongs to its name and
/// nothing marks the end.
fn classic(text: &str) -> String {
    let mut counters: Vec<&str> = Vec::new();
    for line in text.lines() {
        let counter = line.strip_prefix("# TYPE ");
        counters.extend(counter.and_then(|line| line.strip_suffix(" counter")));
    }
    let mut classic = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        let (mark, kind) = (words.next(), words.next());
        match (mark, kind, words.next(), words.next()) {
            (Some("#"), Some(kind), Some(name), Some(rest)) if counters.contains(&name) => {
                classic += &format!("# {kind} {name}_total {rest}\n");
            }
            _ => classic += &format!("{line}\n"),
        }
    }
    classic
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let mut page = Page::default();
        page.gauge("jobs", "Jobs now", 2.0);
        page.counter("starts", "Paced starts", 7);
        page.counters(
            "refusals",
            "Refused requests",
            "code",
            [("policy".to_owned(), 1), ("policy".to_owned(), 2)],
        );
        page
    }

    #[test]
    fn openmetrics_ends_with_its_mark_and_counters_with_total() {
        let text = page().text(Form::OpenMetrics);
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert!(text.contains("# TYPE paceline_starts counter\n"), "{text}");
        assert!(text.contains("\npaceline_starts_total 7\n"), "{text}");
        assert!(
            text.contains("\npaceline_refusals_total{code=\"policy\"} 3\n"),
            "{text}"
        );
        assert!(text.contains("\npaceline_jobs 2.0\n"), "{text}");
    }

    #[test]
    fn the_older_format_names_a_counter_as_its_samples() {
        let text = page().text(Form::Text);
        assert!(!text.contains("EOF"), "{text}");
        for line in [
            "# HELP paceline_starts_total Paced starts.",
            "# TYPE paceline_starts_total counter",
            "paceline_starts_total 7",
            "# TYPE paceline_jobs gauge",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }

    #[test]
    fn a_label_has_no_more_values_than_it_may() {
        let mut page = Page::default();
        let many = (0..1000).map(|number| (format!("group-{number:04}"), 1.0));
        page.gauges("streams", "Streams", "group", many);
        let text = page.text(Form::Text);
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(series, MOST_SERIES);
        let rest = 1000 - (MOST_SERIES - 1);
        let other = format!("paceline_streams{{group=\"other\"}} {rest}.0");
        assert!(text.lines().any(|line| line == other), "{text}");
    }

    #[test]
    fn a_labels_value_cannot_write_lines_of_its_own_and_is_short() {
        let mut page = Page::default();
        let evil = format!("a\"}} 1\npaceline_evil 1\n\\{}", "x".repeat(500));
        page.gauges("streams", "Streams", "group", [(evil, 1.0)]);
        for form in [Form::Text, Form::OpenMetrics] {
            let text = page.text(form);
            let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            assert_eq!(samples.len(), 1, "{text}");
            assert!(samples[0].len() < 120, "{text}");
            assert!(
                samples[0].starts_with("paceline_streams{group=\"a\\\"}"),
                "{text}"
            );
        }
    }
}
