//! Values of sequences: ranges of them are allocated, and they are set.
//!
//! A sequence's definition is part of a state, and changed by transactions. Its next value is not: it is
//! advanced in a separate database transaction, immediately and durably, so that a rollback leaves a gap.
//!
//! ```text
//!   CREATE, ALTER, DROP ─► State::sequences ─► commit                            harrier_sequence
//!   nextval ─► Catalog::allocate_values ─► a range, committed before it is used  harrier_sequence_value
//!   nextval of an uncommitted sequence ─► Transaction::values ─► commit
//! ```
//!
//! # Invariants
//! - No two ranges of one sequence overlap, whichever process allocates them, unless it cycles or its value
//!   is set.
//! - A process that may not commit allocates none.
//!
//! # Crash
//! A range whose commit was not acknowledged is lost.

use std::collections::BTreeMap;

use crate::catalog::Catalog;
use crate::database::retry::retry_if_lost;
use crate::error::{Error, Result};
use crate::layout::sequences::{load_locked, load_value, load_values, store_value};
use crate::model::ids::ObjectId;
use crate::model::sequences::{SequenceValue, ValueRange};

impl Catalog {
    /// Allocates up to `wanted` values of a sequence, immediately and durably; fewer at its end or where it
    /// cycles.
    ///
    /// Errors: it has none left (2200H); it was dropped (42P01); this process may not write.
    pub async fn allocate_values(&self, sequence: ObjectId, wanted: u64) -> Result<ValueRange> {
        // A range whose allocation was not acknowledged is a gap.
        retry_if_lost(|| async {
            let mut session = self.inner.database.begin_in_term().await?;
            let outcome = async {
                let (rule, mut value) = load_locked(&mut session, sequence).await?;
                let taken = rule.allocate(&mut value, wanted)?;
                store_value(&mut session, sequence, value).await?;
                Ok(taken)
            };
            match outcome.await {
                Ok(taken) => session.commit().await.map_err(Error::Database).map(|()| taken),
                Err(error) => {
                    session.rollback().await;
                    Err(error)
                }
            }
        })
        .await
    }

    /// Whether values that this process allocated when [`Catalog::histories`] was `histories` are still
    /// allocated in the catalog: it may have been restored to an earlier state, and would return them again.
    pub async fn is_allocated(&self, sequence: ObjectId, taken: &ValueRange, histories: u64) -> Result<bool> {
        // Detects a change of history.
        self.head().await?;
        if self.histories() != histories {
            return Ok(false);
        }
        let last = taken.value(taken.count.saturating_sub(1));
        let read = || async { load_value(&mut self.inner.database.read().await?, sequence).await };
        let now = retry_if_lost(read).await?.filter(|now| now.is_called);
        Ok(now.is_some_and(|now| if taken.increment > 0 { now.last >= last } else { now.last <= last }))
    }

    /// Sets the value of a sequence, immediately and durably.
    ///
    /// Errors: the value is out of its bounds (22003); it was dropped (42P01); this process may not write.
    pub async fn set_value(&self, sequence: ObjectId, value: SequenceValue) -> Result<()> {
        retry_if_lost(|| async {
            let mut session = self.inner.database.begin_in_term().await?;
            let outcome = async {
                let (rule, _) = load_locked(&mut session, sequence).await?;
                rule.check(value.last)?;
                store_value(&mut session, sequence, value).await
            };
            match outcome.await {
                Ok(()) => session.commit().await.map_err(Error::Database),
                Err(error) => {
                    session.rollback().await;
                    Err(error)
                }
            }
        })
        .await
    }

    /// Current values of all sequences.
    pub async fn sequence_values(&self) -> Result<BTreeMap<ObjectId, SequenceValue>> {
        let read = || async { load_values(&mut self.inner.database.read().await?).await };
        retry_if_lost(read).await
    }
}
