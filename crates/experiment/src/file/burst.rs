// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[burst]]`: chunks after idle, all alike or by a list.

use paceline_input::units::{Size, Time};
use paceline_input::{Place, Reported};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{one, File};
use crate::plan::{self, Chunk, When};

/// Most bursts that have metrics of their own.
const MOST_POSITIONS: usize = 100;

/// Least size of a header: a request's length.
const LEAST_HEADER_BYTES: u64 = 8;

/// Bursts after idle.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Tail of the metrics' names; absent: the size.
    pub name: Option<String>,
    /// Size of each burst, all connections together.
    pub size: Option<Size>,
    /// Instead: a list of sizes, used in order.
    #[serde(default)]
    pub sizes: Vec<Size>,
    /// Time from a reply to the next write.
    pub gap: Option<Time>,
    /// Instead: a list of times, used in order.
    #[serde(default)]
    pub gaps: Vec<Time>,
    /// Number of bursts; absent: the length of the list.
    #[schemars(range(min = 1))]
    pub count: Option<u32>,
    /// Number of bursts with `--quick`.
    #[schemars(range(min = 1))]
    pub quick: Option<u32>,
    /// Number of the first burst that counts for medians, from 1.
    #[serde(default = "one")]
    pub from_burst: u32,
    /// Numbers of the bursts with metrics of their own, from 1; absent: all bursts of a list.
    pub positions: Option<Vec<u32>>,
    /// Connections that start together and share the size.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub connections: u32,
    /// Use a new connection and a new job for each burst.
    #[serde(default)]
    pub fresh: bool,
    /// After this many bursts the job closes its connections and opens new ones.
    #[schemars(range(min = 1))]
    pub renew: Option<u32>,
    /// Each connection first writes this many bytes, then the rest.
    pub header: Option<Size>,
    /// Use Nagle's algorithm (no TCP_NODELAY).
    #[serde(default)]
    pub nagle: bool,
    /// Number of the burst whose bandwidth is sampled, from 1.
    pub sample_burst: Option<u32>,
    /// Measure the CPU time that an empty loop on the same CPU loses to each burst.
    #[serde(default)]
    pub empty_loop: bool,
}

impl Burst {
    /// Bursts in all.
    fn count(&self, quick: bool) -> u32 {
        let listed = match self.sizes.len() {
            0 => self.gaps.len() + 1,
            sizes => sizes,
        };
        let full = self.count.unwrap_or(listed as u32);
        match quick {
            true => self.quick.unwrap_or(full),
            false => full,
        }
    }

    fn chunks(&self) -> Vec<Chunk> {
        let sizes = match self.size {
            Some(size) => vec![size],
            None => self.sizes.clone(),
        };
        let gaps = match self.gap {
            Some(gap) => vec![gap],
            None => self.gaps.clone(),
        };
        (0..sizes.len().max(gaps.len()))
            .map(|number| {
                let size = sizes[number % sizes.len()];
                Chunk {
                    label: match self.size {
                        Some(_) => String::new(),
                        None => size.to_string(),
                    },
                    size_bytes: size.bytes(),
                    // The pause after the last burst of a list has no effect.
                    gap_ns: gaps[number % gaps.len()].micros().saturating_mul(1000),
                }
            })
            .collect()
    }

    /// The workload.
    pub(super) fn plan(&self, quick: bool) -> plan::Burst {
        let size = self.size.map(|size| size.to_string()).unwrap_or_default();
        let label = match (&self.name, self.connections) {
            (Some(name), _) => name.clone(),
            (None, 1) => size,
            (None, connections) => format!("{size}/{connections}"),
        };
        let count = self.count(quick);
        let positions = match &self.positions {
            Some(positions) => positions.clone(),
            None if self.sizes.is_empty() => Vec::new(),
            None => (1..=count).collect(),
        };
        plan::Burst {
            label,
            chunks: self.chunks(),
            count,
            from_burst: self.from_burst,
            positions: positions.into_iter().filter(|at| *at <= count).collect(),
            connections: self.connections,
            fresh: self.fresh,
            renew: self.renew.unwrap_or(0),
            header_bytes: self.header.map_or(0, |header| header.bytes() as u32),
            nagle: self.nagle,
            sample_burst: self.sample_burst,
            empty_loop: self.empty_loop,
        }
    }
}

