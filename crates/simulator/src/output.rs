// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs as files: `runs.csv` and `runs.parquet`, one row per run and metric, and
//! `summary.csv`, one per point and metric, with the confidence interval over its seeds.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use paceline_report::claims;
use paceline_report::results::{Checked, Link, Metric, Results};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::scenario::{Scenario, ScenarioError};
use crate::statistics::Mean;
use crate::sweep::Done;

/// Why results could not be made or written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A claim that names an unknown metric.
    #[error(transparent)]
    Claim(#[from] claims::ClaimError),
    /// `results.json`.
    #[error(transparent)]
    Results(#[from] paceline_report::results::ResultsError),
    /// Series.
    #[error(transparent)]
    Series(#[from] paceline_report::csv::CsvError),
    /// A CSV file.
    #[error("cannot write {}: {source}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// The writer's error.
        source: csv::Error,
    },
    /// A Parquet file.
    #[error("cannot write {}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The writer's error.
        source: parquet::errors::ParquetError,
    },
    /// Another file.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A metric's name at a point: `loss_share/reno/20` is that of the group `reno` at 20.
pub fn name_at(metric: &str, tail: &str) -> String {
    match tail.is_empty() {
        true => metric.to_owned(),
        false => format!("{metric}/{tail}"),
    }
}

/// The content of `results.json`, its claims judged. With `partial` claims are not.
///
/// # Errors
/// When a claim names an unknown metric.
pub fn results(
    scenario: &Scenario,
    seed: u64,
    command: &str,
    done: &[Done],
    partial: bool,
) -> Result<Results, OutputError> {
    let mut runs: IndexMap<String, IndexMap<String, Vec<f64>>> = IndexMap::new();
    let mut bounds = IndexMap::new();
    for chunk in done.chunk_by(|a, b| a.job.point == b.job.point) {
        let point = &chunk[0].job.point;
        let tail = point.tail();
        let of = runs.entry(point.variant.clone()).or_default();
        for one in chunk {
            for (metric, value) in &one.metrics {
                of.entry(name_at(metric, &tail)).or_default().push(*value);
            }
        }
        let plan = scenario.plan(point)?;
        if let Some(offered) = plan.offered_per_second() {
            let packets = offered * plan.window_ns as f64 / 1e9;
            for metric in ["cov", "steady_cov"] {
                if of.contains_key(&name_at(metric, &tail)) {
                    bounds.insert(name_at(metric, &tail), 1.0 / packets.sqrt());
                }
            }
        }
    }
    let variants = runs
        .into_iter()
        .map(|(variant, metrics)| {
            let metrics = metrics
                .into_iter()
                .map(|(name, values)| Ok((name, Metric::from_runs(values)?)))
                .collect::<Result<_, OutputError>>()?;
            Ok((variant, metrics))
        })
        .collect::<Result<_, OutputError>>()?;
    let first = scenario.points().first().expect("a scenario has a point");
    let plan = scenario.plan(done.first().map_or(first, |done| &done.job.point))?;
    let table = plan.measured_link();
    let (rate, delay) = (table.rate.bits_per_second() as f64, table.delay.secs_f64());
    let exactly = |value| Checked {
        asked: value,
        measured: value,
    };
    let packet = plan
        .clients()
        .map_or(1500, |(sender, ..)| sender.packet_bytes);
    let mut results = Results {
        experiment: scenario.name.clone(),
        title: Some(scenario.file.title.clone()),
        description: Some(scenario.file.description.clone()),
        command: Some(command.to_owned()),
        backend: "sim".to_owned(),
        kernel: format!("none: simulated by paceline {}", env!("CARGO_PKG_VERSION")),
        seed,
        valid: true,
        warnings: Vec::new(),
        notes: Vec::new(),
        // Simulated time waits for the CPU.
        cpu_idle: 1.0,
        link: Link {
            rate_bps: exactly(rate),
            one_way_delay_s: exactly(delay),
            buffer_bytes: match (table.queue.packets, table.queue.bytes) {
                (Some(packets), _) => u64::from(packets) * u64::from(packet),
                (_, Some(size)) => size.bytes(),
                (None, None) => 0,
            },
            buffer_measured_bytes: None,
            edge_rate_bps: None,
            rtt_s: Some(plan.window_ns as f64 / 1e9),
        },
        paths: IndexMap::new(),
        variants,
        bounds,
        holds: Vec::new(),
        paper: Vec::new(),
    };
    if partial {
        let note = "Only a part was run: claims are not judged.";
        results.notes.push(note.to_owned());
    } else {
        results.holds = claims::evaluate_all(&scenario.file.holds, &results)?;
    }
    Ok(results)
}

/// Writes `runs.csv` and `runs.parquet`.
///
/// # Errors
/// When one cannot be written.
pub fn write_runs(done: &[Done], directory: &Path) -> Result<(), OutputError> {
    let axes: Vec<&str> = done.first().map_or(Vec::new(), |first| {
        let values = first.job.point.values.iter();
        values.map(|(name, _)| name.as_str()).collect()
    });
    let rows: Vec<(&Done, &str, f64)> = done
        .iter()
        .flat_map(|one| {
            let metrics = one.metrics.iter();
            metrics.map(move |(name, value)| (one, name.as_str(), *value))
        })
        .collect();
    let value = |done: &Done, axis: usize| crate::scenario::label(&done.job.point.values[axis].1);

    let path = directory.join("runs.csv");
    let csv = |source| OutputError::Csv {
        path: path.clone(),
        source,
    };
    let mut writer = csv::Writer::from_path(&path).map_err(csv)?;
    let head = ["run", "variant"].into_iter().chain(axes.iter().copied());
    let head: Vec<&str> = head.chain(["seed", "metric", "value"]).collect();
    writer.write_record(&head).map_err(csv)?;
    for (one, metric, number) in &rows {
        let mut record = vec![one.job.number.to_string(), one.job.point.variant.clone()];
        record.extend((0..axes.len()).map(|axis| value(one, axis)));
        record.extend([
            one.job.seed.to_string(),
            (*metric).to_owned(),
            number.to_string(),
        ]);
        writer.write_record(&record).map_err(csv)?;
    }
    writer.flush().map_err(|source| csv(source.into()))?;

    let path = directory.join("runs.parquet");
    let parquet = |source| OutputError::Parquet {
        path: path.clone(),
        source,
    };
    let io = |source| OutputError::Io {
        path: path.clone(),
        source,
    };
    let field = |name: &str, physical, text: bool| {
        let field = Type::primitive_type_builder(name, physical)
            .with_logical_type(text.then_some(LogicalType::String))
            .with_repetition(Repetition::REQUIRED);
        field.build().map(Arc::new).map_err(parquet)
    };
    let mut fields = vec![
        field("run", Physical::INT64, false)?,
        field("variant", Physical::BYTE_ARRAY, true)?,
    ];
    for axis in &axes {
        fields.push(field(axis, Physical::BYTE_ARRAY, true)?);
    }
    fields.push(field("seed", Physical::INT64, false)?);
    fields.push(field("metric", Physical::BYTE_ARRAY, true)?);
    fields.push(field("value", Physical::DOUBLE, false)?);
    let schema = Type::group_type_builder("runs").with_fields(fields).build();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let mut file = SerializedFileWriter::new(
        File::create(&path).map_err(io)?,
        Arc::new(schema.map_err(parquet)?),
        Arc::new(properties.build()),
    )
    .map_err(parquet)?;
    let texts = |of: &dyn Fn(&(&Done, &str, f64)) -> String| -> Vec<ByteArray> {
        rows.iter().map(|row| of(row).as_str().into()).collect()
    };
    let numbers =
        |of: &dyn Fn(&(&Done, &str, f64)) -> i64| -> Vec<i64> { rows.iter().map(of).collect() };
    enum Column {
        Texts(Vec<ByteArray>),
        Numbers(Vec<i64>),
        Values(Vec<f64>),
    }
    let mut columns = vec![
        Column::Numbers(numbers(&|row| row.0.job.number as i64)),
        Column::Texts(texts(&|row| row.0.job.point.variant.clone())),
    ];
    for axis in 0..axes.len() {
        columns.push(Column::Texts(texts(&|row| value(row.0, axis))));
    }
    columns.push(Column::Numbers(numbers(&|row| row.0.job.seed as i64)));
    columns.push(Column::Texts(texts(&|row| row.1.to_owned())));
    columns.push(Column::Values(rows.iter().map(|row| row.2).collect()));
    let mut group = file.next_row_group().map_err(parquet)?;
    for column in &columns {
        let Some(mut writer) = group.next_column().map_err(parquet)? else {
            break;
        };
        match column {
            Column::Texts(values) => writer
                .typed::<ByteArrayType>()
                .write_batch(values, None, None),
            Column::Numbers(values) => writer.typed::<Int64Type>().write_batch(values, None, None),
            Column::Values(values) => writer.typed::<DoubleType>().write_batch(values, None, None),
        }
        .map_err(parquet)?;
        writer.close().map_err(parquet)?;
    }
    group.close().map_err(parquet)?;
    file.close().map_err(parquet)?;
    Ok(())
}

/// Writes `summary.csv`.
///
/// # Errors
/// When it cannot be written.
pub fn write_summary(results: &Results, directory: &Path) -> Result<(), OutputError> {
    let path = directory.join("summary.csv");
    let csv = |source| OutputError::Csv {
        path: path.clone(),
        source,
    };
    let mut writer = csv::Writer::from_path(&path).map_err(csv)?;
    writer
        .write_record(["variant", "metric", "mean", "low", "high", "runs"])
        .map_err(csv)?;
    let digits = |number: f64| {
        format!("{:.6e}", number)
            .parse::<f64>()
            .map_or(number, |n| n)
    };
    for (variant, metrics) in &results.variants {
        for (name, metric) in metrics {
            let Some(Mean {
                mean,
                half_width,
                count,
            }) = Mean::of(&metric.runs)
            else {
                continue;
            };
            let record = [
                variant.clone(),
                name.clone(),
                digits(mean).to_string(),
                digits(mean - half_width).to_string(),
                digits(mean + half_width).to_string(),
                count.to_string(),
            ];
            writer.write_record(&record).map_err(csv)?;
        }
    }
    writer.flush().map_err(|source| csv(source.into()))
}
