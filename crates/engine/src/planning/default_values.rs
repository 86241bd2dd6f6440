//! Replaces `DEFAULT` in value lists, and `DEFAULT VALUES`, by the default expressions of the columns.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::sql::parser::Statement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{
    self, Assignment, AssignmentTarget, Insert, MergeAction, MergeInsertKind, ObjectName, SetExpr,
    TableFactor, TableObject, Value, Values,
};
use datafusion::sql::unparser::expr_to_sql;
use harrier_exec::data_files::text_of;
use harrier_sql::ast_builder::values_of;
use harrier_sql::identifier::last_part;
use harrier_sql::on_conflict;

/// Replaces DEFAULT by the defaults of the target table.
///
/// Errors: the table lookup fails.
pub(crate) async fn fill_defaults<'s>(
    state: &SessionState,
    statement: &'s Statement,
) -> Result<Cow<'s, Statement>> {
    if !may_have_default(statement) {
        return Ok(Cow::Borrowed(statement));
    }
    let mut statement = statement.clone();
    if let Some(written) = dml_statement(&mut statement)
        && let Some(name) = target(written)
        && let Some(table) = table_provider(state, &name).await?
    {
        fill(written, table.as_ref())?;
    }
    Ok(Cow::Owned(statement))
}

/// Whether the statement may contain DEFAULT. Most do not and need no copy.
fn may_have_default(statement: &Statement) -> bool {
    match statement {
        Statement::Explain(explain) => may_have_default(&explain.statement),
        Statement::Statement(statement) => match statement.as_ref() {
            ast::Statement::Prepare { statement, .. } => dml_has_default(statement),
            statement => dml_has_default(statement),
        },
        _ => false,
    }
}

fn dml_has_default(statement: &ast::Statement) -> bool {
    let is_set = |assignments: &[Assignment]| assignments.iter().any(|one| is_default(&one.value));
    match statement {
        ast::Statement::Insert(insert) => {
            is_set(on_conflict::assignments(insert))
                || match insert.source.as_deref().map(|source| source.body.as_ref()) {
                    None => insert.assignments.is_empty(),
                    Some(SetExpr::Values(values)) => has_default(values),
                    Some(_) => false,
                }
        }
        ast::Statement::Update(update) => is_set(&update.assignments),
        ast::Statement::Merge(merge) => merge.clauses.iter().any(|clause| match &clause.action {
            MergeAction::Insert(insert) => {
                matches!(&insert.kind, MergeInsertKind::Values(values) if has_default(values))
            }
            MergeAction::Update(update) => is_set(&update.assignments),
            _ => false,
        }),
        _ => false,
    }
}

fn has_default(values: &Values) -> bool {
    values.rows.iter().any(|row| row.content.iter().any(is_default))
}

pub(crate) fn is_default(value: &ast::Expr) -> bool {
    matches!(value, ast::Expr::Identifier(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default"))
}

/// The DML statement, also within EXPLAIN or PREPARE.
pub(crate) fn dml_statement(statement: &mut Statement) -> Option<&mut ast::Statement> {
    match statement {
        Statement::Explain(explain) => dml_statement(&mut explain.statement),
        Statement::Statement(statement) => match statement.as_mut() {
            ast::Statement::Prepare { statement, .. } => Some(statement),
            statement => Some(statement),
        },
        _ => None,
    }
}

/// The target table.
fn target(statement: &ast::Statement) -> Option<ObjectName> {
    let of = |relation: &TableFactor| match relation {
        TableFactor::Table { name, .. } => Some(name.clone()),
        _ => None,
    };
    match statement {
        ast::Statement::Insert(Insert { table: TableObject::TableName(name), .. }) => Some(name.clone()),
        ast::Statement::Update(update) => of(&update.table.relation),
        ast::Statement::Merge(merge) => of(&merge.table),
        _ => None,
    }
}

/// Looks up a table; `None` if it does not exist.
pub(crate) async fn table_provider(
    state: &SessionState,
    name: &ObjectName,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let defaults = &state.config_options().catalog;
    let name = object_name_to_table_reference(name.clone(), true)?
        .resolve(&defaults.default_catalog, &defaults.default_schema);
    match state.schema_for_ref(name.clone()) {
        Ok(schema) => schema.table(&name.table).await,
        Err(_) => Ok(None),
    }
}

fn fill(statement: &mut ast::Statement, table: &dyn TableProvider) -> Result<()> {
    match statement {
        ast::Statement::Insert(insert) => {
            if let Some(assignments) = on_conflict::assignments_mut(insert) {
                fill_assignments(assignments, table)?;
            }
            match insert.source.as_deref_mut() {
                None => {
                    let columns = columns_of(&[], table);
                    let row =
                        columns.iter().map(|column| default_of(column, table)).collect::<Result<Vec<_>>>()?;
                    insert.source = if row.is_empty() { None } else { Some(Box::new(values_of(row))) };
                }
                Some(source) => {
                    if let SetExpr::Values(values) = source.body.as_mut() {
                        fill_rows(values, &columns_of(&insert.columns, table), table)?;
                    }
                }
            }
        }
        ast::Statement::Update(update) => fill_assignments(&mut update.assignments, table)?,
        ast::Statement::Merge(merge) => {
            for clause in &mut merge.clauses {
                match &mut clause.action {
                    MergeAction::Insert(insert) => {
                        if let MergeInsertKind::Values(values) = &mut insert.kind {
                            fill_rows(values, &columns_of(&insert.columns, table), table)?;
                        }
                    }
                    MergeAction::Update(update) => fill_assignments(&mut update.assignments, table)?,
                    _ => {}
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// The target columns of the values, in order.
fn columns_of(named: &[ObjectName], table: &dyn TableProvider) -> Vec<String> {
    match named.is_empty() {
        true => table.schema().fields().iter().map(|field| field.name().clone()).collect(),
        false => named.iter().map(last_part).collect(),
    }
}

fn fill_rows(values: &mut Values, columns: &[String], table: &dyn TableProvider) -> Result<()> {
    for row in &mut values.rows {
        for (value, column) in row.content.iter_mut().zip(columns) {
            if is_default(value) {
                *value = default_of(column, table)?;
            }
        }
    }
    Ok(())
}

fn fill_assignments(assignments: &mut [Assignment], table: &dyn TableProvider) -> Result<()> {
    for assignment in assignments {
        if let AssignmentTarget::ColumnName(name) = &assignment.target
            && is_default(&assignment.value)
        {
            assignment.value = default_of(&last_part(name), table)?;
        }
    }
    Ok(())
}

fn default_of(column: &str, table: &dyn TableProvider) -> Result<ast::Expr> {
    match table.get_column_default(column) {
        None => Ok(ast::Expr::value(Value::Null)),
        Some(Expr::Literal(value, _)) => {
            let texts = text_of(&value.to_array()?)?;
            let text = texts.iter().next().flatten().map(str::to_string);
            // Write bytes as hexadecimal digits.
            let literal = if value.data_type().is_binary() {
                Value::HexStringLiteral
            } else {
                Value::SingleQuotedString
            };
            Ok(ast::Expr::value(text.map_or(Value::Null, literal)))
        }
        Some(other) => expr_to_sql(other),
    }
}