/// Checks the bursts.
pub(super) fn check(file: &File, place: &Place<'_>) {
    for (index, burst) in file.burst.iter().enumerate() {
        let place = place.key("burst").item(index);
        // The other checks need valid lists.
        if lists(burst, &place).is_ok() {
            bursts(burst, file, &place);
        }
    }
}

fn bursts(burst: &Burst, file: &File, place: &Place<'_>) {
    let wrong = |key: &str, problem: String| place.key(key).wrong(problem);
    let least = burst.count(false).min(burst.count(true));
    let smallest = burst.chunks().iter().map(|chunk| chunk.size_bytes).min();
    let share = smallest.unwrap_or(0) / u64::from(burst.connections);
    if share < 8 {
        let key = if burst.size.is_some() {
            "size"
        } else {
            "sizes"
        };
        wrong(key, "must be at least 8 bytes per connection".to_owned());
    }
    if let Some(header) = burst.header {
        if !(LEAST_HEADER_BYTES..share.max(1)).contains(&header.bytes()) {
            let problem = format!(
                "must be {LEAST_HEADER_BYTES}B to less than what a connection sends, {share}B"
            );
            wrong("header", problem);
        }
    }
    if burst.renew.is_some() && burst.fresh {
        let problem =
            "excludes fresh: renew opens new connections in the same job after this many bursts";
        wrong("renew", problem.to_owned());
    }
    let within = |number: u32| (1..=least).contains(&number);
    let range = || format!("must be 1 to the number of bursts, {least}");
    if !within(burst.from_burst) {
        wrong("from_burst", range());
    }
    if burst.sample_burst.is_some_and(|sample| !within(sample)) {
        wrong("sample_burst", range());
    }
    let positions = burst.positions.as_deref().unwrap_or_default();
    let all = burst.count(false);
    if positions.iter().any(|at| !(1..=all).contains(at)) || positions.len() > MOST_POSITIONS {
        wrong(
            "positions",
            format!("must be at most {MOST_POSITIONS} burst numbers, each 1 to {all}"),
        );
    }
    for step in file.steps() {
        if let When::Burst { number, .. } = step.when() {
            if number > least {
                let problem =
                    format!("{least} bursts end before the link changes at burst {number}");
                wrong("count", problem);
            }
        }
    }
}

/// Whether sizes and gaps fit each other.
fn lists(burst: &Burst, place: &Place<'_>) -> Result<(), Reported> {
    let wrong = |key: &str, problem: &str| Err(place.key(key).wrong(problem));
    let listed = !burst.sizes.is_empty();
    let gaps = burst.gaps.len();
    let sizes = match (burst.size, listed) {
        (None, false) => wrong(
            "size",
            "give a size, or a list: sizes = [\"1MB\", \"29KB\"]",
        ),
        (Some(_), true) => wrong("sizes", "give either size or sizes"),
        _ => Ok(()),
    };
    match (burst.gap, gaps) {
        (None, 0) => wrong("gap", "give a gap, or a list: gaps = [\"1s\", \"61s\"]")?,
        (Some(_), 1..) => wrong("gaps", "give either gap or gaps")?,
        _ => {}
    }
    sizes?;
    if listed && burst.name.is_none() {
        wrong(
            "name",
            "bursts with lists need a name, such as name = \"mixed\": each burst has a metric such as completion_s/mixed#2",
        )?;
    }
    if burst.name.as_ref().is_some_and(|name| !fits(name)) {
        wrong(
            "name",
            "a name that is part of a metric must not have # + @ * { } , ( ) or a space",
        )?;
    }
    if !listed && burst.count.is_none() && gaps == 0 {
        wrong("count", "give the number of bursts")?;
    }
    let again = |most: usize| burst.count.is_some_and(|count| count as usize > most);
    if listed && gaps > 0 {
        let sizes = burst.sizes.len();
        if gaps != sizes && (gaps + 1 != sizes || again(sizes)) {
            wrong(
                "gaps",
                "give one gap per size, or one less if the list is used once",
            )?;
        }
    }
    Ok(())
}

fn fits(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "#+@*{},()\"".contains(c))
}
