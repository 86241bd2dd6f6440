//! Statements of a text, parsed in the dialect of a session.

use std::sync::Arc;

use datafusion::config;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::{Dialect, dialect_from_str};
use harrier_error::{SqlError, SqlState};
use harrier_planner::binder::nested_call_names;
use harrier_sql::desugar::{self, result_columns};
use harrier_sql::dialect::SqlDialect;
use harrier_sql::parser::copy as copy_parse;
use harrier_sql::splitter::{self, StatementText};
use harrier_sql::{ParseOptions, Parsed, Tokens, nesting};
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::{declared_casts, result_names};
use crate::session::Session;
use crate::statement::parsed::{CatalogReads, ParsedStatement};
use crate::warehouse::on_commit::OnCommitAction;

impl Session {
    /// All statements of `sql`, parsed. Fails at the first that does not parse; none has run then.
    pub fn statements(&self, sql: &str) -> Result<Vec<ParsedStatement>, SqlError> {
        splitter::split(sql).into_iter().map(|text| self.parse(text)).collect()
    }

    /// One statement, as the splitter cut it, parsed in this session's dialect.
    ///
    /// Errors: of its syntax (42601 and others); it is nested too deeply (54001).
    pub fn parse(&self, text: StatementText) -> Result<ParsedStatement, SqlError> {
        self.parse_as(text, |parsed| {
            let sent = parsed.asked.take();
            (parsed.asked, parsed.reads) = self.rewrite(&mut parsed.form, &parsed.text, sent);
        })
    }

    /// The same with `information_schema` as the planner has it, with its names of types and of what it
    /// lists.
    pub fn parse_for_planner(&self, text: StatementText) -> Result<ParsedStatement, SqlError> {
        self.parse_as(text, |_| ())
    }

    /// `change` is done to the statement on a stack that is large enough for it.
    fn parse_as(
        &self,
        text: StatementText,
        change: impl FnOnce(&mut ParsedStatement),
    ) -> Result<ParsedStatement, SqlError> {
        let parse = || -> Result<ParsedStatement> {
            let (dialect, levels) = self.parser_settings()?;
            nesting::with_limits(Tokens::of(&text.text, dialect.as_ref())?, |tokens| {
                let options = ParseOptions { has_warehouse: self.warehouse().is_some(), levels };
                let mut parsed = self.prepared_statement(harrier_sql::parse(tokens, options)?, &text)?;
                change(&mut parsed);
                Ok(parsed)
            })
        };
        parse().map_err(|error| crate::error::in_statement(&error, &text.text))
    }

    /// The dialect that the session is set to, and how deeply a statement may be nested.
    fn parser_settings(&self) -> Result<(Box<dyn Dialect>, usize)> {
        let state = self.context().state_ref();
        let state = state.read();
        let options = &state.config_options().sql_parser;
        let dialect: Box<dyn Dialect> = match options.dialect {
            config::Dialect::PostgreSQL => Box::new(SqlDialect),
            other => dialect_from_str(other)
                .ok_or_else(|| DataFusionError::Internal(format!("no dialect {other}")))?,
        };
        Ok((dialect, options.recursion_limit.get()))
    }

    /// A statement in words that the planner knows.
    fn prepared_statement(&self, parsed: Parsed, text: &StatementText) -> Result<ParsedStatement> {
        let Parsed { statement: mut form, clauses, partition, sample, explain, renames_view } = parsed;
        // What a client has sent, before anything is done to it, if columns are called as PostgreSQL calls
        // them.
        let mut asked = None;
        if let harrier_sql::Statement::Copy(copy) = &mut form {
            asked = copy.query_mut().map(|query| ast::Statement::Query(Box::new(query.clone())));
            copy.prepare(self.date_order())?;
            if let Some(statement) = copy_parse::to_file(copy)? {
                form = harrier_sql::Statement::Sql(statement);
            }
        } else if let harrier_sql::Statement::Sql(statement) = &mut form {
            if self.names_as_postgres() {
                asked = result_names::original_statement(statement);
            }
            desugar::prepare(statement, self.date_order())?;
            // What is read has PostgreSQL's names, whatever the planner's.
            result_columns::prepare(statement, self.names_as_postgres());
            declared_casts::rewrite_casts(statement);
            nested_call_names::shorten(statement, self.context().state_ref().read().scalar_functions());
        }
        let (mut temporary, mut at_commit) = (false, None);
        if let harrier_sql::Statement::Sql(Statement::Statement(statement)) = &mut form
            && let ast::Statement::CreateTable(create) = statement.as_mut()
        {
            // The planner knows no such tables: to it, all are of the session.
            temporary = std::mem::take(&mut create.temporary);
            at_commit = at_commit_of(create, temporary, self.warehouse().is_some())?;
        }
        Ok(ParsedStatement {
            text: text.text.clone(),
            line: text.line,
            form,
            clauses,
            partition,
            sample,
            explain,
            renames_view,
            temporary,
            at_commit,
            asked: asked.map(Arc::new),
            reads: CatalogReads::default(),
            values: Arc::default(),
        })
    }
}

/// What ON COMMIT says of a new table, taken out of the statement.
///
/// Errors: the table is not temporary (42P16), or there is no warehouse, whose transactions it is about
/// (0A000).
fn at_commit_of(
    create: &mut ast::CreateTable,
    is_temporary: bool,
    has_transactions: bool,
) -> Result<Option<OnCommitAction>> {
    let Some(on_commit) = create.on_commit.take() else { return Ok(None) };
    if !is_temporary {
        let message = "ON COMMIT can only be used on temporary tables";
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message).into_datafusion());
    }
    let at_commit = match on_commit {
        ast::OnCommit::PreserveRows => return Ok(None),
        ast::OnCommit::DeleteRows => OnCommitAction::DeleteRows,
        ast::OnCommit::Drop => OnCommitAction::Drop,
    };
    match has_transactions {
        true => Ok(Some(at_commit)),
        false => {
            let message = "ON COMMIT DELETE ROWS and ON COMMIT DROP need a warehouse";
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("--warehouse DIR")
                .into_datafusion())
        }
    }
}
