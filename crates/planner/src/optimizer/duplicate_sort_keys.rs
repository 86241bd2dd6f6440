//! Removes duplicate keys from ORDER BY of aggregates and windows; only the first has an effect. For
//! aggregates, including those of `DISTINCT ON`, DataFusion removes duplicates in one place and relies on
//! them in another.
//!
//! ```text
//! array_agg(x ORDER BY k, k DESC, v)  ─►  array_agg(x ORDER BY k, v)
//! row_number() OVER (ORDER BY k, k)   ─►  row_number() OVER (ORDER BY k)
//! ```
//!
//! `DuplicateSortKeys` can go when DataFusion removes duplicate keys from ORDER BY of aggregates in one place
//! (apache/datafusion#25400, open).

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::rewrite::rewrite_expressions;

/// The optimizer rule; runs after all that may make keys equal.
#[derive(Debug)]
pub struct DuplicateSortKeys;

impl OptimizerRule for DuplicateSortKeys {
    fn name(&self) -> &str {
        "duplicate_sort_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_)) {
            return Ok(Transformed::no(plan));
        }
        rewrite_expressions(plan, |mut expr| {
            let is_changed = match &mut expr {
                Expr::AggregateFunction(function) => remove_duplicates(&mut function.params.order_by),
                Expr::WindowFunction(function) => remove_duplicates(&mut function.params.order_by),
                _ => false,
            };
            Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        })
    }
}

/// Removes duplicate keys; returns whether there were any.
fn remove_duplicates(keys: &mut Vec<Sort>) -> bool {
    let all = keys.len();
    let mut seen: Vec<Expr> = Vec::with_capacity(all);
    keys.retain(|key| {
        let is_new = !seen.contains(&key.expr);
        if is_new {
            seen.push(key.expr.clone());
        }
        is_new
    });
    keys.len() < all
}
