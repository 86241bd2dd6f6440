//! Calls: from a request's fields to a response's.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use harrier_error::{SqlError, SqlState};
use harrier_session_api::session::TransactionState;
use harrier_thrift::{ApplicationError, Message, ThriftValue, Type};

use super::caller::Caller;
use super::handle::Handle;
use super::hive_type::HiveType;
use super::lane::Lane;
use super::metadata;
use super::operation::{Kind, Operation, Progress, Request, State};
use super::result_rows::Orientation;
use super::row_set::row_set;
use super::server_info;
use super::session::{Call, Session, Site};
use super::status::{ClientError, failure_status, response, success};
use super::type_info::type_info;
use crate::execution::{application_name, stopping_error, terminated_error};

/// `HIVE_CLI_SERVICE_PROTOCOL_V10`, the newest version spoken here; V1 is 0.
const PROTOCOL_MAX: i64 = 9;

/// Rows of a fetch request without a number.
const ROWS_DEFAULT: i64 = 1000;

/// Maximum rows of a reply, as in Hive.
const ROWS_MAX: i64 = 10_000;

/// How long a call for the state of a statement waits for its end: drivers ask again at once.
const POLL_MAX: Duration = Duration::from_millis(500);

/// How long the answer to an asynchronous statement waits until its columns are known.
const COLUMNS_KNOWN_IN: Duration = Duration::from_secs(2);

/// `TFetchResultsReq.fetchType` of the log.
const LOG: i64 = 1;

type Answer = Result<Vec<(i16, ThriftValue)>, SqlError>;

/// Answers a call.
pub(super) async fn answer(site: &Arc<Site>, caller: &Caller, message: &Message) -> Message {
    let request = message.request();
    let service = Service { site, caller, request: &request };
    let fields = match message.method.as_str() {
        "OpenSession" => service.open_session().await,
        "CloseSession" => service.close_session(),
        "GetInfo" => service.get_info(),
        "ExecuteStatement" => service.execute_statement().await,
        "GetTypeInfo" => service.metadata(Kind::GetTypeInfo, async |_| type_info()).await,
        "GetCatalogs" => service.metadata(Kind::GetCatalogs, async |_| metadata::catalogs()).await,
        "GetTableTypes" => service.metadata(Kind::GetTableTypes, async |_| metadata::table_types()).await,
        "GetSchemas" => service.get_schemas().await,
        "GetTables" => service.get_tables().await,
        "GetColumns" => service.get_columns().await,
        "GetFunctions" => service.get_functions().await,
        "GetPrimaryKeys" => service.get_primary_keys().await,
        "GetCrossReference" => {
            service.metadata(Kind::GetFunctions, async |_| metadata::cross_reference()).await
        }
        "GetOperationStatus" => service.get_operation_status().await,
        "CancelOperation" => service.cancel_operation(),
        "CloseOperation" => service.close_operation(),
        "GetResultSetMetadata" => service.get_result_set_metadata().await,
        "FetchResults" => service.fetch_results().await,
        "SetClientInfo" => service.set_client_info(),
        "GetQueryId" => {
            return match service.operation() {
                Ok((_, operation)) => {
                    let id = ThriftValue::text(operation.handle.name().to_string());
                    message.reply(ThriftValue::Struct(vec![(1, id)]))
                }
                Err(failure) => message.exception(ApplicationError::InternalError, failure.message),
            };
        }
        // Clients fall back to others on exactly this answer.
        unknown => {
            let text = format!("Invalid method name: '{unknown}'");
            return message.exception(ApplicationError::UnknownMethod, text);
        }
    };
    message.reply(match fields {
        Ok(fields) => ThriftValue::Struct([(1, success())].into_iter().chain(fields).collect()),
        Err(failure) if message.method == "OpenSession" => {
            // Required, also in an answer without a session.
            ThriftValue::Struct(vec![
                (1, failure_status(&failure)),
                (2, ThriftValue::I32(PROTOCOL_MAX as i32)),
            ])
        }
        Err(failure) if message.method == "GetInfo" => {
            let nothing = ThriftValue::Struct(vec![(1, ThriftValue::text(""))]);
            ThriftValue::Struct(vec![(1, failure_status(&failure)), (2, nothing)])
        }
        Err(failure) => response(Err(failure)),
    })
}

