//! Tables over files: `SELECT … FROM 'file.parquet'` and `CREATE EXTERNAL TABLE`.
//!
//! A name in FROM is a file's if it contains a slash or a wildcard or ends in an extension of [`EXTENSIONS`];
//! single quotes make any name a file's. Folders are read with their Hive-style partition folders
//! (`year=2024/…`). Wildcards are `*`, `?` and `[a-z]` within a name, and `**` for folders at any depth.
//!
//! Errors: every one names the file, with the code PostgreSQL gives (58P01 missing, 42501 no permission,
//! XX001 not what its extension says).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use datafusion::arrow::datatypes::{FieldRef, Fields, Schema};
use datafusion::catalog::{Session, TableProvider, TableProviderFactory, UrlTableFactory};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::datasource::listing_table_factory::ListingTableFactory;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::source_as_provider;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{CreateExternalTable, LogicalPlan, WriteOp};
use datafusion::object_store::{ObjectMeta, ObjectStoreExt};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, TryStreamExt};
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::{check_compression, store_root};
use harrier_exec::formats::{avro, delimited, orc};
use harrier_exec::monitor::slice_tree::one_rank_plan;
use harrier_sql::desugar::external_table::{CODEC_OPTION, COMPRESSION_OPTION};
use harrier_sql::file_names::{has_wildcard, looks_like_file};
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::RwLock;
use url::Url;

use crate::external::file_kinds::{check_endings, files_of_one_kind, list_matching};
use crate::external::file_names::{
    FileKind, about_file, file_url, matches, no_match, object_store, parse_url, relative_name,
};
use crate::external::hidden_columns::{HIDDEN, without_hidden};
use crate::external::hive::{FolderLocation, FolderOptions, FolderTable};
use crate::external::store_urls;
use crate::object_stores::data_files::is_hidden;
use crate::object_stores::options::{self, TableOptions};
use crate::warehouse::access::{SessionRole, Viewer};

/// Creates tables for file names in queries.
#[derive(Debug, Default)]
pub(crate) struct FileTables {
    /// The session's state. Its catalog holds this value, hence weak, and set after both exist.
    session: OnceLock<Weak<RwLock<SessionState>>>,
}

impl FileTables {
    /// Binds this to its session. Call it once, before the first query.
    pub(crate) fn bind(&self, session: Weak<RwLock<SessionState>>) {
        assert!(self.session.set(session).is_ok(), "bound twice");
    }

    fn state(&self) -> Result<SessionState> {
        self.session
            .get()
            .and_then(Weak::upgrade)
            .map(|session| session.read().clone())
            .ok_or_else(|| DataFusionError::Internal("the session is gone".to_string()))
    }

    fn boxed_try_new<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>> {
        async move {
            if !looks_like_file(name) {
                return Ok(None);
            }
            let state = self.state()?;
            let table = open(&state, name, locations(&state, name).await?, None).await?;
            Ok(Some(table))
        }
        .boxed()
    }
}

