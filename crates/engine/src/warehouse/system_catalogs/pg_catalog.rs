//! The source of PostgreSQL's catalogs for a session: the warehouse in the statement's snapshot, and the
//! connected sessions.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use harrier_catalog::access::{Access, Columns, Object as CatalogObject, Privilege, WHOLE};
use harrier_catalog::sequences::{SequenceType, SequenceValue, get};
use harrier_catalog::state::{ColumnId, DEFAULT_SCHEMA, DefaultValue, ObjectId, PUBLIC_SCHEMA, State};
use harrier_catalog::{Analysis, ColumnAnalysis, TableSize, array_text};
use harrier_error::{SqlError, SqlState};
use harrier_pgcatalog::{
    Activity, AdvisoryLock, Column, ColumnStatistics, Contents, Grant, Kind, NO_MODIFIER, Object, Relation,
    Role, Schema, Sequence, SequenceOwner, Setting, Source, format_type, microseconds,
    postgres_type_of_field,
};
use harrier_session_api::named_objects::{Cursor, NamedObjects, PreparedStatement};
use harrier_session_api::session::SessionIdentity;
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::{Mutex, RwLock};

use crate::settings::parameters::{self, Parameters, SERVER_VERSION};
use crate::settings::{self, refresh_functions};
use crate::types::declared::catalog_fields_of;
use crate::types::names;
use crate::warehouse::access::Viewer;
use crate::warehouse::keys;
use crate::warehouse::name_resolver::NameResolver;
use crate::warehouse::public_schema::{is_public, other_name, schema_display_name};
use crate::warehouse::sequences::{self, SEQUENCE_TAG, sequence_of};
use crate::warehouse::snapshot::StatementSnapshot;
use crate::warehouse::temporary_tables::{self, TemporaryTable};

/// Role id of the owner of everything that has no role.
const OWNER_ID: i64 = 0;
/// Name of the owner of objects without an owner, if no role is a superuser.
const SYSTEM: &str = "harrier";
/// PostgreSQL's placeholder for statements of other roles.
const INSUFFICIENT: &str = "<insufficient privilege>";

/// The server around a session, and its other sessions.
pub trait ServerContext: fmt::Debug + Send + Sync + 'static {
    /// Connected sessions and their statements.
    fn activity(&self) -> Vec<Activity>;

    /// Advisory locks of all sessions.
    fn locks(&self) -> Vec<AdvisoryLock> {
        vec![]
    }

    /// Cancels the statement of the session with this number, or terminates the session; false if there is
    /// none.
    fn signal(&self, process: i32, terminate: bool) -> bool;

    fn since(&self) -> SystemTime;

    /// Maximum number of sessions.
    fn sessions_max(&self) -> usize;
}

/// Cache key of the catalogs' contents, in addition to the state.
#[derive(Debug, PartialEq, Eq)]
struct ContentsKey {
    /// Version of roles and privileges.
    access: i64,
    /// The statement is shown `main`.
    shows_main: bool,
    /// Names that are not visible in the search path are shown with their schemas.
    search_path: Vec<String>,
}

/// Returns PostgreSQL's type names of a plan's columns.
pub(crate) type TypeNames = fn(&LogicalPlan) -> Vec<Option<String>>;

/// The catalogs of one session.
#[derive(Debug)]
pub(crate) struct SessionSource {
    type_names: TypeNames,
    /// Holds the catalogs, which hold this value, hence weak. Empty in a session without a warehouse.
    names: Weak<NameResolver>,
    parameters: Arc<Parameters>,
    /// The session's state, for its other settings. It holds this value, hence weak.
    session: Weak<RwLock<SessionState>>,
    identity: Arc<SessionIdentity>,
    /// `None` for a session without a client.
    server: Option<Arc<dyn ServerContext>>,
    since: SystemTime,
    /// Roles and privileges, for the system's session, which does not load them for itself.
    access: Mutex<Arc<Access>>,
    /// Contents of a session without a warehouse, and its default schema.
    listed: Mutex<Option<(Arc<Contents>, String)>>,
    /// Cached contents for the statement's state and key.
    contents: Mutex<Option<(Arc<State>, ContentsKey, Arc<Contents>)>>,
    views: Mutex<HashMap<(ObjectId, String), SchemaRef>>,
    /// Temporary tables.
    temporary: Mutex<Vec<TemporaryTable>>,
    named: Mutex<NamedObjects>,
    /// Committed sizes, as of the last time they were loaded.
    sizes: Mutex<BTreeMap<ObjectId, TableSize>>,
    /// Sequence values, as of the last time they were loaded.
    values: Mutex<BTreeMap<ObjectId, SequenceValue>>,
    analyses: Mutex<BTreeMap<ObjectId, Analysis>>,
}

