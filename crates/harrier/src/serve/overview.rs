//! Data of the pages, the metrics and the health checks of this server.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, TryStreamExt};
use harrier_engine::{Engine, Outcome};
use harrier_error::{SqlError, SqlState};
use harrier_server::overview::{
    Overview, QueueFacts, RankFacts, RankState, SNAPSHOTS_MAX, ServerFacts, SnapshotFacts, TableFacts,
};
use harrier_server::queues::Queues;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::gang::{State, Supervisor};
use super::operate::Controls;
use super::session::with_context;

/// Tables of the warehouse with their counts.
const TABLES: &str = "SELECT table_schema, table_name, rows, bytes, files, deleted_rows, kept_rows, partitioned_by \
                      FROM sys.tables ORDER BY 1, 2";

/// The last commits.
const SNAPSHOTS: &str = "SELECT snapshot_id, CAST(snapshot_time AS BIGINT), changes, author, message \
                         FROM sys.snapshots ORDER BY 1 DESC LIMIT ";

/// Minimum interval between CPU time samples.
const SAMPLE_MIN: Duration = Duration::from_millis(900);

pub(super) struct Facts {
    pub(super) engine: Engine,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) gang: Option<Supervisor>,
    pub(super) queues: Queues,
    pub(super) since: SystemTime,
    pub(super) warehouse: String,
    pub(super) listen: Vec<String>,
    pub(super) controls: Arc<Controls>,
    pub(super) busy: Mutex<Busy>,
}

/// CPU usage of ranks, from two samples.
#[derive(Debug, Default)]
pub(super) struct Busy {
    generation: u64,
    last_sample: Option<(Instant, Vec<u64>)>,
    cores: Vec<f64>,
}

impl Busy {
    /// CPU cores used by every rank, where known. `processor_ns`: CPU time of each, reported at `at`.
    fn cores(&mut self, generation: u64, at: Instant, processor_ns: Vec<u64>) -> Vec<f64> {
        if self.generation != generation {
            *self = Self { generation, ..Self::default() };
        }
        match &self.last_sample {
            Some((before, was)) => {
                let passed = at.saturating_duration_since(*before);
                if passed >= SAMPLE_MIN {
                    let cores =
                        |(now, was): (&u64, &u64)| now.saturating_sub(*was) as f64 / passed.as_nanos() as f64;
                    self.cores = processor_ns.iter().zip(was).map(cores).collect();
                    self.last_sample = Some((at, processor_ns));
                }
            }
            None => self.last_sample = Some((at, processor_ns)),
        }
        self.cores.clone()
    }
}

impl Facts {
    /// Runs a query.
    async fn query(&self, text: String) -> Result<Vec<RecordBatch>, SqlError> {
        let session = self.engine.session();
        let work = async move {
            let mut batches = Vec::new();
            for statement in &session.statements(&text)? {
                let Outcome::Rows { stream, .. } = session.execute(statement).await? else {
                    continue;
                };
                let rows: Vec<_> = stream.try_collect().await.map_err(harrier_engine::sql_error)?;
                batches.extend(rows);
            }
            Ok(batches)
        };
        match self.runtime.spawn(work).await {
            Ok(batches) => batches.map_err(with_context),
            Err(error) => Err(SqlError::new(SqlState::INTERNAL_ERROR, error.to_string())),
        }
    }

    fn server_facts(&self) -> ServerFacts {
        ServerFacts {
            version: env!("CARGO_PKG_VERSION").to_string(),
            since: self.since,
            warehouse: self.warehouse.clone(),
            listen: self.listen.clone(),
            closed: self.controls.refusal_reason(),
            // Without its gang, statements run in this process all the same.
            ranks_wanted: self.gang.as_ref().map_or(0, |gang| gang.plan().ranks),
        }
    }

    fn rank_facts(&self) -> Vec<RankFacts> {
        let Some(gang) = &self.gang else {
            return vec![];
        };
        let view = gang.view();
        if view.state != State::Up {
            let reason = match view.state {
                State::Starting => Some("the gang is being started".to_string()),
                _ => view.reason.clone(),
            };
            return (0..gang.plan().ranks)
                .map(|number| RankFacts {
                    number,
                    state: RankState::Down,
                    reason: reason.clone(),
                    ..RankFacts::default()
                })
                .collect();
        }
        let ranks = &view.status.ranks;
        let processor_ns = ranks.iter().map(|rank| rank.process_cpu_ns).collect();
        let cores = view
            .status_at
            .map(|heard| self.busy.lock().cores(view.generation, heard, processor_ns))
            .unwrap_or_default();
        let rank = |(number, rank): (usize, &harrier_exec::frontend::protocol::RankStatus)| RankFacts {
            number,
            host: rank.host.clone(),
            process: Some(rank.pid),
            state: match (rank.is_down(), rank.works) {
                (true, _) => RankState::Down,
                (false, true) => RankState::Working,
                (false, false) => RankState::Spare,
            },
            reason: rank.reason(),
            sent_bytes: rank.bytes_sent,
            sent_frames: rank.frames_sent,
            open_streams: rank.streams_open,
            reserved_bytes: rank.reserved_bytes,
            memory_bytes: gang.plan().memory_bytes,
            resident_bytes: (rank.resident_bytes > 0).then_some(rank.resident_bytes),
            processor_seconds: rank.process_cpu_ns as f64 / 1e9,
            busy_cores: cores.get(number).copied().filter(|_| rank.lost.is_none()),
            report_age: view.status_at.filter(|_| rank.lost.is_none()).map(|heard| heard.elapsed()),
        };
        ranks.iter().enumerate().map(rank).collect()
    }