/// [`FileTables`] with a check that the session's role may read files.
#[derive(Debug)]
pub(crate) struct CheckedFileTables {
    pub files: Arc<FileTables>,
    pub role: Arc<SessionRole>,
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl UrlTableFactory for CheckedFileTables {
    fn try_new<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn TableProvider>>>> {
        match looks_like_file(name).then(|| check_access(&self.role.viewer())) {
            Some(Err(error)) => ready(Err(error)).boxed(),
            _ => self.files.boxed_try_new(name),
        }
    }
}

/// Errors: the role may not read and write files by name (42501), because the server can reach more than its
/// roles may.
pub(crate) fn check_access(viewer: &Viewer) -> Result<()> {
    match viewer.is_superuser() {
        true => Ok(()),
        false => Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied for files")
            .with_detail("Only roles with the SUPERUSER attribute may name files and URLs.")
            .with_hint("COPY … FROM STDIN, COPY … TO STDOUT and psql's \\copy work for everybody")
            .into_datafusion()),
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl UrlTableFactory for FileTables {
    fn try_new<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn TableProvider>>>> {
        self.boxed_try_new(name)
    }
}

/// Resolves `name` to URLs. Checks that local files exist.
pub(crate) async fn locations(state: &SessionState, name: &str) -> Result<Vec<ListingTableUrl>> {
    let none = TableOptions::default();
    if store_urls::is_in_store(name) && has_wildcard(name) {
        return store_urls::resolve_pattern(state, name, &none).await;
    }
    let place = |location| parse_url(&options::location_with_options(state, location, &none)?);
    resolve(name)?.into_iter().map(place).collect()
}

/// A table over the files of `name`, with an explicit format and compression.
pub(crate) async fn table(
    state: &SessionState,
    name: &str,
    format: Option<&'static str>,
    compression: Option<&str>,
) -> Result<Arc<dyn TableProvider>> {
    let forced = format.map(|format| FileKind {
        format,
        options: &[],
        compression: compression
            .map(str::to_string)
            .or_else(|| FileKind::of(name).and_then(|kind| kind.compression))
            .filter(|compression| !compression.is_empty()),
        suffix: String::new(),
    });
    open(state, name, locations(state, name).await?, forced).await
}

/// The format and compression that a file's name implies.
pub(crate) fn kind_of(name: &str) -> Option<(&'static str, Option<String>)> {
    FileKind::of(name).map(|kind| (kind.format, kind.compression))
}

/// Lists all files below `urls`, hidden ones excluded, sorted by name.
pub(crate) async fn list_files(
    state: &SessionState,
    urls: &[ListingTableUrl],
    name: &str,
) -> Result<Vec<ObjectMeta>> {
    let mut files = Vec::new();
    for url in urls {
        let store = object_store(state, url)?;
        let found: Vec<ObjectMeta> = url
            .list_all_files(state, store.as_ref(), "")
            .await?
            .try_collect()
            .await
            .map_err(|error| about_file(error, name))?;
        files.extend(found);
    }
    if files.is_empty() {
        return Err(no_match(name).into_datafusion());
    }
    files.sort_by(|left, right| left.location.cmp(&right.location));
    Ok(files)
}

/// The local path of a URL; `None` for stores and patterns.
pub(crate) fn local_path(url: &ListingTableUrl) -> Option<PathBuf> {
    let is_plain = url.scheme() == "file" && url.get_glob().is_none();
    is_plain.then(|| Path::new("/").join(url.prefix().as_ref()))
}

/// A table over all data files below `urls`, of which there is at least one. The format is `forced`, or else
/// the one that file names imply.
async fn open(
    state: &SessionState,
    name: &str,
    urls: Vec<ListingTableUrl>,
    forced: Option<FileKind>,
) -> Result<Arc<dyn TableProvider>> {
    let Some(first) = urls.first() else {
        return Err(no_match(name).into_datafusion());
    };
    // Reports errors of the store itself unchanged.
    object_store(state, first)?;
    let first = first.clone();
    let (urls, files, known) = match forced {
        Some(kind) => {
            let files = list_matching(state, &first).await.map_err(|error| about_file(error, name))?;
            let known = files.first().map(|_| kind);
            (urls, files, known)
        }
        None => files_of_one_kind(state, name, urls).await?,
    };
    let Some(kind) = known else {
        return Err(if files.is_empty() && has_wildcard(name) {
            no_match(name)
        } else if files.is_empty() {
            SqlError::new(
                SqlState::UNDEFINED_FILE,
                format!("no data files in \"{}\"", relative_name(name)),
            )
        } else {
            SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("cannot tell the format of file \"{}\" from its name", relative_name(name)),
            )
            .with_hint(
                "use CREATE EXTERNAL TABLE … STORED AS, or one of the extensions parquet, orc, csv, tsv, json, jsonl, ndjson, avro, arrow, feather, ipc, arrows",
            )
        }
        .into_datafusion());
    };
    let format = kind.format(state)?;
    let options = ListingOptions::new(Arc::clone(&format)).with_file_extension(kind.suffix);
    let is_one = urls.len() == 1;
    let config = ListingTableConfig::new_with_multi_paths(urls)
        .with_listing_options(options)
        .infer_partitions_from_path(state)
        .await?;
    let config = match config.infer_schema(state).await {
        Ok(config) => config,
        Err(error) => {
            return Err(
                find_culprit(state, &format, &first, error, |path| FileKind::of(path).is_some()).await
            );
        }
    };
    let is_empty = config.file_schema.as_ref().is_some_and(|schema| schema.fields().is_empty());
    let config = without_key_columns(config, kind.format);
    if is_empty {
        let name = match files.as_slice() {
            [file] => format!("/{}", file.location),
            _ => name.to_string(),
        };
        return Err(SqlError::new(
            SqlState::DATA_CORRUPTED,
            format!("file \"{}\"{IS_EMPTY}", relative_name(&name)),
        )
        .into_datafusion());
    }
    let table = ListingTable::try_new(config)?
        .with_cache(state.runtime_env().cache_manager.get_file_statistic_cache());
    Ok(without_hidden(match writable_location(&first)?.filter(|_| is_one && first.is_collection()) {
        Some(place) => Arc::new(FolderTable::new(table, Some(place), FolderOptions::default())),
        None => Arc::new(table),
    }))
}

/// Removes file columns that are also partition keys: the folder's value wins, as in Hive and Spark. CSV
/// columns are positional: they get names that [`without_hidden`] knows.
fn without_key_columns(mut config: ListingTableConfig, format: &str) -> ListingTableConfig {
    let keys = config.options.as_ref().map_or(&[][..], |options| options.table_partition_cols.as_slice());
    let is_key = |field: &FieldRef| keys.iter().any(|(key, _)| key == field.name());
    let schema = config.file_schema.as_ref().filter(|schema| schema.fields().iter().any(is_key));
    if let Some(schema) = schema {
        let visible = |field: &FieldRef| match (is_key(field), format) {
            (false, _) => Some(Arc::clone(field)),
            (true, "csv") => {
                let name = format!("{HIDDEN}{}", field.name());
                Some(Arc::new(field.as_ref().clone().with_name(name)))
            }
            (true, _) => None,
        };
        let fields: Fields = schema.fields().iter().filter_map(visible).collect();
        let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
        config.file_schema = Some(Arc::new(schema));
    }
    config
}

/// End of the message for a file without rows and columns.
const IS_EMPTY: &str = " is empty";

/// Whether a file could not be opened because it is empty.
pub(crate) fn is_empty_file(error: &DataFusionError) -> bool {
    harrier_sqlstate::of(error) == SqlState::DATA_CORRUPTED && error.to_string().ends_with(IS_EMPTY)
}

/// The location of a folder that statements can write to; `None` if it is read-only.
fn writable_location(url: &ListingTableUrl) -> Result<Option<FolderLocation>> {
    if let Some(folder) = local_path(url) {
        return Ok(Some(FolderLocation::Local(folder)));
    }
    if url.get_glob().is_some() || !matches!(url.scheme(), "s3" | "s3a" | "hdfs") {
        return Ok(None);
    }
    let folder = format!("{}{}/", url.object_store().as_str(), url.prefix());
    let root = store_root(&folder)?;
    Ok(Some(FolderLocation::Store(folder, root)))
}

/// Errors: `plan` changes rows of a file (0A000).
pub(crate) fn check_target(plan: &LogicalPlan) -> Result<()> {
    let dml = match plan {
        LogicalPlan::Dml(dml) => dml,
        LogicalPlan::Explain(explain) => return check_target(&explain.plan),
        LogicalPlan::Analyze(explain) => return check_target(&explain.input),
        _ => return Ok(()),
    };
    let Ok(target) = source_as_provider(&dml.target) else { return Ok(()) };
    if target.downcast_ref::<ListingTable>().is_none() {
        return Ok(());
    }
    let verb = match &dml.op {
        WriteOp::Insert(_) => "insert into",
        WriteOp::Update => "update",
        WriteOp::Delete => "delete from",
        WriteOp::Truncate => "truncate",
        WriteOp::MergeInto(_) => "merge into",
        _ => "change",
    };
    let name = dml.table_name.table();
    let kind = if looks_like_file(name) { "file" } else { "external table" };
    let hint = match kind {
        "file" => format!(
            "CREATE TABLE … AS SELECT * FROM '{name}' makes a table of it, and COPY … TO '{name}' writes it anew"
        ),
        _ => "CREATE TABLE … AS makes a table of it; external tables over folders take INSERT".to_string(),
    };
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot {verb} {kind} \"{name}\""))
        .with_detail("A file is only read.")
        .with_hint(hint)
        .into_datafusion())
}

