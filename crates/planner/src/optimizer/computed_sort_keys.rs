//! Orders by a comparison, or by a time that is computed, as of `ORDER BY abs(x) > 4` and `ORDER BY day + n`:
//! the key becomes a column below.
//!
//! To know how a comparison orders, DataFusion compares the bounds of its sides. Those of most functions have
//! no type, the comparison of the bounds fails, and no sort is taken for one by that key any more: what needs
//! the order, such as the merge of several parts, is refused. So it is of days and times to which something
//! is added, and of a minus before an interval. A column has no bounds to look at. The same is so of an
//! expression with a comparison that DataFusion has made a column of its own below, because the expression
//! has it more than once.
//!
//! ```text
//! Sort: abs(x) > 4    ─►  Projection: x
//!   TableScan: t (x)        Sort: __key_0
//!                             Projection: x, abs(x) > 4 AS __key_0
//!                               TableScan: t (x)
//! ```
//! Likewise for ORDER BY within aggregates and windows, and for PARTITION BY, by which rows are sorted, too.
//!
//! `ComputedSortKeys` can go when the order of a comparison is known, or unknown without an error, if bounds
//! have no type; akin: apache/datafusion#18327, apache/datafusion#18342, apache/datafusion#20194.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort as SortKey;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// What DataFusion calls the columns of what an expression has more than once.
const COMMON: &str = "__common_expr_";

/// What the columns are called, with a number behind it.
const KEY: &str = "__key_";

/// The rule; to stand behind all that change keys.
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
            LogicalPlan::Sort(sort) => sort.expr.iter().for_each(|key| add(&mut keys, &key.expr, schema)),
            LogicalPlan::Window(_) | LogicalPlan::Aggregate(_) => {
                for expr in plan.expressions() {
                    let (parts, orders) = keys_in(&expr);
                    let all = parts.iter().chain(orders.iter().map(|key| &key.expr));
                    all.for_each(|key| add(&mut keys, key, schema));
                }
            }
            _ => {}
        }
        match keys.is_empty() {
            true => Ok(Transformed::no(plan)),
            false => with_columns(plan, &keys),
        }
    }
}

/// The keys that a window has parts by, whose rows are sorted, too, and those that it, or an aggregate,
/// orders by.
fn keys_in(expr: &Expr) -> (&[Expr], &[SortKey]) {
    match expr {
        Expr::Alias(alias) => keys_in(&alias.expr),
        Expr::AggregateFunction(call) => (&[], &call.params.order_by),
        Expr::WindowFunction(call) => (&call.params.partition_by, &call.params.order_by),
        _ => (&[], &[]),
    }
}

fn add(keys: &mut Vec<Expr>, key: &Expr, schema: &DFSchema) {
    if is_compared(key, schema) && !keys.contains(key) {
        keys.push(key.clone());
    }
}

/// Whether a key compares, adds to a time, or has a minus before one, what is no column.
fn is_compared(key: &Expr, schema: &DFSchema) -> bool {
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
            !is_known && !(is_plain(&binary.left) && is_plain(&binary.right))
        }
        // It becomes two of them.
        Expr::Between(_) => true,
        Expr::Negative(inner) => {
            is_time(inner, schema) && !matches!(inner.as_ref(), Expr::Column(_) | Expr::Literal(..))
        }
        Expr::Column(column) => column.name.starts_with(COMMON) && !matches!(bare(key), Expr::Column(_)),
        _ => false,
    };
    key.exists(|expr| Ok(compares(expr))).unwrap_or(false)
}

fn is_time(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind.is_temporal() || matches!(kind, DataType::Interval(_)))
}

/// What an expression with names is.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => bare(&alias.expr),
        other => other,
    }
}

/// The node with the keys as columns of its input, and what it had before of its result.
fn with_columns(plan: LogicalPlan, keys: &[Expr]) -> Result<Transformed<LogicalPlan>> {
    let [input] = plan.inputs()[..] else { return Ok(Transformed::no(plan)) };
    let before = Arc::clone(plan.schema());
    let columns = input.schema().fields().len();
    let taken = |name: &str| input.schema().fields().iter().any(|field| field.name() == name);
    let names: Vec<String> =
        (0..).map(|at| format!("{KEY}{at}")).filter(|name| !taken(name)).take(keys.len()).collect();
    let own = (0..columns).map(|at| Expr::Column(Column::from(input.schema().qualified_field(at))));
    let computed = keys.iter().zip(&names).map(|(key, name)| key.clone().alias(name));
    let Ok(below) =
        LogicalPlanBuilder::from(input.clone()).project(own.chain(computed)).and_then(|b| b.build())
    else {
        // Columns that cannot be told apart by name.
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
        _ => plan.expressions().into_iter().map(|expr| ordered_by(expr, &column_of)).collect::<Vec<_>>(),
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

/// A call that orders by columns. So are arguments of an aggregate that are keys: of DISTINCT the two have to
/// be the same.
fn ordered_by(expr: Expr, column_of: &impl Fn(&mut Expr)) -> Expr {
    match expr {
        Expr::Alias(mut alias) => {
            alias.expr = Box::new(ordered_by(*alias.expr, column_of));
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
