//! Treats `-0.0` and `0.0` as equal, as in PostgreSQL. DataFusion's comparisons, GROUP BY and joins do, but
//! not its hash sets of values (IN lists, DISTINCT in aggregates, `CASE x WHEN`, dynamic filters of joins)
//! nor PARTITION BY. There the sign of zero is removed: `x + 0.0` has none.
//!
//! ```text
//! x IN (0.0, 1.5)        ─►  x IN (0.0, 1.5, -0.0)                  NegativeZeros
//! x IN (y, z)            ─►  x + 0.0 IN (y + 0.0, z + 0.0)
//! count(DISTINCT x)      ─►  count(DISTINCT x + 0.0)
//! OVER (PARTITION BY x)  ─►  OVER (PARTITION BY x + 0.0)
//! nullif(x, y)           ─►  CASE WHEN x = y THEN NULL ELSE x END
//! Join: l.x = r.y        ─►  Join: l.x + 0.0 = r.y + 0.0            ZeroJoinKeys
//! ```
//!
//! `ZeroJoinKeys` can go when dynamic join filters contain both zeros (apache/datafusion#25186, open);
//! apache/datafusion#22835 is in 55.2.0.
//!
//! `NegativeZeros` can go when IN lists, DISTINCT in aggregates, CASE and PARTITION BY treat -0.0 and 0.0 as
//! equal (apache/datafusion#25186, open); PostgreSQL 8.1.3.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Case, InList};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Projection,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};

use crate::rewrite::{input_schema, rewrite_expressions};

/// The analyzer rule for expressions; runs after type coercion.
#[derive(Debug)]
pub struct NegativeZeros;

impl AnalyzerRule for NegativeZeros {
    fn name(&self) -> &str {
        "negative_zeros"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = input_schema(&plan)?;
            let plan = rewrite_expressions(plan, |expr| rewrite_expr(expr, &schema))?;
            plan.transform_data(|plan| match plan {
                LogicalPlan::Aggregate(aggregate) => distinct_values(aggregate, &schema),
                other => Ok(Transformed::no(other)),
            })
        })?;
        Ok(changed.data)
    }
}

/// The optimizer rule for join keys; runs after all rules that extract join keys.
#[derive(Debug)]
pub struct ZeroJoinKeys;

impl OptimizerRule for ZeroJoinKeys {
    fn name(&self) -> &str {
        "zero_join_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else { return Ok(Transformed::no(plan)) };
        let mut is_changed = false;
        for (left, right) in &mut join.on {
            is_changed |= normalize_zero(left, join.left.schema());
            is_changed |= normalize_zero(right, join.right.schema());
        }
        let join = LogicalPlan::Join(join);
        Ok(if is_changed { Transformed::yes(join) } else { Transformed::no(join) })
    }
}

fn rewrite_expr(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_changed = match &mut expr {
        Expr::InList(list) => add_missing_zero(list, schema),
        Expr::Case(case) => match &mut case.expr {
            Some(base) => {
                let whens = case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
                normalize_zeros(base, whens.collect(), schema)
            }
            None => false,
        },
        Expr::WindowFunction(function) => {
            let parameters = &mut function.params;
            let order = parameters.order_by.iter_mut().map(|sort| &mut sort.expr);
            parameters
                .partition_by
                .iter_mut()
                .chain(order)
                .fold(false, |is, key| normalize_zero(key, schema) | is)
        }
        Expr::ScalarFunction(function) if function.func.name() == "nullif" => {
            match <[Expr; 2]>::try_from(std::mem::take(&mut function.args)) {
                Ok([value, other]) if is_float(&value, schema) && !value.is_volatile() => {
                    let same = Box::new(value.clone().eq(other));
                    let null = Box::new(Expr::Literal(ScalarValue::try_from(value.get_type(schema)?)?, None));
                    expr = Expr::Case(Case::new(None, vec![(same, null)], Some(Box::new(value))));
                    true
                }
                Ok(arguments) => {
                    function.args = arguments.into();
                    false
                }
                Err(arguments) => {
                    function.args = arguments;
                    false
                }
            }
        }
        _ => false,
    };
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// Adds the other zero to a list that contains one; file pruning still uses the list.
fn add_missing_zero(list: &mut InList, schema: &DFSchema) -> bool {
    let Ok(kind) = list.expr.get_type(schema) else { return false };
    let Some(zero) = positive_zero(&kind) else { return false };
    let constants: Option<Vec<ScalarValue>> = list.list.iter().map(constant).collect();
    let Some(constants) = constants else {
        return normalize_zeros(&mut list.expr, list.list.iter_mut().collect(), schema);
    };
    if !constants.iter().any(is_zero) {
        return false;
    }
    let zeros = [zero.arithmetic_negate().ok(), Some(zero)].into_iter().flatten();
    let missing: Vec<Expr> =
        zeros.filter(|zero| !constants.contains(zero)).map(|zero| Expr::Literal(zero, None)).collect();
    let is_changed = !missing.is_empty();
    list.list.extend(missing);
    is_changed
}

/// Normalizes zeros on both sides of a lookup, if one of the values may be zero.
fn normalize_zeros(base: &mut Expr, others: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    if others.iter().all(|other| constant(other).is_some_and(|value| !is_zero(&value))) {
        return false;
    }
    others.into_iter().fold(normalize_zero(base, schema), |is, other| normalize_zero(other, schema) | is)
}

/// Adds zero to a float, unless already done; returns whether it did.
fn normalize_zero(expr: &mut Expr, schema: &DFSchema) -> bool {
    let Some(zero) = expr.get_type(schema).ok().as_ref().and_then(positive_zero) else { return false };
    if let Some(value) = constant(expr) {
        let is_signed = is_zero(&value) && value != zero;
        if is_signed {
            *expr = Expr::Literal(zero, None);
        }
        return is_signed;
    }
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: Operator::Plus, right, .. }) if matches!(right.as_ref(), Expr::Literal(value, _) if *value == zero) => {
            false
        }
        _ => {
            *expr = std::mem::take(expr) + Expr::Literal(zero, None);
            true
        }
    }
}