impl SessionSource {
    /// `names`: of a session with a warehouse.
    pub(crate) fn new(
        names: Option<&Arc<NameResolver>>,
        parameters: Arc<Parameters>,
        session: Weak<RwLock<SessionState>>,
        identity: Arc<SessionIdentity>,
        server: Option<Arc<dyn ServerContext>>,
        type_names: TypeNames,
    ) -> Self {
        Self {
            type_names,
            names: names.map(Arc::downgrade).unwrap_or_default(),
            parameters,
            session,
            identity,
            server,
            since: SystemTime::now(),
            access: Mutex::default(),
            listed: Mutex::default(),
            contents: Mutex::default(),
            views: Mutex::default(),
            temporary: Mutex::default(),
            named: Mutex::default(),
            sizes: Mutex::default(),
            analyses: Mutex::default(),
            values: Mutex::default(),
        }
    }

    /// Sets the table sizes that the catalogs show.
    pub(crate) fn set_sizes(&self, sizes: BTreeMap<ObjectId, TableSize>) {
        *self.sizes.lock() = sizes;
        *self.contents.lock() = None;
    }

    /// Sets the sequence values that the catalogs show.
    pub(crate) fn set_values(&self, values: BTreeMap<ObjectId, SequenceValue>) {
        *self.values.lock() = values;
        *self.contents.lock() = None;
    }

    /// Sets the column statistics that the catalogs show.
    pub(crate) fn set_analyses(&self, analyses: BTreeMap<ObjectId, Analysis>) {
        *self.analyses.lock() = analyses;
        *self.contents.lock() = None;
    }

    /// Sets the roles and privileges that the catalogs show, if the session is the system's.
    pub(crate) fn set_access(&self, access: Arc<Access>) {
        *self.access.lock() = access;
        *self.contents.lock() = None;
    }

    /// Sets the contents of a session without a warehouse. `schema`: the schema of unqualified names.
    pub(crate) fn set_listed(&self, contents: Contents, schema: String) {
        *self.listed.lock() = Some((Arc::new(contents), schema));
    }

    fn viewer(&self) -> Viewer {
        self.names.upgrade().map(|names| names.role().viewer()).unwrap_or_default()
    }

    fn access(&self) -> Arc<Access> {
        match self.viewer() {
            Viewer::Role { access, .. } => access,
            Viewer::System => Arc::clone(&self.access.lock()),
        }
    }

    /// Only superusers may signal a superuser's session.
    fn may_signal(&self, user: &str) -> bool {
        self.viewer().is_superuser() || !self.access().rights(user).is_superuser()
    }

    fn column_id(&self, object: CatalogObject, name: &str) -> Option<ColumnId> {
        let state = self.names.upgrade()?.snapshot().state?;
        match object {
            CatalogObject::Table(id) => {
                let column = state.tables.get(&id)?.columns.iter().find(|column| column.name == name);
                column.map(|column| column.id)
            }
            CatalogObject::View(id) => {
                let key = (id, state.views.get(&id)?.sql.clone());
                let at = self.views.lock().get(&key)?.index_of(name).ok()?;
                Some(at as ColumnId + 1)
            }
            _ => None,
        }
    }

    /// Loads the columns of the snapshot's views and of temporary tables. To be called before the catalogs
    /// are read. A view that cannot be planned has no columns.
    pub(crate) async fn load_views(&self) {
        let Some(names) = self.names.upgrade() else {
            return;
        };
        *self.temporary.lock() = names.temporary_tables().await;
        let Some(state) = names.snapshot().state else {
            return;
        };
        let mut found = HashMap::new();
        for view in state.views.values() {
            if let Ok(planned) = names.view(view).await {
                let schema = datafusion::catalog::TableProvider::schema(&planned);
                let names = (self.type_names)(planned.logical_plan());
                found.insert((view.id, view.sql.clone()), names::with_type_names(&schema, &names));
            }
        }
        *self.views.lock() = found;
        *self.contents.lock() = None;
    }

