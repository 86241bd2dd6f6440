//! Moves sort keys that compare or compute times, as in `ORDER BY abs(x) > 4` and `ORDER BY day + n`, into a
//! projection below the sort.
//!
//! DataFusion derives the ordering of a comparison from the bounds of its operands. The bounds of most
//! functions are untyped, so comparing them fails, and DataFusion does not recognize a sort by that key:
//! operators that require the ordering, such as a sort-preserving merge, fail the sanity check. The same
//! applies to additions to dates and times, and to negated intervals. A column has no bounds to evaluate. The
//! same also applies to an expression with a comparison that common subexpression elimination moved into a
//! column below.
//!
//! ```text
//! Sort: abs(x) > 4    ─►  Projection: x
//!   TableScan: t (x)        Sort: __key_0
//!                             Projection: x, abs(x) > 4 AS __key_0
//!                               TableScan: t (x)
//! ```
//! The same applies to ORDER BY of aggregates and windows, and to PARTITION BY, which sorts as well.
//!
//! `ComputedSortKeys` can go when the ordering of a comparison with untyped bounds is known, or unknown
//! without an error; related: apache/datafusion#18327, apache/datafusion#18342, apache/datafusion#20194.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort as SortKey;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::rewrite::strip_alias;

/// The prefix of the columns that common subexpression elimination adds.
const COMMON_PREFIX: &str = "__common_expr_";

/// The prefix of the added key columns, followed by their index.
const KEY_PREFIX: &str = "__key_";

/// The optimizer rule; runs after all that change sort keys.
#[derive(Debug)]
pub struct ComputedSortKeys;

impl OptimizerRule for ComputedSortKeys {
    fn name(&self) -> &str {
        "computed_sort_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut keys = Vec::new();
        let [input] = plan.inputs()[..] else { return Ok(Transformed::no(plan)) };
        let schema = input.schema();
        match &plan {
            LogicalPlan::Sort(sort) => sort.expr.iter().for_each(|key| add_key(&mut keys, &key.expr, schema)),
            LogicalPlan::Window(_) | LogicalPlan::Aggregate(_) => {
                for expr in plan.expressions() {
                    let (parts, orders) = keys_in(&expr);
                    let all = parts.iter().chain(orders.iter().map(|key| &key.expr));
                    all.for_each(|key| add_key(&mut keys, key, schema));
                }
            }
            _ => {}
        }
        match keys.is_empty() {
            true => Ok(Transformed::no(plan)),
            false => add_key_columns(plan, &keys),
        }
    }
}

/// The PARTITION BY keys of a window, which are sorted as well, and the ORDER BY keys of a window or an
/// aggregate.
fn keys_in(expr: &Expr) -> (&[Expr], &[SortKey]) {
    match expr {
        Expr::Alias(alias) => keys_in(&alias.expr),
        Expr::AggregateFunction(call) => (&[], &call.params.order_by),
        Expr::WindowFunction(call) => (&call.params.partition_by, &call.params.order_by),
        _ => (&[], &[]),
    }
}

fn add_key(keys: &mut Vec<Expr>, key: &Expr, schema: &DFSchema) {
    if is_computed(key, schema) && !keys.contains(key) {
        keys.push(key.clone());
    }
}

/// Whether a key contains a comparison, an addition to a time, or a negated interval that is not a plain
/// column.
fn is_computed(key: &Expr, schema: &DFSchema) -> bool {
    let compares = |expr: &Expr| match expr {
        Expr::BinaryExpr(binary) => {
            let is_plain = |side: &Expr| matches!(side, Expr::Column(_) | Expr::Literal(..));
            let is_known = match binary.op {
                Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => false,
                Operator::Plus | Operator::Minus => {
                    !is_time(&binary.left, schema) && !is_time(&binary.right, schema)
                }
                _ => true,
            };
            !(is_known || is_plain(&binary.left) && is_plain(&binary.right))
        }
        // It is rewritten to two comparisons.
        Expr::Between(_) => true,
        Expr::Negative(inner) => {
            is_time(inner, schema) && !matches!(inner.as_ref(), Expr::Column(_) | Expr::Literal(..))
        }
        Expr::Column(column) => {
            column.name.starts_with(COMMON_PREFIX) && !matches!(strip_alias(key), Expr::Column(_))
        }
        _ => false,
    };
    key.exists(|expr| Ok(compares(expr))).unwrap_or(false)
}

