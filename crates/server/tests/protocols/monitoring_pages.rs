//! Monitoring pages over real HTTP: contents, authorization, refused requests, metrics for Prometheus, and
//! health checks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use harrier_error::{SqlError, SqlState};
use harrier_server::facts::ANSWER_TIMEOUT;
use harrier_server::http::{self, Pages};
use harrier_server::overview::{
    Overview, QueueFacts, RankFacts, RankState, ServerFacts, SnapshotFacts, TableFacts,
};
use harrier_server::probe::Probe;
use harrier_server::registry::{Phase, Registry, SessionGuard, Stop};
use harrier_session_api::query_profile::{Memory, Operator, QueryProfile, Scan, Share, Slice};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::python::python;
use crate::self_signed::TestCertificate;

/// State of the server as the overview reports it, changed by tests.
#[derive(Clone)]
struct ServerState {
    closed: Option<String>,
    wanted: usize,
    ranks: Vec<RankState>,
    tables: Result<Vec<TableFacts>, SqlError>,
    /// Queries about ranks hang.
    stuck: bool,
}

struct MockOverview(Mutex<ServerState>);

#[async_trait]
impl Overview for MockOverview {
    async fn server(&self) -> ServerFacts {
        let state = self.0.lock().clone();
        ServerFacts {
            version: "9.8.7".to_string(),
            since: SystemTime::now() - Duration::from_secs(100),
            warehouse: "/srv/<warehouse>".to_string(),
            listen: vec!["127.0.0.1:5433".to_string()],
            closed: state.closed,
            ranks_wanted: state.wanted,
        }
    }

    async fn ranks(&self) -> Vec<RankFacts> {
        let state = self.0.lock().clone();
        if state.stuck {
            std::future::pending::<()>().await;
        }
        let rank = |(number, state): (usize, &RankState)| RankFacts {
            number,
            host: format!("host\"{number}\\"),
            process: Some(number as u32 + 1),
            state: *state,
            reason: (*state == RankState::Down).then(|| "it was <killed>".to_string()),
            sent_bytes: 5_000_000_000,
            reserved_bytes: 1 << 20,
            memory_bytes: Some(2 << 20),
            resident_bytes: Some(3 << 20),
            processor_seconds: 1.5,
            busy_cores: Some(1.7),
            report_age: Some(Duration::from_millis(1234)),
            ..RankFacts::default()
        };
        state.ranks.iter().enumerate().map(rank).collect()
    }

    async fn queues(&self) -> Vec<QueueFacts> {
        let limits = vec![("active_statements".to_string(), "3".to_string())];
        vec![QueueFacts {
            name: "<default>".to_string(),
            limits,
            running: 2,
            waiting: 7,
            ..QueueFacts::default()
        }]
    }

    async fn tables(&self) -> Result<Vec<TableFacts>, SqlError> {
        self.0.lock().tables.clone()
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotFacts>, SqlError> {
        Ok(vec![SnapshotFacts {
            id: 4711,
            at: SystemTime::now(),
            changes: "dropped_table:<1>".to_string(),
            author: Some("<author>".to_string()),
            message: None,
        }])
    }
}

/// A statement's profile, changed by tests.
#[derive(Debug)]
struct MockProbe(Mutex<QueryProfile>);

#[async_trait]
impl Probe for MockProbe {
    fn snapshot(&self) -> QueryProfile {
        self.0.lock().clone()
    }

    fn memory(&self) -> Vec<Memory> {
        self.snapshot().memory
    }

