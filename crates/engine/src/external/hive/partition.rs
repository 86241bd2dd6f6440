//! Hive's `INSERT … INTO t PARTITION (k = 'v', other)`: static partitions by constants, dynamic ones by the
//! last columns of the rows. Crate `sql` parses it.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast;
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::partition_folder;
use harrier_functions::datetime::infinity::infinite;
use harrier_sql::ast_builder::{derived_table, query_of, table_alias};
use harrier_sql::parser::insert_partition::InsertPartition;
use harrier_sqlstate::IntoDataFusionError;

use crate::external::hive::table::FolderTable;

/// Adds the partition keys to the INSERT's columns, and their values to its rows.
///
/// Errors: the table is not partitioned by these keys (42703, 42601).
pub(crate) fn insert_into_partition(
    clause: &InsertPartition,
    insert: &ast::Insert,
    table: &FolderTable,
) -> Result<ast::Insert> {
    let wrong = |state, message: String| Err(SqlError::new(state, message).into_datafusion());
    let name = &insert.table;
    for (at, (key, _)) in clause.keys.iter().enumerate() {
        if !table.keys().iter().any(|(known, _)| known == key) {
            return wrong(SqlState::UNDEFINED_COLUMN, format!("{name} is not partitioned by \"{key}\""));
        }
        if clause.keys[..at].iter().any(|(before, _)| before == key) {
            return wrong(SqlState::DUPLICATE_COLUMN, format!("key \"{key}\" is named twice"));
        }
    }
    if let Some((missing, _)) =
        table.keys().iter().find(|(key, _)| !clause.keys.iter().any(|(named, _)| named == key))
    {
        let message = format!("PARTITION does not name the key \"{missing}\" of {name}");
        return wrong(SqlState::SYNTAX_ERROR, message);
    }
    let Some(source) = &insert.source else {
        return wrong(SqlState::SYNTAX_ERROR, "INSERT … PARTITION needs rows".to_string());
    };
    let quoted = |name: &String| ast::Ident::with_quote('"', name.clone());
    let mut columns: Vec<ast::ObjectName> = match insert.columns.is_empty() {
        true => {
            let schema = table.file_schema();
            let own: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
            let dynamic = clause.keys.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.clone());
            own.into_iter().chain(dynamic).map(|name| ast::ObjectName::from(vec![quoted(&name)])).collect()
        }
        false => insert.columns.clone(),
    };
    let mut insert = insert.clone();
    let values: Vec<(&String, &ast::Expr)> =
        clause.keys.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))).collect();
    if !values.is_empty() {
        columns.extend(values.iter().map(|(key, _)| ast::ObjectName::from(vec![quoted(key)])));
        let values: Vec<ast::Expr> = values.into_iter().map(|(_, value)| value.clone()).collect();
        insert.source = Some(Box::new(with_values(source, &values)));
    }
    insert.columns = columns;
    Ok(insert)
}

/// The folder of a fully static partition: every key has a value.
pub(super) fn static_folder(clause: &InsertPartition, table: &FolderTable) -> Result<Option<String>> {
    let mut folder = String::new();
    for (key, kind) in table.keys() {
        let value = clause.keys.iter().find(|(named, _)| named == key).and_then(|(_, value)| value.as_ref());
        let Some(value) = value else {
            return Ok(None);
        };
        folder.push_str(&partition_folder(key, text_of(value, key, kind)?.as_deref()));
        folder.push('/');
    }
    Ok(Some(folder))
}

/// A key's value as text for folder names.
fn text_of(value: &ast::Expr, key: &str, kind: &DataType) -> Result<Option<String>> {
    let text = match value {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Null => return Ok(None),
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => text.clone(),
            other => other.to_string(),
        },
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => format!("-{expr}"),
        ast::Expr::TypedString(typed) => typed.value.value.clone().into_string().unwrap_or_default(),
        other => {
            let message = format!("PARTITION takes constants, and not {other}");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion());
        }
    };
    let kind = match kind {
        DataType::Dictionary(_, value) => value.as_ref(),
        kind => kind,
    };
    if infinite(&text, kind).is_some() {
        return Err(unrepresentable_value(&text, key, kind));
    }
    let value = ScalarValue::try_from_string(text, kind)?.cast_to(&DataType::Utf8)?;
    match value {
        ScalarValue::Utf8(text) => Ok(text.filter(|text| !text.is_empty())),
        _ => Ok(None),
    }
}

/// `SELECT *, value, … FROM (source)`. Rows of VALUES are extended one by one, so that they have as many
/// values as the table has columns.
fn with_values(source: &ast::Query, values: &[ast::Expr]) -> ast::Query {
    if let ast::SetExpr::Values(_) = source.body.as_ref() {
        let mut source = source.clone();
        if let ast::SetExpr::Values(listed) = source.body.as_mut() {
            listed.rows.iter_mut().for_each(|row| row.content.extend_from_slice(values));
        }
        return source;
    }
    let mut items = vec![ast::SelectItem::Wildcard(ast::WildcardAdditionalOptions::default())];
    items.extend(values.iter().cloned().map(ast::SelectItem::UnnamedExpr));
    let rows = table_alias(ast::Ident::with_quote('"', "_harrier_rows"));
    query_of(items, vec![derived_table(source.clone(), rows)])
}

/// The error for a value that a folder's name cannot represent.
pub(crate) fn unrepresentable_value(value: &str, key: &str, kind: &DataType) -> DataFusionError {
    let state = match kind {
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => SqlState::DATETIME_FIELD_OVERFLOW,
        _ => SqlState::DATA_EXCEPTION,
    };
    let message =
        format!("value \"{value}\" of the partition key \"{key}\" cannot be kept in a folder's name");
    SqlError::new(state, message).into_datafusion()
}
