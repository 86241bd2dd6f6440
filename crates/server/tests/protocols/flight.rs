//! Flight SQL as clients see it: arrow-flight's own client call by call, then ADBC and pyarrow as programs.
//! The backend has a few statements (`mock_backend.rs`): these are tests of the protocol, not of SQL.
//!
//! `scripts/clients.sh` installs the Python clients; `HARRIER_SKIP_SERVERS=1` skips them.

use std::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, UInt32Type};
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionEndSavepointRequest, Any,
    CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandStatementIngest, CommandStatementQuery, EndTransaction, ProstMessageExt, SqlInfo,
    TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{Action, CancelFlightInfoRequest, FlightDescriptor, FlightInfo};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use harrier_error::{SqlError, SqlState};
use harrier_server::auth::{Attempt, Authenticate};
use harrier_server::encryption::Encryption;
use harrier_server::flight::{Flight, FlightLimits, PROTOCOLS, serve};
use harrier_server::registry::{Phase, Registry, Stop};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, IntoRequest, Status};

use crate::mock_backend::MockBackend;
use crate::self_signed::TestCertificate;

type Client = FlightSqlServiceClient<Channel>;

/// Knows one user; if allowed, clients without a user name are anonymous.
struct PasswordCheck {
    allows_anonymous: bool,
}

#[async_trait]
impl Authenticate for PasswordCheck {
    async fn authenticate(&self, attempt: &Attempt<'_>) -> Result<String, SqlError> {
        match (attempt.user, attempt.password) {
            ("ada", Some("secret: 1")) => Ok("ada".to_string()),
            ("", None) if self.allows_anonymous => Ok("stranger".to_string()),
            ("", None) => {
                Err(SqlError::fatal(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "no user was named"))
            }
            (user, _) => Err(SqlError::fatal(
                SqlState::INVALID_PASSWORD,
                format!("password authentication failed for user \"{user}\""),
            )),
        }
    }
}

struct TestServer {
    address: SocketAddr,
    registry: Arc<Registry>,
    mock_backend: Arc<MockBackend>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn start(change: impl FnOnce(&mut Flight)) -> TestServer {
    let (registry, mock_backend) = (Arc::new(Registry::default()), Arc::new(MockBackend::default()));
    let mut flight = Flight {
        backend: Arc::clone(&mock_backend) as _,
        registry: Arc::clone(&registry),
        authenticate: Arc::new(PasswordCheck { allows_anonymous: false }),
        encryption: Encryption::new(PROTOCOLS),
        database: "toy".to_string(),
        limits: FlightLimits::default(),
    };
    change(&mut flight);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let stopped = async move {
        if stopped.await.is_err() {
            pending().await
        }
    };
    let serving = tokio::spawn(serve(listener, flight, stopped));
    TestServer { address, registry, mock_backend, stop: Some(stop), serving }
}

impl TestServer {
    async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    async fn client(&self) -> Client {
        let mut client = FlightSqlServiceClient::new(self.channel().await);
        client.handshake("ada", "secret: 1").await.unwrap();
        client
    }

