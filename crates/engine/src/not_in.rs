//! NOT IN with a subquery, below OR and wherever else it is not a condition of its own. DataFusion's join for that does not know NULLs there;
//! what it makes of `<> ALL`, which is the same, does.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

/// The rule; to stand before the coercion of types.
#[derive(Debug)]
pub(crate) struct NotIn;

impl AnalyzerRule for NotIn {
    fn name(&self) -> &str {
        "not_in"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(compared)?.data)
    }
}

fn compared(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Filter(filter) = &plan else { return Ok(Transformed::no(plan)) };
    if !filter.predicate.exists(|expr| Ok(matches!(expr, Expr::InSubquery(_))))? {
        return Ok(Transformed::no(plan));
    }
    let conditions =
        split_conjunction_owned(filter.predicate.clone()).into_iter().map(|condition| match condition {
            Expr::InSubquery(_) => Ok(condition),
            Expr::Not(ref inner) if matches!(inner.as_ref(), Expr::InSubquery(_)) => Ok(condition),
            other => Ok(other.transform_up(|expr| Ok(without_join(expr)))?.data),
        });
    let conditions = conditions.collect::<Result<Vec<_>>>()?;
    match conjunction(conditions) {
        Some(predicate) => {
            let input = Arc::clone(&filter.input);
            Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, input)?)))
        }
        None => Ok(Transformed::no(plan)),
    }
}

fn without_join(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::InSubquery(InSubquery { expr, subquery, negated: true }) => {
            let all = SetComparison::new(expr, subquery, Operator::NotEq, SetQuantifier::All);
            Transformed::new(Expr::SetComparison(all), true, TreeNodeRecursion::Continue)
        }
        other => Transformed::no(other),
    }
}