    /// Sets the session's prepared statements and cursors.
    pub(crate) fn set_named_objects(&self, named: NamedObjects) {
        *self.named.lock() = named;
    }

    fn contents_of(&self, state: &State, shows_main: bool, path: &[String]) -> Result<Contents> {
        let access = self.access();
        let ownership = Ownership { access: &access, owner: self.owner() };
        let schemas = state.schemas.values().map(|schema| Schema {
            id: schema.id,
            name: schema_display_name(state, schema, shows_main).to_string(),
            other_name: other_name(state, schema, shows_main).map(str::to_string),
            is_public: is_public(state, schema),
            owner: ownership.owner_of(CatalogObject::Schema(schema.id)),
            comment: schema.comment.clone(),
            grants: ownership.grants(schema.id, WHOLE),
        });
        let mut relations = Vec::with_capacity(state.tables.len() + state.views.len());
        let sizes = self.sizes.lock();
        let analyses = self.analyses.lock();
        let viewer = self.viewer();
        let mut keys = keys::catalog_keys(state);
        for table in state.tables.values() {
            // A table with an unreadable column is listed too.
            let types = catalog_fields_of(&table.columns)?;
            // Statistics would reveal values of rows that a row filter hides.
            let analysis = analyses.get(&table.id).filter(|_| viewer.row_filters(table.id).is_none());
            let columns = types.iter().zip(&table.columns).map(|(field, column)| Column {
                field: Arc::clone(field),
                default: match &column.default {
                    _ if column.tags.contains_key(SEQUENCE_TAG) => {
                        next_value(state, column, shows_main, path)
                    }
                    Some(DefaultValue::Literal(text)) => Some(literal(field, text)),
                    Some(DefaultValue::Expression { sql: text, .. }) => Some(text.clone()),
                    None => None,
                },
                comment: column.comment.clone(),
                grants: ownership.grants(table.id, column.id),
                statistics: analysis.and_then(|analysis| {
                    Some(column_statistics(field, analysis.rows, analysis.columns.get(&column.id)?))
                }),
            });
            let size = sizes.get(&table.id);
            relations.push(Relation {
                id: table.id,
                schema: table.schema,
                name: table.name.clone(),
                kind: Kind::Table,
                owner: ownership.owner_of(CatalogObject::Table(table.id)),
                comment: table.comment.clone(),
                columns: columns.collect(),
                keys: keys.remove(&table.id).unwrap_or_default(),
                // The row count would reveal rows that a row filter hides.
                rows: size
                    .filter(|_| viewer.row_filters(table.id).is_none())
                    .and_then(|size| size.rows.try_into().ok()),
                bytes: size.and_then(|size| size.bytes.try_into().ok()),
                definition: None,
                reads: vec![],
                grants: ownership.grants(table.id, WHOLE),
            });
        }
        let known = self.views.lock();
        for view in state.views.values() {
            let schema = known.get(&(view.id, view.sql.clone()));
            let fields = schema.into_iter().flat_map(|schema| schema.fields().iter());
            let columns = fields.enumerate().map(|(at, field)| Column {
                field: Arc::clone(field),
                default: None,
                comment: None,
                grants: ownership.grants(view.id, at as ColumnId + 1),
                statistics: None,
            });
            relations.push(Relation {
                id: view.id,
                schema: view.schema,
                name: view.name.clone(),
                kind: Kind::View,
                owner: ownership.owner_of(CatalogObject::View(view.id)),
                comment: view.comment.clone(),
                columns: columns.collect(),
                keys: Default::default(),
                rows: None,
                bytes: None,
                definition: Some(view.sql.clone()),
                reads: vec![],
                grants: ownership.grants(view.id, WHOLE),
            });
        }
        let mut contents = Contents { schemas: schemas.collect(), relations, sequences: vec![] };
        self.add_sequences(state, &ownership, &mut contents);
        temporary_tables::add(
            &self.temporary.lock(),
            &mut contents,
            self.identity.process,
            &self.identity.role,
        );
        Ok(contents)
    }
}

