//! Row count estimates for analyzed tables: DataFusion's estimates, with filter selectivity taken from column
//! histograms.
//!
//! A scan carries the histograms of its columns, attached to its files ([`ColumnHistograms`]). Operators that
//! keep columns pass them on; a filter consumes them. Join side and algorithm selection call [`registry`],
//! EXPLAIN calls [`rows`].
//!
//! Conditions on different columns count as independent, as in PostgreSQL. A condition on one column that is
//! not a comparison is evaluated on the sample values of the histogram.
//!
//! ```text
//! FilterExec: x < 10                    ─►  1000 rows × the share of values below 10 in the histogram of x
//!   DataSourceExec: 1000 rows, histogram of x
//! FilterExec: x < 10 AND y = 3  ─►  the product of the shares of both conditions
//! HashJoinExec and others       ─►  DataFusion's estimate from these
//! ```
//!
//! `Estimates` can go when DataFusion keeps histograms and estimates filters by them; technique: equi-depth
//! histograms as in PostgreSQL.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::memory::DataSourceExec;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::operator_statistics::{
    ExtendedStatistics, StatisticsProvider, StatisticsRegistry, StatisticsResult,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::union::UnionExec;
use harrier_exec::data_files::{LiveRowsExec, VisibleRowsExec};
use harrier_exec::monitor::slice_tree;

use super::histogram::{ColumnHistogram, Point};

/// The default selectivity of an inequality between two columns, as in PostgreSQL.
const INEQUALITY_SELECTIVITY: f64 = 1.0 / 3.0;

/// The histograms of a table's columns, attached to the first file of each of its scans.
#[derive(Debug)]
pub struct TableHistograms {
    /// By column name in the files.
    pub columns: BTreeMap<String, Arc<ColumnHistogram>>,
    /// Rows of the table for each row in the files that remain after file pruning.
    pub rows_per_scanned: f64,
}

/// The histograms of an operator's output columns.
#[derive(Debug, Clone)]
struct ColumnHistograms {
    columns: Vec<Option<Arc<ColumnHistogram>>>,
    rows_per_scanned: f64,
}

/// The statistics registry that join selection uses.
pub fn registry() -> StatisticsRegistry {
    StatisticsRegistry::with_providers(vec![Arc::new(Estimates)])
}

/// The estimated row count of `plan` over all ranks; `None`: unknown, or hidden by row-level security.
pub fn rows(plan: &Arc<dyn ExecutionPlan>) -> Option<u64> {
    let rows = estimate(plan).ok()?.base().num_rows.get_value().copied();
    rows.map(|rows| rows as u64).filter(|_| !plan.is::<VisibleRowsExec>())
}

/// Whether the filters above `plan` are estimated by histograms.
pub(super) fn has_histograms(plan: &Arc<dyn ExecutionPlan>) -> bool {
    estimate(plan).is_ok_and(|known| known.has_extension::<ColumnHistograms>())
}

/// The distinct values of an output column by its histogram; `None`: it has none.
pub(super) fn distinct(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<f64> {
    let known = estimate(plan).ok()?;
    let histogram = known.get_extension::<ColumnHistograms>()?.columns.get(column)?.clone();
    histogram.map(|histogram| histogram.distinct)
}

/// The statistics of `plan` over all ranks.
pub(super) fn estimate(plan: &Arc<dyn ExecutionPlan>) -> Result<ExtendedStatistics> {
    let plan = slice_tree::one_rank_plan(plan);
    let children = plan.children().into_iter().map(estimate).collect::<Result<Vec<_>>>()?;
    // A motion yields the rows of its input.
    if slice_tree::is_motion(&plan)
        && let [only] = children.as_slice()
    {
        return Ok(only.clone());
    }
    extended_statistics(plan.as_ref(), &children)
}

#[derive(Debug)]
struct Estimates;

impl StatisticsProvider for Estimates {
    fn compute_statistics(
        &self,
        plan: &dyn ExecutionPlan,
        children: &[ExtendedStatistics],
    ) -> Result<StatisticsResult> {
        Ok(StatisticsResult::Computed(extended_statistics(plan, children)?))
    }
}

fn extended_statistics(
    plan: &dyn ExecutionPlan,
    children: &[ExtendedStatistics],
) -> Result<ExtendedStatistics> {
    let base = base(plan, children)?;
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let known = children.first().and_then(|child| child.get_extension::<ColumnHistograms>());
        return Ok(match known {
            Some(known) => ExtendedStatistics::new(filter_statistics(filter, &children[0], &base, known)),
            None => ExtendedStatistics::new_arc(base),
        });
    }
    let mut extended = ExtendedStatistics::new_arc(base);
    if let Some(known) = column_histograms(plan, children) {
        extended.set_extension(known);
    }
    Ok(extended)
}

