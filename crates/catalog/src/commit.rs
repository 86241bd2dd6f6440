//! A commit: one database transaction that checks for conflicts, gives out numbers, and writes the next snapshot.
//!
//! ```text
//!   lock ─► read the newest snapshot ─► conflicts ─► draft (SQL as text) ─► run it ─► COMMIT
//!     ▲                                     │                                │          │ connection lost
//!     │                                     ▼                                ▼          ▼
//!     │                                  Conflict                         an error    was it committed? ─► Unknown
//!     │  number taken, deadlock, connection lost                             │          │ no
//!     └───────────────── wait, from the start ◄──────────────────────────────┴──────────┘
//! ```
//!
//! Invariants: nothing is written before all conflicts are checked; the snapshot's row is written in the same database
//! transaction as all that it made.
//!
//! Crash: the database rolls back. A connection lost while COMMIT is on its way leaves the outcome open; the snapshot
//! carries the transaction's id, so that it can be looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::catalog::Catalog;
use crate::changes::Changes;
use crate::conflicts::{self, differ_beyond_options};
use crate::database::{
    Dialect, Rows, Session, boolean, failed, has_no_space, is_lost, is_transient, list, name, optional,
    optional_boolean, optional_text, text,
};
use crate::error::{Error, Result};
use crate::files::{ColumnStats, NewDeleteFile, NewDeletes, NewFile, TableChanges};
use crate::load::{self, Head};
use crate::state::{
    Column, ColumnId, DefaultValue, ObjectId, Schema, SnapshotId, Table, View, column_tag_key,
};
use crate::stats::{keeps_texts, retyped_stats};
use crate::transaction::Transaction;
use crate::{access, again, inlined, sequences, stats, values, writers};

/// How often a commit starts again because its number was taken, which only programs that take no lock cause.
const ATTEMPTS_MAX: u32 = 30;
/// The wait before the second attempt; it doubles up to the one below, and a random part is left off.
const WAIT_FIRST: Duration = Duration::from_millis(5);
const WAIT_MAX: Duration = Duration::from_millis(500);
/// How often the outcome of a commit is looked up before it is given up as unknown.
const LOOKUPS_MAX: u32 = 5;
/// What DuckDB keeps in the catalog at most unless told otherwise; 0 would mean that it keeps no rows there.
const INLINING_OPTION: &str = "data_inlining_row_limit";

/// What is written beside a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitNote {
    pub author: Option<String>,
    pub message: Option<String>,
    /// The role that owns the schemas, tables and views that the commit makes.
    pub owner: Option<String>,
}

/// A commit that has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub snapshot: SnapshotId,
    /// Whether schemas, tables or views (or options) were changed.
    pub state_changed: bool,
    /// Numbers of new schemas, tables and views, by those they had in the transaction.
    pub objects: BTreeMap<ObjectId, ObjectId>,
}

/// Where a commit is, for tests that disturb it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Before the statement of this number, from 0.
    Statement(usize),
    BeforeCommit,
    AfterCommit,
}

/// What a test does at a step. An error there counts as the statement's, or as that of COMMIT.
pub type Hook =
    Arc<dyn Fn(Step) -> Pin<Box<dyn Future<Output = Result<(), sqlx::Error>> + Send>> + Send + Sync>;

/// `wanted`: whether an attempt that has come to nothing is to be followed by another one.
pub(crate) async fn commit(
    catalog: &Catalog,
    transaction: &Transaction,
    note: &CommitNote,
    wanted: &(dyn Fn() -> bool + Send + Sync),
) -> Result<Committed> {
    if transaction.is_empty() {
        let objects = BTreeMap::new();
        return Ok(Committed { snapshot: transaction.base.snapshot, state_changed: false, objects });
    }
    verify(transaction)?;
    // What was begun in one term of this process is not done in a later one: whoever served between has another picture of it.
    let term = catalog.inner.database.term();
    let mut wait = WAIT_FIRST;
    let mut lost = 0;
    for attempt in 1.. {
        match attempt_commit(catalog, transaction, note, term).await {
            Err(error) if !wanted() => return Err(error),
            // It is known not to have happened: else the error would be another one.
            Err(error) if is_lost(&error) && lost + 1 < again::BEGUN_MAX => {
                lost += 1;
                tracing::debug!(attempt, %error, "the connection to the catalog was lost; trying again");
                tokio::time::sleep(again::wait(lost)).await;
            }
            Err(error) if is_transient(&error) && attempt < ATTEMPTS_MAX => {
                tracing::debug!(attempt, %error, "another program has committed meanwhile; trying again");
                let random = Uuid::new_v4().as_bytes()[0];
                tokio::time::sleep(wait.mul_f64(0.5 + f64::from(random) / 512.0)).await;
                wait = (wait * 2).min(WAIT_MAX);
            }
            outcome => return outcome,
        }
    }
    unreachable!("the last attempt returns")
}

/// Whether these are changes of rows at all.
pub(crate) fn is_idle(changes: &TableChanges) -> bool {
    *changes == TableChanges { since: changes.since, ..TableChanges::default() }
}

/// What a caller must not hand in.
fn verify(transaction: &Transaction) -> Result<()> {
    let state = &transaction.state;
    for (schema, name) in state
        .tables
        .values()
        .map(|table| (table.schema, &table.name))
        .chain(state.views.values().map(|view| (view.schema, &view.name)))
        .chain(state.sequences.values().map(|sequence| (sequence.schema, &sequence.name)))
    {
        if !state.schemas.contains_key(&schema) {
            return Err(Error::Corrupt(format!("the transaction leaves \"{name}\" without its schema")));
        }
    }
    for (id, schema) in &state.schemas {
        if let Some(before) = transaction.base.schemas.get(id)
            && (before.name != schema.name || before.path != schema.path)
        {
            return Err(Error::Unsupported(format!(
                "schema \"{}\" cannot be renamed: the DuckLake layout has no place for it",
                before.name
            )));
        }
    }
    Ok(())
}

