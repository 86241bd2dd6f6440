//! Statement parser: tries the parsers of Harrier's own statements on the tokens, takes the clauses that
//! sqlparser does not know, and leaves the rest to DataFusion's parser.

use datafusion::error::Result;
use datafusion::sql::parser::{self, DFParserBuilder};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use harrier_error::{SqlError, SqlState};
use harrier_session_api::command::SessionCommand;
use harrier_sqlstate::IntoDataFusionError;

use crate::desugar::insert_values::without_rows;
use crate::dialect::SqlDialect;
use crate::hive;
use crate::language::Language;
use crate::nesting::{self, NESTING_MAX};
use crate::tokens::explain_options::ExplainOptions;
use crate::tokens::{
    Tokens, call_keywords, explain_options, frame_exclusion, grouping_lists, key_storage, merge_do_nothing,
    only_keyword, operators, postgres_synonyms, quantified_query, string_continuation, subscript_targets,
    table_query, unicode_escapes, view_rename, word,
};

pub mod access;
pub mod analyze;
pub mod as_of;
pub mod copy;
pub mod cursor;
pub mod index;
pub mod insert_partition;
pub mod maintenance;
pub mod row_format;
pub mod sequence;
pub mod session_command;
pub mod table_clauses;
pub mod transaction_mode;

use access::AccessStatement;
use analyze::AnalyzeClauses;
use copy::Copy;
use index::{ReindexStatement, RenameIndexStatement, SetConstraintsStatement};
use insert_partition::InsertPartition;
use maintenance::{CheckTableStatement, OptimizeStatement, VacuumStatement};
use sequence::SequenceStatement;
use table_clauses::TableClauses;

/// Parse options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseOptions {
    /// There is a warehouse: tables have partitions, distribution, sort order and time travel.
    pub has_warehouse: bool,
    /// Recursion limit for parentheses and subqueries, at most [`NESTING_MAX`].
    pub levels: usize,
    /// The language of the text, whose dialect its tokens have.
    pub language: Language,
}

/// A parsed statement, by the parser that recognized it.
#[derive(Debug, Clone)]
pub enum Statement {
    Sql(parser::Statement),
    Copy(Box<Copy>),
    Access(Box<AccessStatement>),
    Sequence(Box<SequenceStatement>),
    Optimize(Box<OptimizeStatement>),
    CheckTable(Box<CheckTableStatement>),
    Vacuum(Box<VacuumStatement>),
    VacuumDryRun,
    Reindex(Box<ReindexStatement>),
    RenameIndex(Box<RenameIndexStatement>),
    SetConstraints(Box<SetConstraintsStatement>),
    Session(Box<SessionCommand>),
}

/// A statement, and the clauses that were taken out of its text.
#[derive(Debug, Clone)]
pub struct Parsed {
    pub statement: Statement,
    /// Storage clauses of the table that it creates or alters.
    pub clauses: Option<TableClauses>,
    /// The PARTITION clause of an INSERT.
    pub partition: Option<InsertPartition>,
    pub analyze: AnalyzeClauses,
    /// The options of EXPLAIN.
    pub explain: ExplainOptions,
    /// ALTER VIEW … RENAME, parsed as ALTER TABLE.
    pub renames_view: bool,
}

impl Parsed {
    fn of(statement: Statement) -> Self {
        Self {
            statement,
            clauses: None,
            partition: None,
            analyze: AnalyzeClauses::default(),
            explain: ExplainOptions::default(),
            renames_view: false,
        }
    }
}

