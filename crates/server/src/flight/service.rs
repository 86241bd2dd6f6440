//! Flight SQL's calls, mapped to operations on a session.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::server::{DoPutError, FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionRequest,
    ActionBeginTransactionResult, ActionCancelQueryRequest, ActionCancelQueryResult,
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, ActionEndSavepointRequest, ActionEndTransactionRequest, Any,
    Command, CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
    CommandGetXdbcTypeInfo, CommandPreparedStatementQuery, CommandPreparedStatementUpdate,
    CommandStatementIngest, CommandStatementQuery, CommandStatementUpdate, DoPutPreparedStatementResult,
    EndTransaction, ProstMessageExt, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightData,
    FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, IpcMessage,
    SchemaAsIpc, Ticket,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use harrier_error::{SqlError, SqlState};
use harrier_session_api::session::TransactionState;
use harrier_session_api::statement::Completion;
use prost::Message;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};

use super::connection::Peer;
use super::consumer::{Consumer, Discard, Forward, Rows};
use super::executor::{Executor, StatementInputs, row_count};
use super::ingest::quote_identifier;
use super::login::{Lease, Login, Site};
use super::prepared::Prepared;
use super::status::{status, to_status};
use super::{batches, gate, ingest, metadata, options, prepared_execution};
use crate::auth::Attempt;
use crate::execution::stopping_error;

pub(super) type Answer<T> = Result<Response<T>, Status>;
type Messages = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

/// Maximum bytes of bound parameters of a prepared statement.
const PARAMETERS_BYTES_MAX: usize = 64 << 20;

#[derive(Clone)]
pub(super) struct Service(pub Arc<Site>);

/// Rows being sent to a client. Dropping it cancels the statement.
struct RowStream {
    rows: Rows,
    is_done: bool,
    _guard: DropGuard,
    _ticket: Option<TicketHold>,
}

/// Keeps a ticket cancelable while its rows are sent.
struct TicketHold {
    login: Arc<Login>,
    id: Bytes,
}

impl Drop for TicketHold {
    fn drop(&mut self) {
        self.login.remove_result(&self.id);
    }
}

impl Stream for RowStream {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        let message = match self.rows.messages.poll_recv(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(message) => message,
        };
        Poll::Ready(match message {
            Some(Ok(Some(message))) => Some(Ok(message)),
            Some(Ok(None)) => {
                self.is_done = true;
                None
            }
            Some(Err(failure)) => {
                self.is_done = true;
                Some(Err(failure))
            }
            None => {
                self.is_done = true;
                Some(Err(status(&missing_outcome_error())))
            }
        })
    }
}

fn missing_outcome_error() -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, "the statement ended without saying how")
}

/// Runs to completion even if the call is dropped; the work itself may observe cancellation.
async fn run_detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
) -> Result<T, SqlError> {
    tokio::spawn(work).await.unwrap_or_else(|_| Err(missing_outcome_error()))
}

/// Work on a turn.
type Work<T> = Box<dyn for<'a> FnOnce(&'a mut Executor) -> BoxFuture<'a, Result<T, SqlError>> + Send>;

/// Work on a turn that returns rows to the client.
type RowsWork =
    Box<dyn for<'a> FnOnce(&'a mut Executor, &'a mut Forward) -> BoxFuture<'a, Result<(), SqlError>> + Send>;

impl Service {
    pub(super) fn login<T>(request: &Request<T>) -> Result<Arc<Login>, Status> {
        let login = request.extensions().get::<Arc<Login>>().cloned();
        login.ok_or_else(|| Status::internal("a call came past the gate"))
    }

    fn executor(&self, lease: Lease, canceled: CancellationToken) -> Executor {
        Executor::new(lease, Arc::clone(&self.0.flight.registry), canceled)
    }

