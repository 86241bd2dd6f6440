//! Sequences: their definition, their storage in the catalog, and the allocation of value ranges.
//!
//! DuckLake has no tables for them: they are in two tables of Harrier's own, created with the first sequence.
//! A sequence's definition is transactional and versioned by snapshots like a view's. Its next value is not:
//! it is advanced in a separate database transaction, immediately and durably, so that a rollback leaves a
//! gap.
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
use std::sync::{Arc, Mutex, PoisonError};

use harrier_error::{SqlError, SqlState};

use crate::catalog::Catalog;
use crate::database::retry::retry_if_lost;
use crate::database::{Dialect, Row, Session, optional, text, visible};
use crate::error::{Error, Result};
use crate::model::state::{ColumnId, ObjectId, SnapshotId, State};
use crate::model::transaction::Transaction;

const SEQUENCE: &str = "harrier_sequence";
const VALUE: &str = "harrier_sequence_value";

/// The tables with their columns.
pub(crate) const TABLES: [(&str, &str); 2] = [(SEQUENCE, SEQUENCE_TABLE), (VALUE, VALUE_TABLE)];

const SEQUENCE_COLUMNS: &str = "sequence_id, sequence_uuid, schema_id, sequence_name, data_type, start_value, increment_by, min_value, \
     max_value, cache_size, is_cycled, table_id, column_id, is_identity";
const SEQUENCE_TABLE: &str = "sequence_id BIGINT NOT NULL, sequence_uuid VARCHAR NOT NULL, begin_snapshot BIGINT NOT NULL, \
     end_snapshot BIGINT, schema_id BIGINT NOT NULL, sequence_name VARCHAR NOT NULL, data_type VARCHAR NOT NULL, \
     start_value BIGINT NOT NULL, increment_by BIGINT NOT NULL, min_value BIGINT NOT NULL, max_value BIGINT NOT NULL, \
     cache_size BIGINT NOT NULL, is_cycled BIGINT NOT NULL, table_id BIGINT, column_id BIGINT, is_identity BIGINT NOT NULL";
const VALUE_TABLE: &str =
    "sequence_id BIGINT PRIMARY KEY, last_value BIGINT NOT NULL, is_called BIGINT NOT NULL";

/// The data type of a sequence's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceType {
    SmallInt,
    Integer,
    BigInt,
}

impl SequenceType {
    const ALL: [Self; 3] = [Self::SmallInt, Self::Integer, Self::BigInt];

    /// PostgreSQL's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SmallInt => "smallint",
            Self::Integer => "integer",
            Self::BigInt => "bigint",
        }
    }

    /// The minimum and maximum value.
    pub fn bounds(self) -> (i64, i64) {
        match self {
            Self::SmallInt => (i16::MIN.into(), i16::MAX.into()),
            Self::Integer => (i32::MIN.into(), i32::MAX.into()),
            Self::BigInt => (i64::MIN, i64::MAX),
        }
    }
}

/// The definition of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    pub id: ObjectId,
    pub uuid: String,
    pub schema: ObjectId,
    pub name: String,
    pub kind: SequenceType,
    pub start: i64,
    /// Never 0.
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    /// Minimum number of values that a session allocates at once; from 1.
    pub cache: i64,
    pub cycles: bool,
    pub owner: Option<SequenceOwner>,
    pub comment: Option<String>,
}

/// The column that owns a sequence: the sequence is dropped with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceOwner {
    pub table: ObjectId,
    pub column: ColumnId,
    /// It belongs to an identity column, and cannot be altered or dropped by itself.
    pub is_identity: bool,
}

/// The current value of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceValue {
    pub last: i64,
    /// Whether `last` was returned: if not, it is the next one.
    pub is_called: bool,
}

/// The value of an uncommitted sequence. Shared by clones: rolling back to a savepoint returns no values.
pub type UncommittedValue = Arc<Mutex<SequenceValue>>;

/// An allocated range: `first`, `first + increment`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRange {
    pub first: i64,
    pub increment: i64,
    /// At least 1.
    pub count: u64,
}

impl ValueRange {
    /// The value at this index, from 0, which is below `count`.
    pub fn value(&self, at: u64) -> i64 {
        (i128::from(self.first) + i128::from(self.increment) * i128::from(at)) as i64
    }

