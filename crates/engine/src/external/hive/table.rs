//! A table over a folder, and scans of it. Partition pruning is [`ListingTable`]'s.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Constraints, DFSchema};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::{ListingTable, ListingTableConfig};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::core::expr_fn::nullif;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, cast as cast_to, lit, when};
use datafusion::object_store::{Error as ObjectStoreError, ObjectStore};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use harrier_committer::local::Root;
use harrier_committer::object_store::Root as StoreRoot;
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::{NULL_FOLDER, WriteFormat, cannot_stage, cannot_stage_in_store};
use harrier_exec::formats::avro::AvroFormat;
use harrier_exec::formats::delimited::DelimitedFormat;
use harrier_exec::formats::orc::OrcFormat;
use harrier_exec::formats::parquet_scan::parquet_options;
use harrier_exec::formats::text_scan::{csv_options, json_options};
use harrier_functions::parse::byte_size::parse_file_bytes;
use harrier_sqlstate::IntoDataFusionError;

use crate::external::hive::read_validation::ReadSet;
use crate::object_stores::listing_cache;

/// Maximum number of listings of a store's folder while other writers keep publishing files.
const LISTING_ATTEMPTS_MAX: usize = 10;
/// Maximum number of concurrent folder listings in a store.
const CONCURRENT_LISTINGS_MAX: usize = 16;

/// Default target size of a file.
const TARGET_FILE_BYTES: u64 = 512 << 20;
const ROW_GROUP_ROWS: usize = 122_880 * 4;

/// Write options of CREATE EXTERNAL TABLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderOptions {
    /// A writer closes a file of this size and begins another one.
    pub target_file_bytes: u64,
    /// Write a statement's rows for one folder into as few files as the target size allows.
    pub merge: bool,
}

impl Default for FolderOptions {
    fn default() -> Self {
        Self { target_file_bytes: TARGET_FILE_BYTES, merge: false }
    }
}

impl FolderOptions {
    /// Removes the folder options from a table's options and returns them.
    ///
    /// Errors: an invalid value (22023).
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
                harrier_sqlstate::external(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
            };
            if name == "merge" {
                taken.merge = match known.to_ascii_lowercase().as_str() {
                    "true" | "on" | "1" => true,
                    "false" | "off" | "0" => false,
                    _ => return Err(wrong()),
                };
            } else {
                taken.target_file_bytes =
                    parse_file_bytes(&name, &known).map_err(harrier_sqlstate::external)?;
            }
        }
        Ok(taken)
    }
}

/// A table over a folder of files.
#[derive(Debug, Clone)]
pub(crate) struct FolderTable {
    listing: ListingTable,
    /// DataFusion's schema with nullable keys.
    schema: SchemaRef,
    /// `None` for a read-only store.
    location: Option<FolderLocation>,
    options: FolderOptions,
}

/// Location of a folder.
#[derive(Debug, Clone)]
pub(crate) enum FolderLocation {
    Local(PathBuf),
    /// The folder's URL, with a trailing `/`.
    Store(String, StoreRoot),
}

/// Format of a table's new files.
pub(crate) struct OutputFormat {
    pub format: WriteFormat,
    /// In the Parquet crate's notation.
    pub compression: String,
    pub row_group_rows: usize,
}