    /// Waits until a statement with that text is in a phase.
    async fn wait_for_phase(&self, text: &str, phase: Phase) {
        let transaction = Instant::now();
        while !self.registry.statements().iter().any(|it| it.text == text && it.phase() == phase) {
            assert!(transaction.elapsed() < Duration::from_secs(60), "{:#?}", self.registry.statements());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn wait_for_sessions(&self, count: usize) {
        let transaction = Instant::now();
        while self.registry.sessions().len() != count {
            assert!(transaction.elapsed() < Duration::from_secs(60), "{:#?}", self.registry.sessions());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn stream(
    client: &mut Client,
    info: FlightInfo,
) -> Result<arrow_flight::decode::FlightRecordBatchStream, FlightError> {
    assert_eq!(info.endpoint.len(), 1);
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    client.do_get(ticket).await
}

async fn fetch(client: &mut Client, info: FlightInfo) -> Result<RecordBatch, FlightError> {
    let promised = Arc::new(info.clone().try_decode_schema().unwrap());
    let rows = stream(client, info).await?;
    let batches: Vec<RecordBatch> = rows.try_collect().await?;
    assert!(batches.iter().all(|batch| batch.schema() == promised));
    Ok(concat_batches(&promised, &batches).unwrap())
}

async fn query(client: &mut Client, text: &str) -> Result<RecordBatch, FlightError> {
    let info = client.execute(text.to_string(), None).await?;
    fetch(client, info).await
}

fn text(batch: &RecordBatch) -> String {
    batch.column(0).as_string::<i32>().value(0).to_string()
}

/// The gRPC status in a client's error, which wraps the errors of calls.
fn status(error: &(dyn std::error::Error + 'static)) -> Status {
    if let Some(FlightError::Tonic(status)) = error.downcast_ref::<FlightError>() {
        return status.as_ref().clone();
    }
    match error.downcast_ref::<Status>() {
        Some(status) => status.clone(),
        None => status(error.source().unwrap_or_else(|| panic!("no status: {error:?}"))),
    }
}

fn check<T>(result: Result<T, impl std::error::Error + 'static>, code: Code, sqlstate: &str) -> Status {
    let error = result.err().expect("it fails");
    let status = status(&error);
    let state = status.metadata().get("sqlstate").map(|state| state.to_str().unwrap().to_string());
    assert_eq!((status.code(), state.as_deref()), (code, Some(sqlstate)), "{status:?}");
    assert!(status.message().contains(sqlstate), "{status:?}");
    status
}

async fn action(client: &mut Client, kind: &str, body: impl Into<Bytes>) -> Result<Vec<Bytes>, Status> {
    let mut request = Action { r#type: kind.to_string(), body: body.into() }.into_request();
    let token = format!("Bearer {}", client.token().cloned().unwrap_or_default());
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let results = client.inner_mut().do_action(request).await?.into_inner();
    results.map_ok(|result| result.body).try_collect().await
}

#[tokio::test]
async fn authentication_is_required() {
    let served = start(|flight| flight.limits.sessions_max = 2).await;
    let mut client = FlightSqlServiceClient::new(served.channel().await);
    assert!(client.handshake("ada", "wrong").await.unwrap_err().to_string().contains("28P01"));
    check(query(&mut client, "SELECT 1").await, Code::Unauthenticated, "28000");
    client.set_token("made up".to_string());
    check(query(&mut client, "SELECT 1").await, Code::Unauthenticated, "28000");
    assert_eq!(served.registry.sessions().len(), 0);
    client.clear_token();
    client.handshake("ada", "secret: 1").await.unwrap();
    assert_eq!(text(&query(&mut client, "SELECT current_user").await.unwrap()), "ada");
    let second = served.client().await;
    let mut third = FlightSqlServiceClient::new(served.channel().await);
    assert!(third.handshake("ada", "secret: 1").await.unwrap_err().to_string().contains("53300"));
    assert_eq!(served.registry.totals().refused.load(Ordering::Relaxed), 3);
    drop(second);
    // CloseSession ends the session and invalidates its token.
    let closed = action(&mut client, "CloseSession", vec![]).await.unwrap();
    assert_eq!(closed, [Bytes::from_static(&[8, 1])]);
    check(query(&mut client, "SELECT 1").await, Code::Unauthenticated, "28000");
    served.wait_for_sessions(1).await;
    third.set_header("database", "nowhere");
    assert!(third.handshake("ada", "secret: 1").await.unwrap_err().to_string().contains("3D000"));
}

#[tokio::test]
async fn anonymous_clients_have_one_session_per_connection() {
    let served =
        start(|flight| flight.authenticate = Arc::new(PasswordCheck { allows_anonymous: true })).await;
    let mut client = FlightSqlServiceClient::new(served.channel().await);
    assert_eq!(text(&query(&mut client, "SELECT current_user").await.unwrap()), "stranger");
    client.execute_update("SET greeting = 'hello'".to_string(), None).await.unwrap();
    assert_eq!(text(&query(&mut client, "SHOW greeting").await.unwrap()), "hello");
    let mut other = FlightSqlServiceClient::new(served.channel().await);
    assert_eq!(text(&query(&mut other, "SHOW greeting").await.unwrap()), "");
    assert_eq!(served.registry.sessions().len(), 2);
    drop(client);
    served.wait_for_sessions(1).await;
}

#[tokio::test]
async fn rows_arrive_with_backpressure() {
    let served = start(|_| {}).await;
    let mut client = served.client().await;
    let all = query(&mut client, "SELECT numbers 1000000").await.unwrap();
    let numbers = all.column(0).as_primitive::<Int64Type>();
    assert!(numbers.values().iter().copied().eq(0..1_000_000));
    let words = all.column(1).as_string::<i32>();
    assert_eq!((words.value(8), words.is_valid(7)), ("the word of the number 8", false));
    served.wait_for_phase("SELECT numbers 1000000", Phase::Done).await;
    let after_commit = served.registry.statements().remove(0);
    assert_eq!(after_commit.rows.load(Ordering::Relaxed), 1_000_000);
    let batches = served.mock_backend.batches.swap(0, Ordering::SeqCst);
    assert_eq!(batches, 123);
    let info = client.execute("SELECT numbers 1000000000".to_string(), None).await.unwrap();
    let mut rows = stream(&mut client, info).await.unwrap();
    rows.next().await.unwrap().unwrap();
    // A client's flow-control window is 64 KiB until it grows; the server stops when that and the read-ahead
    // buffers are full.
    let mut last = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        match served.mock_backend.batches.load(Ordering::SeqCst) {
            batches if batches == last => break,
            batches => last = batches,
        }
    }
    assert!(last < 100, "{last} batches were made for one that was read");
    drop(rows);
    served.wait_for_phase("SELECT numbers 1000000000", Phase::Canceled).await;
    query(&mut client, "SELECT 1").await.unwrap();
}

#[tokio::test]
async fn errors_have_status_and_sqlstate() {
    let served = start(|_| {}).await;
    let mut client = served.client().await;
    let parsed = check(query(&mut client, "SELEC 1").await, Code::InvalidArgument, "42601");
    assert_eq!(parsed.metadata().get("position").unwrap(), "1");
    check(query(&mut client, "SELECT * FROM \"none\"").await, Code::NotFound, "42P01");
    check(query(&mut client, "SELECT 1; SELECT 1").await, Code::InvalidArgument, "42601");
    assert_eq!(query(&mut client, " ; ").await.unwrap().num_columns(), 0);
    // Rows come first; a later error is not mistaken for their end.
    let info = client.execute("SELECT then fail".to_string(), None).await.unwrap();
    let rows: Vec<_> = stream(&mut client, info).await.unwrap().collect().await;
    assert_eq!(rows.iter().filter(|batch| batch.is_ok()).count(), 3);
    let late = check(rows.into_iter().next_back().unwrap(), Code::InvalidArgument, "22012");
    assert!(late.message().ends_with("\nDETAIL:  Late."), "{late:?}");
    let info = client.execute("SELECT then panic".to_string(), None).await.unwrap();
    let rows: Vec<_> = stream(&mut client, info).await.unwrap().collect().await;
    check(rows.into_iter().next_back().unwrap(), Code::Internal, "XX000");
    // A ticket can be redeemed once.
    let info = client.execute("SELECT 1".to_string(), None).await.unwrap();
    fetch(&mut client, info.clone()).await.unwrap();
    check(stream(&mut client, info).await.map(drop), Code::NotFound, "34000");
    assert_eq!(query(&mut client, "SELECT 1").await.unwrap().num_rows(), 1);
}

#[tokio::test]
async fn updates_complete_before_their_answer() {
    let served = start(|_| {}).await;
    let mut client = served.client().await;
    let info =
        client.execute("CREATE TABLE \"t\" (\"a\" bigint, \"b\" text)".to_string(), None).await.unwrap();
    assert_eq!(query(&mut client, "SELECT * FROM \"t\"").await.unwrap().num_columns(), 2);
    assert_eq!(fetch(&mut client, info).await.unwrap().num_rows(), 0);
    let mut insert = client.prepare("INSERT INTO \"t\" VALUES ($1, $2)".to_string(), None).await.unwrap();
    assert_eq!(insert.dataset_schema().unwrap().fields().len(), 0);
    assert_eq!(insert.parameter_schema().unwrap().fields().len(), 2);
    let a: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![1, 2, 3]));
    let b: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), None, Some("z")]));
    let rows = RecordBatch::try_from_iter_with_nullable([("a", a, true), ("b", b, true)]).unwrap();
    insert.set_parameters(rows.clone()).unwrap();
    assert_eq!(insert.execute_update().await.unwrap(), 3);
    insert.set_parameters(rows.project(&[0]).unwrap()).unwrap();
    check(insert.execute_update().await, Code::InvalidArgument, "08P01");
    insert.close().await.unwrap();
    assert_eq!(query(&mut client, "SELECT * FROM \"t\"").await.unwrap().num_rows(), 3);
    // Many rows of parameters are one transaction: the second of these fails.
    client
        .execute_update("CREATE TABLE \"u\" (\"a\" bigint NOT NULL, \"b\" text)".to_string(), None)
        .await
        .unwrap();
    let mut insert = client.prepare("INSERT INTO \"u\" VALUES ($1, $2)".to_string(), None).await.unwrap();
    let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let b: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    insert
        .set_parameters(RecordBatch::try_from_iter_with_nullable([("a", a, true), ("b", b, true)]).unwrap())
        .unwrap();
    check(insert.execute_update().await, Code::FailedPrecondition, "23502");
    assert_eq!(query(&mut client, "SELECT * FROM \"u\"").await.unwrap().num_rows(), 0);
}

#[tokio::test]
async fn prepared_queries_run_for_every_row_of_parameters() {
    let served = start(|_| {}).await;
    let mut client = served.client().await;
    // Placeholders in JDBC's style, and in PostgreSQL's.
    let marked = client.prepare("SELECT ?, ?".to_string(), None).await.unwrap();
    assert_eq!(marked.parameter_schema().unwrap().fields().len(), 2);
    marked.close().await.unwrap();
    let mut select = client.prepare("SELECT $1, $2".to_string(), None).await.unwrap();
    assert_eq!(select.dataset_schema().unwrap().fields().len(), 2);
    check(select.execute().await, Code::InvalidArgument, "08P01");
    let a: ArrayRef = Arc::new(StringArray::from(vec!["17", "18"]));
    let b: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let rows = |a: ArrayRef| RecordBatch::try_from_iter([("1", a), ("2", Arc::clone(&b))]).unwrap();
    select.set_parameters(rows(a)).unwrap();
    let info = select.execute().await.unwrap();
    let selected = fetch(&mut client, info).await.unwrap();
    assert_eq!(selected.column(0).as_primitive::<Int64Type>().values(), &[17, 18]);
    select.set_parameters(rows(Arc::clone(&b))).unwrap();
    check(select.execute().await, Code::InvalidArgument, "22023");
    select.close().await.unwrap();
    check(client.prepare("SELEC 1".to_string(), None).await.map(drop), Code::InvalidArgument, "42601");
}

#[tokio::test]
async fn prepared_queries_fail_after_schema_changes() {
    let served = start(|_| {}).await;
    let mut client = served.client().await;
    let make = |columns: &str| format!("CREATE TABLE \"t\" ({columns})");
    const FIRST: &str = "\"a\" bigint, \"b\" text";
    client.execute_update(make(FIRST), None).await.unwrap();
    let mut select = client.prepare("SELECT * FROM \"t\"".to_string(), None).await.unwrap();
    let info = select.execute().await.unwrap();
    assert_eq!(fetch(&mut client, info).await.unwrap().num_columns(), 2);
    for columns in [
        "\"b\" text, \"a\" bigint",
        "\"a\" bigint",
        "\"a\" double precision, \"b\" text",
        "\"a\" bigint, \"c\" text",
    ] {
        client.execute_update("DROP TABLE \"t\"".to_string(), None).await.unwrap();
        client.execute_update(make(columns), None).await.unwrap();
        check(select.execute().await, Code::Unimplemented, "0A000");
    }
    client.execute_update("DROP TABLE \"t\"".to_string(), None).await.unwrap();
    client.execute_update(make(FIRST), None).await.unwrap();
    let info = select.execute().await.unwrap();
    assert_eq!(fetch(&mut client, info).await.unwrap().num_columns(), 2);
}

#[tokio::test]
async fn transactions_are_isolated_until_commit() {
    let served = start(|flight| flight.limits.busy = Duration::from_millis(50)).await;
    let (mut client, mut other) = (served.client().await, served.client().await);
    let transaction = client.begin_transaction().await.unwrap();
    let create = "CREATE TABLE \"t\" (\"a\" bigint)".to_string();
    client.execute_update(create.clone(), Some(transaction.clone())).await.unwrap();
    client.execute_update("SET kept = 'yes'".to_string(), Some(transaction.clone())).await.unwrap();
    check(query(&mut other, "SELECT * FROM \"t\"").await, Code::NotFound, "42P01");
    // The same client, outside of its transaction, is another session.
    check(query(&mut client, "SELECT * FROM \"t\"").await, Code::NotFound, "42P01");
    client.end_transaction(transaction.clone(), EndTransaction::Commit).await.unwrap();
    query(&mut other, "SELECT * FROM \"t\"").await.unwrap();
    let after_commit = client.execute("SELECT 1".to_string(), Some(transaction)).await;
    check(after_commit, Code::FailedPrecondition, "25P01");
    assert_eq!(text(&query(&mut client, "SHOW kept").await.unwrap()), "yes");

    let transaction = client.begin_transaction().await.unwrap();
    let twice = client.execute_update(create.clone(), Some(transaction.clone())).await;
    check(twice, Code::AlreadyExists, "42P07");
    let failed = client.execute("SELECT 1".to_string(), Some(transaction.clone())).await;
    check(failed, Code::FailedPrecondition, "25P02");
    check(
        client.end_transaction(transaction, EndTransaction::Commit).await,
        Code::FailedPrecondition,
        "25P02",
    );

    // A prepared statement survives the end of its transaction, and runs in the next one.
    let first = client.begin_transaction().await.unwrap();
    let mut prepared =
        client.prepare("INSERT INTO \"t\" VALUES ($1)".to_string(), Some(first.clone())).await.unwrap();
    let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    prepared.set_parameters(RecordBatch::try_from_iter([("1", one)]).unwrap()).unwrap();
    client.end_transaction(first, EndTransaction::Rollback).await.unwrap();
    let second = client.begin_transaction().await.unwrap();
    prepared.execute_update().await.unwrap();
    assert_eq!(query(&mut other, "SELECT * FROM \"t\"").await.unwrap().num_rows(), 0);
    client.end_transaction(second, EndTransaction::Commit).await.unwrap();
    assert_eq!(query(&mut other, "SELECT * FROM \"t\"").await.unwrap().num_rows(), 1);
    prepared.execute_update().await.unwrap();
    assert_eq!(query(&mut other, "SELECT * FROM \"t\"").await.unwrap().num_rows(), 2);

    // An open stream blocks other statements of the transaction; streams that were never requested do not.
    let transaction = client.begin_transaction().await.unwrap();
    let long = "SELECT numbers 100000000".to_string();
    let _unread = client.execute(long.clone(), Some(transaction.clone())).await.unwrap();
    let info = client.execute(long, Some(transaction.clone())).await.unwrap();
    let mut rows = stream(&mut client, info).await.unwrap();
    rows.next().await.unwrap().unwrap();
    let busy = client.execute("SELECT 1".to_string(), Some(transaction.clone())).await;
    check(busy, Code::FailedPrecondition, "55006");
    drop(rows);
    client.execute("SELECT 1".to_string(), Some(transaction.clone())).await.unwrap();
    client.end_transaction(transaction, EndTransaction::Rollback).await.unwrap();
    served.wait_for_sessions(2).await;
}

#[tokio::test]
async fn rollback_to_savepoint() {
    let served = start(|_| {}).await;
    let mut client = served.client().await;
    let transaction = client.begin_transaction().await.unwrap();
    let run = async |client: &mut Client, text: &str| {
        client.execute_update(text.to_string(), Some(transaction.clone())).await
    };
    run(&mut client, "CREATE TABLE \"t\" (\"a\" bigint)").await.unwrap();
    let mark = ActionBeginSavepointRequest { transaction_id: transaction.clone(), name: "mark".to_string() };
    let marked = action(&mut client, "BeginSavepoint", mark.as_any().encode_to_vec()).await.unwrap();
    let marked: ActionBeginSavepointResult =
        Any::decode(marked[0].clone()).unwrap().unpack().unwrap().unwrap();
    run(&mut client, "CREATE TABLE \"u\" (\"a\" bigint)").await.unwrap();
    let end = |action: i32| {
        ActionEndSavepointRequest { savepoint_id: marked.savepoint_id.clone(), action }
            .as_any()
            .encode_to_vec()
    };
    action(&mut client, "EndSavepoint", end(2)).await.unwrap();
    assert_eq!(
        check(run(&mut client, "DROP TABLE \"u\"").await, Code::NotFound, "42P01").code(),
        Code::NotFound
    );
    action(&mut client, "EndSavepoint", end(2)).await.unwrap();
    action(&mut client, "EndSavepoint", end(1)).await.unwrap();
    check(action(&mut client, "EndSavepoint", end(1)).await, Code::FailedPrecondition, "3B001");
    client.end_transaction(transaction.clone(), EndTransaction::Commit).await.unwrap();
    query(&mut client, "SELECT * FROM \"t\"").await.unwrap();
}

#[tokio::test]
async fn statements_run_beside_open_streams() {
    let served = start(|flight| {
        flight.limits.statements_beside_max = 2;
        flight.limits.busy = Duration::from_millis(50);
    })
    .await;
    let mut client = served.client().await;
    client.execute_update("SET greeting = 'hello'".to_string(), None).await.unwrap();
    let long = async |client: &mut Client| {
        let info = client.execute("SELECT numbers 100000000".to_string(), None).await?;
        let mut rows = stream(client, info).await?;
        rows.next().await.unwrap()?;
        Ok::<_, FlightError>(rows)
    };
    let first = long(&mut client).await.unwrap();
    assert_eq!(text(&query(&mut client, "SHOW greeting").await.unwrap()), "hello");
    check(query(&mut client, "BEGIN").await, Code::FailedPrecondition, "55006");
    let second = long(&mut client).await.unwrap();
    let third = long(&mut client).await.unwrap();
    assert_eq!(served.registry.sessions().len(), 3);
    check(query(&mut client, "SELECT 1").await, Code::ResourceExhausted, "53300");
    drop((first, second, third));
    served.wait_for_sessions(1).await;
    query(&mut client, "SELECT 1").await.unwrap();
    // A transaction opened by SQL spans the statements that follow.
    query(&mut client, "BEGIN").await.unwrap();
    query(&mut client, "CREATE TABLE \"t\" (\"a\" bigint)").await.unwrap();
    query(&mut client, "SELECT * FROM \"t\"").await.unwrap();
    query(&mut client, "ROLLBACK").await.unwrap();
    check(query(&mut client, "SELECT * FROM \"t\"").await, Code::NotFound, "42P01");
}

#[tokio::test]
async fn cancellation_and_timeouts_stop_statements() {
    let served = start(|_| {}).await;
    let mut client = served.client().await;
    let waits = |client: &Client| {
        let mut client = client.clone();
        tokio::spawn(async move { client.execute("WAIT".to_string(), None).await })
    };
    // Canceled by an administrator, in the list of statements.
    let waiting = waits(&client);
    served.wait_for_phase("WAIT", Phase::Planning).await;
    let session = served.registry.sessions().remove(0);
    session.stop(Stop::Statement);
    check(waiting.await.unwrap(), Code::Cancelled, "57014");
    // Canceled by the client's disconnect.
    let waiting = waits(&client);
    served.wait_for_phase("WAIT", Phase::Planning).await;
    let running = session.statement().unwrap();
    waiting.abort();
    while running.phase() != Phase::Canceled {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Canceled by the client's request, before and after it fetched rows.
    let info = client.execute("SELECT numbers 100000000".to_string(), None).await.unwrap();
    let cancel = |info: &FlightInfo| CancelFlightInfoRequest { info: Some(info.clone()) }.encode_to_vec();
    let canceled = action(&mut client, "CancelFlightInfo", cancel(&info)).await.unwrap();
    assert_eq!(canceled, [Bytes::from_static(&[8, 1])]);
    check(stream(&mut client, info.clone()).await.map(drop), Code::NotFound, "34000");
    let info = client.execute("SELECT numbers 100000000".to_string(), None).await.unwrap();
    let rows = stream(&mut client, info.clone()).await.unwrap();
    action(&mut client, "CancelFlightInfo", cancel(&info)).await.unwrap();
    let rows: Vec<_> = rows.collect().await;
    check(rows.into_iter().next_back().unwrap(), Code::Cancelled, "57014");
    check(action(&mut client, "CancelFlightInfo", cancel(&info)).await, Code::NotFound, "34000");
    // Canceled by statement_timeout.
    client.execute_update("SET statement_timeout = '30ms'".to_string(), None).await.unwrap();
    check(query(&mut client, "WAIT").await, Code::Cancelled, "57014");
    client.execute_update("SET statement_timeout = '0'".to_string(), None).await.unwrap();
    // Canceled by the end of its session.
    let waiting = waits(&client);
    served.wait_for_phase("WAIT", Phase::Planning).await;
    session.stop(Stop::Session);
    let after_commit = status(&waiting.await.unwrap().unwrap_err());
    assert!(
        ["57P01", "57014"].iter().any(|state| after_commit.message().contains(state)),
        "{after_commit:?}"
    );
    check(query(&mut client, "SELECT 1").await, Code::Unauthenticated, "28000");
    drop(session);
    served.wait_for_sessions(0).await;
}

#[tokio::test]
async fn idle_sessions_and_transactions_time_out() {
    let served = start(|flight| {
        flight.limits.idle = Duration::from_millis(300);
        flight.limits.result = Duration::from_millis(40);
        flight.limits.disconnected = Duration::from_millis(40);
    })
    .await;
    let mut client = served.client().await;
    let info = client.execute("SELECT numbers 100000000".to_string(), None).await.unwrap();
    served.wait_for_phase("SELECT numbers 100000000", Phase::Canceled).await;
    check(stream(&mut client, info).await.map(drop), Code::NotFound, "34000");
    // A session with an open stream is not idle, however slowly the client reads.
    let info = client.execute("SELECT numbers 100000000".to_string(), None).await.unwrap();
    let mut rows = stream(&mut client, info).await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    rows.next().await.unwrap().unwrap();
    assert_eq!(served.registry.sessions().len(), 1);
    drop(rows);
    served.wait_for_sessions(0).await;
    check(query(&mut client, "SELECT 1").await, Code::Unauthenticated, "28000");
}

#[tokio::test]
async fn lost_connections_end_before_the_idle_timeout() {
    let served = start(|flight| flight.limits.disconnected = Duration::from_millis(40)).await;
    let mut client = served.client().await;
    client.begin_transaction().await.unwrap();
    // Longer than the timeout of lost connections: this one is connected.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(served.registry.sessions().len(), 1);
    drop(client);
    served.wait_for_sessions(0).await;
}

#[tokio::test]
async fn graceful_shutdown_waits_for_transactions() {
    let mut served = start(|_| {}).await;
    let mut client = served.client().await;
    let transaction = client.begin_transaction().await.unwrap();
    served.stop.take().unwrap().send(()).unwrap();
    loop {
        let refused = query(&mut client, "SELECT 1").await;
        if refused.is_err() {
            check(refused, Code::Unavailable, "57P03");
            break;
        }
    }
    let create = "CREATE TABLE \"t\" (\"a\" bigint)".to_string();
    client.execute_update(create, Some(transaction.clone())).await.unwrap();
    assert!(!served.serving.is_finished());
    client.end_transaction(transaction, EndTransaction::Commit).await.unwrap();
    drop(client);
    let after_commit = tokio::time::timeout(Duration::from_secs(10), &mut served.serving).await;
    after_commit.unwrap().unwrap().unwrap();
    assert_eq!(served.registry.sessions().len(), 0);
}

#[tokio::test]
async fn catalog_metadata_commands() {
    let served = start(|_| {}).await;
    let mut client = served.client().await;
    client.execute_update("CREATE TABLE \"t\" (\"a\" bigint, \"b\" text)".to_string(), None).await.unwrap();
    let info = client.get_catalogs().await.unwrap();
    assert_eq!(text(&fetch(&mut client, info).await.unwrap()), "toy");
    let schemas = CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: Some("pub%".to_string()) };
    let info = client.get_db_schemas(schemas).await.unwrap();
    let schemas = fetch(&mut client, info).await.unwrap();
    assert_eq!(schemas.column(1).as_ref(), &StringArray::from(vec!["public"]));
    let mut get_tables = CommandGetTables {
        catalog: Some("toy".to_string()),
        db_schema_filter_pattern: None,
        table_name_filter_pattern: None,
        table_types: vec![],
        include_schema: true,
    };
    let info = client.get_tables(get_tables.clone()).await.unwrap();
    let tables = fetch(&mut client, info).await.unwrap();
    assert_eq!(tables.column(2).as_ref(), &StringArray::from(vec!["pg_class", "t"]));
    assert_eq!(tables.column(3).as_ref(), &StringArray::from(vec!["SYSTEM VIEW", "TABLE"]));
    let columns = tables.column(4).as_binary::<i32>().value(1);
    let columns = arrow::ipc::convert::try_schema_from_ipc_buffer(columns).unwrap();
    assert_eq!(columns.fields().iter().map(|field| field.name()).collect::<Vec<_>>(), ["a", "b"]);
    (get_tables.include_schema, get_tables.table_types) = (false, vec!["TABLE".to_string()]);
    let info = client.get_tables(get_tables).await.unwrap();
    assert_eq!(fetch(&mut client, info).await.unwrap().num_rows(), 1);
    let info = client.get_table_types().await.unwrap();
    assert!(fetch(&mut client, info).await.unwrap().num_rows() > 3);
    let info = client.get_sql_info(vec![SqlInfo::FlightSqlServerName]).await.unwrap();
    let types = fetch(&mut client, info).await.unwrap();
    assert_eq!(types.column(0).as_primitive::<UInt32Type>().values(), &[0]);
    let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: None }).await.unwrap();
    assert!(fetch(&mut client, info).await.unwrap().num_rows() > 10);
    let keys = CommandGetPrimaryKeys { catalog: None, db_schema: None, table: "t".to_string() };
    let info = client.get_primary_keys(keys).await.unwrap();
    assert_eq!(fetch(&mut client, info).await.unwrap().num_rows(), 0);
    // The schema of a statement's result, without running it.
    let command = CommandStatementQuery { query: "SELECT * FROM \"t\"".to_string(), transaction_id: None };
    let mut request = FlightDescriptor::new_cmd(command.as_any().encode_to_vec()).into_request();
    let token = format!("Bearer {}", client.token().unwrap());
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let schema = client.inner_mut().get_schema(request).await.unwrap().into_inner();
    assert_eq!(arrow::datatypes::Schema::try_from(&schema).unwrap().fields().len(), 2);
}

