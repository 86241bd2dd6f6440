//! Kinds of statements, for the match in [`crate::statement`].

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;

use crate::planning::returning_items;
use crate::settings::parameters::Change;
use crate::statement::parsed_statement::ParsedStatement;

/// A SQL statement, classified by its executor.
pub(crate) enum Kind<'s> {
    /// SET, RESET and SHOW of a PostgreSQL parameter.
    Parameter(Change),
    CreateExtension(&'s ast::CreateExtension),
    /// PREPARE.
    Prepare(&'s ast::Statement),
    CreateTemporaryTable,
    CreateDatabase,
    AlterTable(&'s ast::AlterTable),
    /// CREATE INDEX and ALTER INDEX.
    Index,
    Truncate(&'s ast::Truncate),
    Lock(&'s ast::Lock),
    Comment(&'s ast::Statement),
    Analyze(&'s ast::Analyze),
    Call(&'s ast::Function),
    Drop(&'s ast::Statement),
    /// INSERT, UPDATE, DELETE and MERGE with RETURNING.
    Returning,
    Insert(&'s ast::Insert),
    /// UPDATE, DELETE and MERGE.
    Change,
    /// CREATE TABLE, VIEW and SCHEMA.
    Create,
    /// EXPLAIN of a statement that writes.
    ExplainWrite,
    /// Queries, and all other statements with a plan: EXPLAIN, SET of a setting, external tables, EXECUTE of
    /// a query.
    Planned,
}

impl<'s> Kind<'s> {
    /// Classifies a statement. `executed`: the statement that EXECUTE runs, else the statement itself.
    pub(crate) fn of(
        written: &'s Statement,
        executed: Option<&'s ast::Statement>,
        statement: &ParsedStatement,
    ) -> Result<Self> {
        if let Some(change) = Change::of(written) {
            return Ok(Self::Parameter(change));
        }
        if let Statement::Explain(explain) = written
            && may_write(&explain.statement)
        {
            return Ok(Self::ExplainWrite);
        }
        if statement.temporary {
            return Ok(Self::CreateTemporaryTable);
        }
        let Some(executed) = executed else { return Ok(Self::Planned) };
        Ok(match executed {
            ast::Statement::CreateExtension(create) => Self::CreateExtension(create),
            ast::Statement::Prepare { .. } => Self::Prepare(executed),
            ast::Statement::CreateDatabase { .. } => Self::CreateDatabase,
            ast::Statement::AlterTable(alter) => Self::AlterTable(alter),
            ast::Statement::CreateIndex(_) | ast::Statement::AlterIndex { .. } => Self::Index,
            ast::Statement::Truncate(truncate) => Self::Truncate(truncate),
            ast::Statement::Lock(lock) => Self::Lock(lock),
            ast::Statement::Comment { .. } => Self::Comment(executed),
            ast::Statement::Analyze(analyze) => Self::Analyze(analyze),
            ast::Statement::Call(call) => Self::Call(call),
            ast::Statement::Drop { .. } => Self::Drop(executed),
            written if returning_items::items(written).is_some() => Self::Returning,
            ast::Statement::Insert(insert) => Self::Insert(insert),
            ast::Statement::Update(_) | ast::Statement::Delete(_) | ast::Statement::Merge(_) => Self::Change,
            ast::Statement::CreateTable(_)
            | ast::Statement::CreateView(_)
            | ast::Statement::CreateSchema { .. } => Self::Create,
            _ => Self::Planned,
        })
    }
}

/// Whether an explained statement may write: others need no planning to find out.
fn may_write(explained: &Statement) -> bool {
    matches!(explained, Statement::Statement(statement) if matches!(
        statement.as_ref(),
        ast::Statement::Insert(_) | ast::Statement::Update(_) | ast::Statement::Delete(_) | ast::Statement::Merge(_)
    ))
}
