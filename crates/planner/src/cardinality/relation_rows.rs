//! Rows of the relations that joins read, and distinct values of their columns.
//!
//! With the histograms of ANALYZE a filter is estimated by these. Without, by the minimum, maximum and number
//! of rows that files have, and by constants where these do not help: DataFusion's own constant for any other
//! condition is a fifth of the rows, by which `keyword = 'sequel'` looks like a large relation.
//!
//! ```text
//! FilterExec: d BETWEEN '1995-01-01' AND '1996-01-01' AND kind = 'x'
//!   DataSourceExec: 1 000 000 rows, d from 1992-01-01 to 1999-01-01
//!
//!     ─►  1 000 000 × 1/7 × 1/√1 000 000
//! ```
//!
//! Constants as in System R: P. G. Selinger et al., "Access Path Selection in a Relational Database
//! Management System", SIGMOD 1979.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::memory::DataSourceExec;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use harrier_exec::data_files::LiveRowsExec;

use super::filter_selectivity;

/// The selectivity of a comparison with a value by <, ≤, > or ≥.
const RANGE_SHARE: f64 = 1.0 / 3.0;

/// The selectivity of BETWEEN and other pairs of bounds.
const RANGE_SHARE_MIN: f64 = 1e-4;

/// The selectivity of LIKE.
const LIKE_SHARE: f64 = 0.05;

/// The selectivity of any other condition.
const OTHER_SHARE: f64 = 0.2;

/// The share of rows in which a column is NULL.
const NULL_SHARE: f64 = 0.03;

/// The selectivity of `column = 'text'`, of which nothing is known, at least and at most.
const TEXT_SHARE: (f64, f64) = (0.002, 0.2);

/// An estimate of a relation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelationSize {
    /// Rows after its filters.
    pub rows: f64,
    /// Rows of the table before filters; those of `rows` if it is not a table.
    pub base_rows: f64,
}

/// Estimates the rows of a relation; `None`: its size is unknown.
pub fn estimate(plan: &Arc<dyn ExecutionPlan>) -> Option<RelationSize> {
    let rows = rows(plan)?;
    let table = (0..plan.schema().fields().len()).find_map(|column| table_column(plan, column));
    let table_rows = table.and_then(|table| row_count(&*statistics(&table.scan)?));
    Some(RelationSize { rows, base_rows: table_rows.unwrap_or(rows).max(rows) })
}

