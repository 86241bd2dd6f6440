//! Export of spans and metrics to OpenTelemetry over real HTTP: to a mock receiver, decoded by the protocol's
//! own Protocol Buffers, and to real collectors.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use harrier_error::{SqlError, SqlState};
use harrier_server::overview::{Overview, QueueFacts, RankFacts, ServerFacts, SnapshotFacts, TableFacts};
use harrier_server::probe::Probe;
use harrier_server::registry::{Registry, SessionGuard};
use harrier_server::telemetry::{self, Options, Resource};
use harrier_session_api::query_profile::{Memory, Operator, QueryProfile, Scan, Share, Slice};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::python::python;

/// Timeout of every wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A caller's span, from W3C's recommendation.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

#[derive(Debug, Clone)]
struct ReceivedRequest {
    path: String,
    headers: String,
    body: Value,
}

/// Mock receiver: answers each request with the next answer of the test, and 200 when there is none left.
#[derive(Clone, Default)]
struct Receiver {
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    answers: Arc<Mutex<VecDeque<&'static str>>>,
}

impl Receiver {
    async fn start(answers: &[&'static str]) -> (Self, String) {
        let receiver =
            Self { answers: Arc::new(Mutex::new(answers.iter().copied().collect())), ..Self::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let own = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                tokio::spawn(async move { own.serve_connection(stream).await });
            }
        });
        (receiver, endpoint)
    }

    async fn serve_connection(&self, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head).await.ok()? == 0 {
                    return None;
                }
            }
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            let mut body = vec![0; length?];
            stream.read_exact(&mut body).await.ok()?;
            let path = head.split(' ').nth(1)?.to_string();
            let body = serde_json::from_slice(&body).ok()?;
            self.received.lock().push(ReceivedRequest { path, headers: head.to_ascii_lowercase(), body });
            let answer = self.answers.lock().pop_front().unwrap_or("200 OK\r\n\r\n{}");
            let (status, rest) = answer.split_once("\r\n").unwrap();
            let (headers, body) = rest.split_once("\r\n").unwrap_or(("", rest));
            let answer =
                format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.ok()?;
        }
    }

    /// Waits for `count` requests.
    async fn requests(&self, count: usize) -> Vec<ReceivedRequest> {
        let until = Instant::now() + WAIT_MAX;
        loop {
            let received = self.received.lock().clone();
            if received.len() >= count {
                return received;
            }
            assert!(Instant::now() < until, "{} of {count} requests", received.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn options(endpoint: &str) -> Options {
    Options {
        endpoint: telemetry::endpoint(endpoint).unwrap(),
        headers: telemetry::headers(&["Authorization: Bearer token".to_string()]).unwrap(),
        resource: Resource {
            service: "warehouse-1".to_string(),
            version: "9.8.7".to_string(),
            instance: "127.0.0.1:5433".to_string(),
        },
        has_literals: false,
    }
}

/// A server without ranks, queues and tables.
struct EmptyOverview;

#[async_trait]
impl Overview for EmptyOverview {
    async fn server(&self) -> ServerFacts {
        ServerFacts {
            version: "9.8.7".to_string(),
            since: SystemTime::now(),
            warehouse: "warehouse".to_string(),
            listen: vec![],
            closed: None,
            ranks_wanted: 0,
        }
    }

    async fn ranks(&self) -> Vec<RankFacts> {
        vec![RankFacts { number: 7, host: "host".to_string(), sent_bytes: 123, ..RankFacts::default() }]
    }

    async fn queues(&self) -> Vec<QueueFacts> {
        vec![]
    }

    async fn tables(&self) -> Result<Vec<TableFacts>, SqlError> {
        Ok(vec![])
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotFacts>, SqlError> {
        Ok(vec![])
    }
}

#[derive(Debug)]
struct MockProbe(QueryProfile);

#[async_trait]
impl Probe for MockProbe {
    fn snapshot(&self) -> QueryProfile {
        self.0.clone()
    }

    fn memory(&self) -> Vec<Memory> {
        self.snapshot().memory
    }

    async fn refresh(&self) -> QueryProfile {
        self.snapshot()
    }
}

/// Two slices on two ranks, the second of which was idle in the first slice.
fn profile() -> QueryProfile {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let share = |rank, rows| Share {
        rank,
        rows: Some(rows),
        busy_ns: Some(1_500_000_000),
        began_ns: Some(now),
        ended_ns: Some(now + 5_000_000),
        ..Share::default()
    };
    let gather = Operator {
        name: "gather 2→1".to_string(),
        feeder: Some(1),
        shares: vec![Share { moved_bytes: 77, ..share(0, 3) }],
        ..Operator::default()
    };
    let scan = Operator {
        name: "DataSourceExec".to_string(),
        scan: Some(Scan::default()),
        shares: vec![Share { read_bytes: 1000, ..share(0, 2) }, Share { read_bytes: 500, ..share(1, 1) }],
        ..Operator::default()
    };
    let slice = |number, ranks, operator| Slice { number, ranks, operators: vec![operator] };
    QueryProfile { slices: vec![slice(0, 1, gather), slice(1, 2, scan)], ..QueryProfile::default() }
}

fn session(registry: &Arc<Registry>) -> SessionGuard {
    registry.enter(registry.next_session(), 1, "ada", "warehouse", None)
}

fn run_statement(
    registry: &Arc<Registry>,
    session: &SessionGuard,
    text: &str,
    failure: Option<(&str, &str)>,
) {
    let statement = registry.begin(&session.entry, text);
    statement.rows.store(42, Ordering::Relaxed);
    registry.end(
        &statement,
        failure.map(|(state, message)| (SqlState::parse(state).unwrap(), message.to_string())),
    );
}

fn spans(received: &[ReceivedRequest]) -> Vec<Value> {
    let all = received
        .iter()
        .flat_map(|received| received.body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array());
    all.flatten().cloned().collect()
}

fn attribute<'v>(span: &'v Value, key: &str) -> &'v Value {
    let all = span["attributes"].as_array().unwrap();
    all.iter()
        .find(|attribute| attribute["key"] == key)
        .map_or(&Value::Null, |attribute| attribute["value"].as_object().unwrap().values().next().unwrap())
}

/// Runs some statements of every kind, one with a caller's trace context.
async fn run_statements_of_every_kind(registry: &Arc<Registry>) {
    let session = session(registry);
    let text = format!("SELECT 'secret' FROM t WHERE a = 17 /*traceparent='00-{TRACE}-{PARENT}-01'*/");
    let statement = registry.begin(&session.entry, &text);
    statement.set_queue("default");
    statement.set_on_gang();
    statement.set_probe(Arc::new(MockProbe(profile())));
    statement.rows.store(3, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(20)).await;
    registry.end(&statement, None);
    run_statement(registry, &session, "SELECT 1/0", Some(("22012", "division by zero")));
    run_statement(
        registry,
        &session,
        "INSERT INTO t SELECT 1",
        Some(("57014", "canceling statement due to user request")),
    );
    // A trace context without the sampled flag.
    run_statement(registry, &session, &format!("SELECT 2 /*traceparent='00-{TRACE}-{PARENT}-00'*/"), None);
}

#[tokio::test]
async fn statements_are_spans_with_slices_as_children() {
    let (receiver, endpoint) = Receiver::start(&[]).await;
    let registry = Arc::new(Registry::default());
    let stop = CancellationToken::new();
    let exporting = telemetry::start(
        options(&format!("{endpoint}/base/")),
        &registry,
        Arc::new(EmptyOverview),
        stop.clone(),
    )
    .unwrap();
    run_statements_of_every_kind(&registry).await;
    let received = receiver.requests(1).await;
    assert_eq!(received[0].path, "/base/v1/traces");
    assert!(received[0].headers.contains("content-type: application/json"), "{}", received[0].headers);
    assert!(received[0].headers.contains("authorization: bearer token"), "{}", received[0].headers);
    let resource = &received[0].body["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.name"), "warehouse-1");
    assert_eq!(attribute(resource, "service.instance.id"), "127.0.0.1:5433");
    let spans = spans(&received);
    assert_eq!(spans.len(), 3 + 3, "{spans:#?}");
    let select = &spans[0];
    assert_eq!((&select["traceId"], &select["parentSpanId"]), (&TRACE.into(), &PARENT.into()));
    assert_eq!(select["name"], "SELECT warehouse");
    assert_eq!(select["kind"], 2);
    assert!(select["status"].is_null());
    assert_eq!(attribute(select, "db.query.text"), "SELECT ? FROM t WHERE a = ?");
    assert_eq!(attribute(select, "db.response.returned_rows"), "3");
    assert_eq!(attribute(select, "harrier.moved_bytes"), "77");
    assert_eq!(attribute(select, "harrier.read_bytes"), "1500");
    assert_eq!(attribute(select, "harrier.queue.name"), "default");
    assert_eq!(attribute(select, "harrier.on_gang"), &Value::Bool(true));
    let nanoseconds = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
    assert!(nanoseconds(select, "endTimeUnixNano") - nanoseconds(select, "startTimeUnixNano") >= 20_000_000);
    let below: Vec<(&str, &str, &str)> = spans[1..4]
        .iter()
        .map(|span| {
            assert_eq!((&span["traceId"], &span["parentSpanId"]), (&TRACE.into(), &select["spanId"]));
            assert_eq!(span["kind"], 1);
            let text = |key| attribute(span, key).as_str().unwrap();
            (span["name"].as_str().unwrap(), text("harrier.rank"), text("harrier.rows"))
        })
        .collect();
    assert_eq!(below, [("slice 0", "0", "3"), ("slice 1", "0", "2"), ("slice 1", "1", "1")]);
    let (failed, canceled) = (&spans[4], &spans[5]);
    assert_eq!(failed["status"]["code"], 2);
    assert_eq!(failed["status"]["message"], "SQLSTATE 22012");
    assert_eq!(attribute(failed, "db.response.status_code"), "22012");
    assert_eq!(attribute(canceled, "error.type"), "canceled");
    assert_eq!(canceled["name"], "INSERT warehouse");
    assert_ne!(failed["traceId"], canceled["traceId"]);
    assert!(failed["parentSpanId"].is_null());
    let body = serde_json::to_string(&received[0].body).unwrap();
    assert!(!body.contains("secret"), "{body}");
    decode_with_protobuf(&received[0].body, "traces", 6);
    stop.cancel();
    exporting.await.unwrap();
    // The last metrics are sent at the end.
    let received = receiver.requests(2).await;
    assert_eq!(received[1].path, "/base/v1/metrics");
    let metrics = &received[1].body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let find = |name: &str| {
        let metric = metrics.as_array().unwrap().iter().find(|metric| metric["name"] == name);
        metric.unwrap_or_else(|| panic!("no {name} in {metrics:#}"))
    };
    assert_eq!(find("harrier.moved")["sum"]["dataPoints"][0]["asInt"], "77");
    assert_eq!(find("harrier.moved")["unit"], "By");
    let durations = &find("harrier.statement_duration")["histogram"]["dataPoints"][0];
    assert_eq!(durations["count"], "4");
    assert_eq!(
        durations["bucketCounts"].as_array().unwrap().len(),
        durations["explicitBounds"].as_array().unwrap().len() + 1
    );
    let sent = &find("harrier.rank_sent")["sum"]["dataPoints"][0];
    assert_eq!((&sent["asInt"], attribute(sent, "rank")), (&"123".into(), &"7".into()));
    assert_eq!(find("harrier.healthy")["gauge"]["dataPoints"][0]["asDouble"], 1.0);
    decode_with_protobuf(&received[1].body, "metrics", metrics.as_array().unwrap().len());
    assert_eq!(registry.totals().dropped_exports.load(Ordering::Relaxed), 0);
}

/// Decodes a body by the protocol's own definitions, in its Python package: no field may be unknown to them.
const DECODER: &str = r#"
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
told = json.load(sys.stdin)
if sys.argv[1] == "metrics":
    request = json_format.ParseDict(told, metrics_service_pb2.ExportMetricsServiceRequest())
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    for metric in metrics:
        assert metric.name and metric.description and metric.unit and metric.WhichOneof("data"), metric
        points = getattr(metric, metric.WhichOneof("data")).data_points
        assert points and all(point.time_unix_nano > 0 for point in points), metric
    print(len(metrics))
    sys.exit()
# OTLP writes ids in hex, where the mapping of Protocol Buffers has base64.
for spans in told["resourceSpans"]:
    for span in (span for scope in spans["scopeSpans"] for span in scope["spans"]):
        for key in ["traceId", "spanId", "parentSpanId"]:
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
request = json_format.ParseDict(told, trace_service_pb2.ExportTraceServiceRequest())
for span in request.resource_spans[0].scope_spans[0].spans:
    assert len(span.trace_id) == 16 and len(span.span_id) == 8 and len(span.parent_span_id) in (0, 8), span
    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
    assert span.name and len({attribute.key for attribute in span.attributes}) == len(span.attributes), span
print(len(request.resource_spans[0].scope_spans[0].spans))
"#;

fn decode_with_protobuf(body: &Value, what: &str, count: usize) {
    let python = python();
    let has_protocol = Command::new(&python)
        .args(["-c", "import opentelemetry.proto.collector.trace.v1.trace_service_pb2"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_protocol {
        eprintln!(
            "SKIPPED: {python} has no opentelemetry.proto, so that no span was read by the protocol's own definitions"
        );
        return;
    }
    let mut decoder = Command::new(&python)
        .args(["-c", DECODER, what])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    decoder.stdin.take().unwrap().write_all(body.to_string().as_bytes()).unwrap();
    let output = decoder.wait_with_output().unwrap();
    assert!(output.status.success(), "{body:#}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), count.to_string());
}

#[tokio::test]
async fn exports_are_retried_unless_rejected() {
    let busy = "503 Service Unavailable\r\nRetry-After: 0\r\n\r\nlater";
    let (receiver, endpoint) =
        Receiver::start(&[busy, busy, "200 OK\r\n\r\n{}", "400 Bad Request\r\n\r\nno"]).await;
    let registry = Arc::new(Registry::default());
    let stop = CancellationToken::new();
    let _exporting =
        telemetry::start(options(&endpoint), &registry, Arc::new(EmptyOverview), stop.clone()).unwrap();
    let session = session(&registry);
    run_statement(&registry, &session, "SELECT 1", None);
    let received = receiver.requests(3).await;
    assert_eq!(attribute(&spans(&received[2..])[0], "harrier.statement.id"), "1");
    run_statement(&registry, &session, "SELECT 2", None);
    receiver.requests(4).await;
    run_statement(&registry, &session, "SELECT 3", None);
    let received = receiver.requests(5).await;
    assert_eq!(attribute(&spans(&received[4..])[0], "harrier.statement.id"), "3");
    assert_eq!(registry.totals().dropped_exports.load(Ordering::Relaxed), 1);
    stop.cancel();
}

#[tokio::test]
async fn shutdown_flushes_spans_with_a_timeout() {
    let (receiver, endpoint) = Receiver::start(&[]).await;
    let registry = Arc::new(Registry::default());
    let stop = CancellationToken::new();
    let exporting =
        telemetry::start(options(&endpoint), &registry, Arc::new(EmptyOverview), stop.clone()).unwrap();
    let session = session(&registry);
    run_statement(&registry, &session, "SELECT 1", None);
    receiver.requests(1).await;
    run_statement(&registry, &session, "SELECT 2", None);
    stop.cancel();
    tokio::time::timeout(WAIT_MAX, exporting).await.unwrap().unwrap();
    // No collector listens there.
    let unused_address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let registry = Arc::new(Registry::default());
    let stop = CancellationToken::new();
    let exporting = telemetry::start(
        options(&format!("http://{unused_address}")),
        &registry,
        Arc::new(EmptyOverview),
        stop.clone(),
    )
    .unwrap();
    let session = self::session(&registry);
    for _ in 0..5000 {
        run_statement(&registry, &session, "SELECT 1", None);
    }
    // Statements did not wait either: the buffer holds some, and the others are counted as dropped.
    assert!(registry.totals().dropped_exports.load(Ordering::Relaxed) > 1000);
    stop.cancel();
    tokio::time::timeout(WAIT_MAX, exporting).await.unwrap().unwrap();
}

/// A collector that receives OTLP over HTTP and logs every span.
struct Collector {
    command: Command,
    /// The log's text for span kinds.
    kind: &'static str,
    failed: &'static str,
}

/// OpenTelemetry's own collector, if `HARRIER_OTELCOL` names one with the receiver `otlp` and the exporter
/// `debug`.
fn otelcol(port: u16, _: &Path) -> Option<Collector> {
    let Ok(program) = std::env::var("HARRIER_OTELCOL") else {
        eprintln!("SKIPPED: HARRIER_OTELCOL names no collector, so that OpenTelemetry's own took no spans");
        return None;
    };
    let settings = format!(
        "yaml:{{receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{port}'}}}}}}}}, \
         exporters: {{debug: {{verbosity: detailed}}}}, \
         service: {{telemetry: {{metrics: {{level: none}}}}, \
         pipelines: {{traces: {{receivers: [otlp], exporters: [debug]}}}}}}}}"
    );
    let mut command = Command::new(program);
    command.arg(format!("--config={settings}"));
    Some(Collector { command, kind: "Server", failed: "Error" })
}

/// Rotel, a collector from the Python package index, if `scripts/pages.sh` could install it.
fn rotel(port: u16, folder: &Path) -> Option<Collector> {
    let script_output = Command::new(python())
        .args([
            "-c",
            "import importlib.util; print(importlib.util.find_spec('rotel').submodule_search_locations[0])",
        ])
        .stderr(Stdio::null())
        .output();
    let Some(place) = script_output.ok().filter(|script_output| script_output.status.success()) else {
        eprintln!("SKIPPED: Rotel is not installed, so that it took no spans");
        return None;
    };
    let program = Path::new(String::from_utf8(place.stdout).unwrap().trim()).join("rotel-agent");
    let mut command = Command::new(program);
    command.args([
        "start",
        "--exporter",
        "blackhole",
        "--debug-log",
        "traces",
        "--debug-log-verbosity",
        "detailed",
    ]);
    command.arg(format!("--otlp-http-endpoint=127.0.0.1:{port}"));
    command.args(["--otlp-grpc-endpoint", "127.0.0.1:0", "--pid-file"]).arg(folder.join("pid"));
    command.arg("--log-file").arg(folder.join("log"));
    Some(Collector { command, kind: "SPAN_KIND_SERVER", failed: "STATUS_CODE_ERROR" })
}

#[tokio::test]
async fn real_collectors_accept_the_spans() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [otelcol, rotel] {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        if let Some(collector) = kind(port, folder.path()) {
            check_collector(collector, port).await;
        }
    }
}

async fn check_collector(Collector { mut command, kind, failed }: Collector, port: u16) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut collector = command
        .stdin(Stdio::null())
        .stdout(log.reopen().unwrap())
        .stderr(log.reopen().unwrap())
        .spawn()
        .unwrap();
    let registry = Arc::new(Registry::default());
    let stop = CancellationToken::new();
    // Statements that end before the collector starts are sent once it runs.
    let _exporting = telemetry::start(
        options(&format!("http://127.0.0.1:{port}")),
        &registry,
        Arc::new(EmptyOverview),
        stop.clone(),
    )
    .unwrap();
    run_statements_of_every_kind(&registry).await;
    let until = Instant::now() + WAIT_MAX;
    let expected = [
        format!("Trace ID       : {TRACE}"),
        format!("Parent ID      : {PARENT}"),
        "Name           : SELECT warehouse".to_string(),
        "Name           : slice 1".to_string(),
        format!("Kind           : {kind}"),
        "service.name: Str(warehouse-1)".to_string(),
        "db.query.text: Str(SELECT ? FROM t WHERE a = ?)".to_string(),
        "harrier.busy_seconds: Double(1.5)".to_string(),
        format!("Status code    : {failed}"),
    ];
    let missing = loop {
        let log_text = std::fs::read_to_string(log.path()).unwrap();
        let missing: Vec<_> = expected.iter().filter(|text| !log_text.contains(*text)).cloned().collect();
        if missing.is_empty() || Instant::now() > until {
            break (missing, log_text);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    collector.kill().unwrap();
    collector.wait().unwrap();
    stop.cancel();
    assert!(missing.0.is_empty(), "{:?} not in\n{}", missing.0, missing.1);
    assert_eq!(registry.totals().dropped_exports.load(Ordering::Relaxed), 0);
}
