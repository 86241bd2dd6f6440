//! The warehouse: persistent tables with transactions.
//!
//! The catalog holds the metadata (`harrier-catalog`), ranks read and write data files (`harrier-exec`), and
//! this module combines both. A statement reads one snapshot; the files it writes lie at their final paths
//! before the one commit that makes them visible.
//!
//! ```text
//!   names ─► WarehouseTable ─► scan: the snapshot's files, pruned, without deleted rows       name_resolver.rs, table.rs, table/prune.rs
//!   INSERT, UPDATE, DELETE, MERGE ─► files and places ─► Transaction ─► commit                dml.rs, transaction.rs
//!   CREATE, ALTER, DROP, COMMENT ─► Transaction ─► commit                                     statement/ddl.rs
//!   PRIMARY KEY, UNIQUE, FOREIGN KEY, CREATE INDEX ─► a tag of the table                      keys.rs
//!   ranges and lists of PARTITION BY ─► table partitions                                      table/partitions.rs
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use harrier_catalog::{Catalog, Error, Fence, Place};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;
use tokio::sync::Mutex;
use url::Url;

pub(crate) mod access;
pub(crate) mod case_collisions;
pub(crate) mod data_folder;
pub(crate) mod deferred_access;
pub(crate) mod dml;
pub(crate) mod keys;
pub(crate) mod maintenance;
pub(crate) mod name_resolver;
pub(crate) mod on_commit;
pub(crate) mod public_schema;
pub(crate) mod relation;
pub(crate) mod sequences;
pub(crate) mod session;
pub(crate) mod snapshot;
pub(crate) mod system_catalogs;
pub(crate) mod table;
pub(crate) mod temporary_snapshots;
pub(crate) mod temporary_tables;
pub(crate) mod transaction;
pub(crate) mod view_columns;

pub(crate) use harrier_catalog::state::DEFAULT_SCHEMA;

/// The catalog's file in a warehouse's folder.
const CATALOG_FILE: &str = "catalog.sqlite";
/// The folder of data files in a warehouse's folder.
const DATA_FOLDER: &str = "data/";
/// How long a process that ends waits for its catalog connections to close.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Location of a warehouse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarehouseOptions {
    /// The catalog database: `sqlite:PATH` or `postgres://…`.
    pub catalog: String,
    /// Location of data files, as a URL or a path; `None` for the one that the catalog knows. A new warehouse
    /// needs it if its catalog is not in a folder.
    pub data: Option<String>,
    /// Size limit of the catalog cache between statements in bytes; `None` for the cache's default.
    pub cache_bytes_max: Option<u64>,
}

impl WarehouseOptions {
    /// A warehouse in a folder of its own: the catalog and, unless `data` says otherwise, the data files.
    pub fn folder(folder: &Path) -> Self {
        let catalog = format!("sqlite:{}", folder.join(CATALOG_FILE).display());
        Self { catalog, data: None, cache_bytes_max: None }
    }
}

/// A warehouse, which is created when something is first stored in it.
#[derive(Debug)]
pub(crate) struct Warehouse {
    options: WarehouseOptions,
    fence: Option<Fence>,
    runtime: Arc<RuntimeEnv>,
    catalog: Mutex<Option<Catalog>>,
    /// The data folder has been verified to be this catalog's.
    is_claimed: AtomicBool,
}

impl Warehouse {
    pub(crate) fn new(options: WarehouseOptions, fence: Option<Fence>, runtime: Arc<RuntimeEnv>) -> Self {
        Self { options, fence, runtime, catalog: Mutex::new(None), is_claimed: AtomicBool::new(false) }
    }

    /// Returns the catalog; `None` if it has not been created.
    ///
    /// Errors: its data is elsewhere than configured (55000); it cannot be read.
    pub(crate) async fn open(&self) -> Result<Option<Catalog>> {
        let mut catalog = self.catalog.lock().await;
        if catalog.is_none() {
            if let Some(path) = self.local_catalog()
                && !path.exists()
            {
                return Ok(None);
            }
            *catalog = match Catalog::open_fenced(&self.options.catalog, self.fence.as_ref()).await {
                Ok(catalog) => {
                    self.check_data_path(&catalog).await?;
                    Some(self.with_cache_limit(catalog))
                }
                Err(Error::NotFound(_)) => None,
                Err(error) => return Err(explain(error)),
            };
        }
        Ok(catalog.clone())
    }

    /// Returns the catalog; creates it if necessary.
    pub(crate) async fn create(&self) -> Result<Catalog> {
        if let Some(catalog) = self.open().await? {
            return Ok(catalog);
        }
        let data = self.data_path()?;
        let place = self.local_catalog().map(|path| Place::of_file(&path));
        maintenance::folder_ownership::check_free(&data, place.as_ref(), &self.runtime).await?;
        if let Some(folder) = self.local_catalog().as_deref().and_then(Path::parent) {
            make_folder(folder)?;
        }
        if let Ok(url) = Url::parse(&data)
            && url.scheme() != "file"
        {
            // An object store has no folders to create.
        } else {
            make_folder(Path::new(&data))?;
        }
        let made = Catalog::create_fenced(&self.options.catalog, &data, self.fence.as_ref());
        let made = self.with_cache_limit(made.await.map_err(explain)?);
        let made = self.catalog.lock().await.insert(made).clone();
        self.claim(&made).await?;
        Ok(made)
    }