    /// The rest after the first `count` values; `None` if there are none.
    pub fn skip(&self, count: u64) -> Option<Self> {
        (count < self.count).then(|| Self { first: self.value(count), count: self.count - count, ..*self })
    }
}

impl Sequence {
    /// Its start value.
    pub fn start_value(&self) -> SequenceValue {
        SequenceValue { last: self.start, is_called: false }
    }

    /// Allocates up to `wanted` values, fewer at its end.
    ///
    /// Errors: there is none left (2200H).
    pub fn allocate(&self, value: &mut SequenceValue, wanted: u64) -> Result<ValueRange> {
        let (increment, min, max) = (i128::from(self.increment), i128::from(self.min), i128::from(self.max));
        let ascends = increment > 0;
        let mut next = i128::from(value.last) + if value.is_called { increment } else { 0 };
        if (ascends && next > max) || (!ascends && next < min) {
            if !self.cycles {
                let (which, bound) = if ascends { ("maximum", max) } else { ("minimum", min) };
                let message =
                    format!("nextval: reached {which} value of sequence \"{}\" ({bound})", self.name);
                return Err(Error::Refused(Box::new(SqlError::new(
                    SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
                    message,
                ))));
            }
            next = if ascends { min } else { max };
        }
        let room = if ascends { (max - next) / increment } else { (next - min) / -increment };
        let count = i128::from(wanted.max(1)).min(room + 1);
        // Both are within the bounds, or between them and the set value.
        *value = SequenceValue { last: (next + increment * (count - 1)) as i64, is_called: true };
        Ok(ValueRange { first: next as i64, increment: self.increment, count: count as u64 })
    }
}

/// A shared value of an uncommitted sequence.
pub fn uncommitted_value(value: SequenceValue) -> UncommittedValue {
    Arc::new(Mutex::new(value))
}

