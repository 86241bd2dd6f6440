//! Whether a role may do what a statement does to the rows of a table, checked before that is planned.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::dml::{InsertOp, MergeIntoAction, MergeIntoOp};
use datafusion::logical_expr::{DmlStatement, Expr, LogicalPlan, WriteOp};
use harrier_catalog::access::{Columns, Privilege};

use crate::warehouse::access::denied;
use crate::warehouse::table::WarehouseTable;

/// Checks `dml`, whose target is `target`. `inserted`: the columns that an INSERT names, if it names some.
///
/// What a statement reads of its target is taken from the names in it: a column of another table that is
/// called the same counts as well.
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
            check_columns(target, Privilege::Select, &named_in(&dml.input)?)
        }
        WriteOp::Update => check_update(target, &dml.input),
        WriteOp::MergeInto(merge) => check_merge(target, merge),
        _ => check_whole(target, Privilege::Truncate),
    }
}

/// Of an INSERT into the columns it names, or all of them.
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
    let mut read = named_in(&projection.input)?;
    let mut assigned = BTreeSet::new();
    for (column, value) in target.table().columns.iter().zip(&projection.expr) {
        let value = unaliased(value);
        let stays = matches!(value, Expr::Column(own) if own.name == column.name);
        if !stays {
            assigned.insert(column.name.clone());
            read.extend(names_of(value)?);
        }
    }
    check_columns(target, Privilege::Update, &assigned)?;
    check_columns(target, Privilege::Select, &read)
}

fn check_merge(target: &WarehouseTable, merge: &MergeIntoOp) -> Result<()> {
    let mut read = names_of(&merge.on)?;
    for clause in &merge.clauses {
        if let Some(predicate) = &clause.predicate {
            read.extend(names_of(predicate)?);
        }
        match &clause.action {
            MergeIntoAction::Delete => check_whole(target, Privilege::Delete)?,
            MergeIntoAction::Insert { columns, values } => {
                check_insert(target, Some(columns), false)?;
                for value in values {
                    read.extend(names_of(value)?);
                }
            }
            MergeIntoAction::Update(assignments) => {
                let assigned = assignments.iter().map(|(column, _)| column.clone()).collect();
                check_columns(target, Privilege::Update, &assigned)?;
                for (_, value) in assignments {
                    read.extend(names_of(value)?);
                }
            }
        }
    }
    check_columns(target, Privilege::Select, &read)
}

fn check_whole(target: &WarehouseTable, privilege: Privilege) -> Result<()> {
    target.viewer().check(target.object(), privilege, target.state())
}

/// Of the names, those of columns of the table count.
fn check_columns(target: &WarehouseTable, privilege: Privilege, names: &BTreeSet<String>) -> Result<()> {
    let own = target.table().columns.iter().filter(|column| names.contains(&column.name));
    let may = match target.viewer().columns(target.object(), privilege) {
        Columns::All => true,
        Columns::Some(columns) => own.into_iter().all(|column| columns.contains(&column.id)),
        Columns::None => own.into_iter().next().is_none(),
    };
    match may {
        true => Ok(()),
        false => Err(denied(&target.object().describe(target.state()))),
    }
}

/// The names of columns in the expressions of a plan and of the subqueries in it.
fn named_in(plan: &LogicalPlan) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    plan.apply_with_subqueries(|plan| {
        for expression in plan.expressions() {
            names.extend(names_of(&expression)?);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(names)
}

fn names_of(expression: &Expr) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    expression.apply(|part| {
        match part {
            Expr::Column(column) | Expr::OuterReferenceColumn(_, column) => {
                names.insert(column.name.clone());
            }
            Expr::ScalarSubquery(subquery) => names.extend(named_in(&subquery.subquery)?),
            Expr::InSubquery(inner) => names.extend(named_in(&inner.subquery.subquery)?),
            Expr::Exists(inner) => names.extend(named_in(&inner.subquery.subquery)?),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(names)
}

fn unaliased(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}
