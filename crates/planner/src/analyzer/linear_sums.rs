//! Replaces sums of one column with constants added by one sum and one count, if there are several.
//! DataFusion has the same rewrite for the operator `+`, which [`crate::analyzer::checked_arithmetic`]
//! replaces.
//!
//! ```text
//! Aggregate: sum(x), sum(x + 1), sum(2 - x)
//!                 ─►
//! Projection: s, s + 1 * n, 2 * n - s
//!   Aggregate: sum(x) AS s, count(x) AS n
//! ```
//!
//! It applies to columns of at most 32 bits and constants of as many, whose sum has 64: then neither the
//! addition for each row nor a sum of fewer than 2³² rows can overflow. A 64-bit column stays as it is: its
//! sum may be out of range where the sum with the constant is not.
//!
//! `LinearSums` can go when DataFusion's checked `+` is an operator (apache/datafusion#17539), which its own
//! rewrite then sees.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, ScalarFunction};
use datafusion::logical_expr::{Aggregate, Cast, Expr, ExprSchemable, LogicalPlan, Projection, lit};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::math::checked::Operation;

/// The number of sums of one column with constants from which the rewrite pays: it adds two aggregates.
const SUMS_MIN: usize = 3;

/// The analyzer rule; runs after the rule that checks arithmetic.
#[derive(Debug)]
pub struct LinearSums;

impl AnalyzerRule for LinearSums {
    fn name(&self) -> &str {
        "linear_sums"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite_aggregate)?.data)
    }
}

/// `sum(column + constant)` and its like.
struct LinearSum {
    /// The aggregate `sum(column)`.
    sum: Expr,
    /// The aggregate `count(column)`.
    count: Expr,
    constant: i64,
    operation: Operation,
    column_is_left: bool,
}

fn rewrite_aggregate(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
    let input = aggregate.input.schema();
    let sums: Vec<_> = aggregate.aggr_expr.iter().map(|expr| linear_sum(expr, input)).collect();
    let is_frequent = |sum: &LinearSum| {
        sums.iter().flatten().filter(|other| other.sum == sum.sum).take(SUMS_MIN).count() == SUMS_MIN
    };
    let sums: Vec<_> = sums.iter().map(|sum| sum.as_ref().filter(|sum| is_frequent(sum))).collect();
    if sums.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }

    let mut aggregates = AggregateList::default();
    let results: Vec<_> = sums
        .iter()
        .zip(&aggregate.aggr_expr)
        .map(|(sum, expr)| match sum {
            None => Place::Unchanged(aggregates.place(expr)),
            Some(sum) => {
                Place::Linear { sum: aggregates.place(&sum.sum), count: aggregates.place(&sum.count) }
            }
        })
        .collect();
    let group_expr = aggregate.group_expr.clone();
    let new = Aggregate::try_new(Arc::clone(&aggregate.input), group_expr, aggregates.exprs)?;
    let columns: Vec<Expr> = new.schema.iter().map(Expr::from).collect();
    let (groups, values) = columns.split_at(new.schema.fields().len() - new.aggr_expr.len());

    let mut exprs = groups.to_vec();
    for ((result, sum), (qualifier, field)) in
        results.iter().zip(&sums).zip(aggregate.schema.iter().skip(groups.len()))
    {
        let value = match (result, sum) {
            (Place::Linear { sum: total, count }, Some(sum)) => {
                sum.value(values[*total].clone(), values[*count].clone())
            }
            (Place::Unchanged(at) | Place::Linear { sum: at, .. }, _) => values[*at].clone(),
        };
        exprs.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    let projection = Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(new)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

/// Where the parts of a result are in the list of aggregates.
enum Place {
    Unchanged(usize),
    Linear { sum: usize, count: usize },
}

/// Different aggregates, in the order of their first use.
#[derive(Default)]
struct AggregateList {
    exprs: Vec<Expr>,
}

impl AggregateList {
    /// The place of `expr`, which is appended if it is new.
    fn place(&mut self, expr: &Expr) -> usize {
        let found = self.exprs.iter().position(|other| other == expr);
        found.unwrap_or_else(|| {
            self.exprs.push(expr.clone());
            self.exprs.len() - 1
        })
    }
}

/// `expr` as a sum of a narrow column with a constant, where it is one.
fn linear_sum(expr: &Expr, schema: &DFSchema) -> Option<LinearSum> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr else { return None };
    let AggregateFunctionParams { args, distinct: false, filter: None, order_by, null_treatment: None } =
        params
    else {
        return None;
    };
    let [argument] = args.as_slice() else { return None };
    if func.name() != "sum" || !order_by.is_empty() {
        return None;
    }
    let of = |column: &Expr, constant, operation, column_is_left| {
        let sum = func.call(vec![column.clone()]);
        let count = count_udaf().call(vec![column.clone()]);
        LinearSum { sum, count, constant, operation, column_is_left }
    };
    if is_narrow_column(argument, schema) {
        return Some(of(argument, 0, Operation::Add, true));
    }
    let Expr::ScalarFunction(ScalarFunction { func: operator, args }) = argument else { return None };
    let operation =
        [Operation::Add, Operation::Subtract].into_iter().find(|one| one.name() == operator.name())?;
    match args.as_slice() {
        [column, constant] if is_narrow_column(column, schema) => {
            Some(of(column, narrow_constant(constant)?, operation, true))
        }
        [constant, column] if is_narrow_column(column, schema) => {
            Some(of(column, narrow_constant(constant)?, operation, false))
        }
        _ => None,
    }
}

/// Whether `expr` is an integer column of at most 32 bits, as 64 bits.
fn is_narrow_column(expr: &Expr, schema: &DFSchema) -> bool {
    use datafusion::arrow::datatypes::DataType::{Int8, Int16, Int32, Int64};
    let Expr::Cast(Cast { expr: column, field }) = expr else { return false };
    *field.data_type() == Int64
        && matches!(column.as_ref(), Expr::Column(_))
        && matches!(column.get_type(schema), Ok(Int8 | Int16 | Int32))
}

/// A constant of at most 32 bits.
fn narrow_constant(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => i32::try_from(*value).ok().map(i64::from),
        _ => None,
    }
}

impl LinearSum {
    /// The sum, from that of the column and the number of its values.
    fn value(&self, sum: Expr, count: Expr) -> Expr {
        if self.constant == 0 && self.column_is_left {
            return sum;
        }
        let constants = Operation::Multiply.function().call(vec![count, lit(self.constant)]);
        let operands = if self.column_is_left { vec![sum, constants] } else { vec![constants, sum] };
        self.operation.function().call(operands)
    }
}