#[tokio::test]
async fn bulk_ingestion_is_atomic() {
    let served = start(|_| {}).await;
    let mut client = served.client().await;
    let batch = |from: i64, to: i64| {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
        let words = (from..to).map(|n| (n % 3 != 0).then(|| format!("a\t{n}")));
        let words: ArrayRef = Arc::new(words.collect::<StringArray>());
        let halves: ArrayRef = Arc::new(Float64Array::from_iter_values((from..to).map(|n| n as f64 / 2.0)));
        RecordBatch::try_from_iter_with_nullable([
            ("number", numbers, false),
            ("word", words, true),
            ("half", halves, true),
        ])
    };
    let batch = |from, to| batch(from, to).unwrap();
    let into = |missing: TableNotExistOption, there: TableExistsOption| CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: missing as i32,
            if_exists: there as i32,
        }),
        table: "t".to_string(),
        schema: None,
        catalog: None,
        temporary: false,
        transaction_id: None,
        options: Default::default(),
    };
    use {TableExistsOption as Exists, TableNotExistOption as Missing};
    let send = |batches: Vec<RecordBatch>| futures::stream::iter(batches.into_iter().map(Ok));
    let missing = client.execute_ingest(into(Missing::Fail, Exists::Append), send(vec![batch(0, 1)])).await;
    check(missing, Code::NotFound, "42P01");
    let all = vec![batch(0, 10_000), batch(10_000, 20_000)];
    let count = client.execute_ingest(into(Missing::Create, Exists::Fail), send(all.clone())).await.unwrap();
    assert_eq!(count, 20_000);
    let stored = query(&mut client, "SELECT * FROM \"t\"").await.unwrap();
    assert_eq!(stored, concat_batches(&all[0].schema(), &all).unwrap());
    let there = client.execute_ingest(into(Missing::Create, Exists::Fail), send(vec![batch(0, 1)])).await;
    check(there, Code::AlreadyExists, "42P07");
    let more = client.execute_ingest(into(Missing::Create, Exists::Append), send(vec![batch(0, 5)])).await;
    assert_eq!(more.unwrap(), 5);
    let anew = client.execute_ingest(into(Missing::Create, Exists::Replace), send(vec![batch(0, 7)])).await;
    assert_eq!(anew.unwrap(), 7);
    assert_eq!(query(&mut client, "SELECT * FROM \"t\"").await.unwrap().num_rows(), 7);
    // A client that disconnects has sent nothing.
    let broken = futures::stream::iter([Ok(batch(0, 5))]).chain(futures::stream::pending());
    let (mut sender, command) = (client.clone(), into(Missing::Create, Exists::Replace));
    let sending = tokio::spawn(async move { sender.execute_ingest(command, broken).await });
    let copy = "COPY \"t\" (\"number\", \"word\", \"half\") FROM STDIN";
    let is_copying = || served.registry.statements().iter().any(|it| it.text == copy && !it.has_ended());
    while !is_copying() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    sending.abort();
    served.wait_for_phase(copy, Phase::Canceled).await;
    assert_eq!(query(&mut client, "SELECT * FROM \"t\"").await.unwrap().num_rows(), 7);
}