    /// Runs work on a session to completion; dropping the call cancels it.
    async fn run_work<T: Send + 'static>(
        &self,
        login: &Arc<Login>,
        transaction: Option<&Bytes>,
        work: Work<T>,
    ) -> Result<T, SqlError> {
        let lease = self.0.lease(login, transaction).await?;
        let canceled = CancellationToken::new();
        let _guard = canceled.clone().drop_guard();
        let mut executor = self.executor(lease, canceled);
        run_detached(async move { work(&mut executor).await }).await
    }

    /// Starts a statement with rows, and returns once their schema is known.
    async fn start_rows(
        &self,
        login: &Arc<Login>,
        transaction: Option<&Bytes>,
        work: RowsWork,
    ) -> Result<(Rows, CancellationToken, DropGuard, i32), SqlError> {
        let lease = self.0.lease(login, transaction).await?;
        let canceled = CancellationToken::new();
        let guard = canceled.clone().drop_guard();
        let mut executor = self.executor(lease, canceled.clone());
        let session = executor.session_id();
        let (started, first) = oneshot::channel();
        tokio::spawn(async move {
            let mut forward = Forward::new(started);
            let result = work(&mut executor, &mut forward).await;
            // Frees the session before the client learns of the end.
            drop(executor);
            forward.finish(result).await;
        });
        let rows = first.await.unwrap_or_else(|_| Err(missing_outcome_error()))?;
        Ok((rows, canceled, guard, session))
    }

    /// Starts a statement, stores its rows, and returns their ticket.
    async fn flight_info(
        &self,
        login: &Arc<Login>,
        transaction: Option<&Bytes>,
        work: RowsWork,
        descriptor: FlightDescriptor,
    ) -> Answer<FlightInfo> {
        let (rows, canceled, guard, session) =
            self.start_rows(login, transaction, work).await.map_err(to_status)?;
        let schema = Arc::clone(&rows.schema);
        let handle = login.store_result(rows, canceled, guard, session, self.0.flight.limits.results_max);
        let ticket = TicketStatementQuery { statement_handle: handle }.as_any();
        answer(&schema, ticket, descriptor)
    }

    fn query(text: String) -> RowsWork {
        Box::new(move |executor, forward| {
            Box::pin(async move { executor.run(&text, StatementInputs::default(), forward).await.map(drop) })
        })
    }

    fn prepared_query(prepared: Arc<Prepared>) -> RowsWork {
        Box::new(move |executor, forward| {
            Box::pin(async move {
                let bound = prepared.bound.lock().clone();
                prepared_execution::run(&prepared, executor, bound.as_ref(), forward).await.map(drop)
            })
        })
    }

    /// Runs a catalog query.
    async fn catalog<T>(&self, request: &Request<T>, work: Work<RecordBatch>) -> Answer<Messages> {
        let login = Self::login(request)?;
        let batch = self.run_work(&login, None, work).await.map_err(to_status)?;
        sends(batch)
    }

    async fn update(
        &self,
        login: &Arc<Login>,
        transaction: Option<&Bytes>,
        text: String,
    ) -> Result<i64, SqlError> {
        let work: Work<Completion> = Box::new(move |executor| {
            Box::pin(async move { executor.run(&text, StatementInputs::default(), &mut Discard).await })
        });
        Ok(row_count(&self.run_work(login, transaction, work).await?))
    }

    /// The schema of a command's result.
    pub(super) async fn schema_of(&self, login: &Arc<Login>, command: Command) -> Result<SchemaRef, Status> {
        Ok(match command {
            Command::CommandStatementQuery(query) => {
                let text = query.query;
                let transaction = query.transaction_id;
                let id = transaction.clone();
                let work: Work<Prepared> = Box::new(move |executor| {
                    Box::pin(async move { prepared_execution::prepare(executor, text, id).await })
                });
                let prepared = self.run_work(login, transaction.as_ref(), work).await.map_err(to_status)?;
                prepared.columns().unwrap_or_else(|| Arc::new(Schema::empty()))
            }
            Command::CommandPreparedStatementQuery(query) => {
                let prepared =
                    login.prepared_statement(&query.prepared_statement_handle).map_err(to_status)?;
                prepared.columns().unwrap_or_else(|| Arc::new(Schema::empty()))
            }
            Command::CommandGetCatalogs(command) => command.into_builder().schema(),
            Command::CommandGetDbSchemas(command) => command.into_builder().schema(),
            Command::CommandGetTables(command) => command.into_builder().schema(),
            Command::CommandGetTableTypes(command) => command.into_builder().schema(),
            Command::CommandGetSqlInfo(_) => value_or_status(metadata::sql_info())?.schema(),
            Command::CommandGetXdbcTypeInfo(_) => value_or_status(metadata::xdbc_types())?.schema(),
            Command::CommandGetPrimaryKeys(_) => metadata::primary_keys(),
            Command::CommandGetExportedKeys(_)
            | Command::CommandGetImportedKeys(_)
            | Command::CommandGetCrossReference(_) => metadata::foreign_keys(),
            other => {
                return Err(Status::invalid_argument(format!("{} has no schema", other.type_url())));
            }
        })
    }

    /// Sets the requested options, each separately, to report each outcome.
    async fn set_options(&self, login: &Arc<Login>, body: &[u8]) -> Result<Bytes, Status> {
        let asked =
            options::SetRequest::decode(body).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let mut errors = HashMap::new();
        for (name, value) in asked.session_options {
            let name = if name == "schema" { "search_path".to_string() } else { name };
            let error = if name == "catalog" {
                let is_same = value.text().is_some_and(|catalog| catalog == login.database());
                (!is_same).then_some(options::INVALID_VALUE)
            } else {
                let text = match value.text() {
                    Some(value) => {
                        format!("SET {} = '{}'", quote_identifier(&name), value.replace('\'', "''"))
                    }
                    None => format!("RESET {}", quote_identifier(&name)),
                };
                match self.update(login, None, text).await {
                    Ok(_) => None,
                    Err(failure) if failure.sqlstate == SqlState::UNDEFINED_OBJECT => {
                        Some(options::INVALID_NAME)
                    }
                    Err(failure) if failure.sqlstate.class() == "22" => Some(options::INVALID_VALUE),
                    Err(failure) => return Err(status(&failure)),
                }
            };
            if let Some(value) = error {
                errors.insert(name, options::Error { value });
            }
        }
        Ok(options::SetResult { errors }.encode_to_vec().into())
    }

    async fn cancel_info(&self, login: &Arc<Login>, info: &FlightInfo) -> Result<(), Status> {
        let ticket = info.endpoint.iter().find_map(|endpoint| endpoint.ticket.as_ref());
        let ticket = ticket.and_then(|ticket| Any::decode(&*ticket.ticket).ok()?.unpack().ok()?);
        let ticket: TicketStatementQuery =
            ticket.ok_or_else(|| Status::invalid_argument("there is no statement's ticket to cancel"))?;
        if login.cancel(&ticket.statement_handle) {
            Ok(())
        } else {
            Err(status(&SqlError::new(
                SqlState::INVALID_CURSOR_NAME,
                "there is no such statement, or it has ended",
            )))
        }
    }
}

