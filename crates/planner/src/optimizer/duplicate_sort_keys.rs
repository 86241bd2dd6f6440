//! Keys that an ORDER BY names more than once. Of them only the first one orders. In aggregates, as of
//! `DISTINCT ON` and `array_agg`, DataFusion takes the others out in one place and counts on them in another.
//!
//! ```text
//! array_agg(x ORDER BY k, k DESC, v)  ─►  array_agg(x ORDER BY k, v)
//! row_number() OVER (ORDER BY k, k)   ─►  row_number() OVER (ORDER BY k)
//! ```
//!
//! `DuplicateSortKeys` can go when duplicate keys are taken out of ORDER BY of aggregates in one place
//! (apache/datafusion#25400, open).

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::rewrite::rewrite_expressions;

/// The rule; to stand behind all that makes keys alike.
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
                Expr::AggregateFunction(function) => first_ones(&mut function.params.order_by),
                Expr::WindowFunction(function) => first_ones(&mut function.params.order_by),
                _ => false,
            };
            Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        })
    }
}

/// Leaves each key once; tells whether there was one more often. Numbers that are the same in all rows order
/// nothing.
fn first_ones(keys: &mut Vec<Sort>) -> bool {
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
