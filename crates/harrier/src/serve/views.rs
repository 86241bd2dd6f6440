//! State of the server as tables of schema `sys`, and session management for PostgreSQL's functions.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::Schema;
use futures::FutureExt;
use harrier_engine::{Activity, AdvisoryLock, ServerContext, ServerTable, Viewer};
use harrier_resources::spill_disks::{DiskStatus, Disks};
use harrier_server::queues::{QueueSnapshot, Queues};
use harrier_server::registry::{Phase, Registry, SessionEntry, StatementEntry, Stop};

use super::gang::{State, Supervisor};
use super::locks::Locks;
use super::sockets::host_name;
use crate::sys_interconnect::{self, RankTraffic, StatementTraffic};

type Columns = Vec<(&'static str, ArrayRef)>;

/// All tables about the server.
pub(super) fn tables(
    registry: &Arc<Registry>,
    queues: &Queues,
    gang: Option<&Supervisor>,
    disks: &Arc<OnceLock<Disks>>,
) -> Vec<ServerTable> {
    let ranks = gang.cloned();
    let spilled = (gang.cloned(), Arc::clone(disks));
    vec![
        table("sessions", registry, |registry, viewer| sessions(&registry.sessions(), viewer)),
        running_statements(registry),
        table("ranks", &Arc::new(ranks), |gang, _| self::ranks(gang.as_ref())),
        table("disks", &Arc::new(spilled), |(gang, disks), _| self::disks(gang.as_ref(), disks.get())),
        table("queues", &Arc::new(queues.clone()), |queues, _| self::queues(&queues.snapshot().0)),
        interconnect(registry, gang),
    ]
}

/// Traffic of ranks and statements; running statements are sampled.
fn interconnect(registry: &Arc<Registry>, gang: Option<&Supervisor>) -> ServerTable {
    let (registry, gang) = (Arc::clone(registry), gang.cloned());
    sys_interconnect::table(move |viewer| {
        let (registry, gang, viewer) = (Arc::clone(&registry), gang.clone(), viewer.clone());
        async move {
            let ranks = gang.map(|gang| gang.view().status.ranks).unwrap_or_default();
            let counted = ranks.iter().enumerate().filter(|(_, rank)| rank.counts.epoch > 0);
            let counted = counted.map(|(rank, status)| RankTraffic {
                rank,
                counts: status.counts,
                clock_ahead_ns: status.clock_ahead_ns,
            });
            let entries = registry.statements();
            let looks = entries.iter().map(|entry| entry.refresh_profile());
            let works = futures::future::join_all(looks).await;
            let moved = entries.iter().zip(&works).filter_map(|(entry, work)| {
                Some(StatementTraffic {
                    id: entry.id,
                    state: entry.phase().name(),
                    text: redact(&viewer, &entry.role, Some(entry.text.clone())).unwrap_or_default(),
                    work: work.as_deref()?,
                })
            });
            sys_interconnect::rows(counted.collect(), moved.collect())
        }
        .boxed()
    })
}

/// Timeout of sampling the memory of statements on the gang; after it, earlier samples are used.
const SAMPLE_TIMEOUT: Duration = Duration::from_millis(250);

/// The table of statements; samples the memory of those on the gang.
fn running_statements(registry: &Arc<Registry>) -> ServerTable {
    let schema = table("statements", registry, |_, viewer| statements(&[], viewer)).schema;
    let registry = Arc::clone(registry);
    let rows = move |viewer: &Viewer| {
        let (registry, viewer) = (Arc::clone(&registry), viewer.clone());
        async move {
            let entries = registry.statements();
            let looks = entries.iter().filter(|entry| entry.is_on_gang() && !entry.has_ended());
            let looks = futures::future::join_all(looks.map(|entry| entry.refresh_profile()));
            // Late samples are skipped.
            let _ = tokio::time::timeout(SAMPLE_TIMEOUT, looks).await;
            batch(statements(&entries, &viewer))
        }
        .boxed()
    };
    ServerTable { name: "statements", schema, rows: Arc::new(rows) }
}

fn batch(columns: Columns) -> datafusion::error::Result<RecordBatch> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn table<T: Send + Sync + 'static>(
    name: &'static str,
    source: &Arc<T>,
    columns: impl Fn(&T, &Viewer) -> Columns + Send + Sync + 'static,
) -> ServerTable {
    let source = Arc::clone(source);
    let rows =
        move |viewer: &Viewer| -> datafusion::error::Result<RecordBatch> { batch(columns(&source, viewer)) };
    // The columns do not depend on the rows.
    let schema = rows(&Viewer::System).map_or_else(
        |_: datafusion::error::DataFusionError| Arc::new(Schema::empty()),
        |batch| batch.schema(),
    );
    ServerTable { name, schema, rows: Arc::new(move |viewer| std::future::ready(rows(viewer)).boxed()) }
}

