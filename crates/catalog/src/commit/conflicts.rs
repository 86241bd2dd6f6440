//! Conflict detection of commits: the rules of snapshot isolation.
//!
//! | this transaction        | conflicts with a concurrent commit that has                                  |
//! |-------------------------|------------------------------------------------------------------------------|
//! | inserts into a table    | dropped or altered it                                                        |
//! | deletes from a table    | dropped or altered it; deleted, removed or compacted the same files or rows  |
//! | replaces a table's rows | the same; or inserted into it or deleted from it at all                      |
//! | compacts a table        | dropped or altered it; deleted or compacted the same files or rows           |
//! | alters a table or view  | dropped or altered it; inserted into it, if a column becomes NOT NULL or     |
//! |                         | changes its declared type, or CHECK constraints or table partitions change   |
//! | drops anything          | dropped it                                                                   |
//! | drops a schema          | created anything in it                                                       |
//! | creates or renames      | taken the name; dropped the schema                                           |
//!
//! Called within the committing transaction, which excludes others, so the result holds until its end. Also
//! called before a statement of a read committed transaction, which would otherwise combine its view with
//! changes that no longer fit; later commits are checked again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::database::session::Session;
use crate::database::sql::{list, name, text};
use crate::error::{Error, Result};
use crate::layout::changes::{ChangeKind, ConcurrentChanges};
use crate::layout::{inlined, sequences};
use crate::model::files::{NewDeletes, TableChanges};
use crate::model::ids::{ObjectId, SnapshotId};
use crate::model::sequences::SequenceOwner;
use crate::model::state::{CHECK, Column, DECLARED_TYPE_TAG, KEYS_TAG, State, Table};
use crate::model::transaction::Transaction;
use crate::snapshot::head::Head;
use crate::snapshot::history;
use crate::snapshot::inlined_rows::inlined_tables;

/// Fails with `Error::Conflict` if a snapshot after the transaction's base conflicts with it.
pub(crate) async fn check(session: &mut Session, transaction: &Transaction, head: &Head) -> Result<()> {
    compare(session, transaction, head, false).await
}

/// Like [`check`], for a transaction that continues: changes before its current base were checked at the last
/// rebase.
pub(crate) async fn check_newer(session: &mut Session, transaction: &Transaction, head: &Head) -> Result<()> {
    compare(session, transaction, head, true).await
}

async fn compare(
    session: &mut Session,
    transaction: &Transaction,
    head: &Head,
    only_newer: bool,
) -> Result<()> {
    let since_state = transaction.since.unwrap_or(transaction.base.snapshot);
    let data = || transaction.data.iter().filter(|(_, changes)| !changes.is_empty());
    let since = data().map(|(_, changes)| changes.since).chain([since_state]).min().unwrap_or(since_state);
    history::check(session, (transaction.base.snapshot, transaction.base.time), head).await?;
    if since >= head.snapshot {
        return Ok(());
    }
    let others = ConcurrentChanges::load(session, since, head.snapshot).await?;
    let (base, own) = (&transaction.base, &transaction.state);
    let moved = !only_newer || head.schema_version != base.schema_version;
    let touched = |id: ObjectId| moved || others.may_affect(id, base.snapshot);
    for (table, changes) in data() {
        let is_theirs = *table >= 0 && own.tables.contains_key(table);
        if is_theirs && changes.since < head.snapshot && touched(*table) {
            Rows { session, table: *table, changes, others: &others, title: title(transaction, *table) }
                .check()
                .await?;
        }
    }
    let altered = |(id, table): (&ObjectId, &Arc<Table>)| {
        base.tables.get(id).is_some_and(|before| !Arc::ptr_eq(before, table)) && touched(*id)
    };
    if since_state < head.snapshot && (moved || own.tables.iter().any(altered)) && transaction.changes_state()
    {
        state(session, transaction, &others, since_state).await?;
    }
    Ok(())
}