struct Service<'a> {
    site: &'a Arc<Site>,
    caller: &'a Caller,
    request: &'a ThriftValue,
}

impl Service<'_> {
    fn text(&self, number: i16) -> Option<String> {
        self.request.field(number)?.string()
    }

    /// The session that field 1 names.
    fn session(&self) -> Result<Call, SqlError> {
        let handle = Handle::read(self.request.field(1).and_then(|handle| handle.field(1)));
        self.site.find(handle, self.caller.role()).inspect(|_| self.caller.admit())
    }

    /// The operation that field 1 names, and its session.
    fn operation(&self) -> Result<(Call, Arc<Operation>), SqlError> {
        let handle = Handle::read(self.request.field(1).and_then(|handle| handle.field(1)));
        self.site.operation(handle, self.caller.role()).inspect(|_| self.caller.admit())
    }

    async fn open_session(&self) -> Answer {
        let asked = self.request.field(1).and_then(ThriftValue::integer).unwrap_or(PROTOCOL_MAX);
        let protocol = asked.clamp(0, PROTOCOL_MAX);
        let configuration = self.request.field(4).map(ThriftValue::pairs).unwrap_or_default();
        let value = |name: &str| configuration.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let user = self.text(2).unwrap_or_default();
        let role = self.caller.role_for(self.site, &user, self.text(3).as_deref()).await?;
        if let Some(other) = ["hive.server2.proxy.user", "set:hiveconf:hive.server2.proxy.user"]
            .into_iter()
            .find_map(value)
            .filter(|other| **other != role)
        {
            return Err(SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("user \"{role}\" may not act as \"{other}\""),
            )
            .with_hint("Log in as that user, or run SET ROLE."));
        }
        let mut settings: Vec<_> =
            configuration.iter().filter_map(|(key, value)| setting(key, value)).collect();
        let database = value("use:database").filter(|name| !name.is_empty());
        // Names have no case in Hive.
        let lower = database.map(|database| database.to_lowercase());
        let schema = lower.as_deref().map(metadata::own_schema);
        settings.extend(schema.map(|schema| ("search_path".to_string(), quote_identifier(schema))));
        let session = self.site.open(&role, self.caller.ends(), protocol, settings).await?;
        // A client that goes away meanwhile leaves none behind.
        let opening = EndOnDrop { site: self.site, session: Some(&session) };
        if let (Some(database), Some(schema)) = (database, schema) {
            if !metadata::has_schema(&session.lane, schema).await? {
                let message = format!("schema \"{database}\" does not exist");
                return Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message));
            }
        }
        opening.disarm();
        self.caller.add_session(session.handle.guid);
        let configuration = ThriftValue::Map(
            [
                ("hive.server2.thrift.resultset.default.fetch.size", ROWS_DEFAULT.to_string()),
                ("hive.default.nulls.last", "true".to_string()),
            ]
            .map(|(key, value)| (ThriftValue::text(key), ThriftValue::text(value)))
            .to_vec(),
        );
        let handle = ThriftValue::Struct(vec![(1, session.handle.write())]);
        Ok(vec![(2, ThriftValue::I32(protocol as i32)), (3, handle), (4, configuration)])
    }

    fn close_session(&self) -> Answer {
        let call = self.session()?;
        self.site.end(&call.0);
        Ok(Vec::new())
    }

    fn get_info(&self) -> Answer {
        self.session()?;
        let number = self.request.field(2).and_then(ThriftValue::integer).unwrap_or(-1);
        Ok(vec![(2, server_info::info(number)?)])
    }

    fn set_client_info(&self) -> Answer {
        let call = self.session()?;
        let pairs = self.request.field(2).map(ThriftValue::pairs).unwrap_or_default();
        if let Some((_, name)) = pairs.iter().find(|(key, _)| key == "ApplicationName") {
            call.0.lane.guard.entry.set_application(&application_name(name));
        }
        Ok(Vec::new())
    }

    async fn execute_statement(&self) -> Answer {
        let call = self.session()?;
        let session = &call.0;
        if self.site.is_draining() && session.lane.backend.transaction() == TransactionState::Idle {
            return Err(stopping_error());
        }
        let Some(text) = self.text(2) else {
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "a statement without a text"));
        };
        let is_asynchronous = self.request.field(4).and_then(ThriftValue::bool).unwrap_or(false);
        let seconds = self.request.field(5).and_then(ThriftValue::integer).unwrap_or(0).max(0);
        let first = first_word(&text);
        let limits = &self.site.hive.limits;
        let request = Request {
            text,
            timeout: Duration::from_secs(seconds.unsigned_abs()),
            buffer_after: limits.buffer_after,
        };
        let operation = Operation::start(Arc::clone(&session.lane), request);
        session.add(&operation, limits.operations_max)?;
        // A client that goes away while it waits wants no answer.
        let waits = CancelOnDrop(Some(Arc::clone(&operation)));
        let is_enough =
            |progress: &Progress| progress.state.has_ended() || is_asynchronous && progress.columns.is_some();
        let most = if is_asynchronous { COLUMNS_KNOWN_IN } else { Duration::MAX };
        let progress = operation.wait(most, is_enough).await;
        waits.disarm();
        // An error among the rows is reported with them, and a time limit by the state.
        let has_state = is_asynchronous && matches!(progress.state, State::TimedOut | State::Canceled);
        if let Some(failure) = progress.failure.as_ref().filter(|_| !progress.has_begun && !has_state) {
            session.close(&operation);
            return Err(failure.clone());
        }
        let has_rows = match (&progress.columns, progress.has_rows) {
            (Some(columns), _) => columns.is_some(),
            (None, Some(has_rows)) => has_rows,
            (None, None) => ROW_WORDS.contains(&first.as_str()),
        };
        Ok(vec![(2, operation_handle(&operation, has_rows))])
    }

    /// Answers a call whose result is known at once.
    async fn metadata(
        &self,
        kind: Kind,
        rows: impl AsyncFnOnce(&Arc<Lane>) -> Result<RecordBatch, SqlError>,
    ) -> Answer {
        let call = self.session()?;
        let operation = Operation::with_rows(kind, rows(&call.0.lane).await?);
        call.0.add(&operation, self.site.hive.limits.operations_max)?;
        Ok(vec![(2, operation_handle(&operation, true))])
    }

    async fn get_schemas(&self) -> Answer {
        let schema = self.text(3);
        self.metadata(Kind::GetSchemas, async |lane| metadata::schemas(lane, schema.as_deref()).await).await
    }

    async fn get_tables(&self) -> Answer {
        let (schema, table) = (self.text(3), self.text(4));
        let kinds = self.request.field(5).map_or(&[][..], ThriftValue::items);
        let kinds: Vec<_> = kinds.iter().filter_map(ThriftValue::string).collect();
        let rows = async |lane: &Arc<Lane>| {
            metadata::tables(lane, schema.as_deref(), table.as_deref(), &kinds).await
        };
        self.metadata(Kind::GetTables, rows).await
    }

    async fn get_columns(&self) -> Answer {
        let (schema, table, column) = (self.text(3), self.text(4), self.text(5));
        let rows = async |lane: &Arc<Lane>| {
            metadata::columns(lane, schema.as_deref(), table.as_deref(), column.as_deref()).await
        };
        self.metadata(Kind::GetColumns, rows).await
    }

    async fn get_functions(&self) -> Answer {
        let name = self.text(4);
        self.metadata(Kind::GetFunctions, async |lane| metadata::functions(lane, name.as_deref()).await).await
    }

    async fn get_primary_keys(&self) -> Answer {
        let (schema, table) = (self.text(3), self.text(4));
        let rows =
            async |lane: &Arc<Lane>| metadata::primary_keys(lane, schema.as_deref(), table.as_deref()).await;
        self.metadata(Kind::GetFunctions, rows).await
    }

    async fn get_operation_status(&self) -> Answer {
        let (_call, operation) = self.operation()?;
        let progress = operation.wait(POLL_MAX, |progress| progress.state.has_ended()).await;
        operation.touch();
        let mut fields = vec![(2, ThriftValue::I32(progress.state as i32))];
        if let Some(failure) = &progress.failure {
            let ClientError { sqlstate, code, message } = ClientError::from(failure);
            fields.extend([
                (3, ThriftValue::text(sqlstate)),
                (4, ThriftValue::I32(code)),
                (5, ThriftValue::text(message)),
            ]);
        }
        if operation.kind == Kind::ExecuteStatement {
            fields.push((6, ThriftValue::text("[]")));
        }
        fields.push((7, ThriftValue::I64(milliseconds(operation.started))));
        fields.push((8, ThriftValue::I64(progress.completed.map_or(0, milliseconds))));
        if let Some(columns) = &progress.columns {
            fields.push((9, ThriftValue::Bool(columns.is_some())));
        }
        fields.push((10, no_progress()));
        if progress.state == State::Finished {
            fields.push((11, ThriftValue::I64(progress.modified)));
        }
        Ok(fields)
    }

    fn cancel_operation(&self) -> Answer {
        let (_, operation) = self.operation()?;
        operation.cancel();
        Ok(Vec::new())
    }

    fn close_operation(&self) -> Answer {
        let (call, operation) = self.operation()?;
        call.0.close(&operation);
        Ok(Vec::new())
    }

    async fn get_result_set_metadata(&self) -> Answer {
        let (_, operation) = self.operation()?;
        let columns = operation.columns().await?;
        if columns.fields().is_empty() {
            // As for a statement without rows.
            return Ok(vec![(
                2,
                table_schema(&Schema::new(vec![Field::new("Result", DataType::Utf8, true)])),
            )]);
        }
        Ok(vec![(2, table_schema(&columns))])
    }

    async fn fetch_results(&self) -> Answer {
        let (call, operation) = self.operation()?;
        let orientation = Orientation::of(self.request.field(2).and_then(ThriftValue::integer).unwrap_or(0))?;
        let most = self.request.field(3).and_then(ThriftValue::integer).unwrap_or(ROWS_DEFAULT);
        let most = most.clamp(0, ROWS_MAX) as usize;
        let zone = call.0.lane.zone();
        let (columns, start, batches) = match self.request.field(4).and_then(ThriftValue::integer) {
            Some(LOG) => {
                let (columns, lines) = log(operation.take_log())?;
                (columns, 0, vec![lines])
            }
            _ => {
                let columns = operation.columns().await?;
                let ended = call.0.end_token();
                let fetched = tokio::select! {
                    biased;
                    () = ended.cancelled() => Err(terminated_error()),
                    fetched = operation.fetch(orientation, most) => fetched,
                };
                let (start, batches) = fetched?;
                (columns, start, batches)
            }
        };
        let protocol = call.0.protocol;
        let encode = move || row_set(&columns, &batches, start, zone, protocol);
        let rows = tokio::task::spawn_blocking(encode).await.map_err(|error| {
            SqlError::new(SqlState::INTERNAL_ERROR, format!("rows could not be encoded: {error}"))
        })??;
        // Clients go on until there are no rows, whatever this field says.
        Ok(vec![(2, ThriftValue::Bool(false)), (3, rows)])
    }
}

