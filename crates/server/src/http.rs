//! HTTP server: web pages, `/metrics` for Prometheus, and the health checks `/healthz` and `/readyz`.
//!
//! Pages are rendered here and load nothing from other servers; without scripts they refresh by the browser's
//! own means. Input is not trusted: a request for another host name is rejected (DNS rebinding), changes
//! require a CSRF token of these pages, and all output is escaped.
//!
//! Memory bound: [`CONNECTIONS_MAX`] connections, each with one request; a page shows at most [`ROWS_MAX`]
//! rows of a kind. Cancellation: handlers hold no state, so a disconnected client leaves nothing behind.

mod connection;
mod format;
mod guard;
mod plan;
mod views;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Form, Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use harrier_error::SqlError;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use views::Page;

use crate::facts::{Facts, ask};
use crate::metrics;
use crate::overview::{Health, Overview, SnapshotFacts, TableFacts};
use crate::registry::{Phase, Registry, StatementEntry, Stop};
use crate::trace::{self, Traced};

pub use connection::CONNECTIONS_MAX;
pub use guard::are_equal;

/// Maximum rows of one kind on a page.
pub const ROWS_MAX: usize = 1000;

/// Maximum statements whose profile is refreshed for a page that lists them.
const REFRESHES_MAX: usize = 32;

/// How long clients may read pending responses when the server stops.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(3);

/// Whether a role with this password may see the pages. Called on a blocking thread.
pub type Login = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// Configuration of the pages.
#[derive(Clone)]
pub struct Pages {
    pub registry: Arc<Registry>,
    pub overview: Arc<dyn Overview>,
    /// Host names of this server in URLs, beside `localhost` and IP addresses; without ports.
    pub names: Vec<String>,
    /// Allows canceling statements and terminating sessions, to everybody who may see the pages, whatever
    /// their role.
    pub actions: bool,
    /// HTTP basic authentication, which needs TLS except on loopback. `None`: without authentication.
    pub login: Option<Login>,
    /// `None`: without TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl Pages {
    /// Read-only pages without authentication.
    pub fn new(registry: Arc<Registry>, overview: Arc<dyn Overview>) -> Self {
        Self { registry, overview, names: Vec::new(), actions: false, login: None, tls: None }
    }
}

/// Serves until `stop` is ready, then lets pending requests end, with a short timeout.
pub async fn serve(
    listener: TcpListener,
    pages: Pages,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let connections = connection::Connections::start(listener, pages.tls.clone())?;
    let router = router(pages).into_make_service_with_connect_info::<connection::Peer>();
    let stopping = Arc::new(tokio::sync::Notify::new());
    let stop_notice = Arc::clone(&stopping);
    let server = axum::serve(connections, router).with_graceful_shutdown(async move {
        stop.await;
        stop_notice.notify_one();
    });
    tokio::select! {
        ended = server.into_future() => ended,
        () = async { stopping.notified().await; tokio::time::sleep(STOP_GRACE_PERIOD).await } => Ok(()),
    }
}

/// State shared by all handlers.
#[derive(Clone)]
struct Site {
    pages: Pages,
    /// CSRF token, known only to this server's pages.
    token: Arc<str>,
}

/// All pages, behind the guards.
fn router(pages: Pages) -> Router {
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let site = Site { pages, token: token.into() };
    let guarded = Router::new()
        .route("/", get(overview))
        .route("/statements", get(statements))
        .route("/statements/{id}", get(statement))
        .route("/statements/{id}/work.json", get(work))
        .route("/statements/{id}/trace.json", get(statement_trace))
        .route("/statements/{id}/cancel", post(cancel))
        .route("/sessions", get(sessions))
        .route("/sessions/{id}/terminate", post(terminate))
        .route("/ranks", get(ranks))
        .route("/queues", get(queues))
        .route("/tables", get(tables))
        .route("/metrics", get(metrics_text))
        .fallback(absent)
        .layer(middleware::from_fn_with_state(site.clone(), guard::login));
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route(
            "/pages.css",
            get(|| async { static_response("text/css; charset=utf-8", include_str!("http/pages.css")) }),
        )
        .route(
            "/pages.js",
            get(|| async {
                static_response("text/javascript; charset=utf-8", include_str!("http/pages.js"))
            }),
        )
        .route("/favicon.svg", get(icon))
        // Browsers request it for a text that names no icon.
        .route("/favicon.ico", get(icon))
        .merge(guarded)
        .layer(middleware::from_fn_with_state(site.clone(), guard::host))
        .layer(middleware::from_fn(guard::headers))
        .with_state(site)
}

async fn icon() -> Response {
    static_response("image/svg+xml", include_str!("http/favicon.svg"))
}

