//! `COLLATE` of columns: text is ordered by bytes, which is `"C"`, `"POSIX"` and the default collation. No
//! others are supported.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, AlterTableOperation, ColumnDef, ColumnOption, DataType, ObjectName,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::identifier::plain;

/// What stands in for other collations.
pub(super) const HINT: &str = "texts are ordered by their bytes, which COLLATE \"C\" says";

/// Drops collations that are the byte order.
///
/// Errors: another collation (42704), or one of a type that is not text (42804).
pub(super) fn resolve(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::Statement(statement) => match statement.as_mut() {
            ast::Statement::CreateTable(create) => create.columns.iter_mut().try_for_each(resolve_column),
            ast::Statement::AlterTable(alter) => {
                alter.operations.iter_mut().try_for_each(|operation| match operation {
                    AlterTableOperation::AddColumn { column_def, .. } => resolve_column(column_def),
                    _ => Ok(()),
                })
            }
            _ => Ok(()),
        },
        Statement::CreateExternalTable(create) => create.columns.iter_mut().try_for_each(resolve_column),
        _ => Ok(()),
    }
}

fn resolve_column(column: &mut ColumnDef) -> Result<()> {
    for option in &column.options {
        let ColumnOption::Collation(collation) = &option.option else { continue };
        let (state, message) = if !is_text(&column.data_type) {
            let kind = column.data_type.to_string().to_lowercase();
            (SqlState::DATATYPE_MISMATCH, format!("collations are not supported by type {kind}"))
        } else if !is_byte_order(collation) {
            let name = collation.0.last().and_then(|part| part.as_ident()).map(plain).unwrap_or_default();
            (SqlState::UNDEFINED_OBJECT, format!("collation \"{name}\" does not exist"))
        } else {
            continue;
        };
        return Err(SqlError::new(state, message).with_hint(HINT).into_datafusion());
    }
    column.options.retain(|option| !matches!(option.option, ColumnOption::Collation(_)));
    Ok(())
}

fn is_text(kind: &DataType) -> bool {
    use DataType::{Array, Char, CharVarying, Character, CharacterVarying, Custom, Nvarchar, String, Text};
    match kind {
        Text | String(_) | Char(_) | Character(_) | CharVarying(_) | CharacterVarying(_) | Nvarchar(_) => {
            true
        }
        DataType::Varchar(_) | Custom(..) => true,
        Array(ast::ArrayElemTypeDef::SquareBracket(element, _)) => is_text(element),
        _ => false,
    }
}

pub(super) fn is_byte_order(collation: &ObjectName) -> bool {
    let names: Vec<String> = collation.0.iter().filter_map(|part| part.as_ident()).map(plain).collect();
    let name = match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [name] | ["pg_catalog", name] => name,
        _ => return false,
    };
    matches!(name, "C" | "POSIX" | "default" | "ucs_basic")
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn resolve_text(sql: &str) -> Result<String> {
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        let mut statement = Statement::Statement(Box::new(statement));
        resolve(&mut statement)?;
        Ok(statement.to_string())
    }

    #[test]
    fn only_byte_order_collations_are_accepted() {
        assert_eq!(
            resolve_text(
                "CREATE TABLE t (a TEXT COLLATE \"C\" NOT NULL, b TEXT COLLATE pg_catalog.\"default\", c INT)"
            )
            .unwrap(),
            "CREATE TABLE t (a TEXT NOT NULL, b TEXT, c INT)"
        );
        for (sql, state) in [
            ("CREATE TABLE t (a TEXT COLLATE \"de_DE\")", SqlState::UNDEFINED_OBJECT),
            ("CREATE TABLE t (a TEXT COLLATE c)", SqlState::UNDEFINED_OBJECT),
            ("CREATE TABLE t (a INT COLLATE \"C\")", SqlState::DATATYPE_MISMATCH),
            ("ALTER TABLE t ADD COLUMN a TEXT COLLATE nope", SqlState::UNDEFINED_OBJECT),
        ] {
            assert_eq!(harrier_sqlstate::of(&resolve_text(sql).unwrap_err()), state, "{sql}");
        }
    }
}
