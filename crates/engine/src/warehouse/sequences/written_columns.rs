//! Checks of values for identity columns: GENERATED ALWAYS accepts none, unless OVERRIDING is given.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, Assignment, AssignmentTarget, MergeAction, MergeInsertKind, ObjectName, SelectItem, SetExpr,
    TableFactor, TableObject,
};
use harrier_catalog::state::Table;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::{IntoDataFusionError, error};

use super::identity_of;
use crate::planning::default_values::is_default;
use crate::warehouse::name_resolver::NameResolver;
use crate::warehouse::relation::reference;
use harrier_sql::identifier::last_part;
use harrier_sql::on_conflict;
use harrier_sql::parser::sequence::{IdentityKind, Overriding};

const ALWAYS: SqlState = SqlState::GENERATED_ALWAYS;

/// Errors: a value for a GENERATED ALWAYS column (428C9).
pub(crate) fn check_identity_values(
    statement: &ast::Statement,
    overriding: Option<Overriding>,
    names: &NameResolver,
) -> Result<()> {
    if let ast::Statement::Insert(insert) = statement
        && let TableObject::TableName(name) = &insert.table
        && let assignments @ [_, ..] = on_conflict::assignments(insert)
        && let Some(table) = with_identity(name, names)?
    {
        check_assignments(&table, assignments)?;
    }
    match statement {
        ast::Statement::Insert(insert) if overriding.is_none() => {
            let TableObject::TableName(name) = &insert.table else { return Ok(()) };
            let Some(table) = with_identity(name, names)? else { return Ok(()) };
            match insert.source.as_deref().map(|source| source.body.as_ref()) {
                None => Ok(()),
                Some(SetExpr::Values(values)) => {
                    values.rows.iter().try_for_each(|row| check_row(&table, &insert.columns, &row.content))
                }
                Some(body) => {
                    let count = columns_of(body).unwrap_or(usize::MAX);
                    let mut named = targets(&table, &insert.columns).into_iter().take(count);
                    named
                        .find(|column| is_always(&table, column))
                        .map_or(Ok(()), |column| Err(non_default_value(&column)))
                }
            }
        }
        ast::Statement::Update(update) => match &update.table.relation {
            TableFactor::Table { name, .. } => match with_identity(name, names)? {
                Some(table) => check_assignments(&table, &update.assignments),
                None => Ok(()),
            },
            _ => Ok(()),
        },
        ast::Statement::Merge(merge) => {
            let TableFactor::Table { name, .. } = &merge.table else { return Ok(()) };
            let Some(table) = with_identity(name, names)? else { return Ok(()) };
            merge.clauses.iter().try_for_each(|clause| match &clause.action {
                MergeAction::Insert(insert) if overriding.is_none() => match &insert.kind {
                    MergeInsertKind::Values(values) => values
                        .rows
                        .iter()
                        .try_for_each(|row| check_row(&table, &insert.columns, &row.content)),
                    MergeInsertKind::Row => Ok(()),
                },
                MergeAction::Update(update) => check_assignments(&table, &update.assignments),
                _ => Ok(()),
            })
        }
        _ => Ok(()),
    }
}

/// The table, if it has identity columns.
fn with_identity(name: &ObjectName, names: &NameResolver) -> Result<Option<Arc<Table>>> {
    let table = names.table(&reference(name)?);
    Ok(table.filter(|table| table.columns.iter().any(|column| identity_of(column).is_some())))
}

fn is_always(table: &Table, name: &str) -> bool {
    let column = table.columns.iter().find(|column| column.name == name);
    column.and_then(identity_of) == Some(IdentityKind::Always)
}

/// The columns that the values are for, in order.
fn targets(table: &Table, named: &[ObjectName]) -> Vec<String> {
    match named.is_empty() {
        true => table.columns.iter().map(|column| column.name.clone()).collect(),
        false => named.iter().map(last_part).collect(),
    }
}

/// The number of a query's columns, if it is known from the syntax.
fn columns_of(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Select(select) => {
            let is_one = |item: &SelectItem| {
                matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
            };
            select.projection.iter().all(is_one).then_some(select.projection.len())
        }
        SetExpr::Query(query) => columns_of(&query.body),
        SetExpr::SetOperation { left, .. } => columns_of(left),
        _ => None,
    }
}

fn check_row(table: &Table, named: &[ObjectName], row: &[ast::Expr]) -> Result<()> {
    let mut written = targets(table, named).into_iter().zip(row);
    match written.find(|(column, value)| is_always(table, column) && !is_default(value)) {
        Some((column, _)) => Err(non_default_value(&column)),
        None => Ok(()),
    }
}

fn check_assignments(table: &Table, assignments: &[Assignment]) -> Result<()> {
    for assignment in assignments {
        let (names, is_default) = match &assignment.target {
            AssignmentTarget::ColumnName(name) => (std::slice::from_ref(name), is_default(&assignment.value)),
            AssignmentTarget::Tuple(names) => (names.as_slice(), false),
        };
        if let Some(column) = names.iter().map(last_part).find(|column| is_always(table, column))
            && !is_default
        {
            let message = format!("column \"{column}\" can only be updated to DEFAULT");
            return Err(SqlError::new(ALWAYS, message).with_detail(detail(&column)).into_datafusion());
        }
    }
    Ok(())
}

fn non_default_value(column: &str) -> DataFusionError {
    let message = format!("cannot insert a non-DEFAULT value into column \"{column}\"");
    SqlError::new(ALWAYS, message)
        .with_detail(detail(column))
        .with_hint("Use OVERRIDING SYSTEM VALUE to override.")
        .into_datafusion()
}

fn detail(column: &str) -> String {
    format!("Column \"{column}\" is an identity column defined as GENERATED ALWAYS.")
}

/// Replaces the values for identity columns by DEFAULT in an INSERT with OVERRIDING USER VALUE; `None` for
/// other statements.
///
/// Errors: the rows come from a query with such values (0A000).
pub(crate) fn with_identity_defaults(
    statement: &Statement,
    overriding: Option<Overriding>,
    names: &NameResolver,
) -> Result<Option<Statement>> {
    if overriding != Some(Overriding::UserValue) {
        return Ok(None);
    }
    let Statement::Statement(written) = statement else { return Ok(None) };
    let ast::Statement::Insert(insert) = written.as_ref() else { return Ok(None) };
    let TableObject::TableName(name) = &insert.table else { return Ok(None) };
    let Some(table) = with_identity(name, names)? else { return Ok(None) };
    let mut insert = insert.clone();
    let targets = targets(&table, &insert.columns);
    let is_identity = |name: &String| {
        table.columns.iter().any(|column| column.name == *name && identity_of(column).is_some())
    };
    match insert.source.as_deref_mut().map(|source| source.body.as_mut()) {
        None => {}
        Some(SetExpr::Values(values)) => {
            for (value, _) in values
                .rows
                .iter_mut()
                .flat_map(|row| row.content.iter_mut().zip(&targets))
                .filter(|(_, column)| is_identity(column))
            {
                *value = ast::Expr::Identifier(ast::Ident::new("DEFAULT"));
            }
        }
        Some(body) => {
            let count = columns_of(body).unwrap_or(usize::MAX);
            if targets.iter().take(count).any(is_identity) {
                let message =
                    "OVERRIDING USER VALUE of a query that has values for identity columns is not supported";
                return Err(error(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
        }
    }
    Ok(Some(Statement::Statement(Box::new(ast::Statement::Insert(insert)))))
}