fn static_response(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn overview(State(site): State<Site>) -> Page {
    let (facts, ()) = tokio::join!(Facts::of(&site.pages.overview), refresh_profiles(&site.pages.registry));
    views::overview(&site, &facts)
}

/// Refreshes the profiles of running statements, so that lists show their progress.
async fn refresh_profiles(registry: &Registry) {
    let running = registry.statements().into_iter().filter(|statement| !statement.has_ended());
    let refreshes =
        running.take(REFRESHES_MAX).map(|statement| async move { drop(statement.refresh_profile().await) });
    futures::future::join_all(refreshes).await;
}

/// Filter of listed statements.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
struct Filter {
    /// `running`, `failed` or all.
    show: String,
    /// Substring of their text or role, ignoring case.
    find: String,
}

async fn statements(State(site): State<Site>, Query(filter): Query<Filter>) -> Page {
    refresh_profiles(&site.pages.registry).await;
    views::statements(&site, &filter)
}

async fn statement(State(site): State<Site>, Path(id): Path<String>) -> Response {
    match find_statement(&site, &id) {
        Ok(statement) => {
            let work = statement.refresh_profile().await;
            views::statement(&site, &statement, work.as_deref()).into_response()
        }
        Err(missing) => missing,
    }
}

fn find_statement(site: &Site, id: &str) -> Result<Arc<StatementEntry>, Response> {
    let statement = id.parse().ok().and_then(|id| site.pages.registry.statement(id));
    statement.ok_or_else(|| {
        missing(&format!("There is no statement {id}, or it was forgotten: only the last are kept."))
    })
}

/// A statement's profile as JSON.
async fn work(State(site): State<Site>, Path(id): Path<String>) -> Response {
    let statement = match find_statement(&site, &id) {
        Ok(statement) => statement,
        Err(missing) => return missing,
    };
    let work = statement.refresh_profile().await;
    let fraction = match statement.phase() {
        // Scans may have pruned parts of files.
        Phase::Done => Some(1.0),
        _ => work.as_ref().and_then(|work| work.progress()).map(|progress| progress.fraction),
    };
    let body = json!({
        "statement": statement.id,
        "phase": statement.phase().name(),
        "elapsed_seconds": statement.execution_time().as_secs_f64(),
        "rows": statement.rows.load(Ordering::Relaxed),
        "bytes": statement.bytes.load(Ordering::Relaxed),
        "fraction": fraction,
        "memory": work.as_ref().map(|work| work.memory.clone()),
        "slices": work.map(|work| work.slices.clone()),
    });
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// A statement as a trace, for ui.perfetto.dev and similar viewers.
async fn statement_trace(State(site): State<Site>, Path(id): Path<String>) -> Response {
    let statement = match find_statement(&site, &id) {
        Ok(statement) => statement,
        Err(missing) => return missing,
    };
    let Some(work) = statement.refresh_profile().await else {
        return missing(&format!(
            "Of statement {id} it is not known what it did: it was too short, or ran nothing."
        ));
    };
    let ns = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let body = trace::document(Traced {
        number: statement.id,
        text: &statement.text,
        began_ns: ns(statement.since),
        ended_ns: ns(statement.since + statement.execution_time()),
        work: &work,
    });
    let name = format!("attachment; filename=\"harrier-statement-{}.json\"", statement.id);
    ([(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_DISPOSITION, name)], body)
        .into_response()
}

async fn sessions(State(site): State<Site>) -> Page {
    views::sessions(&site)
}

async fn ranks(State(site): State<Site>) -> Page {
    views::ranks(&Facts::of(&site.pages.overview).await)
}

async fn queues(State(site): State<Site>) -> Page {
    views::queues(&site, &Facts::of(&site.pages.overview).await)
}

async fn tables(State(site): State<Site>) -> Page {
    let overview = &site.pages.overview;
    let (tables, snapshots) =
        tokio::join!(ask("the catalog", overview.tables()), ask("the catalog", overview.snapshots()));
    let with_sqlstate = |error: SqlError| format!("{error} ({})", error.sqlstate);
    let tables: Result<Vec<TableFacts>, String> = tables.and_then(|tables| tables.map_err(with_sqlstate));
    let snapshots: Result<Vec<SnapshotFacts>, String> =
        snapshots.and_then(|snapshots| snapshots.map_err(with_sqlstate));
    views::tables(&tables, &snapshots)
}

async fn absent() -> Response {
    missing("There is no such page.")
}

fn missing(message: &str) -> Response {
    (StatusCode::NOT_FOUND, views::message("Not found", message)).into_response()
}

/// A submitted form of these pages.
#[derive(Deserialize)]
struct Action {
    #[serde(default)]
    token: String,
}

impl Site {
    /// Why an action is rejected.
    fn refuse(&self, action: &Action) -> Option<Response> {
        let message = if !self.pages.actions {
            "Nothing can be changed from these pages. Set http_actions = true in section server of the configuration file."
        } else if !guard::are_equal(action.token.as_bytes(), self.token.as_bytes()) {
            "The form is not of this page, or of before the server was started anew. Go back, load the page anew, try again."
        } else {
            return None;
        };
        Some((StatusCode::FORBIDDEN, views::message("Refused", message)).into_response())
    }
}

async fn cancel(
    State(site): State<Site>,
    Path(id): Path<String>,
    who: guard::RequestSender,
    Form(action): Form<Action>,
) -> Response {
    if let Some(refusal) = site.refuse(&action) {
        return refusal;
    }
    let registry = &site.pages.registry;
    let Some(statement) = id.parse().ok().and_then(|id| registry.statement(id)) else {
        return missing("The statement was forgotten.");
    };
    // The session may run its next statement already, which must not be canceled.
    let session = registry.session(statement.session).filter(|session| {
        let current = session.statement().is_some_and(|current| current.id == statement.id);
        current && !statement.has_ended()
    });
    if let Some(session) = session {
        tracing::info!(statement = statement.id, session = session.id, by = %who, "statement canceled from the pages");
        session.stop(Stop::Statement);
    }
    Redirect::to(&format!("/statements/{}", statement.id)).into_response()
}

async fn terminate(
    State(site): State<Site>,
    Path(id): Path<String>,
    who: guard::RequestSender,
    Form(action): Form<Action>,
) -> Response {
    if let Some(refusal) = site.refuse(&action) {
        return refusal;
    }
    // A session that has ended meanwhile is terminated already.
    if let Some(session) = id.parse().ok().and_then(|id| site.pages.registry.session(id)) {
        tracing::info!(session = session.id, role = session.role, by = %who, "session ended from the pages");
        session.stop(Stop::Session);
    }
    Redirect::to("/sessions").into_response()
}

async fn metrics_text(State(site): State<Site>) -> Response {
    let facts = Facts::of(&site.pages.overview).await;
    match metrics::text(&site.pages.registry, &facts) {
        Ok(text) => {
            ([(header::CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE))], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be written: {error}\n"))
            .into_response(),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HealthQuery {
    full: Option<String>,
}

/// Returns 200 when sessions are accepted and all wanted ranks work, otherwise 503 with the reasons.
async fn healthz(State(site): State<Site>, Query(query): Query<HealthQuery>, request: Request) -> Response {
    let facts = Facts::of(&site.pages.overview).await;
    let health = facts.health();
    health_response(&site, &facts, &health, health.is_well(), query, request).await
}

/// Returns 200 when sessions are accepted and statements can run, even on fewer ranks than wanted; otherwise
/// 503 with the reasons.
async fn readyz(State(site): State<Site>, Query(query): Query<HealthQuery>, request: Request) -> Response {
    let facts = Facts::of(&site.pages.overview).await;
    let health = facts.health();
    health_response(&site, &facts, &health, health.is_ready, query, request).await
}

async fn health_response(
    site: &Site,
    facts: &Facts,
    health: &Health,
    is_good: bool,
    query: HealthQuery,
    request: Request,
) -> Response {
    let status = if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // The status is public; only who may see the pages sees the reasons.
    if !guard::may_see(&site.pages, request.headers()).await {
        return (status, if is_good { "ok\n" } else { "unavailable\n" }).into_response();
    }
    if query.full.is_some_and(|full| full != "0") {
        return (
            status,
            [(header::CONTENT_TYPE, "application/json")],
            health_json(site, facts, health).to_string(),
        )
            .into_response();
    }
    if health.complaints.is_empty() {
        return (status, if is_good { "ok\n" } else { "unavailable\n" }).into_response();
    }
    (status, format!("{}\n", health.complaints.join("\n"))).into_response()
}

/// Health with its underlying numbers, as JSON.
fn health_json(site: &Site, facts: &Facts, health: &Health) -> serde_json::Value {
    let server = facts.server.as_ref().ok();
    let running = site.pages.registry.statements().iter().filter(|statement| !statement.has_ended()).count();
    let ranks: Vec<_> = facts
        .ranks
        .iter()
        .flatten()
        .map(|rank| {
            json!({
                "number": rank.number,
                "host": rank.host,
                "process": rank.process,
                "state": rank.state.name(),
                "reason": rank.reason,
            })
        })
        .collect();
    let queues: Vec<_> = facts
        .queues
        .iter()
        .flatten()
        .map(|queue| json!({ "name": queue.name, "running": queue.running, "waiting": queue.waiting }))
        .collect();
    json!({
        "healthy": health.is_well(),
        "ready": health.is_ready,
        "complaints": health.complaints,
        "version": server.map(|server| &server.version),
        "uptime_seconds": server.map(|server| server.since.elapsed().unwrap_or_default().as_secs()),
        "ranks_wanted": server.map(|server| server.ranks_wanted),
        "ranks": ranks,
        "queues": queues,
        "sessions": site.pages.registry.sessions().len(),
        "statements": running,
    })
}
