//! INSERT and INSERT OVERWRITE into a folder: the plan that stages files on all ranks, and showing them.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::core::expr_fn::nullif;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder, WriteOp, cast as cast_to, lit,
};
use harrier_exec::sqlstate::{CodedError, SqlState};
use harrier_exec::table_files::{FileRecord, PartitionFolder, WriteFiles, WriteSpec};
use harrier_folders::{Root, StagedFile, Statement, Work};
use prost::Message;

use super::partition::PartitionClause;
use super::table::{FolderTable, Written, blocking};

/// An INSERT whose files are being staged. Dropped, it removes them.
#[derive(Debug)]
pub(crate) struct FolderWrite {
    statement: Statement,
    overwrite: bool,
    /// Folders that an INSERT OVERWRITE empties even if it has no rows for them.
    emptied: Vec<String>,
}

/// The folder that `dml` inserts into, if its target is one that is staged.
///
/// Errors: it cannot be written so that readers see it whole (0A000).
pub(crate) fn target(dml: &DmlStatement) -> Result<Option<(FolderTable, bool)>> {
    let Ok(provider) = source_as_provider(&dml.target) else {
        return Ok(None);
    };
    let Some(table) = provider.downcast_ref::<FolderTable>() else {
        return Ok(None);
    };
    let refused = |message: &str, hint: &str| {
        Err(CodedError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint(hint.to_string()).into())
    };
    let overwrite = match dml.op {
        WriteOp::Insert(InsertOp::Append) => false,
        WriteOp::Insert(InsertOp::Overwrite) => true,
        WriteOp::Insert(InsertOp::Replace) => {
            return refused("REPLACE INTO is not supported", "INSERT OVERWRITE replaces table partitions");
        }
        _ => return Ok(None),
    };
    if table.folder().is_none() {
        return refused(
            "external tables in object stores can only be read",
            "tables of a warehouse (--data) can be written there; COPY … TO writes files",
        );
    }
    Ok(Some((table.clone(), overwrite)))
}

impl FolderWrite {
    /// Begins to write: makes the folder if there is none, and the plan that stages the rows of `dml`. `None`: its target is no folder,
    /// or one of a format that DataFusion writes.
    pub(crate) async fn begin(
        dml: &DmlStatement,
        partition: Option<&PartitionClause>,
    ) -> Result<Option<(LogicalPlan, Self)>> {
        let Some((table, overwrite)) = target(dml)? else {
            return Ok(None);
        };
        let (Some(written), Some(folder)) = (table.written()?, table.folder()) else {
            return Ok(None);
        };
        let only = partition.map(|clause| clause.only_folder(&table)).transpose()?.flatten();
        let emptied = match (overwrite, table.keys().is_empty()) {
            (false, _) => vec![],
            (true, true) => vec![String::new()],
            (true, false) => only.into_iter().collect(),
        };
        let folder = folder.to_path_buf();
        let id = uuid::Uuid::new_v4().simple().to_string();
        let name = id.clone();
        let (root, statement) = blocking(move || {
            let root = Root::create(&folder)?;
            let statement = root.begin(&name)?;
            Ok((root, statement))
        })
        .await?;
        let text = |path: &std::path::Path| match path.to_str() {
            Some(text) => Ok(text.to_string()),
            None => Err(CodedError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("the path \"{}\" is not UTF-8", path.display()),
            )),
        };
        let staging = text(statement.staging())?;
        let plan = plan(dml, &table, written, format!("{}/", text(root.path())?), id, staging)?;
        Ok(Some((plan, Self { statement, overwrite, emptied })))
    }

    /// The plan that would stage the rows of `dml`, to be looked at.
    pub(crate) fn explain(dml: &DmlStatement) -> Result<Option<LogicalPlan>> {
        let Some((table, _)) = target(dml)? else {
            return Ok(None);
        };
        let (Some(written), Some(folder)) = (table.written()?, table.folder()) else {
            return Ok(None);
        };
        let folder = format!("{}/", folder.display());
        plan(dml, &table, written, folder.clone(), String::new(), folder).map(Some)
    }

    /// Shows what was staged, of which `batches` tell. Returns the number of rows, and what the user should know.
    pub(crate) async fn publish(self, batches: Vec<RecordBatch>) -> Result<(u64, Option<String>)> {
        let Self { statement, overwrite, emptied } = self;
        let mut rows = 0;
        let mut files = Vec::new();
        for record in batches.iter().flat_map(|batch| batch.column(0).as_binary::<i32>().iter()).flatten() {
            let record = FileRecord::decode(record)
                .map_err(|error| DataFusionError::Internal(format!("record of a file: {error}")))?;
            rows += record.rows as u64;
            let (folder, name) = record.path.rsplit_once('/').unwrap_or(("", &record.path));
            let staged = record
                .staged
                .ok_or_else(|| DataFusionError::Internal("a file was not staged".to_string()))?;
            files.push(StagedFile {
                staged: PathBuf::from(staged),
                folder: folder.to_string(),
                name: name.to_string(),
            });
        }
        let work = Work { files, overwrite, emptied };
        let published = blocking(move || statement.publish(&work)).await?;
        let notice = published.one_by_one.first().map(|folder| {
            format!(
                "the files of {} {} such as \"{}\" were shown one by one, as folders cannot be exchanged there",
                published.one_by_one.len(),
                if published.one_by_one.len() == 1 { "folder" } else { "folders" },
                folder.display()
            )
        });
        Ok((rows, notice))
    }
}

fn plan(
    dml: &DmlStatement,
    table: &FolderTable,
    written: Written,
    folder: String,
    id: String,
    staging: String,
) -> Result<LogicalPlan> {
    let input = LogicalPlan::clone(&dml.input);
    let schema = table.file_schema();
    let columns = input.schema().columns();
    let own = schema.fields().len();
    if columns.len() != own + table.keys().len() {
        return Err(DataFusionError::Internal("the rows do not have the table's columns".to_string()));
    }
    let mut expressions = Vec::with_capacity(columns.len());
    for (field, column) in schema.fields().iter().zip(&columns) {
        expressions.push(Expr::Column(column.clone()).alias(field.name()));
    }
    for (at, column) in columns[own..].iter().enumerate() {
        expressions.push(key_text(column).alias(format!("_harrier_key_{at}")));
    }
    let input = LogicalPlanBuilder::from(input).project(expressions)?.build()?;
    let options = table.options();
    let spec = WriteSpec {
        folder,
        name: id,
        table: dml.table_name.table().to_string(),
        schema: Arc::new(schema),
        partition: table.keys().iter().map(|(name, _)| PartitionFolder { name: name.clone() }).collect(),
        sort: table.sort(),
        replaces: false,
        compression: written.compression,
        row_group_rows: written.row_group_rows,
        target_file_bytes: options.target_file_bytes,
        // With keys, a folder has one writer as it is.
        one_writer: options.merge && table.keys().is_empty(),
        format: written.format,
        staging: Some(staging),
    };
    WriteFiles::plan(input, Arc::new(spec))
}

/// A key's value as the names of folders have it. An empty text is NULL there, as in Hive.
fn key_text(column: &Column) -> Expr {
    let text = cast_to(Expr::Column(column.clone()), DataType::Utf8);
    nullif(text, lit(ScalarValue::Utf8(Some(String::new()))))
}
