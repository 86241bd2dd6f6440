//! Allocation of sequence values for a session.
//!
//! A sequence that the session's transaction has created or restarted is advanced in the transaction, since
//! no other session sees it. For others a range is allocated in the catalog, for all rows of a batch at once,
//! and committed before any of its values is used.

use std::sync::{Arc, PoisonError};

use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use harrier_catalog::Catalog;
use harrier_catalog::access::{Columns, Object, Privilege};
use harrier_catalog::sequences::{Sequence, SequenceValue};
use harrier_catalog::state::ObjectId;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::error;

use crate::warehouse::access::permission_denied;
use crate::warehouse::explain;
use crate::warehouse::sequences::session_values::CachedRange;
use crate::warehouse::session::WarehouseSession;
use crate::warehouse::snapshot::StatementSnapshot;

/// The sequence argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SequenceName {
    /// A name as written in SQL.
    Text(String),
    /// The oid in PostgreSQL's catalogs.
    Oid(i64),
    Uuid(String),
}

/// The operation of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SequenceUse {
    Next,
    Current,
    Set,
}

impl WarehouseSession {
    /// Looks up a sequence and checks the privilege for `what`.
    ///
    /// Errors: no such sequence (42P01); not a sequence (42809); no privilege (42501).
    pub(super) fn sequence(
        &self,
        named: &SequenceName,
        what: SequenceUse,
    ) -> Result<(StatementSnapshot, Arc<Sequence>)> {
        let snapshot = self.names.snapshot();
        let missing =
            |name: &str| error(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
        let Some(state) = snapshot.state.clone() else {
            return Err(missing(match named {
                SequenceName::Text(name) | SequenceName::Uuid(name) => name,
                SequenceName::Oid(_) => "",
            }));
        };
        let mut sequences = state.sequences.values();
        let found = match named {
            SequenceName::Uuid(uuid) => {
                let gone = || error(SqlState::UNDEFINED_TABLE, "the sequence of a column does not exist");
                let found = sequences.find(|sequence| sequence.uuid == *uuid).ok_or_else(gone)?;
                // A role that may write to an identity column may take its next values without a privilege on
                // the sequence.
                if let Some(owner) =
                    found.owner.filter(|owner| owner.is_identity && what == SequenceUse::Next)
                {
                    let table = Object::Table(owner.table);
                    let may = |privilege| snapshot.viewer.columns(table, privilege) != Columns::None;
                    if may(Privilege::Insert) || may(Privilege::Update) {
                        return Ok((snapshot.clone(), Arc::clone(found)));
                    }
                }
                Arc::clone(found)
            }
            SequenceName::Oid(oid) => {
                let is_it = |id: ObjectId| i64::from(harrier_pgcatalog::oid(id)) == *oid;
                let found = sequences.find(|sequence| is_it(sequence.id));
                Arc::clone(found.ok_or_else(|| missing(&oid.to_string()))?)
            }
            SequenceName::Text(text) => {
                let name = TableReference::parse_str(text);
                let Some(schema) = snapshot.schema(&self.names.schema_of(&name)) else {
                    return Err(match name.schema() {
                        Some(schema) => {
                            let message = format!("schema \"{schema}\" does not exist");
                            error(SqlState::INVALID_SCHEMA_NAME, message)
                        }
                        None => missing(text),
                    });
                };
                snapshot.viewer.check(Object::Schema(schema.id), Privilege::Usage, &state)?;
                match state.sequence(schema.id, name.table()) {
                    Some(found) => Arc::clone(found),
                    None if state.has_relation(schema.id, name.table()) => {
                        let message = format!("\"{}\" is not a sequence", name.table());
                        return Err(error(SqlState::WRONG_OBJECT_TYPE, message));
                    }
                    None => return Err(missing(text)),
                }
            }
        };
        let object = Object::Sequence(found.id);
        let privileges: &[Privilege] = match what {
            SequenceUse::Next => &[Privilege::Usage, Privilege::Update],
            SequenceUse::Current => &[Privilege::Usage, Privilege::Select],
            SequenceUse::Set => &[Privilege::Update],
        };
        match privileges.iter().any(|privilege| snapshot.viewer.may(object, *privilege)) {
            true => Ok((snapshot, found)),
            false => Err(permission_denied(&object.describe(&state))),
        }
    }

    /// Errors: the transaction is read-only (25006).
    pub(super) async fn check_can_write(&self, function: &str) -> Result<()> {
        match self.transactions.is_read_only().await {
            true => {
                let message = format!("cannot execute {function}() in a read-only transaction");
                Err(error(SqlState::READ_ONLY, message))
            }
            false => Ok(()),
        }
    }

    /// Allocates the next `count` values of a sequence.
    ///
    /// Errors: the sequence is exhausted (2200H); values allocated before that are lost.
    pub(super) async fn next_values(&self, named: &SequenceName, count: usize) -> Result<Vec<i64>> {
        let (snapshot, sequence) = self.sequence(named, SequenceUse::Next)?;
        let mut values = Vec::with_capacity(count);
        while values.len() < count {
            let wanted = (count - values.len()) as u64;
            let histories = snapshot.catalog.as_ref().map_or(0, Catalog::histories);
            let cached = self.sequences.0.lock().cached.remove(&sequence.uuid);
            let cached = match (cached, &snapshot.catalog) {
                // A catalog restored to an earlier state allocates them again.
                (Some(CachedRange { range, histories }), Some(catalog)) => {
                    let is_allocated = catalog.is_allocated(sequence.id, &range, histories).await;
                    is_allocated.map_err(explain)?.then_some(range)
                }
                _ => None,
            };
            let range = match (cached, snapshot.values.get(&sequence.id), &snapshot.catalog) {
                (_, Some(own), _) => {
                    let mut own = own.lock().unwrap_or_else(PoisonError::into_inner);
                    sequence.allocate(&mut own, wanted).map_err(explain)?
                }
                (Some(cached), ..) => cached,
                (None, None, Some(catalog)) => {
                    let cache = u64::try_from(sequence.cache).unwrap_or(1);
                    catalog.allocate_values(sequence.id, wanted.max(cache)).await.map_err(explain)?
                }
                (None, None, None) => return Err(DataFusionError::Internal("no warehouse".to_string())),
            };
            let used = range.count.min(wanted);
            values.extend((0..used).map(|at| range.value(at)));
            let mut remembered = self.sequences.0.lock();
            if let Some(range) = range.skip(used) {
                remembered.cached.insert(sequence.uuid.clone(), CachedRange { range, histories });
            }
            remembered.last.insert(sequence.uuid.clone(), range.value(used - 1));
            remembered.latest = Some(sequence.uuid.clone());
        }
        Ok(values)
    }

    /// The last value that this session took from a sequence.
    ///
    /// Errors: none yet (55000).
    pub(super) fn current_value(&self, named: &SequenceName) -> Result<i64> {
        let (_, sequence) = self.sequence(named, SequenceUse::Current)?;
        let last = self.sequences.0.lock().last.get(&sequence.uuid).copied();
        last.ok_or_else(|| {
            let message =
                format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name);
            error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        })
    }