fn texts(values: impl IntoIterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn counts(values: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(values.into_iter().map(|value| Some(value as i64)).collect::<Int64Array>())
}

fn times(values: impl IntoIterator<Item = SystemTime>) -> ArrayRef {
    let us = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
    let array: TimestampMicrosecondArray = values.into_iter().map(|time| Some(us(time))).collect();
    Arc::new(array.with_timezone("UTC"))
}

/// PostgreSQL's placeholder for other roles' statements.
const INSUFFICIENT: &str = "<insufficient privilege>";

/// Hides a text of a role's session or statement from viewers without its privileges.
fn redact(viewer: &Viewer, role: &str, text: Option<String>) -> Option<String> {
    match viewer.has_privileges_of(role) {
        true => text,
        false => text.map(|_| INSUFFICIENT.to_string()),
    }
}

fn sessions(sessions: &[Arc<SessionEntry>], viewer: &Viewer) -> Columns {
    let each = || sessions.iter();
    let visible = |session: &Arc<SessionEntry>, text| redact(viewer, &session.role, text);
    vec![
        ("pid", Arc::new(each().map(|session| Some(session.id)).collect::<Int32Array>())),
        ("role", texts(each().map(|session| Some(session.role.clone())))),
        ("database", texts(each().map(|session| Some(session.database.clone())))),
        ("application_name", texts(each().map(|session| visible(session, Some(session.application()))))),
        (
            "client",
            texts(each().map(|session| visible(session, session.client.map(|client| client.to_string())))),
        ),
        ("started", times(each().map(|session| session.since))),
        ("state", texts(each().map(|session| Some(session.activity().0.name().to_string())))),
        ("state_changed", times(each().map(|session| session.activity().1))),
        ("operator", Arc::new(each().map(|session| Some(session.is_operator())).collect::<BooleanArray>())),
        ("statement_id", {
            let id = |session: &Arc<SessionEntry>| session.statement().map(|statement| statement.id as i64);
            Arc::new(each().map(id).collect::<Int64Array>())
        }),
        (
            "statement",
            texts(each().map(|session| {
                visible(session, session.statement().map(|statement| statement.text.clone()))
            })),
        ),
    ]
}

fn statements(statements: &[Arc<StatementEntry>], viewer: &Viewer) -> Columns {
    let each = || statements.iter();
    let visible = |statement: &Arc<StatementEntry>, text| redact(viewer, &statement.role, text);
    let ms = |duration: Duration| Some(duration.as_secs_f64() * 1000.0);
    vec![
        ("id", counts(each().map(|statement| statement.id))),
        ("pid", Arc::new(each().map(|statement| Some(statement.session)).collect::<Int32Array>())),
        ("role", texts(each().map(|statement| Some(statement.role.clone())))),
        ("state", texts(each().map(|statement| Some(statement.phase().name().to_string())))),
        ("queue", texts(each().map(|statement| statement.queue()))),
        ("started", times(each().map(|statement| statement.since))),
        ("queued_ms", Arc::new(each().map(|statement| ms(statement.queue_wait())).collect::<Float64Array>())),
        (
            "elapsed_ms",
            Arc::new(each().map(|statement| ms(statement.execution_time())).collect::<Float64Array>()),
        ),
        ("rows", counts(each().map(|statement| statement.rows.load(Ordering::Relaxed)))),
        ("bytes", counts(each().map(|statement| statement.bytes.load(Ordering::Relaxed)))),
        ("memory_bytes", counts(each().map(|statement| statement.memory().0))),
        ("memory_peak_bytes", counts(each().map(|statement| statement.memory().1))),
        ("on_gang", Arc::new(each().map(|statement| Some(statement.is_on_gang())).collect::<BooleanArray>())),
        ("retries", counts(each().map(|statement| statement.retries()))),
        ("sqlstate", texts(each().map(|statement| statement.failure().map(|(state, _)| state.to_string())))),
        (
            "error",
            texts(
                each().map(|statement| visible(statement, statement.failure().map(|(_, message)| message))),
            ),
        ),
        ("text", texts(each().map(|statement| visible(statement, Some(statement.text.clone()))))),
    ]
}

fn queues(queues: &[QueueSnapshot]) -> Columns {
    let each = || queues.iter();
    let limit = |queue: &QueueSnapshot| queue.definition.active_statements.map(|limit| limit as i64);
    let ms = |queue: &QueueSnapshot| Some(queue.longest_wait.as_secs_f64() * 1000.0);
    vec![
        ("name", texts(each().map(|queue| Some(queue.definition.name.clone())))),
        ("active_statements", Arc::new(each().map(limit).collect::<Int64Array>())),
        ("memory_limit", {
            let limit = |queue: &QueueSnapshot| queue.definition.memory_limit.map(|bytes| bytes as i64);
            Arc::new(each().map(limit).collect::<Int64Array>())
        }),
        ("priority", texts(each().map(|queue| Some(queue.definition.priority.name().to_string())))),
        ("max_cost", Arc::new(each().map(|queue| queue.definition.max_cost).collect::<Float64Array>())),
        ("running", counts(each().map(|queue| queue.running as u64))),
        ("waiting", counts(each().map(|queue| queue.waiting as u64))),
        ("longest_wait_ms", Arc::new(each().map(ms).collect::<Float64Array>())),
        ("admitted", counts(each().map(|queue| queue.admitted))),
        ("refused", counts(each().map(|queue| queue.refused))),
    ]
}

fn ranks(gang: Option<&Supervisor>) -> Columns {
    let view = gang.map(Supervisor::view);
    let ranks = view.as_ref().map(|view| view.status.ranks.clone()).unwrap_or_default();
    let each = || ranks.iter();
    let state = |rank: &harrier_exec::frontend::protocol::RankStatus| match (rank.is_down(), rank.works) {
        (true, _) => "down",
        (false, true) => "working",
        (false, false) => "spare",
    };
    vec![
        ("rank", Arc::new((0..ranks.len() as i32).map(Some).collect::<Int32Array>())),
        ("host", texts(each().map(|rank| Some(rank.host.clone())))),
        ("pid", Arc::new(each().map(|rank| Some(rank.pid as i32)).collect::<Int32Array>())),
        ("state", texts(each().map(|rank| Some(state(rank).to_string())))),
        ("reason", texts(each().map(|rank| rank.reason()))),
        ("bytes_sent", counts(each().map(|rank| rank.bytes_sent))),
        ("frames_sent", counts(each().map(|rank| rank.frames_sent))),
        ("streams_open", counts(each().map(|rank| rank.streams_open))),
        ("reserved_bytes", counts(each().map(|rank| rank.reserved_bytes))),
        ("cpu_seconds", {
            let seconds = each().map(|rank| Some(rank.process_cpu_ns as f64 / 1e9));
            Arc::new(seconds.collect::<Float64Array>())
        }),
        ("gang", counts(each().map(|_| view.as_ref().map_or(0, |view| view.generation)))),
        ("gang_since", {
            let since = view.as_ref().filter(|view| view.state == State::Up).map(|view| view.since);
            times(each().map(|_| since.unwrap_or(UNIX_EPOCH)))
        }),
    ]
}

/// Spill folders of the server and its ranks.
fn disks(gang: Option<&Supervisor>, own: Option<&Disks>) -> Columns {
    let here = own.map(Disks::status).unwrap_or_default();
    let mut all: Vec<(Option<i32>, String, DiskStatus)> =
        here.into_iter().map(|disk| (None, host_name(), disk)).collect();
    for (number, rank) in
        gang.map(|gang| gang.view().status.ranks).unwrap_or_default().into_iter().enumerate()
    {
        all.extend(rank.disks.into_iter().map(|disk| (Some(number as i32), rank.host.clone(), disk)));
    }
    let each = || all.iter();
    let bytes = |pick: fn(&DiskStatus) -> Option<u64>| -> ArrayRef {
        Arc::new(each().map(|(.., disk)| pick(disk).map(|bytes| bytes as i64)).collect::<Int64Array>())
    };
    vec![
        ("rank", Arc::new(each().map(|(rank, ..)| *rank).collect::<Int32Array>())),
        ("host", texts(each().map(|(_, host, _)| Some(host.clone())))),
        ("folder", texts(each().map(|(.., disk)| Some(disk.folder.clone())))),
        ("state", texts(each().map(|(.., disk)| Some(disk.state().name().to_string())))),
        ("reason", texts(each().map(|(.., disk)| disk.reason.clone()))),
        ("total_bytes", bytes(|disk| disk.total_bytes)),
        ("free_bytes", bytes(|disk| disk.free_bytes)),
        ("spilled_bytes", bytes(|disk| Some(disk.spilled_bytes))),
        ("spilled_files", bytes(|disk| Some(disk.spilled_files))),
    ]
}

/// The server as seen by a session.
pub(super) struct Server {
    pub(super) registry: Arc<Registry>,
    pub(super) since: SystemTime,
    pub(super) sessions_max: usize,
    pub(super) locks: Arc<Locks>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server")
    }
}

