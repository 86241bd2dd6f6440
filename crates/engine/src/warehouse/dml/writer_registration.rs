//! Registration of a transaction's writers in the catalog, so that VACUUM spares their files.

use std::collections::BTreeSet;
use std::time::Duration;

use datafusion::common::runtime::SpawnedTask;
use harrier_catalog::{Catalog, WRITER_SILENCE};

/// Renewal interval: several per timeout after which a writer is forgotten.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(WRITER_SILENCE.as_secs() / 4);

/// The writers of one transaction. Dropping it unregisters them: unless they were cleared by a commit, the
/// transaction was rolled back.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    names: BTreeSet<String>,
    heartbeat: Option<(Catalog, SpawnedTask<()>)>,
}

impl Writers {
    /// Registers a writer.
    ///
    /// Errors: the catalog cannot be written.
    pub(crate) async fn begin(&mut self, catalog: &Catalog, name: &str) -> harrier_catalog::Result<()> {
        if self.names.contains(name) || !catalog.register_writer(name).await? {
            return Ok(());
        }
        self.names.insert(name.to_string());
        let (names, to) = (self.names.clone(), catalog.clone());
        let renewal = SpawnedTask::spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL_INTERVAL).await;
                // The commit detects a late renewal.
                if let Err(error) = to.renew_writers(&names).await {
                    tracing::warn!(%error, "the catalog could not be told that a transaction still writes");
                }
            }
        });
        self.heartbeat = Some((catalog.clone(), renewal));
        Ok(())
    }

    /// The registered names, which the commit unregisters.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.names.clone()
    }

    /// To be called after the commit, which has unregistered them.
    pub(crate) fn clear(&mut self) {
        self.names.clear();
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        let names = std::mem::take(&mut self.names);
        let (Some((catalog, _)), false) = (self.heartbeat.take(), names.is_empty()) else {
            return;
        };
        // Otherwise they expire after the process has ended.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = catalog.unregister_writers(&names).await {
                    tracing::debug!(%error, "the catalog could not be told that a transaction was rolled back");
                }
            });
        }
    }
}