    /// The last value that this session took from any sequence.
    ///
    /// Errors: none yet, or the sequence was dropped (55000).
    pub(super) fn last_value(&self) -> Result<i64> {
        let undefined = || {
            let message = "lastval is not yet defined in this session";
            harrier_sqlstate::external(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
        };
        let latest = self.sequences.0.lock().latest.clone().ok_or_else(undefined)?;
        let state = self.names.snapshot().state;
        if !state.is_some_and(|state| state.sequences.values().any(|sequence| sequence.uuid == latest)) {
            return Err(undefined());
        }
        self.current_value(&SequenceName::Uuid(latest))
    }

    /// Sets a sequence's value. Effective immediately, and not undone by a rollback.
    ///
    /// Errors: the value is out of bounds (22003).
    pub(super) async fn set_value(&self, named: &SequenceName, last: i64, is_called: bool) -> Result<i64> {
        let (snapshot, sequence) = self.sequence(named, SequenceUse::Set)?;
        let value = SequenceValue { last, is_called };
        match (snapshot.values.get(&sequence.id), &snapshot.catalog) {
            (Some(own), _) => {
                sequence.check(last).map_err(explain)?;
                *own.lock().unwrap_or_else(PoisonError::into_inner) = value;
            }
            (None, Some(catalog)) => catalog.set_value(sequence.id, value).await.map_err(explain)?,
            (None, None) => return Err(DataFusionError::Internal("no warehouse".to_string())),
        }
        let mut remembered = self.sequences.0.lock();
        remembered.cached.remove(&sequence.uuid);
        if is_called {
            remembered.last.insert(sequence.uuid.clone(), last);
        }
        Ok(last)
    }
}
