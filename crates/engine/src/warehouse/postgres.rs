//! What PostgreSQL's catalogs tell of a session: the warehouse as its statement sees it, and who is connected.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use harrier_catalog::state::{DefaultValue, ObjectId, State};
use harrier_pgcatalog::{Activity, Column, Contents, Kind, Object, Relation, Role, Schema, Setting, Source};
use parking_lot::Mutex;

use super::names::{DEFAULT_SCHEMA, Names};
use super::types::schema_of;
use crate::parameters::{self, Parameters, SERVER_VERSION};

/// The number of the role that everything belongs to.
const OWNER_ID: i64 = 10;

/// Who a session is for.
#[derive(Debug, Clone)]
pub struct Identity {
    pub role: String,
    pub database: String,
    /// By which others can cancel its statements.
    pub process: i32,
    /// `None`: over a local socket.
    pub client: Option<SocketAddr>,
    pub server: Option<SocketAddr>,
}

/// What there is around a session: the others, and the server.
pub trait Surroundings: fmt::Debug + Send + Sync + 'static {
    /// Who is connected and what they run.
    fn activity(&self) -> Vec<Activity>;

    /// Cancels what the session with this number runs, or ends it; false if there is none.
    fn signal(&self, process: i32, terminate: bool) -> bool;

    fn since(&self) -> SystemTime;
}

/// The catalogs of one session.
#[derive(Debug)]
pub(crate) struct SessionSource {
    /// Hold the catalogs, which hold this.
    names: Weak<Names>,
    parameters: Arc<Parameters>,
    identity: Identity,
    surroundings: Arc<dyn Surroundings>,
    /// Made of the state that the statement sees.
    contents: Mutex<Option<(Arc<State>, Arc<Contents>)>>,
    views: Mutex<HashMap<(ObjectId, String), SchemaRef>>,
}

impl SessionSource {
    pub(crate) fn new(
        names: &Arc<Names>,
        parameters: Arc<Parameters>,
        identity: Identity,
        surroundings: Arc<dyn Surroundings>,
    ) -> Self {
        Self {
            names: Arc::downgrade(names),
            parameters,
            identity,
            surroundings,
            contents: Mutex::default(),
            views: Mutex::default(),
        }
    }

    /// Finds out what columns the views have that the statement sees; to be called before the catalogs are read. A view that cannot
    /// be planned has none.
    pub(crate) async fn look_at_views(&self) {
        let Some(names) = self.names.upgrade() else {
            return;
        };
        let Some(state) = names.sight().state else {
            return;
        };
        let mut found = HashMap::new();
        for view in state.views.values() {
            if let Ok(planned) = names.view(view).await {
                let schema = datafusion::catalog::TableProvider::schema(&planned);
                found.insert((view.id, view.sql.clone()), schema);
            }
        }
        *self.views.lock() = found;
        *self.contents.lock() = None;
    }

    fn contents_of(&self, state: &State) -> Result<Contents> {
        let owner = || self.owner();
        let schemas = state.schemas.values().map(|schema| Schema {
            id: schema.id,
            name: schema.name.clone(),
            owner: owner(),
            comment: schema.comment.clone(),
            grants: vec![],
        });
        let mut relations = Vec::with_capacity(state.tables.len() + state.views.len());
        for table in state.tables.values() {
            let types = schema_of(&table.columns)?;
            let columns = types.fields().iter().zip(&table.columns).map(|(field, column)| Column {
                field: Arc::clone(field),
                default: match &column.default {
                    Some(DefaultValue::Literal(text) | DefaultValue::Expression { sql: text, .. }) => {
                        Some(text.clone())
                    }
                    None => None,
                },
                comment: column.comment.clone(),
                grants: vec![],
            });
            relations.push(Relation {
                id: table.id,
                schema: table.schema,
                name: table.name.clone(),
                kind: Kind::Table,
                owner: owner(),
                comment: table.comment.clone(),
                columns: columns.collect(),
                rows: None,
                bytes: None,
                definition: None,
                reads: vec![],
                grants: vec![],
            });
        }
        let known = self.views.lock();
        for view in state.views.values() {
            let schema = known.get(&(view.id, view.sql.clone()));
            let columns = schema.into_iter().flat_map(|schema| schema.fields().iter()).map(|field| Column {
                field: Arc::clone(field),
                default: None,
                comment: None,
                grants: vec![],
            });
            relations.push(Relation {
                id: view.id,
                schema: view.schema,
                name: view.name.clone(),
                kind: Kind::View,
                owner: owner(),
                comment: view.comment.clone(),
                columns: columns.collect(),
                rows: None,
                bytes: None,
                definition: Some(view.sql.clone()),
                reads: vec![],
                grants: vec![],
            });
        }
        Ok(Contents { schemas: schemas.collect(), relations })
    }
}

fn microseconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

fn address(address: SocketAddr) -> (String, u16) {
    (address.ip().to_string(), address.port())
}

impl Source for SessionSource {
    fn contents(&self) -> Result<Arc<Contents>> {
        let names = self.names.upgrade();
        let Some(state) = names.and_then(|names| names.sight().state) else {
            return Ok(Arc::new(Contents {
                schemas: vec![Schema {
                    id: 0,
                    name: DEFAULT_SCHEMA.to_string(),
                    owner: self.owner(),
                    comment: None,
                    grants: vec![],
                }],
                relations: vec![],
            }));
        };
        if let Some((known, contents)) = &*self.contents.lock()
            && Arc::ptr_eq(known, &state)
        {
            return Ok(Arc::clone(contents));
        }
        let contents = Arc::new(self.contents_of(&state)?);
        *self.contents.lock() = Some((state, Arc::clone(&contents)));
        Ok(contents)
    }

    fn roles(&self) -> Result<Vec<Role>> {
        Ok(vec![Role {
            id: OWNER_ID,
            name: self.owner(),
            login: true,
            superuser: true,
            inherit: true,
            create_role: true,
            create_database: false,
            ..Role::default()
        }])
    }

    fn database(&self) -> String {
        self.identity.database.clone()
    }

    fn owner(&self) -> String {
        self.identity.role.clone()
    }

    fn user(&self) -> String {
        self.identity.role.clone()
    }

    fn search_path(&self) -> Vec<String> {
        let names = self.names.upgrade();
        let exists = |schema: &String| names.as_ref().is_some_and(|names| names.has_schema(schema));
        let path = self.parameters.search_path().into_iter().filter(exists);
        // What PostgreSQL calls public is the schema that names without one are in.
        path.map(|schema| if schema == "public" { DEFAULT_SCHEMA.to_string() } else { schema }).collect()
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

    fn set(&self, name: &str, value: &str, local: bool) -> Result<String> {
        let known = parameters::name_of(name).ok_or_else(|| parameters::unknown(name))?;
        self.parameters.set(known, value, local)
    }

    fn activity(&self) -> Vec<Activity> {
        self.surroundings.activity()
    }

    fn may(&self, role: &str, _: &Object<'_>, _: &str) -> bool {
        role == self.identity.role
    }

    fn signal(&self, pid: i32, terminate: bool) -> Result<bool> {
        Ok(self.surroundings.signal(pid, terminate))
    }

    fn transaction_id(&self) -> i64 {
        let state = self.names.upgrade().and_then(|names| names.sight().state);
        state.map_or(0, |state| state.snapshot)
    }

    fn client_address(&self) -> Option<(String, u16)> {
        self.identity.client.map(address)
    }

    fn server_address(&self) -> Option<(String, u16)> {
        self.identity.server.map(address)
    }

    fn started(&self) -> i64 {
        microseconds(self.surroundings.since())
    }
}
