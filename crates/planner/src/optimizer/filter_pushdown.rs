//! Filters on their way down a logical plan, past aggregates, windows and projections.
//!
//! DataFusion moves a condition below an aggregate when all of its columns are keys. A condition without
//! columns has them all, so `SELECT count(*) FROM t HAVING (SELECT max(x) FROM u) > 5` filtered the rows of
//! `t` and returned a count of 0 where there is no row. An aggregate without keys, or with the grouping set
//! `()`, has a row whatever comes in, so no condition passes it (other engines had the same fault:
//! SPARK-22983). A volatile condition is about each row that comes out, so it passes neither aggregates nor
//! windows.
//!
//! Below a projection a condition has the expressions of the columns in their places. Where views that
//! compute a column from itself more than once stand on each other, what is computed doubles with each of
//! them. So a condition stays above a projection whose expressions would make it much larger ([`grows`]).
//!
//! ```text
//! Filter: (subquery) > 5                   Aggregate: groupBy=[[]], count(*)
//!   Aggregate: groupBy=[[]], count(*)  ─►    Filter: (subquery) > 5
//!     TableScan: t                             TableScan: t
//! ```
//! push_down_filter makes the right plan of the left one; with the guard the left one stays.
//! So do volatile conditions above groups and windows, and conditions that would grow too large below.
//!
//! `FilterPushdownGuard` can go when push_down_filter keeps conditions without columns above an aggregate
//! that always has a row, and bounds growth; the volatile part with apache/datafusion#25416; akin:
//! apache/datafusion#11748, apache/datafusion#22132, apache/datafusion#22391, apache/datafusion#25388.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, Expr, Filter, GroupingSet, LogicalPlan, Projection};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// A rule that moves filters, with those out of its sight that it must not move.
#[derive(Debug)]
struct FilterPushdownGuard(Arc<dyn OptimizerRule + Send + Sync>);

/// Has the rule that pushes filters down leave those alone that it would move too far.
pub fn guard(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == "push_down_filter") {
        *rule = Arc::new(FilterPushdownGuard(Arc::clone(rule)));
    }
}

impl OptimizerRule for FilterPushdownGuard {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

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
        // The rule makes one filter of several above each other.
        LogicalPlan::Filter(below) => must_stay(below) || is_volatile(filter) && is_above_groups(below),
        LogicalPlan::Aggregate(aggregate) => always_has_a_row(aggregate) || is_volatile(filter),
        LogicalPlan::Window(_) => is_volatile(filter),
        LogicalPlan::Projection(projection) => grows(filter, projection),
        _ => false,
    }
}

/// Nodes that a condition may have more below a projection where it also speaks of more columns there.
const NODES_MAX: usize = 1000;

/// Whether a condition would become too large below a projection: it has a column more often than the
/// projection's expressions can be written out for, and these have columns more than once themselves.
fn grows(filter: &Filter, projection: &Projection) -> bool {
    // How many nodes an expression has, and how many of them are columns.
    let size = |expr: &Expr| {
        let (mut nodes, mut columns) = (0, 0);
        // Nothing fails here.
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

fn is_above_groups(filter: &Filter) -> bool {
    match filter.input.as_ref() {
        LogicalPlan::Filter(below) => is_above_groups(below),
        LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => true,
        _ => false,
    }
}

fn is_volatile(filter: &Filter) -> bool {
    split_conjunction(&filter.predicate).into_iter().any(Expr::is_volatile)
}

/// Whether there is a row of all rows, were they none.
fn always_has_a_row(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.iter().all(|key| match key {
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => true,
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        _ => false,
    })
}
