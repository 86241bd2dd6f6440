//! Table statistics for the planner: bounds and counts from files, and results of ANALYZE.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, StringArray};
use datafusion::arrow::compute::{SortOptions, sort_limit};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::error::Result;
use harrier_catalog::state::Column;
use harrier_catalog::types::ColumnType;
use harrier_catalog::{Analysis, StatsRef};
use harrier_functions::parse::text_array::parse_array;
use harrier_planner::cardinality::histogram::{ColumnHistogram, CurrentStatistics};

use crate::types::columns::{has_stats, type_of};
use crate::warehouse::table::prune::Candidates;
use crate::warehouse::table::scanned_file::{ScannedFile, StatsByFile};

/// The statistics of a scan: all columns of its files, and the file column if there is one.
pub(crate) fn statistics_of(
    files: &[ScannedFile],
    stats: &StatsByFile,
    columns: &[Column],
    rows: i64,
    by_row: bool,
    all_live: bool,
) -> Result<Statistics> {
    let mut column_statistics = Vec::with_capacity(columns.len() + 1);
    for column in columns {
        column_statistics.push(column_statistics_of(files, stats, column)?);
    }
    if by_row {
        column_statistics.push(ColumnStatistics::new_unknown());
    }
    let bytes: i64 = files.iter().map(|file| file.bytes).sum();
    Ok(Statistics {
        num_rows: if all_live { Precision::Exact(rows as usize) } else { Precision::Inexact(rows as usize) },
        total_byte_size: Precision::Inexact(bytes as usize),
        column_statistics,
    })
}

fn column_statistics_of(
    files: &[ScannedFile],
    stats: &StatsByFile,
    column: &Column,
) -> Result<ColumnStatistics> {
    let mut known = ColumnStatistics::new_unknown();
    if !has_stats(column) {
        return Ok(known);
    }
    let all: Option<Vec<StatsRef<'_>>> = files.iter().map(|file| stats.get(file, column.id)).collect();
    let Some(all) = all else {
        return Ok(known);
    };
    if let Some(nulls) = all.iter().map(|stats| stats.nulls).sum::<Option<i64>>() {
        known.null_count = Precision::Inexact(nulls as usize);
    }
    // UUIDs are scanned as bytes, unlike the bounds.
    if column.kind == ColumnType::Uuid {
        return Ok(known);
    }
    let kind = type_of(column, false)?;
    if let Some(min) = first_of(all.iter().filter_map(|stats| stats.min), &kind, false, false)? {
        known.min_value = Precision::Inexact(min);
    }
    if let Some(max) = first_of(all.iter().filter_map(|stats| stats.max), &kind, true, false)? {
        known.max_value = Precision::Inexact(max);
    }
    Ok(known)
}

/// The minimum or maximum of values in text form. `None` if there are no values; also if a text is not a
/// value of this type, unless `leaves_out` skips such texts.
fn first_of<'a>(
    texts: impl Iterator<Item = &'a str>,
    kind: &DataType,
    greatest: bool,
    leaves_out: bool,
) -> Result<Option<ScalarValue>> {
    let values = parse_array(&texts.map(Some).collect::<StringArray>(), kind)?;
    if values.null_count() == values.len() || !leaves_out && values.null_count() > 0 {
        return Ok(None);
    }
    let options = SortOptions { descending: greatest, nulls_first: false };
    let first = sort_limit(&values, Some(options), Some(1))?;
    let value = (!first.is_empty()).then(|| ScalarValue::try_from_array(&first, 0)).transpose()?;
    Ok(value.filter(|value| !value.is_null()))
}

/// A column with at least nine distinct values in ten is assumed to have new values in new rows.
const UNIQUE_TENTHS: i64 = 9;

/// Adds results of ANALYZE to the statistics of a scan of `rows` rows, which may differ from the number that
/// ANALYZE saw.
pub(crate) fn add_analysis(statistics: &mut Statistics, columns: &[Column], rows: i64, analysis: &Analysis) {
    for (column, known) in columns.iter().zip(&mut statistics.column_statistics) {
        let Some(found) = analysis.columns.get(&column.id) else { continue };
        known.distinct_count =
            Precision::Inexact(scale_distinct(found.distinct, analysis.rows, rows) as usize);
        if let Some(bytes) = found.mean_bytes {
            known.byte_size = Precision::Inexact((bytes * rows) as usize);
        }
    }
}

/// The value distributions of columns with histograms in `analysis`. `rows`: of the table now; `statistics`:
/// of the scanned files, with `columns`; `of_all`: bounds of columns in all files, if more files exist.
pub(crate) fn distributions(
    statistics: &Statistics,
    of_all: Option<&Candidates<'_>>,
    columns: &[Column],
    rows: i64,
    analysis: &Analysis,
) -> Result<BTreeMap<String, Arc<ColumnHistogram>>> {
    let mut spreads = BTreeMap::new();
    for (column, known) in columns.iter().zip(&statistics.column_statistics) {
        let Some(found) = analysis.columns.get(&column.id) else { continue };
        let Some(histogram) = &found.histogram else { continue };
        let newer = (rows - analysis.rows).max(0) as f64 / rows.max(1) as f64;
        let (min, max) = match of_all.filter(|_| newer > 0.0) {
            Some(all) => least_and_greatest(all, column)?,
            None => (known.min_value.get_value().cloned(), known.max_value.get_value().cloned()),
        };
        let now = CurrentStatistics {
            min,
            max,
            distinct: scale_distinct(found.distinct, analysis.rows, rows) as f64,
            newer,
        };
        let nulls = found.nulls as f64 / analysis.rows.max(1) as f64;
        let spread = ColumnHistogram::new(
            &histogram.common,
            &histogram.bounds,
            &type_of(column, false)?,
            nulls,
            &now,
        )?;
        spreads.insert(column.name.clone(), Arc::new(spread));
    }
    Ok(spreads)
}

/// The minimum and maximum of a column over all files.
fn least_and_greatest(
    all: &Candidates<'_>,
    column: &Column,
) -> Result<(Option<ScalarValue>, Option<ScalarValue>)> {
    let kind = type_of(column, false)?;
    let of_column = || all.stats.get(&column.id).into_iter().flatten().flatten();
    let least = first_of(of_column().filter_map(|stats| stats.min), &kind, false, true)?;
    let greatest = first_of(of_column().filter_map(|stats| stats.max), &kind, true, true)?;
    Ok((least, greatest))
}

/// The expected number of distinct values in `rows` rows, given `distinct` in `seen`.
fn scale_distinct(distinct: i64, seen: i64, rows: i64) -> i64 {
    let is_unique = distinct * 10 >= seen * UNIQUE_TENTHS && seen > 0;
    let expected = match is_unique {
        true => (i128::from(distinct) * i128::from(rows) / i128::from(seen)) as i64,
        false => distinct,
    };
    expected.min(rows).max(1.min(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_counts_follow_the_rows() {
        // Key columns grow with the table, category columns do not.
        assert_eq!(scale_distinct(100, 100, 1000), 1000);
        assert_eq!(scale_distinct(95, 100, 200), 190);
        assert_eq!(scale_distinct(5, 100, 1000), 5);
        assert_eq!(scale_distinct(5, 100, 3), 3);
        assert_eq!(scale_distinct(0, 0, 10), 1);
        assert_eq!(scale_distinct(7, 10, 0), 0);
    }
}