/// Parses one statement. Call it within [`nesting::with_limits`].
///
/// Errors: syntax (42601 and others); nested too deeply (54001).
pub fn parse(mut tokens: Tokens<'_>, options: ParseOptions) -> Result<Parsed> {
    let is_hive = options.language == Language::Hive;
    let mut comments = vec![];
    if is_hive {
        hive::check_statement(&tokens)?;
        comments = hive::rewrite_tokens(&mut tokens)?;
        if let Some(statement) = hive::statements::parse(&tokens)? {
            return Ok(Parsed::of(Statement::Sql(statement)));
        }
    }
    if let Some(statement) = access::parse(&tokens)? {
        return Ok(Parsed::of(Statement::Access(Box::new(statement))));
    }
    if let Some(statement) = sequence::parse(&tokens)? {
        return Ok(Parsed::of(Statement::Sequence(Box::new(statement))));
    }
    if let Some(command) = session_command::parse(&tokens)? {
        return Ok(Parsed::of(Statement::Session(Box::new(command))));
    }
    if let Some(statement) = maintenance::parse_optimize(&tokens)? {
        return Ok(Parsed::of(Statement::Optimize(Box::new(statement))));
    }
    if let Some(statement) = maintenance::parse_vacuum(&tokens)? {
        return Ok(Parsed::of(Statement::Vacuum(Box::new(statement))));
    }
    if options.has_warehouse
        && let Some(statement) = parse_warehouse_statement(&tokens)?
    {
        return Ok(Parsed::of(statement));
    }
    let analyze = analyze::take(&mut tokens)?;
    let mut clauses = None;
    if options.has_warehouse {
        index::rewrite(&mut tokens);
        as_of::rewrite(&mut tokens);
        transaction_mode::rewrite(&mut tokens);
        clauses = table_clauses::take(&mut tokens)?;
        if !comments.is_empty() {
            clauses.get_or_insert_default().comments = comments;
        }
    } else if !comments.is_empty() {
        return Err(hive::refuse("COMMENT in CREATE TABLE needs a warehouse"));
    }
    let mut partition = insert_partition::take(&mut tokens)?;
    let row_format = row_format::take(&mut tokens)?;
    let explain = explain_options::rewrite(&mut tokens);
    let renames_view = !is_hive && rewrite(&mut tokens)?;
    if let Some(mut copy) = copy::parse(&tokens)? {
        if is_hive && let Some(query) = copy.query_mut() {
            hive::rewrite_node(query)?;
        }
        return Ok(Parsed { partition, analyze, ..Parsed::of(Statement::Copy(Box::new(copy))) });
    }
    if let Some(mut statement) = parse_explained_copy(&tokens, options.levels.min(NESTING_MAX))? {
        if is_hive {
            hive::rewrite(&mut statement)?;
        }
        return Ok(Parsed { analyze, explain, ..Parsed::of(Statement::Sql(statement)) });
    }
    let mut statement = parse_planner_statement(tokens, options.levels.min(NESTING_MAX))?;
    if let Some(row_format) = row_format {
        row_format.apply(&mut statement)?;
    }
    if clauses.as_ref().is_some_and(|clauses| clauses.no_data) {
        without_rows(&mut statement);
    }
    if is_hive {
        hive::rewrite(&mut statement)?;
        partition = hive::into_rows(&mut statement, partition)?;
    }
    Ok(Parsed { statement: Statement::Sql(statement), clauses, partition, analyze, explain, renames_view })
}

/// Parses EXPLAIN of a COPY in PostgreSQL's syntax, which DataFusion's parser does not know: it gets a query
/// in place of the COPY.
fn parse_explained_copy(tokens: &Tokens<'_>, levels: usize) -> Result<Option<parser::Statement>> {
    let Some(at) = copy::explained_at(tokens) else { return Ok(None) };
    let Some(copy) = copy::parse(&tokens.part(at..tokens.len()))? else { return Ok(None) };
    let mut explain = tokens.clone();
    explain.replace(at..tokens.len(), [word("SELECT"), Token::Number("1".to_string(), false)]);
    match parse_planner_statement(explain, levels)? {
        parser::Statement::Explain(mut explain) => {
            explain.statement = Box::new(copy::statement_to_explain(&copy)?);
            Ok(Some(parser::Statement::Explain(explain)))
        }
        _ => Ok(None),
    }
}

