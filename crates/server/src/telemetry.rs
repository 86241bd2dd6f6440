//! OpenTelemetry export: a span for each finished statement, child spans for every slice and rank; and the
//! numbers of `/metrics` once a minute.
//!
//! ```text
//!   registry ─ finished statement ─► queue ─► batches ─► otlp.rs: JSON ─► POST <endpoint>/v1/traces
//!                                       └ full: counted, not sent        └ failed: retried with backoff
//!   overview, registry ─ once a minute ──────────────────────────► otlp.rs: JSON ─► POST <endpoint>/v1/metrics
//! ```
//!
//! Statements never wait for it. Memory bound: [`QUEUE_MAX`] finished statements, and one batch of
//! [`BATCH_MAX`] as text. Errors: a batch that the collector rejects is dropped, with a log line; temporary
//! failures are retried for [`RETRY_MAX`], while the queue fills. Source: OTLP 1.5, "OTLP/HTTP" (JSON
//! encoding), and the semantic conventions for databases.

mod otlp;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use backon::{BackoffBuilder, ExponentialBuilder};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::metrics::families;
use crate::overview::Overview;
use crate::registry::{Registry, StatementEntry};

pub use otlp::Resource;

/// Maximum statements waiting for export.
const QUEUE_MAX: usize = 2048;

/// Maximum statements per request.
const BATCH_MAX: usize = 256;

/// How long a batch waits to fill up.
const BATCH_DELAY_MAX: Duration = Duration::from_secs(2);

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a batch is retried.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The pause before the first retry; it doubles each time, with random jitter.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Time limit of the last export at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval of metrics export.
const METRICS_INTERVAL: Duration = Duration::from_secs(60);

/// The collector and the exporter's identity.
#[derive(Debug, Clone)]
pub struct Options {
    /// Base URL for `/v1/traces` and `/v1/metrics`.
    pub endpoint: Url,
    /// Headers of every request, such as an access token; secret.
    pub headers: HeaderMap,
    pub resource: Resource,
    /// Sends statement texts with literals; otherwise each is replaced by a question mark.
    pub has_literals: bool,
}

/// Parses an endpoint of the configuration. Errors: as text.
pub fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("\"{text}\" is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(format!("\"{text}\" is not a URL of HTTP, such as http://127.0.0.1:4318"));
    }
    Ok(url)
}

/// Parses headers of the configuration, `name: value` each. Errors: as text, without values.
pub fn headers(lines: &[String]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (at, line) in lines.iter().enumerate() {
        let parsed = line.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            let mut value = HeaderValue::from_str(value.trim()).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        let Some((name, value)) = parsed else {
            return Err(format!("header {} is not of the form \"name: value\"", at + 1));
        };
        headers.append(name, value);
    }
    Ok(headers)
}

