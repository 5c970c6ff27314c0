// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stochastic model of a scenario's clients.

use std::path::Path;

use paceline_report::results::Results;

use super::{command, Report, Settings, StudyError};
use crate::model::{Capacity, Model};
use crate::output;
use crate::scenario::{Point, Scenario};
use crate::sweep::{Done, Job};

/// Rounds of the stochastic model before its steady state, and in it.
const WARM_UP: usize = 2_000;
const ROUNDS: usize = 20_000;

/// Runs the model for the points of the scenario's first variant; `against` is where
/// results are that go beside it.
///
/// # Errors
/// [`StudyError::NotForTheModel`], [`StudyError::Scenario`], [`StudyError::Interrupted`];
/// [`StudyError::Results`] where there are no such results.
pub fn model(
    scenario: &Scenario,
    against: Option<&Path>,
    settings: Settings<'_>,
) -> Result<Report, StudyError> {
    let seed = settings.seed.unwrap_or(scenario.file.seed);
    let readings = [
        ("model", Capacity::RateAndBuffer),
        ("model-as-printed", Capacity::Printed),
    ];
    let first = &scenario.points()[0].variant;
    let points: Vec<Point> = scenario
        .points()
        .iter()
        .filter(|point| point.variant == *first)
        .cloned()
        .collect();
    let (mut done, mut all) = (Vec::new(), Vec::new());
    for (name, reading) in readings {
        for point in &points {
            let model = of(scenario, point)?;
            let point = Point {
                variant: name.to_owned(),
                ..point.clone()
            };
            for seed in seed..seed + u64::from(point.seeds) {
                if (settings.stop)() {
                    return Err(StudyError::Interrupted);
                }
                let nothing = StudyError::NotForTheModel("no packet was sent");
                let found = model.run(reading, seed).ok_or(nothing)?;
                let metrics = [
                    ("steady_cov".to_owned(), found.cov),
                    ("congested_rounds_share".to_owned(), found.congested_share),
                    ("packets_per_round".to_owned(), found.mean),
                ];
                let job = Job {
                    number: done.len(),
                    point: point.clone(),
                    seed,
                };
                done.push(Done {
                    job,
                    metrics: metrics.into_iter().collect(),
                });
            }
            all.push(point);
        }
    }
    let command = command("model", scenario, settings.seed, &[]);
    let mut results = output::results(scenario, seed, &command, &done, true)?;
    results.notes = vec!["The stochastic model of feng-2000, section 4: no packets, no timeouts, all windows halve together.".to_owned()];
    if let Some(against) = against {
        let simulated = Results::read(&against.join("results.json"))?;
        for (variant, metrics) in simulated.variants {
            let steady = metrics
                .into_iter()
                .filter(|(name, _)| name.starts_with("steady_cov/"));
            results.variants.insert(variant.clone(), steady.collect());
            all.extend(points.iter().map(|point| Point {
                variant: variant.clone(),
                ..point.clone()
            }));
        }
    }
    Ok(Report {
        results,
        points: all,
        done,
        series: None,
    })
}

/// The model of a point's clients and link.
fn of(scenario: &Scenario, point: &Point) -> Result<Model, StudyError> {
    const NO_POISSON: StudyError = StudyError::NotForTheModel(
        "the model needs Poisson sources: the first group of flows has another source",
    );
    const NO_LIMIT: StudyError =
        StudyError::NotForTheModel("the model needs a queue with a limit: packets or bytes");
    let plan = scenario.plan(point)?;
    let (sender, each, clients) = plan.clients().ok_or(NO_POISSON)?;
    let link = plan.measured_link();
    let round_s = plan.window_ns as f64 / 1e9;
    let buffer = link.queue.packets.map(f64::from).or(link
        .queue
        .bytes
        .map(|size| size.bytes() as f64 / f64::from(sender.packet_bytes)));
    Ok(Model {
        clients,
        packets_per_round: each * round_s,
        round_s,
        rate: link.rate.bits_per_second() as f64 / (8.0 * f64::from(sender.packet_bytes)),
        buffer: buffer.ok_or(NO_LIMIT)?,
        window: f64::from(sender.window),
        warm_up: WARM_UP,
        rounds: ROUNDS,
    })
}