/// An operator's own statistics, from those of its inputs.
fn base(plan: &dyn ExecutionPlan, children: &[ExtendedStatistics]) -> Result<Arc<Statistics>> {
    let args = StatisticsArgs::new();
    let inputs = plan.child_stats_requests(None).into_iter().zip(plan.children()).zip(children);
    let inputs = inputs.map(|((request, child), known)| match request {
        ChildStats::At(None) => Ok(Arc::clone(known.base_arc())),
        ChildStats::At(partition) => {
            StatisticsContext::new().compute(child.as_ref(), &args.clone().with_partition(partition))
        }
        ChildStats::Skip => Ok(Arc::new(Statistics::new_unknown(child.schema().as_ref()))),
    });
    plan.statistics_from_inputs(&inputs.collect::<Result<Vec<_>>>()?, &args)
}

fn column_histograms(plan: &dyn ExecutionPlan, children: &[ExtendedStatistics]) -> Option<ColumnHistograms> {
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        let files = scan.data_source().downcast_ref::<FileScanConfig>()?;
        let mut files = files.file_groups.iter().flat_map(|group| group.files());
        let table = files.find_map(|file| file.extensions.get::<TableHistograms>())?;
        let schema = plan.schema();
        let columns = schema.fields().iter().map(|field| table.columns.get(field.name()).cloned());
        return Some(ColumnHistograms {
            columns: columns.collect(),
            rows_per_scanned: table.rows_per_scanned,
        });
    }
    let mut known = children.iter().filter_map(|child| child.get_extension::<ColumnHistograms>());
    let known = known.next()?;
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let columns = projection.expr().iter().map(|projected| {
            let column = projected.expr.downcast_ref::<Column>()?;
            known.columns.get(column.index()).cloned().flatten()
        });
        return Some(ColumnHistograms { columns: columns.collect(), ..*known });
    }
    if let Some(live) = plan.downcast_ref::<LiveRowsExec>() {
        let (from, to) = (live.children().first()?.schema(), plan.schema());
        let columns = to.fields().iter().map(|field| {
            let at = from.index_of(field.name()).ok()?;
            known.columns.get(at).cloned().flatten()
        });
        return Some(ColumnHistograms { columns: columns.collect(), ..*known });
    }
    // For a union of scans of one table: files and rows in memory.
    let keeps_rows =
        plan.is::<RepartitionExec>() || plan.is::<CoalescePartitionsExec>() || plan.is::<UnionExec>();
    keeps_rows.then(|| known.clone())
}