impl FolderTable {
    pub(crate) fn new(
        listing: ListingTable,
        location: Option<FolderLocation>,
        options: FolderOptions,
    ) -> Self {
        let all = listing.schema();
        let keys = &listing.options().table_partition_cols;
        let fields = all.fields().iter().map(|field| match keys.iter().any(|(key, _)| key == field.name()) {
            true => Arc::new(field.as_ref().clone().with_nullable(true)),
            false => Arc::clone(field),
        });
        let schema = Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), all.metadata().clone()));
        Self { listing, schema, location, options }
    }

    pub(crate) fn location(&self) -> Option<&FolderLocation> {
        self.location.as_ref()
    }

    pub(crate) fn listing(&self) -> &ListingTable {
        &self.listing
    }

    pub(crate) fn options(&self) -> &FolderOptions {
        &self.options
    }

    /// Errors: a column whose type its files, or folder names, cannot store (0A000).
    pub(crate) fn check(&self) -> Result<()> {
        let is_binary = |kind: &DataType| kind.is_binary() || matches!(kind, DataType::FixedSizeBinary(_));
        if let Some((key, kind)) = self.keys().iter().find(|(_, kind)| kind.is_nested() || is_binary(kind)) {
            let message = format!("column \"{key}\" of type {kind} cannot be a partition key");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        let format = self.listing.options().format.as_ref();
        let is_csv = csv_options(format).is_some();
        let name = match is_csv {
            true => "CSV",
            false if json_options(format).is_some() => "JSON",
            false => return Ok(()),
        };
        let is_kept =
            |kind: &DataType| !has_interval(kind) && !(is_csv && (kind.is_nested() || is_binary(kind)));
        match self.file_schema().fields().iter().find(|field| !is_kept(field.data_type())) {
            Some(field) => {
                let (column, kind) = (field.name(), field.data_type());
                let message = format!("column \"{column}\" of type {kind} is not kept in {name} files");
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
            }
            None => Ok(()),
        }
    }

    /// The partition key columns, in order.
    pub(crate) fn keys(&self) -> &[(String, DataType)] {
        &self.listing.options().table_partition_cols
    }

    /// The columns of the files, which precede the keys.
    pub(crate) fn file_schema(&self) -> Schema {
        let schema = self.listing.schema();
        let count = schema.fields().len() - self.keys().len();
        Schema::new(schema.fields().iter().take(count).cloned().collect::<Vec<_>>())
    }

    /// The sort order of rows in files: column index, descending, nulls first.
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

    /// The format of new files; `None` for formats that only DataFusion writes.
    ///
    /// Errors: existing files are read-only (0A000).
    pub(crate) fn output_format(&self) -> Result<Option<OutputFormat>> {
        let format = self.listing.options().format.as_ref();
        let mut written = OutputFormat {
            format: WriteFormat::Parquet,
            compression: "zstd(1)".to_string(),
            row_group_rows: ROW_GROUP_ROWS,
        };
        if let Some(parquet) = parquet_options(format) {
            let options = &parquet.global;
            if let Some(compression) = &options.compression {
                written.compression = compression.clone();
            }
            written.row_group_rows = options.max_row_group_size;
        } else if let Some(csv) = csv_options(format) {
            written.format = WriteFormat::Csv(Box::new(csv.clone()));
        } else if let Some(json) = json_options(format) {
            if !json.newline_delimited {
                let message = "JSON files that are arrays can only be read";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
            }
            written.format = WriteFormat::Json(json.compression);
        } else if let Some(orc) = format.downcast_ref::<OrcFormat>() {
            written.format = WriteFormat::Orc(*orc.own());
        } else if let Some(avro) = format.downcast_ref::<AvroFormat>() {
            written.format = WriteFormat::Avro(*avro.own());
        } else if let Some(text) = format.downcast_ref::<DelimitedFormat>() {
            written.format = WriteFormat::Delimited(text.own().clone());
        } else {
            return Ok(None);
        }
        Ok(Some(written))
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl TableProvider for FolderTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
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

    /// Lists while no writer publishes, so that statements that write several folders are visible completely
    /// or not at all.
    fn scan<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        session: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.boxed_scan(session, projection, filters, limit)
    }

    /// For formats that are not staged.
    fn insert_into<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        session: &'b dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.boxed_insert_into(session, input, op)
    }
}

