//! Name resolution of a session: temporary tables first, then those of the warehouse.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, DynamicFileCatalog, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider, TableProvider, UrlTableFactory,
};
use datafusion::common::TableReference;
use datafusion::datasource::{MemTable, TableType, ViewTable};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use futures::FutureExt;
use futures::future::BoxFuture;
use harrier_catalog::access::{Columns, Object, Privilege};
use harrier_catalog::state::{
    ColumnId, DEFAULT_SCHEMA, ObjectId, PUBLIC_SCHEMA, Schema, SnapshotId, Table, View,
};
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::Barrier;
use harrier_functions::datetime::time_zone::in_utc;
use harrier_pgcatalog::{CATALOG_SCHEMA, INFORMATION_SCHEMA, Installed};
use harrier_planner::analyzer::text_constants::TimeReading;
use harrier_sql::parser::as_of::AS_OF_MARK;
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::RwLock;

use crate::planning::stored_sql::{self, ViewForm};
use crate::planning::using_columns;
use crate::settings::time_reading;
use crate::warehouse::access::restricted_view::RestrictedView;
use crate::warehouse::access::{SessionRole, Viewer, permission_denied};
use crate::warehouse::on_commit::{OnCommitAction, OnCommitActions};
use crate::warehouse::public_schema::schema_display_name;
use crate::warehouse::relation::wrong_kind;
use crate::warehouse::snapshot::{StatementSnapshot, is_default};
use crate::warehouse::system_catalogs::server_table::{SYSTEM_SCHEMA, ServerTable};
use crate::warehouse::table::WarehouseTable;
use crate::warehouse::temporary_snapshots::TemporaryState;
use crate::warehouse::temporary_tables::{self, TemporaryTable};
use crate::warehouse::{explain, sequences, view_columns};

/// The name of the only catalog of a session with a warehouse.
pub(crate) const DEFAULT_CATALOG: &str = "warehouse";

/// Creates the schema `sys` for a session.
pub(crate) type SystemSchemaOf = fn(Arc<NameResolver>) -> Arc<dyn SchemaProvider>;

/// Resolves names for one session.
#[derive(Debug)]
pub(crate) struct NameResolver {
    snapshot: RwLock<StatementSnapshot>,
    /// Temporary tables and views.
    temporary: MemorySchemaProvider,
    on_commit_actions: OnCommitActions,
    /// The session's state. Its catalogs hold this value, hence weak, and set after both exist.
    session: OnceLock<Weak<RwLock<SessionState>>>,
    /// Additional tables of schema `sys`, provided by the server.
    server_tables: Arc<[ServerTable]>,
    system_schema: SystemSchemaOf,
    /// PostgreSQL's catalogs, once the session has begun.
    postgres: OnceLock<Installed>,
    role: Arc<SessionRole>,
    files: Arc<dyn UrlTableFactory>,
    shows_main: AtomicBool,
    this: Weak<Self>,
}

