//! Colocated joins and aggregates of bucketed tables, without motions.
//!
//! A plan redistributes both sides of a join by the hash of the join's keys. If the files of both sides are
//! already bucketed by such a key, with the same number of buckets, the join is local when each bucket is one
//! output partition: the redistributions are removed, and so are the resulting motions. Ranks get whole
//! buckets ([`crate::distribution::splits`]). The same applies to an aggregate by a bucketed key.
//!
//! If only one side of a join is bucketed, the other is redistributed into its buckets
//! ([`crate::distribution::bucket_routing`]), if several ranks run the plan: in one process moving rows is
//! cheap, and the join's runtime filter would be lost.
//!
//! The buckets' hash differs from that of redistributions, so nothing may depend on both: a bucketed side
//! never joins one that was redistributed by values, scans declare only the number of their output
//! partitions, and bucketed joins have no runtime filter, which would route rows by the hash of their values.

use datafusion::catalog::memory::DataSourceExec;
use datafusion::common::{JoinType, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::data_files::FileBucket;
use crate::distribution::bucket_routing::into_buckets;
use crate::operators::file_scan::file_scan;
use crate::operators::grouping_sets::GroupingSetsExec;

/// Removes redistributions of bucketed sides of joins and aggregates. If several ranks run the plan,
/// unbucketed sides are redistributed into the buckets of the other side.
pub fn colocate(plan: Arc<dyn ExecutionPlan>, ranks: usize) -> Result<Arc<dyn ExecutionPlan>> {
    // Keeps the nodes alive, as the cache is keyed by their addresses.
    let whole = Arc::clone(&plan);
    let colocated = Colocation { ranks, memo: RefCell::default() }.rewrite(plan, true)?;
    drop(whole);
    remove_deadlocking_filters(colocated, false)
}

/// Removes the runtime filter from joins with output partitions that may never be polled (a deadlock
/// otherwise).
///
/// A CollectLeft join holds back every output partition until all of them have reported, to build one filter
/// for its right side. A partitioned join above, without an exchange in between, does not poll a partition
/// whose left side is empty, and DataFusion 55 does not count an unpolled partition of a CollectLeft join:
/// the others would wait forever.
fn remove_deadlocking_filters(
    plan: Arc<dyn ExecutionPlan>,
    may_be_unpolled: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let is_partitioned = is_partitioned_join(&plan);
    let is_exchange = is_exchange(&plan);
    let children = plan.children().into_iter().enumerate().map(|(at, child)| {
        let may_be_unpolled = !is_exchange && (may_be_unpolled || is_partitioned && at == 1);
        remove_deadlocking_filters(Arc::clone(child), may_be_unpolled)
    });
    let children = children.collect::<Result<Vec<_>>>()?;
    let plan = replace_children_if_necessary(plan, children)?;
    match plan.downcast_ref::<HashJoinExec>() {
        Some(join) if may_be_unpolled && !is_partitioned => join.builder().reset_state().build_exec(),
        _ => Ok(plan),
    }
}

/// Whether `plan` requires rows with equal keys in the same output partition.
fn needs_keys_together(plan: &Arc<dyn ExecutionPlan>) -> bool {
    is_partitioned_join(plan) || final_aggregate(plan).is_some()
}

fn is_partitioned_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<HashJoinExec>()
        .is_some_and(|join| *join.partition_mode() == PartitionMode::Partitioned)
}

fn final_aggregate(plan: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    let whole = [AggregateMode::FinalPartitioned, AggregateMode::SinglePartitioned];
    plan.downcast_ref::<AggregateExec>().filter(|aggregate| whole.contains(aggregate.mode()))
}

/// Whether an aggregate outputs states, of whatever rows or states its partition has.
fn is_partial(aggregate: &AggregateExec) -> bool {
    matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::PartialReduce)
}

fn is_exchange(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>()
}

/// Operators that process each output partition independently.
const PARTITION_WISE: [&str; 6] = [
    "CoalesceBatchesExec",
    "CooperativeExec",
    "GroupingSetsExec",
    "LiveRowsExec",
    "UnorderedExec",
    "VisibleRowsExec",
];

/// Whether child `at` may change its output partitioning if `plan` may.
fn passes_partitioning(plan: &Arc<dyn ExecutionPlan>, at: usize) -> bool {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return *join.partition_mode() == PartitionMode::CollectLeft && at == 1;
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return is_partial(aggregate);
    }
    plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<UnionExec>()
        || keeps_partitions(plan)
        || PARTITION_WISE.contains(&plan.name())
}

