//! Column versions of a table: the snapshots at which its columns changed.

use std::sync::Arc;

use crate::catalog::Catalog;
use crate::error::Result;
use crate::model::ids::{ObjectId, SnapshotId};

impl Catalog {
    /// The snapshots at which the columns of a table changed, ascending. Files written between two of them
    /// have the same columns. `snapshot`: the last one needed.
    pub async fn column_versions(&self, table: ObjectId, snapshot: SnapshotId) -> Result<Vec<SnapshotId>> {
        if let Some(known) = self.inner.cache.versions.get(&(table, snapshot)) {
            return Ok(Vec::clone(&known));
        }
        let generation = self.inner.history.generation();
        let rows = self
            .inner
            .database
            .query(format!(
                "SELECT begin_snapshot FROM ducklake_column WHERE table_id = {table} \
                 UNION SELECT end_snapshot FROM ducklake_column WHERE table_id = {table} AND end_snapshot IS NOT NULL \
                 ORDER BY 1"
            ))
            .await?;
        let versions: Vec<SnapshotId> = rows.iter().map(|row| row.integer(0)).collect::<Result<_>>()?;
        if self.inner.history.generation() == generation {
            self.inner.cache.versions.put((table, snapshot), Arc::new(versions.clone()));
        }
        Ok(versions)
    }
}
