//! Outcome of a statement: rows, a pending write, COPY, or a command tag.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, WriteOp};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::sql::sqlparser::ast;
use harrier_session_api::statement::Completion;
use harrier_sql::desugar::update_from;

use crate::runtime::progress::PlanProgress;
use crate::statement::copy::input::{CopyIn, CopyInRows};
use crate::statement::copy::to::CopyOut;
use crate::statement::write::Write;

/// Result of executing a statement.
#[non_exhaustive]
pub enum Outcome {
    /// Rows, computed on demand. Dropping the stream cancels the statement.
    Rows { schema: SchemaRef, stream: SendableRecordBatchStream, progress: PlanProgress },
    /// A write that has not run yet.
    Write(Write),
    /// A write whose rows the client sends.
    CopyIn(CopyIn),
    /// The same, with rows that arrive as batches.
    CopyInRows(CopyInRows),
    /// Rows as text for the client.
    CopyOut(CopyOut),
    /// Rows for the client, which the protocol layer encodes.
    CopyOutRows { schema: SchemaRef, stream: SendableRecordBatchStream, progress: PlanProgress },
    /// A completed statement, such as CREATE VIEW.
    Command(Completion),
}

impl Outcome {
    /// Whether it is a pending write to the warehouse, which ends its statement when it finishes.
    pub(crate) fn is_pending(&self) -> bool {
        let write = match self {
            Self::Write(write) => write,
            Self::CopyIn(copy) => &copy.write,
            Self::CopyInRows(copy) => &copy.write,
            _ => return false,
        };
        write.pending.is_some()
    }

    /// Progress; `None`: the statement is complete.
    pub fn progress(&self) -> Option<&PlanProgress> {
        match self {
            Self::Rows { progress, .. } | Self::CopyOutRows { progress, .. } => Some(progress),
            Self::Write(write) => Some(&write.progress),
            Self::CopyIn(copy) => Some(&copy.write.progress),
            Self::CopyInRows(copy) => Some(&copy.write.progress),
            Self::CopyOut(copy) => Some(&copy.progress),
            Self::Command(_) => None,
        }
    }
}

pub(crate) fn command(tag: &str) -> Outcome {
    Outcome::Command(Completion::new(tag))
}

pub(crate) fn ddl_tag(ddl: &DdlStatement) -> &'static str {
    match ddl {
        DdlStatement::CreateExternalTable(_) => "CREATE EXTERNAL TABLE",
        DdlStatement::CreateMemoryTable(_) => "CREATE TABLE",
        DdlStatement::CreateView(_) => "CREATE VIEW",
        DdlStatement::CreateCatalogSchema(_) => "CREATE SCHEMA",
        DdlStatement::CreateCatalog(_) => "CREATE DATABASE",
        DdlStatement::CreateIndex(_) => "CREATE INDEX",
        DdlStatement::DropTable(_) => "DROP TABLE",
        DdlStatement::DropView(_) => "DROP VIEW",
        DdlStatement::DropCatalogSchema(_) => "DROP SCHEMA",
        DdlStatement::CreateFunction(_) => "CREATE FUNCTION",
        DdlStatement::DropFunction(_) => "DROP FUNCTION",
    }
}

/// PostgreSQL's command tag of a plan that writes, without its count. `parsed`: the planned statement.
pub(crate) fn write_verb(plan: &LogicalPlan, parsed: Option<&ast::Statement>) -> Option<&'static str> {
    match plan {
        LogicalPlan::Dml(_) if parsed.is_some_and(update_from::is_update_from) => Some("UPDATE"),
        // ON CONFLICT DO UPDATE is planned as a MERGE.
        LogicalPlan::Dml(_) if matches!(parsed, Some(ast::Statement::Insert(_))) => Some("INSERT"),
        LogicalPlan::Copy(_) => Some("COPY"),
        LogicalPlan::Dml(dml) => Some(match dml.op {
            WriteOp::Insert(_) => "INSERT",
            WriteOp::Delete => "DELETE",
            WriteOp::Update => "UPDATE",
            WriteOp::Ctas => "SELECT",
            WriteOp::Truncate => "TRUNCATE",
            WriteOp::MergeInto(_) => "MERGE",
            _ => "WRITE",
        }),
        _ => None,
    }
}

/// Columns of CHECK TABLE.
pub(crate) const CHECK_COLUMNS: [&str; 2] = ["object", "problem"];

/// Columns of VACUUM DRY RUN.
pub(crate) const DRY_RUN_COLUMNS: [&str; 2] = ["file", "status"];

/// The outcome of a [`Ddl`] statement.
pub(crate) fn with_notices((tag, notices): (&str, Vec<String>)) -> Outcome {
    Outcome::Command(Completion::new(tag).with_notices(notices))
}

/// The columns of a statement that returns text rows; `None` for others.
pub(crate) fn text_columns(form: &harrier_sql::Statement) -> Option<SchemaRef> {
    match form {
        harrier_sql::Statement::CheckTable(_) => Some(schema_of_texts(CHECK_COLUMNS)),
        harrier_sql::Statement::VacuumDryRun => Some(schema_of_texts(DRY_RUN_COLUMNS)),
        _ => None,
    }
}

pub(crate) fn schema_of_texts(names: [&str; 2]) -> SchemaRef {
    Arc::new(Schema::new(names.map(|name| Field::new(name, DataType::Utf8, false)).to_vec()))
}

/// Rows of two text columns.
pub(crate) fn texts<'a>(names: [&str; 2], rows: impl Iterator<Item = [&'a str; 2]>) -> Result<Outcome> {
    let (first, second): (Vec<&str>, Vec<&str>) = rows.map(|[first, second]| (first, second)).unzip();
    let schema = schema_of_texts(names);
    let columns = [first, second].map(|texts| Arc::new(StringArray::from(texts)) as ArrayRef);
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.to_vec())?;
    let stream = Box::pin(MemoryStream::try_new(vec![batch], Arc::clone(&schema), None)?);
    Ok(Outcome::Rows { schema, stream, progress: PlanProgress::none() })
}
