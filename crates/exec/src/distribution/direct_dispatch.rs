//! Direct dispatch: a plan that reads a single bucket runs on the rank that owns it.
//!
//! ```text
//!   coordinator          rank 5 mod 3
//!   gather 1→1  ◄──────  DispatchExec: bucket=5, buckets=8, rank=2
//!                          the plan, of one output partition
//! ```
//!
//! Bucket `i` belongs to the rank at place `i` mod the number of ranks, as in colocated joins
//! ([`crate::distribution::splits`]). If the coordinator is that rank, there is not even a gather.
//!
//! A single-bucket plan is recognized before it is distributed, and in a front end before it is submitted:
//! the buckets of files are not serialized, [`DispatchExec`] is.
//!
//! Source: HAWQ, "directly dispatched queries" (hawq.txt, section 3).

use std::fmt;
use std::sync::Arc;

use datafusion::catalog::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::execution::config::SessionConfig;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use datafusion_distributed::{
    DistributedConfig, DistributedExec, NetworkBoundary, NetworkCoalesceExec, Stage,
};
use uuid::Uuid;

use crate::data_files::FileBucket;
use crate::distribution::distribution_config::DistributionConfig;
use crate::distribution::window_sorts::sort_by_keys;
use crate::operators::file_scan::file_scan;

/// Operators allowed in such a plan: serializable, and with the same result on one rank as in one process.
const OPERATORS: [&str; 26] = [
    "AggregateExec",
    "BoundedWindowAggExec",
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "CrossJoinExec",
    "DataSourceExec",
    "EmptyExec",
    "FilterExec",
    "GlobalLimitExec",
    "HashJoinExec",
    "LiveRowsExec",
    "LocalLimitExec",
    "NestedLoopJoinExec",
    "PlaceholderRowExec",
    "ProjectionExec",
    "RepartitionExec",
    "SortExec",
    "SortMergeJoinExec",
    "SortPreservingMergeExec",
    "UnionExec",
    "UnnestExec",
    "UnorderedExec",
    "VisibleRowsExec",
    "WindowAggExec",
    "WriteFilesExec",
];

/// One bucket, and the number of buckets of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// From 0.
    pub number: u32,
    pub count: u32,
}

/// The rank that runs the input of a [`DispatchExec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Index among the gang's members.
    pub place: usize,
    pub rank: usize,
}

/// The single bucket of all files of `plan`; `None` also if it reads no file, or has an operator that cannot
/// be dispatched.
pub fn one_bucket(plan: &Arc<dyn ExecutionPlan>) -> Option<Bucket> {
    let mut buckets = Vec::new();
    if !collect_buckets(plan, &mut buckets) {
        return None;
    }
    let first = buckets.first().copied()?;
    buckets.iter().all(|bucket| *bucket == first).then_some(first)
}

/// Collects the buckets of all files of `plan`; false if a file has none, or an operator cannot be
/// dispatched.
fn collect_buckets(plan: &Arc<dyn ExecutionPlan>, buckets: &mut Vec<Bucket>) -> bool {
    if !OPERATORS.contains(&plan.name()) {
        return false;
    }
    if let Some(scan) = file_scan(plan) {
        let mut files = scan.file_groups.iter().flat_map(|group| group.files());
        return files.all(|file| match file.extension::<FileBucket>() {
            Some(FileBucket { count, number, .. }) => {
                buckets.push(Bucket { number: *number, count: *count });
                true
            }
            None => false,
        });
    }
    if let Some(source) = plan.downcast_ref::<DataSourceExec>() {
        return source.data_source().downcast_ref::<MemorySourceConfig>().is_some();
    }
    plan.children().into_iter().all(|child| collect_buckets(child, buckets))
}

/// Bytes of the files that a plan reads.
pub fn scanned_bytes(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own: u64 = file_scan(plan).map_or(0, |scan| {
        scan.file_groups.iter().flat_map(|group| group.files()).map(|file| file.effective_size()).sum()
    });
    own as usize + plan.children().into_iter().map(scanned_bytes).sum::<usize>()
}

/// Wraps a single-bucket plan in a [`DispatchExec`] without an owner.
pub fn with_dispatch(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match one_bucket(&plan) {
        Some(bucket) => Arc::new(DispatchExec { input: plan, bucket, owner: None }),
        None => plan,
    }
}

/// The distributed form of a [wrapped](with_dispatch) plan on the rank that owns its bucket. `None`: it is
/// not wrapped, reads too little to leave the coordinator, or there is only one rank.
pub fn distribute_dispatch(
    plan: &Arc<dyn ExecutionPlan>,
    config: &SessionConfig,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (Some(marked), Some(distribution)) =
        (plan.downcast_ref::<DispatchExec>(), config.get_extension::<DistributionConfig>())
    else {
        return Ok(None);
    };
    let members = &distribution.members;
    if members.len() < 2 || scanned_bytes(plan) < distribution.bytes_min {
        return Ok(None);
    }
    let place = marked.bucket.number as usize % members.len();
    let owner = Owner { place, rank: members[place] };
    let sorted = Arc::clone(&marked.input).transform_up(|plan| {
        let sorted = sort_by_keys(Arc::clone(&plan))?;
        Ok(if Arc::ptr_eq(&sorted, &plan) { Transformed::no(plan) } else { Transformed::yes(sorted) })
    });
    let input = sorted?.data;
    let input = match input.output_partitioning().partition_count() {
        1 => input,
        _ => Arc::new(CoalescePartitionsExec::new(input)) as _,
    };
    let dispatch: Arc<dyn ExecutionPlan> =
        Arc::new(DispatchExec { input, bucket: marked.bucket, owner: Some(owner) });
    if place == 0 {
        return Ok(Some(dispatch));
    }
    let gather = NetworkCoalesceExec::try_new(dispatch, 1, 1)?;
    let Stage::Local(slice) = gather.input_stage() else {
        return internal_err!("a new motion whose slice is elsewhere");
    };
    // The distributed planner would omit a motion from one rank to one rank, so its slice gets its number
    // here.
    let mut slice = slice.clone();
    slice.query_id = Uuid::new_v4();
    slice.num = 1;
    let gather = gather.with_input_stage(Stage::Local(slice))?;
    let collects = DistributedConfig::from_session_config(config)?.collect_metrics;
    Ok(Some(Arc::new(DistributedExec::new(gather).with_metrics_collection(collects))))
}

