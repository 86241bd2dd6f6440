//! Targets of COPY … TO: checked before rows are computed, and named when writing fails. Also the column
//! types that are written.
//!
//! DataFusion drops the cause of some write errors, so foreseeable ones are checked in advance.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::common::config::{ConfigFileType, TableOptions};
use datafusion::datasource::file_format::file_type_to_format;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::dml::CopyTo;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit, when};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::NULL_FOLDER;
use harrier_exec::data_files::timestamp_seconds::declared_schema;
use harrier_exec::formats::atomic_sinks::{self, create_folders, keep_folders, remove_new_folders};
use harrier_sqlstate::IntoDataFusionError;
use url::Url;

use crate::external::file_names::is_device;

/// The folder of a statement's files. If the statement ends without [`TargetFolder::keep`], what it made of
/// it is removed, unless there are files.
pub(crate) struct TargetFolder(Option<PathBuf>);

impl TargetFolder {
    fn keep(mut self) {
        if let Some(folder) = self.0.take() {
            keep_folders(&folder);
        }
    }

    /// Returns the rows of the statement; the folder stays if they come to their end.
    pub(crate) fn keep_after(self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        /// Files first: the folder must be empty when it is dropped.
        struct Writing {
            rows: SendableRecordBatchStream,
            folder: TargetFolder,
        }
        let schema = rows.schema();
        let writing = Some(Writing { rows, folder: self });
        let kept = futures::stream::unfold(writing, |writing| async move {
            let mut writing = writing?;
            match writing.rows.next().await {
                Some(Ok(batch)) => Some((Ok(batch), Some(writing))),
                Some(Err(error)) => {
                    drop(writing);
                    Some((Err(error), None))
                }
                None => {
                    writing.folder.keep();
                    None
                }
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, kept))
    }
}

impl Drop for TargetFolder {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            remove_new_folders(folder);
        }
    }
}

/// Checks that `target`, if local, can be created. Creates its parent folders.
pub(crate) fn check(target: &str) -> Result<TargetFolder> {
    let Some(path) = local_path(target) else {
        return Ok(TargetFolder(None));
    };
    if is_device(&path) {
        let message = format!("cannot write to \"{target}\": it is no file, but a pipe or a device");
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
            .with_hint("COPY … TO STDOUT and psql's \\copy write to where the client says")
            .into_datafusion());
    }
    let folder = if target.ends_with('/') || path.is_dir() {
        Some(path.as_path())
    } else {
        path.parent().filter(|folder| !folder.as_os_str().is_empty())
    };
    let folder = std::path::absolute(folder.unwrap_or(Path::new("."))).map_err(DataFusionError::IoError)?;
    // Probe with a separate file: opening the target would truncate it.
    let probe = folder.join(format!(".harrier-write-{}", uuid::Uuid::new_v4().simple()));
    let made = TargetFolder(Some(folder.clone()));
    create_folders(&folder)
        .and_then(|()| fs::File::create(&probe))
        .and_then(|_| fs::remove_file(&probe))
        .map(|()| made)
        .map_err(|error| {
            // The kernel's error for creating a folder where a file exists.
            let error = match error.kind() {
                io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
                _ => error,
            };
            let cause = crate::error::sql_error(DataFusionError::IoError(error));
            let message = format!("cannot write to \"{target}\": {}", cause.message);
            SqlError::new(cause.sqlstate, message).into_datafusion()
        })
}

/// Adds the cause to an error of writing to `target`, where DataFusion only reports that writing failed.
pub(crate) fn explain(error: DataFusionError, target: &str) -> DataFusionError {
    atomic_sinks::with_cause(error, target, local_path(target).as_deref())
}

/// Checks the options of `copy`, before DataFusion makes its plan.
///
/// Errors: its format does not have one (42704).
pub(crate) fn check_options(state: &SessionState, copy: &CopyTo) -> Result<()> {
    let made = file_type_to_format(&copy.file_type)?.create(state, &copy.options);
    let Err(error) = made else { return Ok(()) };
    let text = match error.find_root() {
        DataFusionError::Configuration(text) if text.contains("not found on") => text,
        _ => return Err(error),
    };
    let format = copy.file_type.get_ext();
    let name = text.split('"').nth(1).unwrap_or_default();
    let message = format!("COPY to files of format {format} has no option \"{name}\"");
    let error = SqlError::new(SqlState::UNDEFINED_OBJECT, message);
    let kind = match format.as_str() {
        "csv" => ConfigFileType::CSV,
        "json" => ConfigFileType::JSON,
        "parquet" => ConfigFileType::PARQUET,
        _ => return Err(error.into_datafusion()),
    };
    let mut known = TableOptions::default();
    known.set_config_format(kind);
    let entries = known.entries();
    let mut names: Vec<&str> = entries.iter().filter_map(|entry| entry.key.strip_prefix("format.")).collect();
    names.sort_unstable();
    names.dedup();
    Err(error.with_hint(format!("it has {}", names.join(", "))).into_datafusion())
}

