//! One statement, from its tokens: who knows a statement takes it, and what the others have left is for
//! DataFusion's parser, and sqlparser's.

use datafusion::error::Result;
use datafusion::sql::parser::{self, DFParserBuilder};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::desugar::insert_values::without_rows;
use crate::dialect::SqlDialect;
use crate::nesting::{self, NESTING_MAX};
use crate::tokens::explain_options::ExplainOptions;
use crate::tokens::{
    Tokens, adjacent_texts, call_words, explain_options, frame_exclusion, grouping_lists, merge_nothing,
    only, operators, postgres_words, quantified, table_query, view_rename,
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
pub mod table_clauses;
pub mod transaction_mode;

use access::AccessStatement;
use analyze::SampleSize;
use copy::Copy;
use cursor::CursorStatement;
use index::{ReindexStatement, RenameIndexStatement, SetConstraintsStatement};
use insert_partition::InsertPartition;
use maintenance::{CheckTableStatement, OptimizeStatement, VacuumStatement};
use sequence::SequenceStatement;
use table_clauses::TableClauses;

/// What it depends on how a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseOptions {
    /// Tables are those of a warehouse, which are partitioned, distributed, ordered and read as they were.
    pub has_warehouse: bool,
    /// Levels of parentheses and subqueries, at most [`NESTING_MAX`].
    pub levels: usize,
}

/// A statement, as one of the parsers has it.
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
    Cursor(Box<CursorStatement>),
}

/// A statement, and what its text says beside it.
#[derive(Debug, Clone)]
pub struct Parsed {
    pub statement: Statement,
    /// How the table that it creates or alters is to be kept.
    pub clauses: Option<TableClauses>,
    /// The table partitions that an INSERT names.
    pub partition: Option<InsertPartition>,
    /// How much ANALYZE looks at.
    pub sample: SampleSize,
    /// What EXPLAIN asks for.
    pub explain: ExplainOptions,
    /// The table that it renames is named as a view.
    pub renames_view: bool,
}

impl Parsed {
    fn of(statement: Statement) -> Self {
        Self {
            statement,
            clauses: None,
            partition: None,
            sample: SampleSize::default(),
            explain: ExplainOptions::default(),
            renames_view: false,
        }
    }
}

/// The statement that the tokens are. To be called within [`nesting::bounded`].
///
/// Errors: of its syntax (42601 and others); it is nested too deeply (54001).
pub fn parse(mut tokens: Tokens<'_>, options: ParseOptions) -> Result<Parsed> {
    if let Some(statement) = access::parse(&tokens)? {
        return Ok(Parsed::of(Statement::Access(Box::new(statement))));
    }
    if let Some(statement) = sequence::parse(&tokens)? {
        return Ok(Parsed::of(Statement::Sequence(Box::new(statement))));
    }
    if let Some(statement) = cursor::parse(&tokens)? {
        return Ok(Parsed::of(Statement::Cursor(Box::new(statement))));
    }
    if let Some(statement) = maintenance::parse_optimize(&tokens)? {
        return Ok(Parsed::of(Statement::Optimize(Box::new(statement))));
    }
    if let Some(statement) = maintenance::parse_vacuum(&tokens)? {
        return Ok(Parsed::of(Statement::Vacuum(Box::new(statement))));
    }
    if options.has_warehouse
        && let Some(statement) = of_warehouse(&tokens)?
    {
        return Ok(Parsed::of(statement));
    }
    let sample = analyze::take(&mut tokens)?;
    let mut clauses = None;
    if options.has_warehouse {
        index::rewrite(&mut tokens);
        as_of::rewrite(&mut tokens);
        transaction_mode::rewrite(&mut tokens);
        clauses = table_clauses::take(&mut tokens)?;
    }
    let partition = insert_partition::take(&mut tokens)?;
    let row_format = row_format::take(&mut tokens)?;
    let explain = explain_options::rewrite(&mut tokens);
    let renames_view = rewrite(&mut tokens)?;
    if let Some(copy) = copy::parse(&tokens)? {
        return Ok(Parsed { partition, sample, ..Parsed::of(Statement::Copy(Box::new(copy))) });
    }
    let mut statement = of_planner(tokens, options.levels.min(NESTING_MAX))?;
    if let Some(row_format) = row_format {
        row_format.apply(&mut statement)?;
    }
    if clauses.as_ref().is_some_and(|clauses| clauses.no_data) {
        without_rows(&mut statement);
    }
    Ok(Parsed { statement: Statement::Sql(statement), clauses, partition, sample, explain, renames_view })
}

/// A statement that only a warehouse knows.
fn of_warehouse(tokens: &Tokens<'_>) -> Result<Option<Statement>> {
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

/// Writes the parser's words for those of PostgreSQL. Returns whether a view is renamed as a table is.
fn rewrite(tokens: &mut Tokens<'_>) -> Result<bool> {
    adjacent_texts::rewrite(tokens)?;
    frame_exclusion::rewrite(tokens)?;
    merge_nothing::rewrite(tokens);
    postgres_words::rewrite(tokens)?;
    operators::rewrite(tokens);
    call_words::rewrite(tokens);
    quantified::rewrite(tokens);
    grouping_lists::rewrite(tokens);
    only::rewrite(tokens);
    let renames_view = view_rename::rewrite(tokens);
    table_query::rewrite(tokens);
    Ok(renames_view)
}

/// What is left, as DataFusion's parser has it, with balanced chains.
fn of_planner(tokens: Tokens<'_>, levels: usize) -> Result<parser::Statement> {
    let dialect = tokens.dialect();
    let parse = |tokens: Vec<TokenWithSpan>, levels: usize| -> Result<_> {
        DFParserBuilder::new(tokens)
            .with_dialect(dialect)
            .with_recursion_limit(levels)
            .build()?
            .parse_statements()
    };
    // Others are parsed once.
    let deep = (nesting::depth_of_tokens(&tokens) > levels).then(|| tokens.clone());
    let mut statements = parse(tokens.into_parse(), levels).map_err(|error| match &deep {
        Some(deep) => {
            nesting::too_deep_or(deep, error, levels, |levels| parse(deep.to_parse(), levels).is_ok())
        }
        None => error,
    })?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(mut statement), true) => {
            nesting::settle_statement(&mut statement)?;
            Ok(statement)
        }
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "not one statement").into_datafusion()),
    }
}

/// A statement for the planner, of a text that is kept: a view's, or one that was made here.
///
/// Errors: as [`parse`].
pub fn planner_statement(text: &str, dialect: &dyn Dialect) -> Result<parser::Statement> {
    nesting::bounded(Tokens::of(text, dialect)?, |mut tokens| {
        as_of::rewrite(&mut tokens);
        rewrite(&mut tokens)?;
        of_planner(tokens, NESTING_MAX)
    })
}

/// An expression in Harrier's own dialect, with balanced chains.
///
/// Errors: as [`parse`]; there is something behind it (42601).
pub fn expression(text: &str) -> Result<ast::Expr> {
    nesting::bounded(Tokens::of(text, &SqlDialect)?, |tokens| {
        let mut parser = tokens.parser(NESTING_MAX);
        let mut expr = parser.parse_expr()?;
        parser.expect_token(&Token::EOF)?;
        nesting::settle(&mut expr)?;
        Ok(expr)
    })
}