/// Removes the wrapper of [`with_dispatch`].
pub fn without_dispatch(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.downcast_ref::<DispatchExec>() {
        Some(dispatch) => Arc::clone(&dispatch.input),
        None => plan,
    }
}

/// N → N output partitions: passes its input through. Names the rank of the slice below it, and the reason.
#[derive(Debug)]
pub struct DispatchExec {
    input: Arc<dyn ExecutionPlan>,
    bucket: Bucket,
    owner: Option<Owner>,
}

impl DispatchExec {
    /// A deserialized node: its rank is not known here.
    pub fn new(input: Arc<dyn ExecutionPlan>, bucket: Bucket) -> Self {
        Self { input, bucket, owner: None }
    }

    pub fn bucket(&self) -> Bucket {
        self.bucket
    }

    /// The rank that owns the bucket, once the plan is made for a gang.
    pub fn owner(&self) -> Option<Owner> {
        self.owner
    }
}

impl DisplayAs for DispatchExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DispatchExec: bucket={}, buckets={}", self.bucket.number, self.bucket.count)?;
        match self.owner {
            Some(owner) => write!(f, ", rank={}", owner.rank),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for DispatchExec {
    crate::one_input!("DispatchExec", input, |own, input| Self {
        input,
        bucket: own.bucket,
        owner: own.owner
    });
    crate::unchanged_rows!(input);

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::listing::PartitionedFile;
    use datafusion::datasource::object_store::ObjectStoreUrl;
    use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::union::UnionExec;

    /// A scan of files in these buckets of four; `None`: unbucketed.
    fn scan(buckets: &[Option<u32>]) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        let files = buckets.iter().enumerate().map(|(at, bucket)| {
            let mut file = PartitionedFile::new(at.to_string(), 100);
            if let Some(number) = bucket {
                file.extensions.insert(FileBucket { column: "k".to_string(), count: 4, number: *number });
            }
            file
        });
        let store = ObjectStoreUrl::parse("file:///").expect("an address");
        let config = FileScanConfigBuilder::new(store, Arc::new(ParquetSource::new(schema)))
            .with_file_groups(vec![FileGroup::new(files.collect())])
            .build();
        DataSourceExec::from_data_source(config)
    }

    fn number(plan: &Arc<dyn ExecutionPlan>) -> Option<u32> {
        one_bucket(plan).map(|bucket| bucket.number)
    }

    #[test]
    fn single_bucket_plans_are_recognized() -> Result<()> {
        assert_eq!(number(&scan(&[Some(3), Some(3)])), Some(3));
        assert_eq!(number(&scan(&[Some(3), Some(2)])), None);
        assert_eq!(number(&scan(&[Some(3), None])), None);
        assert_eq!(number(&scan(&[])), None);
        let empty = Arc::new(EmptyExec::new(scan(&[]).schema())) as Arc<dyn ExecutionPlan>;
        assert_eq!(number(&empty), None);
        assert_eq!(number(&UnionExec::try_new(vec![scan(&[Some(1)]), empty])?), Some(1));
        assert_eq!(number(&UnionExec::try_new(vec![scan(&[Some(1)]), scan(&[Some(2)])])?), None);
        let marked = with_dispatch(scan(&[Some(1)]));
        assert!(marked.is::<DispatchExec>() && file_scan(&without_dispatch(marked)).is_some());
        Ok(())
    }

    #[test]
    fn wrapped_plans_run_on_the_owning_rank() -> Result<()> {
        let footers =
            datafusion::execution::runtime_env::RuntimeEnv::default().cache_manager.get_file_metadata_cache();
        let config = |members: &[usize], bytes_min| {
            let distribution =
                DistributionConfig { bytes_min, footers: Arc::clone(&footers), members: members.to_vec() };
            let mut config = SessionConfig::new().with_extension(Arc::new(distribution));
            config.options_mut().extensions.insert(DistributedConfig::default());
            config
        };
        let shown = |bucket: u32, config: &SessionConfig| -> Result<Option<String>> {
            let plan = distribute_dispatch(&with_dispatch(scan(&[Some(bucket)])), config)?;
            let slices = plan.map(|plan| crate::monitor::slice_tree::slices(&plan));
            Ok(slices.and_then(|slices| Some(slices.last()?.operators.first()?.text.clone())))
        };
        // Rank 1 was lost, and 3 took its place.
        let three = config(&[0, 3, 2], 0);
        assert_eq!(shown(0, &three)?.as_deref(), Some("DispatchExec: bucket=0, buckets=4, rank=0"));
        assert_eq!(shown(1, &three)?.as_deref(), Some("DispatchExec: bucket=1, buckets=4, rank=3"));
        assert_eq!(shown(2, &three)?.as_deref(), Some("DispatchExec: bucket=2, buckets=4, rank=2"));
        assert_eq!(shown(3, &three)?.as_deref(), Some("DispatchExec: bucket=3, buckets=4, rank=0"));
        assert_eq!(shown(1, &config(&[0, 1], 101))?, None);
        assert_eq!(shown(1, &config(&[0], 0))?, None);
        Ok(())
    }
}
