//! Orders NULL elements of arrays and structs above all values, as in PostgreSQL. DataFusion does so only in
//! sorts whose NULL placement is PostgreSQL's default; NULL sorts below all values in other sorts, in
//! comparisons, and in the dynamic filter of a TopK sort.
//!
//! ```text
//! a < b                            ─►  compare(a, b) < 0
//! a BETWEEN b AND c                ─►  compare(a, b) >= 0 AND compare(a, c) <= 0
//! greatest(a, b)                   ─►  greatest of crate functions
//! Sort: a ASC NULLS FIRST          ─►  Sort: key(a) ASC NULLS FIRST
//! OVER (ORDER BY a DESC NULLS LAST)  ─►  OVER (ORDER BY a IS NULL ASC, a DESC NULLS FIRST)
//! ```
//! The comparison functions are in [`harrier_functions::nested_order`]. `=` and equi-joins are DataFusion's.
//!
//! `NestedOrder` can go when nested values compare with NULL last, and a sort orders NULL elements last
//! regardless of NULLS FIRST; no issue was found. PostgreSQL 9.19.

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, ScalarFunction, Sort as SortKey};
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, LogicalPlan, Operator, binary_expr, lit,
};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::nested_order::{self, compare, greatest, least};

use crate::rewrite::{input_schema, rewrite_expressions};

/// The analyzer rule; runs after type coercion, and after subqueries became joins.
#[derive(Debug)]
pub struct NestedOrder;

impl AnalyzerRule for NestedOrder {
    fn name(&self) -> &str {
        "nested_order"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite_node)?.data)
    }
}

/// Applies the rule to one node.
fn rewrite_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&plan)?;
    let plan = rewrite_expressions(plan, |expr| Ok(rewrite_expr(expr, &schema)))?;
    plan.transform_data(|plan| match plan {
        LogicalPlan::Sort(mut sort) => {
            let mut is_changed = false;
            for key in sort.expr.iter_mut().filter(|key| is_nested(&key.expr, &schema)) {
                let value = std::mem::take(&mut key.expr);
                key.expr = Expr::ScalarFunction(ScalarFunction::new_udf(nested_order::key(), vec![value]));
                is_changed = true;
            }
            let plan = LogicalPlan::Sort(sort);
            Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
        }
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            // The first keys must match those of ON.
            let keys = on.sort_expr.as_mut().map(|keys| keys.split_off(on.on_expr.len().min(keys.len())));
            let is_changed = match (keys, &mut on.sort_expr) {
                (Some(mut keys), Some(first)) => {
                    let is_changed = split_keys(&mut keys, &schema);
                    first.append(&mut keys);
                    is_changed
                }
                _ => false,
            };
            let plan = LogicalPlan::Distinct(Distinct::On(on));
            Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
        }
        other => Ok(Transformed::no(other)),
    })
}

fn is_nested(expr: &Expr, schema: &DFSchema) -> bool {
    use datafusion::arrow::datatypes::DataType::{FixedSizeList, LargeList, List, Struct};
    let kind = expr.get_type(schema);
    kind.is_ok_and(|kind| matches!(kind, List(_) | LargeList(_) | FixedSizeList(..) | Struct(_)))
}

fn rewrite_expr(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let is_changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_order(*op) && is_nested(left, schema) && is_nested(right, schema) =>
        {
            expr = compare_order(std::mem::take(left.as_mut()), *op, std::mem::take(right.as_mut()));
            true
        }
        Expr::Between(Between { expr: value, negated, low, high })
            if is_nested(value, schema) && is_nested(low, schema) && is_nested(high, schema) =>
        {
            let [value, low, high] = [value, low, high].map(|side| std::mem::take(side.as_mut()));
            expr = match negated {
                false => compare_order(value.clone(), Operator::GtEq, low).and(compare_order(
                    value,
                    Operator::LtEq,
                    high,
                )),
                true => compare_order(value.clone(), Operator::Lt, low).or(compare_order(
                    value,
                    Operator::Gt,
                    high,
                )),
            };
            true
        }
        Expr::ScalarFunction(call)
            if matches!(call.func.name(), "greatest" | "least")
                && call.args.iter().all(|value| is_nested(value, schema)) =>
        {
            call.func = if call.func.name() == "least" { least() } else { greatest() };
            true
        }
        Expr::WindowFunction(call) => split_keys(&mut call.params.order_by, schema),
        Expr::AggregateFunction(call) if !call.params.distinct => {
            split_keys(&mut call.params.order_by, schema)
        }
        _ => false,
    };
    if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) }
}

fn is_order(op: Operator) -> bool {
    matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

fn compare_order(left: Expr, op: Operator, right: Expr) -> Expr {
    let order = ScalarFunction::new_udf(compare(), vec![left, right]);
    binary_expr(Expr::ScalarFunction(order), op, lit(0_i32))
}

/// Splits nested sort keys with non-default NULL placement in two: one for NULL, and one for the values.
/// Returns whether there were any.
fn split_keys(keys: &mut Vec<SortKey>, schema: &DFSchema) -> bool {
    let needs_split =
        |key: &SortKey| key.asc == key.nulls_first && is_nested(&key.expr, schema) && !key.expr.is_volatile();
    if !keys.iter().any(needs_split) {
        return false;
    }
    let split = std::mem::take(keys).into_iter().flat_map(|mut key| match needs_split(&key) {
        false => vec![key],
        true => {
            let null = SortKey::new(key.expr.clone().is_null(), !key.nulls_first, false);
            key.nulls_first = !key.asc;
            vec![null, key]
        }
    });
    *keys = split.collect();
    true
}
