//! Privilege checks of statements that change rows, before they are planned.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::dml::{InsertOp, MergeIntoAction, MergeIntoOp};
use datafusion::logical_expr::{DmlStatement, Expr, LogicalPlan, WriteOp};
use harrier_catalog::access::{Columns, Privilege};
use harrier_planner::binder::on_conflict::inserted_rows;
use harrier_planner::rewrite::strip_alias;

use crate::warehouse::access::permission_denied;
use crate::warehouse::table::WarehouseTable;

/// Checks `dml`, whose target is `target`. `inserted`: an INSERT's column list, if it has one.
///
/// The columns that a statement reads of its target are found by name: a column of another table with the
/// same name counts too.
///
/// Errors: a privilege is missing (42501).
pub(crate) fn check(target: &WarehouseTable, dml: &DmlStatement, inserted: Option<&[String]>) -> Result<()> {
    if target.viewer().owns(target.object()) {
        return Ok(());
    }
    match &dml.op {
        WriteOp::Insert(op) => check_insert(target, inserted, *op == InsertOp::Overwrite),
        WriteOp::Ctas => check_insert(target, None, false),
        WriteOp::Delete => {
            check_whole(target, Privilege::Delete)?;
            check_columns(target, Privilege::Select, &columns_in_plan(&dml.input)?)
        }
        WriteOp::Update => check_update(target, &dml.input),
        WriteOp::MergeInto(merge) => check_merge(target, merge, &dml.input, inserted),
        _ => check_whole(target, Privilege::Truncate),
    }
}

/// Checks an INSERT into the listed columns, or all of them.
pub(crate) fn check_insert(
    target: &WarehouseTable,
    inserted: Option<&[String]>,
    overwrites: bool,
) -> Result<()> {
    if overwrites {
        check_whole(target, Privilege::Delete)?;
    }
    let columns = match inserted.filter(|columns| !columns.is_empty()) {
        Some(columns) => columns.iter().cloned().collect(),
        None => target.table().columns.iter().map(|column| column.name.clone()).collect(),
    };
    check_columns(target, Privilege::Insert, &columns)
}

fn check_update(target: &WarehouseTable, input: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Projection(projection) = input else {
        return check_whole(target, Privilege::Update);
    };
    let mut read = columns_in_plan(&projection.input)?;
    let mut assigned = BTreeSet::new();
    for (column, value) in target.table().columns.iter().zip(&projection.expr) {
        let value = strip_alias(value);
        let stays = matches!(value, Expr::Column(own) if own.name == column.name);
        if !stays {
            assigned.insert(column.name.clone());
            read.extend(columns_in_expr(value)?);
        }
    }
    check_columns(target, Privilege::Update, &assigned)?;
    check_columns(target, Privilege::Select, &read)
}

/// `inserted`: the column list of an INSERT that is planned as this MERGE.
fn check_merge(
    target: &WarehouseTable,
    merge: &MergeIntoOp,
    input: &LogicalPlan,
    inserted: Option<&[String]>,
) -> Result<()> {
    let is_insert = inserted_rows(input).is_some();
    let mut read = columns_in_expr(&merge.on)?;
    for clause in &merge.clauses {
        if let Some(predicate) = &clause.predicate {
            read.extend(columns_in_expr(predicate)?);
        }
        match &clause.action {
            MergeIntoAction::Delete => check_whole(target, Privilege::Delete)?,
            // The values are those of the rows to insert.
            MergeIntoAction::Insert { .. } if is_insert => check_insert(target, inserted, false)?,
            MergeIntoAction::Insert { columns, values } => {
                check_insert(target, Some(columns), false)?;
                for value in values {
                    read.extend(columns_in_expr(value)?);
                }
            }
            MergeIntoAction::Update(assignments) => {
                let assigned = assignments.iter().map(|(column, _)| column.clone()).collect();
                check_columns(target, Privilege::Update, &assigned)?;
                for (_, value) in assignments {
                    read.extend(columns_in_expr(value)?);
                }
            }
        }
    }
    check_columns(target, Privilege::Select, &read)
}

fn check_whole(target: &WarehouseTable, privilege: Privilege) -> Result<()> {
    target.viewer().check(target.object(), privilege, target.state())
}

/// Only names of the table's columns count.
fn check_columns(target: &WarehouseTable, privilege: Privilege, names: &BTreeSet<String>) -> Result<()> {
    let own = target.table().columns.iter().filter(|column| names.contains(&column.name));
    let may = match target.viewer().columns(target.object(), privilege) {
        Columns::All => true,
        Columns::Some(columns) => own.into_iter().all(|column| columns.contains(&column.id)),
        Columns::None => own.into_iter().next().is_none(),
    };
    match may {
        true => Ok(()),
        false => Err(permission_denied(&target.object().describe(target.state()))),
    }
}

/// The names of columns in the expressions of a plan and its subqueries.
fn columns_in_plan(plan: &LogicalPlan) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    plan.apply_with_subqueries(|plan| {
        for expression in plan.expressions() {
            names.extend(columns_in_expr(&expression)?);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(names)
}

fn columns_in_expr(expression: &Expr) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    expression.apply(|part| {
        match part {
            Expr::Column(column) | Expr::OuterReferenceColumn(_, column) => {
                names.insert(column.name.clone());
            }
            Expr::ScalarSubquery(subquery) => names.extend(columns_in_plan(&subquery.subquery)?),
            Expr::InSubquery(inner) => names.extend(columns_in_plan(&inner.subquery.subquery)?),
            Expr::Exists(inner) => names.extend(columns_in_plan(&inner.subquery.subquery)?),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(names)
}
