//! Comparisons of nanosecond columns, which come from files, with constants out of the range of nanoseconds:
//! before 1677 or after 2262. The constant is replaced by the first or last representable timestamp, as a
//! cast would overflow.
//!
//! ```text
//!   t < '9999-12-31'       t <= last timestamp      any value but NULL
//!   t = '9999-12-31'       t > last timestamp       nothing
//!   t > '0001-01-01'       t >= first timestamp     any value but NULL
//! ```
//!
//! `OutOfRangeTimestamps` can go when a comparison with a literal out of the range of nanoseconds is folded
//! instead of overflowing.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, Cast, InList};
use datafusion::logical_expr::utils::disjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, binary_expr, not};
use datafusion::optimizer::AnalyzerRule;

use crate::rewrite::{input_schema, is_comparison, rewrite_expressions};

const MICROSECOND_NS: i64 = 1000;

/// The analyzer rule; runs after timestamp coercion, and before type coercion.
#[derive(Debug)]
pub struct OutOfRangeTimestamps;

impl AnalyzerRule for OutOfRangeTimestamps {
    fn name(&self) -> &str {
        "out_of_range_timestamps"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            if !has_nanoseconds(&plan) {
                return Ok(Transformed::no(plan));
            }
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |expr| Ok(rewrite_expr(expr, &schema)))
        })?;
        Ok(changed.data)
    }
}

fn has_nanoseconds(plan: &LogicalPlan) -> bool {
    let is_nanoseconds = |kind: &DataType| matches!(kind, DataType::Timestamp(TimeUnit::Nanosecond, _));
    let has_any =
        |plan: &LogicalPlan| plan.schema().fields().iter().any(|field| is_nanoseconds(field.data_type()));
    has_any(plan) || plan.inputs().into_iter().any(has_any)
}

fn rewrite_expr(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let found = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            match (exceeded_end(left, right, schema), exceeded_end(right, left, schema)) {
                (Some(end), _) => end.comparison(left, *op),
                (_, Some(end)) => op.swap().and_then(|op| end.comparison(right, op)),
                _ => None,
            }
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let bound = |op: Operator, bound: &Expr| match exceeded_end(expr, bound, schema) {
                Some(end) => end.comparison(expr, op),
                None => Some(binary_expr(expr.as_ref().clone(), op, bound.clone())),
            };
            let is_exceeded =
                exceeded_end(expr, low, schema).is_some() || exceeded_end(expr, high, schema).is_some();
            let between = || Some(bound(Operator::GtEq, low)?.and(bound(Operator::LtEq, high)?));
            is_exceeded.then(between).flatten().map(|between| if *negated { not(between) } else { between })
        }
        Expr::InList(InList { expr, list, negated }) => {
            let is_exceeded = list.iter().any(|element| exceeded_end(expr, element, schema).is_some());
            let equal = |element: &Expr| match exceeded_end(expr, element, schema) {
                Some(end) => end.comparison(expr, Operator::Eq),
                None => Some(expr.as_ref().clone().eq(element.clone())),
            };
            let any = || disjunction(list.iter().map(equal).collect::<Option<Vec<_>>>()?);
            is_exceeded.then(any).flatten().map(|any| if *negated { not(any) } else { any })
        }
        _ => None,
    };
    match found {
        Some(found) => Transformed::yes(found),
        None => Transformed::no(expr),
    }
}

/// An end of the range of nanosecond timestamps.
struct End {
    is_last: bool,
    moment: ScalarValue,
}

impl End {
    /// The result of `column op constant` for a constant beyond this end.
    fn comparison(&self, column: &Expr, op: Operator) -> Option<Expr> {
        let [within, beyond] = match self.is_last {
            true => [Operator::LtEq, Operator::Gt],
            false => [Operator::GtEq, Operator::Lt],
        };
        let with = |op| binary_expr(column.clone(), op, Expr::Literal(self.moment.clone(), None));
        Some(match op {
            Operator::Lt | Operator::LtEq => with(if self.is_last { within } else { beyond }),
            Operator::Gt | Operator::GtEq => with(if self.is_last { beyond } else { within }),
            Operator::Eq => with(beyond),
            Operator::NotEq => with(within),
            // NULL is distinct from it too.
            Operator::IsDistinctFrom => Expr::IsNotTrue(Box::new(with(beyond))),
            Operator::IsNotDistinctFrom => Expr::IsTrue(Box::new(with(beyond))),
            _ => return None,
        })
    }
}

/// The end of the range that a constant exceeds, if it is compared with a nanosecond column.
fn exceeded_end(column: &Expr, constant: &Expr, schema: &DFSchema) -> Option<End> {
    let kind = column.get_type(schema).ok()?;
    let DataType::Timestamp(TimeUnit::Nanosecond, zone) = kind else { return None };
    if !column.any_column_refs() {
        return None;
    }
    let value = value_of(constant)?;
    let unit = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
    let ScalarValue::TimestampMicrosecond(Some(time), _) = value.cast_to(&unit).ok()? else { return None };
    if time.checked_mul(MICROSECOND_NS).is_some() {
        return None;
    }
    let moment = if time > 0 { i64::MAX } else { i64::MIN };
    Some(End { is_last: time > 0, moment: ScalarValue::TimestampNanosecond(Some(moment), zone) })
}

/// The value of a literal, possibly cast; casts to nanoseconds are applied as microseconds.
fn value_of(constant: &Expr) -> Option<ScalarValue> {
    match constant {
        Expr::Literal(value, _) if !value.is_null() => Some(value.clone()),
        Expr::Cast(Cast { expr, field }) => {
            let value = value_of(expr)?;
            match field.data_type() {
                DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
                    value.cast_to(&DataType::Timestamp(TimeUnit::Microsecond, zone.clone())).ok()
                }
                kind => value.cast_to(kind).ok(),
            }
        }
        _ => None,
    }
}