    async fn refresh(&self) -> QueryProfile {
        self.snapshot()
    }
}

/// A server of pages, stopped when dropped.
struct PageServer {
    address: SocketAddr,
    registry: Arc<Registry>,
    overview: Arc<MockOverview>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl PageServer {
    async fn start(change: impl FnOnce(&mut Pages)) -> Self {
        let registry = Arc::new(Registry::default());
        let table = TableFacts {
            schema: "public".to_string(),
            name: "<lineitem>".to_string(),
            rows: 6_001_215,
            bytes: 1536,
            files: 3,
            partitioned_by: Some("month(<at>)".to_string()),
            ..TableFacts::default()
        };
        let state = ServerState {
            closed: None,
            wanted: 2,
            ranks: vec![RankState::Working, RankState::Working, RankState::Spare],
            tables: Ok(vec![table]),
            stuck: false,
        };
        let overview = Arc::new(MockOverview(Mutex::new(state)));
        let mut pages = Pages::new(Arc::clone(&registry), Arc::clone(&overview) as Arc<dyn Overview>);
        change(&mut pages);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(http::serve(listener, pages, async move { drop(stopped.await) }));
        Self { address, registry, overview, stop: Some(stop), serving }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        ask(stream, &self.address.to_string(), method, path, headers, body).await
    }

    fn session(&self, role: &str) -> SessionGuard {
        self.registry.enter(self.registry.next_session(), 1, role, "warehouse", None)
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Answer {
    fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    /// The CSRF token of the forms on a page.
    fn token(&self) -> String {
        let (_, after) = self.body.split_once("name=\"token\" value=\"").expect(&self.body);
        after.split_once('"').unwrap().0.to_string()
    }
}

/// Sends one request on a connection of its own.
async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request.push_str(&format!("Host: {host}\r\n"));
    }
    headers.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
        .collect();
    Answer { status, headers, body: body.to_string() }
}

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

#[tokio::test]
async fn pages_show_their_subject_escaped() {
    let server = PageServer::start(|pages| pages.actions = true).await;
    let session = server.session("<role>");
    session.entry.set_application("<application>");
    let statement = server.registry.begin(&session.entry, "SELECT '<script>' & \"<b>\"");
    statement.set_queue("<queue>");
    let scan = Scan { name: "<plan>".to_string(), files: 1, bytes: 10, rows: None };
    let share = Share { moved_bytes: 9 << 20, ..Share::default() };
    let operator =
        Operator { detail: "<x>".to_string(), scan: Some(scan), shares: vec![share], ..Operator::default() };
    let slices = vec![Slice { number: 1, ranks: 2, operators: vec![operator] }];
    statement.set_probe(Arc::new(MockProbe(Mutex::new(QueryProfile { slices, ..QueryProfile::default() }))));
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.registry.end(&statement, Some((SqlState::SYNTAX_ERROR, "near \"<b>\"".to_string())));
    for (path, expected) in [
        ("/", "&lt;warehouse&gt;"),
        ("/", "2<span class=\"of\"> of 2</span>"),
        ("/statements", "&lt;script&gt;"),
        ("/statements/1", "near &quot;&lt;b&gt;&quot;"),
        ("/statements/1", "slice 1 on 2 ranks, reads &lt;plan&gt;"),
        ("/statements/1", "<svg"),
        ("/statements/1", "<dt>moved between ranks</dt><dd>9.0 MiB"),
        ("/statements", "9.0 MiB"),
        ("/sessions", "&lt;application&gt;"),
        ("/ranks", "host&quot;1"),
        ("/ranks", "1.0 MiB<span class=\"of\"> of 2.0 MiB"),
        ("/ranks", "1.2 s"),
        ("/queues", "active_statements 3"),
        ("/tables", "6,001,215"),
        ("/tables", "month(&lt;at&gt;)"),
        ("/tables", "dropped_table:&lt;1&gt;"),
    ] {
        let page = server.get(path).await.expect(200);
        assert!(page.body.contains(expected), "{path} has no {expected}: {}", page.body);
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        for bad in [
            "<script>",
            "<b>",
            "<role>",
            "<application>",
            "<queue>",
            "<x>",
            "<default>",
            "<warehouse>",
            "<lineitem>",
            "<author>",
        ] {
            assert!(!page.body.contains(bad), "{path} has {bad}");
        }
        // The page has nothing that its content security policy refuses.
        for bad in [" style=", " onclick=", "javascript:", "http://", "https://"] {
            assert!(!page.body.replace("http://www.w3.org/2000/svg", "").contains(bad), "{path} has {bad}");
        }
    }
    for (path, kind) in
        [("/pages.css", "text/css"), ("/pages.js", "text/javascript"), ("/favicon.svg", "image/svg+xml")]
    {
        assert!(server.get(path).await.expect(200).headers["content-type"].starts_with(kind));
    }
}

#[tokio::test]
async fn responses_have_security_headers() {
    let server = PageServer::start(|pages| pages.login = Some(Arc::new(|_, _| false))).await;
    for path in ["/", "/metrics", "/healthz", "/pages.css", "/absent"] {
        let answer = server.get(path).await;
        let policy = &answer.headers["content-security-policy"];
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers["x-frame-options"], "DENY");
        assert_eq!(answer.headers["cache-control"], "no-store");
    }
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let server = PageServer::start(|_| {}).await;
    for path in [
        "/absent",
        "/statements/7",
        "/statements/x",
        "/statements/%3Cb%3E",
        "/statements/99999999999999999999",
    ] {
        let page = server.get(path).await.expect(404);
        assert!(!page.body.contains("<b>"), "{}", page.body);
    }
    server.ask("POST", "/", &[FORM], "").await.expect(405);
    server.get("/statements/1/cancel").await.expect(405);
}

#[tokio::test]
async fn statements_are_filtered_by_state_and_text() {
    let server = PageServer::start(|_| {}).await;
    let session = server.session("ada");
    let ended = server.registry.begin(&session.entry, "SELECT first");
    server.registry.end(&ended, None);
    let failed = server.registry.begin(&session.entry, "SELECT second");
    server.registry.end(&failed, Some((SqlState::DIVISION_BY_ZERO, "division by zero".to_string())));
    server.registry.begin(&session.entry, "SELECT third").set_phase(Phase::Running);
    for (query, expected) in [
        ("", ["first", "second", "third"].as_slice()),
        ("?show=running", &["third"]),
        ("?show=failed", &["second"]),
        ("?find=FIRST", &["first"]),
        ("?find=ada", &["first", "second", "third"]),
        ("?find=eve", &[]),
        ("?show=failed&find=first", &[]),
        ("?show=%00&find=%F0%9F%A6%85", &[]),
    ] {
        let page = server.get(&format!("/statements{query}")).await.expect(200);
        for word in ["first", "second", "third"] {
            let is_listed = page.body.contains(&format!("SELECT {word}"));
            assert_eq!(is_listed, expected.contains(&word), "{query} {word}");
        }
    }
}

#[tokio::test]
async fn statement_pages_show_progress_and_profile() {
    let server = PageServer::start(|_| {}).await;
    let session = server.session("ada");
    let statement = server.registry.begin(&session.entry, "SELECT count(*) FROM lineitem");
    statement.set_phase(Phase::Running);
    let page = server.get("/statements/1").await.expect(200);
    assert!(!page.body.contains("<progress") && !page.body.contains("Plan"), "{}", page.body);
    let scan = Scan { name: "lineitem".to_string(), files: 1, bytes: 1000, rows: None };
    let share = |rank, read_bytes| Share { rank, rows: Some(read_bytes), read_bytes, ..Share::default() };
    let operator =
        Operator { scan: Some(scan), shares: vec![share(0, 200), share(1, 50)], ..Operator::default() };
    let slices = vec![Slice { number: 1, ranks: 2, operators: vec![operator] }];
    let memory =
        |rank, bytes: u64, peak_bytes: u64| Memory { rank, bytes: bytes << 20, peak_bytes: peak_bytes << 20 };
    let memory = vec![memory(None, 1, 1), memory(Some(0), 2, 3), memory(Some(1), 4, 7)];
    let probe = Arc::new(MockProbe(Mutex::new(QueryProfile { slices, memory })));
    statement.set_probe(Arc::clone(&probe) as Arc<dyn Probe>);
    let page = server.get("/statements/1").await.expect(200);
    assert!(page.body.contains("value=\"0.250\"") && page.body.contains("25 %"), "{}", page.body);
    assert!(page.body.contains("<dd>7.0 MiB, at most 11.0 MiB</dd>"), "{}", page.body);
    // The memory of each rank.
    assert!(page.body.contains("3.0 MiB"), "{}", page.body);
    let list = server.get("/statements").await.expect(200).body;
    assert!(list.contains("25 %") && list.contains("7.0 MiB"), "{list}");
    let profile = server.get("/statements/1/work.json").await.expect(200);
    assert_eq!(profile.headers["content-type"], "application/json");
    let profile: serde_json::Value = serde_json::from_str(&profile.body).unwrap();
    assert_eq!((&profile["fraction"], &profile["phase"]), (&0.25.into(), &"running".into()));
    assert_eq!(profile["slices"][0]["operators"][0]["shares"][1]["read_bytes"], 50);
    assert_eq!(profile["memory"][2]["peak_bytes"], 7 << 20);
    probe.0.lock().slices[0].operators[0].shares[1].read_bytes = 800;
    server.registry.end(&statement, None);
    // The probe was released, and its last profile counts.
    assert_eq!(Arc::strong_count(&probe), 1);
    let page = server.get("/statements/1").await.expect(200);
    assert!(!page.body.contains("<progress") && page.body.contains("1000 B"), "{}", page.body);
    assert!(page.body.contains("<dd>at most 11.0 MiB</dd>"), "{}", page.body);
    assert_eq!(statement.memory(), (0, 11 << 20));
    server.get("/statements/2/work.json").await.expect(404);
}

#[tokio::test]
async fn cancel_requires_the_csrf_token() {
    let server = PageServer::start(|pages| pages.actions = true).await;
    let session = server.session("ada");
    let statement = server.registry.begin(&session.entry, "SELECT pg_sleep(100)");
    let token = server.get("/statements/1").await.expect(200).token();
    let other = PageServer::start(|pages| pages.actions = true).await;
    let _theirs = other.session("eve");
    let foreign = other.get("/sessions").await.expect(200).token();
    for (headers, body) in [
        (vec![FORM], String::new()),
        (vec![FORM], "token=".to_string()),
        (vec![FORM], format!("token={foreign}")),
        (vec![FORM], format!("token={}", &token[1..])),
        (vec![FORM, ("Origin", "http://evil.example.com")], format!("token={token}")),
        (vec![FORM, ("Origin", "null")], format!("token={token}")),
        (vec![FORM, ("Sec-Fetch-Site", "cross-site")], format!("token={token}")),
    ] {
        server.ask("POST", "/statements/1/cancel", &headers, &body).await.expect(403);
        server.ask("POST", "/sessions/1/terminate", &headers, &body).await.expect(403);
    }
    assert_eq!(session.entry.requested_stop(), None);
    let origin = format!("http://{}", server.address);
    let headers = [FORM, ("Origin", origin.as_str()), ("Sec-Fetch-Site", "same-origin")];
    let body = format!("token={token}");
    let answer = server.ask("POST", "/statements/1/cancel", &headers, &body).await.expect(303);
    assert_eq!(answer.headers["location"], "/statements/1");
    assert_eq!(session.entry.requested_stop(), Some(Stop::Statement));
    // A statement that has ended is not the current one of its session.
    server.registry.end(&statement, None);
    let listening = session.entry.listen();
    let next = server.registry.begin(&session.entry, "SELECT 2");
    server.ask("POST", "/statements/1/cancel", &headers, &body).await.expect(303);
    assert!(!listening.has_changed().unwrap());
    assert!(!next.has_ended());
    server.ask("POST", "/sessions/1/terminate", &headers, &body).await.expect(303);
    assert_eq!(session.entry.requested_stop(), Some(Stop::Session));
    server.ask("POST", "/sessions/77/terminate", &headers, &body).await.expect(303);
}

#[tokio::test]
async fn actions_are_disabled_by_default() {
    let server = PageServer::start(|_| {}).await;
    let session = server.session("ada");
    server.registry.begin(&session.entry, "SELECT 1");
    for path in ["/statements/1", "/sessions"] {
        assert!(!server.get(path).await.expect(200).body.contains("method=\"post\""), "{path}");
    }
    server.ask("POST", "/statements/1/cancel", &[FORM], "token=x").await.expect(403);
    server.ask("POST", "/sessions/1/terminate", &[FORM], "token=x").await.expect(403);
    assert_eq!(session.entry.requested_stop(), None);
}

#[tokio::test]
async fn unknown_host_headers_are_refused() {
    let server = PageServer::start(|pages| pages.names = vec!["warehouse.example.com".to_string()]).await;
    for (host, status) in [
        ("localhost", 200),
        ("localhost:8080", 200),
        ("[::1]:8080", 200),
        ("127.0.0.1", 200),
        ("warehouse.example.com", 200),
        ("evil.example.com", 421),
        ("127.0.0.1.evil.example.com", 421),
        ("", 421),
    ] {
        for path in ["/", "/metrics", "/healthz", "/pages.js"] {
            server.ask("GET", path, &[("Host", host)], "").await.expect(status);
        }
    }
    server.ask("GET", "/", &[("Host", "localhost"), ("Host", "localhost")], "").await.expect(400);
}

#[tokio::test]
async fn login_is_required_but_for_health_checks() {
    let login = |role: &str, password: &str| (role, password) == ("Aladdin", "open sesame");
    let server = PageServer::start(|pages| pages.login = Some(Arc::new(login))).await;
    server.overview.0.lock().ranks[1] = RankState::Down;
    let good = ("Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    for path in ["/", "/statements", "/sessions", "/ranks", "/queues", "/tables", "/metrics"] {
        let refused = server.get(path).await.expect(401);
        assert!(refused.headers["www-authenticate"].starts_with("Basic "), "{path}");
        server.ask("GET", path, &[good], "").await.expect(200);
    }
    server.ask("POST", "/sessions/1/terminate", &[FORM], "token=x").await.expect(401);
    let wrong = ["Basic QWxhZGRpbjp4", "Basic ", "Basic !", "Bearer x", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="];
    for value in wrong {
        server.ask("GET", "/", &[("Authorization", value)], "").await.expect(401);
    }
    // Without a login: whether it is healthy, not why.
    assert_eq!(server.get("/healthz?full=1").await.expect(503).body, "unavailable\n");
    assert!(server.ask("GET", "/healthz", &[good], "").await.expect(503).body.contains("rank 1"));
}

#[tokio::test]
async fn healthz_and_readyz() {
    use RankState::{Down, Spare, Working};
    let server = PageServer::start(|_| {}).await;
    for (wanted, ranks, closed, healthy, ready, complaint) in [
        (2, vec![Working, Working], None, 200, 200, ""),
        (2, vec![Working, Working, Spare], None, 200, 200, ""),
        (0, vec![], None, 200, 200, ""),
        (2, vec![Working, Down], None, 503, 200, "1 of 2 ranks work"),
        (2, vec![Working, Working, Down], None, 503, 200, "rank 2 on host\"2\\ is down: it was <killed>"),
        (2, vec![], None, 503, 503, "0 of 2 ranks work"),
        (2, vec![Working, Working], Some("the server is stopping"), 503, 503, "the server is stopping"),
    ] {
        {
            let mut state = server.overview.0.lock();
            (state.wanted, state.ranks, state.closed) = (wanted, ranks.clone(), closed.map(str::to_string));
        }
        let health = server.get("/healthz").await.expect(healthy);
        assert!(health.body.contains(complaint), "{}", health.body);
        server.get("/readyz").await.expect(ready);
        let full = server.get("/healthz?full=1").await.expect(healthy);
        assert_eq!(full.headers["content-type"], "application/json");
        let full: serde_json::Value = serde_json::from_str(&full.body).unwrap();
        assert_eq!(full["healthy"], healthy == 200);
        assert_eq!(full["ready"], ready == 200);
        assert_eq!(full["version"], "9.8.7");
        assert_eq!(full["ranks"].as_array().unwrap().len(), ranks.len());
        assert_eq!(full["queues"][0]["waiting"], 7);
    }
}

#[tokio::test]
async fn pages_time_out_without_the_overview() {
    let server = PageServer::start(|_| {}).await;
    server.overview.0.lock().stuck = true;
    server.overview.0.lock().tables =
        Err(SqlError::new(SqlState::CONNECTION_FAILURE, "catalog server <gone>"));
    let start = Instant::now();
    let (health, page, metrics, tables) = tokio::join!(
        server.get("/healthz"),
        server.get("/ranks"),
        server.get("/metrics"),
        server.get("/tables")
    );
    assert!(start.elapsed() < ANSWER_TIMEOUT + Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(health.expect(503).body.contains("the gang did not answer"));
    assert!(page.expect(200).body.contains("Not known: the gang did not answer"));
    assert!(metrics.expect(200).body.contains("harrier_healthy 0.0"));
    assert!(tables.expect(200).body.contains("catalog server &lt;gone&gt; (08006)"));
}

#[tokio::test]
async fn connection_limit() {
    let server = PageServer::start(|_| {}).await;
    let mut idle = Vec::new();
    for _ in 0..http::CONNECTIONS_MAX {
        idle.push(TcpStream::connect(server.address).await.unwrap());
    }
    let waits = tokio::time::timeout(Duration::from_millis(500), server.get("/healthz")).await;
    assert!(waits.is_err(), "{waits:?}");
    drop(idle.pop());
    tokio::time::timeout(Duration::from_secs(10), server.get("/healthz"))
        .await
        .expect("has its turn")
        .expect(200);
}

#[tokio::test]
async fn shutdown_closes_idle_connections() {
    let mut server = PageServer::start(|_| {}).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(idle.read(&mut [0; 4096]).await.unwrap() > 0);
    let _half_open = TcpStream::connect(server.address).await.unwrap();
    server.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), &mut server.serving).await.expect("ends").unwrap().unwrap();
    assert_eq!(idle.read(&mut [0; 16]).await.unwrap_or(0), 0);
    assert!(TcpStream::connect(server.address).await.is_err());
}

/// Runs statements with every outcome, so that every metric has a sample.
fn run_statements_of_every_outcome(server: &PageServer) -> SessionGuard {
    let session = server.session("ada");
    for (rows, failure) in [(10, None), (20, None), (0, Some("22012")), (0, Some("57014"))] {
        let statement = server.registry.begin(&session.entry, "SELECT 1");
        statement.rows.store(rows, Ordering::Relaxed);
        statement.bytes.store(rows * 100, Ordering::Relaxed);
        server
            .registry
            .end(&statement, failure.map(|state| (SqlState::parse(state).unwrap(), "message".to_string())));
    }
    server.registry.begin(&session.entry, "SELECT 2").set_phase(Phase::Queued);
    session
}

/// Reads the given file with both parsers of Prometheus' own client library, and prints the samples, one a
/// line.
const PARSERS: &str = r#"
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict
from prometheus_client.parser import text_string_to_metric_families as lenient
text = sys.stdin.read()
assert sum(1 for family in lenient(text) for sample in family.samples) > 40
for family in strict(text):
    assert family.documentation, family.name
    for sample in family.samples:
        labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
        print(f"{sample.name}{{{labels}}} {float(sample.value)}")
"#;

/// Asserts that promtool accepts names and types. It reads the older format, which has neither units nor an
/// end marker.
fn assert_promtool_accepts(metrics: &str) {
    let mut older: Vec<String> = Vec::new();
    let mut counters: Vec<String> = Vec::new();
    for line in metrics.lines() {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        // There, a counter has its suffix in its name.
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["#", "TYPE", name, "counter"] => {
                counters.push(name.to_string());
                older.push(format!("# TYPE {name}_total counter"));
            }
            _ => older.push(line.to_string()),
        }
    }
    for line in &mut older {
        let name = line.strip_prefix("# HELP ").and_then(|rest| rest.split(' ').next()).map(str::to_string);
        if let Some(name) = name.filter(|name| counters.contains(name)) {
            *line = line.replacen(&name, &format!("{name}_total"), 1);
        }
    }
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIPPED: there is no promtool, so that names and types of metrics were not checked by it");
        return;
    };
    let text = older.join("\n") + "\n";
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let profile =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && profile.trim().is_empty(), "{profile}\n{text}");
}

