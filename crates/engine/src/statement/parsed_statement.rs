//! A parsed statement.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast;
use harrier_sql::parser::analyze::AnalyzeClauses;
use harrier_sql::parser::insert_partition::InsertPartition;
use harrier_sql::parser::table_clauses::TableClauses;
use harrier_sql::tokens::explain_options::ExplainOptions;

use crate::warehouse::on_commit::OnCommitAction;
use crate::warehouse::public_schema::SchemaNameMentions;

/// A statement parsed in a session, with its text for error messages.
#[derive(Debug, Clone)]
pub struct ParsedStatement {
    /// The user's text, without the semicolon. Error positions refer to it.
    pub text: String,
    /// The line of the whole input, from 1, where `text` begins.
    pub line: usize,
    pub(crate) form: harrier_sql::Statement,
    /// Storage clauses of the table that it creates or alters.
    pub(crate) clauses: Option<TableClauses>,
    /// The table partitions that an INSERT names.
    pub(crate) partition: Option<InsertPartition>,
    /// Options of ANALYZE, and its tables after the first.
    pub(crate) analyze: AnalyzeClauses,
    /// Options of EXPLAIN.
    pub(crate) explain: ExplainOptions,
    /// The renamed relation is written as a view.
    pub(crate) renames_view: bool,
    /// It creates a temporary table.
    pub(crate) temporary: bool,
    /// ON COMMIT action of that table.
    pub(crate) on_commit: Option<OnCommitAction>,
    /// The statement as the client sent it, before rewrites for PostgreSQL's catalogs.
    pub(crate) original: Option<Arc<ast::Statement>>,
    pub(crate) catalog_reads: CatalogReads,
    /// Bound parameter values.
    pub(crate) values: Arc<[ScalarValue]>,
}

/// PostgreSQL system catalogs that a statement may read, judged by its words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CatalogReads {
    /// Any catalog.
    pub(crate) any: bool,
    /// Table sizes.
    pub(crate) sizes: bool,
    /// Statistics of ANALYZE.
    pub(crate) analyses: bool,
    /// Current values of sequences.
    pub(crate) sequences: bool,
    /// Names of the schema `public` that the statement uses.
    pub(crate) public_schema: SchemaNameMentions,
}
