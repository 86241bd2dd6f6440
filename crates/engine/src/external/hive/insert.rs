//! INSERT and INSERT OVERWRITE into a folder: the plan that stages files on all ranks, and their publication.

use std::collections::BTreeMap;
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
    DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder, WriteOp, cast as cast_to, lit, when,
};
use datafusion::object_store::ObjectMeta;
use harrier_committer::local::{FileVersion, Root, Statement};
use harrier_committer::object_store::{Statement as StoreStatement, WriteCancelFlag};
use harrier_committer::work::{MergedFile, StagedFile, Work};
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::{
    FileRecord, FileShape, NULL_FOLDER, PartitionFolder, ReplacedFiles, WriteSpec, cannot_stage_in_store,
    partition_folder,
};
use harrier_exec::distribution::logical_planner::WriteFiles;
use harrier_sql::parser::insert_partition::InsertPartition;
use harrier_sqlstate::IntoDataFusionError;
use prost::Message;

use crate::external::hive::partition::{static_folder, unrepresentable_value};
use crate::external::hive::partition_spelling::{ReplacedPartitions, value_of};
use crate::external::hive::table::{FolderLocation, FolderTable, OutputFormat, run_blocking};

/// A statement whose files are being staged. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct FolderWrite {
    statement: Staging,
    location: FolderLocation,
    /// The table's partition keys.
    keys: Vec<(String, DataType)>,
    overwrite: bool,
    /// Folders that an INSERT OVERWRITE empties even without rows for them.
    emptied: Vec<String>,
    /// Files that OPTIMIZE rewrites, with their folders.
    merged: Vec<(String, ObjectMeta)>,
}

#[derive(Debug)]
enum Staging {
    Local(Statement),
    Store(StoreStatement),
}

/// A statement's effects besides writing its rows.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub overwrite: bool,
    pub emptied: Vec<String>,
    pub merged: Vec<(String, ObjectMeta)>,
}

/// The folder that `dml` inserts into, if inserts into it are staged, and whether it overwrites.
///
/// Errors: the folder does not support atomic writes (0A000).
pub(crate) fn target(dml: &DmlStatement) -> Result<Option<(FolderTable, bool)>> {
    let Ok(provider) = source_as_provider(&dml.target) else {
        return Ok(None);
    };
    let Some(table) = provider.downcast_ref::<FolderTable>() else {
        return Ok(None);
    };
    let refused = |message: &str, hint: &str| {
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_hint(hint.to_string())
            .into_datafusion())
    };
    let overwrite = match dml.op {
        WriteOp::Insert(InsertOp::Append) => false,
        WriteOp::Insert(InsertOp::Overwrite) => true,
        WriteOp::Insert(InsertOp::Replace) => {
            return refused("REPLACE INTO is not supported", "INSERT OVERWRITE replaces table partitions");
        }
        _ => return Ok(None),
    };
    if table.location().is_none() {
        return refused(
            "external tables can be written in local folders, on S3 and on HDFS",
            "tables of a warehouse (--data) can be written there; COPY … TO writes files",
        );
    }
    if matches!(table.location(), Some(FolderLocation::Store(..))) && table.output_format()?.is_none() {
        return refused(
            "files of this format can only be read in object stores",
            "Parquet, ORC, Avro, CSV, JSON and TEXTFILE can be written there",
        );
    }
    table.check()?;
    // Readers look for the unescaped name.
    if let Some((key, _)) =
        table.keys().iter().find(|(key, _)| partition_folder(key, None) != format!("{key}={NULL_FOLDER}"))
    {
        let message = format!("folders named after the key \"{key}\" can only be read");
        return refused(
            &message,
            "keys that are written have names of ASCII letters, digits and underscores",
        );
    }
    Ok(Some((table.clone(), overwrite)))
}

impl FolderWrite {
    /// Begins a write: creates the folder if needed, and plans the staging of the rows of `dml`. `None` if
    /// the target is not a folder, or if its format is written by DataFusion alone.
    pub(crate) async fn begin(
        dml: &DmlStatement,
        partition: Option<&InsertPartition>,
    ) -> Result<Option<(LogicalPlan, Self)>> {
        let Some((table, overwrite)) = target(dml)? else {
            return Ok(None);
        };
        let Some(written) = table.output_format()? else {
            return Ok(None);
        };
        let only = partition.map(|clause| static_folder(clause, &table)).transpose()?.flatten();
        let emptied = match (overwrite, table.keys().is_empty()) {
            (false, _) => vec![],
            (true, true) => vec![String::new()],
            (true, false) => only.into_iter().collect(),
        };
        let input = LogicalPlan::clone(&dml.input);
        let effects = Effects { overwrite, emptied, merged: vec![] };
        Self::stage(&table, written, dml.table_name.table(), input, effects).await.map(Some)
    }