/// Exports finished statements and metrics until `stop` is canceled; then the rest. Call it once per
/// registry.
///
/// Errors: the HTTP client cannot be created.
pub fn start(
    options: Options,
    registry: &Arc<Registry>,
    overview: Arc<dyn Overview>,
    stop: CancellationToken,
) -> Result<tokio::task::JoinHandle<()>, String> {
    let client = Client::builder()
        .timeout(REQUEST_TIMEOUT)
        .default_headers(options.headers.clone())
        .user_agent(concat!("harrier/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| format!("no HTTP client: {error}"))?;
    let at = |signal: &str| {
        let mut url = options.endpoint.clone();
        url.set_path(&format!("{}/v1/{signal}", options.endpoint.path().trim_end_matches('/')));
        url
    };
    let (traces, metrics) = (at("traces"), at("metrics"));
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    registry.set_listener(sender);
    let registry = Arc::clone(registry);
    let exporter = Exporter { client, traces, metrics, options, registry, overview, complained: None };
    let numbers = exporter.clone().export_metrics(SystemTime::now(), stop.clone());
    Ok(tokio::spawn(async move {
        tokio::join!(numbers, exporter.run(receiver, stop));
    }))
}

#[derive(Clone)]
struct Exporter {
    client: Client,
    traces: Url,
    metrics: Url,
    options: Options,
    registry: Arc<Registry>,
    overview: Arc<dyn Overview>,
    /// When a failed export was last logged.
    complained: Option<Instant>,
}

/// The outcome of a request.
enum SendOutcome {
    Accepted,
    /// Rejected; a retry is useless.
    Refused(String),
    /// A temporary failure, with the requested pause.
    Later(String, Option<Duration>),
}

impl Exporter {
    async fn run(mut self, mut ended: mpsc::Receiver<Arc<StatementEntry>>, stop: CancellationToken) {
        loop {
            let batch = tokio::select! {
                batch = next_batch(&mut ended) => batch,
                () = stop.cancelled() => break,
            };
            self.send(batch, &stop).await;
        }
        let mut left = Vec::new();
        while let Ok(statement) = ended.try_recv() {
            left.push(statement);
        }
        let last = async {
            for batch in left.chunks(BATCH_MAX) {
                self.post_spans(batch).await;
            }
        };
        let _ = timeout(SHUTDOWN_TIMEOUT, last).await;
    }

    /// Sends metrics once a minute, and at the end. Failed requests are not retried: the next ones are newer.
    async fn export_metrics(self, since: SystemTime, stop: CancellationToken) {
        let mut is_last = false;
        while !is_last {
            tokio::select! {
                () = sleep(METRICS_INTERVAL) => {}
                () = stop.cancelled() => is_last = true,
            }
            let send = async {
                let families = families(&self.registry, &self.overview).await;
                let body = otlp::metrics(&self.options.resource, &families, since);
                match self.post(&self.metrics, &body).await {
                    SendOutcome::Accepted => {}
                    SendOutcome::Refused(reason) | SendOutcome::Later(reason, _) => {
                        tracing::debug!(reason, "numbers were not exported to OpenTelemetry");
                    }
                }
            };
            let _ = timeout(if is_last { SHUTDOWN_TIMEOUT } else { METRICS_INTERVAL }, send).await;
        }
    }

    /// Sends a batch, with retries.
    async fn send(&mut self, batch: Vec<Arc<StatementEntry>>, stop: &CancellationToken) {
        let began = Instant::now();
        // Jitter, so that exporters do not retry at the same time.
        let backoff = ExponentialBuilder::default().with_min_delay(RETRY_PAUSE).with_max_delay(RETRY_MAX);
        let mut backoff = backoff.without_max_times().with_jitter().build();
        loop {
            let (reason, asked) = match self.post_spans(&batch).await {
                SendOutcome::Accepted => return,
                SendOutcome::Refused(reason) => return self.log_loss(batch.len(), &reason),
                SendOutcome::Later(reason, asked) => (reason, asked),
            };
            let wait = asked.or_else(|| backoff.next()).unwrap_or(RETRY_MAX);
            if began.elapsed() + wait > RETRY_MAX {
                return self.log_loss(batch.len(), &reason);
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = stop.cancelled() => {
                    self.post_spans(&batch).await;
                    return;
                }
            }
        }
    }

    async fn post_spans(&self, batch: &[Arc<StatementEntry>]) -> SendOutcome {
        let body = otlp::traces(&self.options.resource, batch, self.options.has_literals);
        if body.is_null() { SendOutcome::Accepted } else { self.post(&self.traces, &body).await }
    }

    async fn post(&self, to: &Url, body: &serde_json::Value) -> SendOutcome {
        let request = self
            .client
            .post(to.clone())
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .body(body.to_string());
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return SendOutcome::Later(cause(&error), None),
        };
        let status = answer.status();
        if status.is_success() {
            return partial_success(&answer.text().await.unwrap_or_default());
        }
        let again = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        let asked = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let said: String = answer.text().await.unwrap_or_default().chars().take(200).collect();
        let reason = format!("{status} {}", said.trim());
        match again.contains(&status) {
            true => SendOutcome::Later(reason, asked.map(Duration::from_secs)),
            false => SendOutcome::Refused(reason),
        }
    }

    /// Logs at most one line per minute.
    fn log_loss(&mut self, statements: usize, reason: &str) {
        self.registry.totals().dropped_exports.fetch_add(statements as u64, Ordering::Relaxed);
        if self.complained.is_none_or(|at| at.elapsed() > RETRY_MAX) {
            self.complained = Some(Instant::now());
            let endpoint = self.traces.host_str().unwrap_or_default();
            tracing::warn!(statements, endpoint, reason, "statements were not exported to OpenTelemetry");
        }
    }
}

/// A partial success: the collector reports how much it rejected.
fn partial_success(answer: &str) -> SendOutcome {
    let response: serde_json::Value = serde_json::from_str(answer).unwrap_or_default();
    let partial = &response["partialSuccess"];
    let count = |name: &str| match &partial[name] {
        serde_json::Value::String(number) => number.parse().unwrap_or(0),
        number => number.as_i64().unwrap_or(0),
    };
    let rejected = count("rejectedSpans") + count("rejectedDataPoints");
    match rejected {
        0 => SendOutcome::Accepted,
        rejected => {
            let message = partial["errorMessage"].as_str().unwrap_or_default();
            SendOutcome::Refused(format!("{rejected} were rejected: {message}"))
        }
    }
}

/// reqwest's innermost error, without the URL.
fn cause(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// Waits for a statement, then collects those that end soon after it.
async fn next_batch(ended: &mut mpsc::Receiver<Arc<StatementEntry>>) -> Vec<Arc<StatementEntry>> {
    let mut batch = Vec::new();
    match ended.recv().await {
        Some(first) => batch.push(first),
        // Never while there is a registry.
        None => return std::future::pending().await,
    }
    let until = Instant::now() + BATCH_DELAY_MAX;
    while batch.len() < BATCH_MAX {
        match tokio::time::timeout_at(until, ended.recv()).await {
            Ok(Some(next)) => batch.push(next),
            _ => break,
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_and_headers_are_checked() {
        for good in ["http://127.0.0.1:4318", "https://collector.example.com/otlp/"] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for bad in ["127.0.0.1:4318", "grpc://collector:4317", "http://", "", "unix:/run/x"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
        let lines = |lines: &[&str]| headers(&lines.iter().map(ToString::to_string).collect::<Vec<_>>());
        let good = lines(&["Authorization: Bearer a:b", "x-scope: 1"]).unwrap();
        assert_eq!(good["authorization"], "Bearer a:b");
        assert_eq!(good["x-scope"], "1");
        assert!(!format!("{good:?}").contains("a:b"));
        for bad in ["no colon", "bad name: x", ": x", "x: \u{7}"] {
            let error = lines(&[bad]).unwrap_err();
            assert!(error.starts_with("header 1 "), "{error}");
        }
    }

    #[test]
    fn partially_accepted_exports_are_not_retried() {
        assert!(matches!(partial_success("{}"), SendOutcome::Accepted));
        assert!(matches!(partial_success(""), SendOutcome::Accepted));
        assert!(matches!(partial_success(r#"{"partialSuccess":{}}"#), SendOutcome::Accepted));
        assert!(matches!(
            partial_success(r#"{"partialSuccess":{"errorMessage":"slow down"}}"#),
            SendOutcome::Accepted
        ));
        for rejected in ["3", "\"3\""] {
            let answer =
                format!(r#"{{"partialSuccess":{{"rejectedSpans":{rejected},"errorMessage":"no"}}}}"#);
            assert!(
                matches!(partial_success(&answer), SendOutcome::Refused(reason) if reason == "3 were rejected: no")
            );
        }
    }
}