/// Estimates the distinct values of an output column in the table that it is from, before filters; `None` if
/// nothing is known.
pub fn distinct(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<f64> {
    let table = table_column(plan, column)?;
    if let Some(distinct) = filter_selectivity::distinct(&table.scan, table.column) {
        return Some(distinct);
    }
    let statistics = statistics(&table.scan)?;
    distinct_in(&statistics, table.column, row_count(&statistics)?)
}

/// A column of a scan.
struct TableColumn {
    scan: Arc<dyn ExecutionPlan>,
    column: usize,
}

/// The scan's column that an output column is, below operators that keep values.
fn table_column(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<TableColumn> {
    if plan.is::<DataSourceExec>() {
        return Some(TableColumn { scan: Arc::clone(plan), column });
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let column = match filter.projection().as_ref() {
            Some(kept) => *kept.get(column)?,
            None => column,
        };
        return table_column(filter.input(), column);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return table_column(projection.input(), column_of(&projection.expr().get(column)?.expr)?);
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let (group, _) = aggregate.group_expr().expr().get(column)?;
        return table_column(aggregate.input(), column_of(group)?);
    }
    let [child] = plan.children()[..] else { return None };
    if plan.is::<LiveRowsExec>() {
        return table_column(child, child.schema().index_of(plan.schema().field(column).name()).ok()?);
    }
    (plan.schema() == child.schema()).then(|| table_column(child, column)).flatten()
}

fn statistics(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<Statistics>> {
    Some(Arc::clone(filter_selectivity::estimate(plan).ok()?.base_arc()))
}

fn row_count(statistics: &Statistics) -> Option<f64> {
    statistics.num_rows.get_value().map(|rows| *rows as f64)
}

fn rows(plan: &Arc<dyn ExecutionPlan>) -> Option<f64> {
    let rows = if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        filtered_rows(plan, filter)?
    } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        rows(projection.input())?
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        group_count(aggregate)?
    } else if plan.is::<UnionExec>() {
        plan.children().into_iter().map(rows).sum::<Option<f64>>()?
    } else {
        let known = statistics(plan).as_deref().and_then(row_count);
        match (known, &plan.children()[..]) {
            (Some(rows), _) => rows,
            (None, [child]) => rows(child)?,
            (None, _) => return None,
        }
    };
    let rows = plan.fetch().map_or(rows, |limit| rows.min(limit as f64));
    Some(rows.max(1.0))
}

fn filtered_rows(plan: &Arc<dyn ExecutionPlan>, filter: &FilterExec) -> Option<f64> {
    let input = filter.input();
    let below = rows(input)?;
    if filter_selectivity::has_histograms(input) {
        return statistics(plan).as_deref().and_then(row_count);
    }
    let width = input.schema().fields().len();
    let table = (0..width).find_map(|column| table_column(input, column));
    let table = table.and_then(|table| statistics(&table.scan));
    let conditions = Conditions { input, statistics: table.as_deref() };
    Some(below * conditions.share(filter.predicate()))
}

/// The groups of an aggregate: at most the product of the keys' distinct values.
fn group_count(aggregate: &AggregateExec) -> Option<f64> {
    let below = rows(aggregate.input())?;
    let keys = aggregate.group_expr().expr();
    if keys.is_empty() {
        return Some(1.0);
    }
    let key = |(key, _): &(Arc<dyn PhysicalExpr>, String)| {
        column_of(key).and_then(|column| distinct(aggregate.input(), column)).unwrap_or(below.sqrt())
    };
    Some(keys.iter().map(key).product::<f64>().min(below))
}

/// The column that an expression is, possibly cast.
fn column_of(expression: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    match expression.downcast_ref::<CastExpr>() {
        Some(cast) => column_of(cast.expr()),
        None => Some(expression.downcast_ref::<Column>()?.index()),
    }
}

fn value_of(expression: &Arc<dyn PhysicalExpr>) -> Option<&ScalarValue> {
    Some(expression.downcast_ref::<Literal>()?.value())
}

fn number(value: &ScalarValue) -> Option<f64> {
    let wide = match value {
        ScalarValue::Date32(Some(days)) => return Some(f64::from(*days)),
        ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::LargeUtf8(_) => return None,
        value => value.cast_to(&DataType::Float64).ok()?,
    };
    match wide {
        ScalarValue::Float64(number) => number,
        _ => None,
    }
}

/// The distinct values of a table's column; `None` if neither their number nor their range is known.
fn distinct_in(statistics: &Statistics, column: usize, rows: f64) -> Option<f64> {
    let column = statistics.column_statistics.get(column)?;
    if let Some(distinct) = column.distinct_count.get_value() {
        return Some((*distinct as f64).clamp(1.0, rows.max(1.0)));
    }
    let (min, max) = (column.min_value.get_value()?, column.max_value.get_value()?);
    let is_discrete = min.data_type().is_integer() || min.data_type() == DataType::Date32;
    let (min, max) = (number(min)?, number(max)?);
    is_discrete.then(|| (max - min + 1.0).clamp(1.0, rows.max(1.0)))
}

/// The conditions of a filter on a table without histograms.
struct Conditions<'a> {
    input: &'a Arc<dyn ExecutionPlan>,
    /// Of the table; `None`: the input is no table.
    statistics: Option<&'a Statistics>,
}

/// The part of a column's range that bounds leave, from 0 to 1.
struct Range {
    low: f64,
    high: f64,
}