impl FolderTable {
    fn boxed_scan<'a>(
        &'a self,
        session: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let folder = match &self.location {
                None => return self.listing.scan(session, projection, &never_null(filters), limit).await,
                Some(FolderLocation::Local(folder)) => folder.clone(),
                Some(FolderLocation::Store(_, root)) => {
                    return self.scan_store(root, session, projection, filters, limit).await;
                }
            };
            let levels = self.keys().len();
            let wait = move || {
                let reading = Root::find(&folder)?.map(|root| root.read()).transpose()?;
                Ok((reading, has_null_folder(&folder, levels)))
            };
            let (reading, has_nulls) = run_blocking(wait).await?;
            let plan = match has_nulls {
                true => self.scan_with_null_keys(session, projection, filters, limit).await,
                false => self.listing.scan(session, projection, &never_null(filters), limit).await,
            };
            drop(reading);
            plan
        }
        .boxed()
    }

    fn boxed_insert_into<'a>(
        &'a self,
        session: &'a dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            if self.keys().is_empty() {
                return self.listing.insert_into(session, input, op).await;
            }
            // DataFusion would name a folder after the buffer's value behind a NULL.
            let known = DFSchema::try_from(input.schema().as_ref().clone())?;
            let mut expressions: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::new();
            for (at, field) in input.schema().fields().iter().enumerate() {
                let column = Expr::Column(Column::new_unqualified(field.name()));
                let expression: Arc<dyn PhysicalExpr> =
                    match self.keys().iter().any(|(key, _)| key == field.name()) {
                        true => {
                            let text = cast_to(column, DataType::Utf8);
                            let text =
                                when(text.clone().not_eq(lit("")), text).otherwise(lit(NULL_FOLDER))?;
                            session.create_physical_expr(text, &known)?
                        }
                        false => Arc::new(PhysicalColumn::new(field.name(), at)),
                    };
                expressions.push((expression, field.name().clone()));
            }
            let texts = Arc::new(ProjectionExec::try_new(expressions, input)?);
            self.with_text_keys()?.insert_into(session, texts, op).await
        }
        .boxed()
    }

    /// Lists until no writer has published meanwhile. If writers keep publishing, each single folder is still
    /// consistent.
    fn scan_store<'a>(
        &'a self,
        root: &'a StoreRoot,
        session: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let mut attempts = 0;
            loop {
                attempts += 1;
                let settled =
                    root.wait_until_settled().await.map_err(|error| cannot_stage_in_store(&error))?;
                // If nothing was ever published, earlier cached listings are consistent too.
                let listed = match settled.never_published() {
                    true => listing_cache::listing_count(),
                    false => {
                        listing_cache::invalidate_folders();
                        None
                    }
                };
                let plan = self.scan_objects(session, projection, filters, limit).await;
                let is_unchanged = match listed.is_some() && listed == listing_cache::listing_count() {
                    true => Ok(true),
                    false => root.is_unchanged(settled).await,
                };
                if !is_unchanged.map_err(|error| cannot_stage_in_store(&error))?
                    && attempts < LISTING_ATTEMPTS_MAX
                {
                    // The scan may have failed because of the change.
                    continue;
                }
                let plan = plan?;
                if let Some(read_set) = session.config().get_extension::<ReadSet>() {
                    read_set.add(root.clone(), settled, &plan);
                }
                return Ok(plan);
            }
        }
        .boxed()
    }

    async fn scan_objects(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match !self.keys().is_empty() && self.has_null_folder_in_store(session).await? {
            true => self.scan_with_null_keys(session, projection, filters, limit).await,
            false => self.listing.scan(session, projection, &never_null(filters), limit).await,
        }
    }

    /// Whether a partition folder is named after NULL. Lists folders only, level by level.
    async fn has_null_folder_in_store(&self, session: &dyn Session) -> Result<bool> {
        let Some(url) = self.listing.table_paths().first() else { return Ok(false) };
        let store = session.runtime_env().object_store(url)?;
        let mut folders = vec![url.prefix().clone()];
        for (level, (key, _)) in self.keys().iter().enumerate() {
            let is_last = level + 1 == self.keys().len();
            let mut below = Vec::new();
            let listed: Vec<_> = folders
                .iter()
                .map(|folder| {
                    let store = Arc::clone(&store);
                    async move { store.list_with_delimiter(Some(folder)).await }.boxed()
                })
                .collect();
            let mut listed = futures::stream::iter(listed).buffer_unordered(CONCURRENT_LISTINGS_MAX);
            while let Some(found) = listed.next().await {
                let found = match found {
                    Err(ObjectStoreError::NotFound { .. }) => continue,
                    found => found?,
                };
                for folder in found.common_prefixes {
                    let name = folder.filename().unwrap_or_default();
                    match name.split_once('=') {
                        Some((_, NULL_FOLDER)) => return Ok(true),
                        Some((own, _)) if own == key && !is_last => below.push(folder),
                        _ => {}
                    }
                }
            }
            drop(listed);
            folders = below;
        }
        Ok(false)
    }

    /// The same folders with text keys.
    fn with_text_keys(&self) -> Result<ListingTable> {
        let texts = self.keys().iter().map(|(key, _)| (key.clone(), DataType::Utf8)).collect();
        let options = self.listing.options().clone().with_table_partition_cols(texts);
        let config = ListingTableConfig::new_with_multi_paths(self.listing.table_paths().clone())
            .with_listing_options(options)
            .with_schema(Arc::new(self.file_schema()));
        ListingTable::try_new(config)
    }

    /// Scans folders of which some are named after NULL, which DataFusion would read as text: it scans with
    /// text keys, and a projection above converts them to values and NULLs.
    async fn scan_with_null_keys(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let value = |name: &str| {
            let (_, kind) = self.keys().iter().find(|(key, _)| key == name)?;
            let text = Expr::Column(Column::new_unqualified(name));
            Some(cast_to(nullif(text, lit(NULL_FOLDER)), kind.clone()))
        };
        let of_texts = |filter: &Expr| {
            let replace = |expr: Expr| match &expr {
                Expr::Column(column) => Ok(match value(&column.name) {
                    Some(value) => Transformed::new(value, true, TreeNodeRecursion::Jump),
                    None => Transformed::no(expr),
                }),
                _ => Ok(Transformed::no(expr)),
            };
            filter.clone().transform_down(replace).map(|replaced| replaced.data)
        };
        let filters = filters.iter().map(of_texts).collect::<Result<Vec<_>>>()?;
        let plan = self.with_text_keys()?.scan(session, projection, &never_null(&filters), limit).await?;
        let schema = plan.schema();
        let known = DFSchema::try_from(schema.as_ref().clone())?;
        let mut expressions: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::with_capacity(schema.fields().len());
        let mut has_keys = false;
        for (at, field) in schema.fields().iter().enumerate() {
            let expression: Arc<dyn PhysicalExpr> = match value(field.name()) {
                Some(value) => {
                    has_keys = true;
                    session.create_physical_expr(value, &known)?
                }
                None => Arc::new(PhysicalColumn::new(field.name(), at)),
            };
            expressions.push((expression, field.name().clone()));
        }
        match has_keys {
            true => Ok(Arc::new(ProjectionExec::try_new(expressions, plan)?)),
            false => Ok(plan),
        }
    }
}

