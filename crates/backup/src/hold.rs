//! Keeps the catalog told that files of a snapshot are being read, so that VACUUM leaves those alone that
//! expire meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use harrier_catalog::{Catalog, WRITER_SILENCE, reader_name};
use tokio::task::JoinHandle;

use crate::Result;

/// Several times within the time after which one is forgotten.
const PAUSE: Duration = Duration::from_secs(WRITER_SILENCE.as_secs() / 4);

/// Told until it is ended. One that is dropped is forgotten when its process has ended, or after
/// [`WRITER_SILENCE`].
pub(crate) struct Hold {
    catalog: Catalog,
    names: BTreeSet<String>,
    telling: JoinHandle<()>,
}

impl Hold {
    /// To be called before the catalog is asked for the files. `None`: the catalog can only be read, and
    /// VACUUM may take files away.
    pub async fn begin(catalog: &Catalog) -> Result<Option<Self>> {
        let name = reader_name();
        match catalog.begin_writing(&name).await {
            Ok(true) => {}
            Ok(false) | Err(harrier_catalog::Error::ReadOnly(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let names = BTreeSet::from([name]);
        let (told, to) = (names.clone(), catalog.clone());
        let telling = tokio::spawn(async move {
            loop {
                tokio::time::sleep(PAUSE).await;
                // A file that is taken away is missed when it is copied.
                if let Err(error) = to.keep_writing(&told).await {
                    tracing::warn!(%error, "the catalog could not be told that files are still being copied");
                }
            }
        });
        Ok(Some(Self { catalog: catalog.clone(), names, telling }))
    }

    pub async fn end(self) {
        self.telling.abort();
        if let Err(error) = self.catalog.end_writing(&self.names).await {
            tracing::warn!(%error, "the catalog could not be told that files have been copied");
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.telling.abort();
    }
}
