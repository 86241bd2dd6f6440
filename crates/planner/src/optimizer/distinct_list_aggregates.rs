//! Guard of DISTINCT list aggregates, `array_agg(DISTINCT x)` and `string_agg(DISTINCT x, ',')`. Their
//! implementation sorts the values, as PostgreSQL does to deduplicate them. DataFusion rewrites a sole
//! DISTINCT aggregate to a GROUP BY, whose groups come in any order.
//!
//! ```text
//! Aggregate: groupBy=[[]], array_agg(DISTINCT x)  ─►  Aggregate: groupBy=[[]], array_agg(alias1)
//!   TableScan: t                                        Aggregate: groupBy=[[x AS alias1]]
//!                                                         TableScan: t
//! ```
//! single_distinct_aggregation_to_group_by makes the plan on the right; with the guard the one on the left
//! stays.
//!
//! `DistinctListGuard` can go when single_distinct_aggregation_to_group_by skips order-dependent aggregates.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::delegation::delegate_optimizer_rule;

/// Wraps the rule that rewrites DISTINCT to GROUP BY, and skips list aggregates.
#[derive(Debug)]
struct DistinctListGuard(Arc<dyn OptimizerRule + Send + Sync>);

/// Wraps DataFusion's rule in `rules`.
pub fn guard(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == "single_distinct_aggregation_to_group_by") {
        *rule = Arc::new(DistinctListGuard(Arc::clone(rule)));
    }
}

impl OptimizerRule for DistinctListGuard {
    delegate_optimizer_rule!();

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Aggregate(aggregate) if aggregate.aggr_expr.iter().any(is_list) => {
                Ok(Transformed::no(plan))
            }
            _ => self.0.rewrite(plan, config),
        }
    }
}

fn is_list(expr: &Expr) -> bool {
    let is_one = |expr: &Expr| match expr {
        Expr::AggregateFunction(call) => {
            call.params.distinct && matches!(call.func.name(), "array_agg" | "string_agg")
        }
        _ => false,
    };
    expr.exists(|expr| Ok(is_one(expr))).unwrap_or(false)
}
