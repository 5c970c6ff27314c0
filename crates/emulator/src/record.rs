// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link's recording as files: `load` (traffic and queue per bin) and `drops` (lost packets,
//! one by one), each as CSV and as Parquet.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::link::Cause;
use crate::statistics::{DirectionReport, Report};

/// Why a record could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// By the system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// By the CSV writer.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// By the Parquet writer.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
}

enum Column {
    Text(Vec<String>),
    Number(Vec<i64>),
}

struct Table {
    name: &'static str,
    columns: Vec<(&'static str, Column)>,
}

/// Writes `load.csv`, `load.parquet`, `drops.csv` and `drops.parquet` into `directory`.
///
/// # Errors
/// When one cannot be written.
pub fn write(report: &Report, directory: &Path) -> Result<(), RecordError> {
    let directions = [("forward", &report.forward), ("reverse", &report.reverse)];
    for table in [load(&directions), drops(&directions)] {
        table.write_csv(&directory.join(format!("{}.csv", table.name)))?;
        table.write_parquet(&directory.join(format!("{}.parquet", table.name)))?;
    }
    Ok(())
}

fn load(directions: &[(&str, &DirectionReport)]) -> Table {
    let (mut names, mut times) = (Vec::new(), Vec::new());
    let mut sums: [Vec<i64>; 4] = Default::default();
    for (name, report) in directions {
        let bins = [
            &report.offered_bins,
            &report.carried_bins,
            &report.backlog_bins,
            &report.offered_packet_bins,
        ];
        let used = bins.map(|bins| bins.as_slice().len()).into_iter().max();
        for at in 0..used.unwrap_or(0) {
            names.push((*name).to_owned());
            times.push(signed(at as u64 * bins[0].bin_ns));
            for (column, bins) in sums.iter_mut().zip(bins) {
                column.push(bins.as_slice().get(at).map_or(0, |sum| i64::from(*sum)));
            }
        }
    }
    let [offered, carried, backlog, packets] = sums.map(Column::Number);
    Table {
        name: "load",
        columns: vec![
            ("direction", Column::Text(names)),
            ("time_ns", Column::Number(times)),
            ("offered_bytes", offered),
            ("carried_bytes", carried),
            ("backlog_bytes", backlog),
            ("offered_packets", packets),
        ],
    }
}

fn drops(directions: &[(&str, &DirectionReport)]) -> Table {
    let mut texts: [Vec<String>; 4] = Default::default();
    let mut numbers: [Vec<i64>; 3] = Default::default();
    for (name, report) in directions {
        for drop in &report.drops {
            let (protocol, source, destination) = match drop.flow {
                Some(flow) => (
                    flow.protocol,
                    flow.source.to_string(),
                    flow.destination.to_string(),
                ),
                None => (0, String::new(), String::new()),
            };
            let cause = match drop.cause {
                Cause::BufferFull => "buffer",
                Cause::Policer => "policer",
                Cause::Red => "red",
                Cause::Codel => "codel",
                Cause::Line => "line",
            };
            let row = [(*name).to_owned(), cause.to_owned(), source, destination];
            texts
                .iter_mut()
                .zip(row)
                .for_each(|(column, text)| column.push(text));
            let row = [
                signed(drop.at_ns),
                i64::from(drop.size),
                i64::from(protocol),
            ];
            numbers
                .iter_mut()
                .zip(row)
                .for_each(|(column, number)| column.push(number));
        }
    }
    let [direction, cause, source, destination] = texts.map(Column::Text);
    let [time, size, protocol] = numbers.map(Column::Number);
    Table {
        name: "drops",
        columns: vec![
            ("direction", direction),
            ("time_ns", time),
            ("cause", cause),
            ("frame_bytes", size),
            ("protocol", protocol),
            ("source", source),
            ("destination", destination),
        ],
    }
}

/// Nanoseconds of a run: three centuries fit.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Column::Text(values) => values.len(),
            Column::Number(values) => values.len(),
        }
    }

    fn field(&self, row: usize) -> String {
        match self {
            Column::Text(values) => values[row].clone(),
            Column::Number(values) => values[row].to_string(),
        }
    }
}

