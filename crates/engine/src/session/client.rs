//! What a session is to a client at the other end of a connection: its parameters, and the state of its
//! transaction.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use harrier_catalog::state::PUBLIC_SCHEMA;
use harrier_error::{SqlError, SqlState};
use harrier_exec::frontend::client::{Admission, Admit};
use harrier_functions::parse::datetime::{DateOrder, Kind};
use harrier_functions::parse::interval::IntervalStyle;
use harrier_planner::analyzer::session_time_zone::UTC;
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::type_names;
use crate::engine::{server_functions, setting_error, waiting_functions};
use crate::object_stores::options;
use crate::session::Session;
use crate::settings::{self, HarrierSettings, parameters};
use crate::warehouse::system_catalogs::pg_catalog::{Identity, NamedObjects, ServerContext, SessionSource};
use crate::warehouse::transaction::{Defaults, Isolation};
use crate::warehouse::{DEFAULT_SCHEMA, sequences};

/// How DataFusion calls what PostgreSQL calls `TimeZone`.
const TIME_ZONE: &str = "datafusion.execution.time_zone";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionState {
    /// None is open.
    Idle,
    Open,
    /// One is open, and can only be rolled back.
    Failed,
}

/// How long what may take; none for no limit. Whoever talks to the client sees to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeLimits {
    pub statement: Option<Duration>,
    pub idle: Option<Duration>,
    pub idle_in_transaction: Option<Duration>,
}

impl Session {
    /// To be told whether the session's role may do everything, when that is known or has changed.
    pub fn set_superuser(&self, is_superuser: bool) {
        let value = if is_superuser { "on" } else { "off" };
        if self.parameters().get("is_superuser").as_deref() != Some(value) {
            self.parameters().fix("is_superuser", value.to_string());
        }
    }

    /// Gives the session its beginning: who it is for, and what its client asked to set. RESET goes back to
    /// that. To be called once, before its first statement.
    ///
    /// Errors: a parameter is unknown (42704) or its value not allowed (22023).
    pub fn begin(
        &self,
        identity: Identity,
        surroundings: Arc<dyn ServerContext>,
        settings: &[(String, String)],
    ) -> Result<(), SqlError> {
        let identity = Arc::new(identity);
        let parameters = self.parameters();
        parameters.fix("session_authorization", identity.role.clone());
        parameters.fix("max_connections", surroundings.sessions_max().to_string());
        if let Some(warehouse) = self.warehouse() {
            let role = warehouse.names.role();
            role.log_in(&identity.role);
            for function in self.engine().server_functions() {
                self.context().register_udf(server_functions::of_session(function, &identity, role));
            }
            for function in self.engine().waiting_functions() {
                let process = identity.process;
                self.context().register_udf(waiting_functions::of_session(function, process, parameters));
            }
            self.serves_client();
            self.install_catalogs(identity, Some(surroundings));
        }
        for (name, value) in settings {
            match parameters::name_of(name) {
                Some(name) => {
                    parameters
                        .set(name, value, false)
                        .map_err(|error| crate::error::in_statement(&error, ""))?;
                }
                None => {
                    self.check_setting(name).map_err(|error| crate::error::in_statement(&error, ""))?;
                    self.set_own(name, value)?;
                }
            }
        }
        parameters.save_initial();
        self.apply_parameters().map_err(|error| crate::error::in_statement(&error, ""))
    }

    /// The beginning of a session that is no client's: PostgreSQL's catalogs. Whoever runs the process may do
    /// everything, and is called `user` as long as the warehouse has no roles. To be called once, before its
    /// first statement; reads nothing.
    pub fn begin_alone(&self, user: &str) {
        let database = self.context().state_ref().read().config_options().catalog.default_catalog.clone();
        let process = std::process::id() as i32;
        let identity = Identity { role: user.to_string(), database, process, client: None, server: None };
        self.install_catalogs(Arc::new(identity), None);
    }

