//! The names of a session: its own tables, which end with it, before those of the warehouse.

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
use crate::warehouse::access::restricted_view::GuardedView;
use crate::warehouse::access::{SessionRole, Viewer, denied};
use crate::warehouse::on_commit::{AtCommit, AtCommits};
use crate::warehouse::public_schema::told_name;
use crate::warehouse::relation::wrong_kind;
use crate::warehouse::snapshot::{Sight, is_default};
use crate::warehouse::system_catalogs::server_table::{SYSTEM_SCHEMA, ServerTable};
use crate::warehouse::table::WarehouseTable;
use crate::warehouse::temporary_snapshots::OwnState;
use crate::warehouse::temporary_tables::{self, OwnTable};
use crate::warehouse::{explain, sequences, view_columns};

/// The name of the one catalog of a session with a warehouse.
pub(crate) const DEFAULT_CATALOG: &str = "warehouse";

/// Makes the schema `sys` over the names of a session.
pub(crate) type SystemSchemaOf = fn(Arc<Names>) -> Arc<dyn SchemaProvider>;

/// The names of one session.
#[derive(Debug)]
pub(crate) struct Names {
    sight: RwLock<Sight>,
    /// Tables and views of this session alone.
    own: MemorySchemaProvider,
    at_commits: AtCommits,
    /// Holds this value in its catalogs: hence weak, and set after both exist.
    session: OnceLock<Weak<RwLock<SessionState>>>,
    /// Of schema `sys`, beside those about the warehouse.
    server_tables: Arc<[ServerTable]>,
    system_schema: SystemSchemaOf,
    /// PostgreSQL's catalogs, if the session has begun.
    postgres: OnceLock<Installed>,
    role: Arc<SessionRole>,
    files: Arc<dyn UrlTableFactory>,
    says_main: AtomicBool,
    this: Weak<Self>,
}

impl Names {
    /// `files` opens whatever it is asked for, without asking who asks.
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
            says_main: AtomicBool::new(false),
            sight: RwLock::default(),
            own: MemorySchemaProvider::new(),
            at_commits: AtCommits::default(),
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

    /// Who the session is for.
    pub(crate) fn role(&self) -> &Arc<SessionRole> {
        &self.role
    }

    pub(crate) fn server_tables(&self) -> &[ServerTable] {
        &self.server_tables
    }

    /// What the coming statement sees.
    pub(crate) fn look(&self, sight: Sight) {
        *self.sight.write() = sight;
    }

    pub(crate) fn sight(&self) -> Sight {
        Sight { says_main: self.says_main.load(Ordering::Relaxed), ..self.sight.read().clone() }
    }

    /// Whether the coming statement calls the schema `public` by DuckLake's name.
    pub(crate) fn set_says_main(&self, says_main: bool) {
        self.says_main.store(says_main, Ordering::Relaxed);
    }

    /// Whether the session has a table or view of its own of this name.
    pub(crate) fn is_own(&self, name: &TableReference) -> bool {
        name.schema().is_none_or(is_default) && self.own.table_exist(name.table())
    }

    /// Whether one of PostgreSQL's catalogs is called so.
    fn is_postgres(&self, name: &str) -> bool {
        let postgres = self.postgres.get().filter(|_| name.starts_with("pg_"));
        postgres.is_some_and(|postgres| postgres.catalog.table_exist(name))
    }

