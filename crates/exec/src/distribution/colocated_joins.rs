//! Joins and groups of bucketed tables by their key, without moving rows.
//!
//! A plan redistributes both sides of a join by the hash of the join's keys. Where the files of both sides
//! are in buckets of such a key already, and in as many, the same buckets meet if each is one output
//! partition: then the redistributions are left out, and so are the motions that they would become on ranks,
//! which get whole buckets ([`crate::distribution::splits`]). The same goes for an aggregate by a key that
//! has buckets.
//!
//! Where only one side of a join has such buckets, the other is redistributed into them
//! ([`crate::distribution::bucket_routing`]), if ranks are to run the plan: in one process rows are moved for
//! little, and the join's runtime filter would be lost.
//!
//! The buckets' hash is not the one that redistributes rows. So nothing may come to depend on both: a side
//! that was left where it is never meets one that was redistributed by its values, scans say of their output
//! partitions only how many there are, and joins of buckets have no runtime filter, which would look for rows
//! by the hash of their values.

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

/// The same plan with bucketed sides of joins and aggregates left where they are. If several ranks are to run
/// it, sides without buckets are redistributed into those of the other side.
pub fn colocate(plan: Arc<dyn ExecutionPlan>, ranks: usize) -> Result<Arc<dyn ExecutionPlan>> {
    // It keeps all that is looked at in its place, by which it is known again.
    let whole = Arc::clone(&plan);
    let colocated = Colocation { ranks, looked_at: RefCell::default() }.place(plan, true)?;
    drop(whole);
    without_lost_waits(colocated, false)
}

/// Takes the runtime filter from joins whose output partitions may not all be asked for rows.
///
/// A join that collects its left side holds every output partition back until all of them have heard of that,
/// to make one filter for its right side. A partitioned join above, without an exchange between, does not ask
/// for the rows of a partition whose left side is empty, and DataFusion 55 does not count a collecting join's
/// partition that nobody asked for: the others would wait for ever.
fn without_lost_waits(plan: Arc<dyn ExecutionPlan>, may_be_left_out: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let is_partitioned = is_partitioned_join(&plan);
    let is_exchange = is_exchange(&plan);
    let children = plan.children().into_iter().enumerate().map(|(at, child)| {
        let may_be_left_out = !is_exchange && (may_be_left_out || is_partitioned && at == 1);
        without_lost_waits(Arc::clone(child), may_be_left_out)
    });
    let children = children.collect::<Result<Vec<_>>>()?;
    let plan = replace_children_if_necessary(plan, children)?;
    match plan.downcast_ref::<HashJoinExec>() {
        Some(join) if may_be_left_out && !is_partitioned => join.builder().reset_state().build_exec(),
        _ => Ok(plan),
    }
}

/// Whether `plan` wants rows with equal keys in the same output partition.
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

fn is_exchange(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>()
}

/// Operators that work on each output partition by itself.
const EACH_BY_ITSELF: [&str; 5] =
    ["CoalesceBatchesExec", "CooperativeExec", "LiveRowsExec", "UnorderedExec", "VisibleRowsExec"];

/// Whether child `at` of `plan` may have other output partitions if `plan` may.
fn passes(plan: &Arc<dyn ExecutionPlan>, at: usize) -> bool {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return *join.partition_mode() == PartitionMode::CollectLeft && at == 1;
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return *aggregate.mode() == AggregateMode::Partial;
    }
    plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<UnionExec>()
        || keeps_partitions(plan)
        || EACH_BY_ITSELF.contains(&plan.name())
}

/// The rows that `plan` redistributes by the hash of their values, if that is what it does.
fn redistributed(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let repartition = plan.downcast_ref::<RepartitionExec>()?;
    let is_hash =
        matches!(repartition.partitioning(), Partitioning::Hash(..)) && !repartition.preserve_order();
    is_hash.then(|| repartition.input())
}

/// Whether `plan` is a sort of each output partition.
fn keeps_partitions(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<SortExec>().is_some_and(SortExec::preserve_partitioning)
}

/// A plan whose output partitions are the buckets.
#[derive(Clone)]
struct Bucketed {
    plan: Arc<dyn ExecutionPlan>,
    count: u32,
    /// Columns of its output that hold the key.
    keys: Vec<usize>,
}

impl Bucketed {
    /// Whether both sides of `join` are in the same buckets, of a key that it compares.
    fn meets(&self, right: &Self, join: &HashJoinExec) -> bool {
        self.count == right.count
            && join.on().iter().any(|(one, other)| self.has_key(one) && right.has_key(other))
    }

    fn has_key(&self, expression: &Arc<dyn PhysicalExpr>) -> bool {
        expression.downcast_ref::<Column>().is_some_and(|column| self.keys.contains(&column.index()))
    }
}