/// Runs a Python program against a server, on another thread, so that the server continues.
async fn python(arguments: Vec<String>) {
    let checkout = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = checkout.join("crates/server/tests/protocols/flight/clients.py");
    let run = move || {
        let python = match std::env::var_os("HARRIER_FLIGHT_PYTHON") {
            Some(python) => PathBuf::from(python),
            None => {
                let script_output = Command::new(checkout.join("scripts/clients.sh")).output().unwrap();
                assert!(script_output.status.success(), "{}", String::from_utf8_lossy(&script_output.stderr));
                PathBuf::from(String::from_utf8(script_output.stdout).unwrap().trim())
                    .join("python/bin/python3")
            }
        };
        let ran = Command::new(python).arg(program).args(arguments).output().unwrap();
        let utf8 = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(ran.status.success(), "{}{}", utf8(&ran.stdout), utf8(&ran.stderr));
        print!("{}", utf8(&ran.stdout));
    };
    tokio::task::spawn_blocking(run).await.unwrap();
}

fn skips_clients() -> bool {
    std::env::var_os("HARRIER_SKIP_SERVERS").is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn adbc_and_pyarrow_clients() {
    if skips_clients() {
        return;
    }
    let served = start(|flight| flight.limits.message_bytes_max = 64 << 20).await;
    let address = served.address.to_string();
    for part in ["adbc", "cancel", "pyarrow"] {
        python(vec![part.to_string(), format!("grpc://{address}")]).await;
    }
    served.wait_for_sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adbc_over_tls() {
    if skips_clients() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("harrier-flight-{}", std::process::id()));
    let Some(made) = TestCertificate::new(&folder) else { return };
    let served = start(|flight| flight.encryption.set(Some(&made.server))).await;
    let address = format!("grpc+tls://{}", served.address);
    python(vec!["tls".to_string(), address, made.certificate.display().to_string()]).await;
    // Unencrypted clients are refused.
    let plain = FlightSqlServiceClient::new(served.channel().await).handshake("ada", "secret: 1").await;
    plain.unwrap_err();
    std::fs::remove_dir_all(folder).unwrap();
}

/// Prints the throughput of rows: `cargo test --release -p harrier-server --test protocols flight:: --
/// --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn row_throughput() {
    let served = start(|_| {}).await;
    let mut client = served.client().await;
    let transaction = Instant::now();
    let info = client.execute("SELECT wide 4000".to_string(), None).await.unwrap();
    let mut rows = stream(&mut client, info).await.unwrap();
    let mut bytes = 0;
    while let Some(batch) = rows.try_next().await.unwrap() {
        bytes +=
            batch.columns().iter().map(|it| it.to_data().get_slice_memory_size().unwrap()).sum::<usize>();
    }
    let rate = bytes as f64 / transaction.elapsed().as_secs_f64() / 1e6;
    println!("arrow-flight: {rate:.0} MB/s");
    python(vec!["speed".to_string(), format!("grpc://{}", served.address)]).await;
}