impl Conditions<'_> {
    /// The selectivity of a condition, those of a conjunction being independent but for bounds of one column.
    fn share(&self, condition: &Arc<dyn PhysicalExpr>) -> f64 {
        let mut ranges: BTreeMap<usize, Range> = BTreeMap::new();
        let mut share = 1.0;
        for condition in split_conjunction(condition) {
            match self.range(condition) {
                Some((column, range)) => {
                    let known = ranges.entry(column).or_insert(Range { low: 0.0, high: 1.0 });
                    known.low = known.low.max(range.low);
                    known.high = known.high.min(range.high);
                }
                None => share *= self.single(condition),
            }
        }
        ranges.values().fold(share, |share, range| share * (range.high - range.low).max(RANGE_SHARE_MIN))
    }

    fn single(&self, condition: &Arc<dyn PhysicalExpr>) -> f64 {
        if let Some(binary) = condition.downcast_ref::<BinaryExpr>() {
            return self.binary(binary);
        }
        if let Some(list) = condition.downcast_ref::<InListExpr>() {
            let any = (self.equal(column_of(list.expr())) * list.list().len() as f64).min(0.5);
            return if list.negated() { 1.0 - any } else { any };
        }
        if let Some(like) = condition.downcast_ref::<LikeExpr>() {
            return if like.negated() { 1.0 - LIKE_SHARE } else { LIKE_SHARE };
        }
        if condition.is::<IsNullExpr>() {
            return NULL_SHARE;
        }
        if condition.is::<IsNotNullExpr>() {
            return 1.0 - NULL_SHARE;
        }
        match (condition.downcast_ref::<NotExpr>(), value_of(condition)) {
            (Some(not), _) => 1.0 - self.share(not.arg()),
            (None, Some(value)) => f64::from(*value == ScalarValue::Boolean(Some(true))),
            _ => OTHER_SHARE,
        }
    }

    fn binary(&self, binary: &BinaryExpr) -> f64 {
        let column = column_of(binary.left()).or_else(|| column_of(binary.right()));
        match binary.op() {
            Operator::And => self.share(binary.left()) * self.share(binary.right()),
            Operator::Or => (self.share(binary.left()) + self.share(binary.right())).min(1.0),
            Operator::Eq | Operator::IsNotDistinctFrom => self.equal(column),
            Operator::NotEq | Operator::IsDistinctFrom => 1.0 - self.equal(column),
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => RANGE_SHARE,
            _ => OTHER_SHARE,
        }
    }

    /// The selectivity of an equality with a value.
    fn equal(&self, column: Option<usize>) -> f64 {
        let Some((statistics, table)) = self.statistics.zip(self.table_column(column)) else {
            return OTHER_SHARE;
        };
        let Some(rows) = row_count(statistics) else { return OTHER_SHARE };
        match distinct_in(statistics, table, rows) {
            Some(distinct) => 1.0 / distinct,
            // A small table has few values, a large one more.
            None => (1.0 / rows.max(1.0).sqrt()).clamp(TEXT_SHARE.0, TEXT_SHARE.1),
        }
    }

    fn table_column(&self, column: Option<usize>) -> Option<usize> {
        table_column(self.input, column?).map(|table| table.column)
    }

    /// The part of the column's range that a comparison with a value leaves.
    fn range(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<(usize, Range)> {
        let binary = condition.downcast_ref::<BinaryExpr>()?;
        let (column, operator, value) = match (value_of(binary.right()), value_of(binary.left())) {
            (Some(value), None) => (binary.left(), *binary.op(), value),
            (None, Some(value)) => (binary.right(), binary.op().swap()?, value),
            _ => return None,
        };
        let table = self.table_column(column_of(column))?;
        let known = self.statistics?.column_statistics.get(table)?;
        let (min, max) = (number(known.min_value.get_value()?)?, number(known.max_value.get_value()?)?);
        if max <= min {
            return None;
        }
        let at = ((number(value)? - min) / (max - min)).clamp(0.0, 1.0);
        let range = match operator {
            Operator::Lt | Operator::LtEq => Range { low: 0.0, high: at },
            Operator::Gt | Operator::GtEq => Range { low: at, high: 1.0 },
            _ => return None,
        };
        Some((table, range))
    }
}