/// Its current value.
pub fn get(value: &UncommittedValue) -> SequenceValue {
    *value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sequence(row: &Row) -> Result<Sequence> {
    let kind = row.text(4)?;
    let kind = SequenceType::ALL.into_iter().find(|known| known.name() == kind).ok_or_else(|| {
        Error::Unsupported(format!(
            "the catalog has a sequence of type \"{kind}\", which this version of Harrier does not know"
        ))
    })?;
    let owner = match (row.optional_integer(11)?, row.optional_integer(12)?) {
        (Some(table), Some(column)) => Some(SequenceOwner { table, column, is_identity: row.flag(13)? }),
        _ => None,
    };
    let sequence = Sequence {
        id: row.integer(0)?,
        uuid: row.text(1)?,
        schema: row.integer(2)?,
        name: row.text(3)?,
        kind,
        start: row.integer(5)?,
        increment: row.integer(6)?,
        min: row.integer(7)?,
        max: row.integer(8)?,
        cache: row.integer(9)?,
        cycles: row.flag(10)?,
        owner,
        comment: None,
    };
    match sequence.increment {
        0 => Err(Error::Corrupt(format!("sequence \"{}\" has increment 0", sequence.name))),
        _ => Ok(sequence),
    }
}

/// The sequences visible at a snapshot, without comments. A sequence whose table or column was dropped by
/// another program is gone with it.
pub(crate) async fn load(
    session: &mut Session,
    snapshot: SnapshotId,
    state: &State,
) -> Result<Vec<Sequence>> {
    if !session.has_table(SEQUENCE).await? {
        return Ok(Vec::new());
    }
    let visible = visible("", snapshot);
    let rows = session.query(format!("SELECT {SEQUENCE_COLUMNS} FROM {SEQUENCE} WHERE {visible}")).await?;
    let mut sequences = rows.iter().map(sequence).collect::<Result<Vec<_>>>()?;
    sequences.retain(|sequence| {
        let is_owned = sequence.owner.is_none_or(|owner| match state.tables.get(&owner.table) {
            Some(table) => table.columns.iter().any(|column| column.id == owner.column),
            None => state.unusable.contains_key(&owner.table),
        });
        is_owned && state.schemas.contains_key(&sequence.schema)
    });
    Ok(sequences)
}

/// Every sequence in some snapshot.
pub(crate) async fn ids(session: &mut Session) -> Result<Vec<ObjectId>> {
    if !session.has_table(SEQUENCE).await? {
        return Ok(Vec::new());
    }
    let rows = session.query(format!("SELECT DISTINCT sequence_id FROM {SEQUENCE}")).await?;
    rows.iter().map(|row| row.integer(0)).collect()
}

/// Current sequences: id, schema, name, and the snapshot in which its current row began.
pub(crate) async fn live(session: &mut Session) -> Result<Vec<(ObjectId, ObjectId, String, SnapshotId)>> {
    if !session.has_table(SEQUENCE).await? {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT sequence_id, schema_id, sequence_name, begin_snapshot FROM {SEQUENCE} s WHERE end_snapshot IS NULL \
         AND (table_id IS NULL OR EXISTS (SELECT 1 FROM ducklake_table t WHERE t.table_id = s.table_id \
         AND t.end_snapshot IS NULL))"
    );
    let rows = session.query(sql).await?;
    rows.iter().map(|row| Ok((row.integer(0)?, row.integer(1)?, row.text(2)?, row.integer(3)?))).collect()
}

/// The statements of a commit for the transaction's changes of sequences. `real`: maps an object's id to its
/// final one.
pub(crate) async fn changes(
    session: &mut Session,
    transaction: &Transaction,
    snapshot: SnapshotId,
    real: &(dyn Fn(ObjectId) -> ObjectId + Sync),
) -> Result<Vec<String>> {
    let (base, own) = (&transaction.base.sequences, &transaction.state.sequences);
    let mut statements = Vec::new();
    let is_same = |before: &Sequence, after: &Sequence| {
        *before == Sequence { comment: before.comment.clone(), ..after.clone() }
    };
    let end = |id: ObjectId, statements: &mut Vec<String>| {
        statements.push(format!(
            "UPDATE {SEQUENCE} SET end_snapshot = {snapshot} WHERE sequence_id = {id} AND end_snapshot IS NULL"
        ));
    };
    for id in base.keys().filter(|id| !own.contains_key(id)) {
        end(*id, &mut statements);
    }
    for (id, sequence) in own {
        let before = base.get(id);
        if before.is_some_and(|before| is_same(before, sequence)) {
            continue;
        }
        if before.is_some() {
            end(*id, &mut statements);
        }
        let (table, column) = sequence.owner.map(|owner| (real(owner.table), owner.column)).unzip();
        statements.push(format!(
            "INSERT INTO {SEQUENCE} ({SEQUENCE_COLUMNS}, begin_snapshot) VALUES ({}, {}, {}, {}, '{}', {}, {}, {}, {}, {}, {}, \
             {}, {}, {}, {snapshot})",
            real(*id),
            text(&sequence.uuid)?,
            real(sequence.schema),
            text(&sequence.name)?,
            sequence.kind.name(),
            sequence.start,
            sequence.increment,
            sequence.min,
            sequence.max,
            sequence.cache,
            i64::from(sequence.cycles),
            optional(table),
            optional(column),
            i64::from(sequence.owner.is_some_and(|owner| owner.is_identity))
        ));
    }
    for (id, value) in transaction.values.iter().filter(|(id, _)| own.contains_key(id)) {
        let (id, SequenceValue { last, is_called }) = (real(*id), get(value));
        statements.push(format!(
            "INSERT INTO {VALUE} (sequence_id, last_value, is_called) VALUES ({id}, {last}, {}) \
             ON CONFLICT (sequence_id) DO UPDATE SET last_value = excluded.last_value, is_called = excluded.is_called",
            i64::from(is_called)
        ));
    }
    if !statements.is_empty() && !session.has_table(SEQUENCE).await? {
        let made = TABLES.map(|(table, columns)| format!("CREATE TABLE {table} ({columns})"));
        statements.splice(0..0, made);
    }
    Ok(statements)
}

/// The statements that remove sequences that no snapshot can see.
pub(crate) async fn sweep(
    session: &mut Session,
    unseen: &(dyn Fn(&str) -> String + Sync),
) -> Result<Vec<String>> {
    if !session.has_table(SEQUENCE).await? {
        return Ok(Vec::new());
    }
    Ok(vec![
        format!("DELETE FROM {SEQUENCE} WHERE {}", unseen(SEQUENCE)),
        format!("DELETE FROM {VALUE} WHERE sequence_id NOT IN (SELECT sequence_id FROM {SEQUENCE})"),
    ])
}

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
        let read = || async {
            let mut session = self.inner.database.read().await?;
            if !session.has_table(VALUE).await? {
                return Ok(false);
            }
            let sql = format!("SELECT last_value, is_called FROM {VALUE} WHERE sequence_id = {sequence}");
            match session.query(sql).await?.first() {
                Some(row) if row.flag(1)? => match taken.increment > 0 {
                    true => Ok(row.integer(0)? >= last),
                    false => Ok(row.integer(0)? <= last),
                },
                _ => Ok(false),
            }
        };
        retry_if_lost(read).await
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
        let read = || async {
            let mut session = self.inner.database.read().await?;
            if !session.has_table(VALUE).await? {
                return Ok(BTreeMap::new());
            }
            let rows =
                session.query(format!("SELECT sequence_id, last_value, is_called FROM {VALUE}")).await?;
            let value = |row: &Row| {
                Ok((row.integer(0)?, SequenceValue { last: row.integer(1)?, is_called: row.flag(2)? }))
            };
            rows.iter().map(value).collect()
        };
        retry_if_lost(read).await
    }
}

