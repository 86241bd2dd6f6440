//! The two tables of sequences, which are Harrier's own, created with the first sequence: DuckLake has none.
//!
//! A sequence's definition is transactional and versioned by snapshots like a view's. Its next value is not:
//! it is advanced in a separate database transaction (`catalog/sequences.rs`).

use std::collections::BTreeMap;

use harrier_error::{SqlError, SqlState};

use crate::database::session::{Row, Session};
use crate::database::sql::{Dialect, optional, text, visible};
use crate::error::{Error, Result};
use crate::model::ids::{ObjectId, SnapshotId};
use crate::model::sequences::{Sequence, SequenceOwner, SequenceType, SequenceValue, get};
use crate::model::state::State;
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

fn sequence(row: &Row) -> Result<Sequence> {
    let kind = row.text(4)?;
    let kind = SequenceType::of_name(&kind).ok_or_else(|| {
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

fn value(row: &Row, at: usize) -> Result<SequenceValue> {
    Ok(SequenceValue { last: row.integer(at)?, is_called: row.flag(at + 1)? })
}

/// The value of a sequence; `None` for one that was never committed, or was dropped.
pub(crate) async fn load_value(session: &mut Session, id: ObjectId) -> Result<Option<SequenceValue>> {
    if !session.has_table(VALUE).await? {
        return Ok(None);
    }
    let sql = format!("SELECT last_value, is_called FROM {VALUE} WHERE sequence_id = {id}");
    session.query(sql).await?.first().map(|row| value(row, 0)).transpose()
}

/// The values of all sequences.
pub(crate) async fn load_values(session: &mut Session) -> Result<BTreeMap<ObjectId, SequenceValue>> {
    if !session.has_table(VALUE).await? {
        return Ok(BTreeMap::new());
    }
    let rows = session.query(format!("SELECT sequence_id, last_value, is_called FROM {VALUE}")).await?;
    rows.iter().map(|row| Ok((row.integer(0)?, value(row, 1)?))).collect()
}

/// A sequence and its value, locked until the database transaction ends.
pub(crate) async fn load_locked(session: &mut Session, id: ObjectId) -> Result<(Sequence, SequenceValue)> {
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
    Ok((sequence(rule)?, self::value(value, 0)?))
}

/// Stores the value of a sequence, which is locked.
pub(crate) async fn store_value(session: &mut Session, id: ObjectId, value: SequenceValue) -> Result<()> {
    let SequenceValue { last, is_called } = value;
    let is_called = i64::from(is_called);
    let sql =
        format!("UPDATE {VALUE} SET last_value = {last}, is_called = {is_called} WHERE sequence_id = {id}");
    session.execute(sql).await.map(drop)
}