/// The input of `plan`, if it is a hash redistribution.
fn redistribution_input(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let repartition = plan.downcast_ref::<RepartitionExec>()?;
    let is_hash =
        matches!(repartition.partitioning(), Partitioning::Hash(..)) && !repartition.preserve_order();
    is_hash.then(|| repartition.input())
}

/// Whether `plan` is a sort of each output partition.
fn keeps_partitions(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<SortExec>().is_some_and(SortExec::preserve_partitioning)
}

/// A plan with one output partition per bucket.
#[derive(Clone)]
struct BucketedPlan {
    plan: Arc<dyn ExecutionPlan>,
    count: u32,
    /// Output columns that hold the key.
    keys: Vec<usize>,
}

impl BucketedPlan {
    /// Whether both sides of `join` have the same buckets of a join key.
    fn is_colocated_with(&self, right: &Self, join: &HashJoinExec) -> bool {
        self.count == right.count
            && join.on().iter().any(|(one, other)| self.has_key(one) && right.has_key(other))
    }

    fn has_key(&self, expression: &Arc<dyn PhysicalExpr>) -> bool {
        expression.downcast_ref::<Column>().is_some_and(|column| self.keys.contains(&column.index()))
    }
}

/// The rewrite of a plan.
struct Colocation {
    /// Number of ranks that will run it.
    ranks: usize,
    /// Memoized results of [`Colocation::try_bucketed`] by node address: nested joins would recompute them at
    /// every level.
    memo: RefCell<HashMap<usize, Option<BucketedPlan>>>,
}

impl Colocation {
    /// Rewrites `plan`. `free`: up to the next exchange, nothing above depends on the output partitioning of
    /// `plan`.
    fn rewrite(&self, plan: Arc<dyn ExecutionPlan>, free: bool) -> Result<Arc<dyn ExecutionPlan>> {
        if free
            && needs_keys_together(&plan)
            && let Some(bucketed) = self.try_bucketed(&plan)?
        {
            return Ok(bucketed.plan);
        }
        let children = plan.children().into_iter().enumerate().map(|(at, child)| {
            let free = is_exchange(&plan) || free && passes_partitioning(&plan, at);
            self.rewrite(Arc::clone(child), free)
        });
        let children = children.collect::<Result<Vec<_>>>()?;
        replace_children_if_necessary(plan, children)
    }

