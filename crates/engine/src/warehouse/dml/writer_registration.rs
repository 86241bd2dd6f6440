//! Keeps the catalog told that a transaction is writing files, so that VACUUM leaves them alone.

use std::collections::BTreeSet;
use std::time::Duration;

use datafusion::common::runtime::SpawnedTask;
use harrier_catalog::{Catalog, WRITER_SILENCE};

/// Several times within the time after which a writer is forgotten.
const PAUSE: Duration = Duration::from_secs(WRITER_SILENCE.as_secs() / 4);

/// What one transaction writes under. Dropped, it has the catalog forget them: unless they were taken out for
/// a commit, the transaction was rolled back.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    known: BTreeSet<String>,
    told: Option<(Catalog, SpawnedTask<()>)>,
}

impl Writers {
    /// Makes one more known.
    ///
    /// Errors: the catalog cannot be written.
    pub(crate) async fn begin(&mut self, catalog: &Catalog, name: &str) -> harrier_catalog::Result<()> {
        if self.known.contains(name) || !catalog.register_writer(name).await? {
            return Ok(());
        }
        self.known.insert(name.to_string());
        let (names, to) = (self.known.clone(), catalog.clone());
        let telling = SpawnedTask::spawn(async move {
            loop {
                tokio::time::sleep(PAUSE).await;
                // The commit finds out whether it was too late.
                if let Err(error) = to.renew_writers(&names).await {
                    tracing::warn!(%error, "the catalog could not be told that a transaction still writes");
                }
            }
        });
        self.told = Some((catalog.clone(), telling));
        Ok(())
    }

    /// Those that are known, for the commit to end.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.known.clone()
    }

    /// To be called when they were committed.
    pub(crate) fn committed(&mut self) {
        self.known.clear();
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        let names = std::mem::take(&mut self.known);
        let (Some((catalog, _)), false) = (self.told.take(), names.is_empty()) else {
            return;
        };
        // If this is never done, they are forgotten when the process has ended.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = catalog.unregister_writers(&names).await {
                    tracing::debug!(%error, "the catalog could not be told that a transaction was rolled back");
                }
            });
        }
    }
}
