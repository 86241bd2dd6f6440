//! Merges window expressions that differ only in their names, such as `sum(x) OVER ()` and `sum(x::bigint)
//! OVER ()` of integers after type coercion. Common subexpression elimination would move one of them out of
//! its node into a projection, which cannot evaluate it. This rule computes it once, and aliases it above.
//!
//! ```text
//! WindowAggr: sum(x) AS a, sum(x) AS b  ─►  Projection: t.x, a, a AS b
//!   TableScan: t                              WindowAggr: sum(x) AS a
//!                                               TableScan: t
//! ```
//!
//! It also takes `sum(x) OVER (ORDER BY x ROWS …)` for `sum(x) OVER (PARTITION BY x ROWS …)`: it compares the
//! keys of two windows only as far as both have some. A projection between their nodes has it look at each of
//! them alone; the rule that takes columns away takes it, too.
//!
//! ```text
//! WindowAggr: sum(x) PARTITION BY x  ─►  WindowAggr: sum(x) PARTITION BY x
//!   WindowAggr: sum(x) ORDER BY x          Projection: x, sum(x)
//!     TableScan: t                           WindowAggr: sum(x) ORDER BY x
//!                                              TableScan: t
//! ```
//!
//! `DuplicateWindows` can go with a DataFusion that includes apache/datafusion#24750: window expressions are
//! not common subexpressions.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::cse::NormalizeEq;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Window};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The optimizer rule.
#[derive(Debug)]
struct DuplicateWindows;

/// Inserts the rule before each common subexpression elimination.
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
        let (mut unique, mut places): (Vec<Expr>, Vec<usize>) = (vec![], vec![]);
        for expr in &window.window_expr {
            let plain = expr.clone().unalias();
            let place = unique.iter().position(|one| one.clone().unalias() == plain);
            places.push(place.unwrap_or(unique.len()));
            if place.is_none() {
                unique.push(expr.clone());
            }
        }
        if unique.len() == window.window_expr.len() {
            return match is_mistaken(&window) {
                true => apart(window).map(Transformed::yes),
                false => Ok(Transformed::no(LogicalPlan::Window(window))),
            };
        }
        let input = window.input.schema().fields().len();
        let deduplicated = LogicalPlan::Window(Window::try_new(unique, window.input)?);
        let columns = (0..input).chain(places.into_iter().map(|place| input + place));
        let named = columns.zip(window.schema.iter()).map(|(at, (relation, field))| {
            let column = Column::from(deduplicated.schema().qualified_field(at));
            match column.relation.as_ref() == relation && column.name == *field.name() {
                true => Expr::Column(column),
                false => Expr::Column(column).alias_qualified(relation.cloned(), field.name()),
            }
        });
        let named: Vec<Expr> = named.collect();
        Ok(Transformed::yes(LogicalPlanBuilder::from(deduplicated).project(named)?.build()?))
    }
}

/// Whether DataFusion takes a window for another one in the nodes right below.
fn is_mistaken(window: &Window) -> bool {
    let mut below = window.input.as_ref();
    while let LogicalPlan::Window(other) = below {
        let is_alike = |one: &Expr| {
            let one = one.clone().unalias();
            let mut others = other.window_expr.iter().map(|other| other.clone().unalias());
            others.any(|other| one != other && one.normalize_eq(&other))
        };
        if window.window_expr.iter().any(is_alike) {
            return true;
        }
        below = other.input.as_ref();
    }
    false
}

/// The same windows over a projection of all columns.
fn apart(window: Window) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = window.input.schema().iter().map(Expr::from).collect();
    let input = LogicalPlanBuilder::from(window.input).project(columns)?.build()?;
    Ok(LogicalPlan::Window(Window::try_new(window.window_expr, Arc::new(input))?))
}
