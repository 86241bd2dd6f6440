//! A plan as slices and motions, for `EXPLAIN` and `EXPLAIN ANALYZE`.
//!
//! Slice 0 runs on the coordinator. Every other slice has the number that its streams carry, and feeds
//! exactly one motion. Operators are listed in pre-order; a motion is in the list of the slice that receives
//! it.

use crate::data_files::VisibleRowsExec;
use crate::distribution::bucket_routing::bucket_key;
use crate::distribution::direct_dispatch::DispatchExec;
pub use crate::distribution::direct_dispatch::{Bucket, Owner};
use crate::transport::stream_metrics::{self, StreamMeasured};
use datafusion::catalog::memory::DataSourceExec;
use datafusion::common::Result;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::displayable;
use datafusion::physical_plan::metrics::{Metric, MetricValue, MetricsSet};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use datafusion_distributed::{
    DISTRIBUTED_DATAFUSION_TASK_ID_LABEL, DistributedExec, DistributedLeafExec, DistributedMetricsFormat,
    NetworkBoundaryExt, NetworkBroadcastExec, NetworkCoalesceExec, rewrite_distributed_plan_with_metrics,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The part of a plan between motions.
#[derive(Debug, Clone)]
pub struct SliceNode {
    pub number: usize,
    /// Ranks that run it; slice 0 runs on the coordinator alone.
    pub ranks: usize,
    /// Set for direct dispatch: it runs only on the rank that owns its bucket.
    pub dispatch: Option<(Bucket, Owner)>,
    /// In pre-order.
    pub operators: Vec<OperatorNode>,
}

impl SliceNode {
    /// The place among the gang's members of its first rank.
    pub fn first_place(&self) -> usize {
        self.dispatch.map_or(0, |(_, owner)| owner.place)
    }
}

#[derive(Debug, Clone)]
pub struct OperatorNode {
    /// Distance from the top of the slice.
    pub depth: usize,
    pub name: String,
    /// One line: the name and the description, without the list of files, which can be longer than a page.
    pub text: String,
    /// The same including the files.
    pub full_text: String,
    /// Set at the receiving end of a motion.
    pub motion: Option<Motion>,
    /// Set for a file scan.
    pub scan: Option<ScanFiles>,
    /// Estimated rows over all ranks, if known and requested.
    pub expected_rows: Option<u64>,
    /// Metrics of each rank; empty before the plan has run.
    pub measured: RankMetrics,
}

impl OperatorNode {
    /// Busy time in nanoseconds, by rank that reports it: for a scan, the time spent opening, reading and
    /// decoding files.
    pub fn busy_ns(&self) -> Vec<(usize, u64)> {
        let busy = |(rank, metrics): (usize, &BTreeMap<String, u64>)| {
            let get = |name: &str| metrics.get(name).copied();
            let ns = match (get("time_elapsed_opening"), get("time_elapsed_scanning_total")) {
                _ if self.motion.is_some() => None,
                _ if self.scan.is_none() => get("elapsed_compute"),
                (None, None) => None,
                (opening, scanning) => Some(opening.unwrap_or(0) + scanning.unwrap_or(0)),
            };
            ns.map(|ns| (rank, ns))
        };
        self.measured.each().filter_map(busy).collect()
    }
}

/// The files of a scan, over all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanFiles {
    /// The name of the folder or file, for display.
    pub name: String,
    pub files: usize,
    /// Files and parts of files assigned to ranks.
    pub splits: usize,
    pub extent: Extent,
}

/// Upper bound of the work of a scan: filters and projection reduce it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    pub bytes: u64,
    /// `None` if some files lack statistics.
    pub rows: Option<u64>,
}

impl Extent {
    /// The extent of one scan's files.
    pub fn of(scan: &FileScanConfig) -> Self {
        let mut extent = Extent { bytes: 0, rows: Some(0) };
        for file in scan.file_groups.iter().flat_map(|group| group.files()) {
            let whole = file.object_meta.size;
            let part =
                file.range.as_ref().map_or(whole, |range| range.end.saturating_sub(range.start) as u64);
            let file_rows = file
                .statistics
                .as_ref()
                .and_then(|statistics| statistics.num_rows.get_value().copied())
                .map(|rows| rows as f64 * part as f64 / whole.max(1) as f64);
            extent.bytes += part;
            extent.rows = extent.rows.zip(file_rows).map(|(sum, rows)| sum + rows as u64);
        }
        extent
    }

