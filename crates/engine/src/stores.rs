//! The object stores of a process: each is opened when a statement first reaches for it.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry};
use datafusion::object_store::ObjectStore;
use harrier_exec::sqlstate::{CodedError, SqlState};
use url::Url;

/// Local files, and what `harrier-storage` opens.
#[derive(Debug, Default)]
pub(crate) struct Stores(DefaultObjectStoreRegistry);

impl ObjectStoreRegistry for Stores {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.0.register_store(url, store)
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        self.0.deregister_store(url)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        if let Ok(store) = self.0.get_store(url) {
            return Ok(store);
        }
        match harrier_storage::open(url) {
            Ok(Some(store)) => {
                self.0.register_store(url, Arc::clone(&store));
                Ok(store)
            }
            Ok(None) => Err(DataFusionError::from(
                CodedError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("no storage is known by the name \"{}\"", url.scheme()),
                )
                .with_hint("files are found by local paths, s3://bucket/… and hdfs://host:port/…"),
            )),
            Err(error) => Err(CodedError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("cannot use {}://{}: {error}", url.scheme(), url.host_str().unwrap_or_default()),
            )
            .into()),
        }
    }
}
