//! Windows that are the same but for their names, such as `sum(x) OVER ()` and `sum(x::bigint) OVER ()` of
//! integers, when types are coerced. Where DataFusion looks for what is computed twice it takes one out of
//! its node, into a projection, where nobody can compute it. So it is computed once, and named twice above.
//!
//! ```text
//! WindowAggr: sum(x) AS a, sum(x) AS b  ─►  Projection: t.x, a, a AS b
//!   TableScan: t                              WindowAggr: sum(x) AS a
//!                                               TableScan: t
//! ```
//!
//! `DuplicateWindows` can go with a DataFusion that has apache/datafusion#24750: window expressions are no
//! common subexpressions of their own node.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Window};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule.
#[derive(Debug)]
struct DuplicateWindows;

/// Puts the rule before each that looks for what is computed twice.
pub fn insert(rules: &mut Vec<Arc<dyn OptimizerRule + Send + Sync>>) {
    let found = (0..rules.len()).rev().filter(|at| rules[*at].name() == "common_sub_expression_eliminate");
    for at in found.collect::<Vec<_>>() {
        rules.insert(at, Arc::new(DuplicateWindows));
    }
}

impl OptimizerRule for DuplicateWindows {
    fn name(&self) -> &str {
        "duplicate_windows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Window(window) = plan else { return Ok(Transformed::no(plan)) };
        let (mut kept, mut places): (Vec<Expr>, Vec<usize>) = (vec![], vec![]);
        for expr in &window.window_expr {
            let plain = expr.clone().unalias();
            let place = kept.iter().position(|one| one.clone().unalias() == plain);
            places.push(place.unwrap_or(kept.len()));
            if place.is_none() {
                kept.push(expr.clone());
            }
        }
        if kept.len() == window.window_expr.len() {
            return Ok(Transformed::no(LogicalPlan::Window(window)));
        }
        let input = window.input.schema().fields().len();
        let once = LogicalPlan::Window(Window::try_new(kept, window.input)?);
        let columns = (0..input).chain(places.into_iter().map(|place| input + place));
        let named = columns.zip(window.schema.iter()).map(|(at, (relation, field))| {
            let column = Column::from(once.schema().qualified_field(at));
            match column.relation.as_ref() == relation && column.name == *field.name() {
                true => Expr::Column(column),
                false => Expr::Column(column).alias_qualified(relation.cloned(), field.name()),
            }
        });
        let named: Vec<Expr> = named.collect();
        Ok(Transformed::yes(LogicalPlanBuilder::from(once).project(named)?.build()?))
    }
}
