//! `CHECK TABLE`: verifies that a table's files exist and match the catalog.

use std::collections::BTreeSet;

use datafusion::arrow::datatypes::Schema;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::object_store::ObjectStoreExt;
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use futures::StreamExt;
use harrier_exec::data_files::location::locate;
use harrier_exec::data_files::{field_id, is_intact, read_deleted};

use crate::warehouse::table::WarehouseTable;
use crate::warehouse::table::scanned_file::ScannedFile;

/// Maximum number of files checked concurrently.
const CONCURRENT_CHECKS_MAX: usize = 16;

/// A problem of a file or table.
pub(crate) struct Finding {
    /// The file, or the table if the catalog itself is wrong.
    pub object: String,
    pub problem: String,
}

impl WarehouseTable {
    /// Reads the footer of every file, and all bytes of files with a checksum; no rows of the others.
    pub(crate) async fn check(&self, context: &TaskContext) -> Result<Vec<Finding>> {
        let contents = self.contents().await?;
        let mut findings: Vec<Finding> = Vec::new();
        let mut seen = BTreeSet::new();
        for file in contents.files.iter().filter(|file| !seen.insert(file.location.as_str())) {
            findings.push(finding(&file.location, "is referred to more than once"));
        }
        let checks: Vec<_> = contents.files.iter().map(|file| file.check(context)).collect();
        let checks = futures::stream::iter(checks).buffered(CONCURRENT_CHECKS_MAX);
        let mut checks = checks.zip(futures::stream::iter(&contents.files));
        while let Some((problems, file)) = checks.next().await {
            let problems = match problems {
                Ok(problems) => problems,
                Err(error) => vec![crate::error::sql_error(error).message],
            };
            findings.extend(problems.into_iter().map(|problem| finding(&file.location, problem)));
        }
        for kept in &contents.inlined {
            let width = kept.columns.len();
            if kept.rows.iter().any(|row| row.len() != width) || kept.rows.len() != kept.row_ids.len() {
                findings.push(finding(&self.table().name, "the catalog keeps rows with missing values"));
            }
        }
        Ok(findings)
    }
}

fn finding(object: &str, problem: impl Into<String>) -> Finding {
    Finding { object: object.to_string(), problem: problem.into() }
}

impl ScannedFile {
    async fn check(&self, context: &TaskContext) -> Result<Vec<String>> {
        let (store, path) = locate(&self.location)?;
        let store = context.runtime_env().object_store(&store)?;
        let head = match store.head(&path).await {
            Ok(head) => head,
            Err(datafusion::object_store::Error::NotFound { .. }) => {
                return Ok(vec!["is missing".to_string()]);
            }
            Err(error) => return Err(error.into()),
        };
        let mut problems = Vec::new();
        if head.size != self.bytes as u64 {
            problems.push(format!("has {} bytes, {} were written", head.size, self.bytes));
        }
        let footer = match DFParquetMetadata::new(&store, &head).fetch_metadata().await {
            Ok(footer) => footer,
            Err(error) => {
                let reason = crate::error::sql_error(error).message;
                problems.push(format!("has no footer that can be read: {reason}"));
                return Ok(problems);
            }
        };
        let rows = footer.file_metadata().num_rows();
        if rows != self.rows {
            problems.push(format!("has {rows} rows, {} were written", self.rows));
        }
        let metadata = footer.file_metadata();
        let schema: Schema = parquet_to_arrow_schema(metadata.schema_descr(), metadata.key_value_metadata())
            .map_err(DataFusionError::from)?;
        let ids: BTreeSet<i64> = schema.fields().iter().filter_map(|field| field_id(field)).collect();
        let names: BTreeSet<&String> = schema.fields().iter().map(|field| field.name()).collect();
        // A file of another program may be matched by column names.
        for column in self.columns() {
            if !ids.contains(&column.id) && !names.contains(&column.name) {
                problems.push(format!("has no column \"{}\"", column.name));
            }
        }
        match is_intact(&footer, store.as_ref(), &path, head.size).await {
            Ok(Some(false)) => problems.push("is not what its checksum says".to_string()),
            Ok(_) => {}
            Err(error) => {
                let reason = crate::error::sql_error(error).message;
                problems.push(format!("cannot be read: {reason}"));
            }
        }
        problems.extend(self.check_deletes(context).await);
        Ok(problems)
    }

    async fn check_deletes(&self, context: &TaskContext) -> Vec<String> {
        let deleted = match read_deleted(&self.deleted, context).await {
            Ok(deleted) => deleted,
            Err(error) => {
                let place = self.deleted.stored.as_ref().map_or("", |stored| stored.location.as_str());
                let reason = crate::error::sql_error(error).message;
                return vec![format!("has deletes in \"{place}\" that cannot be read: {reason}")];
            }
        };
        let mut problems = Vec::new();
        if let Some(beyond) = deleted.iter().find(|row| **row < 0 || **row >= self.rows) {
            problems.push(format!("has row {beyond} deleted, of {} rows", self.rows));
        }
        if deleted.len() as i64 != self.deleted_rows() {
            problems.push(format!("has {} rows deleted, {} were", deleted.len(), self.deleted_rows()));
        }
        if let Some(stored) = &self.deleted.stored {
            let place = &stored.location;
            match is_file_intact(place, context).await {
                Ok(Some(false)) => {
                    problems
                        .push(format!("has deletes in \"{place}\" that are not what their checksum says"));
                }
                Ok(_) => {}
                Err(error) => {
                    let reason = crate::error::sql_error(error).message;
                    problems.push(format!("has deletes in \"{place}\" that cannot be read: {reason}"));
                }
            }
        }
        problems
    }
}

/// Calls [`is_intact`] for the file at `location`.
async fn is_file_intact(location: &str, context: &TaskContext) -> Result<Option<bool>> {
    let (store, path) = locate(location)?;
    let store = context.runtime_env().object_store(&store)?;
    let head = store.head(&path).await?;
    let footer = DFParquetMetadata::new(&store, &head).fetch_metadata().await?;
    is_intact(&footer, store.as_ref(), &path, head.size).await
}
