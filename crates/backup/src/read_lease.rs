//! A read lease on a snapshot's files in the catalog: VACUUM keeps files that expire meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use harrier_catalog::{Catalog, WRITER_SILENCE, reader_name};
use tokio::task::JoinHandle;

use crate::Result;

/// Renewal interval, a fraction of the lease's lifetime.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(WRITER_SILENCE.as_secs() / 4);

/// Renewed until [`end`](Self::end). If dropped, it expires when its process has ended, or after
/// [`WRITER_SILENCE`].
pub(crate) struct ReadLease {
    catalog: Catalog,
    names: BTreeSet<String>,
    renewal: JoinHandle<()>,
}

impl ReadLease {
    /// Begins the lease; call it before reading the file list. `None`: the catalog is read-only, and VACUUM
    /// may remove files.
    pub async fn begin(catalog: &Catalog) -> Result<Option<Self>> {
        let name = reader_name();
        match catalog.register_writer(&name).await {
            Ok(true) => {}
            Ok(false) | Err(harrier_catalog::Error::ReadOnly(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let names = BTreeSet::from([name]);
        let (leased, to) = (names.clone(), catalog.clone());
        let renewal = tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL_INTERVAL).await;
                // A file removed meanwhile is detected when it is copied.
                if let Err(error) = to.renew_writers(&leased).await {
                    tracing::warn!(%error, "the catalog could not be told that files are still being copied");
                }
            }
        });
        Ok(Some(Self { catalog: catalog.clone(), names, renewal }))
    }

    pub async fn end(self) {
        self.renewal.abort();
        if let Err(error) = self.catalog.unregister_writers(&self.names).await {
            tracing::warn!(%error, "the catalog could not be told that files have been copied");
        }
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}
