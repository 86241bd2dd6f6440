//! Client-facing state of a session: parameters and transaction state.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use harrier_catalog::state::PUBLIC_SCHEMA;
use harrier_error::{SqlError, SqlState};
use harrier_exec::frontend::admission::{Admission, Admit};
use harrier_functions::parse::datetime::{DateOrder, Kind};
use harrier_functions::parse::interval::IntervalStyle;
use harrier_planner::analyzer::session_time_zone::UTC;
use harrier_session_api::named_objects::NamedObjects;
use harrier_session_api::session::{SessionIdentity, TimeLimits, TransactionState};
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::type_names;
use crate::engine::{server_functions, setting_error, waiting_functions};
use crate::object_stores::options;
use crate::session::Session;
use crate::settings::{self, HarrierSettings, SpillSetting, parameters};
use crate::warehouse::system_catalogs::pg_catalog::{ServerContext, SessionSource};
use crate::warehouse::transaction::{Defaults, Isolation};
use crate::warehouse::{DEFAULT_SCHEMA, sequences};

/// DataFusion's name of PostgreSQL's `TimeZone`.
const TIME_ZONE: &str = "datafusion.execution.time_zone";

impl Session {
    /// Reports whether the session's role is a superuser, when known or changed.
    pub fn set_superuser(&self, is_superuser: bool) {
        let value = if is_superuser { "on" } else { "off" };
        if self.parameters().get("is_superuser").as_deref() != Some(value) {
            self.parameters().fix("is_superuser", value.to_string());
        }
    }

