//! The changes of a snapshot, in the words of `ducklake_snapshot_changes.changes_made`.
//!
//! They show which other commits happened between a transaction and its commit. Where they are too coarse (a
//! delete names a table, not a file) `commit/conflicts.rs` compares the rows themselves.

use std::collections::{BTreeMap, BTreeSet};

use crate::database::session::Session;
use crate::database::sql::name;
use crate::error::{Error, Result};
use crate::model::ids::{ObjectId, SnapshotId};

/// The kinds of changes to one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChangeKind {
    Dropped,
    Altered,
    Inserted,
    Deleted,
    Compacted,
    /// A word that a newer program may have written.
    Unknown,
}

/// The snapshots after `since` that have compacted a table.
pub(crate) async fn compactions(
    session: &mut Session,
    table: ObjectId,
    since: SnapshotId,
) -> Result<Vec<SnapshotId>> {
    let sql = format!(
        "SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes WHERE snapshot_id > {since}"
    );
    let mut found = Vec::new();
    for row in session.query(sql).await? {
        let mut others = ConcurrentChanges::default();
        let snapshot = row.integer(0)?;
        others.add(snapshot, &row.optional_text(1)?.unwrap_or_default());
        if others.contains(ChangeKind::Compacted, table, since) {
            found.push(snapshot);
        }
    }
    Ok(found)
}

/// Changes of other commits in a range of snapshots.
#[derive(Debug, Default)]
pub(crate) struct ConcurrentChanges {
    /// By table or view: the kinds of changes, with the last snapshot of each.
    changes_by_table: BTreeMap<ObjectId, BTreeMap<ChangeKind, SnapshotId>>,
    /// The last snapshot with a word that could not be parsed: it may affect anything.
    unreadable: Option<SnapshotId>,
}

impl ConcurrentChanges {
    /// Loads the changes of the snapshots after `since` up to `head`.
    pub async fn load(session: &mut Session, since: SnapshotId, head: SnapshotId) -> Result<Self> {
        let mut others = Self::default();
        if since >= head {
            return Ok(others);
        }
        let sql = format!(
            "SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes WHERE snapshot_id > {since} \
             ORDER BY snapshot_id"
        );
        let rows = session.query(sql).await?;
        if (rows.len() as i64) < head - since {
            return Err(Error::Conflict(format!(
                "snapshots since {since}, which the transaction began with, have expired meanwhile"
            )));
        }
        for row in rows {
            others.add(row.integer(0)?, &row.optional_text(1)?.unwrap_or_default());
        }
        Ok(others)
    }

    fn add(&mut self, snapshot: SnapshotId, changes: &str) {
        for (word, value) in split(changes) {
            let kind = match word.to_ascii_lowercase().as_str() {
                "dropped_table" | "dropped_view" => ChangeKind::Dropped,
                "altered_table" | "altered_view" => ChangeKind::Altered,
                "inserted_into_table" | "inlined_insert" => ChangeKind::Inserted,
                "deleted_from_table" | "inlined_delete" => ChangeKind::Deleted,
                "compacted_table" | "merge_adjacent" | "rewrite_delete" | "inline_flush"
                | "flushed_inlined" => ChangeKind::Compacted,
                // Names are compared where they are allocated: a renamed table is in no list of words.
                "created_table"
                | "created_view"
                | "created_schema"
                | "dropped_schema"
                | "created_scalar_macro"
                | "created_table_macro"
                | "dropped_scalar_macro"
                | "dropped_table_macro" => continue,
                _ => ChangeKind::Unknown,
            };
            match value.parse() {
                Ok(id) => {
                    self.changes_by_table.entry(id).or_default().insert(kind, snapshot);
                }
                Err(_) => self.unreadable = Some(snapshot),
            }
        }
    }

    /// Whether a snapshot after `since` changed this table in this way.
    pub fn contains(&self, kind: ChangeKind, table: ObjectId, since: SnapshotId) -> bool {
        let done = self.changes_by_table.get(&table).and_then(|kinds| kinds.get(&kind));
        done.is_some_and(|snapshot| *snapshot > since)
            || (kind == ChangeKind::Unknown && self.unreadable.is_some_and(|snapshot| snapshot > since))
    }

    /// Whether a snapshot after `since` may have changed this table or view in any way.
    pub fn may_affect(&self, id: ObjectId, since: SnapshotId) -> bool {
        let kinds = self.changes_by_table.get(&id).into_iter().flat_map(BTreeMap::values);
        kinds.chain(&self.unreadable).any(|snapshot| *snapshot > since)
    }
}

