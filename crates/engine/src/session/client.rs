//! What a session is to a client at the other end of a connection: its parameters, and the state of its
//! transaction.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::error::Result;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast;

use harrier_catalog::state::PUBLIC_SCHEMA;
use harrier_error::{SqlError, SqlState};
use harrier_exec::frontend::client::{Admission, Admit};
use harrier_functions::parse::datetime::{DateOrder, Kind};
use harrier_functions::parse::interval::IntervalStyle;
use harrier_pgcatalog::Source;
use harrier_sql::desugar::result_columns;
use harrier_sqlstate::IntoDataFusionError;

use crate::engine::server_functions;
use crate::engine::setting_error;
use crate::engine::waiting_functions;
use crate::object_stores::options;
use crate::runtime::progress::Progress;
use crate::session::{CatalogReads, Outcome, ParsedStatement, Session, command};
use crate::settings::parameters::{self, Change};
use crate::settings::{self, HarrierSettings};
use crate::warehouse::DEFAULT_SCHEMA;
use crate::warehouse::public_schema::Said;
use crate::warehouse::sequences;
use crate::warehouse::system_catalogs::pg_catalog::{Identity, Named, SessionSource, Surroundings};
use crate::warehouse::transaction::{Defaults, Isolation};
use harrier_planner::analyzer::session_time_zone::UTC;

/// How DataFusion calls what PostgreSQL calls `TimeZone`.
const TIME_ZONE: &str = "datafusion.execution.time_zone";