fn value_or_status<T>(value: &'static Result<T, SqlError>) -> Result<&'static T, Status> {
    value.as_ref().map_err(status)
}

/// The FlightInfo with a command's ticket.
fn answer(schema: &Schema, ticket: Any, descriptor: FlightDescriptor) -> Answer<FlightInfo> {
    let ticket = Ticket { ticket: ticket.encode_to_vec().into() };
    let info = FlightInfo::new()
        .try_with_schema(schema)
        .map_err(|error| Status::internal(format!("a schema could not be encoded: {error}")))?
        .with_endpoint(FlightEndpoint::new().with_ticket(ticket))
        .with_descriptor(descriptor)
        .with_ordered(true);
    Ok(Response::new(info))
}

/// Encapsulates a schema for clients of prepared statements: length-prefixed; empty if there is none.
fn encapsulate_schema(schema: Option<&Schema>) -> Result<Bytes, Status> {
    let Some(schema) = schema.filter(|schema| !schema.fields().is_empty()) else { return Ok(Bytes::new()) };
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &IpcWriteOptions::default())
        .try_into()
        .map_err(|error| Status::internal(format!("a schema could not be encoded: {error}")))?;
    Ok(bytes)
}

fn sends(batch: RecordBatch) -> Answer<Messages> {
    let mut encoder = super::encode::Encoder::new(batch.schema());
    let mut messages = vec![encoder.schema_message()];
    messages.extend(encoder.encode(&batch).map_err(to_status)?);
    Ok(Response::new(Box::pin(futures::stream::iter(messages.into_iter().map(Ok)))))
}

