//! A parsed statement.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast;
use harrier_sql::parser::analyze::SampleSize;
use harrier_sql::parser::insert_partition::InsertPartition;
use harrier_sql::parser::table_clauses::TableClauses;
use harrier_sql::tokens::explain_options::ExplainOptions;

use crate::warehouse::on_commit::OnCommitAction;
use crate::warehouse::public_schema::SchemaNameMentions;

/// A statement that has been parsed in a session, with its text for error messages.
#[derive(Debug, Clone)]
pub struct ParsedStatement {
    /// As the user wrote it, without the semicolon. Positions in errors count in this.
    pub text: String,
    /// The line of the whole input, from 1, on which `text` begins.
    pub line: usize,
    pub(crate) form: harrier_sql::Statement,
    /// How the table that it creates or alters is to be kept.
    pub(crate) clauses: Option<TableClauses>,
    /// The table partitions that an INSERT names.
    pub(crate) partition: Option<InsertPartition>,
    /// How much ANALYZE looks at.
    pub(crate) sample: SampleSize,
    /// What EXPLAIN asks for.
    pub(crate) explain: ExplainOptions,
    /// The table that it renames is named as a view.
    pub(crate) renames_view: bool,
    /// It makes a table of the session alone.
    pub(crate) temporary: bool,
    /// What becomes of that table with every commit.
    pub(crate) at_commit: Option<OnCommitAction>,
    /// As a client has sent it, before it was made fit for PostgreSQL's catalogs.
    pub(crate) asked: Option<Arc<ast::Statement>>,
    pub(crate) reads: CatalogReads,
    /// Those of its parameters.
    pub(crate) values: Arc<[ScalarValue]>,
}

/// What a statement may read of PostgreSQL's catalogs, by the words in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CatalogReads {
    /// Anything at all.
    pub(crate) any: bool,
    /// How large tables are.
    pub(crate) sizes: bool,
    /// What ANALYZE has found out.
    pub(crate) analyses: bool,
    /// Where sequences are.
    pub(crate) sequences: bool,
    /// Which of its names the schema `public` has in the statement.
    pub(crate) said: SchemaNameMentions,
}
