//! HiveServer2 as clients see it, call by call, over each transport. The backend has a few statements
//! (`mock_backend.rs`): these are tests of the protocol, not of SQL. Drivers are tested in `tests/clients`.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base64::Engine;
use bytes::{Buf, BytesMut};
use harrier_error::{SqlError, SqlState};
use harrier_server::auth::{Attempt, Authenticate};
use harrier_server::encryption::Encryption;
use harrier_server::hive::{Hive, HiveLimits, serve};
use harrier_server::registry::{Registry, Stop};
use harrier_thrift::{
    DecodeError, DecodeLimits, FRAME_BYTES, Kind, Message, Negotiation, SaslStatus, ThriftValue as Value,
    frame, frame_length,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::mock_backend::MockBackend;
use crate::self_signed::TestCertificate;

const LIMITS: DecodeLimits = DecodeLimits { bytes: 64 << 20, values: 1 << 22 };

/// Numbers of `TOperationState`.
const RUNNING: i64 = 1;
const CANCELED: i64 = 3;
const FAILED: i64 = 5;
const TIMED_OUT: i64 = 8;

const NEXT: i32 = 0;
const FIRST: i32 = 4;

/// Knows two users.
struct PasswordCheck;

#[async_trait]
impl Authenticate for PasswordCheck {
    async fn authenticate(&self, attempt: &Attempt<'_>) -> Result<String, SqlError> {
        match (attempt.user, attempt.password) {
            (user @ ("ada" | "eve"), Some("secret")) => Ok(user.to_string()),
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
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn start(change: impl FnOnce(&mut Hive)) -> TestServer {
    let registry = Arc::new(Registry::default());
    let mut hive = Hive {
        backend: Arc::new(MockBackend::default()),
        registry: Arc::clone(&registry),
        authenticate: Arc::new(PasswordCheck),
        encryption: Encryption::new(&[]),
        database: "toy".to_string(),
        settings: Vec::new(),
        limits: HiveLimits::default(),
    };
    change(&mut hive);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let stopped = async move {
        if stopped.await.is_err() {
            pending().await
        }
    };
    TestServer { address, registry, stop: Some(stop), serving: tokio::spawn(serve(listener, hive, stopped)) }
}

impl TestServer {
    async fn wait_for_sessions(&self, count: usize) {
        let begin = Instant::now();
        while self.registry.sessions().len() != count {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:#?}", self.registry.sessions());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// A client without SASL, with a session.
    async fn client(&self) -> Client {
        let mut client = Client::plain(self.address).await;
        client.open("ada", "secret", 9).await.unwrap();
        client
    }
}

trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// How calls travel.
enum Wire {
    Plain,
    Framed,
    /// With the headers of each request.
    Http(String),
}

struct Client {
    stream: Box<dyn Bytes>,
    input: BytesMut,
    wire: Wire,
    session: Value,
    sequence: i32,
}

/// SQLSTATE and message of a status that is no success.
type Refusal = (String, String);

impl Client {
    fn new(stream: impl Bytes + 'static, wire: Wire) -> Self {
        let session = Value::Struct(Vec::new());
        Self { stream: Box::new(stream), input: BytesMut::new(), wire, session, sequence: 0 }
    }

    async fn plain(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).await.unwrap(), Wire::Plain)
    }

    /// Errors: the server's words.
    async fn sasl(address: SocketAddr, user: &str, password: &str) -> Result<Self, String> {
        let mut client = Self::new(TcpStream::connect(address).await.unwrap(), Wire::Framed);
        let mut out = BytesMut::new();
        Negotiation::new(SaslStatus::Start, "PLAIN").encode(&mut out);
        Negotiation::new(SaslStatus::Ok, format!("\0{user}\0{password}")).encode(&mut out);
        client.stream.write_all(&out).await.unwrap();
        let answer = loop {
            match Negotiation::decode(&client.input, 1000) {
                Ok((answer, length)) => {
                    client.input.advance(length);
                    break answer;
                }
                Err(DecodeError::Incomplete(_)) => client.read().await,
                Err(error) => panic!("{error:?}"),
            }
        };
        match answer.status {
            SaslStatus::Complete => Ok(client),
            _ => Err(String::from_utf8_lossy(&answer.payload).into_owned()),
        }
    }

    async fn http(address: SocketAddr, headers: &str) -> Self {
        Self::new(TcpStream::connect(address).await.unwrap(), Wire::Http(headers.to_string()))
    }

    async fn read(&mut self) {
        assert_ne!(self.stream.read_buf(&mut self.input).await.unwrap(), 0, "the server has closed");
    }

    /// Sends a call; returns the reply or exception.
    async fn send(&mut self, method: &str, request: Value) -> Message {
        self.sequence += 1;
        let mut out = BytesMut::new();
        if matches!(self.wire, Wire::Framed) {
            out.resize(FRAME_BYTES, 0);
        }
        Message::call(method, self.sequence, request).encode(&mut out);
        match &self.wire {
            Wire::Plain => {}
            Wire::Framed => frame(&mut out, 0),
            Wire::Http(headers) => {
                let head = format!(
                    "POST /cliservice HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{headers}\r\n",
                    out.len()
                );
                self.stream.write_all(head.as_bytes()).await.unwrap();
            }
        }
        self.stream.write_all(&out).await.unwrap();
        loop {
            if let Some((message, length)) = self.reply() {
                self.input.advance(length);
                assert_eq!((message.sequence, message.method.as_str()), (self.sequence, method));
                return message;
            }
            self.read().await;
        }
    }

    fn reply(&mut self) -> Option<(Message, usize)> {
        let skip = match &self.wire {
            Wire::Plain => 0,
            Wire::Framed => {
                frame_length(&self.input, usize::MAX).ok()?;
                FRAME_BYTES
            }
            Wire::Http(_) => {
                let text = String::from_utf8_lossy(&self.input);
                let end = text.find("\r\n\r\n")?;
                assert!(text.starts_with("HTTP/1.1 200"), "{}", &text[..end]);
                end + 4
            }
        };
        match Message::decode(&self.input[skip..], LIMITS) {
            Ok((message, length)) => Some((message, skip + length)),
            Err(DecodeError::Incomplete(_)) => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Calls a method; returns its result.
    async fn call(&mut self, method: &str, request: Value) -> Result<Value, Refusal> {
        let message = self.send(method, request).await;
        assert_eq!(message.kind, Kind::Reply, "{message:?}");
        let result = message.result().unwrap().clone();
        let status = result.field(1).unwrap();
        match status.field(1).and_then(Value::integer) {
            Some(0) => Ok(result),
            _ => {
                let text = |number| status.field(number).and_then(Value::string).unwrap_or_default();
                Err((text(3), text(5)))
            }
        }
    }

    async fn open(&mut self, user: &str, password: &str, protocol: i32) -> Result<Value, Refusal> {
        let fields = vec![(1, Value::I32(protocol)), (2, Value::text(user)), (3, Value::text(password))];
        let opened = self.call("OpenSession", Value::Struct(fields)).await?;
        self.session = opened.field(3).unwrap().clone();
        Ok(opened)
    }

    async fn execute(&mut self, text: &str, is_asynchronous: bool, seconds: i64) -> Result<Value, Refusal> {
        let request = Value::Struct(vec![
            (1, self.session.clone()),
            (2, Value::text(text)),
            (4, Value::Bool(is_asynchronous)),
            (5, Value::I64(seconds)),
        ]);
        Ok(self.call("ExecuteStatement", request).await?.field(2).unwrap().clone())
    }

    /// Calls a method about an operation.
    async fn about(&mut self, method: &str, operation: &Value) -> Result<Value, Refusal> {
        self.call(method, Value::Struct(vec![(1, operation.clone())])).await
    }

    /// Fetches rows; returns the first column, of 64-bit integers, and the number of the first row.
    async fn fetch(&mut self, operation: &Value, from: i32, most: i64) -> Result<(i64, Vec<i64>), Refusal> {
        let request =
            Value::Struct(vec![(1, operation.clone()), (2, Value::I32(from)), (3, Value::I64(most))]);
        let fetched = self.call("FetchResults", request).await?;
        let rows = fetched.field(3).unwrap();
        let start = rows.field(1).and_then(Value::integer).unwrap();
        let column = &rows.field(3).unwrap().items()[0];
        let values = column.field(5).unwrap().field(1).unwrap().items();
        Ok((start, values.iter().map(|value| value.integer().unwrap()).collect()))
    }

    async fn state(&mut self, operation: &Value) -> (i64, String) {
        let status = self.about("GetOperationStatus", operation).await.unwrap();
        let text = status.field(5).and_then(Value::string).unwrap_or_default();
        (status.field(2).and_then(Value::integer).unwrap(), text)
    }

    /// Waits until the connection is closed by the server.
    async fn wait_for_close(mut self) {
        let closed =
            async { while self.stream.read_buf(&mut self.input).await.is_ok_and(|count| count > 0) {} };
        tokio::time::timeout(Duration::from_secs(60), closed).await.expect("the connection is closed");
    }
}

fn basic(user: &str, password: &str) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Authorization: Basic {encoded}\r\n")
}

#[tokio::test]
async fn statements_run_over_every_transport() {
    let server = start(|_| {}).await;
    let clients = [
        Client::plain(server.address).await,
        Client::sasl(server.address, "ada", "secret").await.unwrap(),
        Client::http(server.address, &basic("ada", "secret")).await,
    ];
    for mut client in clients {
        client.open("ada", "secret", 9).await.unwrap();
        let operation = client.execute("SELECT 1", false, 0).await.unwrap();
        assert_eq!(operation.field(3), Some(&Value::Bool(true)));
        let columns = client.about("GetResultSetMetadata", &operation).await.unwrap();
        let column = &columns.field(2).unwrap().field(1).unwrap().items()[0];
        assert_eq!(column.field(1), Some(&Value::text("one")));
        assert_eq!(client.fetch(&operation, NEXT, 100).await.unwrap(), (0, vec![1]));
        assert_eq!(client.fetch(&operation, NEXT, 100).await.unwrap(), (1, vec![]));
        client.about("CloseOperation", &operation).await.unwrap();
        assert!(
            client
                .about("CloseOperation", &operation)
                .await
                .unwrap_err()
                .1
                .contains("Invalid OperationHandle")
        );
        let session = client.session.clone();
        client.about("CloseSession", &session).await.unwrap();
        assert!(client.execute("SELECT 1", false, 0).await.unwrap_err().1.contains("Invalid SessionHandle"));
    }
    server.wait_for_sessions(0).await;
}

#[tokio::test]
async fn a_wrong_password_is_refused_over_every_transport() {
    let server = start(|_| {}).await;
    let mut client = Client::plain(server.address).await;
    let refusal = client.open("ada", "wrong", 9).await.unwrap_err();
    assert_eq!(refusal.0, "28P01");
    // Another attempt over the same connection.
    client.open("ada", "secret", 9).await.unwrap();
    let refusal = Client::sasl(server.address, "ada", "wrong").await.err().unwrap();
    assert!(refusal.contains("password authentication failed"), "{refusal}");
    for headers in [basic("ada", "wrong"), String::new(), "Authorization: Basic !\r\n".to_string()] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = format!("POST /cliservice HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4000];
        let count = stream.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..count]).to_lowercase();
        assert!(answer.starts_with("http/1.1 401") && answer.contains("www-authenticate: basic"), "{answer}");
    }
    assert_eq!(server.registry.sessions().len(), 1);
}

/// Hue and balancers change connections; a session is known by its handle, of which half is secret.
#[tokio::test]
async fn a_session_is_used_over_other_connections_by_who_knows_its_secret() {
    let server = start(|_| {}).await;
    let first = server.client().await;
    let mut second = Client::plain(server.address).await;
    second.session = first.session.clone();
    assert!(second.execute("SELECT 1", false, 0).await.is_ok());
    let guid = first.session.field(1).unwrap().field(1).unwrap().clone();
    let forged = Value::Struct(vec![(1, guid), (2, Value::text("0123456789abcdef"))]);
    second.session = Value::Struct(vec![(1, forged)]);
    assert!(second.execute("SELECT 1", false, 0).await.unwrap_err().1.contains("Invalid SessionHandle"));
    // It ends with the connection that opened it.
    drop(first);
    server.wait_for_sessions(0).await;
}

#[tokio::test]
async fn sessions_over_http_outlive_connections_and_cookies_stand_for_passwords() {
    let server = start(|_| {}).await;
    let mut client = Client::http(server.address, &basic("ada", "secret")).await;
    client.open("ada", "secret", 9).await.unwrap();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let mut out = BytesMut::new();
    Message::call("GetInfo", 1, Value::Struct(vec![(1, client.session.clone()), (2, Value::I32(17))]))
        .encode(&mut out);
    let request = format!(
        "POST /cliservice HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{}\r\n",
        out.len(),
        basic("ada", "secret")
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(&out).await.unwrap();
    let mut answer = vec![0; 4000];
    let count = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    let line = answer.lines().find(|line| line.to_lowercase().starts_with("set-cookie: ")).expect("a cookie");
    let cookie = line.split_once(": ").unwrap().1.split(';').next().unwrap().to_string();
    assert!(line.contains("HttpOnly"), "{line}");
    let mut other = Client::http(server.address, &format!("Cookie: {cookie}\r\n")).await;
    other.session = client.session.clone();
    drop(client);
    assert!(other.execute("SELECT 1", false, 0).await.is_ok());
    let session = other.session.clone();
    other.about("CloseSession", &session).await.unwrap();
    server.wait_for_sessions(0).await;
}

#[tokio::test]
async fn unknown_calls_get_an_exception_and_the_connection_goes_on() {
    let server = start(|_| {}).await;
    let mut client = server.client().await;
    for method in ["GetLog", "CloseImpalaOperation", "PingImpalaHS2Service", "GetDelegationToken", "Nonsense"]
    {
        let answer = client.send(method, Value::Struct(vec![])).await;
        assert_eq!((answer.kind, answer.body.field(2)), (Kind::Exception, Some(&Value::I32(1))), "{method}");
    }
    let request = Value::Struct(vec![(1, client.session.clone()), (2, Value::I32(4711))]);
    assert!(client.call("GetInfo", request).await.unwrap_err().1.contains("Unrecognized GetInfoType"));
    let request = Value::Struct(vec![(1, client.session.clone()), (2, Value::I32(17))]);
    let info = client.call("GetInfo", request).await.unwrap();
    assert_eq!(info.field(2).unwrap().field(1), Some(&Value::text("Apache Hive")));
}

#[tokio::test]
async fn all_rows_arrive_in_order_and_can_be_read_again() {
    let server = start(|_| {}).await;
    let mut client = server.client().await;
    let operation = client.execute("SELECT numbers 100000", true, 0).await.unwrap();
    let mut rows = Vec::new();
    loop {
        let (start, more) = client.fetch(&operation, NEXT, 30_000).await.unwrap();
        assert_eq!(start, rows.len() as i64);
        assert!(more.len() <= 30_000);
        if more.is_empty() {
            break;
        }
        rows.extend(more);
    }
    assert!(rows.len() == 100_000 && rows.is_sorted());
    let (start, again) = client.fetch(&operation, FIRST, 10).await.unwrap();
    assert_eq!((start, &again[..]), (0, &rows[..10]));
    assert_eq!(client.fetch(&operation, 1, 10).await.unwrap_err().0, "0A000");
}

#[tokio::test]
async fn errors_are_reported_where_they_happen() {
    let server = start(|_| {}).await;
    let mut client = server.client().await;
    for is_asynchronous in [false, true] {
        let (state, message) = client.execute("SELECT * FROM missing", is_asynchronous, 0).await.unwrap_err();
        assert_eq!(state, "42S02");
        assert!(message.contains("SemanticException [Error 10001]: Table not found missing"), "{message}");
    }
    for text in ["SELECT then fail", "SELECT then panic"] {
        let operation = client.execute(text, true, 0).await.unwrap();
        let failure = loop {
            match client.fetch(&operation, NEXT, 1_000_000).await {
                Ok((_, rows)) => assert!(!rows.is_empty(), "{text}: the rows end without an error"),
                Err(failure) => break failure,
            }
        };
        assert!(["22012", "XX000"].contains(&failure.0.as_str()), "{failure:?}");
        assert_eq!(client.state(&operation).await.0, FAILED);
        client.about("CloseOperation", &operation).await.unwrap();
    }
    assert!(client.execute("SELECT 1", false, 0).await.is_ok());
}

#[tokio::test]
async fn statements_are_canceled_from_another_connection() {
    let server = start(|_| {}).await;
    let mut client = server.client().await;
    let operation = client.execute("WAIT", true, 0).await.unwrap();
    assert_eq!(client.state(&operation).await.0, RUNNING);
    let mut other = Client::plain(server.address).await;
    other.about("CancelOperation", &operation).await.unwrap();
    let (state, message) = client.state(&operation).await;
    assert_eq!(state, CANCELED);
    assert!(message.contains("canceling statement"), "{message}");
    let operation = client.execute("SELECT numbers 9000000000", true, 0).await.unwrap();
    assert_eq!(client.fetch(&operation, NEXT, 3).await.unwrap().1.len(), 3);
    client.about("CloseOperation", &operation).await.unwrap();
    assert!(client.execute("SELECT 1", false, 0).await.is_ok());
}

#[tokio::test]
async fn time_limits_end_statements() {
    let server = start(|_| {}).await;
    let mut client = server.client().await;
    let operation = client.execute("WAIT", true, 1).await.unwrap();
    let begin = Instant::now();
    let state = loop {
        match client.state(&operation).await {
            (RUNNING, _) => assert!(begin.elapsed() < Duration::from_secs(60)),
            (state, _) => break state,
        }
    };
    assert_eq!(state, TIMED_OUT);
    assert_eq!(client.execute("WAIT", false, 1).await.unwrap_err().0, "57014");
}

/// Rows of which some are in a buffer do not end as if they were all when their statement is canceled.
#[tokio::test]
async fn a_canceled_result_is_no_complete_one() {
    let server = start(|_| {}).await;
    let mut client = server.client().await;
    let first = client.execute("SELECT numbers 100000", true, 0).await.unwrap();
    let second = client.execute("SELECT 1", false, 0).await.unwrap();
    client.about("CloseOperation", &second).await.unwrap();
    client.about("CancelOperation", &first).await.unwrap();
    let failure = loop {
        match client.fetch(&first, NEXT, 10_000).await {
            Ok((_, rows)) => assert!(!rows.is_empty(), "the rows end without an error"),
            Err(failure) => break failure,
        }
    };
    assert_eq!(failure.0, "57014");
}

#[tokio::test]
async fn handles_are_of_no_use_to_other_roles() {
    let server = start(|_| {}).await;
    let mut ada = Client::sasl(server.address, "ada", "secret").await.unwrap();
    ada.open("ada", "secret", 9).await.unwrap();
    let operation = ada.execute("SELECT numbers 100", true, 0).await.unwrap();
    let others = [
        Client::sasl(server.address, "eve", "secret").await.unwrap(),
        Client::http(server.address, &basic("eve", "secret")).await,
    ];
    for mut eve in others {
        eve.session = ada.session.clone();
        assert!(eve.execute("SELECT 1", false, 0).await.unwrap_err().1.contains("Invalid SessionHandle"));
        let refusal = eve.fetch(&operation, NEXT, 5).await.unwrap_err();
        assert!(refusal.1.contains("Invalid OperationHandle"), "{refusal:?}");
        assert!(eve.about("CancelOperation", &operation).await.is_err());
    }
    assert_eq!(ada.fetch(&operation, NEXT, 5).await.unwrap().1.len(), 5);
    let proxy = Value::Struct(vec![
        (1, Value::I32(9)),
        (4, Value::Map(vec![(Value::text("hive.server2.proxy.user"), Value::text("eve"))])),
    ]);
    assert_eq!(ada.call("OpenSession", proxy).await.unwrap_err().0, "42501");
}

/// A statement whose rows nobody reads lets the next one of the session in, and its rows are still there.
#[tokio::test]
async fn unread_rows_do_not_hold_up_the_next_statement() {
    let server = start(|_| {}).await;
    let mut client = server.client().await;
    let first = client.execute("SELECT numbers 100000", true, 0).await.unwrap();
    let (_, mut rows) = client.fetch(&first, NEXT, 5).await.unwrap();
    let second = client.execute("SELECT 1", false, 0).await.unwrap();
    assert_eq!(client.fetch(&second, NEXT, 5).await.unwrap().1, [1]);
    while rows.len() < 100_000 {
        let (start, more) = client.fetch(&first, NEXT, 7000).await.unwrap();
        assert_eq!((start, more.is_empty()), (rows.len() as i64, false));
        rows.extend(more);
    }
    assert!(rows.is_sorted() && client.fetch(&first, NEXT, 7000).await.unwrap().1.is_empty());
}

#[tokio::test]
async fn idle_rows_go_into_a_buffer() {
    let server = start(|hive| hive.limits.buffer_after = Duration::from_millis(10)).await;
    let mut client = Client::http(server.address, &basic("ada", "secret")).await;
    client.open("ada", "secret", 9).await.unwrap();
    let operation = client.execute("SELECT numbers 100000", true, 0).await.unwrap();
    let begin = Instant::now();
    // Without anybody reading, the statement ends.
    while server.registry.statements().iter().any(|statement| !statement.has_ended()) {
        assert!(begin.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(client.fetch(&operation, NEXT, 10).await.unwrap().1.len(), 10);
}

#[tokio::test]
async fn idle_sessions_end() {
    let server = start(|hive| hive.limits.idle = Duration::from_millis(10)).await;
    let mut client = Client::http(server.address, &basic("ada", "secret")).await;
    client.open("ada", "secret", 9).await.unwrap();
    server.wait_for_sessions(0).await;
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_statement() {
    let server = start(|_| {}).await;
    let mut client = server.client().await;
    let request = Value::Struct(vec![(1, client.session.clone()), (2, Value::text("WAIT"))]);
    let mut out = BytesMut::new();
    Message::call("ExecuteStatement", 9, request).encode(&mut out);
    client.stream.write_all(&out).await.unwrap();
    while server.registry.statements().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(client);
    server.wait_for_sessions(0).await;
    let begin = Instant::now();
    while server.registry.statements().iter().any(|statement| !statement.has_ended()) {
        assert!(begin.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn sessions_are_terminated_on_request() {
    let server = start(|_| {}).await;
    let mut client = server.client().await;
    let operation = client.execute("WAIT", true, 0).await.unwrap();
    server.registry.sessions()[0].stop(Stop::Session);
    server.wait_for_sessions(0).await;
    assert!(client.about("GetOperationStatus", &operation).await.is_err());
    assert!(client.execute("SELECT 1", false, 0).await.is_err());
}

#[tokio::test]
async fn a_drain_waits_for_statements_and_transactions() {
    let mut server = start(|_| {}).await;
    let mut client = server.client().await;
    client.execute("BEGIN", false, 0).await.unwrap();
    let idle = server.client().await;
    let mut reader = server.client().await;
    let rows = reader.execute("SELECT 1", true, 0).await.unwrap();
    server.stop.take().unwrap().send(()).unwrap();
    server.wait_for_sessions(2).await;
    drop(idle);
    assert_eq!(reader.fetch(&rows, NEXT, 5).await.unwrap().1, [1]);
    assert!(reader.fetch(&rows, NEXT, 5).await.unwrap().1.is_empty());
    server.wait_for_sessions(1).await;
    let mut late = Client::plain(server.address).await;
    assert_eq!(late.open("ada", "secret", 9).await.unwrap_err().0, "57P03");
    assert!(!server.serving.is_finished());
    client.execute("COMMIT", false, 0).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), &mut server.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn the_number_of_sessions_and_operations_is_limited() {
    let server = start(|hive| {
        hive.limits.sessions_max = 2;
        hive.limits.operations_max = 2;
    })
    .await;
    let mut client = server.client().await;
    let _second = server.client().await;
    let mut third = Client::plain(server.address).await;
    assert_eq!(third.open("ada", "secret", 9).await.unwrap_err().0, "53300");
    let first = client.execute("SELECT 1", false, 0).await.unwrap();
    client.execute("SELECT 1", false, 0).await.unwrap();
    assert_eq!(client.execute("SELECT 1", false, 0).await.unwrap_err().0, "53400");
    client.about("CloseOperation", &first).await.unwrap();
    client.execute("SELECT 1", false, 0).await.unwrap();
}

#[tokio::test]
async fn hostile_bytes_end_the_connection_and_nothing_else() {
    let server = start(|hive| hive.limits.message_bytes_max = 1 << 20).await;
    let mut good = server.client().await;
    let mut long = BytesMut::new();
    Message::call("OpenSession", 1, Value::text("")).encode(&mut long);
    long.truncate(long.len() - 5);
    long.extend_from_slice(&i32::MAX.to_be_bytes());
    let mut deep = Value::Bool(true);
    for _ in 0..1000 {
        deep = Value::List(vec![deep]);
    }
    let mut nested = BytesMut::new();
    Message::call("OpenSession", 1, deep).encode(&mut nested);
    // More than a client may send before it is known.
    let mut large = BytesMut::new();
    Message::call("OpenSession", 1, Value::text("x".repeat(100 << 10))).encode(&mut large);
    let cases: [&[u8]; 8] = [
        b"garbage\n",
        b"\x16\x03\x01",
        b"\x80\x02\0\0aaaaaaaaaaaaaaaa",
        b"\x01\x7f\xff\xff\xff",
        b"\x01\0\0\0\x06GSSAPI",
        &long,
        &nested,
        &large,
    ];
    for bytes in cases {
        let mut client = Client::plain(server.address).await;
        client.stream.write_all(bytes).await.unwrap();
        client.wait_for_close().await;
    }
    let request = Value::Struct(vec![(1, good.session.clone()), (2, Value::text("x".repeat(2 << 20)))]);
    assert!(good.execute("SELECT 1", false, 0).await.is_ok());
    let mut out = BytesMut::new();
    Message::call("ExecuteStatement", 1, request).encode(&mut out);
    let _ = good.stream.write_all(&out).await;
    good.wait_for_close().await;
    assert!(server.client().await.execute("SELECT 1", false, 0).await.is_ok());
}

#[tokio::test]
async fn silent_clients_are_disconnected() {
    let server = start(|hive| hive.limits.authentication_timeout = Duration::from_millis(50)).await;
    for bytes in [&b""[..], b"\x80", b"\x01\0\0\0\x05PLAIN"] {
        let mut client = Client::plain(server.address).await;
        client.stream.write_all(bytes).await.unwrap();
        client.wait_for_close().await;
    }
}

#[tokio::test]
async fn clients_get_the_protocol_version_that_both_know() {
    let server = start(|_| {}).await;
    for (asked, got) in [(0, 0), (5, 5), (9, 9), (10, 9), (99, 9), (-1, 0)] {
        let mut client = Client::plain(server.address).await;
        let opened = client.open("ada", "secret", asked).await.unwrap();
        assert_eq!(opened.field(2), Some(&Value::I32(got)));
        let operation = client.execute("SELECT 1", false, 0).await.unwrap();
        let request = Value::Struct(vec![(1, operation), (2, Value::I32(NEXT)), (3, Value::I64(10))]);
        let rows = client.call("FetchResults", request).await.unwrap().field(3).unwrap().clone();
        // Rows before version 6, columns from then on.
        assert_eq!(rows.field(2).unwrap().items().len(), usize::from(got < 5));
        assert_eq!(rows.field(3).is_some(), got >= 5);
    }
}

#[tokio::test]
async fn connections_are_encrypted_from_the_first_byte() {
    let folder = std::env::temp_dir().join(format!("harrier-hive-{}", std::process::id()));
    let Some(made) = TestCertificate::new(&folder) else { return };
    std::fs::remove_dir_all(folder).unwrap();
    let server = start(|hive| hive.encryption.set(Some(&made.server))).await;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(made.client));
    let stream = TcpStream::connect(server.address).await.unwrap();
    let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let mut client = Client::new(stream, Wire::Plain);
    client.open("ada", "secret", 9).await.unwrap();
    let operation = client.execute("SELECT 1", false, 0).await.unwrap();
    assert_eq!(client.fetch(&operation, NEXT, 5).await.unwrap().1, [1]);
    let mut unencrypted = Client::plain(server.address).await;
    unencrypted.stream.write_all(b"\x80\x01\0\x01").await.unwrap();
    unencrypted.wait_for_close().await;
}
