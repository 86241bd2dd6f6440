//! Outer references: columns of an enclosing query that a subquery refers to, at any depth.

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

/// A column of an enclosing query, with its type.
pub(crate) type Reference = (Column, FieldRef);

/// The subquery of an expression.
pub(crate) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Applies `change` to the subquery of an expression; it returns whether it changed anything.
pub(crate) fn map_subquery(
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

/// The number of subqueries in an expression, including nested ones.
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

/// The number of subqueries in a plan, including nested ones.
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

/// Replaces the plan of a subquery expression.
pub(crate) fn with_plan(expr: Expr, plan: LogicalPlan) -> Result<Expr> {
    let outer_ref_columns = free_references(&plan)?;
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

/// The columns that a node's expressions and their subqueries may refer to.
pub(super) fn scope(plan: &LogicalPlan) -> Result<DFSchema> {
    input_schema(plan)
}

/// The free outer references of a plan, which nothing in it resolves, including those of nested subqueries.
pub fn free_references(plan: &LogicalPlan) -> Result<Vec<Reference>> {
    let mut found = Vec::new();
    collect_references(plan, &mut found)?;
    Ok(found)
}

fn add_reference(found: &mut Vec<Reference>, reference: Reference) {
    if !found.iter().any(|(column, _)| *column == reference.0) {
        found.push(reference);
    }
}

fn collect_references(plan: &LogicalPlan, found: &mut Vec<Reference>) -> Result<()> {
    plan.apply_expressions(|expr| {
        collect_references_of(expr, || scope(plan), found)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    match plan {
        LogicalPlan::Join(join) if is_lateral(join)? => {
            collect_references(&join.left, found)?;
            for reference in free_references(&join.right)? {
                if !join.left.schema().has_column(&reference.0) {
                    add_reference(found, reference);
                }
            }
            Ok(())
        }
        _ => plan.inputs().into_iter().try_for_each(|input| collect_references(input, found)),
    }
}

/// Collects those of an expression whose scope has the columns of `scope`.
fn collect_references_of(
    expr: &Expr,
    scope: impl Fn() -> Result<DFSchema>,
    found: &mut Vec<Reference>,
) -> Result<()> {
    expr.apply(|part| {
        match part {
            Expr::OuterReferenceColumn(field, column) => {
                add_reference(found, (column.clone(), Arc::clone(field)))
            }
            other => {
                if let Some(subquery) = subquery_of(other) {
                    let scope = scope()?;
                    for reference in free_references(&subquery.subquery)? {
                        if !scope.has_column(&reference.0) {
                            add_reference(found, reference);
                        }
                    }
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The outer references of an expression that the columns of `scope` do not resolve.
pub(super) fn free_references_of(expr: &Expr, scope: &DFSchema) -> Result<Vec<Reference>> {
    let mut found = Vec::new();
    collect_references_of(expr, || Ok(scope.clone()), &mut found)?;
    Ok(found)
}

/// Whether the right side of a join refers to columns of the left one (LATERAL).
pub(super) fn is_lateral(join: &Join) -> Result<bool> {
    let columns = join.left.schema();
    if !free_references(&join.right)?.iter().any(|(column, _)| columns.has_column(column)) {
        return Ok(false);
    }
    // The planner marks such joins by a Subquery node, unless only nested subqueries refer to the left side.
    // Without the mark, a column of the same name belongs to an outer query.
    let is_marked = join.right.exists(|node| Ok(matches!(node, LogicalPlan::Subquery(_))))?;
    let is_direct = join
        .right
        .all_out_ref_exprs()
        .iter()
        .any(|expr| matches!(expr, Expr::OuterReferenceColumn(_, column) if columns.has_column(column)));
    Ok(is_marked || !is_direct)
}

/// Replaces free outer references in a plan; each pair maps the old column to the new one.
pub(super) fn replace_references(
    plan: LogicalPlan,
    replacements: &[(Column, Reference)],
) -> Result<LogicalPlan> {
    if replacements.is_empty() {
        return Ok(plan);
    }
    let plan = match plan {
        LogicalPlan::Join(join) if is_lateral(&join)? => {
            let below = visible_replacements(replacements, join.left.schema());
            let outer = replace_references(Arc::unwrap_or_clone(join.left), replacements)?;
            let inner = replace_references(Arc::unwrap_or_clone(join.right), &below)?;
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
        other => {
            other.map_children(|child| replace_references(child, replacements).map(Transformed::yes))?.data
        }
    };
    let scope = scope(&plan)?;
    let names = NamePreserver::new(&plan);
    let changed = plan.map_expressions(|expr| {
        let mut replace_within = |expr: Expr| {
            let name = names.save(&expr);
            let changed = replace_references_in(expr, replacements, &scope)?;
            Ok(Transformed::yes(name.restore(changed)))
        };
        match expr {
            Expr::GroupingSet(_) => expr.map_children(&mut replace_within),
            expr => replace_within(expr),
        }
    })?;
    match changed.data {
        LogicalPlan::Subquery(subquery) => {
            let outer_ref_columns =
                free_references(&subquery.subquery)?.into_iter().map(outer_reference).collect();
            Ok(LogicalPlan::Subquery(Subquery { outer_ref_columns, ..subquery }))
        }
        other => other.recompute_schema(),
    }
}

/// [`replace_references`] for an expression.
pub(super) fn replace_references_in(
    expr: Expr,
    replacements: &[(Column, Reference)],
    scope: &DFSchema,
) -> Result<Expr> {
    let below = visible_replacements(replacements, scope);
    let changed = expr.transform_up(|part| match part {
        Expr::OuterReferenceColumn(field, column) => {
            Ok(Transformed::yes(match replacements.iter().find(|(from, _)| *from == column) {
                Some((_, to)) => outer_reference(to.clone()),
                None => Expr::OuterReferenceColumn(field, column),
            }))
        }
        other => match subquery_of(&other).map(|subquery| subquery.subquery.as_ref().clone()) {
            Some(plan) => with_plan(other, replace_references(plan, &below)?).map(Transformed::yes),
            None => Ok(Transformed::no(other)),
        },
    })?;
    Ok(changed.data)
}

/// Drops the replacements that a column of the same name in `scope` shadows.
fn visible_replacements(replacements: &[(Column, Reference)], scope: &DFSchema) -> Vec<(Column, Reference)> {
    replacements.iter().filter(|(from, _)| !scope.has_column(from)).cloned().collect()
}
