//! A table that is a folder: what it is, and scans of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Constraints;
use datafusion::datasource::TableType;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::ListingTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use harrier_exec::orc::OrcFormat;
use harrier_exec::sqlstate::{CodedError, SqlState};
use harrier_exec::table_files::{WriteFormat, cannot_stage};
use harrier_folders::Root;

/// So much a file gets, unless the table says otherwise.
const TARGET_FILE_BYTES: u64 = 512 << 20;
const ROW_GROUP_ROWS: usize = 122_880 * 4;

/// What CREATE EXTERNAL TABLE says of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderOptions {
    /// A file of this size is ended, and another one begun.
    pub target_file_bytes: u64,
    /// A statement's rows for one folder go into one file, or as few as their size lets them.
    pub merge: bool,
}

impl Default for FolderOptions {
    fn default() -> Self {
        Self { target_file_bytes: TARGET_FILE_BYTES, merge: false }
    }
}

impl FolderOptions {
    /// Takes its own out of the options of a table.
    ///
    /// Errors: one has a value that it cannot have (22023).
    pub(crate) fn take(options: &mut std::collections::HashMap<String, String>) -> Result<Self> {
        let mut taken = Self::default();
        let keys: Vec<String> = options.keys().cloned().collect();
        for key in keys {
            let name = key.strip_prefix("format.").unwrap_or(&key).to_ascii_lowercase();
            let known = match name.as_str() {
                "target_file_bytes" | "merge" => options.remove(&key).unwrap_or_default(),
                _ => continue,
            };
            let wrong = || {
                let message = format!("invalid value for option \"{name}\": \"{known}\"");
                DataFusionError::from(CodedError::new(SqlState::INVALID_PARAMETER_VALUE, message))
            };
            if name == "merge" {
                taken.merge = match known.to_ascii_lowercase().as_str() {
                    "true" | "on" | "1" => true,
                    "false" | "off" | "0" => false,
                    _ => return Err(wrong()),
                };
            } else {
                taken.target_file_bytes =
                    crate::memory::parse_bytes(&known).ok().filter(|bytes| *bytes > 0).ok_or_else(wrong)?;
            }
        }
        Ok(taken)
    }
}

/// A folder of files as a table.
#[derive(Debug, Clone)]
pub(crate) struct FolderTable {
    listing: ListingTable,
    /// On this machine; `None` in an object store.
    folder: Option<PathBuf>,
    options: FolderOptions,
}

/// What new files of a table are.
pub(crate) struct Written {
    pub format: WriteFormat,
    /// As Parquet's libraries name it.
    pub compression: String,
    pub row_group_rows: usize,
}

impl FolderTable {
    pub(crate) fn new(listing: ListingTable, folder: Option<PathBuf>, options: FolderOptions) -> Self {
        Self { listing, folder, options }
    }

    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    pub(crate) fn options(&self) -> &FolderOptions {
        &self.options
    }

    /// The columns that folders are named after, in their order.
    pub(crate) fn keys(&self) -> &[(String, DataType)] {
        &self.listing.options().table_partition_cols
    }

    /// The columns of the files, which come before those.
    pub(crate) fn file_schema(&self) -> Schema {
        let schema = self.listing.schema();
        let count = schema.fields().len() - self.keys().len();
        Schema::new(schema.fields().iter().take(count).cloned().collect::<Vec<_>>())
    }

    /// The order of rows in files: columns, descending or not, nulls first or not.
    pub(crate) fn sort(&self) -> Vec<(usize, bool, bool)> {
        let schema = self.file_schema();
        let place = |sort: &datafusion::logical_expr::SortExpr| match &sort.expr {
            Expr::Column(column) => {
                let at = schema.index_of(&column.name).ok()?;
                Some((at, !sort.asc, sort.nulls_first))
            }
            _ => None,
        };
        let order = self.listing.options().file_sort_order.first();
        order.map(|order| order.iter().map_while(place).collect()).unwrap_or_default()
    }

    /// `None`: a format that DataFusion alone writes.
    ///
    /// Errors: files can be read only as they are (0A000).
    pub(crate) fn written(&self) -> Result<Option<Written>> {
        let format = self.listing.options().format.as_ref();
        let mut written = Written {
            format: WriteFormat::Parquet,
            compression: "zstd(1)".to_string(),
            row_group_rows: ROW_GROUP_ROWS,
        };
        if let Some(parquet) = format.downcast_ref::<ParquetFormat>() {
            let options = &parquet.options().global;
            if let Some(compression) = &options.compression {
                written.compression = compression.clone();
            }
            written.row_group_rows = options.max_row_group_size;
        } else if let Some(csv) = format.downcast_ref::<CsvFormat>() {
            written.format = WriteFormat::Csv(Box::new(csv.options().clone()));
        } else if let Some(json) = format.downcast_ref::<JsonFormat>() {
            if !json.options().newline_delimited {
                let message = "JSON files that are arrays can only be read";
                return Err(CodedError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
            }
            written.format = WriteFormat::Json(json.options().compression);
        } else if let Some(orc) = format.downcast_ref::<OrcFormat>() {
            written.format = WriteFormat::Orc(orc.compression());
        } else {
            return Ok(None);
        }
        Ok(Some(written))
    }
}

#[async_trait]
impl TableProvider for FolderTable {
    fn schema(&self) -> SchemaRef {
        self.listing.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.listing.constraints()
    }

    fn table_type(&self) -> TableType {
        self.listing.table_type()
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.listing.get_table_definition()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.listing.get_column_default(column)
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.listing.supports_filters_pushdown(filters)
    }

    /// Lists while nobody shows anything, so that a statement over many folders is in it whole or not at all.
    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let folder = self.folder.clone();
        let wait = move || match folder {
            Some(folder) => Root::find(&folder)?.map(|root| root.read()).transpose(),
            None => Ok(None),
        };
        let reading = blocking(wait).await?;
        let plan = self.listing.scan(session, projection, filters, limit).await;
        drop(reading);
        plan
    }

    /// For formats that are not staged.
    async fn insert_into(
        &self,
        session: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.listing.insert_into(session, input, op).await
    }
}

/// Runs what waits for locks and disks; it goes on if this is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> harrier_folders::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| cannot_stage(&error)),
        Err(error) => Err(DataFusionError::ExecutionJoin(Box::new(error))),
    }
}