/// The statistics of a filter: DataFusion's, but with the row count from histograms.
fn filter_statistics(
    filter: &FilterExec,
    input: &ExtendedStatistics,
    base: &Statistics,
    known: &ColumnHistograms,
) -> Statistics {
    let mut statistics = base.clone();
    let (Some(rows), Some(before)) = (input.base().num_rows.get_value(), base.num_rows.get_value()) else {
        return statistics;
    };
    if *rows == 0 || base.num_rows == Precision::Exact(0) {
        return statistics;
    }
    let unknown = f64::from(filter.default_selectivity()) / 100.0;
    let share = (known.share(filter.predicate(), unknown) * known.rows_per_scanned).clamp(0.0, 1.0);
    let expected = (*rows as f64 * share).round().max(1.0) as usize;
    let scale = expected as f64 / (*before).max(1) as f64;
    let scaled = |bytes: &Precision<usize>| match bytes.get_value() {
        Some(bytes) => Precision::Inexact((*bytes as f64 * scale).round() as usize),
        None => Precision::Absent,
    };
    let at_most = |count: &Precision<usize>| match count.get_value() {
        Some(count) => Precision::Inexact((*count).min(expected)),
        None => Precision::Absent,
    };
    statistics.num_rows = Precision::Inexact(expected);
    statistics.total_byte_size = scaled(&base.total_byte_size);
    for column in &mut statistics.column_statistics {
        column.byte_size = scaled(&column.byte_size);
        column.null_count = at_most(&column.null_count);
        column.distinct_count = at_most(&column.distinct_count);
    }
    statistics
}

/// The range that comparisons leave of one column.
#[derive(Default)]
struct Between {
    low: Option<(Point, bool)>,
    high: Option<(Point, bool)>,
}

impl ColumnHistograms {
    /// The selectivity of a condition among the rows of the table; `unknown` is the default for conditions
    /// that cannot be estimated.
    fn share(&self, condition: &Arc<dyn PhysicalExpr>, unknown: f64) -> f64 {
        let mut ranges: BTreeMap<usize, Between> = BTreeMap::new();
        let mut share = 1.0;
        for condition in split_conjunction(condition) {
            match self.comparison(condition) {
                Some((column, operator, point)) if is_range(operator) => {
                    ranges.entry(column).or_default().add(operator, point);
                }
                Some((column, operator, point)) => {
                    share *= self
                        .histogram(column)
                        .map_or(unknown, |histogram| equality(histogram, operator, &point));
                }
                None => share *= self.single_condition(condition, unknown).unwrap_or(unknown).clamp(0.0, 1.0),
            }
        }
        for (column, between) in ranges {
            share *= self.histogram(column).map_or(unknown, |histogram| between.share(histogram));
        }
        share
    }

    /// The column that an expression is, possibly cast to a type that holds all of its values.
    fn column_of(&self, expression: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        if let Some(cast) = expression.downcast_ref::<CastExpr>() {
            let column = self.column_of(cast.expr())?;
            let kind = self.histogram(column)?.samples.0.data_type();
            return widens(kind, cast.cast_type()).then_some(column);
        }
        Some(expression.downcast_ref::<Column>()?.index())
    }

    fn histogram(&self, column: usize) -> Option<&ColumnHistogram> {
        self.columns.get(column)?.as_deref()
    }