impl Table {
    fn write_csv(&self, path: &Path) -> Result<(), RecordError> {
        let mut writer = csv::Writer::from_path(path)?;
        writer.write_record(self.columns.iter().map(|(name, _)| *name))?;
        for row in 0..self.columns.first().map_or(0, |(_, column)| column.len()) {
            writer.write_record(self.columns.iter().map(|(_, column)| column.field(row)))?;
        }
        writer.flush()?;
        Ok(())
    }

    fn write_parquet(&self, path: &Path) -> Result<(), RecordError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .build();
        let mut file =
            SerializedFileWriter::new(File::create(path)?, self.schema()?, Arc::new(properties))?;
        let mut group = file.next_row_group()?;
        for (_, column) in &self.columns {
            let mut writer = group
                .next_column()?
                .ok_or_else(|| ParquetError::General("a column less than the schema".to_owned()))?;
            match column {
                Column::Number(values) => {
                    writer
                        .typed::<Int64Type>()
                        .write_batch(values, None, None)?;
                }
                Column::Text(values) => {
                    let values: Vec<ByteArray> =
                        values.iter().map(|text| text.as_str().into()).collect();
                    writer
                        .typed::<ByteArrayType>()
                        .write_batch(&values, None, None)?;
                }
            }
            writer.close()?;
        }
        group.close()?;
        file.close()?;
        Ok(())
    }

    fn schema(&self) -> Result<Arc<Type>, ParquetError> {
        let fields = self.columns.iter().map(|(name, column)| {
            let field = match column {
                Column::Number(_) => Type::primitive_type_builder(name, Physical::INT64),
                Column::Text(_) => Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                    .with_logical_type(Some(LogicalType::String)),
            };
            field
                .with_repetition(Repetition::REQUIRED)
                .build()
                .map(Arc::new)
        });
        Type::group_type_builder(self.name)
            .with_fields(fields.collect::<Result<_, _>>()?)
            .build()
            .map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;
    use crate::statistics::{Bins, Drop};
    use crate::BIN_NS;

    #[test]
    fn both_formats_hold_what_was_recorded() {
        let mut report = Report::default();
        report.reverse.carried_bins = Bins::new(3 * BIN_NS, BIN_NS);
        report.reverse.offered_bins = Bins::new(3 * BIN_NS, BIN_NS);
        report.reverse.offered_packet_bins = Bins::new(3 * BIN_NS, BIN_NS);
        report.reverse.offered_bins.add(0, 100);
        report.reverse.offered_packet_bins.add(0, 1);
        report.reverse.carried_bins.add(BIN_NS, 70);
        report.forward.drops = vec![Drop::new(1_500, Cause::Red, 60, b"no packet")];
        let place = tempfile::tempdir().unwrap();
        write(&report, place.path()).unwrap();

        let text = |name| std::fs::read_to_string(place.path().join(name)).unwrap();
        assert_eq!(
            text("load.csv"),
            "direction,time_ns,offered_bytes,carried_bytes,backlog_bytes,offered_packets\n\
             reverse,0,100,0,0,1\nreverse,1000000,0,70,0,0\n"
        );
        assert_eq!(
            text("drops.csv"),
            "direction,time_ns,cause,frame_bytes,protocol,source,destination\n\
             forward,1500,red,60,0,,\n"
        );
        let file = File::open(place.path().join("load.parquet")).unwrap();
        let rows: Vec<_> = SerializedFileReader::new(file)
            .unwrap()
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap())
            .map(|row| {
                (
                    row.get_string(0).unwrap().clone(),
                    row.get_long(1).unwrap(),
                    row.get_long(3).unwrap(),
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("reverse".to_owned(), 0, 0),
                ("reverse".to_owned(), 1_000_000, 70)
            ]
        );
    }
}