async fn attempt_commit(
    catalog: &Catalog,
    transaction: &Transaction,
    note: &CommitNote,
    term: Option<i64>,
) -> Result<Committed> {
    let mut session = catalog.inner.database.write_in(term).await?;
    let hook = catalog.inner.hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let at = async |step| match &hook {
        Some(hook) => hook(step).await,
        None => Ok(()),
    };
    let work = async {
        let head = load::head(&mut session, None).await?;
        conflicts::check(&mut session, transaction, &head).await?;
        writers::end(&mut session, &transaction.writers).await?;
        let mut draft = Draft::new(session.dialect(), transaction, &head);
        draft.statements = head.settings.upgrade()?;
        draft.state(&mut session).await?;
        draft.sequences(&mut session).await?;
        draft.data(&mut session).await?;
        if !draft.objects.is_empty() && access::has_tables(&mut session).await? {
            draft.owners(note)?;
        }
        let committed = draft.finish(note)?;
        for (number, statement) in draft.statements.into_iter().enumerate() {
            at(Step::Statement(number)).await.map_err(failed)?;
            session.execute(statement).await?;
        }
        Ok(committed)
    };
    let committed = match work.await {
        Ok(committed) => committed,
        Err(error) => {
            session.rollback().await;
            return Err(error);
        }
    };
    let outcome = match at(Step::BeforeCommit).await {
        Ok(()) => session.commit().await,
        Err(error) => {
            // Its connection is needed to look up the outcome.
            drop(session);
            Err(error)
        }
    };
    let outcome = match outcome {
        Ok(()) => at(Step::AfterCommit).await,
        error => error,
    };
    match outcome {
        Ok(()) => Ok(committed),
        Err(error) => after_failure(catalog, transaction, committed, error).await,
    }
}

/// COMMIT has failed: it may have happened all the same.
async fn after_failure(
    catalog: &Catalog,
    transaction: &Transaction,
    committed: Committed,
    error: sqlx::Error,
) -> Result<Committed> {
    if has_no_space(&error) {
        return Err(failed(error));
    }
    tracing::warn!(%error, transaction = %transaction.id, "a commit failed; looking up whether it happened");
    let extra = extra(transaction);
    let mut wait = WAIT_FIRST;
    let mut last = None;
    for _ in 0..LOOKUPS_MAX {
        // The lock of a commit: what still runs in the server on the lost connection ends before this is answered.
        let found = async {
            let mut session = catalog.inner.database.lock().await?;
            load::find_transaction(&mut session, transaction.base.snapshot, &extra).await
        };
        match found.await {
            Ok(Some(snapshot)) => return Ok(Committed { snapshot, ..committed }),
            Ok(None) => return Err(failed(error)),
            Err(unreadable) => last = Some(unreadable),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 4).min(WAIT_MAX);
    }
    let source = match last {
        Some(Error::Database(source)) => Some(source),
        _ => Some(error),
    };
    Err(Error::Unknown { transaction: transaction.id.to_string(), source })
}

/// `commit_extra_info`.
fn extra(transaction: &Transaction) -> String {
    format!("{{\"harrier_transaction\":\"{}\"}}", transaction.id)
}

/// The statements of one commit, being written.
struct Draft<'a> {
    dialect: Dialect,
    transaction: &'a Transaction,
    head: &'a Head,
    snapshot: SnapshotId,
    schema_version: i64,
    state_changed: bool,
    next_catalog_id: i64,
    next_file_id: i64,
    objects: BTreeMap<ObjectId, ObjectId>,
    /// Partitionings that this commit makes, by the table's real number.
    partition_ids: BTreeMap<ObjectId, i64>,
    /// Tables that get a new version, by their real numbers.
    versioned: BTreeSet<ObjectId>,
    changes: Changes,
    statements: Vec<String>,
}