/// Names of all files that `plan` reads, without duplicates.
pub(crate) fn scanned_files(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    fn find(plan: &Arc<dyn ExecutionPlan>, found: &mut BTreeSet<String>) {
        // Each rank has a scan of its own files.
        let plan = &one_rank_plan(plan);
        if let Some(source) = plan.downcast_ref::<DataSourceExec>()
            && let Some(config) = source.data_source().downcast_ref::<FileScanConfig>()
        {
            let is_local = config.object_store_url.as_str().starts_with("file:");
            for file in config.file_groups.iter().flat_map(|group| group.iter()) {
                let location = &file.object_meta.location;
                found.insert(if is_local { format!("/{location}") } else { location.to_string() });
            }
        }
        for child in plan.children() {
            find(child, found);
        }
    }
    let mut found = BTreeSet::new();
    find(plan, &mut found);
    found.into_iter().collect()
}

/// The maximum number of files that an error names when any of them may be the cause.
const NAMED_FILES_MAX: usize = 3;

/// Adds the scanned files' names to an error about file content; other errors pass unchanged.
pub(crate) fn with_scanned_files(error: DataFusionError, scanned: &[String]) -> DataFusionError {
    let sqlstate = harrier_sqlstate::of(&error);
    let is_about_content = match sqlstate {
        SqlState::DATA_CORRUPTED | SqlState::BAD_COPY_FILE_FORMAT => true,
        // The same code as for bytes in a query; only the readers' messages differ.
        state if state == SqlState::CHARACTER_NOT_IN_REPERTOIRE => error.to_string().contains("UTF-8 data"),
        // The same code as for a cast in a query; only the CSV reader's message differs.
        SqlState::INVALID_TEXT_REPRESENTATION => error.to_string().contains("Error while parsing value"),
        _ => false,
    };
    if !is_about_content || scanned.is_empty() {
        return error;
    }
    let cause = crate::error::sql_error(error);
    let detail = match &cause.detail {
        Some(detail) => format!("{}: {detail}", cause.message),
        None => cause.message,
    };
    let names: Vec<_> =
        scanned.iter().take(NAMED_FILES_MAX).map(|name| format!("\"{}\"", relative_name(name))).collect();
    let message = match scanned.len() {
        1 => format!("file {} cannot be read", names[0]),
        n if n <= NAMED_FILES_MAX => format!("one of the files {} cannot be read", names.join(", ")),
        n => format!("one of {n} files such as {} cannot be read", names.join(", ")),
    };
    SqlError::new(sqlstate, message).with_detail(detail).into_datafusion()
}