/// Casts the rows of a Parquet file to the types that the file declares.
pub(crate) fn with_file_types(rows: LogicalPlan) -> Result<LogicalPlan> {
    let schema = Arc::clone(rows.schema());
    let declared = declared_schema(schema.inner());
    if declared == *schema.inner() {
        return Ok(rows);
    }
    let columns = schema.iter().zip(declared.fields()).map(|((table, field), declared)| {
        let column = Expr::Column(Column::from((table, field)));
        match field.data_type() == declared.data_type() {
            true => column,
            false => cast(column, declared.data_type().clone()).alias_qualified(table.cloned(), field.name()),
        }
    });
    LogicalPlanBuilder::from(rows).project(columns.collect::<Vec<_>>())?.build()
}

/// Whether files have the columns that their folders are named by.
pub(crate) fn keeps_keys(state: &SessionState, copy: &CopyTo) -> bool {
    let says = copy.options.iter().find(|(name, _)| name.ends_with("keep_partition_by_columns"));
    match says {
        Some((_, value)) => value.trim().eq_ignore_ascii_case("true"),
        None => state.config_options().execution.keep_partition_by_columns,
    }
}

/// The rows with texts for the columns that folders are named by. NULL is Hive's name of such a folder, as
/// for tables: DataFusion would take it for the empty text, or for 0.
pub(crate) fn with_folder_names(rows: LogicalPlan, keys: &[String]) -> Result<LogicalPlan> {
    let schema = Arc::clone(rows.schema());
    let columns = schema.iter().map(|(table, field)| {
        let column = Expr::Column(Column::from((table, field)));
        if !keys.contains(field.name()) || !field.is_nullable() {
            return Ok(column);
        }
        let text = cast(column.clone(), DataType::Utf8);
        let named = when(column.is_null(), lit(NULL_FOLDER)).otherwise(text)?;
        Ok(named.alias_qualified(table.cloned(), field.name()))
    });
    LogicalPlanBuilder::from(rows).project(columns.collect::<Result<Vec<_>>>()?)?.build()
}

fn local_path(target: &str) -> Option<PathBuf> {
    match target.split_once("://") {
        None => Some(PathBuf::from(target)),
        Some(("file", _)) => Url::parse(target).ok()?.to_file_path().ok(),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_checked() {
        let root = std::env::temp_dir().join(format!("harrier-targets-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("file"), "").unwrap();
        let base = root.to_str().unwrap();
        check(&format!("{base}/a/b/x.csv")).unwrap().keep();
        check(&format!("{base}/c/")).unwrap().keep();
        check(&format!("file://{base}/d/x.csv")).unwrap().keep();
        check("s3://bucket/x.csv").unwrap();
        assert!(root.join("a/b").is_dir() && root.join("c").is_dir() && root.join("d").is_dir());
        assert_eq!(fs::read_dir(root.join("a/b")).unwrap().count(), 0);
        // Without `keep`, the statement has failed: what it made goes, and nothing else.
        drop(check(&format!("{base}/a/new/er/")).unwrap());
        drop(check(&format!("{base}/c/")).unwrap());
        let with_files = check(&format!("{base}/other/files/")).unwrap();
        fs::write(root.join("other/files/x"), "").unwrap();
        drop(with_files);
        assert!(root.join("a").is_dir() && !root.join("a/new").exists() && root.join("c").is_dir());
        assert!(root.join("other/files/x").is_file());
        for (target, sqlstate) in [
            ("/proc/harrier/x.csv", SqlState::UNDEFINED_FILE),
            ("/sys/x.csv", SqlState::INSUFFICIENT_PRIVILEGE),
        ] {
            let error = check(target).err().unwrap();
            assert_eq!(harrier_sqlstate::of(&error), sqlstate, "{error}");
        }
        for target in ["/dev/null", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "file:///dev/stderr"] {
            let error = check(target).err().unwrap();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::WRONG_OBJECT_TYPE, "{error}");
        }
        let error = check(&format!("{base}/file/x.csv")).err().unwrap();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::WRONG_OBJECT_TYPE, "{error}");
        assert!(error.to_string().contains("file/x.csv"));
        fs::remove_dir_all(&root).unwrap();
    }
}