    /// Begins to write the rows of `input` into the folders of `table`.
    ///
    /// Errors: the format has no type for a column (0A000).
    pub(super) async fn stage(
        table: &FolderTable,
        written: OutputFormat,
        name: &str,
        input: LogicalPlan,
        effects: Effects,
    ) -> Result<(LogicalPlan, Self)> {
        let Effects { overwrite, emptied, merged } = effects;
        written.format.check(&table.file_schema())?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let location = table.location().cloned();
        let location =
            location.ok_or_else(|| DataFusionError::Internal("the table is in no folder".to_string()))?;
        let (statement, folder, staging, replaced_files) = match &location {
            FolderLocation::Local(folder) => {
                let (folder, id) = (folder.clone(), id.clone());
                let (root, statement) = run_blocking(move || {
                    let root = Root::create(&folder)?;
                    let statement = root.begin(&id)?;
                    Ok((root, statement))
                })
                .await?;
                let (folder, staging) = (format!("{}/", text(root.path())?), text(statement.staging())?);
                (Staging::Local(statement), folder, staging, ReplacedFiles::None)
            }
            FolderLocation::Store(folder, root) => {
                let statement = root.begin(&id).await.map_err(|error| cannot_stage_in_store(&error))?;
                let replaced_files = match (overwrite, merged.is_empty()) {
                    (true, _) => ReplacedFiles::Any,
                    (false, true) => ReplacedFiles::None,
                    // Keeps the first file of each folder.
                    (false, false) => ReplacedFiles::Named(
                        merged
                            .iter()
                            .rev()
                            .map(|(folder, file)| (folder.clone(), file.location.to_string()))
                            .collect(),
                    ),
                };
                (Staging::Store(statement), folder.clone(), id.clone(), replaced_files)
            }
        };
        let one_writer = table.options().merge || !merged.is_empty();
        let plan = plan(
            table,
            written,
            name,
            input,
            Destination { folder, id, staging, replaced_files, one_writer },
        )?;
        Ok((plan, Self { statement, location, keys: table.keys().to_vec(), overwrite, emptied, merged }))
    }

    /// The plan that would stage the rows of `dml`, for EXPLAIN.
    pub(crate) fn explain(dml: &DmlStatement) -> Result<Option<LogicalPlan>> {
        let Some((table, _)) = target(dml)? else {
            return Ok(None);
        };
        let Some(written) = table.output_format()? else {
            return Ok(None);
        };
        let folder = match table.location() {
            Some(FolderLocation::Local(folder)) => format!("{}/", folder.display()),
            Some(FolderLocation::Store(folder, _)) => folder.clone(),
            None => return Ok(None),
        };
        let to = Destination {
            staging: folder.clone(),
            folder,
            id: String::new(),
            replaced_files: ReplacedFiles::None,
            one_writer: table.options().merge,
        };
        plan(&table, written, dml.table_name.table(), LogicalPlan::clone(&dml.input), to).map(Some)
    }

    /// Publishes the staged files in `batches` of file records. Returns the number of rows, and a notice for
    /// the user.
    pub(crate) async fn publish(self, batches: Vec<RecordBatch>) -> Result<(u64, Option<String>)> {
        let mut records = Vec::new();
        for record in batches.iter().flat_map(|batch| batch.column(0).as_binary::<i32>().iter()).flatten() {
            let record = FileRecord::decode(record)
                .map_err(|error| DataFusionError::Internal(format!("record of a file: {error}")))?;
            records.push(record);
        }
        let rows: u64 = records.iter().map(|record| record.rows as u64).sum();
        let Self { statement, location, keys, overwrite, mut emptied, merged } = self;
        for record in &records {
            check_keys(&record.path, &keys)?;
        }
        if overwrite && !keys.is_empty() {
            let written = records.iter().map(|record| record.path.rsplit_once('/').unwrap_or_default().0);
            let replaced = ReplacedPartitions::of(&keys, written.chain(emptied.iter().map(String::as_str)));
            emptied.extend(match location {
                FolderLocation::Local(folder) => run_blocking(move || replaced.find_aliases(&folder)).await?,
                FolderLocation::Store(_, root) => {
                    let others = replaced.find_aliases_in_store(&root).await;
                    others.map_err(|error| cannot_stage_in_store(&error))?
                }
            });
        }
        let notice = match statement {
            Staging::Local(statement) => {
                let files = files(records, |record| record.staged.take().map(PathBuf::from))?;
                let version = |file: ObjectMeta| FileVersion {
                    name: file.location.filename().unwrap_or_default().to_string(),
                    bytes: file.size,
                    modified: file.last_modified.into(),
                };
                let merged = merged.into_iter();
                let merged =
                    merged.map(|(folder, file)| MergedFile { folder, file: version(file) }).collect();
                let work = Work { files, overwrite, emptied, merged };
                let published = run_blocking(move || statement.publish(&work)).await?;
                published.non_atomic_folders.first().map(|folder| {
                    format!(
                        "the files of {} such as \"{}\" were shown one by one, as folders cannot be exchanged there",
                        folders(published.non_atomic_folders.len()),
                        folder.display()
                    )
                })
            }
            Staging::Store(statement) => {
                let files = files(records, |record| record.upload.take())?;
                let merged = merged.into_iter().map(|(folder, file)| MergedFile { folder, file }).collect();
                let work = Work { files, overwrite, emptied, merged };
                // Cancellation no longer interrupts the publication, but prevents its commit.
                let _guard = CancelOnDrop(statement.cancel_flag());
                let shown = tokio::spawn(async move { statement.publish(&work).await });
                let published =
                    shown.await.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
                let published = published.map_err(|error| cannot_stage_in_store(&error))?;
                published.non_atomic_folders.first().map(|folder| {
                    format!(
                        "the old files of {} such as \"{folder}\" were removed one by one before the new one was shown",
                        folders(published.non_atomic_folders.len()),
                    )
                })
            }
        };
        Ok((rows, notice))
    }

