//! Schemas of the nodes above those that a rule has given other columns.
//!
//! A node keeps the schema that it was made with. Where DataFusion changes plans in place it makes the
//! schemas above a changed one anew; a plan that still has subqueries in its expressions it rewrites on
//! another way, which does not. A join above a LATERAL that had become a join, with a key more, then looked
//! for the columns of its right side one place too early: `column q6.s does not exist`. Upstream:
//! apache/datafusion#22895,
//! #22903.
//!
//! ```text
//! Join, schema: a, s, u        Join, schema: a, k, s, u
//!   Join, schema: a, k, s  ─►    Join, schema: a, k, s     (was LATERAL, has a key more now)
//!   TableScan: u                 TableScan: u
//! ```
//! Only plans with subqueries left in expressions need it; nothing but schemas changes.
//!
//! `SchemaRefresh` can go when schemas are made anew also where a plan still has subqueries
//! (apache/datafusion#22903 is in 55.2.0 and does so only for others).

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::analyzer::decorrelation::references::has_subquery;

/// The rule.
#[derive(Debug)]
struct SchemaRefresh;

/// Puts the rule before the one that counts columns by place.
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
        // What is written anew is not another plan: the rules need not go over it again.
        plan.transform_up_with_subqueries(|node| Ok(Transformed::no(node.recompute_schema()?)))
    }
}