/// Finds the first file that fails alone, because DataFusion's error does not name it.
async fn find_culprit(
    state: &SessionState,
    format: &Arc<dyn FileFormat>,
    url: &ListingTableUrl,
    error: DataFusionError,
    is_part: impl Fn(&str) -> bool,
) -> DataFusionError {
    let Ok(store) = state.runtime_env().object_store(url) else {
        return error;
    };
    let Ok(files) = url.list_all_files(state, store.as_ref(), "").await else {
        return error;
    };
    let files: Vec<ObjectMeta> = match files.try_collect().await {
        Ok(files) => files,
        Err(_) => return error,
    };
    for file in &files {
        if !is_part(file.location.as_ref()) {
            continue;
        }
        if let Err(error) = format.infer_schema(state, &store, std::slice::from_ref(file)).await {
            let name = match url.scheme() {
                "file" => format!("/{}", file.location),
                _ => file.location.to_string(),
            };
            return about_file(error, &name);
        }
    }
    error
}

/// Resolves `name` to what DataFusion reads: local paths are checked to exist; names with a scheme (`s3://…`)
/// become URLs.
fn resolve(name: &str) -> Result<Vec<String>> {
    let local = match name.split_once("://") {
        Some(("file", path)) => path,
        Some(_) => return Ok(vec![store_urls::as_url(name)]),
        None => name,
    };
    let path = match local.strip_prefix("~/") {
        Some(rest) => match std::env::home_dir() {
            Some(home) => home.join(rest),
            None => PathBuf::from(local),
        },
        None => PathBuf::from(local),
    };
    let text = path.to_string_lossy().into_owned();
    if path.exists() || !has_wildcard(&text) {
        check_readable(&path, name)?;
        return Ok(vec![file_url(&path)?]);
    }
    let found = expand(&text)?;
    if found.is_empty() {
        return Err(no_match(name).into_datafusion());
    }
    Ok(found)
}