impl<'a> Draft<'a> {
    fn new(dialect: Dialect, transaction: &'a Transaction, head: &'a Head) -> Self {
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

    /// The real number of a schema, table or view.
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

    /// Ends the present rows of a table of the catalog.
    fn end(&mut self, table: &str, condition: &str) {
        let snapshot = self.snapshot;
        self.push(format!(
            "UPDATE {table} SET end_snapshot = {snapshot} WHERE {condition} AND end_snapshot IS NULL"
        ));
    }

    // Schemas, tables, views.

    async fn state(&mut self, session: &mut Session) -> Result<()> {
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

    /// Where they are is written as well, if the transaction has that.
    async fn sequences(&mut self, session: &mut Session) -> Result<()> {
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

    fn schema(&mut self, before: Option<&Schema>, schema: &Schema) -> Result<()> {
        let id = self.real(schema.id);
        if before.is_none() {
            self.changes.created_schemas.push(schema.name.clone());
            self.push(format!(
                "INSERT INTO ducklake_schema (schema_id, schema_uuid, begin_snapshot, end_snapshot, schema_name, path, \
                 path_is_relative) VALUES ({id}, {}, {}, NULL, {}, {}, {})",
                uuid(&schema.uuid)?,
                self.snapshot,
                text(&schema.name)?,
                text(&schema.path.path)?,
                boolean(schema.path.relative)
            ));
        }
        self.comment(id, before.and_then(|before| before.comment.as_deref()), schema.comment.as_deref())?;
        let none = BTreeMap::new();
        self.options(Some(("schema", id)), before.map_or(&none, |before| &before.options), &schema.options)
    }

    fn view(&mut self, before: Option<&View>, view: &View) -> Result<()> {
        let id = self.real(view.id);
        if before.is_none() {
            let schema = self.schema_name(view.schema);
            self.changes.created.push(("view", schema, view.name.clone()));
        } else {
            self.changes.altered_views.insert(id);
        }
        let same_row = before.is_some_and(|before| {
            let (comment, columns_below) = (view.comment.clone(), view.columns_below.clone());
            View { comment, columns_below, ..before.clone() } == *view
        });
        if !same_row {
            if before.is_some() {
                self.end("ducklake_view", &format!("view_id = {id}"));
            }
            self.push(format!(
                "INSERT INTO ducklake_view (view_id, view_uuid, begin_snapshot, end_snapshot, schema_id, view_name, \
                 dialect, \"sql\", column_aliases) VALUES ({id}, {}, {}, NULL, {}, {}, {}, {}, {})",
                uuid(&view.uuid)?,
                self.snapshot,
                self.real(view.schema),
                text(&view.name)?,
                text(&view.dialect)?,
                text(&view.sql)?,
                text(&view.column_aliases)?
            ));
        }
        let tags = |view: &View| view.tags(|table| self.real(table));
        let (tags_before, tags) = (before.map(tags).unwrap_or_default(), tags(view));
        self.tags(id, &tags_before, &tags)?;
        self.comment(id, before.and_then(|before| before.comment.as_deref()), view.comment.as_deref())
    }

    fn schema_name(&self, id: ObjectId) -> String {
        self.transaction.state.schemas.get(&id).map(|schema| schema.name.clone()).unwrap_or_default()
    }

    fn drop_table(&mut self, id: ObjectId) {
        for table in [
            "ducklake_table",
            "ducklake_column",
            "ducklake_column_tag",
            "ducklake_partition_info",
            "ducklake_sort_info",
            "ducklake_data_file",
            "ducklake_delete_file",
        ] {
            self.end(table, &format!("table_id = {id}"));
        }
        self.end("ducklake_tag", &format!("object_id = {id}"));
        self.changes.dropped_tables.insert(id);
    }

    fn create_table(&mut self, table: &Table) -> Result<()> {
        let id = self.real(table.id);
        let schema = self.schema_name(table.schema);
        self.changes.created.push(("table", schema, table.name.clone()));
        self.table_row(id, table)?;
        let mut order = 0;
        let mut columns = Vec::new();
        flatten(&table.columns, None, &mut columns);
        let mut rows = column_rows();
        for (column, parent) in &columns {
            order += 1;
            rows.add(&self.column_row(id, column, *parent, order)?);
            self.column_comment(id, column.id, None, column.comment.as_deref())?;
            self.column_tags(id, column.id, None, Some(&column.tags))?;
        }
        self.statements.extend(rows.finish());
        self.keep_column_ids(id, table, &columns, order)?;
        self.partition(id, &[], table)?;
        self.sort(id, &[], table)?;
        self.comment(id, None, table.comment.as_deref())?;
        self.tags(id, &BTreeMap::new(), &table.tags)?;
        self.options(Some(("table", id)), &BTreeMap::new(), &table.options)?;
        self.new_version(id);
        if self.inlines(table) {
            self.create_inlined(id, table)?;
        }
        Ok(())
    }

    fn table_row(&mut self, id: ObjectId, table: &Table) -> Result<()> {
        let row = format!(
            "INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, end_snapshot, schema_id, table_name, path, \
             path_is_relative) VALUES ({id}, {}, {}, NULL, {}, {}, {}, {})",
            uuid(&table.uuid)?,
            self.snapshot,
            self.real(table.schema),
            text(&table.name)?,
            text(&table.path.path)?,
            boolean(table.path.relative)
        );
        self.push(row);
        Ok(())
    }

    /// A row of `ducklake_column` for `column_rows`.
    fn column_row(
        &self,
        table: ObjectId,
        column: &Column,
        parent: Option<ColumnId>,
        order: i64,
    ) -> Result<String> {
        let (default, kind, dialect) = match &column.default {
            // As DuckDB writes that there is none.
            None => ("NULL", if column.kind.is_nested() { "" } else { "literal" }, "duckdb"),
            // This text as a literal would be read as none.
            Some(DefaultValue::Literal(value)) if value == "NULL" => ("'NULL'", "expression", "duckdb"),
            Some(DefaultValue::Literal(value)) => (value.as_str(), "literal", "duckdb"),
            Some(DefaultValue::Expression { sql, dialect }) => (sql.as_str(), "expression", dialect.as_str()),
        };
        Ok(format!(
            "{}, {}, NULL, {table}, {order}, {}, '{}', {}, {}, {}, {}, '{kind}', {}",
            column.id,
            self.snapshot,
            text(&column.name)?,
            column.kind,
            optional_text(column.initial_default.as_deref())?,
            text(default)?,
            boolean(column.nullable),
            optional(parent),
            text(dialect)?
        ))
    }

    /// A column that was made and dropped in one transaction leaves no row, and yet files may carry its number. A row
    /// that no snapshot sees keeps the number from being given out again.
    fn keep_column_ids(
        &mut self,
        id: ObjectId,
        table: &Table,
        columns: &[(&Column, Option<ColumnId>)],
        order: i64,
    ) -> Result<()> {
        let last = table.next_column - 1;
        if last < 1 || columns.iter().any(|(column, _)| column.id >= last) {
            return Ok(());
        }
        let snapshot = self.snapshot;
        self.push(format!(
            "INSERT INTO ducklake_column (column_id, begin_snapshot, end_snapshot, table_id, column_order, column_name, \
             column_type, initial_default, default_value, nulls_allowed, parent_column, default_value_type, \
             default_value_dialect) SELECT {last}, {snapshot}, {snapshot}, {id}, {}, 'dropped', 'int32', NULL, 'NULL', \
             TRUE, NULL, 'literal', 'duckdb' WHERE NOT EXISTS \
             (SELECT 1 FROM ducklake_column WHERE table_id = {id} AND column_id >= {last})",
            order + 1
        ));
        Ok(())
    }

    async fn alter_table(&mut self, session: &mut Session, before: &Table, table: &Table) -> Result<()> {
        let id = table.id;
        self.options(Some(("table", id)), &before.options, &table.options)?;
        if !differ_beyond_options(before, table) {
            return Ok(());
        }
        self.changes.altered_tables.insert(id);
        if (&before.name, before.schema, &before.path) != (&table.name, table.schema, &table.path) {
            self.end("ducklake_table", &format!("table_id = {id}"));
            self.table_row(id, table)?;
            // The word that DuckDB looks at for names that are taken.
            let schema = self.schema_name(table.schema);
            self.changes.created.push(("table", schema, table.name.clone()));
        }
        let columns_changed = self.alter_columns(session, before, table).await?;
        let partition_changed = before.partition != table.partition;
        if partition_changed {
            self.partition(id, &before.partition, table)?;
        }
        if before.sort != table.sort {
            self.sort(id, &before.sort, table)?;
        }
        self.comment(id, before.comment.as_deref(), table.comment.as_deref())?;
        self.tags(id, &before.tags, &table.tags)?;
        if columns_changed || partition_changed {
            self.new_version(id);
            // Rows written from now on have other columns. DuckDB writes them to the newest of these tables, so there
            // must be one, even where it would make none now.
            let has_some = !load::inlined_tables(session, id).await?.is_empty();
            if (self.inlines(table) || has_some) && inlined::fits(self.dialect, table) {
                self.create_inlined(id, table)?;
            }
        }
        Ok(())
    }

    async fn alter_columns(&mut self, session: &mut Session, before: &Table, table: &Table) -> Result<bool> {
        let id = table.id;
        let (mut old, mut new) = (Vec::new(), Vec::new());
        flatten(&before.columns, None, &mut old);
        flatten(&table.columns, None, &mut new);
        let old: BTreeMap<ColumnId, _> =
            old.into_iter().map(|(column, parent)| (column.id, (column, parent))).collect();

        let sql = format!(
            "SELECT column_id, column_order FROM ducklake_column WHERE table_id = {id} AND end_snapshot IS NULL"
        );
        let mut orders = BTreeMap::new();
        for row in session.query(sql).await? {
            orders.insert(row.integer(0)?, row.integer(1)?);
        }
        let last = orders.values().max().copied().unwrap_or(0);
        let orders = place(&new, &orders);

        let mut rows = column_rows();
        let (mut ended, mut changed) = (Vec::new(), false);
        for (column, parent) in &new {
            let order = orders[&column.id];
            let before = old.get(&column.id);
            let (same, was) = match before {
                None => (false, false),
                Some((before, before_parent)) => {
                    (same_row(before, column) && before_parent == parent && order.1, true)
                }
            };
            if !same {
                changed = true;
                if was {
                    ended.push(column.id);
                }
                rows.add(&self.column_row(id, column, *parent, order.0)?);
            }
            let comment = before.and_then(|(before, _)| before.comment.as_deref());
            self.column_comment(id, column.id, comment, column.comment.as_deref())?;
            self.column_tags(id, column.id, before.map(|(before, _)| &before.tags), Some(&column.tags))?;
        }
        for (column, _) in
            old.values().filter(|(column, _)| !new.iter().any(|(kept, _)| kept.id == column.id))
        {
            changed = true;
            ended.push(column.id);
            self.column_comment(id, column.id, column.comment.as_deref(), None)?;
            self.column_tags(id, column.id, Some(&column.tags), None)?;
        }
        if !ended.is_empty() {
            self.end("ducklake_column", &format!("table_id = {id} AND column_id IN ({})", list(&ended)));
        }
        self.statements.extend(rows.finish());
        let retyped = new.iter().filter_map(|(column, _)| {
            let (before, _) = old.get(&column.id)?;
            (!keeps_texts(before.kind, column.kind)).then_some((*before, *column))
        });
        for (before, column) in retyped {
            let kept: Vec<String> = load::inlined_tables(session, id).await?.into_values().collect();
            let kinds = (before.kind, column.kind);
            let stats = retyped_stats(session, id, column.id, kinds, (&kept, &before.name)).await?;
            self.statements.extend(stats);
            // DuckDB keeps what it knows of a table's statistics until this number changes.
            self.next_file_id += 1;
        }
        if table.next_column > before.next_column {
            self.keep_column_ids(id, table, &new, last + new.len() as i64)?;
        }
        Ok(changed)
    }

    fn partition(
        &mut self,
        id: ObjectId,
        before: &[crate::state::PartitionKey],
        table: &Table,
    ) -> Result<()> {
        if !before.is_empty() {
            self.end("ducklake_partition_info", &format!("table_id = {id}"));
        }
        if table.partition.is_empty() {
            return Ok(());
        }
        let partition = self.catalog_id();
        self.partition_ids.insert(id, partition);
        let snapshot = self.snapshot;
        self.push(format!(
            "INSERT INTO ducklake_partition_info (partition_id, table_id, begin_snapshot, end_snapshot) VALUES \
             ({partition}, {id}, {snapshot}, NULL)"
        ));
        let mut rows = Rows::into(
            "ducklake_partition_column",
            "partition_id, table_id, partition_key_index, column_id, \"transform\"",
        );
        for (index, key) in table.partition.iter().enumerate() {
            let transform = load::transform_name(key.transform);
            rows.add(&format!("{partition}, {id}, {index}, {}, '{transform}'", key.column));
        }
        self.statements.extend(rows.finish());
        Ok(())
    }

    fn sort(&mut self, id: ObjectId, before: &[crate::state::SortKey], table: &Table) -> Result<()> {
        if !before.is_empty() {
            self.end("ducklake_sort_info", &format!("table_id = {id}"));
        }
        if table.sort.is_empty() {
            return Ok(());
        }
        let sort = self.catalog_id();
        let snapshot = self.snapshot;
        self.push(format!(
            "INSERT INTO ducklake_sort_info (sort_id, table_id, begin_snapshot, end_snapshot) VALUES \
             ({sort}, {id}, {snapshot}, NULL)"
        ));
        let mut rows = Rows::into(
            "ducklake_sort_expression",
            "sort_id, table_id, sort_key_index, expression, dialect, sort_direction, null_order",
        );
        for (index, key) in table.sort.iter().enumerate() {
            rows.add(&format!(
                "{sort}, {id}, {index}, {}, {}, '{}', '{}'",
                text(&key.expression)?,
                text(&key.dialect)?,
                if key.descending { "DESC" } else { "ASC" },
                if key.nulls_first { "NULLS_FIRST" } else { "NULLS_LAST" },
            ));
        }
        self.statements.extend(rows.finish());
        Ok(())
    }

    fn comment(&mut self, object: ObjectId, before: Option<&str>, after: Option<&str>) -> Result<()> {
        self.tag(object, "comment", before, after)
    }

    /// Harrier's own tags of an object.
    fn tags(
        &mut self,
        object: ObjectId,
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
    ) -> Result<()> {
        for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
            let value = |tags: &BTreeMap<String, String>| tags.get(key).cloned();
            self.tag(object, key, value(before).as_deref(), value(after).as_deref())?;
        }
        Ok(())
    }

    fn tag(&mut self, object: ObjectId, key: &str, before: Option<&str>, after: Option<&str>) -> Result<()> {
        if before == after {
            return Ok(());
        }
        let key = text(key)?;
        if before.is_some() {
            self.end("ducklake_tag", &format!("object_id = {object} AND \"key\" = {key}"));
        }
        if let Some(value) = after {
            let row = format!("{object}, {}, NULL, {key}, {}", self.snapshot, text(value)?);
            self.push(format!(
                "INSERT INTO ducklake_tag (object_id, begin_snapshot, end_snapshot, \"key\", \"value\") VALUES ({row})"
            ));
        }
        Ok(())
    }

    fn column_comment(
        &mut self,
        table: ObjectId,
        column: ColumnId,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<()> {
        self.column_tag((table, column), "comment", before, after)
    }

    /// Harrier's own tags of a column; `None` where there is no such column.
    fn column_tags(
        &mut self,
        table: ObjectId,
        column: ColumnId,
        before: Option<&BTreeMap<String, String>>,
        after: Option<&BTreeMap<String, String>>,
    ) -> Result<()> {
        let none = BTreeMap::new();
        let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
        for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
            let value = |tags: &BTreeMap<String, String>| tags.get(key).cloned();
            // On the table, since DuckDB opens no lake in which a column has other tags than a comment.
            self.tag(table, &column_tag_key(column, key), value(before).as_deref(), value(after).as_deref())?;
        }
        Ok(())
    }

    fn column_tag(
        &mut self,
        (table, column): (ObjectId, ColumnId),
        key: &str,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<()> {
        if before == after {
            return Ok(());
        }
        let key = text(key)?;
        if before.is_some() {
            let condition = format!("table_id = {table} AND column_id = {column} AND \"key\" = {key}");
            self.end("ducklake_column_tag", &condition);
        }
        if let Some(value) = after {
            let row = format!("{table}, {column}, {}, NULL, {key}, {}", self.snapshot, text(value)?);
            self.push(format!(
                "INSERT INTO ducklake_column_tag (table_id, column_id, begin_snapshot, end_snapshot, \"key\", \"value\") \
                 VALUES ({row})"
            ));
        }
        Ok(())
    }

    /// Options have no snapshots: the rows themselves change.
    fn options(
        &mut self,
        scope: Option<(&str, ObjectId)>,
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
    ) -> Result<()> {
        let (condition, columns) = match scope {
            Some((scope, id)) => {
                (format!("\"scope\" = '{scope}' AND scope_id = {id}"), format!("'{scope}', {id}"))
            }
            None => ("\"scope\" IS NULL".to_string(), "NULL, NULL".to_string()),
        };
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for key in keys {
            let (old, new) = (before.get(key), after.get(key));
            if old == new {
                continue;
            }
            if scope.is_none() && load::is_fixed(key) {
                return Err(Error::Unsupported(format!("\"{key}\" is no option that can be set")));
            }
            self.push(format!(
                "DELETE FROM ducklake_metadata WHERE \"key\" = {} AND {condition}",
                text(key)?
            ));
            if let Some(value) = new {
                let row = format!("{}, {}, {columns}", text(key)?, text(value)?);
                self.push(format!(
                    "INSERT INTO ducklake_metadata (\"key\", \"value\", \"scope\", scope_id) VALUES ({row})"
                ));
            }
        }
        Ok(())
    }

    /// Rows written under this table from now on may differ from those before.
    fn new_version(&mut self, id: ObjectId) {
        if self.versioned.insert(id) {
            let (snapshot, version) = (self.snapshot, self.schema_version);
            self.push(format!(
                "INSERT INTO ducklake_schema_versions (begin_snapshot, schema_version, table_id) VALUES \
                 ({snapshot}, {version}, {id})"
            ));
        }
    }

    /// Whether DuckDB would keep small inserts into this table in the catalog, and so expect the table for them.
    fn inlines(&self, table: &Table) -> bool {
        let limit =
            self.transaction.state.option(table, INLINING_OPTION).and_then(|limit| limit.parse::<i64>().ok());
        limit != Some(0) && inlined::fits(self.dialect, table)
    }

    fn create_inlined(&mut self, id: ObjectId, table: &Table) -> Result<String> {
        let kept = inlined::data_table(id, self.schema_version);
        self.register_inlined(id, self.schema_version, &kept, table)?;
        Ok(kept)
    }

    fn register_inlined(&mut self, id: ObjectId, version: i64, kept: &str, table: &Table) -> Result<()> {
        let columns = table.columns.iter().map(|column| (column.name.as_str(), column.kind));
        self.push(inlined::create(self.dialect, kept, columns)?);
        self.push(format!(
            "INSERT INTO ducklake_inlined_data_tables (table_id, table_name, schema_version) VALUES \
             ({id}, {}, {version})",
            text(kept)?
        ));
        Ok(())
    }

    // Rows.

    async fn data(&mut self, session: &mut Session) -> Result<()> {
        let transaction = self.transaction;
        for (id, changes) in &transaction.data {
            // The rows of a table that the transaction has dropped go with it.
            if let Some(table) = transaction.state.tables.get(id)
                && !is_idle(changes)
            {
                self.table_data(session, table, changes).await?;
            }
        }
        Ok(())
    }

    async fn table_data(
        &mut self,
        session: &mut Session,
        table: &Table,
        changes: &TableChanges,
    ) -> Result<()> {
        let id = self.real(table.id);
        self.words(id, changes);
        let mut totals = stats::Totals::load(session, id, &table.columns).await?;
        totals.verify_first_values(session, table, changes).await?;
        self.remove(session, id, changes, &mut totals).await?;
        self.delete(id, changes)?;
        self.add(id, table, changes, &mut totals)?;
        self.keep(session, id, table, changes, &mut totals).await?;
        self.statements.extend(totals.write()?);
        Ok(())
    }

    fn words(&mut self, id: ObjectId, changes: &TableChanges) {
        let words = &mut self.changes;
        let by_file = |deletes: &NewDeletes| matches!(deletes, NewDeletes::File { .. });
        let removes_rows = changes.removed_inlined || !changes.deleted_inlined.is_empty();
        if changes.compacts {
            // DuckDB compares deletes in files with the one word, and deletes in the catalog with the other only.
            words.flushed.insert(id);
            if !changes.removed.is_empty() || !changes.deleted.is_empty() {
                words.rewritten.insert(id);
            }
            return;
        }
        if !changes.added.is_empty() {
            words.inserted.insert(id);
        }
        if !changes.inlined.is_empty() {
            words.inlined_inserted.insert(id);
        }
        if !changes.removed.is_empty() || changes.deleted.values().any(by_file) {
            words.deleted.insert(id);
        }
        if removes_rows || changes.deleted.values().any(|deletes| !by_file(deletes)) {
            words.inlined_deleted.insert(id);
        }
        // An INSERT OVERWRITE of an empty table with nothing is still a word to those who insert meanwhile.
        if changes.replaces && changes.removed.is_empty() && !removes_rows {
            words.deleted.insert(id);
        }
    }

    /// Whole files, and all kept rows.
    async fn remove(
        &mut self,
        session: &mut Session,
        id: ObjectId,
        changes: &TableChanges,
        totals: &mut stats::Totals,
    ) -> Result<()> {
        if !changes.removed.is_empty() {
            let files = list(&changes.removed);
            let sql = format!(
                "SELECT sum(file_size_bytes) FROM ducklake_data_file WHERE data_file_id IN ({files})"
            );
            let bytes =
                session.query(sql).await?.first().map(|row| row.optional_integer(0)).transpose()?.flatten();
            totals.remove_bytes(bytes.unwrap_or(0));
            self.end("ducklake_data_file", &format!("data_file_id IN ({files})"));
            self.end("ducklake_delete_file", &format!("data_file_id IN ({files})"));
        }
        let tables = load::inlined_tables(session, id).await?;
        if changes.removed_inlined {
            let since = changes.since;
            for table in tables.values() {
                let (table, condition) = (name(table)?, format!("begin_snapshot <= {since}"));
                self.end(&table, &condition);
            }
        } else {
            let mut rows: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
            for (version, row) in &changes.deleted_inlined {
                rows.entry(*version).or_default().push(*row);
            }
            for (version, rows) in rows {
                let table = tables.get(&version).ok_or_else(|| {
                    Error::Corrupt(format!("the catalog keeps no rows of version {version} of table {id}"))
                })?;
                self.end(&name(table)?, &format!("row_id IN ({})", list(&rows)));
            }
        }
        Ok(())
    }

    /// Rows of files that were there before.
    fn delete(&mut self, id: ObjectId, changes: &TableChanges) -> Result<()> {
        let mut inline = Vec::new();
        let mut files = Vec::new();
        for (file, deletes) in &changes.deleted {
            match deletes {
                NewDeletes::Inline(positions) => {
                    inline.extend(positions.iter().map(|position| (*file, *position)));
                }
                NewDeletes::File { file: written, .. } => files.push((*file, written)),
            }
        }
        if !files.is_empty() {
            let replaced = list(files.iter().map(|(file, _)| file));
            self.end("ducklake_delete_file", &format!("data_file_id IN ({replaced})"));
            self.delete_files(id, &files)?;
        }
        self.inline_deletes(id, &inline);
        Ok(())
    }

    fn delete_files(&mut self, id: ObjectId, files: &[(i64, &NewDeleteFile)]) -> Result<()> {
        let mut rows = Rows::into(
            "ducklake_delete_file",
            "delete_file_id, table_id, begin_snapshot, end_snapshot, data_file_id, path, path_is_relative, format, \
             delete_count, file_size_bytes, footer_size, encryption_key, partial_max",
        );
        for (file, written) in files {
            let delete_id = self.file_id();
            rows.add(&format!(
                "{delete_id}, {id}, {}, NULL, {file}, {}, {}, 'parquet', {}, {}, {}, NULL, NULL",
                self.snapshot,
                text(&written.path.path)?,
                boolean(written.path.relative),
                written.rows,
                written.bytes,
                written.footer_bytes
            ));
        }
        self.statements.extend(rows.finish());
        Ok(())
    }

    fn inline_deletes(&mut self, id: ObjectId, deleted: &[(i64, i64)]) {
        if deleted.is_empty() {
            return;
        }
        let table = inlined::delete_table(id);
        self.push(inlined::create_deletes(&table));
        let mut rows = Rows::into(&table, "file_id, row_id, begin_snapshot");
        for (file, position) in deleted {
            rows.add(&format!("{file}, {position}, {}", self.snapshot));
        }
        self.statements.extend(rows.finish());
    }

    /// Files that the transaction has written.
    fn add(
        &mut self,
        id: ObjectId,
        table: &Table,
        changes: &TableChanges,
        totals: &mut stats::Totals,
    ) -> Result<()> {
        let mut files = Rows::into(
            "ducklake_data_file",
            "data_file_id, table_id, begin_snapshot, end_snapshot, file_order, path, path_is_relative, file_format, \
             record_count, file_size_bytes, footer_size, row_id_start, partition_id, encryption_key, mapping_id, \
             partial_max",
        );
        let mut columns = Rows::into(
            "ducklake_file_column_stats",
            "data_file_id, table_id, column_id, column_size_bytes, value_count, null_count, min_value, max_value, \
             contains_nan, extra_stats",
        );
        let mut partition_values = Rows::into(
            "ducklake_file_partition_value",
            "data_file_id, table_id, partition_key_index, partition_value",
        );
        let partition = self.partition_ids.get(&id).copied().or(table.partition_id);
        let (mut deletes, mut inline) = (Vec::new(), Vec::new());
        for file in &changes.added {
            let file_id = self.file_id();
            let partition = match (partition, file.partition_values.is_empty()) {
                (Some(partition), false) => Some(partition),
                (None, false) => {
                    let message = "a new file of a table without partitions has partition values";
                    return Err(Error::Corrupt(message.to_string()));
                }
                _ => None,
            };
            files.add(&format!(
                "{file_id}, {id}, {}, NULL, NULL, {}, {}, 'parquet', {}, {}, {}, {}, {}, NULL, NULL, NULL",
                self.snapshot,
                text(&file.path.path)?,
                boolean(file.path.relative),
                file.rows,
                file.bytes,
                file.footer_bytes,
                totals.add_file(file, changes.compacts),
                optional(partition)
            ));
            for (column, stats) in &file.stats {
                columns.add(&file_stats(file_id, id, *column, stats)?);
            }
            for (index, value) in file.partition_values.iter().enumerate() {
                partition_values
                    .add(&format!("{file_id}, {id}, {index}, {}", optional_text(value.as_deref())?));
            }
            self.deleted_of_new(file, file_id, &mut deletes, &mut inline);
        }
        self.statements.extend(files.finish());
        self.statements.extend(columns.finish());
        self.statements.extend(partition_values.finish());
        self.delete_files(id, &deletes)?;
        self.inline_deletes(id, &inline);
        Ok(())
    }

    /// Rows that the transaction has written and deleted again.
    fn deleted_of_new<'f>(
        &self,
        file: &'f NewFile,
        file_id: i64,
        deletes: &mut Vec<(i64, &'f NewDeleteFile)>,
        inline: &mut Vec<(i64, i64)>,
    ) {
        match &file.deletes {
            Some(written) => deletes.push((file_id, written)),
            None => inline.extend(file.deleted.iter().map(|position| (file_id, *position))),
        }
    }

    /// Rows for the catalog to keep.
    async fn keep(
        &mut self,
        session: &mut Session,
        id: ObjectId,
        table: &Table,
        changes: &TableChanges,
        totals: &mut stats::Totals,
    ) -> Result<()> {
        if changes.inlined.is_empty() {
            return Ok(());
        }
        if !inlined::fits(self.dialect, table) {
            return Err(Error::Unsupported(format!(
                "the catalog cannot keep rows of table \"{}\": its columns have names that it needs itself, or too many",
                table.name
            )));
        }
        let version = self.table_version(session, id).await?;
        let kept = inlined::data_table(id, version);
        let registered = load::inlined_tables(session, id).await?.contains_key(&version);
        let made_here = self.versioned.contains(&id)
            && self
                .statements
                .iter()
                .any(|statement| statement.starts_with(&format!("CREATE TABLE IF NOT EXISTS {kept} ")));
        if !registered && !made_here {
            self.register_inlined(id, version, &kept, table)?;
        }
        let mut names = String::from("row_id, begin_snapshot, end_snapshot");
        for column in &table.columns {
            names += ", ";
            names += &name(&column.name)?;
        }
        let mut rows = Rows::into(&kept, &names);
        for cells in &changes.inlined {
            if cells.len() != table.columns.len() {
                return Err(Error::Corrupt(format!(
                    "a row of {} cells is to be kept of table \"{}\" of {} columns",
                    cells.len(),
                    table.name,
                    table.columns.len()
                )));
            }
            let mut row = format!("{}, {}, NULL", totals.add_row(), self.snapshot);
            for (cell, column) in cells.iter().zip(&table.columns) {
                row += ", ";
                row += &inlined::literal(self.dialect, column.kind, cell)?;
            }
            rows.add(&row);
        }
        totals.add_stats(&changes.inlined_stats);
        self.statements.extend(rows.finish());
        // DuckDB keeps what it knows of a table's statistics until this number changes.
        self.next_file_id += 1;
        Ok(())
    }

    /// The version of its schema that rows of this table are written under.
    async fn table_version(&self, session: &mut Session, id: ObjectId) -> Result<i64> {
        if self.versioned.contains(&id) {
            return Ok(self.schema_version);
        }
        let sql = format!("SELECT max(schema_version) FROM ducklake_schema_versions WHERE table_id = {id}");
        let version =
            session.query(sql).await?.first().map(|row| row.optional_integer(0)).transpose()?.flatten();
        Ok(version.unwrap_or(self.head.schema_version))
    }

    /// Who owns what is new. A view that takes the place of another keeps what that had.
    fn owners(&mut self, note: &CommitNote) -> Result<()> {
        let (base, own) = (&self.transaction.base, &self.transaction.state);
        let mut pairs = Vec::new();
        for (id, real) in &self.objects {
            let replaced = own.views.get(id).and_then(|view| base.view(view.schema, &view.name));
            pairs.push((*real, replaced.filter(|old| !own.views.contains_key(&old.id)).map(|old| old.id)));
        }
        self.statements.extend(access::new_objects(&pairs, note.owner.as_deref())?);
        Ok(())
    }

    /// The snapshot itself.
    fn finish(&mut self, note: &CommitNote) -> Result<Committed> {
        // Times never run backwards, whatever the clocks of those who commit.
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
            text(&extra(self.transaction))?
        ));
        let objects = self.objects.clone();
        Ok(Committed { snapshot, state_changed: self.state_changed, objects })
    }
}

/// Whether two versions of a column are the same row of `ducklake_column`: comments and tags have rows of their own.
fn same_row(before: &Column, after: &Column) -> bool {
    let row = |column: &Column| Column {
        children: Vec::new(),
        comment: None,
        tags: BTreeMap::new(),
        ..column.clone()
    };
    row(before) == row(after)
}

fn column_rows() -> Rows {
    Rows::into(
        "ducklake_column",
        "column_id, begin_snapshot, end_snapshot, table_id, column_order, column_name, column_type, initial_default, \
         default_value, nulls_allowed, parent_column, default_value_type, default_value_dialect",
    )
}

/// Columns with those within them, and what they are within, in order.
pub(crate) fn flatten<'c>(
    columns: &'c [Column],
    parent: Option<ColumnId>,
    out: &mut Vec<(&'c Column, Option<ColumnId>)>,
) {
    for column in columns {
        out.push((column, parent));
        flatten(&column.children, Some(column.id), out);
    }
}

/// Where columns stand, and whether they stood there before: new ones at the end, as DuckDB puts them; if that is not the
/// order wanted, all are numbered anew.
fn place(
    columns: &[(&Column, Option<ColumnId>)],
    before: &BTreeMap<ColumnId, i64>,
) -> BTreeMap<ColumnId, (i64, bool)> {
    let mut next = before.values().max().copied().unwrap_or(0);
    let mut placed = BTreeMap::new();
    let mut last: BTreeMap<Option<ColumnId>, i64> = BTreeMap::new();
    for (column, parent) in columns {
        let order = before.get(&column.id).copied().unwrap_or_else(|| {
            next += 1;
            next
        });
        let last = last.entry(*parent).or_insert(i64::MIN);
        if order <= *last {
            let anew = columns.iter().zip(1..);
            let anew =
                anew.map(|((column, _), order)| (column.id, (order, before.get(&column.id) == Some(&order))));
            return anew.collect();
        }
        *last = order;
        placed.insert(column.id, (order, before.contains_key(&column.id)));
    }
    placed
}

fn file_stats(file: i64, table: ObjectId, column: ColumnId, stats: &ColumnStats) -> Result<String> {
    let (min, max) = stats::bounds(stats);
    Ok(format!(
        "{file}, {table}, {column}, {}, {}, {}, {}, {}, {}, NULL",
        optional(stats.bytes),
        optional(stats.values),
        optional(stats.nulls),
        optional_text(min)?,
        optional_text(max)?,
        optional_boolean(stats.nan)
    ))
}

/// A literal of a UUID; PostgreSQL takes nothing else.
fn uuid(value: &str) -> Result<String> {
    match Uuid::parse_str(value) {
        Ok(uuid) => Ok(format!("'{uuid}'")),
        Err(_) => Err(Error::Corrupt(format!("\"{value}\" is no UUID"))),
    }
}