/// Words that begin a statement with rows, for one that waits and has not been parsed.
const ROW_WORDS: [&str; 10] =
    ["select", "with", "from", "show", "values", "explain", "describe", "desc", "table", "fetch"];

/// The first word of a text, behind comments and parentheses.
fn first_word(text: &str) -> String {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
        let comment = match rest.get(..2) {
            Some("--") => rest.split_once('\n'),
            Some("/*") => rest.split_once("*/"),
            _ => break,
        };
        rest = comment.map_or("", |(_, behind)| behind);
    }
    rest.chars().take_while(|c| c.is_ascii_alphabetic()).collect::<String>().to_ascii_lowercase()
}

/// Ends a session that is dropped while it is opened.
struct EndOnDrop<'a> {
    site: &'a Site,
    session: Option<&'a Session>,
}

impl EndOnDrop<'_> {
    fn disarm(mut self) {
        self.session = None;
    }
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            self.site.end(session);
        }
    }
}

/// Cancels an operation whose call is dropped.
struct CancelOnDrop(Option<Arc<Operation>>);

impl CancelOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(operation) = &self.0 {
            operation.cancel();
        }
    }
}

/// A setting of a session from its configuration: one of Harrier's or PostgreSQL's. Hive's own have no effect
/// here, and drivers send some of them always.
fn setting(key: &str, value: &str) -> Option<(String, String)> {
    let name = key.strip_prefix("set:hiveconf:").unwrap_or(key);
    let is_known = name.starts_with("harrier.")
        || matches!(name, "application_name" | "statement_timeout" | "search_path" | "TimeZone");
    is_known.then(|| (name.to_string(), value.to_string()))
}