    /// `plan` without its redistributions, if its rows are bucketed and every bucket holds all rows that its
    /// operators need together.
    fn try_bucketed(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<BucketedPlan>> {
        let address = Arc::as_ptr(plan).cast::<()>() as usize;
        if let Some(known) = self.memo.borrow().get(&address) {
            return Ok(known.clone());
        }
        let bucketed = self.compute_bucketed(plan)?;
        self.memo.borrow_mut().insert(address, bucketed.clone());
        Ok(bucketed)
    }

    fn compute_bucketed(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<BucketedPlan>> {
        if file_scan(plan).is_some() {
            return bucketed_scan(plan);
        }
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            return self.bucketed_join(plan, join);
        }
        let [child] = plan.children()[..] else {
            return Ok(None);
        };
        let is_known = plan.is::<RepartitionExec>()
            || plan.is::<FilterExec>()
            || plan.is::<ProjectionExec>()
            || plan.is::<AggregateExec>()
            || keeps_partitions(plan)
            || PARTITION_WISE.contains(&plan.name());
        if !is_known {
            return Ok(None);
        }
        let Some(inner) = self.try_bucketed(child)? else {
            return Ok(None);
        };
        if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
            let is_left_out = match repartition.partitioning() {
                Partitioning::RoundRobinBatch(_) => true,
                // Rows equal in all keys are equal in this one.
                Partitioning::Hash(keys, _) => keys.iter().any(|key| inner.has_key(key)),
                _ => false,
            };
            return Ok(is_left_out.then_some(inner));
        }
        let keys = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let expressions = projection.expr().iter().enumerate();
            expressions.filter(|(_, output)| inner.has_key(&output.expr)).map(|(at, _)| at).collect()
        } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            match filter.projection() {
                Some(columns) => projected_indexes(&inner.keys, columns),
                None => inner.keys.clone(),
            }
        } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            let groups = aggregate.group_expr();
            let kept: Vec<usize> = match groups.has_grouping_set() {
                true => vec![],
                false => {
                    let expressions = groups.expr().iter().enumerate();
                    expressions
                        .filter(|(_, (expression, _))| inner.has_key(expression))
                        .map(|(at, _)| at)
                        .collect()
                }
            };
            let is_whole = final_aggregate(plan).is_some();
            if is_whole && kept.is_empty() || !is_whole && !is_partial(aggregate) {
                return Ok(None);
            }
            kept
        } else if plan.is::<GroupingSetsExec>() {
            // A key is NULL in the sets without it.
            vec![]
        } else {
            inner.keys.clone()
        };
        let plan = replace_children_if_necessary(Arc::clone(plan), vec![inner.plan])?;
        Ok(Some(BucketedPlan { plan, count: inner.count, keys }))
    }

    fn bucketed_join(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        join: &HashJoinExec,
    ) -> Result<Option<BucketedPlan>> {
        if *join.partition_mode() == PartitionMode::CollectLeft {
            let Some(right) = self.try_bucketed(join.right())? else {
                return Ok(None);
            };
            // The whole left side joins every bucket.
            let left = self.rewrite(Arc::clone(join.left()), false)?;
            let keys = output_keys(join, vec![], &right.keys, left.schema().fields().len());
            let plan = replace_children_if_necessary(Arc::clone(plan), vec![left, right.plan])?;
            return Ok(Some(BucketedPlan { plan, count: right.count, keys }));
        }
        let (left, right) = match (self.try_bucketed(join.left())?, self.try_bucketed(join.right())?) {
            (Some(left), Some(right)) if left.is_colocated_with(&right, join) => (left, right),
            _ if self.ranks < 2 => return Ok(None),
            (left, right) => {
                // The left side is the smaller one, unless statistics are missing.
                if let Some(sides) = self.redistribute_left(join, right)? {
                    sides
                } else if let Some(collected) = self.broadcast_left(join)? {
                    return Ok(Some(collected));
                } else if let Some(sides) = self.redistribute_right(join, left)? {
                    sides
                } else {
                    return Ok(None);
                }
            }
        };
        let keys = output_keys(join, left.keys, &right.keys, left.plan.schema().fields().len());
        let joined = join.builder().with_new_children(vec![left.plan, right.plan])?;
        Ok(Some(BucketedPlan { plan: joined.reset_state().build_exec()?, count: left.count, keys }))
    }

    /// Redistributes the left side into the buckets of the right one, if these are of a join key.
    fn redistribute_left(
        &self,
        join: &HashJoinExec,
        right: Option<BucketedPlan>,
    ) -> Result<Option<(BucketedPlan, BucketedPlan)>> {
        let Some(right) = right else { return Ok(None) };
        let Some((key, _)) = join.on().iter().find(|(_, other)| right.has_key(other)) else {
            return Ok(None);
        };
        Ok(self.redistribute_into_buckets(join.left(), key, right.count)?.map(|left| (left, right)))
    }

    /// Redistributes the right side into the buckets of the left one.
    fn redistribute_right(
        &self,
        join: &HashJoinExec,
        left: Option<BucketedPlan>,
    ) -> Result<Option<(BucketedPlan, BucketedPlan)>> {
        let Some(left) = left else { return Ok(None) };
        let Some((_, key)) = join.on().iter().find(|(one, _)| left.has_key(one)) else {
            return Ok(None);
        };
        Ok(self.redistribute_into_buckets(join.right(), key, left.count)?.map(|right| (left, right)))
    }

    /// Redistributes a side into buckets of `key` instead of by hash.
    fn redistribute_into_buckets(
        &self,
        side: &Arc<dyn ExecutionPlan>,
        key: &Arc<dyn PhysicalExpr>,
        count: u32,
    ) -> Result<Option<BucketedPlan>> {
        // With fewer buckets than ranks some ranks would be idle.
        if !(self.ranks..=BUCKETS_MAX).contains(&(count as usize)) {
            return Ok(None);
        }
        let Some(input) = redistribution_input(side) else {
            return Ok(None);
        };
        let input = self.rewrite(Arc::clone(input), true)?;
        let keys = key.downcast_ref::<Column>().map(Column::index).into_iter().collect();
        Ok(Some(BucketedPlan { plan: into_buckets(input, key, count)?, count, keys }))
    }

    /// A CollectLeft join whose right side stays in its buckets, of whatever key, because the left side is
    /// small enough to broadcast.
    fn broadcast_left(&self, join: &HashJoinExec) -> Result<Option<BucketedPlan>> {
        let (Some(left), Some(right)) =
            (redistribution_input(join.left()), redistribution_input(join.right()))
        else {
            return Ok(None);
        };
        if *join.join_type() != JoinType::Inner || !self.prefers_broadcast(left, right) {
            return Ok(None);
        }
        // As above: with fewer buckets than ranks some ranks would be idle on the large side.
        let Some(right) = self.try_bucketed(right)?.filter(|right| right.count as usize >= self.ranks) else {
            return Ok(None);
        };
        let left = Arc::new(CoalescePartitionsExec::new(self.rewrite(Arc::clone(left), true)?));
        let keys = output_keys(join, vec![], &right.keys, left.schema().fields().len());
        let collecting = join.builder().with_partition_mode(PartitionMode::CollectLeft);
        let plan = collecting.with_new_children(vec![left, right.plan])?.build_exec()?;
        Ok(Some(BucketedPlan { plan, count: right.count, keys }))
    }

    /// Whether broadcasting the left side moves fewer bytes than redistributing the right side once.
    fn prefers_broadcast(&self, left: &Arc<dyn ExecutionPlan>, right: &Arc<dyn ExecutionPlan>) -> bool {
        match (expected_bytes(left), expected_bytes(right)) {
            (Some(left), Some(right)) => left <= COLLECTED_BYTES_MAX && left * self.ranks as u64 <= right,
            _ => false,
        }
    }
}