    /// Closes the catalog connections unless that takes too long. A catalog in a file is complete in that
    /// file afterwards, unless other processes have it open.
    pub(crate) async fn close(&self) {
        let catalog = self.catalog.lock().await.take();
        if let Some(catalog) = catalog
            && tokio::time::timeout(CLOSE_PATIENCE, catalog.close()).await.is_err()
        {
            tracing::debug!("the catalog is used still and was not closed");
        }
    }

    /// Claims the data folder for this catalog. To be called before files are written into it.
    ///
    /// Errors: the folder is another catalog's (55000); the store's errors.
    pub(crate) async fn claim(&self, catalog: &Catalog) -> Result<()> {
        if !self.is_claimed.load(Ordering::Relaxed) {
            maintenance::folder_ownership::claim(catalog, &self.runtime).await?;
            self.is_claimed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Errors: the data is elsewhere than configured, and the configured folder has no files of this catalog
    /// (55000).
    async fn check_data_path(&self, catalog: &Catalog) -> Result<()> {
        let Some(asked) = &self.options.data else { return Ok(()) };
        let known = catalog.head().await.map_err(explain)?.data_path.clone();
        let asked = absolute(asked);
        match asked == known || absolute(&known) == asked {
            true => Ok(()),
            false => maintenance::folder_ownership::move_to(catalog, &asked, &self.runtime).await,
        }
    }

    fn with_cache_limit(&self, catalog: Catalog) -> Catalog {
        if let Some(bytes) = self.options.cache_bytes_max {
            catalog.set_cache_bytes_max(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        catalog
    }

    fn local_catalog(&self) -> Option<PathBuf> {
        let path = self.options.catalog.strip_prefix("sqlite:")?;
        Some(PathBuf::from(path.strip_prefix("//").unwrap_or(path)))
    }

    /// Absolute, with a trailing `/`.
    fn data_path(&self) -> Result<String> {
        let data = match (&self.options.data, self.local_catalog()) {
            (Some(data), _) => data.clone(),
            (None, Some(catalog)) => {
                catalog.parent().unwrap_or(Path::new(".")).join(DATA_FOLDER).display().to_string()
            }
            (None, None) => {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    "a new warehouse in a database server needs a place for its data files",
                )
                .with_hint("--data DIR, or --data s3://BUCKET/PREFIX/")
                .into_datafusion());
            }
        };
        if !data.contains("://") {
            make_folder(Path::new(&data))?;
        }
        Ok(absolute(&data))
    }
}

/// Normalizes a path or URL to end in `/`. Paths are canonicalized, because `..` after a symbolic link is
/// another folder than the text says.
fn absolute(data: &str) -> String {
    let path = match data.contains("://") {
        true => data.to_string(),
        false => {
            let absolute = std::fs::canonicalize(data).or_else(|_| std::path::absolute(data));
            absolute.map_or_else(|_| data.to_string(), |path| path.display().to_string())
        }
    };
    if path.ends_with('/') { path } else { format!("{path}/") }
}

fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| {
        let state = match error.kind() {
            std::io::ErrorKind::PermissionDenied => SqlState::INSUFFICIENT_PRIVILEGE,
            std::io::ErrorKind::ReadOnlyFilesystem => SqlState::READ_ONLY,
            std::io::ErrorKind::StorageFull => SqlState::DISK_FULL,
            _ => SqlState::IO_ERROR,
        };
        SqlError::new(state, format!("cannot make a warehouse in \"{}\": {error}", folder.display()))
            .into_datafusion()
    })
}

/// Converts a catalog error to one for users.
pub fn catalog_error(error: Error) -> SqlError {
    crate::error::in_statement(&explain(error), "")
}

/// Converts a catalog error to one with its SQLSTATE.
pub(crate) fn explain(error: Error) -> DataFusionError {
    let state = match error {
        Error::Conflict(_) => SqlState::SERIALIZATION_FAILURE,
        Error::Unknown { .. } => SqlState::COMPLETION_UNKNOWN,
        Error::Database(_) => SqlState::CONNECTION_FAILURE,
        Error::Unsupported(_) => SqlState::FEATURE_NOT_SUPPORTED,
        Error::Corrupt(_) => SqlState::DATA_CORRUPTED,
        Error::NotFound(_) => SqlState::INVALID_PARAMETER_VALUE,
        Error::ReadOnly(_) => SqlState::READ_ONLY,
        Error::Refused(refusal) => return harrier_sqlstate::external(*refusal),
        _ => SqlState::INTERNAL_ERROR,
    };
    let coded = SqlError::new(state, error.to_string());
    match error {
        Error::Conflict(_) => coded.with_hint("run the transaction again").into_datafusion(),
        _ => coded.into_datafusion(),
    }
}
