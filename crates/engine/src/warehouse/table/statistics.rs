//! What planning is told of a table: bounds and counts that files came with, and what ANALYZE has found out.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::{SortOptions, cast as arrow_cast, sort_limit};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::stats::Precision;
use datafusion::common::{
    Column as Named, ColumnStatistics, ScalarValue, Statistics, internal_datafusion_err,
};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::functions::encoding::expr_fn::encode;
use datafusion::functions::string::expr_fn::octet_length;
use datafusion::functions::unicode::expr_fn::substring;
use datafusion::functions_aggregate::expr_fn::{approx_distinct, avg, count};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit};
use harrier_catalog::state::{Column, SnapshotId, Table};
use harrier_catalog::types::ColumnType;
use harrier_catalog::{Analysis, ColumnAnalysis, StatsRef};
use harrier_error::{SqlError, SqlState};
use harrier_functions::aggregate::reservoir_sample;
use harrier_functions::parse::text_array::parse_array;
use harrier_sqlstate::IntoDataFusionError;

use crate::types::columns::{has_stats, type_of};
use crate::warehouse::table::prune::Candidates;
use crate::warehouse::table::{ScannedFile, StatsByFile, WarehouseTable};
use harrier_planner::cardinality::histogram::{CHARACTERS_MAX, Now, Sorted, Spread, is_ordered};

/// What planning may expect of a scan: all columns of its files, and the column with the file if there is
/// one.
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
    // Of UUIDs, those of what is read are bytes.
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

/// The least of some values that are written as texts, or the greatest. `None`: there is none; or some are no
/// values of this kind, unless those are to be left out.
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

/// A column in which at least nine of ten values are different has new ones in new rows.
const UNIQUE_TENTHS: i64 = 9;

/// Adds what ANALYZE has found to the statistics of a scan of `rows` rows, which may be more or fewer than it
/// saw.
pub(crate) fn add_found(statistics: &mut Statistics, columns: &[Column], rows: i64, analysis: &Analysis) {
    for (column, known) in columns.iter().zip(&mut statistics.column_statistics) {
        let Some(found) = analysis.columns.get(&column.id) else { continue };
        known.distinct_count = Precision::Inexact(scaled(found.distinct, analysis.rows, rows) as usize);
        if let Some(bytes) = found.mean_bytes {
            known.byte_size = Precision::Inexact((bytes * rows) as usize);
        }
    }
}

/// How the columns of a table are spread whose histograms `analysis` has. `rows`: of the table now;
/// `statistics`: of the files that are scanned, `columns` those that they have; `of_all`: the bounds of
/// columns in all files, if these are more.
pub(crate) fn spreads(
    statistics: &Statistics,
    of_all: Option<&Candidates<'_>>,
    columns: &[Column],
    rows: i64,
    analysis: &Analysis,
) -> Result<BTreeMap<String, Arc<Spread>>> {
    let mut spreads = BTreeMap::new();
    for (column, known) in columns.iter().zip(&statistics.column_statistics) {
        let Some(found) = analysis.columns.get(&column.id) else { continue };
        let Some(histogram) = &found.histogram else { continue };
        let newer = (rows - analysis.rows).max(0) as f64 / rows.max(1) as f64;
        let (min, max) = match of_all.filter(|_| newer > 0.0) {
            Some(all) => least_and_greatest(all, column)?,
            None => (known.min_value.get_value().cloned(), known.max_value.get_value().cloned()),
        };
        let now = Now { min, max, distinct: scaled(found.distinct, analysis.rows, rows) as f64, newer };
        let nulls = found.nulls as f64 / analysis.rows.max(1) as f64;
        let spread =
            Spread::new(&histogram.common, &histogram.bounds, &type_of(column, false)?, nulls, &now)?;
        spreads.insert(column.name.clone(), Arc::new(spread));
    }
    Ok(spreads)
}

/// The least and the greatest value of a column in any file.
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

/// Different values in `rows` rows where there were `distinct` in `seen`.
fn scaled(distinct: i64, seen: i64, rows: i64) -> i64 {
    let is_unique = distinct * 10 >= seen * UNIQUE_TENTHS && seen > 0;
    let expected = match is_unique {
        true => (i128::from(distinct) * i128::from(rows) / i128::from(seen)) as i64,
        false => distinct,
    };
    expected.min(rows).max(1.min(rows))
}

/// What ANALYZE asks about a column.
struct Question<'a> {
    column: &'a Column,
    kind: DataType,
}