/// The name of a table in messages.
fn title(transaction: &Transaction, table: ObjectId) -> String {
    let find = |state: &State| state.tables.get(&table).map(|table| format!("table \"{}\"", table.name));
    find(&transaction.state).or_else(|| find(&transaction.base)).unwrap_or_else(|| format!("table {table}"))
}

fn conflict(what: String) -> Error {
    Error::Conflict(format!("{what} by another transaction"))
}

/// The row changes of one table.
struct Rows<'a> {
    session: &'a mut Session,
    table: ObjectId,
    changes: &'a TableChanges,
    others: &'a ConcurrentChanges,
    title: String,
}

impl Rows<'_> {
    async fn check(mut self) -> Result<()> {
        let changes = self.changes;
        let deletes = !(changes.deleted.is_empty()
            && changes.removed.is_empty()
            && changes.deleted_inlined.is_empty()
            && !changes.removed_inlined);
        self.refuse(ChangeKind::Dropped, "was dropped")?;
        self.refuse(ChangeKind::Altered, "was altered")?;
        if deletes || changes.replaces || changes.compacts {
            self.refuse(ChangeKind::Unknown, "was changed in a way that is not known")?;
        }
        if changes.replaces {
            self.refuse(ChangeKind::Inserted, "was inserted into")?;
            self.refuse(ChangeKind::Deleted, "was deleted from")?;
            self.refuse(ChangeKind::Compacted, "was compacted")?;
        }
        let live =
            format!("SELECT 1 FROM ducklake_table WHERE table_id = {} AND end_snapshot IS NULL", self.table);
        if self.session.query(live).await?.is_empty() {
            return Err(conflict(format!("{} was dropped", self.title)));
        }
        self.files().await?;
        self.inlined_rows().await
    }

    fn refuse(&self, kind: ChangeKind, words: &str) -> Result<()> {
        match self.others.contains(kind, self.table, self.changes.since) {
            true => Err(conflict(format!("{} {words}", self.title))),
            false => Ok(()),
        }
    }

    async fn files(&mut self) -> Result<()> {
        let changes = self.changes;
        let touched = |(file, deletes): (&i64, &NewDeletes)| {
            let positions = match deletes {
                NewDeletes::Inline(positions) | NewDeletes::File { positions, .. } => positions,
            };
            // A delete file without new positions still replaces the previous one.
            (matches!(deletes, NewDeletes::File { .. }) || !positions.is_empty()).then_some(*file)
        };
        let files: BTreeSet<i64> =
            changes.deleted.iter().filter_map(touched).chain(changes.removed.iter().copied()).collect();
        if files.is_empty() {
            return Ok(());
        }
        let (table, since, wanted) = (self.table, changes.since, list(&files));
        let live = self
            .session
            .query(format!(
                "SELECT data_file_id FROM ducklake_data_file WHERE data_file_id IN ({wanted}) \
                 AND table_id = {table} AND end_snapshot IS NULL"
            ))
            .await?;
        if live.len() < files.len() {
            let words = match self.others.contains(ChangeKind::Compacted, table, since) {
                true => "was compacted",
                false => "lost a file that this one deletes rows from: its rows were all deleted",
            };
            return Err(conflict(format!("{} {words}", self.title)));
        }
        let mut queries = vec![format!(
            "SELECT data_file_id FROM ducklake_delete_file WHERE data_file_id IN ({wanted}) \
             AND (begin_snapshot > {since} OR end_snapshot > {since})"
        )];
        let deletes = inlined::delete_table(table);
        if self.session.has_table(&deletes).await? {
            let newer = format!("file_id IN ({wanted}) AND begin_snapshot > {since}");
            queries.push(format!("SELECT file_id FROM {deletes} WHERE {newer}"));
        }
        for query in queries {
            if let Some(row) = self.session.query(query).await?.first() {
                let file = row.integer(0)?;
                return Err(conflict(format!("rows of {} were deleted from data file {file}", self.title)));
            }
        }
        Ok(())
    }

    async fn inlined_rows(&mut self) -> Result<()> {
        let changes = self.changes;
        if changes.deleted_inlined.is_empty() && !changes.removed_inlined {
            return Ok(());
        }
        let since = changes.since;
        let tables = inlined_tables(self.session, self.table).await?;
        let gone = || conflict(format!("rows of {} that the catalog keeps were deleted", self.title));
        let mut wanted: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (version, row) in &changes.deleted_inlined {
            wanted.entry(*version).or_default().push(*row);
        }
        for (version, rows) in wanted {
            let Some(table) = tables.get(&version) else { return Err(gone()) };
            let sql = format!(
                "SELECT count(*) FROM {} WHERE row_id IN ({}) AND end_snapshot IS NULL",
                name(table)?,
                list(&rows)
            );
            let live = self.session.query(sql).await?.first().map_or(Ok(0), |row| row.integer(0))?;
            if live < rows.len() as i64 {
                return Err(gone());
            }
        }
        if changes.removed_inlined {
            // A flush removes the rows from the catalog, so they cannot be compared.
            if self.others.contains(ChangeKind::Compacted, self.table, since) {
                return Err(conflict(format!("{} was compacted", self.title)));
            }
            for table in tables.values() {
                let sql = format!(
                    "SELECT 1 FROM {} WHERE begin_snapshot <= {since} AND end_snapshot > {since} LIMIT 1",
                    name(table)?
                );
                if !self.session.query(sql).await?.is_empty() {
                    return Err(gone());
                }
            }
        }
        Ok(())
    }
}