#[tonic::async_trait]
impl FlightSqlService for Service {
    type FlightService = Self;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>> {
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("a call came over no connection"))?;
        let database = gate::database(&self.0, request.metadata());
        let application = gate::application(request.metadata());
        let given = match gate::basic(request.metadata()) {
            Some(given) => Some(given),
            None => {
                let first = request.into_inner().next().await.transpose()?;
                first.and_then(|first| gate::payload(first.payload))
            }
        };
        let Some((user, password)) = given else {
            let failure = SqlError::new(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                "a handshake needs a user's name and a password",
            )
            .with_hint("Send them as basic authentication.");
            return Err(status(&failure));
        };
        let attempt = Attempt {
            user: &user,
            password: Some(&password),
            database: &database,
            client: peer.address,
            server: peer.server,
            is_encrypted: peer.is_encrypted,
            certificate: peer.certificate.as_deref(),
        };
        let login = self.0.log_in(attempt, &application, &peer).await.map_err(to_status)?;
        let payload = Bytes::copy_from_slice(login.token().as_bytes());
        let hello = HandshakeResponse { protocol_version: 0, payload };
        let stream: BoxStream<'static, _> = futures::stream::iter([Ok(hello)]).boxed();
        let mut response = Response::new(stream);
        let header = MetadataValue::try_from(format!("Bearer {}", login.token()));
        let header = header.map_err(|_| Status::internal("a token could not be sent"))?;
        response.metadata_mut().insert("authorization", header);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let login = Self::login(&request)?;
        let work = Self::query(query.query);
        self.flight_info(&login, query.transaction_id.as_ref(), work, request.into_inner()).await
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let login = Self::login(&request)?;
        let prepared = login.prepared_statement(&query.prepared_statement_handle).map_err(to_status)?;
        let transaction = login.transaction_of(&prepared);
        let work = Self::prepared_query(prepared);
        self.flight_info(&login, transaction.as_ref(), work, request.into_inner()).await
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        answer(&query.into_builder().schema(), query.as_any(), request.into_inner())
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        answer(&query.clone().into_builder().schema(), query.as_any(), request.into_inner())
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        answer(&query.clone().into_builder().schema(), query.as_any(), request.into_inner())
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        answer(&query.into_builder().schema(), query.as_any(), request.into_inner())
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        answer(&value_or_status(metadata::sql_info())?.schema(), query.as_any(), request.into_inner())
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        answer(&metadata::primary_keys(), query.as_any(), request.into_inner())
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        answer(&metadata::foreign_keys(), query.as_any(), request.into_inner())
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        answer(&metadata::foreign_keys(), query.as_any(), request.into_inner())
    }

    async fn get_flight_info_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        answer(&metadata::foreign_keys(), query.as_any(), request.into_inner())
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        answer(&value_or_status(metadata::xdbc_types())?.schema(), query.as_any(), request.into_inner())
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Answer<Messages> {
        let login = Self::login(&request)?;
        let id = ticket.statement_handle;
        let (rows, guard) = login.take_result(&id).map_err(to_status)?;
        let ticket = Some(TicketHold { login, id });
        Ok(Response::new(Box::pin(RowStream { rows, is_done: false, _guard: guard, _ticket: ticket })))
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Answer<Messages> {
        let login = Self::login(&request)?;
        let prepared = login.prepared_statement(&query.prepared_statement_handle).map_err(to_status)?;
        let transaction = login.transaction_of(&prepared);
        let work = Self::prepared_query(prepared);
        let (rows, _, guard, _) =
            self.start_rows(&login, transaction.as_ref(), work).await.map_err(to_status)?;
        Ok(Response::new(Box::pin(RowStream { rows, is_done: false, _guard: guard, _ticket: None })))
    }

    async fn do_get_catalogs(&self, query: CommandGetCatalogs, request: Request<Ticket>) -> Answer<Messages> {
        self.catalog(&request, Box::new(move |executor| Box::pin(metadata::catalogs(executor, query)))).await
    }

    async fn do_get_schemas(&self, query: CommandGetDbSchemas, request: Request<Ticket>) -> Answer<Messages> {
        self.catalog(&request, Box::new(move |executor| Box::pin(metadata::schemas(executor, query)))).await
    }

    async fn do_get_tables(&self, query: CommandGetTables, request: Request<Ticket>) -> Answer<Messages> {
        self.catalog(&request, Box::new(move |executor| Box::pin(metadata::tables(executor, query)))).await
    }

    async fn do_get_table_types(&self, query: CommandGetTableTypes, _: Request<Ticket>) -> Answer<Messages> {
        sends(metadata::table_types(query).map_err(to_status)?)
    }

    async fn do_get_sql_info(&self, query: CommandGetSqlInfo, _: Request<Ticket>) -> Answer<Messages> {
        let batch = query.into_builder(value_or_status(metadata::sql_info())?).build();
        sends(batch.map_err(metadata::unbuildable).map_err(to_status)?)
    }

    async fn do_get_primary_keys(&self, _: CommandGetPrimaryKeys, _: Request<Ticket>) -> Answer<Messages> {
        sends(RecordBatch::new_empty(metadata::primary_keys()))
    }

    async fn do_get_exported_keys(&self, _: CommandGetExportedKeys, _: Request<Ticket>) -> Answer<Messages> {
        sends(RecordBatch::new_empty(metadata::foreign_keys()))
    }

    async fn do_get_imported_keys(&self, _: CommandGetImportedKeys, _: Request<Ticket>) -> Answer<Messages> {
        sends(RecordBatch::new_empty(metadata::foreign_keys()))
    }

    async fn do_get_cross_reference(
        &self,
        _: CommandGetCrossReference,
        _: Request<Ticket>,
    ) -> Answer<Messages> {
        sends(RecordBatch::new_empty(metadata::foreign_keys()))
    }

    async fn do_get_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        _: Request<Ticket>,
    ) -> Answer<Messages> {
        let batch = query.into_builder(value_or_status(metadata::xdbc_types())?).build();
        sends(batch.map_err(metadata::unbuildable).map_err(to_status)?)
    }

    async fn do_put_error_callback(
        &self,
        _: Request<PeekableFlightDataStream>,
        error: DoPutError,
    ) -> Answer<<Self as FlightService>::DoPutStream> {
        Err(Status::invalid_argument(error.to_string()))
    }

    async fn do_put_statement_update(
        &self,
        command: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let login = Self::login(&request)?;
        self.update(&login, command.transaction_id.as_ref(), command.query).await.map_err(to_status)
    }

    async fn do_put_statement_ingest(
        &self,
        command: CommandStatementIngest,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let login = Self::login(&request)?;
        let sent = batches::decode_batches(request.into_inner());
        let named = command.transaction_id.clone().filter(|id| !id.is_empty());
        let transaction = named.or_else(|| login.only_transaction());
        let work: Work<i64> = Box::new(move |executor| Box::pin(ingest::ingest(executor, command, sent)));
        self.run_work(&login, transaction.as_ref(), work).await.map_err(to_status)
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let login = Self::login(&request)?;
        let prepared = login.prepared_statement(&query.prepared_statement_handle).map_err(to_status)?;
        let sent = batches::decode_batches(request.into_inner());
        let bound = batches::collect(sent, PARAMETERS_BYTES_MAX).await.map_err(to_status)?;
        *prepared.bound.lock() = bound;
        let prepared_statement_handle = Some(query.prepared_statement_handle);
        Ok(DoPutPreparedStatementResult { prepared_statement_handle })
    }

    async fn do_put_prepared_statement_update(
        &self,
        query: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let login = Self::login(&request)?;
        let prepared = login.prepared_statement(&query.prepared_statement_handle).map_err(to_status)?;
        let transaction = login.transaction_of(&prepared);
        let mut sent = batches::decode_batches(request.into_inner());
        let first = sent.try_next().await.map_err(batches::unreadable).map_err(to_status)?;
        // Parameters are in this request, or were bound before.
        let is_along = sent.schema().is_some_and(|schema| !schema.fields().is_empty());
        let bound = prepared.bound.lock().clone();
        let work: Work<i64> = Box::new(move |executor| {
            Box::pin(async move {
                if !is_along {
                    let rows = bound.as_ref().map_or(1, RecordBatch::num_rows);
                    let run = update_all(prepared, futures::stream::iter([Ok(bound)]).boxed());
                    return if rows > 1 { executor.run_atomically(run).await } else { run(executor).await };
                }
                let Some(first) = first else { return Ok(0) };
                let has_one = first.num_rows() == 1;
                let mut rest = sent.map_err(batches::unreadable).peekable();
                let is_last = has_one && Pin::new(&mut rest).peek().await.is_none();
                let all = futures::stream::iter([Ok(first)]).chain(rest).map_ok(Some).boxed();
                let run = update_all(prepared, all);
                if is_last { run(executor).await } else { executor.run_atomically(run).await }
            })
        });
        self.run_work(&login, transaction.as_ref(), work).await.map_err(to_status)
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let login = Self::login(&request)?;
        let transaction = query.transaction_id.clone().filter(|id| !id.is_empty());
        let id = transaction.clone();
        let work: Work<Prepared> = Box::new(move |executor| {
            Box::pin(async move { prepared_execution::prepare(executor, query.query, id).await })
        });
        let prepared = self.run_work(&login, transaction.as_ref(), work).await.map_err(to_status)?;
        let dataset_schema = encapsulate_schema(prepared.columns().as_deref())?;
        let parameter_schema = encapsulate_schema(prepared.parameters().as_ref())?;
        let handle = login.prepare(prepared, self.0.flight.limits.prepared_max).map_err(to_status)?;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle,
            dataset_schema,
            parameter_schema,
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        Self::login(&request)?.close_prepared(&query.prepared_statement_handle);
        Ok(())
    }

    async fn do_action_begin_transaction(
        &self,
        _: ActionBeginTransactionRequest,
        request: Request<Action>,
    ) -> Result<ActionBeginTransactionResult, Status> {
        let login = Self::login(&request)?;
        let begin = async {
            if self.0.is_draining() {
                return Err(stopping_error());
            }
            let mut lease = self.0.lease(&login, None).await?;
            if lease.hosted.session.transaction() != TransactionState::Idle {
                return Err(SqlError::new(
                    SqlState::ACTIVE_TRANSACTION,
                    "there is already a transaction in progress",
                )
                .with_hint("It was opened by SQL; end it by SQL."));
            }
            let id = self.0.claim(&mut lease);
            let mut executor = self.executor(lease, CancellationToken::new());
            let (began, login) = (id.clone(), Arc::clone(&login));
            run_detached(async move {
                let result = executor.run_control("BEGIN").await;
                if result.is_err() {
                    login.release(&began, false);
                }
                result
            })
            .await?;
            Ok(id)
        };
        Ok(ActionBeginTransactionResult { transaction_id: begin.await.map_err(to_status)? })
    }

    async fn do_action_end_transaction(
        &self,
        query: ActionEndTransactionRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        let login = Self::login(&request)?;
        let is_commit = match query.action() {
            EndTransaction::Commit => true,
            EndTransaction::Rollback => false,
            EndTransaction::Unspecified => {
                return Err(Status::invalid_argument(
                    "the end of a transaction is neither commit nor rollback",
                ));
            }
        };
        let id = query.transaction_id;
        let lease = self.0.lease(&login, Some(&id)).await.map_err(to_status)?;
        // A commit is not canceled when its client disconnects: the client would not learn the outcome.
        let mut executor = self.executor(lease, CancellationToken::new());
        let ended = run_detached(async move {
            let result = executor.run_control(if is_commit { "COMMIT" } else { "ROLLBACK" }).await;
            if result.is_err() && executor.session().transaction() != TransactionState::Idle {
                // Its session may be the client's main one, which continues.
                let _ = executor.run_control("ROLLBACK").await;
            }
            let is_committed = is_commit && result.as_ref().is_ok_and(|done| done.tag != "ROLLBACK");
            login.release(&id, is_committed);
            match result {
                Ok(_) if is_commit && !is_committed => Err(SqlError::new(
                    SqlState::FAILED_TRANSACTION,
                    "the transaction had failed, and was rolled back",
                )),
                result => result,
            }
        });
        ended.await.map(drop).map_err(to_status)
    }

    async fn do_action_begin_savepoint(
        &self,
        query: ActionBeginSavepointRequest,
        request: Request<Action>,
    ) -> Result<ActionBeginSavepointResult, Status> {
        let login = Self::login(&request)?;
        let text = format!("SAVEPOINT {}", quote_identifier(&query.name));
        let work: Work<Completion> =
            Box::new(move |executor| Box::pin(async move { executor.run_control(&text).await }));
        if query.name.is_empty() || query.transaction_id.is_empty() {
            return Err(Status::invalid_argument("a savepoint needs a name and a transaction"));
        }
        self.run_work(&login, Some(&query.transaction_id), work).await.map_err(to_status)?;
        let savepoint_id = login.add_savepoint(&query.transaction_id, &query.name);
        Ok(ActionBeginSavepointResult { savepoint_id })
    }

    async fn do_action_end_savepoint(
        &self,
        query: ActionEndSavepointRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        /// The protocol's constants: the field's enum is private.
        const RELEASE: i32 = 1;
        const ROLLBACK: i32 = 2;
        let login = Self::login(&request)?;
        let savepoint = login.savepoint(&query.savepoint_id).map_err(to_status)?;
        let name = quote_identifier(&savepoint.name);
        let text = match query.action {
            RELEASE => format!("RELEASE SAVEPOINT {name}"),
            ROLLBACK => format!("ROLLBACK TO SAVEPOINT {name}"),
            _ => {
                return Err(Status::invalid_argument(
                    "the end of a savepoint is neither release nor rollback",
                ));
            }
        };
        let work: Work<Completion> =
            Box::new(move |executor| Box::pin(async move { executor.run_control(&text).await }));
        self.run_work(&login, Some(&savepoint.transaction), work).await.map_err(to_status)?;
        if query.action == RELEASE {
            login.remove_savepoint(&query.savepoint_id);
        }
        Ok(())
    }

    async fn do_action_cancel_query(
        &self,
        query: ActionCancelQueryRequest,
        request: Request<Action>,
    ) -> Result<ActionCancelQueryResult, Status> {
        let login = Self::login(&request)?;
        let info =
            FlightInfo::decode(query.info).map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.cancel_info(&login, &info).await?;
        Ok(ActionCancelQueryResult { result: CancelStatus::Cancelled as i32 })
    }

    async fn do_action_fallback(
        &self,
        request: Request<Action>,
    ) -> Answer<<Self as FlightService>::DoActionStream> {
        let login = Self::login(&request)?;
        let action = request.into_inner();
        let unreadable = |error: prost::DecodeError| Status::invalid_argument(error.to_string());
        let body: Bytes = match action.r#type.as_str() {
            "CancelFlightInfo" => {
                let asked = CancelFlightInfoRequest::decode(action.body).map_err(unreadable)?;
                self.cancel_info(&login, &asked.info.unwrap_or_default()).await?;
                CancelFlightInfoResult { status: CancelStatus::Cancelled as i32 }.encode_to_vec().into()
            }
            "CloseSession" => {
                self.0.end(&login);
                options::CloseResult { status: options::CLOSED }.encode_to_vec().into()
            }
            "SetSessionOptions" => self.set_options(&login, &action.body).await?,
            "GetSessionOptions" => {
                let search_path = login.parameter("search_path").unwrap_or_default();
                let schema = search_path.split(',').next().unwrap_or_default().trim().trim_matches('"');
                let session_options = [("catalog", login.database()), ("schema", schema)]
                    .map(|(name, value)| (name.to_string(), options::Value::of(value)))
                    .into();
                options::GetResult { session_options }.encode_to_vec().into()
            }
            other => {
                let failure =
                    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("there is no action \"{other}\""));
                return Err(status(&failure));
            }
        };
        Ok(Response::new(Box::pin(futures::stream::iter([Ok(arrow_flight::Result { body })]))))
    }

    async fn list_custom_actions(&self) -> Option<Vec<Result<ActionType, Status>>> {
        let actions = [
            ("CancelFlightInfo", "Cancels a statement"),
            ("CloseSession", "Ends the session"),
            ("SetSessionOptions", "Sets parameters of the session"),
            ("GetSessionOptions", "Tells the session's catalog and schema"),
        ];
        let actions = actions.map(|(name, description)| {
            Ok(ActionType { r#type: name.to_string(), description: description.to_string() })
        });
        Some(actions.into())
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}

/// Executes a prepared statement for all rows of all batches; `None` is a run without parameters.
fn update_all(
    prepared: Arc<Prepared>,
    mut batches: BoxStream<'static, Result<Option<RecordBatch>, SqlError>>,
) -> impl for<'a> FnOnce(&'a mut Executor) -> BoxFuture<'a, Result<i64, SqlError>> {
    move |executor| {
        Box::pin(async move {
            let mut count = 0;
            let consumer: &mut dyn Consumer = &mut Discard;
            while let Some(batch) = batches.try_next().await? {
                count += prepared_execution::run(&prepared, executor, batch.as_ref(), consumer).await?;
            }
            Ok(count)
        })
    }
}
