//! Parses statements in a session's dialect.

use std::sync::Arc;

use datafusion::config;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::{Dialect, dialect_from_str};
use harrier_error::{SqlError, SqlState};
use harrier_planner::binder::nested_call_names;
use harrier_sql::desugar::{self, result_columns};
use harrier_sql::language::Language;
use harrier_sql::parser::copy as copy_parse;
use harrier_sql::splitter::{self, StatementText};
use harrier_sql::{ParseOptions, Parsed, Tokens, nesting};
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::{declared_casts, result_names};
use crate::session::Session;
use crate::statement::parsed_statement::{CatalogReads, ParsedStatement};
use crate::warehouse::on_commit::OnCommitAction;

impl Session {
    /// Parses all statements of `sql`. Fails at the first syntax error, before any runs.
    pub fn statements(&self, sql: &str) -> Result<Vec<ParsedStatement>, SqlError> {
        let mut language = self.settings().dialect;
        let parsed = splitter::split_in(sql, language).into_iter().map(|text| {
            let next = Language::set_by(&text.text);
            let parsed = self.parse_in(text, language);
            language = next.unwrap_or(language);
            parsed
        });
        parsed.collect()
    }

    /// Parses one statement, as split from the input, in this session's dialect.
    ///
    /// Errors: syntax errors (42601 and others); nesting too deep (54001).
    pub fn parse(&self, text: StatementText) -> Result<ParsedStatement, SqlError> {
        self.parse_in(text, self.settings().dialect)
    }

    fn parse_in(&self, text: StatementText, language: Language) -> Result<ParsedStatement, SqlError> {
        self.parse_as(text, language, |parsed| {
            let sent = parsed.original.take();
            (parsed.original, parsed.catalog_reads) = self.rewrite(&mut parsed.form, &parsed.text, sent);
        })
    }

    /// The same with DataFusion's `information_schema`: its type names and its relations.
    pub fn parse_for_planner(&self, text: StatementText) -> Result<ParsedStatement, SqlError> {
        self.parse_as(text, self.settings().dialect, |_| ())
    }

    /// Applies `change` to the statement on a stack large enough for it.
    fn parse_as(
        &self,
        text: StatementText,
        language: Language,
        change: impl FnOnce(&mut ParsedStatement),
    ) -> Result<ParsedStatement, SqlError> {
        let parse = || -> Result<ParsedStatement> {
            let (dialect, levels) = self.parser_settings(language)?;
            nesting::with_limits(Tokens::of(&text.text, dialect.as_ref())?, |tokens| {
                let options = ParseOptions { has_warehouse: self.warehouse().is_some(), levels, language };
                let mut parsed = self.desugar_statement(harrier_sql::parse(tokens, options)?, &text)?;
                change(&mut parsed);
                Ok(parsed)
            })
        };
        parse().map_err(|error| crate::error::in_statement(&error, &text.text))
    }

    /// The session's dialect and nesting limit.
    fn parser_settings(&self, language: Language) -> Result<(Box<dyn Dialect>, usize)> {
        let state = self.context().state_ref();
        let state = state.read();
        let options = &state.config_options().sql_parser;
        let dialect: Box<dyn Dialect> = match options.dialect {
            _ if language == Language::Hive => language.dialect(),
            config::Dialect::PostgreSQL => language.dialect(),
            other => dialect_from_str(other)
                .ok_or_else(|| DataFusionError::Internal(format!("no dialect {other}")))?,
        };
        Ok((dialect, options.recursion_limit.get()))
    }

    /// Desugars a parsed statement for the planner.
    fn desugar_statement(&self, parsed: Parsed, text: &StatementText) -> Result<ParsedStatement> {
        let Parsed { statement: mut form, clauses, partition, analyze, explain, renames_view } = parsed;
        // The original statement, before any rewrite, if PostgreSQL's column names are used.
        let mut original = None;
        if let harrier_sql::Statement::Copy(copy) = &mut form {
            original = copy.query_mut().map(|query| ast::Statement::Query(Box::new(query.clone())));
            copy.prepare(self.date_order())?;
            if let Some(statement) = copy_parse::to_file(copy)? {
                form = harrier_sql::Statement::Sql(statement);
            }
        } else if let harrier_sql::Statement::Sql(statement) = &mut form {
            if self.uses_postgres_names() {
                original = result_names::original_statement(statement);
            }
            desugar::prepare(statement, self.date_order())?;
            // Subqueries always have PostgreSQL's names.
            result_columns::prepare(statement, self.uses_postgres_names());
            declared_casts::rewrite_casts(statement);
            nested_call_names::shorten(statement, self.context().state_ref().read().scalar_functions());
        }
        let (mut temporary, mut on_commit) = (false, None);
        if let harrier_sql::Statement::Sql(Statement::Statement(statement)) = &mut form
            && let ast::Statement::CreateTable(create) = statement.as_mut()
        {
            // The planner knows no temporary tables: all of its tables are the session's.
            temporary = std::mem::take(&mut create.temporary);
            on_commit = take_on_commit(create, temporary, self.warehouse().is_some())?;
        }
        Ok(ParsedStatement {
            text: text.text.clone(),
            line: text.line,
            form,
            clauses,
            partition,
            analyze,
            explain,
            renames_view,
            temporary,
            on_commit,
            original: original.map(Arc::new),
            catalog_reads: CatalogReads::default(),
            values: Arc::default(),
        })
    }
}

/// Takes the ON COMMIT clause out of a CREATE TABLE.
///
/// Errors: the table is not temporary (42P16), or there is no warehouse with transactions (0A000).
fn take_on_commit(
    create: &mut ast::CreateTable,
    is_temporary: bool,
    has_transactions: bool,
) -> Result<Option<OnCommitAction>> {
    let Some(on_commit) = create.on_commit.take() else { return Ok(None) };
    if !is_temporary {
        let message = "ON COMMIT can only be used on temporary tables";
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message).into_datafusion());
    }
    let on_commit = match on_commit {
        ast::OnCommit::PreserveRows => return Ok(None),
        ast::OnCommit::DeleteRows => OnCommitAction::DeleteRows,
        ast::OnCommit::Drop => OnCommitAction::Drop,
    };
    match has_transactions {
        true => Ok(Some(on_commit)),
        false => {
            let message = "ON COMMIT DELETE ROWS and ON COMMIT DROP need a warehouse";
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("--warehouse DIR")
                .into_datafusion())
        }
    }
}