impl NameResolver {
    /// `files` opens any file, without an access check.
    pub(crate) fn new(
        server_tables: Arc<[ServerTable]>,
        system_schema: SystemSchemaOf,
        role: Arc<SessionRole>,
        files: Arc<dyn UrlTableFactory>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            server_tables,
            system_schema,
            role,
            files,
            shows_main: AtomicBool::new(false),
            snapshot: RwLock::default(),
            temporary: MemorySchemaProvider::new(),
            on_commit_actions: OnCommitActions::default(),
            session: OnceLock::new(),
            postgres: OnceLock::new(),
        })
    }

    /// To be called once, before the first statement.
    pub(crate) fn bind(&self, session: Weak<RwLock<SessionState>>) {
        assert!(self.session.set(session).is_ok(), "bound twice");
    }

    /// To be called once.
    pub(crate) fn set_postgres(&self, installed: Installed) {
        assert!(self.postgres.set(installed).is_ok(), "a session begins once");
    }

    /// The session's role.
    pub(crate) fn role(&self) -> &Arc<SessionRole> {
        &self.role
    }

    pub(crate) fn server_tables(&self) -> &[ServerTable] {
        &self.server_tables
    }

    /// Sets the snapshot of the next statement.
    pub(crate) fn set_snapshot(&self, snapshot: StatementSnapshot) {
        *self.snapshot.write() = snapshot;
    }

    pub(crate) fn snapshot(&self) -> StatementSnapshot {
        StatementSnapshot {
            shows_main: self.shows_main.load(Ordering::Relaxed),
            ..self.snapshot.read().clone()
        }
    }

    /// Sets whether the next statement is shown the schema `public` as `main`.
    pub(crate) fn set_shows_main(&self, shows_main: bool) {
        self.shows_main.store(shows_main, Ordering::Relaxed);
    }

    /// Whether the session has a temporary table or view of this name.
    pub(crate) fn is_temporary(&self, name: &TableReference) -> bool {
        name.schema().is_none_or(is_default) && self.temporary.table_exist(name.table())
    }

    /// Whether one of PostgreSQL's catalogs has this name.
    fn is_postgres(&self, name: &str) -> bool {
        let postgres = self.postgres.get().filter(|_| name.starts_with("pg_"));
        postgres.is_some_and(|postgres| postgres.catalog.table_exist(name))
    }

    /// The schema of a name: the given one, or the first of the search path.
    pub(crate) fn schema_of<'n>(&self, name: &'n TableReference) -> Cow<'n, str> {
        match name.schema() {
            Some(schema) => Cow::Borrowed(schema),
            None => Cow::Owned(self.default_schema()),
        }
    }

    /// The schema of unqualified names.
    fn default_schema(&self) -> String {
        let session = self.session.get().and_then(Weak::upgrade);
        // The caller may hold the lock.
        let state = session.as_ref().map(|session| session.read_recursive());
        let schema = state.map(|state| state.config_options().catalog.default_schema.clone());
        schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_string())
    }

    /// Whether the warehouse has a view of this name.
    pub(crate) fn has_view(&self, name: &TableReference) -> bool {
        let snapshot = self.snapshot();
        let schema = snapshot.schema(&self.schema_of(name));
        let view = schema.and_then(|schema| snapshot.state.as_ref()?.view(schema.id, name.table()));
        view.is_some()
    }

    /// The error of a statement that needs a warehouse table under this name; `what` names the statement.
    pub(crate) async fn no_table(&self, name: &TableReference, what: &str) -> DataFusionError {
        let own = self.temporary(name).await.ok().flatten();
        let kind = match &own {
            Some(own) if own.table_type() == TableType::View => return wrong_kind(name, "table"),
            Some(own) if own.downcast_ref::<MemTable>().is_some() => "a temporary table",
            Some(_) => "an external table",
            None if self.has_view(name) => return wrong_kind(name, "table"),
            None => {
                let message = format!("relation \"{}\" does not exist", name.table());
                return SqlError::new(SqlState::UNDEFINED_TABLE, message).into_datafusion();
            }
        };
        let message = format!("\"{}\" is {kind}, for which {what} is not supported", name.table());
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion()
    }

    /// The object of a table, view or sequence of the warehouse, for privileges.
    pub(crate) fn relation(&self, name: &TableReference) -> Option<Object> {
        self.relation_in(&self.snapshot(), name)
    }

    /// The same in another statement's snapshot.
    pub(crate) fn relation_in(&self, snapshot: &StatementSnapshot, name: &TableReference) -> Option<Object> {
        let schema = snapshot.schema(&self.schema_of(name))?.id;
        let state = snapshot.state.as_ref()?;
        let table = state.table(schema, name.table()).map(|table| Object::Table(table.id));
        let view = || state.view(schema, name.table()).map(|view| Object::View(view.id));
        let sequence = || state.sequence(schema, name.table()).map(|sequence| Object::Sequence(sequence.id));
        table.or_else(view).or_else(sequence)
    }

    /// Whether a schema of this name exists.
    pub(crate) fn has_schema(&self, name: &str) -> bool {
        is_default(name) || name == SYSTEM_SCHEMA || self.snapshot().schema(name).is_some()
    }

    /// Lists the temporary tables and views, sorted by name.
    pub(super) async fn temporary_tables(&self) -> Vec<TemporaryTable> {
        let mut names = self.temporary.table_names();
        names.sort();
        let mut tables = Vec::with_capacity(names.len());
        for name in names {
            if let Ok(Some(table)) = self.temporary.table(&name).await {
                let is_view = table.table_type() == TableType::View;
                tables.push(TemporaryTable { name, schema: table.schema(), is_view });
            }
        }
        tables
    }

    /// The temporary table or view of this name.
    pub(crate) async fn temporary(&self, name: &TableReference) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.is_temporary(name) {
            true => self.temporary.table(name.table()).await,
            false => Ok(None),
        }
    }

    /// Saves the temporary tables and views.
    pub(crate) async fn temporary_state(&self) -> Result<TemporaryState> {
        let mut state = TemporaryState::default();
        for name in self.temporary.table_names() {
            if let Some(table) = self.temporary.table(&name).await? {
                state.add(name, table).await;
            }
        }
        Ok(state)
    }

    /// Restores saved temporary tables and views.
    pub(crate) async fn restore_temporary(&self, state: TemporaryState) -> Result<()> {
        self.drop_temporary()?;
        for (name, table) in state.restore().await {
            self.temporary.register_table(name, table)?;
        }
        Ok(())
    }

    /// Registers a commit action of a temporary table.
    pub(crate) async fn add_on_commit_action(&self, name: &str, what: OnCommitAction) -> Result<()> {
        if let Some(table) = self.temporary.table(name).await? {
            self.on_commit_actions.add(name, &table, what);
        }
        Ok(())
    }

    /// Runs the commit actions. To be called when a transaction has been committed, before the next
    /// statement.
    pub(crate) async fn run_on_commit(&self) -> Result<()> {
        if self.on_commit_actions.is_empty() {
            return Ok(());
        }
        let mut own = HashMap::new();
        for name in self.temporary.table_names() {
            if let Some(table) = self.temporary.table(&name).await? {
                own.insert(name, table);
            }
        }
        for (name, table, what) in self.on_commit_actions.due(&own) {
            match (what, table.downcast_ref::<MemTable>()) {
                (OnCommitAction::DeleteRows, Some(table)) => temporary_tables::truncate(table).await,
                (OnCommitAction::DeleteRows, None) => {}
                (OnCommitAction::Drop, _) => drop(self.temporary.deregister_table(&name)?),
            }
        }
        Ok(())
    }

    /// Drops all temporary tables and views.
    pub(crate) fn drop_temporary(&self) -> Result<()> {
        for name in self.temporary.table_names() {
            self.temporary.deregister_table(&name)?;
        }
        Ok(())
    }

    /// The warehouse table of a name, unless a temporary table or view hides it.
    pub(crate) fn table(&self, name: &TableReference) -> Option<Arc<Table>> {
        if self.is_temporary(name) {
            return None;
        }
        let snapshot = self.snapshot();
        let schema = snapshot.schema(&self.schema_of(name))?;
        snapshot.state.as_ref()?.table(schema.id, name.table()).cloned()
    }

    pub(crate) fn session(&self) -> Result<SessionState> {
        let session = self.session.get().and_then(Weak::upgrade);
        session
            .map(|session| session.read().clone())
            .ok_or_else(|| DataFusionError::Internal("the session is gone".to_string()))
    }

    async fn provider(
        &self,
        schema: &str,
        name: &str,
        context: &LookupContext,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        let mut snapshot = self.snapshot();
        let Some(catalog) = snapshot.catalog.clone() else {
            return Ok(None);
        };
        let (name, past) = match name.split_once(AS_OF_MARK) {
            Some((name, past)) => (name, Some(past)),
            None => (name, None),
        };
        if let Some(past) = past {
            let state = match past.parse::<SnapshotId>() {
                Ok(id) => catalog.at(id).await,
                Err(_) => {
                    let moment = match context {
                        LookupContext::Session => {
                            let TimeReading { zone, order } = time_reading(&self.session()?);
                            in_utc(past, &zone, order)
                        }
                        // A view's definition stores a time in UTC if it was created in another zone.
                        LookupContext::View { .. } => None,
                    };
                    catalog.at_time(moment.as_deref().unwrap_or(past)).await
                }
            };
            snapshot.state = Some(state.map_err(explain)?);
            snapshot.data = Arc::default();
        }
        if let LookupContext::View { viewer, .. } = context {
            snapshot.viewer = viewer.clone();
        }
        let (Some(state), Some(schema)) = (&snapshot.state, snapshot.schema(schema)) else {
            return Ok(None);
        };
        if let Some(table) = state.table(schema.id, name) {
            self.check_usage(&snapshot, schema, context)?;
            let table = WarehouseTable::try_new(self.session()?, &snapshot, Arc::clone(table))?;
            let table = match past {
                Some(_) => table.into_as_of(),
                None => table,
            };
            return match context.columns_below(table.table()) {
                Some(below) => {
                    view_columns::hide_later_columns(table, below).map(|view| Some(Arc::new(view) as _))
                }
                None => Ok(Some(Arc::new(table))),
            };
        }
        if let Some(reason) = state.unusable(schema.id, name) {
            let message = format!("table \"{name}\" cannot be used: {reason}");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        if let Some(sequence) = state.sequence(schema.id, name) {
            self.check_usage(&snapshot, schema, context)?;
            return sequences::table_of(&snapshot, sequence).await.map(Some);
        }
        let Some(view) = state.view(schema.id, name) else {
            return Ok(None);
        };
        self.check_usage(&snapshot, schema, context)?;
        let object = Object::View(view.id);
        match snapshot.viewer.columns(object, Privilege::Select) {
            Columns::All => Ok(Some(Arc::new(self.view_in(view, context.enclosing()).await?))),
            Columns::Some(columns) => {
                let view = self.view_in(view, context.enclosing()).await?;
                Ok(Some(Arc::new(RestrictedView::new(view, object.describe(state), columns))))
            }
            Columns::None => Err(permission_denied(&object.describe(state))),
        }
    }

    /// Usage of schemas within a view's definition was checked when the view was created.
    fn check_usage(
        &self,
        snapshot: &StatementSnapshot,
        schema: &Schema,
        context: &LookupContext,
    ) -> Result<()> {
        match (context, &snapshot.state) {
            (LookupContext::Session, Some(state)) => {
                snapshot.viewer.check(Object::Schema(schema.id), Privilege::Usage, state)
            }
            _ => Ok(()),
        }
    }

    /// Plans a view, with its owner's privileges.
    ///
    /// Errors: those of planning.
    pub(crate) async fn view(&self, view: &View) -> Result<ViewTable> {
        self.view_in(view, &[]).await
    }

    /// The same within the views `enclosing`, whose definitions refer to it in turn.
    ///
    /// Errors: recursion: it is one of them (42P17).
    async fn view_in(&self, view: &View, enclosing: &[ObjectId]) -> Result<ViewTable> {
        if enclosing.contains(&view.id) {
            let message = format!("infinite recursion detected in rules for relation \"{}\"", view.name);
            return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message).into_datafusion());
        }
        let enclosing: Arc<[ObjectId]> = enclosing.iter().copied().chain([view.id]).collect();
        let mut state = self.session()?;
        let viewer = self.snapshot().viewer.owner_of(view.id);
        let reads_files = viewer.is_superuser();
        let names = self.this.upgrade();
        let names = names.ok_or_else(|| DataFusionError::Internal("the session is gone".to_string()))?;
        let columns_below = Arc::new(view.columns_below.clone());
        let context = LookupContext::View { viewer, enclosing, columns_below };
        let catalogs = Arc::new(SessionCatalog { names, context });
        let list = MemoryCatalogProviderList::new();
        list.register_catalog(DEFAULT_CATALOG.to_string(), catalogs);
        let list: Arc<dyn CatalogProviderList> = Arc::new(list);
        state.register_catalog_list(match reads_files {
            true => Arc::new(DynamicFileCatalog::new(list, Arc::clone(&self.files))),
            false => list,
        });
        // Independent of the reader's search path.
        state.config_mut().options_mut().catalog.default_schema = DEFAULT_SCHEMA.to_string();
        let state = stored_sql::with_own_settings(state);
        let form = ViewForm::of(&view.dialect);
        let sql = match form {
            Some(_) => view.sql.clone(),
            // DuckDB's spelling in stored views.
            None => view.sql.replace("count_star()", "count(*)"),
        };
        let planned = async {
            let statement = stored_sql::view(&sql, form.unwrap_or_default())?;
            Box::pin(using_columns::plan(&state, statement)).await
        };
        let plan = planned.await.map_err(|error| match form {
            Some(_) => error,
            None => SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("view \"{}\" is written in the SQL of {}: {error}", view.name, view.dialect),
            )
            .into_datafusion(),
        })?;
        let plan = view_columns::with_aliases(plan, &view.column_aliases)?;
        let plan = match form.is_some_and(|form| form.is_barrier) {
            true => Barrier::around(plan),
            false => plan,
        };
        Ok(ViewTable::new(plan, Some(view.sql.clone())))
    }
}

