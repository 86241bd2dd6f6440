//! The SQL statements of one commit: the difference between a transaction and its base snapshot.

mod objects;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::access::store;
use crate::database::session::Session;
use crate::database::sql::{Dialect, optional_text, text};
use crate::error::{Error, Result};
use crate::layout::changes::Changes;
use crate::layout::sequences;
use crate::model::ids::{ObjectId, SnapshotId};
use crate::model::transaction::{CommitNote, Committed, Transaction};
use crate::model::values;
use crate::snapshot::head::Head;

/// The statements of one commit, being built.
pub(super) struct Draft<'a> {
    dialect: Dialect,
    transaction: &'a Transaction,
    head: &'a Head,
    snapshot: SnapshotId,
    schema_version: i64,
    state_changed: bool,
    next_catalog_id: i64,
    next_file_id: i64,
    pub(super) objects: BTreeMap<ObjectId, ObjectId>,
    /// Partitionings created by this commit, by the table's final id.
    partition_ids: BTreeMap<ObjectId, i64>,
    /// Tables that get a new schema version, by their final ids.
    versioned: BTreeSet<ObjectId>,
    changes: Changes,
    pub(super) statements: Vec<String>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(dialect: Dialect, transaction: &'a Transaction, head: &'a Head) -> Self {
        let state_changed = transaction.changes_state();
        Self {
            dialect,
            transaction,
            head,
            snapshot: head.snapshot + 1,
            schema_version: head.schema_version + i64::from(state_changed),
            state_changed,
            next_catalog_id: head.next_catalog_id,
            next_file_id: head.next_file_id,
            objects: BTreeMap::new(),
            partition_ids: BTreeMap::new(),
            versioned: BTreeSet::new(),
            changes: Changes::default(),
            statements: Vec::new(),
        }
    }

    /// The final id of a schema, table or view.
    fn real(&self, id: ObjectId) -> ObjectId {
        self.objects.get(&id).copied().unwrap_or(id)
    }

    fn catalog_id(&mut self) -> i64 {
        self.next_catalog_id += 1;
        self.next_catalog_id - 1
    }

    fn file_id(&mut self) -> i64 {
        self.next_file_id += 1;
        self.next_file_id - 1
    }

    fn push(&mut self, statement: String) {
        self.statements.push(statement);
    }

    /// Ends the current rows of a catalog table at this snapshot.
    fn end(&mut self, table: &str, condition: &str) {
        let snapshot = self.snapshot;
        self.push(format!(
            "UPDATE {table} SET end_snapshot = {snapshot} WHERE {condition} AND end_snapshot IS NULL"
        ));
    }

    pub(super) async fn state(&mut self, session: &mut Session) -> Result<()> {
        if !self.state_changed {
            return Ok(());
        }
        let (base, own) = (Arc::clone(&self.transaction.base), &self.transaction.state);
        let made = own.schemas.keys().chain(own.tables.keys()).chain(own.views.keys());
        for id in made.chain(own.sequences.keys()) {
            if *id < 0 {
                let real = self.catalog_id();
                self.objects.insert(*id, real);
            }
        }
        for id in base.views.keys().filter(|id| !own.views.contains_key(id)) {
            self.end("ducklake_view", &format!("view_id = {id}"));
            self.end("ducklake_tag", &format!("object_id = {id}"));
            self.changes.dropped_views.insert(*id);
        }
        let dropped = base.tables.keys().filter(|id| !own.tables.contains_key(id));
        let unusable = base.unusable.keys().filter(|id| !own.unusable.contains_key(id));
        for id in dropped.chain(unusable) {
            self.drop_table(*id);
        }
        for id in base.schemas.keys().filter(|id| !own.schemas.contains_key(id)) {
            self.end("ducklake_schema", &format!("schema_id = {id}"));
            self.end("ducklake_macro", &format!("schema_id = {id}"));
            self.end("ducklake_tag", &format!("object_id = {id}"));
            self.changes.dropped_schemas.insert(*id);
        }
        for (id, schema) in &own.schemas {
            self.schema(base.schemas.get(id).map(|before| &**before), schema)?;
        }
        for (id, table) in &own.tables {
            match base.tables.get(id) {
                Some(before) if before == table => {}
                Some(before) => self.alter_table(session, before, table).await?,
                None => self.create_table(table)?,
            }
        }
        for (id, view) in &own.views {
            match base.views.get(id) {
                Some(before) if before == view => {}
                before => self.view(before.map(|before| &**before), view)?,
            }
        }
        self.options(None, &base.options, &own.options)
    }

    /// Values are written as well if the transaction contains them.
    pub(super) async fn sequences(&mut self, session: &mut Session) -> Result<()> {
        let transaction = self.transaction;
        let (base, own) = (&transaction.base.sequences, &transaction.state.sequences);
        let changes = sequences::changes(session, transaction, self.snapshot, &|id| self.real(id)).await?;
        self.statements.extend(changes);
        for (id, sequence) in own {
            let before = base.get(id).and_then(|before| before.comment.as_deref());
            self.comment(self.real(*id), before, sequence.comment.as_deref())?;
        }
        for id in base.keys().filter(|id| !own.contains_key(id)) {
            self.end("ducklake_tag", &format!("object_id = {id}"));
        }
        Ok(())
    }

    /// Owners of new objects. A view that replaces another keeps its owner and privileges.
    pub(super) fn owners(&mut self, note: &CommitNote) -> Result<()> {
        let (base, own) = (&self.transaction.base, &self.transaction.state);
        let mut by_owner: BTreeMap<Option<&str>, Vec<(ObjectId, Option<ObjectId>)>> = BTreeMap::new();
        for (id, real) in &self.objects {
            let replaced = own.views.get(id).and_then(|view| base.view(view.schema, &view.name));
            let replaced = replaced.filter(|old| !own.views.contains_key(&old.id)).map(|old| old.id);
            let owner = self.transaction.owners.get(id).or(note.owner.as_ref());
            by_owner.entry(owner.map(String::as_str)).or_default().push((*real, replaced));
        }
        for (owner, pairs) in by_owner {
            self.statements.extend(store::new_objects(&pairs, owner)?);
        }
        Ok(())
    }

    /// Adds the snapshot's own row.
    pub(super) fn finish(&mut self, note: &CommitNote) -> Result<Committed> {
        // Snapshot times are monotonic, whatever the clocks of the committers.
        let time = values::format_time(values::now().max(self.head.time));
        let snapshot = self.snapshot;
        self.push(format!(
            "INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id) \
             VALUES ({snapshot}, '{time}', {}, {}, {})",
            self.schema_version, self.next_catalog_id, self.next_file_id
        ));
        let changes = self.changes.text()?;
        self.push(format!(
            "INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made, author, commit_message, commit_extra_info) \
             VALUES ({snapshot}, {}, {}, {}, {})",
            optional_text(changes.as_deref())?,
            optional_text(note.author.as_deref())?,
            optional_text(note.message.as_deref())?,
            text(&self.transaction.extra_info())?
        ));
        let objects = self.objects.clone();
        Ok(Committed { snapshot, state_changed: self.state_changed, objects })
    }
}

/// A UUID literal; PostgreSQL accepts nothing else.
fn uuid(value: &str) -> Result<String> {
    match Uuid::parse_str(value) {
        Ok(uuid) => Ok(format!("'{uuid}'")),
        Err(_) => Err(Error::Corrupt(format!("\"{value}\" is no UUID"))),
    }
}
