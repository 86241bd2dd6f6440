//! Rejects unsupported clauses of INSERT, UPDATE, DELETE and MERGE, and unsupported statements such as CREATE
//! FUNCTION, with errors that name the alternative.

use crate::planning::returning_items;
use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Insert, OnInsert, SetExpr, SqliteOnConflict};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

const MERGE: &str = "MERGE INTO … USING … ON … WHEN MATCHED THEN … WHEN NOT MATCHED THEN INSERT … \
                     does one thing for rows that are there and another for those that are not";

/// Errors: the statement, also within EXPLAIN or PREPARE, has an equivalent of ON CONFLICT, a data-modifying
/// WITH, RETURNING in a PREPARE, or creates an unsupported kind of object (0A000).
pub(crate) fn check(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Explain(explain) => check(&explain.statement),
        Statement::Statement(statement) => {
            match statement.as_ref() {
                ast::Statement::Prepare { statement, .. } => {
                    if returning_items::items(statement).is_some() {
                        let instead =
                            "prepared statements of the protocol have it, and so has the statement itself";
                        return refuse("RETURNING of a statement that PREPARE prepares", instead);
                    }
                    check_conflicts(statement)?;
                }
                statement => check_conflicts(statement)?,
            }
            check_objects(statement)?;
            check_with(statement)
        }
        _ => Ok(()),
    }
}

/// Errors: the statement creates an unsupported kind of object (0A000).
fn check_objects(statement: &ast::Statement) -> Result<()> {
    match statement {
        ast::Statement::CreateFunction(_) => {
            refuse("CREATE FUNCTION", "CREATE VIEW keeps a query; functions of your own are not there")
        }
        ast::Statement::CreateProcedure { .. } => {
            refuse("CREATE PROCEDURE", "send the statements themselves")
        }
        ast::Statement::CreateTrigger(_) => {
            refuse("CREATE TRIGGER", "defaults and CHECK constraints are there; whoever writes does the rest")
        }
        ast::Statement::CreateDomain(_) => refuse("CREATE DOMAIN", "give the columns a CHECK constraint"),
        ast::Statement::CreateType { .. } => refuse(
            "CREATE TYPE",
            "for an enumeration, TEXT with a CHECK constraint; for fields, JSONB or columns",
        ),
        ast::Statement::CreateView(view) if view.materialized => refuse(
            "CREATE MATERIALIZED VIEW",
            "CREATE VIEW, or CREATE TABLE AS, which INSERT OVERWRITE renews",
        ),
        _ => Ok(()),
    }
}

/// Errors: an INSERT has a conflict clause (0A000).
fn check_conflicts(statement: &ast::Statement) -> Result<()> {
    let ast::Statement::Insert(Insert { on, or, .. }) = statement else { return Ok(()) };
    match (on, or) {
        (Some(OnInsert::DuplicateKeyUpdate(_)), _) => refuse("ON DUPLICATE KEY UPDATE", MERGE),
        (Some(OnInsert::OnConflict(_)), None) | (None, None) => Ok(()),
        (Some(_), _) => refuse("ON CONFLICT of INSERT OR …", MERGE),
        (None, Some(SqliteOnConflict::Replace)) => refuse("INSERT OR REPLACE", MERGE),
        (None, Some(SqliteOnConflict::Ignore)) => refuse("INSERT OR IGNORE", MERGE),
        _ => Ok(()),
    }
}

/// Errors: a top-level WITH is data-modifying (0A000). The planner rejects nested ones.
fn check_with(statement: &ast::Statement) -> Result<()> {
    let query = match statement {
        ast::Statement::Query(query) => query,
        ast::Statement::Insert(Insert { source: Some(source), .. }) => source,
        _ => return Ok(()),
    };
    let writes = |body: &SetExpr| {
        matches!(body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
    };
    let mut defined = query.with.iter().flat_map(|with| &with.cte_tables);
    match defined.any(|table| writes(&table.query.body)) {
        true => refuse(
            "INSERT, UPDATE, DELETE or MERGE in WITH",
            "statements of one transaction, the first of them with RETURNING, come to the same",
        ),
        false => Ok(()),
    }
}

fn refuse(what: &str, instead: &str) -> Result<()> {
    let message = format!("{what} is not supported");
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint(instead).into_datafusion())
}