impl ServerContext for Server {
    fn activity(&self) -> Vec<Activity> {
        let us =
            |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        let sessions = self.registry.sessions();
        let one = |session: &Arc<SessionEntry>| {
            let statement = session.statement();
            let (activity, changed) = session.activity();
            let is_queued = statement.as_ref().is_some_and(|statement| statement.phase() == Phase::Queued);
            Activity {
                pid: session.id,
                user: session.role.clone(),
                application: session.application(),
                client_address: session.client.map(|client| (client.ip().to_string(), client.port())),
                backend_start: us(session.since),
                transaction_start: None,
                query_start: statement.as_ref().map(|statement| us(statement.since)),
                state_change: Some(us(changed)),
                wait: is_queued.then(|| ("Extension".to_string(), "ResourceQueue".to_string())),
                state: activity.name().to_string(),
                query: statement.map(|statement| statement.text.clone()).unwrap_or_default(),
            }
        };
        sessions.iter().map(one).collect()
    }

    fn locks(&self) -> Vec<AdvisoryLock> {
        self.locks.list()
    }

    fn signal(&self, process: i32, terminate: bool) -> bool {
        let session = self.registry.session(process);
        if let Some(session) = &session {
            session.stop(if terminate { Stop::Session } else { Stop::Statement });
        }
        session.is_some()
    }

    fn since(&self) -> SystemTime {
        self.since
    }

    fn sessions_max(&self) -> usize {
        self.sessions_max
    }
}