/// Checks that a file or folder exists and can be opened; DataFusion's error would not name it.
fn check_readable(path: &Path, name: &str) -> Result<()> {
    let opened = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::read_dir(path).map(drop),
        // Opening a pipe would wait for its writer.
        Ok(metadata) if metadata.is_file() => std::fs::File::open(path).map(drop),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    opened.map_err(|error| about_file(DataFusionError::IoError(error), name))
}

/// Expands wildcards in a path; sorted. A pattern with wildcards in its last part only is returned unchanged
/// if anything matches: DataFusion reads it itself, including partition folders, but excluding hidden files.
fn expand(pattern: &str) -> Result<Vec<String>> {
    let parts: Vec<&str> = pattern.split('/').collect();
    let last = parts.len() - 1;
    let only_last = parts[..last].iter().all(|part| !has_wildcard(part));
    if only_last && parts[last] != "**" && !is_hidden(parts[last], false) {
        let folder = if last == 0 { "." } else { &parts[..last].join("/") };
        let folder = if folder.is_empty() { "/" } else { folder };
        check_readable(Path::new(folder), folder)?;
        let is_match = |name: &String| {
            matches(parts[last].as_bytes(), name.as_bytes())
                || name.contains('=') && Path::new(folder).join(name).is_dir()
        };
        let has_match = names_in(Path::new(folder), parts[last]).iter().any(is_match);
        return Ok(has_match.then(|| pattern.to_string()).into_iter().collect());
    }
    let mut found = vec![String::new()];
    for (at, part) in parts.iter().enumerate() {
        let mut next = Vec::new();
        for base in &found {
            let join = |name: &str| {
                if at == 0 { name.to_string() } else { format!("{base}/{name}") }
            };
            if *part == "**" {
                let base = if at == 0 { "." } else { base.as_str() };
                next.push(base.to_string());
                folders_below(Path::new(base), &mut next);
            } else if !has_wildcard(part) {
                let path = join(part);
                if path.is_empty() || Path::new(&path).exists() {
                    next.push(path);
                }
            } else {
                let folder = match (at, base.as_str()) {
                    (0, _) => ".",
                    (_, "") => "/",
                    (_, base) => base,
                };
                next.extend(
                    names_in(Path::new(folder), part)
                        .into_iter()
                        .filter(|name| matches(part.as_bytes(), name.as_bytes()))
                        .map(|name| join(&name)),
                );
            }
        }
        found = next;
    }
    if parts[last] == "**" {
        found = found
            .iter()
            .flat_map(|folder| {
                names_in(Path::new(folder), "").into_iter().map(move |name| format!("{folder}/{name}"))
            })
            .collect();
    }
    found.retain(|path| Path::new(path).is_file() && FileKind::of(path).is_some());
    found.sort();
    found.dedup();
    found.iter().map(|path| file_url(Path::new(path))).collect()
}

