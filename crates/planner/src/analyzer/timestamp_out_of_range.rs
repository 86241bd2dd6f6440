//! Columns of nanoseconds, which files have, beside a constant time that nanoseconds do not reach: before
//! 1677 or after 2262. In a comparison it stands for the first or the last moment that they have, as no cast
//! of it is possible.
//!
//! ```text
//!   t < '9999-12-31'       t <= the last moment     whatever is not NULL
//!   t = '9999-12-31'       t > the last moment      nothing
//!   t > '0001-01-01'       t >= the first moment    whatever is not NULL
//! ```
//!
//! `OutOfRangeTimestamps` can go when a comparison with a literal beyond the range of nanoseconds folds
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

/// The rule; to stand behind the one that makes times of days and texts, and before the coercion of types.
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
            rewrite_expressions(plan, |expr| Ok(replaced(expr, &schema)))
        })?;
        Ok(changed.data)
    }
}

fn has_nanoseconds(plan: &LogicalPlan) -> bool {
    let is_such = |kind: &DataType| matches!(kind, DataType::Timestamp(TimeUnit::Nanosecond, _));
    let has_any = |plan: &LogicalPlan| plan.schema().fields().iter().any(|field| is_such(field.data_type()));
    has_any(plan) || plan.inputs().into_iter().any(has_any)
}

fn replaced(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let found = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            match (far(left, right, schema), far(right, left, schema)) {
                (Some(end), _) => end.compared(left, *op),
                (_, Some(end)) => op.swap().and_then(|op| end.compared(right, op)),
                _ => None,
            }
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let bound = |op: Operator, bound: &Expr| match far(expr, bound, schema) {
                Some(end) => end.compared(expr, op),
                None => Some(binary_expr(expr.as_ref().clone(), op, bound.clone())),
            };
            let is_far = far(expr, low, schema).is_some() || far(expr, high, schema).is_some();
            let between = || Some(bound(Operator::GtEq, low)?.and(bound(Operator::LtEq, high)?));
            is_far.then(between).flatten().map(|between| if *negated { not(between) } else { between })
        }
        Expr::InList(InList { expr, list, negated }) => {
            let is_far = list.iter().any(|element| far(expr, element, schema).is_some());
            let equal = |element: &Expr| match far(expr, element, schema) {
                Some(end) => end.compared(expr, Operator::Eq),
                None => Some(expr.as_ref().clone().eq(element.clone())),
            };
            let any = || disjunction(list.iter().map(equal).collect::<Option<Vec<_>>>()?);
            is_far.then(any).flatten().map(|any| if *negated { not(any) } else { any })
        }
        _ => None,
    };
    match found {
        Some(found) => Transformed::yes(found),
        None => Transformed::no(expr),
    }
}

/// An end of the times that nanoseconds reach.
struct End {
    is_last: bool,
    moment: ScalarValue,
}

impl End {
    /// What `column op constant` is for a constant beyond this end.
    fn compared(&self, column: &Expr, op: Operator) -> Option<Expr> {
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
            // NULL is distinct from it, too.
            Operator::IsDistinctFrom => Expr::IsNotTrue(Box::new(with(beyond))),
            Operator::IsNotDistinctFrom => Expr::IsTrue(Box::new(with(beyond))),
            _ => return None,
        })
    }
}

/// The end that a constant is beyond which a column of nanoseconds is compared with.
fn far(column: &Expr, constant: &Expr, schema: &DFSchema) -> Option<End> {
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

/// The value of a literal with its casts, but for those to nanoseconds.
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