impl Question<'_> {
    /// Whether its values differ in size.
    fn varies(&self) -> bool {
        self.kind.is_string() || self.kind.is_binary()
    }

    /// Its different values, its values, a sample of them, and their mean size if they differ in it.
    fn answers(&self) -> Vec<Expr> {
        let value = || Expr::Column(Named::new_unqualified(&self.column.name));
        let text = || match self.kind.is_binary() {
            true => encode(value(), lit("hex")),
            false => cast(value(), DataType::Utf8View),
        };
        // Of other types it keeps no sketch: they are counted by their texts.
        let is_sketched = self.kind.is_integer() || self.kind.is_string() || self.kind == DataType::Date32;
        let counted = if is_sketched { value() } else { text() };
        let sampled = match is_ordered(&self.kind) && !self.kind.is_string() {
            true => value(),
            false => substring(text(), lit(1_i64), lit(CHARACTERS_MAX as i64)),
        };
        let mut answers =
            vec![approx_distinct(counted), count(value()), reservoir_sample::sample().call(vec![sampled])];
        if self.varies() {
            let bytes = cast(octet_length(text()), DataType::Float64);
            answers.push(avg(if self.kind.is_binary() { bytes / lit(2.0) } else { bytes }));
        }
        answers
    }
}

/// An ANALYZE of one table: the query that looks at it, and what its answer says.
pub(crate) struct Looking<'a> {
    questions: Vec<Question<'a>>,
}

impl<'a> Looking<'a> {
    /// At the columns of these names, or at all if there are none.
    ///
    /// Errors: there is no such column (42703).
    pub(crate) fn at(table: &'a Table, names: &[String]) -> Result<Self> {
        if let Some(unknown) = names.iter().find(|name| !table.columns.iter().any(|own| own.name == **name)) {
            let message = format!("column \"{unknown}\" of relation \"{}\" does not exist", table.name);
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message).into_datafusion());
        }
        let is_asked = |column: &&Column| names.is_empty() || names.contains(&column.name);
        let mut questions = Vec::new();
        for column in table.columns.iter().filter(|column| !column.kind.is_nested()).filter(is_asked) {
            questions.push(Question { column, kind: type_of(column, false)? });
        }
        Ok(Self { questions })
    }

    /// One row: the number of rows, then the answers about each column.
    pub(crate) fn query(&self, table: Arc<WarehouseTable>) -> Result<LogicalPlan> {
        let answers = self.questions.iter().flat_map(Question::answers);
        let all = std::iter::once(count(lit(1_i64))).chain(answers).enumerate();
        let named: Vec<Expr> = all.map(|(at, answer)| answer.alias(format!("c{at}"))).collect();
        let scan = LogicalPlanBuilder::scan("analyzed", provider_as_source(table), None)?;
        scan.aggregate(Vec::<Expr>::new(), named)?.build()
    }

    /// `total`: the rows of the table, if only some of them were looked at; `None`: of those there were none.
    pub(crate) fn analysis(
        &self,
        answer: &RecordBatch,
        snapshot: SnapshotId,
        total: Option<i64>,
    ) -> Result<Option<Analysis>> {
        let mut answers = answer.columns().iter();
        let mut next = || answers.next().ok_or_else(|| internal_datafusion_err!("ANALYZE lacks an answer"));
        let seen = whole(next()?)?;
        if seen == 0 && total.is_some() {
            return Ok(None);
        }
        let rows = total.unwrap_or(seen);
        let mut columns = BTreeMap::new();
        for question in &self.questions {
            let sketched = whole(next()?)?;
            let seen_values = whole(next()?)?;
            let values = match seen {
                0 => 0,
                seen => (i128::from(seen_values) * i128::from(rows) / i128::from(seen)) as i64,
            };
            let sample = next()?.as_list::<i32>().value(0);
            let mean = match question.varies() {
                true => mean_of(next()?)?,
                false => None,
            };
            let is_all = sample.len() as i64 >= values;
            let sorted = Sorted::of(&sample)?;
            let distinct = match total.is_some() || is_all && !sorted.has_cut() {
                true => sorted.distinct(values),
                false => sketched.min(values),
            };
            let histogram = match is_ordered(&question.kind) && !sample.is_empty() {
                true => sorted.histogram(is_all, values as f64 / rows.max(1) as f64)?,
                false => None,
            };
            let histogram = histogram
                .map(|found| harrier_catalog::Histogram { common: found.common, bounds: found.bounds });
            let found = ColumnAnalysis { distinct, nulls: rows - values, mean_bytes: mean, histogram };
            columns.insert(question.column.id, found);
        }
        Ok(Some(Analysis { snapshot, rows, columns }))
    }
}

fn whole(answer: &ArrayRef) -> Result<i64> {
    Ok(arrow_cast(answer, &DataType::Int64)?.as_primitive::<Int64Type>().value(0))
}

fn mean_of(answer: &ArrayRef) -> Result<Option<i64>> {
    let mean = arrow_cast(answer, &DataType::Float64)?;
    let mean = mean.as_primitive::<Float64Type>();
    Ok(mean.is_valid(0).then(|| mean.value(0).round() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_counts_follow_the_rows() {
        // Keys grow with the table, kinds do not.
        assert_eq!(scaled(100, 100, 1000), 1000);
        assert_eq!(scaled(95, 100, 200), 190);
        assert_eq!(scaled(5, 100, 1000), 5);
        assert_eq!(scaled(5, 100, 3), 3);
        assert_eq!(scaled(0, 0, 10), 1);
        assert_eq!(scaled(7, 10, 0), 0);
    }
}