/// Splits into words and their values; a comma within quotes is part of a name.
fn split(changes: &str) -> Vec<(&str, &str)> {
    let mut quoted = false;
    let entries = changes.split(|character| {
        quoted ^= character == '"';
        character == ',' && !quoted
    });
    entries
        .filter(|entry| !entry.is_empty())
        .map(|entry| entry.split_once(':').unwrap_or((entry, "")))
        .collect()
}

/// The changes of this transaction, to be written in DuckDB's order.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub dropped_schemas: BTreeSet<ObjectId>,
    pub dropped_tables: BTreeSet<ObjectId>,
    pub dropped_views: BTreeSet<ObjectId>,
    pub created_schemas: Vec<String>,
    /// `table` or `view`, schema, name.
    pub created: Vec<(&'static str, String, String)>,
    pub inserted: BTreeSet<ObjectId>,
    pub deleted: BTreeSet<ObjectId>,
    pub altered_tables: BTreeSet<ObjectId>,
    pub altered_views: BTreeSet<ObjectId>,
    pub inlined_inserted: BTreeSet<ObjectId>,
    pub inlined_deleted: BTreeSet<ObjectId>,
    pub flushed: BTreeSet<ObjectId>,
    pub rewritten: BTreeSet<ObjectId>,
}

impl Changes {
    /// `None` for a commit whose changes have no words, such as options: DuckDB cannot read an empty list.
    pub fn text(&self) -> Result<Option<String>> {
        let mut words: Vec<String> = Vec::new();
        let ids = |words: &mut Vec<String>, word: &str, ids: &BTreeSet<ObjectId>| {
            words.extend(ids.iter().map(|id| format!("{word}:{id}")));
        };
        ids(&mut words, "dropped_schema", &self.dropped_schemas);
        ids(&mut words, "dropped_table", &self.dropped_tables);
        ids(&mut words, "dropped_view", &self.dropped_views);
        for schema in &self.created_schemas {
            words.push(format!("created_schema:{}", name(schema)?));
        }
        for (kind, schema, object) in &self.created {
            words.push(format!("created_{kind}:{}.{}", name(schema)?, name(object)?));
        }
        ids(&mut words, "inserted_into_table", &self.inserted);
        ids(&mut words, "deleted_from_table", &self.deleted);
        ids(&mut words, "altered_table", &self.altered_tables);
        ids(&mut words, "altered_view", &self.altered_views);
        ids(&mut words, "inlined_insert", &self.inlined_inserted);
        ids(&mut words, "inlined_delete", &self.inlined_deleted);
        ids(&mut words, "inline_flush", &self.flushed);
        ids(&mut words, "rewrite_delete", &self.rewritten);
        Ok((!words.is_empty()).then(|| words.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_split_at_commas_outside_of_quotes() {
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("", &[]),
            ("inserted_into_table:2", &[("inserted_into_table", "2")]),
            (
                "created_table:\"ma,in\".\"a \"\"b\"\",c\",inlined_insert:1",
                &[("created_table", "\"ma,in\".\"a \"\"b\"\",c\""), ("inlined_insert", "1")],
            ),
            ("new word", &[("new word", "")]),
        ];
        for (changes, expected) in cases {
            assert_eq!(split(changes), *expected, "{changes}");
        }
    }

    #[test]
    fn other_changes_are_known_by_snapshot() {
        let mut others = ConcurrentChanges::default();
        others.add(5, "inserted_into_table:2,dropped_view:7");
        others.add(6, "recoloured_table:3");
        assert!(others.contains(ChangeKind::Inserted, 2, 4) && !others.contains(ChangeKind::Inserted, 2, 5));
        assert!(!others.contains(ChangeKind::Deleted, 2, 4));
        assert!(others.contains(ChangeKind::Dropped, 7, 0));
        assert!(others.contains(ChangeKind::Unknown, 3, 5) && !others.contains(ChangeKind::Unknown, 2, 5));
        assert!(others.may_affect(2, 4) && !others.may_affect(2, 5) && !others.may_affect(4, 0));
        others.add(7, "gibberish");
        assert!(others.contains(ChangeKind::Unknown, 2, 6));
        assert!(others.may_affect(2, 6) && !others.may_affect(2, 7));
    }

    #[test]
    fn changes_are_written_in_the_order_of_duckdb() {
        let mut changes = Changes::default();
        assert_eq!(changes.text().unwrap(), None);
        changes.inlined_inserted.insert(2);
        changes.inserted.extend([3, 2]);
        changes.created.push(("table", "main".into(), "a\"b".into()));
        changes.dropped_schemas.insert(9);
        let expected = "dropped_schema:9,created_table:\"main\".\"a\"\"b\",inserted_into_table:2,inserted_into_table:3,inlined_insert:2";
        assert_eq!(changes.text().unwrap().as_deref(), Some(expected));
    }
}