/// The key of a setting with a dot in its name. Options of stores, such as keys, are none: no function tells
/// or changes them.
///
/// Errors: it is none (42704).
fn own_setting(name: &str) -> Result<String> {
    let key = name.to_ascii_lowercase();
    match key.starts_with("harrier.") || key.starts_with("datafusion.") {
        true => Ok(key),
        false => Err(parameters::unknown(name).into_datafusion()),
    }
}

impl SessionSource {
    /// Sets a setting that is no parameter of PostgreSQL, as SET does.
    ///
    /// Errors: it is unknown (42704); the value is invalid (22023); the role may not set it (42501); it is
    /// for the transaction only (0A000).
    fn set_other(&self, name: &str, value: &str, local: bool) -> Result<String> {
        let key = own_setting(name)?;
        self.other_setting(name)?;
        if !settings::is_for_everybody(&key) {
            self.viewer().check_superuser(&format!("set parameter \"{key}\""))?;
        }
        if local {
            let message = format!("parameter \"{key}\" cannot be set for a transaction");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        let value = settings::normalize_value(&key, value)?;
        let Some(session) = self.session.upgrade() else { return Ok(value.into_owned()) };
        let mut state = session.write();
        if let Err(error) = state.config_mut().options_mut().set(&key, &value) {
            return Err(match harrier_sqlstate::of(&error) {
                SqlState::INVALID_PARAMETER_VALUE => error,
                _ => {
                    let message = format!("invalid value for parameter \"{key}\": \"{value}\"");
                    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion()
                }
            });
        }
        refresh_functions(&mut state)?;
        Ok(value.into_owned())
    }

    fn add_sequences(&self, state: &State, ownership: &Ownership<'_>, contents: &mut Contents) {
        let values = self.values.lock();
        let own = self.names.upgrade().map(|names| names.snapshot().values).unwrap_or_default();
        for sequence in state.sequences.values() {
            let value = own.get(&sequence.id).map(get).or_else(|| values.get(&sequence.id).copied());
            let owner = sequence.owner.and_then(|owner| {
                let table = state.tables.get(&owner.table)?;
                let column = table.columns.iter().find(|column| column.id == owner.column)?;
                Some(SequenceOwner {
                    relation: owner.table,
                    column: column.name.clone(),
                    identity: sequences::identity_of(column)
                        .map(|identity| identity == harrier_sql::parser::sequence::IdentityKind::Always),
                })
            });
            let column = |(name, kind): (&str, DataType)| Column {
                field: Arc::new(Field::new(name, kind, false)),
                default: None,
                comment: None,
                grants: vec![],
                statistics: None,
            };
            let columns = [
                ("last_value", DataType::Int64),
                ("log_cnt", DataType::Int64),
                ("is_called", DataType::Boolean),
            ];
            contents.relations.push(Relation {
                id: sequence.id,
                schema: sequence.schema,
                name: sequence.name.clone(),
                kind: Kind::Sequence,
                owner: ownership.owner_of(CatalogObject::Sequence(sequence.id)),
                comment: sequence.comment.clone(),
                columns: columns.map(column).to_vec(),
                keys: Default::default(),
                rows: None,
                bytes: None,
                definition: None,
                reads: vec![],
                grants: ownership.grants(sequence.id, WHOLE),
            });
            contents.sequences.push(Sequence {
                relation: sequence.id,
                type_name: match sequence.kind {
                    SequenceType::SmallInt => "int2",
                    SequenceType::Integer => "int4",
                    SequenceType::BigInt => "int8",
                },
                start: sequence.start,
                increment: sequence.increment,
                min: sequence.min,
                max: sequence.max,
                cache: sequence.cache,
                cycles: sequence.cycles,
                last: value.filter(|value| value.is_called).map(|value| value.last),
                owner,
            });
        }
    }
}

/// The default of a column that takes values from a sequence; none for an identity column. As in `regclass`,
/// the name is qualified if the search path does not find it.
fn next_value(
    state: &State,
    column: &harrier_catalog::state::Column,
    shows_main: bool,
    path: &[String],
) -> Option<String> {
    let sequence = sequence_of(state, column).filter(|_| sequences::identity_of(column).is_none())?;
    let schema = state.schemas.get(&sequence.schema)?;
    let quoted = |name: &str| match name
        .chars()
        .all(|sign| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_')
    {
        true => name.to_string(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    };
    let has_relation = |schema: &ObjectId| {
        state.table(*schema, &sequence.name).is_some()
            || state.view(*schema, &sequence.name).is_some()
            || state.sequences.values().any(|own| own.schema == *schema && own.name == sequence.name)
    };
    let first = path.iter().filter_map(|name| Some(state.named_schema(name)?.id)).find(has_relation);
    let name = match first == Some(schema.id) {
        true => quoted(&sequence.name),
        false => {
            format!("{}.{}", quoted(schema_display_name(state, schema, shows_main)), quoted(&sequence.name))
        }
    };
    Some(format!("nextval('{}'::regclass)", name.replace('\'', "''")))
}

/// A constant as an SQL expression: `'x'::text`; numbers and booleans unquoted.
fn literal(field: &Field, text: &str) -> String {
    let (oid, _) = postgres_type_of_field(field);
    let is_plain = field.data_type().is_numeric() && text.parse::<f64>().is_ok_and(f64::is_finite)
        || *field.data_type() == DataType::Boolean;
    match format_type(oid, NO_MODIFIER).filter(|_| !is_plain && text != "NULL") {
        Some(name) => format!("'{}'::{name}", text.replace('\'', "''")),
        None => text.to_string(),
    }
}

/// A distinct count above this fraction of the rows is shown as a share of them (negative, as in PostgreSQL),
/// since it grows with the table.
const DISTINCT_DIVISOR: i64 = 10;

fn column_statistics(field: &Field, rows: i64, found: &ColumnAnalysis) -> ColumnStatistics {
    let rows = rows.max(1);
    let distinct = match found.distinct > rows / DISTINCT_DIVISOR {
        true => -(found.distinct as f32 / rows as f32),
        false => found.distinct as f32,
    };
    let histogram = found.histogram.clone().unwrap_or_default();
    let (values, shares): (Vec<String>, Vec<f32>) =
        histogram.common.into_iter().map(|(value, share)| (value, share as f32)).unzip();
    ColumnStatistics {
        nulls: found.nulls as f32 / rows as f32,
        mean_bytes: found.mean_bytes.unwrap_or(field.data_type().primitive_width().unwrap_or(1) as i64)
            as i32,
        distinct,
        common: (!values.is_empty()).then(|| (array_text(values), shares)),
        bounds: (!histogram.bounds.is_empty()).then(|| array_text(histogram.bounds)),
    }
}

/// Owners and grants in PostgreSQL's form.
struct Ownership<'a> {
    access: &'a Access,
    /// The owner of objects without an owner.
    owner: String,
}

impl Ownership<'_> {
    fn owner_of(&self, object: CatalogObject) -> String {
        self.access.owner(object).unwrap_or(&self.owner).to_string()
    }

    fn grants(&self, object: ObjectId, column: ColumnId) -> Vec<Grant> {
        let name = |id: i64| self.access.roles.get(&id).map(|role| role.name.clone());
        let mut all: BTreeMap<(i64, i64), Vec<(String, bool)>> = BTreeMap::new();
        for (grant, option) in self.access.grants_on(object).filter(|(grant, _)| grant.column == column) {
            let of = all.entry((grant.grantee, grant.grantor)).or_default();
            of.push((grant.privilege.name().to_string(), option));
        }
        let owner = || self.access.owners.get(&object).and_then(|id| name(*id));
        let grant = |((grantee, grantor), privileges): ((i64, i64), Vec<(String, bool)>)| Grant {
            role: name(grantee),
            grantor: name(grantor).or_else(owner).unwrap_or_else(|| self.owner.clone()),
            privileges,
        };
        all.into_iter().map(grant).collect()
    }
}

fn role_row(access: &Access, id: i64, role: &harrier_catalog::access::Role) -> Role {
    let of = access.memberships.iter().filter(|((_, member), is)| *member == id && is.may_use);
    let of = of.filter_map(|((role, _), is)| Some((access.roles.get(role)?.name.clone(), is.may_administer)));
    Role {
        id,
        name: role.name.clone(),
        login: role.can_login,
        superuser: role.is_superuser,
        inherit: role.inherits,
        create_role: role.can_create_roles,
        create_database: false,
        connection_limit: role.connection_limit.map(|limit| limit as i32),
        valid_until: role.valid_until,
        member_of: of.collect(),
        settings: access.settings_of(&role.name),
        comment: None,
    }
}

fn address(address: SocketAddr) -> (String, u16) {
    (address.ip().to_string(), address.port())
}

impl Source for SessionSource {
    fn contents(&self) -> Result<Arc<Contents>> {
        if let Some((contents, _)) = &*self.listed.lock() {
            return Ok(Arc::clone(contents));
        }
        let names = self.names.upgrade();
        let StatementSnapshot { state, shows_main, .. } =
            names.map(|names| names.snapshot()).unwrap_or_default();
        let Some(state) = state else {
            let mut contents = Contents {
                schemas: vec![Schema {
                    id: 0,
                    name: if shows_main { DEFAULT_SCHEMA } else { PUBLIC_SCHEMA }.to_string(),
                    other_name: Some(if shows_main { PUBLIC_SCHEMA } else { DEFAULT_SCHEMA }.to_string()),
                    is_public: true,
                    owner: self.owner(),
                    comment: None,
                    grants: vec![],
                }],
                relations: vec![],
                sequences: vec![],
            };
            temporary_tables::add(
                &self.temporary.lock(),
                &mut contents,
                self.identity.process,
                &self.identity.role,
            );
            return Ok(Arc::new(contents));
        };
        let key = ContentsKey {
            access: self.access().version,
            shows_main,
            search_path: self.parameters.search_path(),
        };
        if let Some((known, of, contents)) = &*self.contents.lock()
            && Arc::ptr_eq(known, &state)
            && *of == key
        {
            return Ok(Arc::clone(contents));
        }
        let contents = Arc::new(self.contents_of(&state, shows_main, &key.search_path)?);
        *self.contents.lock() = Some((state, key, Arc::clone(&contents)));
        Ok(contents)
    }

