//! Progress of a running statement, computed from its plan's metrics.

use std::sync::Arc;

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use harrier_exec::frontend::client::on_gang;
use harrier_exec::monitor::plan_snapshot;
use harrier_exec::monitor::slice_tree::Extent;
use harrier_resources::statement_memory::StatementMemory;
use harrier_session_api::query_profile::{Memory, QueryProfile};

/// A handle on a plan, which it keeps alive. Cheap to clone; reading locks each operator's metrics briefly.
#[derive(Debug, Clone)]
pub struct PlanProgress {
    plan: Option<Arc<dyn ExecutionPlan>>,
    memory: Option<Arc<StatementMemory>>,
    scans: Arc<[Scan]>,
}

#[derive(Debug)]
struct Scan {
    plan: Arc<dyn ExecutionPlan>,
    extent: Extent,
}

/// Progress of all scans of a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProgressReading {
    /// Rows the scans have produced.
    pub rows: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Total bytes of the scanned files: an upper bound, since columns and row groups may be pruned.
    pub bytes_total: u64,
    /// From 0 to 1: per scan the larger of the finished shares of bytes and rows, weighted by bytes.
    pub fraction: f64,
}

impl PlanProgress {
    /// Returns a handle on `plan`, the scans below it, and its statement's memory.
    pub fn of(plan: &Arc<dyn ExecutionPlan>, memory: Option<Arc<StatementMemory>>) -> Self {
        let mut scans = Vec::new();
        find_scans(plan, &mut scans);
        Self { plan: Some(Arc::clone(plan)), memory, scans: scans.into() }
    }

    /// An empty handle, for a statement without scans.
    pub(crate) fn none() -> Self {
        Self { plan: None, memory: None, scans: Arc::new([]) }
    }

    /// The last known snapshot of the plan's metrics; for a plan on a gang, the last one the gang reported.
    /// Empty without a plan.
    pub fn last_snapshot(&self) -> QueryProfile {
        match &self.plan {
            Some(plan) => {
                let snapshot =
                    on_gang(plan).map_or_else(|| plan_snapshot::at(plan), |gang| gang.last_snapshot());
                self.with_memory(snapshot)
            }
            None => QueryProfile::default(),
        }
    }

    /// The statement's memory in each process, as far as it is known here.
    pub fn memory(&self) -> Vec<Memory> {
        let gang = self.plan.as_ref().and_then(on_gang);
        let ranks = gang.map(|gang| gang.last_snapshot().memory).unwrap_or_default();
        ranks.into_iter().chain(self.memory_here()).collect()
    }

    fn with_memory(&self, mut snapshot: QueryProfile) -> QueryProfile {
        snapshot.memory.extend(self.memory_here());
        snapshot
    }

    fn memory_here(&self) -> Vec<Memory> {
        self.memory.as_ref().map(|memory| memory.by_process(None)).unwrap_or_default()
    }

    /// A fresh snapshot, polled from the ranks if they run the plan. Cancel-safe.
    pub async fn poll_snapshot(&self) -> QueryProfile {
        match self.plan.as_ref().and_then(on_gang) {
            Some(gang) => self.with_memory(gang.poll_snapshot().await),
            None => self.last_snapshot(),
        }
    }

    /// Whether there is a scan whose progress can be measured.
    pub fn is_known(&self) -> bool {
        self.scans.iter().any(|scan| scan.extent.bytes > 0)
    }

    pub fn read(&self) -> ProgressReading {
        let mut reading = ProgressReading::default();
        let mut bytes_done = 0.0;
        for scan in self.scans.iter() {
            let Extent { bytes, rows: rows_total } = scan.extent;
            reading.bytes_total += bytes;
            let Some(metrics) = scan.plan.metrics() else {
                continue;
            };
            let rows = metrics.output_rows().unwrap_or_default() as u64;
            let bytes_read = count(&metrics, "bytes_scanned");
            reading.rows += rows;
            reading.bytes_read += bytes_read;
            let rows_seen = rows + count(&metrics, "pushdown_rows_pruned");
            let of_rows =
                rows_total.filter(|total| *total > 0).map_or(0.0, |total| rows_seen as f64 / total as f64);
            let of_bytes = bytes_read as f64 / bytes.max(1) as f64;
            bytes_done += bytes as f64 * of_rows.max(of_bytes).min(1.0);
        }
        if reading.bytes_total > 0 {
            reading.fraction = bytes_done / reading.bytes_total as f64;
        }
        reading
    }
}

fn count(metrics: &MetricsSet, name: &str) -> u64 {
    metrics.sum_by_name(name).map_or(0, |value| value.as_usize() as u64)
}

fn find_scans(plan: &Arc<dyn ExecutionPlan>, scans: &mut Vec<Scan>) {
    if let Some(source) = plan.downcast_ref::<DataSourceExec>()
        && let Some(config) = source.data_source().downcast_ref::<FileScanConfig>()
    {
        scans.push(Scan { plan: Arc::clone(plan), extent: Extent::of(config) });
    }
    for child in plan.children() {
        find_scans(child, scans);
    }
}