    fn with(self, other: Self) -> Self {
        Extent {
            bytes: self.bytes + other.bytes,
            rows: self.rows.zip(other.rows).map(|(one, other)| one + other),
        }
    }
}

/// The edge between two slices, `from` ranks to `to` ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Motion {
    pub kind: MotionKind,
    /// The slice that feeds it.
    pub slice: usize,
    pub from: usize,
    pub to: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MotionKind {
    Gather,
    /// By the hash of these expressions, or into the buckets of one.
    Redistribute(String),
    Broadcast,
}

/// Metrics of an operator: summed over its output partitions, by rank of the slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RankMetrics {
    ranks: BTreeMap<usize, BTreeMap<String, u64>>,
    /// Start and end, in nanoseconds since 1970.
    times: BTreeMap<usize, (u64, u64)>,
    /// For a motion: by the receiving rank's place in its slice, and the number of the sending rank.
    streams: BTreeMap<(usize, usize), StreamMeasured>,
}

impl RankMetrics {
    /// `first`: the place of the first rank of the slice.
    fn add(&mut self, metrics: &MetricsSet, first: usize) {
        for metric in metrics.iter() {
            let task: usize = metric
                .labels()
                .iter()
                .find(|label| label.name() == DISTRIBUTED_DATAFUSION_TASK_ID_LABEL)
                .and_then(|label| label.value().parse().ok())
                .unwrap_or(0);
            self.add_one(first + task, metric);
        }
    }

    /// Adds the metrics of `rank` of the slice.
    pub fn add_of(&mut self, rank: usize, metrics: &MetricsSet) {
        metrics.iter().for_each(|metric| self.add_one(rank, metric));
    }

    fn add_one(&mut self, rank: usize, metric: &Metric) {
        let value = metric.value();
        let sender = stream_metrics::sender(metric);
        if let Some(sender) = sender {
            self.streams.entry((rank, sender)).or_default().add(value);
        }
        if let MetricValue::StartTimestamp(at) | MetricValue::EndTimestamp(at) = value {
            let ns = at.value().and_then(|at| at.timestamp_nanos_opt());
            // A stream is opened before its operator has work.
            let ns = ns.filter(|ns| *ns > 0 && sender.is_none());
            if let Some(ns) = ns.map(|ns| ns as u64) {
                let (first, last) = self.times.entry(rank).or_insert((ns, ns));
                (*first, *last) = ((*first).min(ns), (*last).max(ns));
            }
            return;
        }
        let metrics = self.ranks.entry(rank).or_default();
        let mut add = |name: String, value: usize| *metrics.entry(name).or_default() += value as u64;
        // DataFusion has no single number for these two.
        match value {
            MetricValue::PruningMetrics { name, pruning_metrics } => {
                add(name.to_string(), pruning_metrics.pruned());
                add(format!("{name}_matched"), pruning_metrics.matched());
            }
            MetricValue::Ratio { name, ratio_metrics } => {
                add(format!("{name}_part"), ratio_metrics.part());
                add(format!("{name}_total"), ratio_metrics.total());
            }
            value => add(value.name().to_string(), value.as_usize()),
        }
    }

    /// The metrics of each rank, in rank order.
    pub fn each(&self) -> impl Iterator<Item = (usize, &BTreeMap<String, u64>)> {
        self.ranks.iter().map(|(rank, metrics)| (*rank, metrics))
    }

    /// The start and end of a rank's work, in nanoseconds since 1970; the end is that of the last output
    /// partition.
    pub fn times(&self, rank: usize) -> Option<(u64, u64)> {
        self.times.get(&rank).copied()
    }

    /// The streams of a motion: the receiving rank's place in its slice, the number of the sending rank, and
    /// the metrics.
    pub fn streams(&self) -> impl Iterator<Item = (usize, usize, &StreamMeasured)> {
        self.streams.iter().map(|((place, from), stream)| (*place, *from, stream))
    }

