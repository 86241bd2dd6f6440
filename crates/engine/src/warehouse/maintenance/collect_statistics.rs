//! ANALYZE of one table: the aggregate query, and the statistics computed from its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast as arrow_cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{Column as Named, internal_datafusion_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::functions::encoding::expr_fn::encode;
use datafusion::functions::string::expr_fn::octet_length;
use datafusion::functions::unicode::expr_fn::substring;
use datafusion::functions_aggregate::expr_fn::{approx_distinct, avg, count};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit};
use harrier_catalog::state::{Column, SnapshotId, Table};
use harrier_catalog::{Analysis, ColumnAnalysis};
use harrier_error::{SqlError, SqlState};
use harrier_functions::aggregate::reservoir_sample;
use harrier_planner::cardinality::histogram::{CHARACTERS_MAX, SortedSample, is_ordered};
use harrier_sqlstate::IntoDataFusionError;

use crate::types::columns::type_of;
use crate::warehouse::table::WarehouseTable;

/// The statistics of one column.
pub(crate) struct ColumnQuery<'a> {
    column: &'a Column,
    kind: DataType,
}

impl ColumnQuery<'_> {
    /// Whether its values have a variable size.
    fn varies(&self) -> bool {
        self.kind.is_string() || self.kind.is_binary()
    }

    /// Aggregates: distinct count, value count, a sample, and the mean size if the size is variable.
    fn aggregates(&self) -> Vec<Expr> {
        let value = || Expr::Column(Named::new_unqualified(&self.column.name));
        let text = || match self.kind.is_binary() {
            true => encode(value(), lit("hex")),
            false => cast(value(), DataType::Utf8View),
        };
        // The sketch supports these types only; values of others are counted by their text.
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

/// Collects the statistics of one table: builds the query and interprets its result.
pub(crate) struct StatisticsCollector<'a> {
    questions: Vec<ColumnQuery<'a>>,
}

impl<'a> StatisticsCollector<'a> {
    /// Collects statistics of the named columns, or of all if there are none.
    ///
    /// Errors: no such column (42703).
    pub(crate) fn new(table: &'a Table, names: &[String]) -> Result<Self> {
        if let Some(unknown) = names.iter().find(|name| !table.columns.iter().any(|own| own.name == **name)) {
            let message = format!("column \"{unknown}\" of relation \"{}\" does not exist", table.name);
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message).into_datafusion());
        }
        let is_asked = |column: &&Column| names.is_empty() || names.contains(&column.name);
        let mut questions = Vec::new();
        for column in table.columns.iter().filter(|column| !column.kind.is_nested()).filter(is_asked) {
            questions.push(ColumnQuery { column, kind: type_of(column, false)? });
        }
        Ok(Self { questions })
    }

    /// Builds the query. Its result is one row: the number of rows, then the aggregates of each column.
    pub(crate) fn query(&self, table: Arc<WarehouseTable>) -> Result<LogicalPlan> {
        let answers = self.questions.iter().flat_map(ColumnQuery::aggregates);
        let all = std::iter::once(count(lit(1_i64))).chain(answers).enumerate();
        let named: Vec<Expr> = all.map(|(at, answer)| answer.alias(format!("c{at}"))).collect();
        let scan = LogicalPlanBuilder::scan("analyzed", provider_as_source(table), None)?;
        scan.aggregate(Vec::<Expr>::new(), named)?.build()
    }

    /// Computes the statistics. `total`: the table's rows, if only a sample was read; `None` if the sample
    /// was empty.
    pub(crate) fn analysis(
        &self,
        answer: &RecordBatch,
        snapshot: SnapshotId,
        total: Option<i64>,
    ) -> Result<Option<Analysis>> {
        let mut answers = answer.columns().iter();
        let mut next = || answers.next().ok_or_else(|| internal_datafusion_err!("ANALYZE lacks an answer"));
        let seen = integer_of(next()?)?;
        if seen == 0 && total.is_some() {
            return Ok(None);
        }
        let rows = total.unwrap_or(seen);
        let mut columns = BTreeMap::new();
        for question in &self.questions {
            let sketched = integer_of(next()?)?;
            let seen_values = integer_of(next()?)?;
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
            let sorted = SortedSample::of(&sample)?;
            let distinct = match total.is_some() || is_all && !sorted.is_truncated() {
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

pub(crate) fn integer_of(answer: &ArrayRef) -> Result<i64> {
    Ok(arrow_cast(answer, &DataType::Int64)?.as_primitive::<Int64Type>().value(0))
}

pub(crate) fn mean_of(answer: &ArrayRef) -> Result<Option<i64>> {
    let mean = arrow_cast(answer, &DataType::Float64)?;
    let mean = mean.as_primitive::<Float64Type>();
    Ok(mean.is_valid(0).then(|| mean.value(0).round() as i64))
}
