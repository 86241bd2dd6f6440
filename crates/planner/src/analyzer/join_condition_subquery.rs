//! Moves correlated scalar subqueries and EXISTS out of join conditions, where DataFusion does not support
//! them.
//!
//! ```text
//!   a JOIN b ON p AND x = (SELECT … a.c, b.d …)         ─►   Filter: x = (SELECT …)          ─ a JOIN b ON p
//!   a LEFT JOIN b ON p AND x = (SELECT … a.c …)         ─►   (a, and (SELECT …) AS s) LEFT JOIN b ON p AND x = s
//! ```
//!
//! In an outer join, the subquery may refer to columns of one side only; those that refer to both sides are
//! unnested there (`decorrelation::unnest`).
//!
//! `JoinConditionSubqueries` can go when correlated subqueries and EXISTS are decorrelated in join
//! conditions; no exact issue found (apache/datafusion#21240 only covers uncorrelated scalar subqueries).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::optimizer::AnalyzerRule;

use crate::analyzer::decorrelation::free_references;

/// The analyzer rule; runs before type coercion.
#[derive(Debug)]
pub struct JoinConditionSubqueries;

impl AnalyzerRule for JoinConditionSubqueries {
    fn name(&self) -> &str {
        "join_condition_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut counter = 0;
        Ok(plan.transform_up_with_subqueries(|plan| rewrite_join(plan, &mut counter))?.data)
    }
}

fn rewrite_join(plan: LogicalPlan, counter: &mut usize) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
    match &join.filter {
        Some(filter) if has_unsupported(filter) => {}
        _ => return Ok(Transformed::no(LogicalPlan::Join(join))),
    }
    if join.join_type == JoinType::Inner {
        return move_to_filter(join).map(Transformed::yes);
    }
    let mut sides = Sides { left: vec![], right: vec![], counter };
    let filter = join.filter.clone().map(|filter| sides.extract(filter, &join)).transpose()?;
    if sides.left.is_empty() && sides.right.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let output: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let left = add_columns(&join.left, sides.left)?;
    let right = add_columns(&join.right, sides.right)?;
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
    LogicalPlanBuilder::from(LogicalPlan::Join(changed)).project(output)?.build().map(Transformed::yes)
}

/// A subquery that DataFusion does not support in a join condition.
fn unsupported_subquery(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
            if free_references(&subquery.subquery).is_ok_and(|columns| !columns.is_empty()) =>
        {
            Some(subquery)
        }
        Expr::Exists(exists) => Some(&exists.subquery),
        _ => None,
    }
}

fn has_unsupported(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(unsupported_subquery(expr).is_some())).unwrap_or(false)
}

/// Moves conditions with subqueries from an inner join into a filter above it.
fn move_to_filter(mut join: Join) -> Result<LogicalPlan> {
    let conditions = join.filter.take().map(split_conjunction_owned).unwrap_or_default();
    let (above, within): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(has_unsupported);
    join.filter = conjunction(within);
    let input = LogicalPlan::Join(join);
    match conjunction(above) {
        Some(predicate) => Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?)),
        None => Ok(input),
    }
}

/// Subqueries that become columns of the join's inputs.
struct Sides<'m> {
    left: Vec<Expr>,
    right: Vec<Expr>,
    counter: &'m mut usize,
}

impl Sides<'_> {
    /// Replaces subqueries in the condition by columns.
    fn extract(&mut self, filter: Expr, join: &Join) -> Result<Expr> {
        let extracted = filter.transform_down(|expr| {
            let Some(subquery) = unsupported_subquery(&expr) else { return Ok(Transformed::no(expr)) };
            let outer = outer_columns(subquery, join)?;
            let is_of = |schema: &DFSchema| outer.iter().all(|column| schema.has_column(column));
            let side = match () {
                () if is_of(join.left.schema()) => &mut self.left,
                () if is_of(join.right.schema()) => &mut self.right,
                () => return Ok(Transformed::no(expr)),
            };
            *self.counter += 1;
            let name = format!("__join_subquery_{}", self.counter);
            side.push(expr.alias(&name));
            let column = Expr::Column(Column::new_unqualified(name));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        Ok(extracted.data)
    }
}

/// The join columns that a subquery refers to.
fn outer_columns(subquery: &Subquery, join: &Join) -> Result<Vec<Column>> {
    let columns = free_references(&subquery.subquery)?.into_iter().map(|(column, _)| column);
    let is_of_join =
        |column: &Column| join.left.schema().has_column(column) || join.right.schema().has_column(column);
    Ok(columns.filter(is_of_join).collect())
}

fn add_columns(side: &Arc<LogicalPlan>, values: Vec<Expr>) -> Result<Arc<LogicalPlan>> {
    if values.is_empty() {
        return Ok(Arc::clone(side));
    }
    let columns = side.schema().columns().into_iter().map(Expr::Column).chain(values);
    let plan = LogicalPlanBuilder::from(Arc::clone(side)).project(columns.collect::<Vec<_>>())?;
    plan.build().map(Arc::new)
}