    /// Removes the staged files.
    pub(crate) async fn abort(self) {
        match self.statement {
            // It waits for no other process.
            Staging::Local(statement) => drop(statement),
            Staging::Store(statement) => statement.abort().await,
        }
    }
}

/// Cancels a publication when dropped.
struct CancelOnDrop(WriteCancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

fn folders(count: usize) -> String {
    format!("{count} {}", if count == 1 { "folder" } else { "folders" })
}

fn text(path: &std::path::Path) -> Result<String> {
    path.to_str().map(str::to_string).ok_or_else(|| {
        let message = format!("the path \"{}\" is not UTF-8", path.display());
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion()
    })
}

/// The staged files of `records`.
fn files<S>(
    records: Vec<FileRecord>,
    staged: impl Fn(&mut FileRecord) -> Option<S>,
) -> Result<Vec<StagedFile<S>>> {
    let one = |mut record: FileRecord| {
        let staged = staged(&mut record)
            .ok_or_else(|| DataFusionError::Internal("a file was not staged".to_string()))?;
        let (folder, name) = record.path.rsplit_once('/').unwrap_or(("", &record.path));
        Ok(StagedFile { staged, folder: folder.to_string(), name: name.to_string() })
    };
    records.into_iter().map(one).collect()
}

/// The destination of the rows.
struct Destination {
    folder: String,
    id: String,
    staging: String,
    replaced_files: ReplacedFiles,
    /// All rows of a folder go through one writer.
    one_writer: bool,
}

fn plan(
    table: &FolderTable,
    written: OutputFormat,
    name: &str,
    input: LogicalPlan,
    to: Destination,
) -> Result<LogicalPlan> {
    // A store's folder gets one file, since only one object can be replaced atomically.
    let is_store = matches!(table.location(), Some(FolderLocation::Store(..)));
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
    for (at, (column, (_, kind))) in columns[own..].iter().zip(table.keys()).enumerate() {
        expressions.push(key_text(column, kind)?.alias(format!("_harrier_key_{at}")));
    }
    let input = LogicalPlanBuilder::from(input).project(expressions)?.build()?;
    let options = table.options();
    let spec = WriteSpec {
        folder: to.folder,
        name: to.id,
        table: name.to_string(),
        schema: Arc::new(schema),
        partition: table.keys().iter().map(|(name, _)| PartitionFolder { name: name.clone() }).collect(),
        sort: table.sort(),
        replaces: false,
        shape: FileShape {
            compression: written.compression,
            row_group_rows: written.row_group_rows,
            target_file_bytes: if is_store { u64::MAX } else { options.target_file_bytes },
        },
        own_shapes: BTreeMap::new(),
        // With keys, each folder has one writer anyway.
        one_writer: (to.one_writer || is_store) && table.keys().is_empty(),
        format: written.format,
        staging: Some(to.staging),
        replaced_files: to.replaced_files,
    };
    WriteFiles::plan(input, Arc::new(spec))
}

/// A key's value as text for folder names. An empty text becomes NULL, as in Hive.
fn key_text(column: &Column, kind: &DataType) -> Result<Expr> {
    let key = Expr::Column(column.clone());
    let text = cast_to(key.clone(), DataType::Utf8);
    let text = match kind {
        // Arrow cannot format infinite dates; these texts lead to an error later.
        DataType::Date32 => {
            let days = cast_to(key, DataType::Int32);
            when(days.clone().eq(lit(i32::MAX)), lit("infinity"))
                .when(days.eq(lit(-i32::MAX)), lit("-infinity"))
                .otherwise(text)?
        }
        _ => text,
    };
    Ok(nullif(text, lit(ScalarValue::Utf8(Some(String::new())))))
}

/// Errors: a partition value in the file's `path` cannot be parsed back from the folder's name (22008,
/// 22000).
fn check_keys(path: &str, keys: &[(String, DataType)]) -> Result<()> {
    for (part, (key, kind)) in path.split('/').zip(keys) {
        if value_of(part, key, kind).is_none() {
            return Err(unrepresentable_value(part.split_once('=').unwrap_or_default().1, key, kind));
        }
    }
    Ok(())
}