/// How a plan is changed.
struct Colocation {
    /// How many will run it.
    ranks: usize,
    /// By the address of a part of the plan, what [`Colocation::bucketed`] has made of it: joins of joins are
    /// asked for by each that is above them.
    looked_at: RefCell<HashMap<usize, Option<Bucketed>>>,
}

impl Colocation {
    /// `free`: nothing above, up to the next exchange of rows, minds which rows are in which output partition
    /// of `plan`, nor how many there are.
    fn place(&self, plan: Arc<dyn ExecutionPlan>, free: bool) -> Result<Arc<dyn ExecutionPlan>> {
        if free
            && needs_keys_together(&plan)
            && let Some(bucketed) = self.bucketed(&plan)?
        {
            return Ok(bucketed.plan);
        }
        let children = plan.children().into_iter().enumerate().map(|(at, child)| {
            let free = is_exchange(&plan) || free && passes(&plan, at);
            self.place(Arc::clone(child), free)
        });
        let children = children.collect::<Result<Vec<_>>>()?;
        replace_children_if_necessary(plan, children)
    }

    /// `plan` without the redistributions in it, if its rows are in buckets and all it needs of them is
    /// together there.
    fn bucketed(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Bucketed>> {
        let address = Arc::as_ptr(plan).cast::<()>() as usize;
        if let Some(known) = self.looked_at.borrow().get(&address) {
            return Ok(known.clone());
        }
        let bucketed = self.look_at(plan)?;
        self.looked_at.borrow_mut().insert(address, bucketed.clone());
        Ok(bucketed)
    }

    fn look_at(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Bucketed>> {
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
            || EACH_BY_ITSELF.contains(&plan.name());
        if !is_known {
            return Ok(None);
        }
        let Some(inner) = self.bucketed(child)? else {
            return Ok(None);
        };
        if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
            let is_left_out = match repartition.partitioning() {
                Partitioning::RoundRobinBatch(_) => true,
                // Rows that are equal in all keys are equal in this one.
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
                Some(columns) => projected(&inner.keys, columns),
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
            if is_whole && kept.is_empty() || !is_whole && *aggregate.mode() != AggregateMode::Partial {
                return Ok(None);
            }
            kept
        } else {
            inner.keys.clone()
        };
        let plan = replace_children_if_necessary(Arc::clone(plan), vec![inner.plan])?;
        Ok(Some(Bucketed { plan, count: inner.count, keys }))
    }

    fn bucketed_join(&self, plan: &Arc<dyn ExecutionPlan>, join: &HashJoinExec) -> Result<Option<Bucketed>> {
        if *join.partition_mode() == PartitionMode::CollectLeft {
            let Some(right) = self.bucketed(join.right())? else {
                return Ok(None);
            };
            // All of the left side meets every bucket.
            let left = self.place(Arc::clone(join.left()), false)?;
            let keys = kept_keys(join, vec![], &right.keys, left.schema().fields().len());
            let plan = replace_children_if_necessary(Arc::clone(plan), vec![left, right.plan])?;
            return Ok(Some(Bucketed { plan, count: right.count, keys }));
        }
        let (left, right) = match (self.bucketed(join.left())?, self.bucketed(join.right())?) {
            (Some(left), Some(right)) if left.meets(&right, join) => (left, right),
            _ if self.ranks < 2 => return Ok(None),
            (left, right) => {
                // The left side is the smaller one, unless nothing was known of them.
                if let Some(sides) = self.left_sent(join, right)? {
                    sides
                } else if let Some(collected) = self.collected(join)? {
                    return Ok(Some(collected));
                } else if let Some(sides) = self.right_sent(join, left)? {
                    sides
                } else {
                    return Ok(None);
                }
            }
        };
        let keys = kept_keys(join, left.keys, &right.keys, left.plan.schema().fields().len());
        let joined = join.builder().with_new_children(vec![left.plan, right.plan])?;
        Ok(Some(Bucketed { plan: joined.reset_state().build_exec()?, count: left.count, keys }))
    }

    /// Both sides of a join in the buckets that the right one is in, if these are of a key that is compared.
    fn left_sent(
        &self,
        join: &HashJoinExec,
        right: Option<Bucketed>,
    ) -> Result<Option<(Bucketed, Bucketed)>> {
        let Some(right) = right else { return Ok(None) };
        let Some((key, _)) = join.on().iter().find(|(_, other)| right.has_key(other)) else {
            return Ok(None);
        };
        Ok(self.sent(join.left(), key, right.count)?.map(|left| (left, right)))
    }

    /// The same of the left one's.
    fn right_sent(
        &self,
        join: &HashJoinExec,
        left: Option<Bucketed>,
    ) -> Result<Option<(Bucketed, Bucketed)>> {
        let Some(left) = left else { return Ok(None) };
        let Some((_, key)) = join.on().iter().find(|(one, _)| left.has_key(one)) else {
            return Ok(None);
        };
        Ok(self.sent(join.right(), key, left.count)?.map(|right| (left, right)))
    }

    /// The rows of a side that is redistributed, redistributed into so many buckets of `key` instead.
    fn sent(
        &self,
        side: &Arc<dyn ExecutionPlan>,
        key: &Arc<dyn PhysicalExpr>,
        count: u32,
    ) -> Result<Option<Bucketed>> {
        // With fewer buckets than ranks some of these would have nothing to do.
        if !(self.ranks..=BUCKETS_MAX).contains(&(count as usize)) {
            return Ok(None);
        }
        let Some(input) = redistributed(side) else {
            return Ok(None);
        };
        let input = self.place(Arc::clone(input), true)?;
        let keys = key.downcast_ref::<Column>().map(Column::index).into_iter().collect();
        Ok(Some(Bucketed { plan: into_buckets(input, key, count)?, count, keys }))
    }

    /// A join whose right side stays in the buckets that it is in, of whatever key, because the left one is
    /// so small that all ranks rather get the whole of it.
    fn collected(&self, join: &HashJoinExec) -> Result<Option<Bucketed>> {
        let (Some(left), Some(right)) = (redistributed(join.left()), redistributed(join.right())) else {
            return Ok(None);
        };
        if *join.join_type() != JoinType::Inner || !self.rather_collects(left, right) {
            return Ok(None);
        }
        // As of what is sent: in fewer buckets than ranks the large side would leave some of these idle.
        let Some(right) = self.bucketed(right)?.filter(|right| right.count as usize >= self.ranks) else {
            return Ok(None);
        };
        let left = Arc::new(CoalescePartitionsExec::new(self.place(Arc::clone(left), true)?));
        let keys = kept_keys(join, vec![], &right.keys, left.schema().fields().len());
        let collecting = join.builder().with_partition_mode(PartitionMode::CollectLeft);
        let plan = collecting.with_new_children(vec![left, right.plan])?.build_exec()?;
        Ok(Some(Bucketed { plan, count: right.count, keys }))
    }

    /// Whether all of the left side on every rank is less to move, and to keep there, than each row of the
    /// right one once.
    fn rather_collects(&self, left: &Arc<dyn ExecutionPlan>, right: &Arc<dyn ExecutionPlan>) -> bool {
        match (expected_bytes(left), expected_bytes(right)) {
            (Some(left), Some(right)) => left <= COLLECTED_BYTES_MAX && left * self.ranks as u64 <= right,
            _ => false,
        }
    }
}

/// Into more buckets nothing is redistributed: each is a stream between two ranks.
const BUCKETS_MAX: usize = 1024;

/// A larger side of a join is not collected on every rank.
const COLLECTED_BYTES_MAX: u64 = 64 << 20;

/// Bytes that a value without a fixed width is taken to have.
const WIDTH_ASSUMED: usize = 24;

/// Of the rows that `plan` is expected to yield; `None` if nobody knows how many these are.
fn expected_bytes(plan: &Arc<dyn ExecutionPlan>) -> Option<u64> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()).ok()?;
    let rows = *statistics.num_rows.get_value()?;
    let schema = plan.schema();
    let widths =
        schema.fields().iter().map(|field| field.data_type().primitive_width().unwrap_or(WIDTH_ASSUMED));
    Some(rows as u64 * widths.sum::<usize>() as u64)
}

/// Where the key is in the output of a join of buckets.
fn kept_keys(
    join: &HashJoinExec,
    left_keys: Vec<usize>,
    right_keys: &[usize],
    left_columns: usize,
) -> Vec<usize> {
    let right_after = right_keys.iter().map(|key| key + left_columns);
    let keys: Vec<usize> = match join.join_type() {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => left_keys,
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right_keys.to_vec(),
        // A row without a match has NULL for the other side's key, wherever it is.
        JoinType::Left => left_keys,
        JoinType::Right => right_after.collect(),
        JoinType::Full => vec![],
        JoinType::Inner => left_keys.into_iter().chain(right_after).collect(),
    };
    match &join.projection {
        Some(columns) => projected(&keys, columns),
        None => keys,
    }
}

/// Where columns are after a projection.
fn projected(keys: &[usize], columns: &[usize]) -> Vec<usize> {
    let all = columns.iter().enumerate();
    all.filter(|(_, column)| keys.contains(column)).map(|(at, _)| at).collect()
}

fn bucketed_scan(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Bucketed>> {
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
    Ok(Some(Bucketed { plan: DataSourceExec::from_data_source(config), count: first.count, keys }))
}