/// The most buckets of a redistribution: each is a stream between two ranks.
const BUCKETS_MAX: usize = 1024;

/// The largest left side that is collected on every rank.
const COLLECTED_BYTES_MAX: u64 = 64 << 20;

/// Assumed bytes of a variable-width value.
const WIDTH_ASSUMED: usize = 24;

/// Estimated output bytes of `plan`; `None` without statistics.
fn expected_bytes(plan: &Arc<dyn ExecutionPlan>) -> Option<u64> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).ok()?;
    let rows = *statistics.num_rows.get_value()?;
    let schema = plan.schema();
    let widths =
        schema.fields().iter().map(|field| field.data_type().primitive_width().unwrap_or(WIDTH_ASSUMED));
    Some(rows as u64 * widths.sum::<usize>() as u64)
}

/// Output columns that hold the key after a bucketed join.
fn output_keys(
    join: &HashJoinExec,
    left_keys: Vec<usize>,
    right_keys: &[usize],
    left_columns: usize,
) -> Vec<usize> {
    let right_after = right_keys.iter().map(|key| key + left_columns);
    let keys: Vec<usize> = match join.join_type() {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => left_keys,
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right_keys.to_vec(),
        // An unmatched row has NULL in the other side's key, in any bucket.
        JoinType::Left => left_keys,
        JoinType::Right => right_after.collect(),
        JoinType::Full => vec![],
        JoinType::Inner => left_keys.into_iter().chain(right_after).collect(),
    };
    match &join.projection {
        Some(columns) => projected_indexes(&keys, columns),
        None => keys,
    }
}

/// Indexes of columns after a projection.
fn projected_indexes(keys: &[usize], columns: &[usize]) -> Vec<usize> {
    let all = columns.iter().enumerate();
    all.filter(|(_, column)| keys.contains(column)).map(|(at, _)| at).collect()
}

fn bucketed_scan(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<BucketedPlan>> {
    let Some(scan) = file_scan(plan).filter(|scan| scan.limit.is_none() && scan.output_ordering.is_empty())
    else {
        return Ok(None);
    };
    let files = || scan.file_groups.iter().flat_map(|group| group.files());

    let Some(first) = files().next().and_then(|file| file.extension::<FileBucket>().cloned()) else {
        return Ok(None);
    };
    let mut groups: Vec<Vec<PartitionedFile>> = vec![vec![]; first.count as usize];
    for file in files() {
        match file.extension::<FileBucket>() {
            Some(bucket) if bucket.column == first.column && bucket.count == first.count => {
                groups[bucket.number as usize].push(file.clone());
            }
            _ => return Ok(None),
        }
    }
    let is_key = |expression: &Arc<dyn PhysicalExpr>| {
        expression.downcast_ref::<Column>().is_some_and(|column| column.name() == first.column)
    };
    let keys: Vec<usize> = match scan.file_source().projection() {
        Some(projection) => projection
            .iter()
            .enumerate()
            .filter(|(_, output)| is_key(&output.expr))
            .map(|(at, _)| at)
            .collect(),
        None => plan.schema().index_of(&first.column).into_iter().collect(),
    };
    if keys.is_empty() {
        return Ok(None);
    }
    let count = groups.len();
    let config = FileScanConfigBuilder::from(scan.clone())
        .with_file_groups(groups.into_iter().map(FileGroup::new).collect())
        .with_output_partitioning(Some(Partitioning::UnknownPartitioning(count)))
        .build();
    Ok(Some(BucketedPlan { plan: DataSourceExec::from_data_source(config), count: first.count, keys }))
}