/// What statements that ask PostgreSQL's catalogs say, beside the names of their schemas and of what begins
/// with `pg_`. In `harrier sql`, a statement with none of them costs no look at what there is.
const CATALOG_WORDS: [&str; 14] = [
    "current_catalog",
    "current_database",
    "current_role",
    "current_schema",
    "current_user",
    "session_user",
    "regclass",
    "regnamespace",
    "regproc",
    "regrole",
    "regtype",
    "has_",
    "_description",
    "txid_current",
];

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
        surroundings: Arc<dyn Surroundings>,
        settings: &[(String, String)],
    ) -> Result<(), SqlError> {
        let identity = Arc::new(identity);
        let parameters = self.parameters();
        parameters.fix("session_authorization", identity.role.clone());
        parameters.fix("max_connections", surroundings.sessions_max().to_string());
        if let Some(kept) = self.kept() {
            let role = kept.names.role();
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
        parameters.begun();
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

    fn install_catalogs(&self, identity: Arc<Identity>, surroundings: Option<Arc<dyn Surroundings>>) {
        let names = self.kept().map(|kept| &kept.names);
        let source = SessionSource::new(names, Arc::clone(self.parameters()), identity, surroundings);
        let source = Arc::new(source);
        let installed = harrier_pgcatalog::install_functions(self.context(), Arc::clone(&source) as _);
        // Those of the catalogs know none.
        sequences::register(self.context(), self.kept());
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
            return Ok((kept, parameters::checked(known, value)?));
        }
        if options::is_option(&kept) {
            let message = format!("parameter \"{kept}\" cannot be kept for roles");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("SET gives it to a session, OPTIONS to an external table")
                .into_datafusion());
        }
        let taken = settings::taken_value(&kept, value)?;
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
        match self.kept() {
            Some(kept) if kept.transactions.is_open() => match kept.transactions.has_failed() {
                true => TransactionState::Failed,
                false => TransactionState::Open,
            },
            _ => TransactionState::Idle,
        }
    }

    /// Marks the open transaction, if there is one, as failed: something around its statements went wrong.
    pub fn fail_transaction(&self) {
        if let Some(kept) = self.kept() {
            kept.transactions.give_up();
        }
    }

    /// What the catalogs tell of names that whoever talks to the client knows; those of SQL's PREPARE are
    /// added.
    pub fn set_named(&self, mut named: Named) {
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
        self.parameters().reported(version)
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
        match self.kept() {
            Some(kept) => kept.names.forget_own().map_err(|error| crate::error::in_statement(&error, "")),
            None => Ok(()),
        }
    }

    /// Forgets what sequences have given the session.
    pub fn discard_sequences(&self) {
        if let Some(kept) = self.kept() {
            kept.sequences.discard();
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
            if let Some(kept) = self.kept() {
                kept.sequences.discard();
                kept.names.forget_own()?;
                kept.names.role().become_role(None, false)?;
            }
            Ok(())
        };
        discarded.await.map_err(|error| crate::error::in_statement(&error, ""))
    }

    pub(crate) async fn change_parameter(&self, change: Change) -> Result<Outcome> {
        let shown = change.columns();
        let mut rows: Vec<Vec<String>> = Vec::new();
        match change {
            Change::Set { name, value, is_local } => {
                self.parameters().set(name, &value, is_local)?;
                self.apply_parameters()?;
                return Ok(command("SET"));
            }
            Change::Reset(name) => {
                self.parameters().reset(Some(name));
                self.apply_parameters()?;
                return Ok(command("RESET"));
            }
            Change::ResetAll => {
                self.parameters().reset(None);
                self.reset("all").await?;
                self.apply_parameters()?;
                return Ok(command("RESET"));
            }
            Change::Show(name) => {
                let isolation = match (name, self.kept()) {
                    ("transaction_isolation", Some(kept)) => {
                        Some(kept.transactions.isolation().await.to_string())
                    }
                    ("transaction_read_only", Some(kept)) => {
                        let is_read_only = kept.transactions.is_read_only().await;
                        Some(if is_read_only { "on" } else { "off" }.to_string())
                    }
                    _ => None,
                };
                rows.push(vec![isolation.or_else(|| self.parameters().get(name)).unwrap_or_default()]);
            }
            Change::ShowAll => rows = self.all_settings(),
        }
        let schema = shown.unwrap_or_else(|| Arc::new(Schema::empty()));
        let column = |at: usize| -> ArrayRef {
            Arc::new(rows.iter().map(|row| row.get(at).map(String::as_str)).collect::<StringArray>())
        };
        let columns = (0..schema.fields().len()).map(column).collect();
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        let stream = Box::pin(MemoryStream::try_new(vec![batch], Arc::clone(&schema), None)?);
        Ok(Outcome::Rows { schema, stream, progress: Progress::none() })
    }

    /// Parameters and settings by their names, with their values and what they are.
    fn all_settings(&self) -> Vec<Vec<String>> {
        let parameters = self.parameters().all();
        let mut rows: Vec<Vec<String>> = parameters
            .into_iter()
            .map(|(name, value, description)| vec![name.to_string(), value, description.to_string()])
            .collect();
        let state = self.context().state_ref();
        let settings = state.read().config_options().entries();
        rows.extend(
            settings
                .into_iter()
                .map(|entry| vec![entry.key, entry.value.unwrap_or_default(), entry.description.to_string()]),
        );
        rows.sort_by_cached_key(|row| row[0].to_lowercase());
        rows
    }

    /// Has the parameters that mean something to planning their effect.
    pub(crate) fn apply_parameters(&self) -> Result<()> {
        let parameters = self.parameters();
        if let Some(kept) = self.kept() {
            let isolation = parameters.get("default_transaction_isolation").unwrap_or_default();
            kept.transactions.set_defaults(Defaults {
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

    /// To be called before a statement is planned, when it is known what it sees.
    pub(crate) async fn prepare_statement(&self, statement: &ParsedStatement) -> Result<()> {
        if self.parameters().has_changed() {
            self.apply_parameters()?;
        }
        if self.is_client()
            && let Some(kept) = self.kept()
        {
            self.set_superuser(kept.names.role().viewer().is_superuser());
        }
        self.follow_search_path();
        let CatalogReads { any, sizes, analyses, sequences, said } = statement.reads;
        if let Some(kept) = self.kept() {
            kept.names.set_says_main(said.is_main(&statement.values));
        }
        if let Some(source) = self.postgres().get().filter(|_| any) {
            if !self.is_client() {
                source.set_named(Named { prepared: self.prepared().list(), cursors: vec![] });
                if let Some(warehouse) = self.engine().warehouse()
                    && let Some(catalog) = warehouse.open().await?
                {
                    source.set_access(catalog.access().await.map_err(crate::warehouse::explain)?);
                }
            }
            source.look_at_views().await;
        }
        if let Some(source) = self.postgres().get().filter(|_| sizes)
            && let Some(warehouse) = self.engine().warehouse()
            && let Some(catalog) = warehouse.open().await?
        {
            source.set_sizes(catalog.sizes().await.map_err(crate::warehouse::explain)?);
        }
        if let Some(source) = self.postgres().get().filter(|_| sequences)
            && let Some(warehouse) = self.engine().warehouse()
            && let Some(catalog) = warehouse.open().await?
        {
            source.set_values(catalog.sequence_values().await.map_err(crate::warehouse::explain)?);
        }
        if let Some(source) = self.postgres().get().filter(|_| analyses)
            && let Some(warehouse) = self.engine().warehouse()
            && let Some(catalog) = warehouse.open().await?
        {
            source.set_analyses(catalog.analyses().await.map_err(crate::warehouse::explain)?);
        }
        Ok(())
    }

    /// The same without a warehouse: what there is may be listed.
    pub(crate) async fn look_at_own_tables(&self, statement: &ParsedStatement) {
        if let (Some(source), Some(own)) = (self.postgres().get(), self.own())
            && statement.reads.any
        {
            let contents = own.contents(&source.session_user()).await;
            let schema = self.context().state_ref().read().config_options().catalog.default_schema.clone();
            source.set_listed(contents, schema);
            source.set_named(Named { prepared: self.prepared().list(), cursors: vec![] });
        }
    }

    /// Makes a statement fit for PostgreSQL's catalogs and names; returns what it was, `sent`, and what it
    /// may read of them.
    pub(crate) fn rewrite(
        &self,
        form: &mut harrier_sql::Statement,
        text: &str,
        sent: Option<Arc<ast::Statement>>,
    ) -> (Option<Arc<ast::Statement>>, CatalogReads) {
        if !self.names_as_postgres() {
            return (None, CatalogReads::default());
        }
        let mut text = text.to_ascii_lowercase();
        if let harrier_sql::Statement::Sql(Statement::Statement(statement)) = form
            && let Ok(executed @ Cow::Owned(_)) = self.executed(statement)
        {
            text += &executed.to_string().to_ascii_lowercase();
        }
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let any = has(&["pg_", "information_schema"]) || !self.is_client() && has(&CATALOG_WORDS);
        let statement = match &*form {
            harrier_sql::Statement::Sql(Statement::Statement(statement)) => Some(statement.as_ref()),
            _ => None,
        };
        let said = Said::by(statement, &text);
        let reads = CatalogReads {
            any,
            said,
            sizes: any && has(&["_size", "reltuples", "relpages"]),
            analyses: any && has(&["pg_stats"]),
            sequences: any && has(&["pg_sequence"]),
        };
        match form {
            harrier_sql::Statement::Sql(statement) => rewrite(statement, reads.any),
            harrier_sql::Statement::Copy(copy) if reads.any => {
                copy.query_mut().into_iter().for_each(harrier_pgcatalog::rewrite_query);
            }
            _ => {}
        }
        (sent, reads)
    }

    /// Has names without a schema looked for where the search path leads in what the coming statement sees.
    pub(crate) fn follow_search_path(&self) {
        let path = self.parameters().search_path();
        let state = self.kept().and_then(|kept| kept.names.sight().state);
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
        match self.kept() {
            Some(kept) => name == "information_schema" || name == "pg_catalog" || kept.names.has_schema(name),
            None => false,
        }
    }
}

/// Makes a statement fit for PostgreSQL's catalogs, of which it may read some if `reads`.
fn rewrite(statement: &mut Statement, reads: bool) {
    match statement {
        Statement::Statement(statement) => {
            harrier_pgcatalog::rewrite(statement);
            result_columns::tell_columns_apart(statement);
        }
        Statement::Explain(explain) => rewrite(&mut explain.statement, reads),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) if reads => harrier_pgcatalog::rewrite_query(query),
            CopyToSource::Query(_) | CopyToSource::Relation(_) => {}
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => {}
    }
}
