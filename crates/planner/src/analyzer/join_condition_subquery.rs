//! Correlated subqueries that are values, and EXISTS, in the condition of a join, where the planner has none.
//!
//! ```text
//!   a JOIN b ON p AND x = (SELECT … a.c, b.d …)         ─►   Filter: x = (SELECT …)          ─ a JOIN b ON p
//!   a LEFT JOIN b ON p AND x = (SELECT … a.c …)         ─►   (a, and (SELECT …) AS s) LEFT JOIN b ON p AND x = s
//! ```
//!
//! Of an outer join the subquery has to be about the columns of one side; of one that is about both the
//! planner says that it cannot do it.
//!
//! `JoinConditionSubqueries` can go when correlated subqueries and EXISTS are decorrelated in conditions of
//! joins; no exact issue found (apache/datafusion#21240 does uncorrelated values only).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::optimizer::AnalyzerRule;

use crate::analyzer::decorrelation::free;

/// The rule; to stand before the coercion of types.
#[derive(Debug)]
pub struct JoinConditionSubqueries;

impl AnalyzerRule for JoinConditionSubqueries {
    fn name(&self) -> &str {
        "join_condition_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut made_up = 0;
        Ok(plan.transform_up_with_subqueries(|plan| without(plan, &mut made_up))?.data)
    }
}

fn without(plan: LogicalPlan, made_up: &mut usize) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
    match &join.filter {
        Some(filter) if has_unplanned(filter) => {}
        _ => return Ok(Transformed::no(LogicalPlan::Join(join))),
    }
    if join.join_type == JoinType::Inner {
        return filtered(join).map(Transformed::yes);
    }
    let mut sides = Sides { left: vec![], right: vec![], made_up };
    let filter = join.filter.clone().map(|filter| sides.take(filter, &join)).transpose()?;
    if sides.left.is_empty() && sides.right.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let shown: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let left = with_values(&join.left, sides.left)?;
    let right = with_values(&join.right, sides.right)?;
    let changed = Join::try_new(
        left,
        right,
        join.on,
        filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(changed)).project(shown)?.build().map(Transformed::yes)
}

/// What the planner has no join for in such a condition.
fn unplanned(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
            if free(&subquery.subquery).is_ok_and(|columns| !columns.is_empty()) =>
        {
            Some(subquery)
        }
        Expr::Exists(exists) => Some(&exists.subquery),
        _ => None,
    }
}

fn has_unplanned(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(unplanned(expr).is_some())).unwrap_or(false)
}

/// An inner join, with what has subqueries in a filter above it.
fn filtered(mut join: Join) -> Result<LogicalPlan> {
    let conditions = join.filter.take().map(split_conjunction_owned).unwrap_or_default();
    let (above, within): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(has_unplanned);
    join.filter = conjunction(within);
    let input = LogicalPlan::Join(join);
    match conjunction(above) {
        Some(predicate) => Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?)),
        None => Ok(input),
    }
}

/// Subqueries that become columns of the sides of a join.
struct Sides<'m> {
    left: Vec<Expr>,
    right: Vec<Expr>,
    made_up: &'m mut usize,
}

impl Sides<'_> {
    /// The condition with columns in the place of subqueries.
    fn take(&mut self, filter: Expr, join: &Join) -> Result<Expr> {
        let taken = filter.transform_down(|expr| {
            let Some(subquery) = unplanned(&expr) else { return Ok(Transformed::no(expr)) };
            let outer = outer_columns(subquery, join)?;
            let is_of = |schema: &DFSchema| outer.iter().all(|column| schema.has_column(column));
            let side = match () {
                () if is_of(join.left.schema()) => &mut self.left,
                () if is_of(join.right.schema()) => &mut self.right,
                () => return Ok(Transformed::no(expr)),
            };
            *self.made_up += 1;
            let name = format!("__join_subquery_{}", self.made_up);
            side.push(expr.alias(&name));
            let column = Expr::Column(Column::new_unqualified(name));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        Ok(taken.data)
    }
}

/// The columns of the join that a subquery is about.
fn outer_columns(subquery: &Subquery, join: &Join) -> Result<Vec<Column>> {
    let columns = free(&subquery.subquery)?.into_iter().map(|(column, _)| column);
    let is_of_join =
        |column: &Column| join.left.schema().has_column(column) || join.right.schema().has_column(column);
    Ok(columns.filter(is_of_join).collect())
}

fn with_values(side: &Arc<LogicalPlan>, values: Vec<Expr>) -> Result<Arc<LogicalPlan>> {
    if values.is_empty() {
        return Ok(Arc::clone(side));
    }
    let columns = side.schema().columns().into_iter().map(Expr::Column).chain(values);
    let plan = LogicalPlanBuilder::from(Arc::clone(side)).project(columns.collect::<Vec<_>>())?;
    plan.build().map(Arc::new)
}