fn is_time(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind.is_temporal() || matches!(kind, DataType::Interval(_)))
}

/// Computes the keys as columns of the node's input, and restores the node's original output columns above.
fn add_key_columns(plan: LogicalPlan, keys: &[Expr]) -> Result<Transformed<LogicalPlan>> {
    let [input] = plan.inputs()[..] else { return Ok(Transformed::no(plan)) };
    let before = Arc::clone(plan.schema());
    let columns = input.schema().fields().len();
    let is_taken = |name: &str| input.schema().fields().iter().any(|field| field.name() == name);
    let names: Vec<String> =
        (0..).map(|at| format!("{KEY_PREFIX}{at}")).filter(|name| !is_taken(name)).take(keys.len()).collect();
    let own = (0..columns).map(|at| Expr::Column(Column::from(input.schema().qualified_field(at))));
    let computed = keys.iter().zip(&names).map(|(key, name)| key.clone().alias(name));
    let Ok(below) =
        LogicalPlanBuilder::from(input.clone()).project(own.chain(computed)).and_then(|b| b.build())
    else {
        // Columns whose names are ambiguous.
        return Ok(Transformed::no(plan));
    };
    let column_of = |key: &mut Expr| {
        if let Some(at) = keys.iter().position(|other| other == key) {
            *key = Expr::Column(Column::from_name(&names[at]));
        }
    };
    let expressions = match &plan {
        LogicalPlan::Sort(_) => {
            let mut expressions = plan.expressions();
            expressions.iter_mut().for_each(column_of);
            expressions
        }
        _ => {
            plan.expressions().into_iter().map(|expr| replace_sort_keys(expr, &column_of)).collect::<Vec<_>>()
        }
    };
    let is_window = matches!(plan, LogicalPlan::Window(_));
    let ordered = plan.with_new_exprs(expressions, vec![below])?;
    let added = if matches!(plan, LogicalPlan::Aggregate(_)) { 0 } else { keys.len() };
    let at_of = |at: usize| if is_window && at >= columns { at + added } else { at };
    let named: Vec<Expr> = before
        .iter()
        .enumerate()
        .map(|(at, (relation, field))| {
            let column = Column::from(ordered.schema().qualified_field(at_of(at)));
            match column.relation.as_ref() == relation && column.name == *field.name() {
                true => Expr::Column(column),
                false => Expr::Column(column).alias_qualified(relation.cloned(), field.name()),
            }
        })
        .collect();
    Ok(Transformed::yes(LogicalPlanBuilder::from(ordered).project(named)?.build()?))
}

/// Replaces the sort keys of a call by columns. Replaces equal arguments of an aggregate too: with DISTINCT,
/// ORDER BY expressions must match arguments.
fn replace_sort_keys(expr: Expr, column_of: &impl Fn(&mut Expr)) -> Expr {
    match expr {
        Expr::Alias(mut alias) => {
            alias.expr = Box::new(replace_sort_keys(*alias.expr, column_of));
            Expr::Alias(alias)
        }
        Expr::AggregateFunction(mut call) => {
            call.params.args.iter_mut().for_each(column_of);
            call.params.order_by.iter_mut().for_each(|key| column_of(&mut key.expr));
            Expr::AggregateFunction(call)
        }
        Expr::WindowFunction(mut call) => {
            call.params.partition_by.iter_mut().for_each(column_of);
            call.params.order_by.iter_mut().for_each(|key| column_of(&mut key.expr));
            Expr::WindowFunction(call)
        }
        other => other,
    }
}
