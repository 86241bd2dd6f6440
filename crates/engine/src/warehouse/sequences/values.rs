//! The values that a session takes from sequences, and what it remembers of them.
//!
//! A sequence that the session's transaction has made or begun anew is taken from there: nobody else sees it.
//! Of others a range is taken from the catalog, for all rows of a batch at once, and it is committed before
//! one of its values is seen.

use std::sync::{Arc, PoisonError};

use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use harrier_catalog::Catalog;
use harrier_catalog::access::{Columns, Object, Privilege};
use harrier_catalog::sequences::{Sequence, SequenceValue};
use harrier_catalog::state::ObjectId;
use harrier_error::{SqlError, SqlState};

use crate::warehouse::access::denied;
use crate::warehouse::explain;
use crate::warehouse::sequences::error;
use crate::warehouse::sequences::session_values::Cached;
use crate::warehouse::session::WarehouseSession;
use crate::warehouse::snapshot::Sight;

/// How a call names its sequence.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Named {
    /// As SQL writes a name.
    Text(String),
    /// By the number that PostgreSQL's catalogs tell.
    Oid(i64),
    Uuid(String),
}

/// What a call does with its sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Next,
    Current,
    Set,
}

impl WarehouseSession {
    /// The sequence of this name, if the session may use it so.
    ///
    /// Errors: there is none (42P01); it is something else (42809); it may not be used (42501).
    pub(super) fn sequence(&self, named: &Named, what: Use) -> Result<(Sight, Arc<Sequence>)> {
        let sight = self.names.sight();
        let missing =
            |name: &str| error(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
        let Some(state) = sight.state.clone() else {
            return Err(missing(match named {
                Named::Text(name) | Named::Uuid(name) => name,
                Named::Oid(_) => "",
            }));
        };
        let mut sequences = state.sequences.values();
        let found = match named {
            Named::Uuid(uuid) => {
                let gone = || error(SqlState::UNDEFINED_TABLE, "the sequence of a column does not exist");
                let found = sequences.find(|sequence| sequence.uuid == *uuid).ok_or_else(gone)?;
                // Whoever may write to an identity column may have its next values, and be told of none
                // otherwise.
                if let Some(owner) = found.owner.filter(|owner| owner.is_identity && what == Use::Next) {
                    let table = Object::Table(owner.table);
                    let may = |privilege| sight.viewer.columns(table, privilege) != Columns::None;
                    if may(Privilege::Insert) || may(Privilege::Update) {
                        return Ok((sight.clone(), Arc::clone(found)));
                    }
                }
                Arc::clone(found)
            }
            Named::Oid(oid) => {
                let is_it = |id: ObjectId| i64::from(harrier_pgcatalog::oid(id)) == *oid;
                let found = sequences.find(|sequence| is_it(sequence.id));
                Arc::clone(found.ok_or_else(|| missing(&oid.to_string()))?)
            }
            Named::Text(text) => {
                let name = TableReference::parse_str(text);
                let Some(schema) = sight.schema(&self.names.schema_of(&name)) else {
                    return Err(match name.schema() {
                        Some(schema) => {
                            let message = format!("schema \"{schema}\" does not exist");
                            error(SqlState::INVALID_SCHEMA_NAME, message)
                        }
                        None => missing(text),
                    });
                };
                sight.viewer.check(Object::Schema(schema.id), Privilege::Usage, &state)?;
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
            Use::Next => &[Privilege::Usage, Privilege::Update],
            Use::Current => &[Privilege::Usage, Privilege::Select],
            Use::Set => &[Privilege::Update],
        };
        match privileges.iter().any(|privilege| sight.viewer.may(object, *privilege)) {
            true => Ok((sight, found)),
            false => Err(denied(&object.describe(&state))),
        }
    }

    /// Errors: the transaction is read-only (25006).
    pub(super) async fn check_may_take(&self, function: &str) -> Result<()> {
        match self.transactions.is_read_only().await {
            true => {
                let message = format!("cannot execute {function}() in a read-only transaction");
                Err(error(SqlState::READ_ONLY, message))
            }
            false => Ok(()),
        }
    }

    /// The next `count` values of a sequence.
    ///
    /// Errors: it has not as many (2200H); those before were given out then.
    pub(super) async fn next_values(&self, named: &Named, count: usize) -> Result<Vec<i64>> {
        let (sight, sequence) = self.sequence(named, Use::Next)?;
        let mut values = Vec::with_capacity(count);
        while values.len() < count {
            let wanted = (count - values.len()) as u64;
            let histories = sight.catalog.as_ref().map_or(0, Catalog::histories);
            let cached = self.sequences.0.lock().cached.remove(&sequence.uuid);
            let cached = match (cached, &sight.catalog) {
                // A catalog that was put back to an earlier state gives them to others.
                (Some(Cached { taken, histories }), Some(catalog)) => {
                    let is_given = catalog.is_allocated(sequence.id, &taken, histories).await;
                    is_given.map_err(explain)?.then_some(taken)
                }
                _ => None,
            };
            let taken = match (cached, sight.values.get(&sequence.id), &sight.catalog) {
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
            let used = taken.count.min(wanted);
            values.extend((0..used).map(|at| taken.value(at)));
            let mut remembered = self.sequences.0.lock();
            if let Some(taken) = taken.skip(used) {
                remembered.cached.insert(sequence.uuid.clone(), Cached { taken, histories });
            }
            remembered.last.insert(sequence.uuid.clone(), taken.value(used - 1));
            remembered.latest = Some(sequence.uuid.clone());
        }
        Ok(values)
    }

    /// The value that this session was given last of a sequence.
    ///
    /// Errors: it was given none (55000).
    pub(super) fn current_value(&self, named: &Named) -> Result<i64> {
        let (_, sequence) = self.sequence(named, Use::Current)?;
        let last = self.sequences.0.lock().last.get(&sequence.uuid).copied();
        last.ok_or_else(|| {
            let message =
                format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name);
            error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        })
    }

    /// The value that this session was given last of all.
    ///
    /// Errors: it was given none, or the sequence was dropped (55000).
    pub(super) fn last_value(&self) -> Result<i64> {
        let undefined = || {
            let message = "lastval is not yet defined in this session";
            harrier_sqlstate::external(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
        };
        let latest = self.sequences.0.lock().latest.clone().ok_or_else(undefined)?;
        let state = self.names.sight().state;
        if !state.is_some_and(|state| state.sequences.values().any(|sequence| sequence.uuid == latest)) {
            return Err(undefined());
        }
        self.current_value(&Named::Uuid(latest))
    }

    /// Says where a sequence is, at once and whatever becomes of the transaction.
    ///
    /// Errors: the value is out of its bounds (22003).
    pub(super) async fn set_value(&self, named: &Named, last: i64, is_called: bool) -> Result<i64> {
        let (sight, sequence) = self.sequence(named, Use::Set)?;
        let value = SequenceValue { last, is_called };
        match (sight.values.get(&sequence.id), &sight.catalog) {
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
