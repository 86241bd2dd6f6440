//! Rejects aggregates in a subquery whose columns all belong to an outer query, as `SELECT (SELECT max(o.x)
//! FROM t) FROM o`.
//!
//! In the SQL standard, such an aggregate belongs to the outer query and aggregates its rows. DataFusion
//! would aggregate the rows of the subquery.
//!
//! ```text
//! SELECT (SELECT max(o.x) FROM t) FROM o        ─►  an error (0A000): it is the max over the rows of o
//! SELECT (SELECT max(o.x + t.y) FROM t) FROM o  ─►  the same: it aggregates the rows of t
//! ```
//!
//! `OuterLevelAggregates` can go when DataFusion assigns an aggregate of outer columns only to the outer
//! query; until then it is rejected.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::analyzer::decorrelation::references::subquery_of;

/// The analyzer rule. Errors: a query contains such an aggregate (0A000).
#[derive(Debug)]
pub struct OuterLevelAggregates;

impl AnalyzerRule for OuterLevelAggregates {
    fn name(&self) -> &str {
        "outer_level_aggregates"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        reject(&plan)?;
        Ok(plan)
    }
}

fn reject(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|plan| {
        let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(TreeNodeRecursion::Continue) };
        for expr in &aggregate.aggr_expr {
            expr.apply(|expr| match expr {
                Expr::AggregateFunction(function) if is_outer(function, aggregate.input.schema())? => {
                    let message =
                        "an aggregate of columns of an outer query alone is not supported in a subquery";
                    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether an aggregate over rows with the schema `own` refers to outer columns only.
fn is_outer(function: &AggregateFunction, own: &DFSchema) -> Result<bool> {
    let (mut has_own, mut has_outer) = (false, false);
    let params = &function.params;
    let orders = params.order_by.iter().map(|sort| &sort.expr);
    for expr in params.args.iter().chain(params.filter.as_deref()).chain(orders) {
        expr.apply(|expr| {
            match expr {
                Expr::Column(_) => has_own = true,
                Expr::OuterReferenceColumn(..) => has_outer = true,
                other => {
                    for column in subquery_of(other).into_iter().flat_map(|nested| &nested.outer_ref_columns)
                    {
                        match column {
                            Expr::OuterReferenceColumn(_, column) if own.has_column(column) => has_own = true,
                            _ => has_outer = true,
                        }
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(has_outer && !has_own)
}