/// Current objects: id to schema, name, and the snapshot in which its current row began.
type Live = HashMap<ObjectId, (ObjectId, String, SnapshotId)>;

async fn live(session: &mut Session, sql: &str) -> Result<Live> {
    let rows = session.query(sql).await?;
    rows.iter().map(|row| Ok((row.integer(0)?, (row.integer(1)?, row.text(2)?, row.integer(3)?)))).collect()
}

/// Checks the changes of schemas, tables and views.
async fn state(
    session: &mut Session,
    transaction: &Transaction,
    others: &ConcurrentChanges,
    since: SnapshotId,
) -> Result<()> {
    let (base, own) = (&transaction.base, &transaction.state);
    let sql =
        "SELECT schema_id, 0, schema_name, begin_snapshot FROM ducklake_schema WHERE end_snapshot IS NULL";
    let schemas = live(session, sql).await?;
    let sql = "SELECT table_id, schema_id, table_name, begin_snapshot FROM ducklake_table WHERE end_snapshot IS NULL";
    let tables = live(session, sql).await?;
    let sql =
        "SELECT view_id, schema_id, view_name, begin_snapshot FROM ducklake_view WHERE end_snapshot IS NULL";
    let views = live(session, sql).await?;
    let sequences = sequences::live(session).await?;
    let sequences: Live =
        sequences.into_iter().map(|(id, schema, name, began)| (id, (schema, name, began))).collect();

    for (id, schema) in &base.schemas {
        let schema = &schema.name;
        if own.schemas.contains_key(id) {
            continue;
        }
        if !schemas.contains_key(id) {
            return Err(conflict(format!("schema \"{schema}\" was dropped")));
        }
        let left = |live: &Live, own: &dyn Fn(&ObjectId) -> bool| {
            live.iter()
                .find(|(object, (within, ..))| within == id && !own(object))
                .map(|(_, (_, name, _))| name.clone())
        };
        let made =
            left(&tables, &|table| base.tables.contains_key(table) || base.unusable.contains_key(table))
                .or_else(|| left(&views, &|view| base.views.contains_key(view)))
                .or_else(|| left(&sequences, &|sequence| base.sequences.contains_key(sequence)));
        if let Some(made) = made {
            return Err(conflict(format!("\"{made}\" was created in schema \"{schema}\"")));
        }
    }
    for (id, schema) in &own.schemas {
        let is_new = !base.schemas.contains_key(id);
        let taken = |(other, (_, name, _)): (&ObjectId, &(ObjectId, String, SnapshotId))| {
            *name == schema.name && own.schemas.contains_key(other) | !base.schemas.contains_key(other)
        };
        if is_new && schemas.iter().any(taken) {
            return Err(conflict(format!("schema \"{}\" was created", schema.name)));
        }
        if !is_new && base.schemas[id] != *schema && !schemas.contains_key(id) {
            return Err(conflict(format!("schema \"{}\" was dropped", schema.name)));
        }
    }

    // The object with this name must be unique; objects that this transaction drops or renames release
    // theirs.
    let free = |id: ObjectId, schema: ObjectId, name: &str| {
        if schema >= 0 && !schemas.contains_key(&schema) {
            let of = own.schemas.get(&schema).map_or("", |schema| schema.name.as_str());
            return Err(conflict(format!("schema \"{of}\", in which \"{name}\" was to be, was dropped")));
        }
        let same = |other: &ObjectId, live: &(ObjectId, String, SnapshotId)| {
            *other != id && live.0 == schema && live.1 == name
        };
        let keeps_table = |other: &ObjectId| match (base.tables.get(other), own.tables.get(other)) {
            (Some(_), None) => false,
            (Some(before), Some(now)) => before.name == now.name && before.schema == now.schema,
            _ => !base.unusable.contains_key(other) || own.unusable.contains_key(other),
        };
        let keeps_view = |other: &ObjectId| match (base.views.get(other), own.views.get(other)) {
            (Some(_), None) => false,
            (Some(before), Some(now)) => before.name == now.name && before.schema == now.schema,
            _ => true,
        };
        let keeps_sequence = |other: &ObjectId| match (base.sequences.get(other), own.sequences.get(other)) {
            (Some(_), None) => false,
            (Some(before), Some(now)) => before.name == now.name && before.schema == now.schema,
            _ => true,
        };
        let taken = tables.iter().any(|(other, live)| same(other, live) && keeps_table(other))
            || sequences.iter().any(|(other, live)| same(other, live) && keeps_sequence(other))
            || views.iter().any(|(other, live)| same(other, live) && keeps_view(other));
        if taken { Err(conflict(format!("\"{name}\" was created"))) } else { Ok(()) }
    };
    let altered = |kind: &str, id: ObjectId, name: &str, live: &Live| {
        let Some((_, _, began)) = live.get(&id) else {
            return Err(conflict(format!("{kind} \"{name}\" was dropped")));
        };
        // DuckDB has no word for a rename: the new row shows it.
        if *began > since || others.contains(ChangeKind::Altered, id, since) {
            return Err(conflict(format!("{kind} \"{name}\" was altered")));
        }
        if others.contains(ChangeKind::Unknown, id, since) {
            return Err(conflict(format!("{kind} \"{name}\" was changed in a way that is not known")));
        }
        Ok(())
    };

    for (id, table) in &base.tables {
        if !own.tables.contains_key(id) && !tables.contains_key(id) {
            return Err(conflict(format!("table \"{}\" was dropped", table.name)));
        }
    }
    for (id, table) in &base.unusable {
        if !own.unusable.contains_key(id) && !tables.contains_key(id) {
            return Err(conflict(format!("table \"{}\" was dropped", table.name)));
        }
    }
    for (id, view) in &base.views {
        if !own.views.contains_key(id) && !views.contains_key(id) {
            return Err(conflict(format!("view \"{}\" was dropped", view.name)));
        }
    }
    for (id, table) in &own.tables {
        match base.tables.get(id) {
            None => free(*id, table.schema, &table.name)?,
            Some(before) if before == table => {}
            Some(before) => {
                if !tables.contains_key(id) {
                    return Err(conflict(format!("table \"{}\" was dropped", before.name)));
                }
                if before.differs_beyond_options(table) {
                    altered("table", *id, &before.name, &tables)?;
                }
                if before.name != table.name || before.schema != table.schema {
                    free(*id, table.schema, &table.name)?;
                }
                if let Some(demand) = row_requirement(before, table)
                    && others.contains(ChangeKind::Inserted, *id, since)
                {
                    return Err(conflict(format!("table \"{}\", {demand}, was inserted into", before.name)));
                }
            }
        }
    }
    for (id, view) in &own.views {
        match base.views.get(id) {
            None => free(*id, view.schema, &view.name)?,
            Some(before) if before == view => {}
            Some(before) => {
                altered("view", *id, &before.name, &views)?;
                if before.name != view.name || before.schema != view.schema {
                    free(*id, view.schema, &view.name)?;
                }
            }
        }
    }
    for (id, sequence) in &base.sequences {
        if !own.sequences.contains_key(id) && !sequences.contains_key(id) {
            return Err(conflict(format!("sequence \"{}\" was dropped", sequence.name)));
        }
    }
    for (id, sequence) in &own.sequences {
        match base.sequences.get(id) {
            None => free(*id, sequence.schema, &sequence.name)?,
            Some(before) if before == sequence => {}
            Some(before) => {
                altered("sequence", *id, &before.name, &sequences)?;
                if before.name != sequence.name || before.schema != sequence.schema {
                    free(*id, sequence.schema, &sequence.name)?;
                }
            }
        }
        let is_gone = |owner: &SequenceOwner| owner.table >= 0 && !tables.contains_key(&owner.table);
        if sequence.owner.as_ref().is_some_and(is_gone) && base.sequences.get(id) != Some(sequence) {
            return Err(conflict(format!("the table that owns sequence \"{}\" was dropped", sequence.name)));
        }
    }
    macros(session, transaction).await
}

