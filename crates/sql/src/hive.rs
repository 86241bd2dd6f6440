//! HiveQL: its dialect, and the rewriting of its constructs to what the planner has.
//!
//! ```text
//! text ─► Tokens ─► rewrite_tokens ─► parser ─► rewrite ─► desugar ─► the planner
//!                   LATERAL VIEW,               operators, casts, functions,
//!                   strings in double quotes    generators, names of columns
//! ```
//!
//! After [`rewrite`] a statement has no construct of Hive any more, but for operators that only this module
//! writes ([`operators::custom`]): what they do depends on types, which the planner knows (`hive_operators`
//! of crate `planner`). Functions that mean something else in Hive than in PostgreSQL are called by names of
//! their own, `hive_…` (crate `functions`). So nothing of this reaches statements in PostgreSQL's language.
//!
//! # Errors
//! A construct that is neither the same nor rewritten is refused (0A000): none is dropped.

mod build;
mod calls;
mod definitions;
pub mod dialect;
mod expressions;
mod generators;
mod insert_keys;
mod lateral_view;
pub mod operators;
mod queries;
pub mod statements;
mod strings;
mod types;

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, ObjectName, ObjectNamePart, Query, Select, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

pub use insert_keys::into_rows;

use crate::parser::table_clauses::TableComment;
use crate::tokens::{Edit, Tokens, word};

/// An error about what is not supported (0A000).
pub(crate) fn refuse(message: impl Into<String>) -> DataFusionError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message.into())
        .with_hint("SET harrier.dialect = postgres gives PostgreSQL's language")
        .into_datafusion()
}

/// Refuses statements whose text is kept, and would be read in PostgreSQL's language later.
///
/// Errors: it is such a statement (0A000).
pub fn check_statement(tokens: &Tokens<'_>) -> Result<()> {
    let is_create = tokens.is_one_of(0, &["create", "alter"]);
    const KINDS: [&str; 7] = ["view", "policy", "filter", "index", "table", "database", "schema"];
    let kind = (1..5).find(|at| tokens.is_one_of(*at, &KINDS));
    match kind.and_then(|at| tokens.word(at)).as_deref() {
        Some(kind @ ("view" | "policy" | "filter" | "index")) if is_create => {
            Err(refuse(format!("CREATE and ALTER {} are not in HiveQL here", kind.to_uppercase())))
        }
        _ => Ok(()),
    }
}

/// Rewrites tokens that no dialect of the parser knows. Returns the comments in a CREATE TABLE.
///
/// Errors: a LATERAL VIEW that is not complete (42601); `CLUSTER BY` and others (0A000).
pub fn rewrite_tokens(tokens: &mut Tokens<'_>) -> Result<Vec<TableComment>> {
    let mut edits = Vec::new();
    for at in 0..tokens.len() {
        match tokens.token(at) {
            Some(Token::DoubleQuotedString(_) | Token::SingleQuotedString(_)) => {
                let text = Token::SingleQuotedString(strings::value(tokens.source(at..at + 1)));
                edits.push(Edit::replace(at..at + 1, [text]));
            }
            // `1e20D`, which the lexer takes for two.
            Some(Token::Number(digits, _))
                if tokens.is_one_of(at + 1, &["d", "bd", "f"])
                    && tokens.bytes(at..at + 1).end == tokens.bytes(at + 1..at + 2).start =>
            {
                let suffix = tokens.word(at + 1).unwrap_or_default();
                edits.push(Edit::replace(at..at + 2, [word(&[digits.as_str(), &suffix].concat())]));
            }
            // `sqlparser` knows it as the first word of a query alone.
            Some(Token::Word(_)) if tokens.are(at, &["select", "all"]) => {
                edits.push(Edit::remove(at + 1..at + 2))
            }
            // A semi join's condition is as a LEFT SEMI JOIN's.
            Some(Token::Word(_))
                if tokens.is(at, "minus") && tokens.is_one_of(at + 1, &["select", "all"]) =>
            {
                edits.push(Edit::replace(at..at + 1, [word("EXCEPT")]));
            }
            _ => {}
        }
    }
    tokens.edit(edits);
    let comments = definitions::rewrite(tokens)?;
    lateral_view::rewrite(tokens)?;
    Ok(comments)
}

/// Rewrites a parsed statement to what the planner has.
///
/// Errors: a construct that is not supported (0A000), or is not complete (42601).
pub fn rewrite(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::Statement(statement) => rewrite_node(statement.as_mut()),
        Statement::Explain(explain) => rewrite(&mut explain.statement),
        Statement::CreateExternalTable(create) => {
            for column in &mut create.columns {
                types::rewrite(&mut column.data_type)?;
            }
            Ok(())
        }
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => rewrite_node(query.as_mut()),
            CopyToSource::Relation(_) => Ok(()),
        },
        Statement::Reset(_) => Ok(()),
    }
}

pub(crate) fn rewrite_node<N: VisitMut>(node: &mut N) -> Result<()> {
    match node.visit(&mut Rewriter) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Rewriter;

fn flow(result: Result<()>) -> ControlFlow<DataFusionError> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl VisitorMut for Rewriter {
    type Break = DataFusionError;

    fn pre_visit_statement(&mut self, statement: &mut ast::Statement) -> ControlFlow<DataFusionError> {
        flow(statements::rewrite(statement))
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        flow(queries::rewrite_query(query))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        flow(queries::rewrite_select(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<DataFusionError> {
        flow(generators::in_from(factor))
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<DataFusionError> {
        rewrite_name(relation);
        ControlFlow::Continue(())
    }

    /// Inner expressions first: what a call is rewritten to is not looked at again.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        flow(expressions::rewrite(expr))
    }
}

/// Names in backquotes are names in any case, and the schema `default` has another name here.
fn rewrite_name(relation: &mut ObjectName) {
    let is_qualified = relation.0.len() > 1;
    for (at, part) in relation.0.iter_mut().enumerate() {
        if let ObjectNamePart::Identifier(name) = part {
            plain_name(name);
            if at == 0 && is_qualified && name.value.eq_ignore_ascii_case(statements::DEFAULT) {
                *name = Ident::new(statements::PUBLIC);
            }
        }
    }
}

/// Hive's names have no case, in backquotes as well.
pub(crate) fn plain_name(name: &mut Ident) {
    if name.quote_style.take().is_some() {
        name.value = name.value.to_lowercase();
        name.quote_style = Some('"');
    }
}
