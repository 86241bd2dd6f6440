//! The correlated subqueries that DataFusion decorrelates correctly: their outer references occur only in
//! WHERE conditions that can be pulled up into the join.

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::logical_plan::{Aggregate, Join};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, JoinType, LogicalPlan, Operator};

use super::references::{free_references, free_references_of, has_subquery, scope, subquery_of};

/// Whether an EXISTS, IN or LATERAL subquery can be joined on its conditions.
pub(super) fn is_plain(plan: &LogicalPlan) -> Result<bool> {
    Ok(has_unambiguous_names(plan)? && has_plain_rows(plan, &|_| true)?)
}

/// Whether a scalar subquery is a single aggregate without groups over rows selected by equality with a
/// column.
pub(super) fn is_plain_value(plan: &LogicalPlan) -> Result<bool> {
    Ok(has_unambiguous_names(plan)? && has_plain_value(plan)?)
}

fn has_plain_value(plan: &LogicalPlan) -> Result<bool> {
    match plan {
        LogicalPlan::Projection(list) => {
            Ok(!list.expr.iter().any(|expr| expr.contains_outer() || has_subquery(expr))
                && has_plain_value(&list.input)?)
        }
        LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. }) => Ok(group_expr.is_empty()
            && !aggr_expr.is_empty()
            && !aggr_expr.iter().any(|expr| expr.contains_outer() || has_subquery(expr))
            && has_plain_rows(input, &is_key)?),
        _ => Ok(false),
    }
}

/// Whether outer references occur only in conditions that `fits` accepts, and only below operators that do
/// not depend on the set of rows. (An alias does: DataFusion does not add the join columns to it.)
fn has_plain_rows(plan: &LogicalPlan, fits: &dyn Fn(&Expr) -> bool) -> Result<bool> {
    if free_references(plan)?.is_empty() {
        return Ok(true);
    }
    match plan {
        LogicalPlan::Projection(list) => {
            let is_correlated = |expr: &Expr| Ok(expr.contains_outer() || has_correlated(expr)?);
            let is_free = list.expr.iter().map(is_correlated).collect::<Result<Vec<_>>>()?.contains(&true);
            Ok(!is_free && has_plain_rows(&list.input, fits)?)
        }
        LogicalPlan::Subquery(subquery) => has_plain_rows(&subquery.subquery, fits),
        LogicalPlan::Filter(filter) => {
            let is_fit =
                |part: &&Expr| !part.contains_outer() || !has_subquery(part) && is_join(part) && fits(part);
            let all_fit = split_conjunction(&filter.predicate).iter().all(is_fit);
            let is_above_other = matches!(filter.input.as_ref(), LogicalPlan::Filter(_));
            Ok(all_fit && !is_above_other && !has_nested(plan)? && has_plain_rows(&filter.input, fits)?)
        }
        LogicalPlan::Join(Join { left: outer, right: inner, on, filter, join_type, .. }) => {
            let conditions = on.iter().flat_map(|(one, other)| [one, other]).chain(filter);
            if conditions.into_iter().any(Expr::contains_outer) || has_nested(plan)? {
                return Ok(false);
            }
            match join_type {
                JoinType::Inner => Ok(has_plain_rows(outer, fits)? && has_plain_rows(inner, fits)?),
                JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => {
                    Ok(free_references(inner)?.is_empty() && has_plain_rows(outer, fits)?)
                }
                _ => Ok(false),
            }
        }
        _ => Ok(false),
    }
}

/// Whether subqueries in a node's expressions refer to columns other than the node's own.
fn has_nested(plan: &LogicalPlan) -> Result<bool> {
    let scope = scope(plan)?;
    let mut is_nested = false;
    plan.apply_expressions(|expr| {
        is_nested |= has_subquery(expr) && !free_references_of(expr, &scope)?.is_empty();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_nested)
}

/// Whether an expression contains a correlated subquery.
fn has_correlated(expr: &Expr) -> Result<bool> {
    let mut is_correlated = false;
    expr.apply(|part| {
        if let Some(subquery) = subquery_of(part) {
            is_correlated |= !free_references(&subquery.subquery)?.is_empty();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_correlated)
}

/// DataFusion drops `x = x`, which is not true for NULL.
fn is_join(condition: &Expr) -> bool {
    !matches!(condition, Expr::BinaryExpr(BinaryExpr { left: one, op: Operator::Eq, right: other }) if one == other)
}

/// Whether a condition equates a column, which can then be a grouping key, with an expression of outer
/// columns only.
fn is_key(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left: one, op: Operator::Eq, right: other }) = condition else {
        return false;
    };
    let is_column = |expr: &Expr| match expr {
        Expr::Cast(Cast { expr, .. }) => matches!(expr.as_ref(), Expr::Column(_)),
        expr => matches!(expr, Expr::Column(_)),
    };
    let is_outer = |expr: &Expr| expr.contains_outer() && !expr.any_column_refs();
    is_column(one) && is_outer(other) || is_column(other) && is_outer(one)
}

/// Whether all column names are unambiguous for DataFusion: outer columns differ from the plan's own, and
/// join columns that it adds to the projection differ from the selected names.
fn has_unambiguous_names(plan: &LogicalPlan) -> Result<bool> {
    let outer = free_references(plan)?;
    let mut joined: Vec<Column> = Vec::new();
    let mut are_unambiguous = true;
    // DataFusion does not change the plan below the last outer reference.
    let within = |node: &LogicalPlan| Ok::<bool, DataFusionError>(!free_references(node)?.is_empty());
    plan.apply(|node| {
        if !within(node)? {
            return Ok(TreeNodeRecursion::Jump);
        }
        are_unambiguous &= !outer.iter().any(|(column, _)| node.schema().has_column(column));
        if let LogicalPlan::Filter(filter) = node {
            let conditions =
                split_conjunction(&filter.predicate).into_iter().filter(|part| part.contains_outer());
            for column in conditions.flat_map(Expr::column_refs) {
                are_unambiguous &= !joined.iter().any(|other| other.name == column.name && other != column);
                joined.push(column.clone());
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    plan.apply(|node| {
        if !within(node)? {
            return Ok(TreeNodeRecursion::Jump);
        }
        let mut fields = node.schema().iter();
        let is_joined = |name: &String| joined.iter().any(|column| column.name == *name);
        are_unambiguous &= !fields.any(|(qualifier, field)| qualifier.is_none() && is_joined(field.name()));
        if let LogicalPlan::Projection(list) = node {
            // A cast has the name of its operand.
            let computed = list.expr.iter().filter(|expr| !matches!(expr, Expr::Column(_)));
            let mut names = computed.map(|expr| expr.schema_name().to_string());
            are_unambiguous &= !names.any(|name| joined.iter().any(|column| column.flat_name() == name));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(are_unambiguous)
}