/// Macros are DuckDB's; dropping a schema drops them too, which is right for macros that existed before.
async fn macros(session: &mut Session, transaction: &Transaction) -> Result<()> {
    let since = transaction.since.unwrap_or(transaction.base.snapshot);
    for (id, schema) in &transaction.base.schemas {
        if transaction.state.schemas.contains_key(id) {
            continue;
        }
        let sql = format!(
            "SELECT macro_name FROM ducklake_macro WHERE schema_id = {id} AND begin_snapshot > {since} \
             AND end_snapshot IS NULL"
        );
        if let Some(row) = session.query(sql).await?.first() {
            let what =
                format!("macro {} was created in schema {}", text(&row.text(0)?)?, name(&schema.name)?);
            return Err(conflict(what));
        }
    }
    Ok(())
}

/// The requirement of a table change that concurrently inserted rows may violate.
fn row_requirement(before: &Table, after: &Table) -> Option<&'static str> {
    if tightens_nullability(&before.columns, &after.columns) {
        return Some("of which a column is no longer to be NULL");
    }
    if before.table_partitions() != after.table_partitions() {
        return Some("whose table partitions are to be others");
    }
    let checks = |table: &Table| table.tags.get(KEYS_TAG).filter(|keys| keys.contains(CHECK)).cloned();
    if checks(after).is_some_and(|after| checks(before) != Some(after)) {
        return Some("whose CHECK constraints are to be others");
    }
    let retyped = after.columns.iter().any(|column| {
        let old = before.columns.iter().find(|old| old.id == column.id);
        old.is_some_and(|old| old.tags.get(DECLARED_TYPE_TAG) != column.tags.get(DECLARED_TYPE_TAG))
    });
    retyped.then_some("of which a column is to have another type")
}

/// Whether a nullable column has become NOT NULL.
fn tightens_nullability(before: &[Column], after: &[Column]) -> bool {
    after.iter().any(|column| {
        let old = before.iter().find(|old| old.id == column.id);
        old.is_some_and(|old| {
            (old.nullable && !column.nullable) || tightens_nullability(&old.children, &column.children)
        })
    })
}