/// A name as a setting has it.
fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A `TOperationHandle`.
fn operation_handle(operation: &Operation, has_rows: bool) -> ThriftValue {
    ThriftValue::Struct(vec![
        (1, operation.handle.write()),
        (2, ThriftValue::I32(operation.kind as i32)),
        (3, ThriftValue::Bool(has_rows)),
    ])
}

/// A `TTableSchema`.
fn table_schema(columns: &Schema) -> ThriftValue {
    let columns = columns.fields().iter().zip(1..).map(|(field, position)| {
        ThriftValue::Struct(vec![
            (1, ThriftValue::text(field.name())),
            (2, HiveType::of(field).description()),
            (3, ThriftValue::I32(position)),
        ])
    });
    ThriftValue::Struct(vec![(1, ThriftValue::List(columns.collect()))])
}

/// An empty `TProgressUpdateResp`.
fn no_progress() -> ThriftValue {
    const NOT_AVAILABLE: i32 = 2;
    ThriftValue::Struct(vec![
        (1, ThriftValue::EmptyList(Type::Binary)),
        (2, ThriftValue::EmptyList(Type::List)),
        (3, ThriftValue::Double(0.0)),
        (4, ThriftValue::I32(NOT_AVAILABLE)),
        (5, ThriftValue::text("")),
        (6, ThriftValue::I64(0)),
    ])
}

/// Lines of the log as rows.
fn log(lines: Vec<String>) -> Result<(SchemaRef, RecordBatch), SqlError> {
    use super::columns::{Cell, Kind, batch};

    let rows: Vec<_> = lines.into_iter().map(|line| vec![Cell::Text(line)]).collect();
    let lines = batch(&[("operation_log", Kind::Text)], &rows)?;
    Ok((lines.schema(), lines))
}

fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_hive_are_no_errors() {
        assert_eq!(setting("set:hiveconf:hive.cbo.enable", "true"), None);
        assert_eq!(setting("use:database", "x"), None);
        let known = Some(("harrier.dialect".to_string(), "hive".to_string()));
        assert_eq!(setting("set:hiveconf:harrier.dialect", "hive"), known);
    }

    #[test]
    fn words_are_found_behind_parentheses() {
        assert_eq!(first_word(" ( SELECT 1)"), "select");
        assert_eq!(first_word("with(x) as"), "with");
        assert_eq!(first_word("-- a\n /* b */ ( FROM t SELECT 1"), "from");
        assert_eq!(first_word("-- nothing else"), "");
        assert_eq!(first_word(""), "");
    }
}