    fn roles(&self) -> Result<Vec<Role>> {
        let access = self.access();
        let owner = self.owner();
        let mut roles: Vec<Role> =
            access.roles.iter().map(|(id, role)| role_row(&access, *id, role)).collect();
        if roles.iter().all(|role| role.name != owner) {
            roles.push(Role {
                id: OWNER_ID,
                name: owner,
                login: access.is_open(),
                superuser: true,
                inherit: true,
                create_role: true,
                create_database: false,
                ..Role::default()
            });
        }
        Ok(roles)
    }

    fn database(&self) -> String {
        self.identity.database.clone()
    }

    /// The first superuser; while there are no roles, the session's user.
    fn owner(&self) -> String {
        let access = self.access();
        match access.roles.values().find(|role| role.is_superuser) {
            Some(role) => role.name.clone(),
            None if access.is_open() => self.identity.role.clone(),
            None => SYSTEM.to_string(),
        }
    }

    /// The system runs as the owner of everything, as in PostgreSQL's single-user mode.
    fn user(&self) -> String {
        self.viewer().name().map_or_else(|| self.owner(), str::to_string)
    }

    fn session_user(&self) -> String {
        match self.viewer() {
            Viewer::System => self.owner(),
            Viewer::Role { .. } => self.identity.role.clone(),
        }
    }

