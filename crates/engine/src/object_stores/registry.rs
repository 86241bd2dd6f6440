//! Registry of a process's object stores. Each is opened on first use; listings contain data files only.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::RwLock;
use url::{Position, Url};

use crate::object_stores::data_files::DataFiles;

/// Local files, and all stores that `harrier-storage` opens.
#[derive(Debug)]
pub(crate) struct StoreRegistry {
    /// Keyed by URL without path; the part before the host counts, since it may name options.
    open: RwLock<HashMap<String, Arc<dyn ObjectStore>>>,
}

impl Default for StoreRegistry {
    fn default() -> Self {
        let local: Arc<dyn ObjectStore> = Arc::new(DataFiles::new(Arc::new(LocalFileSystem::new())));
        Self { open: RwLock::new(HashMap::from([("file://".to_string(), local)])) }
    }
}

fn key(url: &Url) -> &str {
    &url[..Position::BeforePath]
}

impl ObjectStoreRegistry for StoreRegistry {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.open.write().insert(key(url).to_string(), store)
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let store = self.open.write().remove(key(url));
        store.ok_or_else(|| DataFusionError::Internal(format!("no store is open at {}", key(url))))
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        if let Some(store) = self.open.read().get(key(url)) {
            return Ok(Arc::clone(store));
        }
        match harrier_storage::open(url) {
            Ok(Some(store)) => {
                let store: Arc<dyn ObjectStore> = Arc::new(DataFiles::with_cache(store));
                self.register_store(url, Arc::clone(&store));
                Ok(store)
            }
            Ok(None) => Err(harrier_sqlstate::external(
                SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("no storage is known by the name \"{}\"", url.scheme()),
                )
                .with_hint("files are found by local paths, s3://bucket/… and hdfs://host:port/…"),
            )),
            Err(error) => Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("cannot use {}://{}: {error}", url.scheme(), url.host_str().unwrap_or_default()),
            )
            .into_datafusion()),
        }
    }
}
