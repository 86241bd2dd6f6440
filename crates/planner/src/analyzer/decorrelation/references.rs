//! Outer references: the columns of the query around it that a subquery speaks of, at whatever depth.

use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Spans};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Join, Subquery};
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::rewrite::input_schema;

/// A column of a query around, with its type.
pub(crate) type Reference = (Column, FieldRef);

/// The subquery that an expression is of.
pub(crate) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Has `change` see the subquery that an expression is of; it returns whether it has changed it.
pub(crate) fn changed_subquery(
    mut expr: Expr,
    change: impl FnOnce(&mut Subquery) -> Result<bool>,
) -> Result<Transformed<Expr>> {
    let is_changed = match &mut expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => change(subquery)?,
        _ => false,
    };
    Ok(Transformed::new_transformed(expr, is_changed))
}

pub fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|part| Ok(subquery_of(part).is_some())).unwrap_or(false)
}

/// How many subqueries there are in an expression, those inside of others too.
pub(super) fn count_subqueries(expr: &Expr) -> Result<usize> {
    let mut count = 0;
    expr.apply(|part| {
        if let Some(subquery) = subquery_of(part) {
            count += 1 + count_subqueries_in(&subquery.subquery)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(count)
}

/// How many subqueries there are in a plan, those inside of others too.
pub(super) fn count_subqueries_in(plan: &LogicalPlan) -> Result<usize> {
    let mut count = 0;
    plan.apply(|node| {
        for expr in node.expressions() {
            count += count_subqueries(&expr)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(count)
}

/// The same expression with another plan for its subquery.
pub(super) fn with_plan(expr: Expr, plan: LogicalPlan) -> Result<Expr> {
    let outer_ref_columns = free(&plan)?;
    let outer_ref_columns = outer_ref_columns.into_iter().map(outer_reference).collect();
    let subquery = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() };
    Ok(match expr {
        Expr::ScalarSubquery(_) => Expr::ScalarSubquery(subquery),
        Expr::Exists(exists) => Expr::Exists(Exists { subquery, ..exists }),
        Expr::InSubquery(search) => Expr::InSubquery(InSubquery { subquery, ..search }),
        Expr::SetComparison(comparison) => Expr::SetComparison(SetComparison { subquery, ..comparison }),
        other => other,
    })
}

pub(super) fn outer_reference((column, field): Reference) -> Expr {
    Expr::OuterReferenceColumn(field, column)
}

/// The columns that a node's expressions and the subqueries in them may speak of.
pub(super) fn scope(plan: &LogicalPlan) -> Result<DFSchema> {
    input_schema(plan)
}

/// The outer references of a plan that nothing in it answers to, also those of subqueries in its subqueries.
pub fn free(plan: &LogicalPlan) -> Result<Vec<Reference>> {
    let mut found = Vec::new();
    collect(plan, &mut found)?;
    Ok(found)
}

fn add(found: &mut Vec<Reference>, reference: Reference) {
    if !found.iter().any(|(column, _)| *column == reference.0) {
        found.push(reference);
    }
}

fn collect(plan: &LogicalPlan, found: &mut Vec<Reference>) -> Result<()> {
    plan.apply_expressions(|expr| {
        collect_of(expr, || scope(plan), found)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    match plan {
        LogicalPlan::Join(join) if is_lateral(join)? => {
            collect(&join.left, found)?;
            for reference in free(&join.right)? {
                if !join.left.schema().has_column(&reference.0) {
                    add(found, reference);
                }
            }
            Ok(())
        }
        _ => plan.inputs().into_iter().try_for_each(|input| collect(input, found)),
    }
}

/// The same of an expression that may speak of the columns of `scope`.
fn collect_of(expr: &Expr, scope: impl Fn() -> Result<DFSchema>, found: &mut Vec<Reference>) -> Result<()> {
    expr.apply(|part| {
        match part {
            Expr::OuterReferenceColumn(field, column) => add(found, (column.clone(), Arc::clone(field))),
            other => {
                if let Some(subquery) = subquery_of(other) {
                    let scope = scope()?;
                    for reference in free(&subquery.subquery)? {
                        if !scope.has_column(&reference.0) {
                            add(found, reference);
                        }
                    }
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The outer references of an expression that are not about the columns of `scope`.
pub(super) fn free_of(expr: &Expr, scope: &DFSchema) -> Result<Vec<Reference>> {
    let mut found = Vec::new();
    collect_of(expr, || Ok(scope.clone()), &mut found)?;
    Ok(found)
}

/// Whether the right side of a join speaks of columns of the left one, as LATERAL lets it.
pub(super) fn is_lateral(join: &Join) -> Result<bool> {
    let columns = join.left.schema();
    if !free(&join.right)?.iter().any(|(column, _)| columns.has_column(column)) {
        return Ok(false);
    }
    // The planner marks it, unless only subqueries in it do so. Without the mark a column of the same name is
    // one of a query further out.
    let is_marked = join.right.exists(|node| Ok(matches!(node, LogicalPlan::Subquery(_))))?;
    let is_direct = join
        .right
        .all_out_ref_exprs()
        .iter()
        .any(|expr| matches!(expr, Expr::OuterReferenceColumn(_, column) if columns.has_column(column)));
    Ok(is_marked || !is_direct)
}

/// A plan with other columns for some of its free outer references: what was the first is the second.
pub(super) fn moved(plan: LogicalPlan, moves: &[(Column, Reference)]) -> Result<LogicalPlan> {
    if moves.is_empty() {
        return Ok(plan);
    }
    let plan = match plan {
        LogicalPlan::Join(join) if is_lateral(&join)? => {
            let below = outside(moves, join.left.schema());
            let outer = moved(Arc::unwrap_or_clone(join.left), moves)?;
            let inner = moved(Arc::unwrap_or_clone(join.right), &below)?;
            LogicalPlan::Join(Join::try_new(
                Arc::new(outer),
                Arc::new(inner),
                join.on,
                join.filter,
                join.join_type,
                join.join_constraint,
                join.null_equality,
                join.null_aware,
            )?)
        }
        other => other.map_children(|child| moved(child, moves).map(Transformed::yes))?.data,
    };
    let scope = scope(&plan)?;
    let names = NamePreserver::new(&plan);
    let changed = plan.map_expressions(|expr| {
        let mut move_within = |expr: Expr| {
            let name = names.save(&expr);
            let changed = moved_of(expr, moves, &scope)?;
            Ok(Transformed::yes(name.restore(changed)))
        };
        match expr {
            Expr::GroupingSet(_) => expr.map_children(&mut move_within),
            expr => move_within(expr),
        }
    })?;
    match changed.data {
        LogicalPlan::Subquery(subquery) => {
            let outer_ref_columns = free(&subquery.subquery)?.into_iter().map(outer_reference).collect();
            Ok(LogicalPlan::Subquery(Subquery { outer_ref_columns, ..subquery }))
        }
        other => other.recompute_schema(),
    }
}

/// [`moved`] of one expression.
pub(super) fn moved_of(expr: Expr, moves: &[(Column, Reference)], scope: &DFSchema) -> Result<Expr> {
    let below = outside(moves, scope);
    let changed = expr.transform_up(|part| match part {
        Expr::OuterReferenceColumn(field, column) => {
            Ok(Transformed::yes(match moves.iter().find(|(from, _)| *from == column) {
                Some((_, to)) => outer_reference(to.clone()),
                None => Expr::OuterReferenceColumn(field, column),
            }))
        }
        other => match subquery_of(&other).map(|subquery| subquery.subquery.as_ref().clone()) {
            Some(plan) => with_plan(other, moved(plan, &below)?).map(Transformed::yes),
            None => Ok(Transformed::no(other)),
        },
    })?;
    Ok(changed.data)
}

/// Those that are not about a column of the same name further in.
fn outside(moves: &[(Column, Reference)], scope: &DFSchema) -> Vec<(Column, Reference)> {
    moves.iter().filter(|(from, _)| !scope.has_column(from)).cloned().collect()
}