    fn queue_facts(&self) -> Vec<QueueFacts> {
        let (queues, _) = self.queues.snapshot();
        let facts = |queue: harrier_server::queues::QueueSnapshot| QueueFacts {
            name: queue.definition.name.clone(),
            limits: queue
                .definition
                .active_statements
                .map(|limit| ("active_statements".to_string(), limit.to_string()))
                .into_iter()
                .collect(),
            running: queue.running,
            waiting: queue.waiting,
            longest_wait: queue.longest_wait,
            admitted: queue.admitted,
            refused: queue.refused,
        };
        queues.into_iter().map(facts).collect()
    }

    fn boxed_tables(&self) -> BoxFuture<'_, Result<Vec<TableFacts>, SqlError>> {
        async move {
            let table = |batch: &RecordBatch, row: usize| TableFacts {
                schema: text(batch, 0, row).unwrap_or_default(),
                name: text(batch, 1, row).unwrap_or_default(),
                rows: number(batch, 2, row),
                bytes: number(batch, 3, row),
                files: number(batch, 4, row),
                deleted_rows: number(batch, 5, row),
                kept_rows: number(batch, 6, row),
                partitioned_by: text(batch, 7, row),
            };
            Ok(rows(&self.query(TABLES.to_string()).await?, table))
        }
        .boxed()
    }

    fn boxed_snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotFacts>, SqlError>> {
        async move {
            let snapshot = |batch: &RecordBatch, row: usize| SnapshotFacts {
                id: number(batch, 0, row),
                at: UNIX_EPOCH + Duration::from_micros(number(batch, 1, row)),
                changes: text(batch, 2, row).unwrap_or_default(),
                author: text(batch, 3, row),
                message: text(batch, 4, row),
            };
            Ok(rows(&self.query(format!("{SNAPSHOTS}{SNAPSHOTS_MAX}")).await?, snapshot))
        }
        .boxed()
    }
}

/// Maps every row with `one`.
fn rows<T>(batches: &[RecordBatch], one: impl Fn(&RecordBatch, usize) -> T) -> Vec<T> {
    let mut made = Vec::new();
    for batch in batches {
        made.extend((0..batch.num_rows()).map(|row| one(batch, row)));
    }
    made
}

/// Value of column `at`; `None` for NULL.
fn text(batch: &RecordBatch, at: usize, row: usize) -> Option<String> {
    let column = batch.column(at).as_string::<i32>();
    column.is_valid(row).then(|| column.value(row).to_string())
}

/// Value of column `at`; 0 for NULL.
fn number(batch: &RecordBatch, at: usize, row: usize) -> u64 {
    let column = batch.column(at).as_primitive::<Int64Type>();
    if column.is_valid(row) { column.value(row).max(0) as u64 } else { 0 }
}

// Methods are written out to keep compile times low: docs/decisions/0025-boxed-futures-behind-traits.md
impl Overview for Facts {
    fn server<'a: 'f, 'f>(&'a self) -> BoxFuture<'f, ServerFacts> {
        ready(self.server_facts()).boxed()
    }

    fn ranks<'a: 'f, 'f>(&'a self) -> BoxFuture<'f, Vec<RankFacts>> {
        ready(self.rank_facts()).boxed()
    }

    fn queues<'a: 'f, 'f>(&'a self) -> BoxFuture<'f, Vec<QueueFacts>> {
        ready(self.queue_facts()).boxed()
    }

    fn tables<'a: 'f, 'f>(&'a self) -> BoxFuture<'f, Result<Vec<TableFacts>, SqlError>> {
        self.boxed_tables()
    }

    fn snapshots<'a: 'f, 'f>(&'a self) -> BoxFuture<'f, Result<Vec<SnapshotFacts>, SqlError>> {
        self.boxed_snapshots()
    }
}