    fn install_catalogs(&self, identity: Arc<Identity>, surroundings: Option<Arc<dyn ServerContext>>) {
        let names = self.warehouse().map(|warehouse| &warehouse.names);
        let source =
            SessionSource::new(names, Arc::clone(self.parameters()), identity, surroundings, type_names::of);
        let source = Arc::new(source);
        let installed = harrier_pgcatalog::install_functions(self.context(), Arc::clone(&source) as _);
        // Those of the catalogs know none.
        sequences::register(self.context(), self.warehouse());
        match (names, self.own()) {
            (Some(names), _) => names.set_postgres(installed),
            (None, Some(own)) => own.set_postgres(installed),
            // Its settings name a catalog that is not there.
            (None, None) => return,
        }
        let _ = self.postgres().set(source);
    }

    /// The name of a parameter or setting as it is kept.
    pub(crate) fn setting_name(&self, name: &str) -> String {
        parameters::name_of(name).map_or_else(|| name.to_lowercase(), str::to_string)
    }

    /// A parameter or setting, and a value that it may have, as they are kept. Changes nothing.
    ///
    /// Errors: it is unknown (42704), may not have the value (22023), or cannot be changed (55P02).
    pub fn checked_setting(&self, name: &str, value: &str) -> Result<(String, String)> {
        let kept = self.setting_name(name);
        if let Some(known) = parameters::name_of(name) {
            return Ok((kept, parameters::check_value(known, value)?));
        }
        if options::is_option(&kept) {
            let message = format!("parameter \"{kept}\" cannot be kept for roles");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("SET gives it to a session, OPTIONS to an external table")
                .into_datafusion());
        }
        let taken = settings::normalize_value(&kept, value)?;
        let state = self.context().state_ref();
        let mut options = state.read().config_options().as_ref().clone();
        options
            .set(&kept, &taken)
            .map_err(|error| {
                let told = setting_error(name, &error);
                SqlError::new(told.sqlstate, told.message)
            })
            .map_err(harrier_sqlstate::external)?;
        Ok((kept, taken.into_owned()))
    }

    /// Who lets the coming statements onto the gang.
    pub fn set_admission(&self, admit: Arc<dyn Admit>) {
        self.context().state_ref().write().config_mut().set_extension(Arc::new(Admission(admit)));
    }

    pub fn transaction(&self) -> TransactionState {
        match self.warehouse() {
            Some(warehouse) if warehouse.transactions.is_open() => {
                match warehouse.transactions.has_failed() {
                    true => TransactionState::Failed,
                    false => TransactionState::Open,
                }
            }
            _ => TransactionState::Idle,
        }
    }

    /// Marks the open transaction, if there is one, as failed: something around its statements went wrong.
    pub fn fail_transaction(&self) {
        if let Some(warehouse) = self.warehouse() {
            warehouse.transactions.mark_failed();
        }
    }

    /// What the catalogs tell of names that whoever talks to the client knows; those of SQL's PREPARE are
    /// added.
    pub fn set_named(&self, mut named: NamedObjects) {
        if let Some(source) = self.postgres().get() {
            named.prepared.extend(self.prepared().list());
            source.set_named(named);
        }
    }

    /// The value of a parameter of PostgreSQL's, or of one of the session's own settings.
    pub fn parameter(&self, name: &str) -> Option<String> {
        if let Some(value) = self.parameters().get(name) {
            return Some(value);
        }
        let state = self.context().state_ref();
        let entries = state.read().config_options().entries();
        entries.into_iter().find(|entry| entry.key.eq_ignore_ascii_case(name)).and_then(|entry| entry.value)
    }

    /// The parameters that clients are told of, if any may have changed since `version`, with the present
    /// version.
    pub fn reported_parameters(&self, version: u64) -> Option<(u64, Vec<(&'static str, String)>)> {
        self.parameters().reported_since(version)
    }

    pub fn time_limits(&self) -> TimeLimits {
        let parameters = self.parameters();
        TimeLimits {
            statement: parameters.time("statement_timeout"),
            idle: parameters.time("idle_session_timeout"),
            idle_in_transaction: parameters.time("idle_in_transaction_session_timeout"),
        }
    }

    /// Forgets the tables and views of the session alone.
    pub async fn discard_temporary(&self) -> Result<(), SqlError> {
        match self.warehouse() {
            Some(warehouse) => {
                warehouse.names.drop_temporary().map_err(|error| crate::error::in_statement(&error, ""))
            }
            None => Ok(()),
        }
    }

    /// Forgets what sequences have given the session.
    pub fn discard_sequences(&self) {
        if let Some(warehouse) = self.warehouse() {
            warehouse.sequences.discard();
        }
    }

    /// Gives every parameter and setting the value it began with, and forgets prepared statements and tables
    /// of the session.
    pub async fn discard(&self) -> Result<(), SqlError> {
        let discarded = async {
            self.parameters().reset(None);
            self.apply_parameters()?;
            self.reset("all").await?;
            self.apply_parameters()?;
            self.prepared().deallocate(None)?;
            if let Some(warehouse) = self.warehouse() {
                warehouse.sequences.discard();
                warehouse.names.drop_temporary()?;
                // Only sessions of a server have logged in, and can be another role.
                if warehouse.names.role().login().is_some() {
                    warehouse.names.role().become_role(None, false)?;
                }
            }
            Ok(())
        };
        discarded.await.map_err(|error| crate::error::in_statement(&error, ""))
    }

    /// Has the parameters that mean something to planning their effect.
    pub(crate) fn apply_parameters(&self) -> Result<()> {
        let parameters = self.parameters();
        if let Some(warehouse) = self.warehouse() {
            let isolation = parameters.get("default_transaction_isolation").unwrap_or_default();
            warehouse.transactions.set_defaults(Defaults {
                isolation: Isolation::of_name(&isolation),
                read_only: parameters.get("default_transaction_read_only").as_deref() == Some("on"),
            });
        }
        let zone = parameters.get("TimeZone").unwrap_or_else(|| UTC.to_string());
        let style = parameters.get("IntervalStyle").and_then(|name| IntervalStyle::named(&name));
        let style = style.unwrap_or_default();
        let order = self.date_order();
        let state = self.context().state_ref();
        let mut state = state.write();
        let options = state.config_mut().options_mut();
        if let Some(settings) = options.extensions.get_mut::<HarrierSettings>()
            && (settings.interval_style, settings.date_order) != (style, order)
        {
            (settings.interval_style, settings.date_order) = (style, order);
        }
        if options.execution.time_zone.as_ref() != Some(&zone) {
            options.set(TIME_ZONE, &zone)?;
            crate::settings::refresh_functions(&mut state)?;
        }
        Ok(())
    }

    /// How days are read whose text does not tell, by what the session has set last.
    pub(crate) fn date_order(&self) -> DateOrder {
        let style = self.parameters().get("DateStyle");
        style.and_then(|style| DateOrder::of_style(&style)).unwrap_or_default()
    }

    /// The text of a day or a time as a cast to `wanted` reads it; `None` where that is the text as it is.
    pub fn time_text(&self, text: &str, wanted: &DataType) -> Option<String> {
        Kind::of(wanted)?.normal(text, self.date_order())
    }

    /// Has names without a schema looked for where the search path leads in what the coming statement sees.
    pub(crate) fn follow_search_path(&self) {
        let path = self.parameters().search_path();
        let state = self.warehouse().and_then(|warehouse| warehouse.names.snapshot().state);
        let is_named = |name: &str| state.as_ref().is_some_and(|state| state.schema(name).is_some());
        let first = path.into_iter().find(|schema| self.has_schema(schema));
        let schema = first.filter(|schema| schema != PUBLIC_SCHEMA || is_named(schema));
        let schema = schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_string());
        let state = self.context().state_ref();
        if state.read().config_options().catalog.default_schema != schema {
            state.write().config_mut().options_mut().catalog.default_schema = schema;
        }
    }

    /// Whether a search path that begins with `name` leads there.
    fn has_schema(&self, name: &str) -> bool {
        match self.warehouse() {
            Some(warehouse) => {
                name == "information_schema" || name == "pg_catalog" || warehouse.names.has_schema(name)
            }
            None => false,
        }
    }
}