/// The context in which names are looked up.
#[derive(Debug, Clone)]
enum LookupContext {
    /// A statement of the session.
    Session,
    /// The definition of the last view of `enclosing`, read as `viewer`.
    View { viewer: Viewer, enclosing: Arc<[ObjectId]>, columns_below: Arc<BTreeMap<ObjectId, ColumnId>> },
}

impl LookupContext {
    fn enclosing(&self) -> &[ObjectId] {
        match self {
            Self::Session => &[],
            Self::View { enclosing, .. } => enclosing,
        }
    }

    /// The id from which on columns of a table were added after the view was created; `None` if there are
    /// none.
    fn columns_below(&self, table: &Table) -> Option<ColumnId> {
        match self {
            Self::Session => None,
            Self::View { columns_below, .. } => {
                let below = *columns_below.get(&table.id)?;
                table.columns.iter().any(|column| column.id >= below).then_some(below)
            }
        }
    }
}

/// The catalog of a session with a warehouse.
#[derive(Debug)]
pub(crate) struct SessionCatalog {
    names: Arc<NameResolver>,
    context: LookupContext,
}

impl SessionCatalog {
    pub(crate) fn new(names: Arc<NameResolver>) -> Self {
        Self { names, context: LookupContext::Session }
    }
}

impl CatalogProvider for SessionCatalog {
    fn schema_names(&self) -> Vec<String> {
        let snapshot = self.names.snapshot();
        let mut names = match &snapshot.state {
            Some(state) => {
                let display_name = |schema: &Arc<Schema>| {
                    schema_display_name(state, schema, snapshot.shows_main).to_string()
                };
                state.schemas.values().map(display_name).collect()
            }
            None => vec![snapshot.display_schema(DEFAULT_SCHEMA).to_string()],
        };
        if !names.iter().any(|name| name == SYSTEM_SCHEMA) {
            names.push(SYSTEM_SCHEMA.to_string());
        }
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match (self.names.postgres.get(), name) {
            (Some(postgres), CATALOG_SCHEMA) => return Some(Arc::clone(&postgres.catalog)),
            (Some(postgres), INFORMATION_SCHEMA) => return Some(Arc::clone(&postgres.information)),
            _ => {}
        }
        let known = is_default(name) || self.names.snapshot().schema(name).is_some();
        if name == SYSTEM_SCHEMA && !known {
            return Some((self.names.system_schema)(Arc::clone(&self.names)));
        }
        let (names, context) = (Arc::clone(&self.names), self.context.clone());
        known.then(|| Arc::new(SessionSchema { names, context, name: name.to_string() }) as _)
    }
}

