//! CREATE TABLE: `SELECT … INTO t`, and columns that the planner would silently create as plain ones.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{ColumnOption, SetExpr, Statement};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Rewrites `SELECT … INTO t` to `CREATE TABLE t AS SELECT …`.
pub(super) fn rewrite_select_into(statement: &mut Statement) {
    let Statement::Query(query) = statement else { return };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let Some(into) = select.into.take() else { return };
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, "CREATE TABLE t AS SELECT 1").ok();
    if let Some(Statement::CreateTable(mut create)) = parsed.and_then(|mut all| all.pop()) {
        create.name = into.name;
        create.temporary = into.temporary;
        create.query = Some(query.clone());
        *statement = Statement::CreateTable(create);
    }
}

/// Errors: generated or identity columns (0A000).
pub(super) fn reject_generated_columns(statement: &Statement) -> Result<()> {
    let Statement::CreateTable(create) = statement else { return Ok(()) };
    for column in &create.columns {
        let is_computed = |option: &ColumnOption| {
            matches!(option, ColumnOption::Generated { .. } | ColumnOption::Identity(_))
        };
        if column.options.iter().any(|option| is_computed(&option.option)) {
            let message =
                format!("column \"{}\": generated and identity columns are not supported", column.name.value);
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_into_becomes_create_table_as() {
        for (sql, expected) in [
            ("SELECT a INTO s.t FROM u ORDER BY 1", "CREATE TABLE s.t AS SELECT a FROM u ORDER BY 1"),
            ("SELECT 1 AS a INTO TEMPORARY t", "CREATE TEMPORARY TABLE t AS SELECT 1 AS a"),
            ("SELECT 1", "SELECT 1"),
        ] {
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
            rewrite_select_into(&mut statements[0]);
            assert_eq!(statements[0].to_string(), expected);
        }
    }
}