    fn search_path(&self) -> Vec<String> {
        if let Some((_, schema)) = &*self.listed.lock() {
            return vec![schema.clone()];
        }
        let names = self.names.upgrade();
        let exists = |schema: &String| {
            matches!(schema.as_str(), "pg_catalog" | "information_schema")
                || names.as_ref().is_some_and(|names| names.has_schema(schema))
        };
        let path = self.parameters.search_path().into_iter().filter(exists);
        // Under the names that the catalogs show.
        let snapshot = names.as_ref().map(|names| names.snapshot()).unwrap_or_default();
        let path = path.map(|schema| snapshot.display_schema(&schema).to_string());
        // Temporary tables hide others, but new tables are not created in their schema.
        let own =
            (!self.temporary.lock().is_empty()).then(|| temporary_tables::schema_name(self.identity.process));
        path.chain(own).collect()
    }

    fn backend_pid(&self) -> i32 {
        self.identity.process
    }

    fn version(&self) -> String {
        format!("PostgreSQL {SERVER_VERSION} (Harrier {})", env!("CARGO_PKG_VERSION"))
    }

    fn settings(&self) -> Vec<Setting> {
        let setting = |(name, value, description): (&str, String, &str)| Setting {
            name: name.to_string(),
            value,
            unit: None,
            category: "Client Connection Defaults".to_string(),
            description: description.to_string(),
            kind: "string".to_string(),
            context: "user".to_string(),
            default: None,
        };
        self.parameters.all().into_iter().map(setting).collect()
    }

