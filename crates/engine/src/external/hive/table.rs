//! A table that is a folder: what it is, and scans of it.

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
use harrier_sqlstate::IntoDataFusionError;

use crate::external::hive::read_validation::Watched;
use crate::object_stores::listing_cache;

/// How often a folder in a store is listed in which others show files all the time.
const LOOKS_MAX: usize = 10;
/// Folders of a store that are listed at the same time.
const LISTED_MAX: usize = 16;

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
                harrier_sqlstate::external(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
            };
            if name == "merge" {
                taken.merge = match known.to_ascii_lowercase().as_str() {
                    "true" | "on" | "1" => true,
                    "false" | "off" | "0" => false,
                    _ => return Err(wrong()),
                };
            } else {
                let bytes =
                    known.parse().ok().or_else(|| crate::runtime::memory_size::parse_bytes(&known).ok());
                taken.target_file_bytes = bytes.filter(|bytes| *bytes > 0).ok_or_else(wrong)?;
            }
        }
        Ok(taken)
    }
}

/// A folder of files as a table.
#[derive(Debug, Clone)]
pub(crate) struct FolderTable {
    listing: ListingTable,
    /// With keys that may be NULL, which DataFusion has not.
    schema: SchemaRef,
    /// `None`: in a store that can only be read.
    place: Option<Place>,
    options: FolderOptions,
}

/// Where a folder is.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Local(PathBuf),
    /// By its address, with a `/` at its end.
    Store(String, StoreRoot),
}

/// What new files of a table are.
pub(crate) struct Written {
    pub format: WriteFormat,
    /// As Parquet's libraries name it.
    pub compression: String,
    pub row_group_rows: usize,
}

impl FolderTable {
    pub(crate) fn new(listing: ListingTable, place: Option<Place>, options: FolderOptions) -> Self {
        let all = listing.schema();
        let keys = &listing.options().table_partition_cols;
        let fields = all.fields().iter().map(|field| match keys.iter().any(|(key, _)| key == field.name()) {
            true => Arc::new(field.as_ref().clone().with_nullable(true)),
            false => Arc::clone(field),
        });
        let schema = Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), all.metadata().clone()));
        Self { listing, schema, place, options }
    }

    pub(crate) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    pub(crate) fn listing(&self) -> &ListingTable {
        &self.listing
    }

    pub(crate) fn options(&self) -> &FolderOptions {
        &self.options
    }

    /// Errors: the table has a column whose values its files, or the names of its folders, do not keep
    /// (0A000).
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

    /// Lists while nobody shows anything, so that a statement over many folders is in it whole or not at all.
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
            let folder = match &self.place {
                None => return self.listing.scan(session, projection, &surely(filters), limit).await,
                Some(Place::Local(folder)) => folder.clone(),
                Some(Place::Store(_, root)) => {
                    return self.scan_store(root, session, projection, filters, limit).await;
                }
            };
            let levels = self.keys().len();
            let wait = move || {
                let reading = Root::find(&folder)?.map(|root| root.read()).transpose()?;
                Ok((reading, has_null_folder(&folder, levels)))
            };
            let (reading, has_nulls) = blocking(wait).await?;
            let plan = match has_nulls {
                true => self.scan_nulls(session, projection, filters, limit).await,
                false => self.listing.scan(session, projection, &surely(filters), limit).await,
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
            // DataFusion would name a folder after what stands in the place of a NULL.
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
            self.with_texts()?.insert_into(session, texts, op).await
        }
        .boxed()
    }

    /// Lists until nobody has shown anything meanwhile. Where somebody always does, each folder by itself is
    /// whole all the same.
    fn scan_store<'a>(
        &'a self,
        root: &'a StoreRoot,
        session: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let mut looks = 0;
            loop {
                looks += 1;
                let settled =
                    root.wait_until_settled().await.map_err(|error| cannot_stage_in_store(&error))?;
                // Where nobody has ever shown anything, what was found before is whole as well.
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
                if !is_unchanged.map_err(|error| cannot_stage_in_store(&error))? && looks < LOOKS_MAX {
                    // It may have failed because of that, too.
                    continue;
                }
                let plan = plan?;
                if let Some(watched) = session.config().get_extension::<Watched>() {
                    watched.add(root.clone(), settled, &plan);
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
        match !self.keys().is_empty() && self.has_null_object(session).await? {
            true => self.scan_nulls(session, projection, filters, limit).await,
            false => self.listing.scan(session, projection, &surely(filters), limit).await,
        }
    }

    /// Whether a folder is named after NULL. Lists folders only, level by level.
    async fn has_null_object(&self, session: &dyn Session) -> Result<bool> {
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
            let mut listed = futures::stream::iter(listed).buffer_unordered(LISTED_MAX);
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

    /// The same folders with the texts of their names as keys.
    fn with_texts(&self) -> Result<ListingTable> {
        let texts = self.keys().iter().map(|(key, _)| (key.clone(), DataType::Utf8)).collect();
        let options = self.listing.options().clone().with_table_partition_cols(texts);
        let config = ListingTableConfig::new_with_multi_paths(self.listing.table_paths().clone())
            .with_listing_options(options)
            .with_schema(Arc::new(self.file_schema()));
        ListingTable::try_new(config)
    }

    /// A scan of folders of which some are named after NULL, which DataFusion takes for a text: it gets the
    /// texts of all keys, and what they stand for is made of them here.
    async fn scan_nulls(
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
        let plan = self.with_texts()?.scan(session, projection, &surely(&filters), limit).await?;
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

/// Whether values of a type are, or have in them, intervals.
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

/// `filters`, none of them NULL for any row. DataFusion evaluates those of keys for each file, takes whatever
/// bit a NULL result has for the answer, and evaluates them nowhere else.
///
/// In a bare `key = constant` it would look only into the folder that is named after the constant's text, and
/// find nothing where others have spelled the value otherwise (`month=01`), or Harrier has.
fn surely(filters: &[Expr]) -> Vec<Expr> {
    filters.iter().map(|filter| Expr::IsTrue(Box::new(filter.clone()))).collect()
}

/// Whether one of the folders that are table partitions, `levels` deep, is named after NULL.
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

/// Runs what waits for locks and disks; it goes on if this is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> harrier_committer::local::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| cannot_stage(&error)),
        Err(error) => Err(DataFusionError::ExecutionJoin(Box::new(error))),
    }
}