impl Sequence {
    /// Errors: the value is out of the bounds (22003).
    pub fn check(&self, value: i64) -> Result<()> {
        if (self.min..=self.max).contains(&value) {
            return Ok(());
        }
        let message = format!(
            "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
            self.name, self.min, self.max
        );
        Err(Error::Refused(Box::new(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message))))
    }
}

/// A sequence and its value, locked until the database transaction ends.
async fn load_locked(session: &mut Session, id: ObjectId) -> Result<(Sequence, SequenceValue)> {
    let gone =
        || Error::Refused(Box::new(SqlError::new(SqlState::UNDEFINED_TABLE, "the sequence was dropped")));
    if !session.has_table(SEQUENCE).await? {
        return Err(gone());
    }
    let lock = if session.dialect() == Dialect::Postgres { " FOR UPDATE" } else { "" };
    let value = format!("SELECT last_value, is_called FROM {VALUE} WHERE sequence_id = {id}{lock}");
    let value = session.query(value).await?;
    let rule = format!(
        "SELECT {SEQUENCE_COLUMNS} FROM {SEQUENCE} WHERE sequence_id = {id} AND end_snapshot IS NULL"
    );
    let rule = session.query(rule).await?;
    let (Some(rule), Some(value)) = (rule.first(), value.first()) else { return Err(gone()) };
    Ok((sequence(rule)?, SequenceValue { last: value.integer(0)?, is_called: value.flag(1)? }))
}

async fn store_value(session: &mut Session, id: ObjectId, value: SequenceValue) -> Result<()> {
    let SequenceValue { last, is_called } = value;
    let is_called = i64::from(is_called);
    let sql =
        format!("UPDATE {VALUE} SET last_value = {last}, is_called = {is_called} WHERE sequence_id = {id}");
    session.execute(sql).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(increment: i64, min: i64, max: i64, cycles: bool) -> Sequence {
        let start = if increment > 0 { min } else { max };
        Sequence {
            id: 1,
            uuid: String::new(),
            schema: 0,
            name: "s".to_string(),
            kind: SequenceType::BigInt,
            start,
            increment,
            min,
            max,
            cache: 1,
            cycles,
            owner: None,
            comment: None,
        }
    }

    fn allocations(sequence: &Sequence, wanted: &[u64]) -> Vec<Vec<i64>> {
        let mut value = sequence.start_value();
        let take = |wanted: &u64| match sequence.allocate(&mut value, *wanted) {
            Ok(taken) => (0..taken.count).map(|at| taken.value(at)).collect(),
            Err(_) => vec![],
        };
        wanted.iter().map(take).collect()
    }

    #[test]
    fn ranges_end_at_the_bounds() {
        assert_eq!(
            allocations(&sequence(1, 1, 5, false), &[2, 1, 5, 1]),
            [vec![1, 2], vec![3], vec![4, 5], vec![]]
        );
        assert_eq!(allocations(&sequence(1, 1, 3, true), &[2, 2, 2]), [vec![1, 2], vec![3], vec![1, 2]]);
        assert_eq!(allocations(&sequence(-2, -5, 0, false), &[2, 2, 1]), [vec![0, -2], vec![-4], vec![]]);
        assert_eq!(allocations(&sequence(10, 1, 25, true), &[9, 9]), [vec![1, 11, 21], vec![1, 11, 21]]);
        let whole = sequence(i64::MAX, i64::MIN, i64::MAX, false);
        assert_eq!(allocations(&whole, &[9, 1]), [vec![i64::MIN, -1, i64::MAX - 1], vec![]]);
    }
}