    /// Splits a comparison of a column with a value; the column comes first.
    fn comparison(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<(usize, Operator, Point)> {
        let binary = condition.downcast_ref::<BinaryExpr>()?;
        let (column, operator, value) = match (value_of(binary.right()), value_of(binary.left())) {
            (Some(value), None) => (binary.left(), *binary.op(), value),
            (None, Some(value)) => (binary.right(), binary.op().swap()?, value),
            _ => return None,
        };
        let column = self.column_of(column)?;
        let is_known = is_range(operator) || matches!(operator, Operator::Eq | Operator::NotEq);
        let histogram = self.histogram(column).filter(|_| is_known)?;
        Some((column, operator, histogram.point(&value)?))
    }

    /// The selectivity of one condition that is neither a comparison with a value nor a conjunction.
    fn single_condition(&self, condition: &Arc<dyn PhysicalExpr>, unknown: f64) -> Option<f64> {
        if let Some(value) = value_of(condition) {
            return Some(if matches!(value, ScalarValue::Boolean(Some(true))) { 1.0 } else { 0.0 });
        }
        if let Some(null) = condition.downcast_ref::<IsNullExpr>() {
            return Some(self.histogram(self.column_of(null.arg())?)?.nulls);
        }
        if let Some(value) = condition.downcast_ref::<IsNotNullExpr>() {
            return Some(1.0 - self.histogram(self.column_of(value.arg())?)?.nulls);
        }
        if let Some(list) = condition.downcast_ref::<InListExpr>()
            && let Some(share) = self.in_list(list)
        {
            return Some(share);
        }
        if let Some(like) = condition.downcast_ref::<LikeExpr>()
            && let Some(share) = self.prefix_like(like)
        {
            return Some(share);
        }
        if let Some(binary) = condition.downcast_ref::<BinaryExpr>() {
            match binary.op() {
                Operator::And => return Some(self.share(condition, unknown)),
                Operator::Or => return Some(self.any_of(condition, unknown)),
                _ => {}
            }
            if let Some(share) = self.column_comparison(binary) {
                return Some(share);
            }
        }
        self.evaluate_on_samples(condition).or_else(|| {
            let inner = condition.downcast_ref::<NotExpr>()?;
            Some(1.0 - self.share(inner.arg(), unknown))
        })
    }

    /// The selectivity of a disjunction: equalities on one column exclude each other, others are independent.
    fn any_of(&self, condition: &Arc<dyn PhysicalExpr>, unknown: f64) -> f64 {
        let mut all = Vec::new();
        split_disjunction(condition, &mut all);
        let equal = |condition: &&Arc<dyn PhysicalExpr>| {
            self.comparison(condition).filter(|(_, operator, _)| *operator == Operator::Eq)
        };
        let equal: Option<Vec<(usize, Operator, Point)>> = all.iter().map(equal).collect();
        if let Some(equal) = equal
            && let Some(column) = equal.first().map(|(column, ..)| *column)
            && equal.iter().all(|(own, ..)| *own == column)
            && let Some(histogram) = self.histogram(column)
        {
            return any_equal(histogram, equal.into_iter().map(|(.., point)| point));
        }
        let none_of = all.into_iter().map(|condition| 1.0 - self.share(condition, unknown)).product::<f64>();
        1.0 - none_of
    }

    fn in_list(&self, list: &InListExpr) -> Option<f64> {
        let histogram = self.histogram(self.column_of(list.expr())?)?;
        let points = list.list().iter().map(|value| histogram.point(&value_of(value)?));
        let share = any_equal(histogram, points.collect::<Option<Vec<_>>>()?.into_iter());
        Some(if list.negated() { 1.0 - histogram.nulls - share } else { share })
    }

    /// The selectivity of LIKE with a prefix pattern.
    fn prefix_like(&self, like: &LikeExpr) -> Option<f64> {
        let histogram = self.histogram(self.column_of(like.expr())?)?;
        let pattern = value_of(like.pattern())?;
        let prefix = pattern.try_as_str()??.strip_suffix('%')?.to_string();
        if like.case_insensitive() || prefix.contains(['%', '_', '\\']) || prefix.is_empty() {
            return None;
        }
        // No text with this prefix sorts after it.
        let end = Point::Text(format!("{prefix}{}", char::MAX));
        let share = histogram.below(&end, false) - histogram.below(&Point::Text(prefix), false);
        let share = share.max(0.0);
        Some(if like.negated() { 1.0 - histogram.nulls - share } else { share })
    }

    /// The selectivity of a comparison of two columns.
    fn column_comparison(&self, binary: &BinaryExpr) -> Option<f64> {
        let (one, other) = (self.column_of(binary.left())?, self.column_of(binary.right())?);
        let (one, other) = (self.histogram(one)?, self.histogram(other)?);
        let values = (1.0 - one.nulls) * (1.0 - other.nulls);
        let equal = values / one.distinct.max(other.distinct);
        match binary.op() {
            Operator::Eq => Some(equal),
            Operator::NotEq => Some(values - equal),
            operator if is_range(*operator) => Some(values * INEQUALITY_SELECTIVITY),
            _ => None,
        }
    }

    /// The selectivity of a condition on one column, evaluated on the sample values of its histogram.
    fn evaluate_on_samples(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<f64> {
        let mut columns = collect_columns(condition).into_iter();
        let (column, None) = (columns.next()?, columns.next()) else { return None };
        let histogram = self.histogram(column.index()).filter(|_| !is_volatile(condition))?;
        let (values, weights) = &histogram.samples;
        let field = Field::new(column.name(), values.data_type().clone(), true);
        let batch =
            RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::clone(values)]).ok()?;
        let alone = Arc::clone(condition).transform_up(|part| {
            Ok(match part.downcast_ref::<Column>() {
                Some(own) => Transformed::yes(Arc::new(Column::new(own.name(), 0)) as Arc<dyn PhysicalExpr>),
                None => Transformed::no(part),
            })
        });
        // If evaluation fails for a value, the selectivity is unknown.
        let answers = alone.data().ok()?.evaluate(&batch).ok()?.into_array(values.len()).ok()?;
        if *answers.data_type() != DataType::Boolean {
            return None;
        }
        let answers = answers.as_boolean();
        let is_true = |row: usize| answers.is_valid(row) && answers.value(row);
        let share: f64 = (0..answers.len()).filter(|row| is_true(*row)).map(|row| weights[row]).sum();
        Some(share.max(histogram.selectivity_min()))
    }
}

