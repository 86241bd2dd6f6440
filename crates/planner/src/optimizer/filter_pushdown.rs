//! Guard of filter pushdown past aggregates, windows and projections in logical plans.
//!
//! DataFusion pushes a predicate below an aggregate if it refers only to grouping keys. A predicate without
//! columns does, so `SELECT count(*) FROM t HAVING (SELECT max(x) FROM u) > 5` filtered the rows of `t` and
//! returned a count of 0 instead of no row. An aggregate without keys, or with the grouping set `()`, returns
//! a row even for empty input, so no predicate may pass it (other engines had the same bug: SPARK-22983). A
//! volatile predicate is evaluated for each output row, so it may pass neither aggregates nor windows.
//!
//! Pushing a predicate below a projection inlines the projection's expressions. With nested views that use a
//! column more than once in an expression, its size doubles at each level. So a predicate stays above a
//! projection whose expressions would make it much larger ([`grows`]).
//!
//! ```text
//! Filter: (subquery) > 5                   Aggregate: groupBy=[[]], count(*)
//!   Aggregate: groupBy=[[]], count(*)  ─►    Filter: (subquery) > 5
//!     TableScan: t                             TableScan: t
//! ```
//! push_down_filter would turn the plan on the left into the one on the right; with the guard the left one
//! stays. So do volatile predicates above aggregates and windows, and predicates that would grow too large.
//!
//! `FilterPushdownGuard` can go when push_down_filter keeps predicates without columns above an aggregate
//! that always returns a row, and bounds growth; the volatile part with apache/datafusion#25416; related:
//! apache/datafusion#11748, apache/datafusion#22132, apache/datafusion#22391, apache/datafusion#25388.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, Expr, Filter, GroupingSet, LogicalPlan, Projection};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::delegation::delegate_optimizer_rule;

/// Wraps the filter pushdown rule, and skips filters that must not move.
#[derive(Debug)]
struct FilterPushdownGuard(Arc<dyn OptimizerRule + Send + Sync>);

/// Wraps DataFusion's rule in `rules`.
pub fn guard(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == "push_down_filter") {
        *rule = Arc::new(FilterPushdownGuard(Arc::clone(rule)));
    }
}

impl OptimizerRule for FilterPushdownGuard {
    delegate_optimizer_rule!();

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Filter(filter) if must_stay(filter) => Ok(Transformed::no(plan)),
            _ => self.0.rewrite(plan, config),
        }
    }
}

fn must_stay(filter: &Filter) -> bool {
    match filter.input.as_ref() {
        // The rule merges adjacent filters.
        LogicalPlan::Filter(below) => must_stay(below) || is_volatile(filter) && is_above_aggregate(below),
        LogicalPlan::Aggregate(aggregate) => always_returns_row(aggregate) || is_volatile(filter),
        LogicalPlan::Window(_) => is_volatile(filter),
        LogicalPlan::Projection(projection) => grows(filter, projection),
        _ => false,
    }
}

/// The maximum number of nodes of a predicate below a projection, if it also refers to more columns there.
const NODES_MAX: usize = 1000;

/// Whether inlining a projection makes a predicate too large: it refers to columns whose expressions are
/// large and refer to more than one column themselves.
fn grows(filter: &Filter, projection: &Projection) -> bool {
    // Counts the nodes of an expression, and those that are columns.
    let size = |expr: &Expr| {
        let (mut nodes, mut columns) = (0, 0);
        // The closure is infallible.
        let _ = expr.apply(|part| {
            nodes += 1;
            columns += usize::from(matches!(part, Expr::Column(_)));
            Ok(TreeNodeRecursion::Continue)
        });
        (nodes, columns)
    };
    let sizes: Vec<(usize, usize)> = projection.expr.iter().map(size).collect();
    if sizes.iter().all(|(_, columns)| *columns < 2) {
        return false;
    }
    let (mut columns, mut nodes_below, mut columns_below) = (0, 0, 0);
    let _ = filter.predicate.apply(|part| {
        if let Expr::Column(column) = part
            && let Ok(at) = projection.schema.index_of_column(column)
        {
            columns += 1;
            nodes_below += sizes[at].0;
            columns_below += sizes[at].1;
        }
        Ok(TreeNodeRecursion::Continue)
    });
    nodes_below > NODES_MAX && columns_below > columns
}

fn is_above_aggregate(filter: &Filter) -> bool {
    match filter.input.as_ref() {
        LogicalPlan::Filter(below) => is_above_aggregate(below),
        LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => true,
        _ => false,
    }
}

fn is_volatile(filter: &Filter) -> bool {
    split_conjunction(&filter.predicate).into_iter().any(Expr::is_volatile)
}

/// Whether the aggregate returns a row for empty input.
fn always_returns_row(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.iter().all(|key| match key {
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => true,
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        _ => false,
    })
}