    fn other_setting(&self, name: &str) -> Result<String> {
        let name_of_own = own_setting(name)?;
        let session = self.session.upgrade();
        let entries = session.map(|session| session.read().config_options().entries()).unwrap_or_default();
        match entries.into_iter().find(|entry| entry.key == name_of_own) {
            Some(entry) => Ok(entry.value.unwrap_or_default()),
            None => Err(parameters::unknown(name).into_datafusion()),
        }
    }

    fn set(&self, name: &str, value: &str, local: bool) -> Result<String> {
        match parameters::name_of(name) {
            Some(known) => self.parameters.set(known, value, local),
            None => self.set_other(name, value, local),
        }
    }

    fn activity(&self) -> Vec<Activity> {
        let Some(server) = &self.server else {
            return vec![Activity {
                pid: self.identity.process,
                user: self.user(),
                backend_start: microseconds(self.since),
                state: "active".to_string(),
                ..Activity::default()
            }];
        };
        let viewer = self.viewer();
        let mut all = server.activity();
        for other in all.iter_mut().filter(|other| !viewer.has_privileges_of(&other.user)) {
            *other = Activity {
                pid: other.pid,
                user: other.user.clone(),
                query: INSUFFICIENT.to_string(),
                ..Activity::default()
            };
        }
        all
    }

    fn locks(&self) -> Vec<AdvisoryLock> {
        self.server.as_ref().map(|server| server.locks()).unwrap_or_default()
    }

    fn may(&self, role: &str, object: &Object<'_>, privilege: &str) -> bool {
        if let Object::Schema(id) | Object::Relation(id) | Object::Column(id, _) = object
            && temporary_tables::is_temporary_id(*id)
        {
            return role == self.user();
        }
        if matches!(self.viewer(), Viewer::System) && role == self.user() {
            return true;
        }
        let (privilege, access) = (Privilege::of_name(privilege), self.access());
        let Some(privilege) = privilege else { return false };
        let rights = access.rights(role);
        let state = || self.names.upgrade().and_then(|names| names.snapshot().state);
        let relation = |id: i64| CatalogObject::of_id(&*state()?, id);
        match object {
            Object::Database => rights.may(CatalogObject::Warehouse, privilege),
            Object::Schema(id) => rights.may(CatalogObject::Schema(*id), privilege),
            Object::Relation(id) => relation(*id).is_some_and(|object| rights.may(object, privilege)),
            Object::Column(id, name) => relation(*id).is_some_and(|object| {
                let columns = rights.columns(object, privilege);
                columns == Columns::All
                    || self.column_id(object, name).is_some_and(|column| columns.has(column))
            }),
            Object::System => {
                matches!(privilege, Privilege::Select | Privilege::Usage) || rights.is_superuser()
            }
        }
    }

    fn prepared_statements(&self) -> Vec<PreparedStatement> {
        self.named.lock().prepared.clone()
    }

    fn cursors(&self) -> Vec<Cursor> {
        self.named.lock().cursors.clone()
    }

    fn signal(&self, pid: i32, terminate: bool) -> Result<bool> {
        let Some(server) = &self.server else { return Ok(false) };
        let target = server.activity().into_iter().find(|other| other.pid == pid);
        let viewer = self.viewer();
        match target {
            None => Ok(false),
            Some(target) if viewer.has_privileges_of(&target.user) && self.may_signal(&target.user) => {
                Ok(server.signal(pid, terminate))
            }
            Some(_) => {
                let what = if terminate { "terminate process" } else { "cancel query" };
                let message = format!("permission denied to {what}");
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
                    .with_detail("Only roles that have the privileges of the session's role may do that.")
                    .into_datafusion())
            }
        }
    }

    fn transaction_id(&self) -> i64 {
        let state = self.names.upgrade().and_then(|names| names.snapshot().state);
        state.map_or(0, |state| state.snapshot)
    }

    fn client_address(&self) -> Option<(String, u16)> {
        self.identity.client.map(address)
    }

    fn server_address(&self) -> Option<(String, u16)> {
        self.identity.server.map(address)
    }

    fn start_time(&self) -> i64 {
        microseconds(self.server.as_ref().map_or(self.since, |server| server.since()))
    }
}