#[derive(Debug)]
struct SessionSchema {
    names: Arc<NameResolver>,
    context: LookupContext,
    name: String,
}

impl SessionSchema {
    /// Whether temporary tables are found in this schema; never from a view's definition.
    fn has_temporary(&self) -> bool {
        let is_first = || self.name == self.names.default_schema();
        matches!(self.context, LookupContext::Session) && (is_default(&self.name) || is_first())
    }

    fn boxed_table<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>> {
        async move {
            if self.has_temporary()
                && let Some(own) = self.names.temporary.table(name).await?
            {
                return Ok(Some(own));
            }
            if let Some(found) = self.names.provider(&self.name, name, &self.context).await? {
                return Ok(Some(found));
            }
            match self.names.postgres.get() {
                // `pg_catalog` is implicitly first in every search path.
                Some(postgres) if name.starts_with("pg_") => postgres.catalog.table(name).await,
                _ => Ok(None),
            }
        }
        .boxed()
    }

    fn boxed_table_type<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<TableType>>> {
        async move {
            if self.has_temporary()
                && let Some(own) = self.names.temporary.table_type(name).await?
            {
                return Ok(Some(own));
            }
            let snapshot = self.names.snapshot();
            let (Some(state), Some(schema)) = (&snapshot.state, snapshot.schema(&self.name)) else {
                return Ok(None);
            };
            let table = state.table(schema.id, name).map(|_| TableType::Base);
            Ok(table.or_else(|| state.view(schema.id, name).map(|_| TableType::View)))
        }
        .boxed()
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl SchemaProvider for SessionSchema {
    fn table_names(&self) -> Vec<String> {
        let snapshot = self.names.snapshot();
        let mut names = if self.has_temporary() { self.names.temporary.table_names() } else { vec![] };
        if let (Some(state), Some(schema)) = (&snapshot.state, snapshot.schema(&self.name)) {
            let tables = state.tables.values().filter(|table| table.schema == schema.id);
            names.extend(tables.map(|table| table.name.clone()));
            let views = state.views.values().filter(|view| view.schema == schema.id);
            names.extend(views.map(|view| view.name.clone()));
        }
        names.sort();
        names.dedup();
        names
    }

    fn table<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn TableProvider>>>> {
        self.boxed_table(name)
    }

    fn table_type<'a: 'f, 'b: 'f, 'f>(&'a self, name: &'b str) -> BoxFuture<'f, Result<Option<TableType>>> {
        self.boxed_table_type(name)
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if !self.has_temporary() {
            return Err(SqlError::new(
                SqlState::INVALID_SCHEMA_NAME,
                format!("tables of a session are in schema \"{PUBLIC_SCHEMA}\", not in \"{}\"", self.name),
            )
            .into_datafusion());
        }
        self.names.temporary.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.has_temporary() {
            true => self.names.temporary.deregister_table(name),
            false => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        if self.has_temporary() && self.names.temporary.table_exist(name) {
            return true;
        }
        let snapshot = self.names.snapshot();
        match (&snapshot.state, snapshot.schema(&self.name)) {
            (Some(state), Some(schema)) => {
                let name = name.split_once(AS_OF_MARK).map_or(name, |(name, _)| name);
                state.table(schema.id, name).is_some()
                    || state.view(schema.id, name).is_some()
                    || self.names.is_postgres(name)
            }
            _ => self.names.is_postgres(name),
        }
    }
}