/// Rewrites DISTINCT aggregates, and restores their original names.
fn distinct_values(aggregate: Aggregate, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let mut is_changed = false;
    let mut functions = Vec::with_capacity(aggregate.aggr_expr.len());
    for function in &aggregate.aggr_expr {
        let changed = function.clone().transform_up(|mut expr| {
            let mut is = false;
            // ORDER BY keys must match the argument.
            if let Expr::AggregateFunction(function) = &mut expr
                && function.params.distinct
                && function.params.order_by.is_empty()
            {
                is = function
                    .params
                    .args
                    .iter_mut()
                    .fold(false, |is, value| normalize_zero(value, schema) | is);
            }
            Ok(if is { Transformed::yes(expr) } else { Transformed::no(expr) })
        })?;
        is_changed |= changed.transformed;
        functions.push(changed.data);
    }
    if !is_changed {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let changed = Aggregate::try_new(aggregate.input, aggregate.group_expr, functions)?;
    let columns = changed.schema.iter().zip(aggregate.schema.iter()).map(|(now, before)| {
        let column = Expr::Column(Column::from(now));
        match now.1.name() == before.1.name() {
            true => column,
            false => column.alias_qualified(before.0.cloned(), before.1.name()),
        }
    });
    let columns: Vec<Expr> = columns.collect();
    let projection = Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(changed)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

fn is_float(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| positive_zero(&kind).is_some())
}

/// The positive zero of a floating-point type.
fn positive_zero(kind: &DataType) -> Option<ScalarValue> {
    match kind {
        DataType::Float32 => Some(ScalarValue::Float32(Some(0.0))),
        DataType::Float64 => Some(ScalarValue::Float64(Some(0.0))),
        _ => None,
    }
}

fn is_zero(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float32(Some(number)) => *number == 0.0,
        ScalarValue::Float64(Some(number)) => *number == 0.0,
        _ => false,
    }
}

/// The value of a literal, possibly cast or negated.
fn constant(expr: &Expr) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(cast) => constant(&cast.expr)?.cast_to(cast.field.data_type()).ok(),
        Expr::Negative(inner) => constant(inner)?.arithmetic_negate().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{cast, lit};

    #[test]
    fn negative_zero_constants_are_recognized() {
        let is = |expr: &Expr| constant(expr).as_ref().map(is_zero);
        assert_eq!(is(&-lit(0.0)), Some(true));
        assert_eq!(is(&cast(lit(0), DataType::Float64)), Some(true));
        assert_eq!(is(&cast(lit("-0"), DataType::Float32)), Some(true));
        assert_eq!(is(&cast(lit(1e-60), DataType::Float32)), Some(true));
        assert_eq!(is(&lit(0.5)), Some(false));
        assert_eq!(is(&(lit(0.0) + lit(1.0))), None);
    }

    #[test]
    fn lists_with_a_zero_contain_both() {
        for value in [-0.0, 0.0] {
            let mut list = InList::new(Box::new(lit(1.0)), vec![lit(value), lit(1.5)], false);
            assert!(add_missing_zero(&mut list, &DFSchema::empty()));
            assert_eq!(list.list.len(), 3);
            assert!(!add_missing_zero(&mut list, &DFSchema::empty()));
        }
    }
}