impl Between {
    fn add(&mut self, operator: Operator, point: Point) {
        let with_equal = matches!(operator, Operator::LtEq | Operator::GtEq);
        match operator {
            Operator::Lt | Operator::LtEq => {
                let is_tighter = |(known, _): &(Point, bool)| point < *known;
                if self.high.as_ref().is_none_or(is_tighter) {
                    self.high = Some((point, with_equal));
                }
            }
            _ => {
                let is_tighter = |(known, _): &(Point, bool)| point > *known;
                if self.low.as_ref().is_none_or(is_tighter) {
                    self.low = Some((point, with_equal));
                }
            }
        }
    }

    fn share(&self, histogram: &ColumnHistogram) -> f64 {
        let below = |end: &(Point, bool), or_equal: bool| histogram.below(&end.0, or_equal);
        let high = self.high.as_ref().map_or(1.0 - histogram.nulls, |high| below(high, high.1));
        let low = self.low.as_ref().map_or(0.0, |low| below(low, !low.1));
        (high - low).max(0.0)
    }
}

fn equality(histogram: &ColumnHistogram, operator: Operator, point: &Point) -> f64 {
    let equal = histogram.equal(point);
    match operator {
        Operator::NotEq => (1.0 - histogram.nulls - equal).max(0.0),
        _ => equal,
    }
}

/// The share of rows that equal one of several values.
fn any_equal(histogram: &ColumnHistogram, points: impl Iterator<Item = Point>) -> f64 {
    let mut different: Vec<Point> = points.collect();
    different.sort_by(Point::order);
    different.dedup();
    different.iter().map(|point| histogram.equal(point)).sum::<f64>().min(1.0 - histogram.nulls)
}

fn split_disjunction<'a>(condition: &'a Arc<dyn PhysicalExpr>, all: &mut Vec<&'a Arc<dyn PhysicalExpr>>) {
    match condition.downcast_ref::<BinaryExpr>().filter(|binary| *binary.op() == Operator::Or) {
        Some(or) => [or.left(), or.right()].into_iter().for_each(|part| split_disjunction(part, all)),
        None => all.push(condition),
    }
}

fn is_range(operator: Operator) -> bool {
    matches!(operator, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

/// Whether a cast preserves distinct values and their order.
fn widens(from: &DataType, to: &DataType) -> bool {
    from == to
        || from.is_string() && to.is_string()
        || from.is_integer() && to.is_numeric()
        || from.is_floating() && to.is_floating()
        || matches!(
            (from, to),
            (DataType::Decimal128(..), DataType::Decimal128(..) | DataType::Float64)
                | (DataType::Timestamp(..), DataType::Timestamp(..))
                | (DataType::Date32, DataType::Timestamp(..))
        )
}

fn value_of(expression: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
    Some(expression.downcast_ref::<Literal>()?.value().clone())
}