/// Names in a folder that are not hidden, or begin with the same character as `pattern`; empty if the folder
/// cannot be read.
fn names_in(folder: &Path, pattern: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_explicit = name.as_bytes().first() == pattern.as_bytes().first();
            (is_explicit || !is_hidden(&name, entry.path().is_dir())).then_some(name)
        })
        .collect()
}

fn folders_below(folder: &Path, found: &mut Vec<String>) {
    for name in names_in(folder, "") {
        let path = folder.join(name);
        // Symbolic links are not followed: they may form a cycle.
        if path.is_dir() && !path.is_symlink() {
            found.push(path.to_string_lossy().into_owned());
            folders_below(&path, found);
        }
    }
}

/// `CREATE EXTERNAL TABLE`: checks the locations, then calls DataFusion's factory.
#[derive(Debug)]
pub(crate) struct ExternalTables {
    inner: ListingTableFactory,
    role: Arc<SessionRole>,
}

impl ExternalTables {
    pub(crate) fn new(role: Arc<SessionRole>) -> Self {
        Self { inner: ListingTableFactory::default(), role }
    }

    fn boxed_create<'a>(
        &'a self,
        state: &'a dyn Session,
        command: &'a CreateExternalTable,
    ) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        async move {
            check_access(&self.role.viewer())?;
            let mut command = command.clone();
            let options = FolderOptions::take(&mut command.options)?;
            let store_options = TableOptions::take(&mut command.options)?;
            restore_codec(&mut command)?;
            if !store_options.is_empty() {
                // The definition contains their values.
                command.definition = None;
            }
            let has_columns = !command.schema.fields().is_empty();
            let is_text = command.file_type.eq_ignore_ascii_case("textfile");
            if is_text && !has_columns {
                let message = "text files do not tell their columns";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_hint("CREATE EXTERNAL TABLE name (column type, …) … STORED AS TEXTFILE")
                    .into_datafusion());
            }
            let mut locations = Vec::with_capacity(command.locations.len());
            for location in &command.locations {
                if store_urls::is_in_store(location) && has_wildcard(location) {
                    let Some(state) = state.as_any().downcast_ref::<SessionState>() else { continue };
                    locations.extend(store_urls::expand(state, location, &store_options).await?);
                    continue;
                }
                match resolve(location) {
                    Ok(found) => locations.extend(found),
                    // A table with declared columns may begin empty and be filled by INSERT.
                    Err(error)
                        if has_columns
                            && !has_wildcard(location)
                            && harrier_sqlstate::of(&error) == SqlState::UNDEFINED_FILE =>
                    {
                        locations.push(new_location(location)?);
                    }
                    Err(error) => return Err(error),
                }
            }
            if !has_columns && let Some(state) = state.as_any().downcast_ref::<SessionState>() {
                for location in &locations {
                    if let Some(schema) = check_endings(state, location, &command).await? {
                        command.schema = Arc::new(schema);
                    }
                }
            }
            let named = std::mem::replace(&mut command.locations, locations);
            if let Some(state) = state.as_any().downcast_ref::<SessionState>() {
                for location in &mut command.locations {
                    *location =
                        options::location_with_options(state, std::mem::take(location), &store_options)?;
                    object_store(state, &parse_url(location)?)?;
                    *location = folder_in_store(state, std::mem::take(location)).await?;
                }
            }
            match self.inner.create(state, &command).await {
                Ok(table) => {
                    // Without a file, DataFusion would create a table without columns.
                    if table.schema().fields().is_empty() {
                        return Err(no_data_files(&command.file_type, &named));
                    }
                    if is_text {
                        delimited::check(&table.schema())?;
                    }
                    let table = match has_columns {
                        true => table,
                        false => with_keys_of_folders(table, &command)?,
                    };
                    into_folder_table(table, &command.locations, options).map(without_hidden)
                }
                // DataFusion has a different message for the same condition.
                Err(DataFusionError::Plan(text)) if text.starts_with("No files found at") => {
                    Err(no_data_files(&command.file_type, &named))
                }
                Err(error) => Err(explain_failure(state, &command, error).await),
            }
        }
        .boxed()
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl TableProviderFactory for ExternalTables {
    fn create<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        state: &'b dyn Session,
        command: &'c CreateExternalTable,
    ) -> BoxFuture<'f, Result<Arc<dyn TableProvider>>> {
        self.boxed_create(state, command)
    }
}