    /// Initializes the session: identity and startup parameters of its client, to which RESET returns. Call
    /// it once, before its first statement.
    ///
    /// Errors: a parameter is unknown (42704) or its value invalid (22023).
    pub fn begin(
        &self,
        identity: SessionIdentity,
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
            self.set_serves_client();
            self.install_catalogs(identity, Some(surroundings));
        }
        self.set_initial(settings)
    }

    /// Sets the values that the session begins with, to which RESET returns.
    ///
    /// Errors: as [`Self::begin`].
    fn set_initial(&self, settings: &[(String, String)]) -> Result<(), SqlError> {
        let parameters = self.parameters();
        for (name, value) in settings {
            match parameters::name_of(name) {
                Some(name) => {
                    parameters
                        .set(name, value, false)
                        .map_err(|error| crate::error::in_statement(&error, ""))?;
                }
                None => {
                    self.check_setting(name).map_err(|error| crate::error::in_statement(&error, ""))?;
                    self.set_setting(name, value)?;
                }
            }
        }
        parameters.save_initial();
        self.apply_parameters().map_err(|error| crate::error::in_statement(&error, ""))
    }

    /// Initializes a local session with PostgreSQL's catalogs and its first settings. Its user is a
    /// superuser, named `user` while the warehouse has no roles. Call it once, before its first statement;
    /// reads nothing.
    ///
    /// Errors: as [`Self::begin`].
    pub fn begin_local(&self, user: &str, settings: &[(String, String)]) -> Result<(), SqlError> {
        let database = self.context().state_ref().read().config_options().catalog.default_catalog.clone();
        let process = std::process::id() as i32;
        let identity =
            SessionIdentity { role: user.to_string(), database, process, client: None, server: None };
        self.install_catalogs(Arc::new(identity), None);
        self.set_initial(settings)
    }

    fn install_catalogs(&self, identity: Arc<SessionIdentity>, surroundings: Option<Arc<dyn ServerContext>>) {
        let names = self.warehouse().map(|warehouse| &warehouse.names);
        let session = Arc::downgrade(&self.context().state_ref());
        let parameters = Arc::clone(self.parameters());
        let source = SessionSource::new(names, parameters, session, identity, surroundings, type_names::of);
        let source = Arc::new(source);
        let installed = harrier_pgcatalog::install_functions(self.context(), Arc::clone(&source) as _);
        // The catalogs' own sequence functions know no sequences.
        sequences::register(self.context(), self.warehouse());
        match (names, self.temporary_catalog()) {
            (Some(names), _) => names.set_postgres(installed),
            (None, Some(own)) => own.set_postgres(installed),
            // The configured default catalog does not exist.
            (None, None) => return,
        }
        let _ = self.postgres().set(source);
    }

    /// The canonical name of a parameter or setting.
    pub(crate) fn setting_name(&self, name: &str) -> String {
        parameters::name_of(name).map_or_else(|| name.to_lowercase(), str::to_string)
    }

    /// Validates a parameter or setting; returns its canonical name and value. Changes nothing.
    ///
    /// Errors: it is unknown (42704), the value is invalid (22023), or it cannot be changed (55P02).
    pub fn validate_setting(&self, name: &str, value: &str) -> Result<(String, String)> {
        let canonical = self.setting_name(name);
        if let Some(known) = parameters::name_of(name) {
            return Ok((canonical, parameters::check_value(known, value)?));
        }
        if options::is_option(&canonical) {
            let message = format!("parameter \"{canonical}\" cannot be kept for roles");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("SET gives it to a session, OPTIONS to an external table")
                .into_datafusion());
        }
        if SpillSetting::of(name, Some(value))?.is_some() {
            return Ok((canonical, value.to_string()));
        }
        let normalized = settings::normalize_value(&canonical, value)?;
        let state = self.context().state_ref();
        let mut options = state.read().config_options().as_ref().clone();
        options
            .set(&canonical, &normalized)
            .map_err(|error| {
                let checked = setting_error(name, &error);
                SqlError::new(checked.sqlstate, checked.message)
            })
            .map_err(harrier_sqlstate::external)?;
        Ok((canonical, normalized.into_owned()))
    }

    /// Sets the admission controller of this session's statements on the gang.
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

    /// Marks the open transaction, if any, as failed, after an error outside its statements.
    pub fn fail_transaction(&self) {
        if let Some(warehouse) = self.warehouse() {
            warehouse.transactions.mark_failed();
        }
    }

    /// Sets the prepared statements and cursors of the protocol layer, for the system catalogs; those of
    /// SQL's PREPARE are added.
    pub fn set_named_objects(&self, mut named: NamedObjects) {
        if let Some(source) = self.postgres().get() {
            named.prepared.extend(self.prepared_statements().list());
            source.set_named_objects(named);
        }
    }

    /// The value of a PostgreSQL parameter or of another setting of the session.
    pub fn parameter(&self, name: &str) -> Option<String> {
        if let Some(value) = self.parameters().get(name) {
            return Some(value);
        }
        let state = self.context().state_ref();
        let entries = state.read().config_options().entries();
        entries.into_iter().find(|entry| entry.key.eq_ignore_ascii_case(name)).and_then(|entry| entry.value)
    }

    /// The parameters reported to clients, if any may have changed since `version`, with the current version.
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

    /// Drops the session's temporary tables and views.
    pub async fn discard_temporary(&self) -> Result<(), SqlError> {
        match self.warehouse() {
            Some(warehouse) => {
                warehouse.names.drop_temporary().map_err(|error| crate::error::in_statement(&error, ""))
            }
            None => Ok(()),
        }
    }

    /// Discards the session's cached sequence values.
    pub fn discard_sequences(&self) {
        if let Some(warehouse) = self.warehouse() {
            warehouse.sequences.discard();
        }
    }

    /// DISCARD ALL: resets all parameters and settings, and drops prepared statements and temporary tables.
    pub async fn discard(&self) -> Result<(), SqlError> {
        let discarded = async {
            self.parameters().reset(None);
            self.apply_parameters()?;
            self.reset("all").await?;
            self.apply_parameters()?;
            self.prepared_statements().deallocate(None)?;
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

    /// Applies the parameters that affect planning.
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
        let style = parameters.get("IntervalStyle").and_then(|name| IntervalStyle::from_name(&name));
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

    /// Field order of ambiguous dates, by the session's DateStyle.
    pub(crate) fn date_order(&self) -> DateOrder {
        let style = self.parameters().get("DateStyle");
        style.and_then(|style| DateOrder::of_style(&style)).unwrap_or_default()
    }

    /// Normalizes the text of a date or time for a cast to `wanted`; `None` if it needs no change.
    pub fn time_text(&self, text: &str, wanted: &DataType) -> Option<String> {
        Kind::of(wanted)?.normal(text, self.date_order())
    }

    /// Resolves unqualified names by the search path, in the snapshot of the next statement.
    pub(crate) fn apply_search_path(&self) {
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

    /// Whether the schema `name` of a search path exists.
    pub(crate) fn has_schema(&self, name: &str) -> bool {
        match self.warehouse() {
            Some(warehouse) => {
                name == "information_schema" || name == "pg_catalog" || warehouse.names.has_schema(name)
            }
            None => false,
        }
    }
}