/// Parses a statement that only a warehouse supports.
fn parse_warehouse_statement(tokens: &Tokens<'_>) -> Result<Option<Statement>> {
    if let Some(statement) = maintenance::parse_check_table(tokens)? {
        return Ok(Some(Statement::CheckTable(Box::new(statement))));
    }
    if maintenance::is_vacuum_dry_run(tokens) {
        return Ok(Some(Statement::VacuumDryRun));
    }
    if let Some(statement) = index::parse_reindex(tokens)? {
        return Ok(Some(Statement::Reindex(Box::new(statement))));
    }
    if let Some(statement) = index::parse_rename(tokens)? {
        return Ok(Some(Statement::RenameIndex(Box::new(statement))));
    }
    let statement = index::parse_set_constraints(tokens)?;
    Ok(statement.map(|statement| Statement::SetConstraints(Box::new(statement))))
}

/// Rewrites PostgreSQL syntax to what the parser knows. Returns whether ALTER VIEW was rewritten to ALTER
/// TABLE.
fn rewrite(tokens: &mut Tokens<'_>) -> Result<bool> {
    unicode_escapes::rewrite(tokens)?;
    string_continuation::rewrite(tokens)?;
    frame_exclusion::rewrite(tokens)?;
    key_storage::rewrite(tokens)?;
    subscript_targets::rewrite(tokens);
    merge_do_nothing::rewrite(tokens);
    postgres_synonyms::rewrite(tokens)?;
    operators::rewrite(tokens);
    call_keywords::rewrite(tokens);
    quantified_query::rewrite(tokens);
    grouping_lists::rewrite(tokens);
    only_keyword::rewrite(tokens);
    let renames_view = view_rename::rewrite(tokens);
    table_query::rewrite(tokens);
    Ok(renames_view)
}

/// Parses the remaining tokens with DataFusion's parser, and balances chains.
fn parse_planner_statement(tokens: Tokens<'_>, levels: usize) -> Result<parser::Statement> {
    let dialect = tokens.dialect();
    let parse = |tokens: Vec<TokenWithSpan>, levels: usize| -> Result<_> {
        DFParserBuilder::new(tokens)
            .with_dialect(dialect)
            .with_recursion_limit(levels)
            .build()?
            .parse_statements()
    };
    // Only deep statements may need a second parse.
    let deep = (nesting::depth_of_tokens(&tokens) > levels).then(|| tokens.clone());
    let mut statements = parse(tokens.into_parse(), levels).map_err(|error| match &deep {
        Some(deep) => {
            nesting::too_deep_or(deep, error, levels, |levels| parse(deep.to_parse(), levels).is_ok())
        }
        None => error,
    })?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(mut statement), true) => {
            nesting::balance_statement(&mut statement)?;
            Ok(statement)
        }
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "not one statement").into_datafusion()),
    }
}

/// Parses a stored text, such as a view's, or a generated one, as a statement for the planner.
///
/// Errors: as [`parse`].
pub fn planner_statement(text: &str, dialect: &dyn Dialect) -> Result<parser::Statement> {
    nesting::with_limits(Tokens::of(text, dialect)?, |mut tokens| {
        as_of::rewrite(&mut tokens);
        rewrite(&mut tokens)?;
        parse_planner_statement(tokens, NESTING_MAX)
    })
}

/// Parses an expression in Harrier's dialect, and balances chains.
///
/// Errors: as [`parse`]; tokens are left after it (42601).
pub fn expression(text: &str) -> Result<ast::Expr> {
    nesting::with_limits(Tokens::of(text, &SqlDialect)?, |tokens| {
        let mut parser = tokens.parser(NESTING_MAX);
        let mut expr = parser.parse_expr()?;
        parser.expect_token(&Token::EOF)?;
        nesting::balance(&mut expr)?;
        Ok(expr)
    })
}