    /// The schema that a name is in: the one it says, or the first of the search path.
    pub(crate) fn schema_of<'n>(&self, name: &'n TableReference) -> Cow<'n, str> {
        match name.schema() {
            Some(schema) => Cow::Borrowed(schema),
            None => Cow::Owned(self.default_schema()),
        }
    }

    /// What names without a schema are in.
    fn default_schema(&self) -> String {
        let session = self.session.get().and_then(Weak::upgrade);
        // Whoever asks may hold the lock.
        let state = session.as_ref().map(|session| session.read_recursive());
        let schema = state.map(|state| state.config_options().catalog.default_schema.clone());
        schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_string())
    }

    /// Whether the warehouse has a view of this name.
    pub(crate) fn has_view(&self, name: &TableReference) -> bool {
        let sight = self.sight();
        let schema = sight.schema(&self.schema_of(name));
        let view = schema.and_then(|schema| sight.state.as_ref()?.view(schema.id, name.table()));
        view.is_some()
    }

    /// Why a statement that does `what` finds no table of the warehouse under a name.
    pub(crate) async fn no_table(&self, name: &TableReference, what: &str) -> DataFusionError {
        let own = self.own(name).await.ok().flatten();
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

    /// What a table or view of the warehouse is to privileges.
    pub(crate) fn relation(&self, name: &TableReference) -> Option<Object> {
        self.relation_in(&self.sight(), name)
    }

    /// The same in what another statement sees.
    pub(crate) fn relation_in(&self, sight: &Sight, name: &TableReference) -> Option<Object> {
        let schema = sight.schema(&self.schema_of(name))?.id;
        let state = sight.state.as_ref()?;
        let table = state.table(schema, name.table()).map(|table| Object::Table(table.id));
        let view = || state.view(schema, name.table()).map(|view| Object::View(view.id));
        let sequence = || state.sequence(schema, name.table()).map(|sequence| Object::Sequence(sequence.id));
        table.or_else(view).or_else(sequence)
    }

    /// Whether there is a schema of this name.
    pub(crate) fn has_schema(&self, name: &str) -> bool {
        is_default(name) || name == SYSTEM_SCHEMA || self.sight().schema(name).is_some()
    }

    /// The tables and views of the session alone, in the order of their names.
    pub(super) async fn own_tables(&self) -> Vec<OwnTable> {
        let mut names = self.own.table_names();
        names.sort();
        let mut tables = Vec::with_capacity(names.len());
        for name in names {
            if let Ok(Some(table)) = self.own.table(&name).await {
                let is_view = table.table_type() == TableType::View;
                tables.push(OwnTable { name, schema: table.schema(), is_view });
            }
        }
        tables
    }

    /// What the session has of this name for itself.
    pub(crate) async fn own(&self, name: &TableReference) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.is_own(name) {
            true => self.own.table(name.table()).await,
            false => Ok(None),
        }
    }

    /// The tables and views of the session alone as they are now.
    pub(crate) async fn own_state(&self) -> Result<OwnState> {
        let mut state = OwnState::default();
        for name in self.own.table_names() {
            if let Some(table) = self.own.table(&name).await? {
                state.add(name, table).await;
            }
        }
        Ok(state)
    }

    /// Has the session have the tables and views that it had, as they were.
    pub(crate) async fn restore_own(&self, state: OwnState) -> Result<()> {
        self.forget_own()?;
        for (name, table) in state.restored().await {
            self.own.register_table(name, table)?;
        }
        Ok(())
    }

    /// Has something done to one of them whenever a transaction has been committed.
    pub(crate) async fn add_at_commit(&self, name: &str, what: AtCommit) -> Result<()> {
        if let Some(table) = self.own.table(name).await? {
            self.at_commits.add(name, &table, what);
        }
        Ok(())
    }

    /// To be called when a transaction has been committed, before the next statement.
    pub(crate) async fn committed(&self) -> Result<()> {
        if self.at_commits.is_empty() {
            return Ok(());
        }
        let mut own = HashMap::new();
        for name in self.own.table_names() {
            if let Some(table) = self.own.table(&name).await? {
                own.insert(name, table);
            }
        }
        for (name, table, what) in self.at_commits.due(&own) {
            match (what, table.downcast_ref::<MemTable>()) {
                (AtCommit::DeleteRows, Some(table)) => temporary_tables::truncate(table).await,
                (AtCommit::DeleteRows, None) => {}
                (AtCommit::Drop, _) => drop(self.own.deregister_table(&name)?),
            }
        }
        Ok(())
    }

    /// Drops the tables and views of the session alone.
    pub(crate) fn forget_own(&self) -> Result<()> {
        for name in self.own.table_names() {
            self.own.deregister_table(&name)?;
        }
        Ok(())
    }

    /// A table of the warehouse, unless the session has something of its own in front of it.
    pub(crate) fn table(&self, name: &TableReference) -> Option<Arc<Table>> {
        if self.is_own(name) {
            return None;
        }
        let sight = self.sight();
        let schema = sight.schema(&self.schema_of(name))?;
        sight.state.as_ref()?.table(schema.id, name.table()).cloned()
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
        place: &Place,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        let mut sight = self.sight();
        let Some(catalog) = sight.catalog.clone() else {
            return Ok(None);
        };
        let (name, past) = match name.split_once(AS_OF_MARK) {
            Some((name, past)) => (name, Some(past)),
            None => (name, None),
        };
        if let Some(past) = past {
            let state = match past.parse::<SnapshotId>() {
                Ok(snapshot) => catalog.at(snapshot).await,
                Err(_) => {
                    let moment = match place {
                        Place::Session => {
                            let TimeReading { zone, order } = time_reading(&self.session()?);
                            in_utc(past, &zone, order)
                        }
                        // It was told so, where it was made in another zone.
                        Place::View { .. } => None,
                    };
                    catalog.at_time(moment.as_deref().unwrap_or(past)).await
                }
            };
            sight.state = Some(state.map_err(explain)?);
            sight.data = Arc::default();
        }
        if let Place::View { viewer, .. } = place {
            sight.viewer = viewer.clone();
        }
        let (Some(state), Some(schema)) = (&sight.state, sight.schema(schema)) else {
            return Ok(None);
        };
        if let Some(table) = state.table(schema.id, name) {
            self.check_usage(&sight, schema, place)?;
            let table = WarehouseTable::try_new(self.session()?, &sight, Arc::clone(table))?;
            let table = match past {
                Some(_) => table.of_the_past(),
                None => table,
            };
            return match place.columns_below(table.table()) {
                Some(below) => {
                    view_columns::without_later(table, below).map(|view| Some(Arc::new(view) as _))
                }
                None => Ok(Some(Arc::new(table))),
            };
        }
        if let Some(reason) = state.unusable(schema.id, name) {
            let message = format!("table \"{name}\" cannot be used: {reason}");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        if let Some(sequence) = state.sequence(schema.id, name) {
            self.check_usage(&sight, schema, place)?;
            return sequences::table_of(&sight, sequence).await.map(Some);
        }
        let Some(view) = state.view(schema.id, name) else {
            return Ok(None);
        };
        self.check_usage(&sight, schema, place)?;
        let object = Object::View(view.id);
        match sight.viewer.columns(object, Privilege::Select) {
            Columns::All => Ok(Some(Arc::new(self.view_in(view, place.around()).await?))),
            Columns::Some(columns) => {
                let view = self.view_in(view, place.around()).await?;
                Ok(Some(Arc::new(GuardedView::new(view, object.describe(state), columns))))
            }
            Columns::None => Err(denied(&object.describe(state))),
        }
    }

    /// A view was allowed to name what it names when it was made.
    fn check_usage(&self, sight: &Sight, schema: &Schema, place: &Place) -> Result<()> {
        match (place, &sight.state) {
            (Place::Session, Some(state)) => {
                sight.viewer.check(Object::Schema(schema.id), Privilege::Usage, state)
            }
            _ => Ok(()),
        }
    }

    /// A view, planned: it reads what its owner may read.
    ///
    /// Errors: those of planning it.
    pub(crate) async fn view(&self, view: &View) -> Result<ViewTable> {
        self.view_in(view, &[]).await
    }

    /// The same where the views `around` are being planned, whose definitions name it, one the next.
    ///
    /// Errors: it is one of them (42P17).
    async fn view_in(&self, view: &View, around: &[ObjectId]) -> Result<ViewTable> {
        if around.contains(&view.id) {
            let message = format!("infinite recursion detected in rules for relation \"{}\"", view.name);
            return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message).into_datafusion());
        }
        let around: Arc<[ObjectId]> = around.iter().copied().chain([view.id]).collect();
        let mut state = self.session()?;
        let viewer = self.sight().viewer.owner_of(view.id);
        let reads_files = viewer.is_superuser();
        let names = self.this.upgrade();
        let names = names.ok_or_else(|| DataFusionError::Internal("the session is gone".to_string()))?;
        let columns_below = Arc::new(view.columns_below.clone());
        let place = Place::View { viewer, around, columns_below };
        let catalogs = Arc::new(SessionCatalog { names, place });
        let list = MemoryCatalogProviderList::new();
        list.register_catalog(DEFAULT_CATALOG.to_string(), catalogs);
        let list: Arc<dyn CatalogProviderList> = Arc::new(list);
        state.register_catalog_list(match reads_files {
            true => Arc::new(DynamicFileCatalog::new(list, Arc::clone(&self.files))),
            false => list,
        });
        // Whatever the search path of whoever reads it.
        state.config_mut().options_mut().catalog.default_schema = DEFAULT_SCHEMA.to_string();
        let state = stored_sql::with_own_settings(state);
        let form = ViewForm::of(&view.dialect);
        let sql = match form {
            Some(_) => view.sql.clone(),
            // How DuckDB writes down a count of rows.
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

/// Where names are looked up.
#[derive(Debug, Clone)]
enum Place {
    /// In a statement of the session.
    Session,
    /// In the definition of a view that reads as somebody, the last of `around`.
    View { viewer: Viewer, around: Arc<[ObjectId]>, columns_below: Arc<BTreeMap<ObjectId, ColumnId>> },
}

impl Place {
    fn around(&self) -> &[ObjectId] {
        match self {
            Self::Session => &[],
            Self::View { around, .. } => around,
        }
    }

    /// The number from which on columns of a table were added after the view was made; `None`: none were.
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
    names: Arc<Names>,
    place: Place,
}

impl SessionCatalog {
    pub(crate) fn new(names: Arc<Names>) -> Self {
        Self { names, place: Place::Session }
    }
}

impl CatalogProvider for SessionCatalog {
    fn schema_names(&self) -> Vec<String> {
        let sight = self.names.sight();
        let mut names = match &sight.state {
            Some(state) => {
                let told = |schema: &Arc<Schema>| told_name(state, schema, sight.says_main).to_string();
                state.schemas.values().map(told).collect()
            }
            None => vec![sight.told(DEFAULT_SCHEMA).to_string()],
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
        let known = is_default(name) || self.names.sight().schema(name).is_some();
        if name == SYSTEM_SCHEMA && !known {
            return Some((self.names.system_schema)(Arc::clone(&self.names)));
        }
        let (names, place) = (Arc::clone(&self.names), self.place.clone());
        known.then(|| Arc::new(SessionSchema { names, place, name: name.to_string() }) as _)
    }
}

#[derive(Debug)]
struct SessionSchema {
    names: Arc<Names>,
    place: Place,
    name: String,
}

impl SessionSchema {
    /// Whether tables of the session alone are found in it: the definition of a view never means one.
    fn has_own(&self) -> bool {
        let is_first = || self.name == self.names.default_schema();
        matches!(self.place, Place::Session) && (is_default(&self.name) || is_first())
    }

    fn boxed_table<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>> {
        async move {
            if self.has_own()
                && let Some(own) = self.names.own.table(name).await?
            {
                return Ok(Some(own));
            }
            if let Some(found) = self.names.provider(&self.name, name, &self.place).await? {
                return Ok(Some(found));
            }
            match self.names.postgres.get() {
                // Every search path begins with it.
                Some(postgres) if name.starts_with("pg_") => postgres.catalog.table(name).await,
                _ => Ok(None),
            }
        }
        .boxed()
    }

    fn boxed_table_type<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<TableType>>> {
        async move {
            if self.has_own()
                && let Some(own) = self.names.own.table_type(name).await?
            {
                return Ok(Some(own));
            }
            let sight = self.names.sight();
            let (Some(state), Some(schema)) = (&sight.state, sight.schema(&self.name)) else {
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
        let sight = self.names.sight();
        let mut names = if self.has_own() { self.names.own.table_names() } else { vec![] };
        if let (Some(state), Some(schema)) = (&sight.state, sight.schema(&self.name)) {
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
        if !self.has_own() {
            return Err(SqlError::new(
                SqlState::INVALID_SCHEMA_NAME,
                format!("tables of a session are in schema \"{PUBLIC_SCHEMA}\", not in \"{}\"", self.name),
            )
            .into_datafusion());
        }
        self.names.own.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.has_own() {
            true => self.names.own.deregister_table(name),
            false => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        if self.has_own() && self.names.own.table_exist(name) {
            return true;
        }
        let sight = self.names.sight();
        match (&sight.state, sight.schema(&self.name)) {
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