    /// Whether the operator has no metrics.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// The sum of one metric over all ranks, `None` if no rank has it.
    pub fn total(&self, name: &str) -> Option<u64> {
        let values: Vec<u64> = self.by_rank(name);
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// One metric on every rank that has it, in rank order.
    pub fn by_rank(&self, name: &str) -> Vec<u64> {
        self.ranks.values().filter_map(|metrics| metrics.get(name).copied()).collect()
    }

    /// The names of all metrics, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.ranks.values().flat_map(|metrics| metrics.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The slices of `plan`, the coordinator's first, each before those that feed it. A plan that runs on one
/// rank is one slice.
pub fn slices(plan: &Arc<dyn ExecutionPlan>) -> Vec<SliceNode> {
    slices_expecting(plan, &|_| None)
}

/// The same, with the estimated rows of each operator by `expected`. Estimates below a row-level security
/// barrier are hidden.
pub fn slices_expecting(plan: &Arc<dyn ExecutionPlan>, expected: &RowEstimator<'_>) -> Vec<SliceNode> {
    let mut slices = Vec::new();
    describe(&one_rank_plan(plan), 0, 1, expected, &mut slices);
    slices
}

/// Replaces the descriptions in the slices of an executed plan by those of the plan before it was prepared
/// for execution.
pub fn copy_descriptions(measured: &mut [SliceNode], planned: &[SliceNode]) {
    for (measured, planned) in measured.iter_mut().zip(planned) {
        for (measured, planned) in measured.operators.iter_mut().zip(&planned.operators) {
            if measured.name == planned.name {
                measured.text.clone_from(&planned.text);
                measured.full_text.clone_from(&planned.full_text);
            }
        }
    }
}

/// Adds the estimates of a plan to the slices of its execution.
pub fn copy_estimates(measured: &mut [SliceNode], planned: &[SliceNode]) {
    for (measured, planned) in measured.iter_mut().zip(planned) {
        for (measured, planned) in measured.operators.iter_mut().zip(&planned.operators) {
            measured.expected_rows = planned.expected_rows;
        }
    }
}

/// The estimated output rows of an operator.
pub type RowEstimator<'a> = dyn Fn(&Arc<dyn ExecutionPlan>) -> Option<u64> + 'a;

/// The operator of the one-rank plan that a distributed one came from: itself, or the scan of all files.
pub fn one_rank_plan(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if plan.is::<DistributedExec>() {
        return Arc::clone(plan.children()[0]);
    }
    Arc::clone(plan.downcast_ref::<DistributedLeafExec>().map_or(plan, |leaf| leaf.original()))
}

/// Whether an operator is a motion.
pub fn is_motion(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.as_network_boundary().is_some()
}

/// Adds the metrics of every rank to a plan. Waits for all ranks; the plan must have run.
pub async fn with_metrics(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    rewrite_distributed_plan_with_metrics(plan, DistributedMetricsFormat::PerTask).await
}

fn describe(
    top: &Arc<dyn ExecutionPlan>,
    number: usize,
    ranks: usize,
    expected: &RowEstimator<'_>,
    slices: &mut Vec<SliceNode>,
) {
    let dispatch = top.downcast_ref::<DispatchExec>();
    let dispatch = dispatch.and_then(|dispatch| Some((dispatch.bucket(), dispatch.owner()?)));
    let mut slice = SliceNode { number, ranks, dispatch, operators: Vec::new() };
    let mut feeders = Vec::new();
    visit(top, 0, &mut slice, expected, &mut feeders);
    slices.push(slice);
    for (plan, number, ranks) in feeders {
        describe(&plan, number, ranks, expected, slices);
    }
}

type Feeder = (Arc<dyn ExecutionPlan>, usize, usize);

fn visit(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    slice: &mut SliceNode,
    expected: &RowEstimator<'_>,
    feeders: &mut Vec<Feeder>,
) {
    let mut measured = RankMetrics::default();
    if let Some(metrics) = plan.metrics() {
        measured.add(&metrics, slice.first_place());
    }
    let leaf = plan.downcast_ref::<DistributedLeafExec>();
    let shown = leaf.map_or(plan, |leaf| leaf.original());
    let scan = match leaf {
        Some(leaf) => scan_of(leaf.variants()),
        None => scan_of(std::slice::from_ref(plan)),
    };
    let full_text = displayable(shown.as_ref()).one_line().to_string().trim_end().to_string();
    let mut operator = OperatorNode {
        depth,
        name: shown.name().to_string(),
        text: scan.as_ref().map_or_else(|| full_text.clone(), |scan| without_files(&full_text, scan)),
        full_text,
        motion: None,
        scan,
        expected_rows: expected(plan),
        measured,
    };
    if let Some(boundary) = plan.as_network_boundary() {
        let stage = boundary.input_stage();
        let kind = if plan.is::<NetworkCoalesceExec>() {
            MotionKind::Gather
        } else if plan.is::<NetworkBroadcastExec>() {
            MotionKind::Broadcast
        } else {
            MotionKind::Redistribute(stage.local_plan().map(hash_keys).unwrap_or_default())
        };
        operator.expected_rows = None;
        operator.motion =
            Some(Motion { kind, slice: stage.num(), from: stage.task_count(), to: slice.ranks });
        slice.operators.push(operator);
        if let Some(input) = stage.local_plan() {
            feeders.push((Arc::clone(input), stage.num(), stage.task_count()));
        }
        return;
    }
    slice.operators.push(operator);
    if leaf.is_some() {
        return;
    }
    let nothing: &RowEstimator<'_> = &|_| None;
    let expected = if plan.is::<VisibleRowsExec>() { nothing } else { expected };
    for child in plan.children() {
        visit(child, depth + 1, slice, expected, feeders);
    }
}

fn scan_of(plans: &[Arc<dyn ExecutionPlan>]) -> Option<ScanFiles> {
    let mut paths = BTreeSet::new();
    let mut splits = 0;
    let mut extent = Extent { bytes: 0, rows: Some(0) };
    for plan in plans {
        let scan = plan.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref::<FileScanConfig>()?;
        for file in scan.file_groups.iter().flat_map(|group| group.files()) {
            paths.insert(file.object_meta.location.clone());
            splits += 1;
        }
        extent = extent.with(Extent::of(scan));
    }
    let folder = paths.iter().next().map(|first| {
        let parts: Vec<_> = first.parts().collect();
        let of_one =
            |at: usize| parts.get(parts.len().wrapping_sub(at)).map(|part| part.as_ref().to_string());
        let name = if paths.len() == 1 { of_one(1) } else { of_one(2).or_else(|| of_one(1)) };
        name.unwrap_or_default()
    });
    Some(ScanFiles { name: folder.unwrap_or_default(), files: paths.len(), splits, extent })
}

/// Replaces the list of files by their number.
fn without_files(text: &str, scan: &ScanFiles) -> String {
    let Some((before, rest)) = text.split_once("file_groups={") else {
        return text.to_string();
    };
    let after = rest.find("]}").map_or("", |end| &rest[end + 2..]);
    format!("{before}files={}, splits={}{after}", scan.files, scan.splits)
}

/// The hash expressions of a producing slice, or the key of the buckets that it routes rows to.
fn hash_keys(plan: &Arc<dyn ExecutionPlan>) -> String {
    match plan.downcast_ref::<RepartitionExec>().map(|repartition| repartition.partitioning()) {
        Some(Partitioning::Hash(keys, _)) => {
            let text = |key: &Arc<dyn PhysicalExpr>| match bucket_key(key) {
                Some((key, count)) => format!("{key} into {count} buckets"),
                None => key.to_string(),
            };
            keys.iter().map(text).collect::<Vec<_>>().join(", ")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::metrics::{PruningMetrics, RatioMetrics};

    use super::*;

    #[test]
    fn pruning_and_ratios_have_two_numbers_each() {
        let (pruning_metrics, ratio_metrics) = (PruningMetrics::new(), RatioMetrics::new());
        pruning_metrics.add_pruned(4);
        pruning_metrics.add_matched(2);
        ratio_metrics.add_part(10);
        ratio_metrics.add_total(50);
        let mut set = MetricsSet::new();
        for value in [
            MetricValue::PruningMetrics { name: "row_groups_pruned_statistics".into(), pruning_metrics },
            MetricValue::Ratio { name: "selectivity".into(), ratio_metrics },
        ] {
            set.push(Arc::new(Metric::new(value, None)));
        }
        let mut metrics = RankMetrics::default();
        metrics.add_of(0, &set);
        metrics.add_of(1, &set);
        let totals: Vec<_> = metrics.names().into_iter().map(|name| (name, metrics.total(name))).collect();
        let expected = [
            ("row_groups_pruned_statistics", Some(8)),
            ("row_groups_pruned_statistics_matched", Some(4)),
            ("selectivity_part", Some(20)),
            ("selectivity_total", Some(100)),
        ];
        assert_eq!(totals, expected);
    }
}
