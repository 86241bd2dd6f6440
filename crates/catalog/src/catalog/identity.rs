//! The identity of the warehouse that a catalog has, and where the catalog is.

use crate::catalog::Catalog;
use crate::database::retry::retry_if_lost;
use crate::error::Result;
use crate::layout::identity;
use crate::model::identity::{Identity, Place};

impl Catalog {
    /// The catalog's current location.
    pub async fn place(&self) -> Result<Place> {
        retry_if_lost(|| self.inner.database.place()).await
    }

    /// The warehouse's identity; `None` for a catalog of an earlier version that no files have been written
    /// into since.
    pub async fn identity(&self) -> Result<Option<Identity>> {
        retry_if_lost(|| async { identity::load(&mut self.inner.database.read().await?).await }).await
    }

    /// Replaces an identity and the data path, which ends in `/`, unless another program has replaced it
    /// since `before` was read. Returns the resulting one.
    pub async fn set_identity(
        &self,
        before: Option<&Identity>,
        after: &Identity,
        data_path: &str,
    ) -> Result<Identity> {
        retry_if_lost(|| async {
            let mut session = self.inner.database.write().await?;
            let now = identity::load(&mut session).await?;
            if let Some(now) = now.filter(|now| Some(now) != before) {
                return Ok(now);
            }
            identity::store(&mut session, after, data_path).await?;
            session.commit().await?;
            tracing::info!(
                id = after.id,
                place = after.place,
                data_path,
                "the warehouse is known by its identity"
            );
            Ok(after.clone())
        })
        .await
    }
}