/// Undoes [`rename_codec`].
///
/// Errors: a codec that files of the format do not support (22023).
fn restore_codec(command: &mut CreateExternalTable) -> Result<()> {
    let Some(codec) = command.options.remove(CODEC_OPTION) else { return Ok(()) };
    match command.file_type.to_ascii_lowercase().as_str() {
        "avro" => avro::Codec::of(&codec).map(drop),
        "orc" => orc::Codec::of(&codec).map(drop),
        _ => check_compression(&codec),
    }?;
    command.options.insert(COMPRESSION_OPTION.to_string(), codec);
    command.definition = command.definition.take().map(|text| text.replace(CODEC_OPTION, COMPRESSION_OPTION));
    Ok(())
}

/// The URL of a location that does not exist yet: a folder, unless its name is a file's.
fn new_location(location: &str) -> Result<String> {
    let is_local = location.strip_prefix("file://").unwrap_or(location);
    if is_local.contains("://") || FileKind::of(location.trim_end_matches('/')).is_some() {
        return Ok(location.to_string());
    }
    let url = std::path::absolute(is_local).ok().and_then(|path| Url::from_directory_path(path).ok());
    Ok(url.map_or_else(|| location.to_string(), String::from))
}

/// Removes the columns of files that are keys of folders as well from a table whose columns are the files'.
fn with_keys_of_folders(
    table: Arc<dyn TableProvider>,
    command: &CreateExternalTable,
) -> Result<Arc<dyn TableProvider>> {
    let Some(listing) = table.downcast_ref::<ListingTable>() else { return Ok(table) };
    let keys = &listing.options().table_partition_cols;
    let schema = table.schema();
    let of_files = schema.fields().len() - keys.len();
    let fields = &schema.fields()[..of_files];
    if !fields.iter().any(|field| keys.iter().any(|(key, _)| key == field.name())) {
        return Ok(table);
    }
    let config = ListingTableConfig::new_with_multi_paths(listing.table_paths().clone())
        .with_listing_options(listing.options().clone())
        .with_schema(Arc::new(Schema::new_with_metadata(fields.to_vec(), schema.metadata().clone())));
    let config = without_key_columns(config, &command.file_type.to_ascii_lowercase());
    let listing = ListingTable::try_new(config)?.with_definition(command.definition.clone());
    Ok(Arc::new(listing))
}

/// Makes a folder's table one with consistent reads and atomic writes.
fn into_folder_table(
    table: Arc<dyn TableProvider>,
    locations: &[String],
    options: FolderOptions,
) -> Result<Arc<dyn TableProvider>> {
    let ([location], Some(listing)) = (locations, table.downcast_ref::<ListingTable>()) else {
        return Ok(table);
    };
    let url = parse_url(location)?;
    let place = writable_location(&url)?;
    let is_elsewhere = url.scheme() != "file";
    if !url.is_collection() || (place.is_none() && !is_elsewhere) {
        return Ok(table);
    }
    Ok(Arc::new(FolderTable::new(listing.clone(), place, options)))
}

/// Appends `/` to a store location unless a file of this name exists.
async fn folder_in_store(state: &SessionState, location: String) -> Result<String> {
    let is_elsewhere = location.split_once("://").is_some_and(|(scheme, _)| scheme != "file");
    if !is_elsewhere || location.ends_with('/') || FileKind::of(&location).is_some() {
        return Ok(location);
    }
    let url = parse_url(&location)?;
    let store = object_store(state, &url)?;
    match store.head(url.prefix()).await {
        Ok(_) => Ok(location),
        Err(_) => Ok(location + "/"),
    }
}

