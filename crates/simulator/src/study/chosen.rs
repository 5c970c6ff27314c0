// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The points that a command line names.

use super::{Selection, StudyError};
use crate::scenario::{label, Point, Scenario, ScenarioError};

/// The points of `selection`, or its error.
pub fn points(scenario: &Scenario, selection: Selection<'_>) -> Result<Vec<Point>, StudyError> {
    let Selection {
        at,
        variants,
        seeds,
    } = selection;
    let mut points: Vec<Point> = scenario.points().to_vec();
    for name in variants {
        if !points.iter().any(|point| point.variant == *name) {
            let mut known: Vec<String> = points.iter().map(|point| point.variant.clone()).collect();
            known.dedup();
            return Err(unknown("variant", name, known));
        }
    }
    points.retain(|point| variants.is_empty() || variants.contains(&point.variant));
    for one in at {
        let (axis, value) = one
            .split_once('=')
            .ok_or_else(|| StudyError::NotAPoint(one.clone()))?;
        let Some(table) = scenario.file.axis.get(axis) else {
            let known = scenario.file.axis.keys().cloned().collect();
            return Err(unknown("axis", axis, known));
        };
        if !table.values.iter().any(|known| label(known) == value) {
            let known = table.values.iter().map(label).collect();
            return Err(unknown("value", value, known));
        }
        points.retain(|point| {
            let values = point.values.iter();
            let mut values = values.filter(|(name, _)| name == axis);
            values.all(|(_, known)| label(known) == value)
        });
    }
    for (axis, table) in &scenario.file.axis {
        if !at.iter().any(|one| one.split('=').next() == Some(axis)) {
            let first = table.values.first().map(label);
            points.retain(|point| {
                let values = point.values.iter();
                let mut values = values.filter(|(name, _)| name == axis);
                values.all(|(_, value)| Some(label(value)) == first)
            });
        }
    }
    if let Some(seeds) = seeds {
        if seeds == 0 {
            return Err(StudyError::NoSeeds);
        }
        for point in &mut points {
            point.seeds = seeds;
        }
    }
    Ok(points)
}

fn unknown(what: &'static str, asked: &str, known: Vec<String>) -> StudyError {
    let known: Vec<String> = known.iter().map(|name| format!("\"{name}\"")).collect();
    let error = ScenarioError::Unknown {
        what,
        asked: asked.to_owned(),
        known: match known.is_empty() {
            true => "none".to_owned(),
            false => known.join(", "),
        },
    };
    error.into()
}
