//! What planning is told of a table: bounds and counts that files came with, and what ANALYZE has found out.

use std::collections::BTreeMap;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::error::Result;
use harrier_catalog::files::ColumnStats;
use harrier_catalog::state::{Column, ColumnId, SnapshotId, Table};
use harrier_catalog::{Analysis, ColumnAnalysis};
use harrier_exec::sqlstate::{CodedError, SqlState};

use super::table::{RowSource, ScannedFile};
use super::types::type_of;
use super::values;

/// What planning may expect of a scan: all columns of its files, and the column with the file if there is one.
pub(crate) fn statistics_of(
    files: &[ScannedFile],
    stats: &BTreeMap<(RowSource, ColumnId), ColumnStats>,
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
    stats: &BTreeMap<(RowSource, ColumnId), ColumnStats>,
    column: &Column,
) -> Result<ColumnStatistics> {
    let mut known = ColumnStatistics::new_unknown();
    let all: Option<Vec<&ColumnStats>> =
        files.iter().map(|file| stats.get(&(file.source, column.id))).collect();
    let Some(all) = all.filter(|_| !column.kind.is_nested()) else {
        return Ok(known);
    };
    if let Some(nulls) = all.iter().map(|stats| stats.nulls).sum::<Option<i64>>() {
        known.null_count = Precision::Inexact(nulls as usize);
    }
    let kind = type_of(column, false)?;
    let best =
        |pick: &dyn Fn(&ColumnStats) -> Option<&String>, greater: bool| -> Result<Option<ScalarValue>> {
            let mut best: Option<ScalarValue> = None;
            for text in all.iter().filter_map(|stats| pick(stats)) {
                let value = values::parse_one(text, &kind)?;
                if value.is_null() {
                    return Ok(None);
                }
                let better = match &best {
                    None => true,
                    Some(best) => {
                        value.partial_cmp(best).is_some_and(|order| order.is_gt() == greater && order.is_ne())
                    }
                };
                if better {
                    best = Some(value);
                }
            }
            Ok(best)
        };
    if let Some(min) = best(&|stats| stats.min.as_ref(), false)? {
        known.min_value = Precision::Inexact(min);
    }
    if let Some(max) = best(&|stats| stats.max.as_ref(), true)? {
        known.max_value = Precision::Inexact(max);
    }
    Ok(known)
}

/// A column in which at least nine of ten values are different has new ones in new rows.
const UNIQUE_TENTHS: i64 = 9;

/// Adds what ANALYZE has found to the statistics of a scan of `rows` rows, which may be more or fewer than it saw.
pub(crate) fn add_found(statistics: &mut Statistics, columns: &[Column], rows: i64, analysis: &Analysis) {
    for (column, known) in columns.iter().zip(&mut statistics.column_statistics) {
        let Some(found) = analysis.columns.get(&column.id) else { continue };
        known.distinct_count = Precision::Inexact(scaled(found.distinct, analysis.rows, rows) as usize);
        if let Some(bytes) = found.mean_bytes {
            known.byte_size = Precision::Inexact((bytes * rows) as usize);
        }
    }
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
    /// Whether its values differ in size.
    varies: bool,
}

/// An ANALYZE of one table: the query that looks at it, and what its answer says.
pub(crate) struct Looking<'a> {
    table: &'a Table,
    questions: Vec<Question<'a>>,
}

impl<'a> Looking<'a> {
    /// At the columns of these names, or at all if there are none.
    ///
    /// Errors: there is no such column (42703).
    pub(crate) fn at(table: &'a Table, names: &[String]) -> Result<Self> {
        if let Some(unknown) = names.iter().find(|name| !table.columns.iter().any(|own| own.name == **name)) {
            let message = format!("column \"{unknown}\" of relation \"{}\" does not exist", table.name);
            return Err(CodedError::new(SqlState::UNDEFINED_COLUMN, message).into());
        }
        let is_asked = |column: &&Column| names.is_empty() || names.contains(&column.name);
        let mut questions = Vec::new();
        for column in table.columns.iter().filter(|column| !column.kind.is_nested()).filter(is_asked) {
            let kind = type_of(column, false)?;
            questions.push(Question { column, varies: kind.is_string() || kind.is_binary() });
        }
        Ok(Self { table, questions })
    }

    /// One row: the number of rows, then for each column its different values, its values, and their mean size.
    pub(crate) fn query(&self, schema: &str) -> Result<String> {
        let mut expressions = vec!["count(*)".to_string()];
        for Question { column, varies } in &self.questions {
            let name = quoted(&column.name);
            // What the sketch does not take is counted by its text.
            let counted = match type_of(column, false)? {
                kind if kind.is_integer() || kind.is_string() || kind == DataType::Date32 => name.clone(),
                kind if kind.is_binary() => format!("encode({name}, 'hex')"),
                _ => format!("CAST({name} AS VARCHAR)"),
            };
            expressions.push(format!("approx_distinct({counted})"));
            expressions.push(format!("count({name})"));
            expressions.push(match (varies, type_of(column, false)?.is_binary()) {
                (true, true) => format!("avg(octet_length(encode({name}, 'hex'))) / 2"),
                (true, false) => format!("avg(octet_length({name}))"),
                (false, _) => "NULL::double".to_string(),
            });
        }
        let aliased: Vec<String> =
            expressions.iter().enumerate().map(|(at, expression)| format!("{expression} AS c{at}")).collect();
        Ok(format!("SELECT {} FROM {}.{}", aliased.join(", "), quoted(schema), quoted(&self.table.name)))
    }

    pub(crate) fn analysis(&self, answer: &RecordBatch, snapshot: SnapshotId) -> Result<Analysis> {
        let whole = |at: usize| -> Result<i64> {
            let value: ArrayRef = cast(answer.column(at), &DataType::Int64)?;
            Ok(value.as_primitive::<Int64Type>().value(0))
        };
        let rows = whole(0)?;
        let mut columns = BTreeMap::new();
        for (number, question) in self.questions.iter().enumerate() {
            let first = 1 + 3 * number;
            let values = whole(first + 1)?;
            let mean = cast(answer.column(first + 2), &DataType::Float64)?;
            let mean = mean.as_primitive::<Float64Type>();
            let found = ColumnAnalysis {
                distinct: whole(first)?.min(values),
                nulls: rows - values,
                mean_bytes: mean.is_valid(0).then(|| mean.value(0).round() as i64),
            };
            columns.insert(question.column.id, found);
        }
        Ok(Analysis { snapshot, rows, columns })
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
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