/// Whether a type is or contains an interval.
fn has_interval(kind: &DataType) -> bool {
    match kind {
        DataType::Interval(_) => true,
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            has_interval(field.data_type())
        }
        DataType::Map(field, _) => has_interval(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_interval(field.data_type())),
        _ => false,
    }
}

/// Wraps `filters` so that they are never NULL. DataFusion evaluates filters of keys once per file, reads the
/// value bit of a NULL result, and evaluates them nowhere else.
///
/// The wrapping also disables DataFusion's listing by prefix for a bare `key = constant`, which looks only in
/// the folder named after the constant's text and misses other spellings of the value (`month=01`), including
/// Harrier's.
fn never_null(filters: &[Expr]) -> Vec<Expr> {
    filters.iter().map(|filter| Expr::IsTrue(Box::new(filter.clone()))).collect()
}

/// Whether a table partition's folder, up to `levels` deep, is named after NULL.
fn has_null_folder(folder: &Path, levels: usize) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    levels > 0
        && entries.flatten().any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.split_once('=').is_some_and(|(_, value)| {
                value == NULL_FOLDER || (levels > 1 && has_null_folder(&entry.path(), levels - 1))
            })
        })
}

/// Runs blocking work (locks, disk I/O) on another thread; it continues if this future is dropped.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> harrier_committer::local::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| cannot_stage(&error)),
        Err(error) => Err(DataFusionError::ExecutionJoin(Box::new(error))),
    }
}