#[tokio::test]
async fn prometheus_parsers_accept_the_metrics() {
    let server = PageServer::start(|_| {}).await;
    server.overview.0.lock().ranks[1] = RankState::Down;
    let _session = run_statements_of_every_outcome(&server);
    let answer = server.get("/metrics").await.expect(200);
    assert!(answer.headers["content-type"].starts_with("application/openmetrics-text; version=1.0.0"));
    assert!(answer.body.ends_with("# EOF\n"));
    let python = python();
    let has_parser = Command::new(&python)
        .args(["-c", "import prometheus_client"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_parser {
        eprintln!(
            "SKIPPED: {python} has no prometheus_client, so that the metrics were not read by Prometheus' parser"
        );
        return;
    }
    let mut parser = Command::new(&python)
        .args(["-c", PARSERS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut parser.stdin.take().unwrap(), answer.body.as_bytes()).unwrap();
    let output = parser.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", answer.body);
    let samples = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "harrier_sessions_opened_total{} 1.0",
        "harrier_statements_begun_total{} 5.0",
        "harrier_statements_ended_total{outcome=done} 2.0",
        "harrier_statements_ended_total{outcome=failed} 1.0",
        "harrier_statements_ended_total{outcome=canceled} 1.0",
        "harrier_statement_duration_seconds_count{} 4.0",
        "harrier_statement_duration_seconds_bucket{le=+Inf} 4.0",
        "harrier_rows_returned_total{} 30.0",
        "harrier_returned_bytes_total{} 3000.0",
        "harrier_statements{phase=queued} 1.0",
        "harrier_sessions{state=idle} 1.0",
        "harrier_queue_waiting{queue=<default>} 7.0",
        "harrier_ranks{state=working} 1.0",
        "harrier_ranks{state=down} 1.0",
        "harrier_rank_up{host=host\"1\\,rank=1} 0.0",
        "harrier_rank_sent_bytes_total{host=host\"0\\,rank=0} 5000000000.0",
        "harrier_healthy{} 0.0",
        "harrier_ready{} 1.0",
        "harrier_build{version=9.8.7} 1.0",
    ] {
        assert!(samples.lines().any(|line| line == expected), "no {expected} in\n{samples}");
    }
    assert_promtool_accepts(&answer.body);
    for positive in ["harrier_process_resident_memory_bytes{} ", "harrier_process_open_files{} "] {
        let value = samples.lines().find_map(|line| line.strip_prefix(positive)).expect(positive);
        assert!(value.parse::<f64>().unwrap() > 0.0);
    }
}

#[tokio::test]
async fn pages_are_served_over_tls() {
    let folder = std::env::temp_dir().join(format!("harrier-pages-{}", uuid::Uuid::new_v4()));
    let Some(made) = TestCertificate::new(&folder) else { return };
    let (own, client) = (made.server, made.client);
    let server = PageServer::start(|pages| pages.tls = Some(Arc::new(own))).await;
    // A client that never starts its TLS handshake does not block others.
    let _silent = TcpStream::connect(server.address).await.unwrap();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(client))
        .connect("localhost".try_into().unwrap(), stream)
        .await
        .unwrap();
    let answer = ask(stream, "localhost", "GET", "/healthz", &[], "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"));
    std::fs::remove_dir_all(&folder).unwrap();
}
