//! Recomputes the schemas of nodes above those whose columns a rule changed.
//!
//! Each node stores its schema. When DataFusion rewrites a plan in place, it recomputes the schemas above a
//! changed node; for plans with subqueries in expressions it takes another code path, which does not. A join
//! above a decorrelated LATERAL, which has an additional key column, then read the columns of its right side
//! one index too low: `column q6.s does not exist`. Upstream: apache/datafusion#22895,
//! apache/datafusion#22903.
//!
//! ```text
//! Join, schema: a, s, u        Join, schema: a, k, s, u
//!   Join, schema: a, k, s  ─►    Join, schema: a, k, s     (was LATERAL, now has an additional key)
//!   TableScan: u                 TableScan: u
//! ```
//! Only plans with subqueries in expressions need it; nothing but schemas changes.
//!
//! `SchemaRefresh` can go when DataFusion recomputes schemas also for plans with subqueries
//! (apache/datafusion#22903 is in 55.2.0, but only covers other plans).

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::analyzer::decorrelation::references::has_subquery;

/// The optimizer rule.
#[derive(Debug)]
struct SchemaRefresh;

/// Inserts the rule before the one that refers to columns by index.
pub fn insert(rules: &mut Vec<Arc<dyn OptimizerRule + Send + Sync>>) {
    let found = (0..rules.len()).rev().filter(|at| rules[*at].name() == "optimize_projections");
    for at in found.collect::<Vec<_>>() {
        rules.insert(at, Arc::new(SchemaRefresh));
    }
}

impl OptimizerRule for SchemaRefresh {
    fn name(&self) -> &str {
        "schema_refresh"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !plan.exists(|node| Ok(node.expressions().iter().any(has_subquery)))? {
            return Ok(Transformed::no(plan));
        }
        // Recomputed schemas are reported as no change: other rules need not run again.
        plan.transform_up_with_subqueries(|node| Ok(Transformed::no(node.recompute_schema()?)))
    }
}