fn no_data_files(format: &str, named: &[String]) -> DataFusionError {
    let names = named.join("\", \"");
    SqlError::new(SqlState::UNDEFINED_FILE, format!("no data files of format {format} in \"{names}\""))
        .into_datafusion()
}

/// Names the file that CREATE EXTERNAL TABLE failed on, if the error is about a file.
async fn explain_failure(
    state: &dyn Session,
    command: &CreateExternalTable,
    error: DataFusionError,
) -> DataFusionError {
    let is_about_data = matches!(
        harrier_sqlstate::of(&error).as_str().as_bytes(),
        [b'2', b'2', ..] | [b'5', b'8', ..] | [b'X', b'X', ..]
    ) || harrier_sqlstate::of(&error) == SqlState::INSUFFICIENT_PRIVILEGE;
    let Some(state) = state.as_any().downcast_ref::<SessionState>() else {
        return error;
    };
    let format = state
        .get_file_format_factory(&command.file_type)
        .and_then(|factory| factory.create(state, &command.options).ok());
    let (true, Some(format)) = (is_about_data, format) else {
        return error;
    };
    let mut error = error;
    for location in &command.locations {
        let Ok(url) = parse_url(location) else {
            continue;
        };
        error = find_culprit(state, &format, &url, error, |_| true).await;
        if matches!(error, DataFusionError::External(_)) {
            break;
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_files() {
        let kind = |path| {
            FileKind::of(path).map(|kind| (kind.format, kind.compression.unwrap_or_default(), kind.suffix))
        };
        assert_eq!(kind("a/b.parquet"), Some(("parquet", String::new(), ".parquet".into())));
        assert_eq!(kind("b.csv.gz"), Some(("csv", "gz".into(), ".csv.gz".into())));
        assert_eq!(kind("b.JSONL"), Some(("json", String::new(), ".JSONL".into())));
        assert_eq!(kind("a/_b.csv"), Some(("csv", String::new(), ".csv".into())));
        for none in ["b", "a/_SUCCESS", "a/.csv", "b.gz", "b.txt", "a/.b.csv.crc"] {
            assert_eq!(kind(none), None, "{none}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*.csv", "a.csv", true),
            ("*.csv", "a.csv.gz", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
            ("?", "é", true),
            ("??", "é", false),
            ("[a-c]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[!a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[ab", "[ab", true),
            ("[ab", "a", false),
        ] {
            let got = matches(pattern.as_bytes(), name.as_bytes());
            assert_eq!(got, expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_over_folders() {
        let root = std::env::temp_dir().join(format!("harrier-files-{}", std::process::id()));
        for file in ["a/1.csv", "a/b/2.csv", "a/b/x.txt", "c/3.csv", ".h/4.csv", "we[i]rd/5.csv"] {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "v\n").unwrap();
        }
        let base = root.to_str().unwrap();
        let found = |pattern: &str| -> Vec<String> {
            let urls = expand(&format!("{base}/{pattern}")).unwrap();
            let cut = |url: String| url.rsplit(base).next().unwrap().to_string();
            urls.into_iter().map(cut).collect()
        };
        assert_eq!(found("*/1.csv"), ["/a/1.csv"]);
        assert_eq!(found("?/*.csv"), ["/a/1.csv", "/c/3.csv"]);
        assert_eq!(found("**/*.csv").len(), 4);
        assert_eq!(found("a/**"), ["/a/1.csv", "/a/b/2.csv"]);
        assert_eq!(found("x/*/1.csv"), [""; 0]);
        assert_eq!(found("a/*.csv"), ["/a/*.csv"]);
        assert_eq!(found("a/*.parquet"), [""; 0]);
        let weird = resolve(&format!("{base}/we[i]rd/5.csv")).unwrap();
        assert!(parse_url(&weird[0]).unwrap().get_glob().is_none());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
