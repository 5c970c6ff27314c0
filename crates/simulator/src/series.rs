// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples over time of one run, as series: `series/*.csv`, and figures of the page.

use paceline_report::Series;

use crate::measures::Outcome;
use crate::sweep::Job;
use crate::world::{GroupSample, Samples};

/// A series of samples of groups: the beginning of its name, its line, its y axis, and its value.
type OfGroup = (
    &'static str,
    &'static str,
    &'static str,
    fn(&GroupSample) -> f64,
);

const OF_GROUPS: [OfGroup; 4] = [
    (
        "in-flight",
        "",
        "in flight, all flows (segments)",
        |sample| sample.in_flight as f64,
    ),
    (
        "in-flight-each",
        "least",
        "in flight, one flow (segments)",
        |sample| sample.least_in_flight.into(),
    ),
    (
        "in-flight-each",
        "most",
        "in flight, one flow (segments)",
        |sample| sample.most_in_flight.into(),
    ),
    ("active", "", "flows that are not complete", |sample| {
        sample.active.into()
    }),
];

/// The series of a run; none if nothing was sampled.
pub fn of(job: &Job, outcome: &Outcome) -> Vec<Series> {
    let samples = &outcome.samples;
    let tail = job.point.tail();
    let series = |what: &str, y_label: &str, values: Vec<f64>| Series {
        experiment_part: match tail.is_empty() {
            true => what.to_owned(),
            false => format!("{what}-{tail}"),
        },
        variant: job.point.variant.clone(),
        line: String::new(),
        x_label: "time (s)".to_owned(),
        y_label: y_label.to_owned(),
        points: samples
            .times
            .iter()
            .map(|time| *time as f64 / 1e9)
            .zip(values)
            .collect(),
    };
    if samples.times.is_empty() {
        return Vec::new();
    }
    let mut all = Vec::new();
    let groups = samples.group_names.len();
    let of = |index: usize| samples.groups.iter().skip(index).step_by(groups);
    let named = |what: &str, group: usize| match groups {
        1 => what.to_owned(),
        _ => format!("{what}-{}", samples.group_names[group]),
    };
    for group in 0..groups {
        let rates = arrival_rates(samples, of(group));
        all.push(series(&named("goodput", group), "goodput (Gbit/s)", rates));
    }
    for (what, line, y_label, value) in OF_GROUPS {
        for group in 0..groups {
            let values = of(group).map(value).collect();
            all.push(Series {
                line: line.to_owned(),
                ..series(&named(what, group), y_label, values)
            });
        }
    }
    let queue = samples.queue.iter().map(|(queue, _)| f64::from(*queue));
    all.push(series("queue", "queue (packets)", queue.collect()));
    if samples.queue.iter().any(|(_, average)| average.is_some()) {
        let average = samples.queue.iter();
        let average = average.map(|(_, average)| average.unwrap_or(0.0));
        let values = average.collect();
        all.push(series("queue-average", "average queue (packets)", values));
    }
    let flows = samples.flows.len();
    for (index, flow) in samples.flows.iter().enumerate() {
        let of = || samples.windows.iter().skip(index).step_by(flows);
        let cwnd = of().map(|(cwnd, _)| *cwnd).collect();
        all.push(series(&format!("cwnd-{flow}"), "cwnd (segments)", cwnd));
        let ssthresh = of().map(|(_, ssthresh)| *ssthresh).collect();
        let name = format!("ssthresh-{flow}");
        all.push(series(&name, "ssthresh (segments)", ssthresh));
    }
    all
}

/// Rate of arrivals from each sample to the next one, Gbit/s; the last has none.
fn arrival_rates<'s>(
    samples: &Samples,
    of: impl Iterator<Item = &'s GroupSample> + Clone,
) -> Vec<f64> {
    let next = of.clone().skip(1);
    let mut rates: Vec<f64> = of
        .zip(next)
        .map(|(from, to)| {
            let bits = 8 * (to.arrived_bytes - from.arrived_bytes);
            bits as f64 / samples.every_ns as f64
        })
        .collect();
    rates.push(0.0);
    rates
}
