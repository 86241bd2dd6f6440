//! Aggregates each row once for GROUPING SETS, CUBE and ROLLUP: by all keys, and the states of these groups
//! for each set.
//!
//! ```text
//! AggregateExec: mode=Partial, gby=[(a, b), (a), ()]
//!   rows
//!                 ─►
//! AggregateExec: mode=PartialReduce, gby=[a, b, __grouping_id]
//!   GroupingSetsExec: [(a, b), (a), ()]
//!     AggregateExec: mode=Partial, gby=[a, b]
//!       rows
//! ```
//! The final stage above merges the states as before. Only if all keys together are one of the sets: their
//! groups may be many more than those of sets without some of them.
//!
//! `GroupingSetsByFinest` can go when DataFusion aggregates coarser sets from finer ones; technique: data
//! cubes, Gray et al. 1997 (DuckDB does so since duckdb/duckdb#23287).

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt64Array, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use harrier_exec::operators::grouping_sets::{GroupingSet, GroupingSetsExec};

/// Rewrites partial aggregates with grouping sets. Runs before repartitions are added above them.
#[derive(Debug)]
pub struct GroupingSetsByFinest;

impl PhysicalOptimizerRule for GroupingSetsByFinest {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let rewritten = plan.downcast_ref::<AggregateExec>().map(rewrite).transpose()?.flatten();
            Ok(rewritten.map_or(Transformed::no(plan), Transformed::yes))
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "GroupingSetsByFinest"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The three stages of a partial aggregate; `None`: it has no grouping sets, or none of them has all keys.
fn rewrite(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let group_by = aggregate.group_expr();
    let masks = group_by.groups();
    let has_finest = masks.iter().any(|nulls| !nulls.contains(&true));
    if *aggregate.mode() != AggregateMode::Partial
        || !group_by.has_grouping_set()
        || masks.len() < 2
        || !has_finest
        || aggregate.limit_options().is_some()
    {
        return Ok(None);
    }
    let sets: Arc<[GroupingSet]> = grouping_sets(masks).into();
    let has_empty_set = masks.iter().any(|nulls| !nulls.contains(&false));
    let empty_group = match has_empty_set {
        true => match empty_group(aggregate, &sets)? {
            Some(group) => Some(group),
            None => return Ok(None),
        },
        false => None,
    };
    let finest = AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(group_by.expr().to_vec()),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        Arc::clone(aggregate.input()),
        aggregate.input_schema(),
    )?;
    let expanded = GroupingSetsExec::new(Arc::new(finest), sets, empty_group, aggregate.schema());
    let reduced = AggregateExec::try_new(
        AggregateMode::PartialReduce,
        group_by.as_final(),
        aggregate.aggr_expr().to_vec(),
        vec![None; aggregate.aggr_expr().len()],
        Arc::new(expanded),
        aggregate.input_schema(),
    )?;
    // Columns that the statement does not name may differ in whether they can be NULL; then it stays.
    Ok((reduced.schema() == aggregate.schema()).then(|| Arc::new(reduced) as _))
}

/// The sets with DataFusion's grouping IDs: a bit for each key that is NULL, the last key's lowest, and above
/// them how many sets before are the same.
fn grouping_sets(masks: &[Vec<bool>]) -> Vec<GroupingSet> {
    let mut repeated: HashMap<&[bool], u64> = HashMap::new();
    masks
        .iter()
        .map(|null_keys| {
            let ordinal = repeated.entry(null_keys).or_insert(0);
            let bits = null_keys.iter().fold(0, |bits, is_null| bits << 1 | u64::from(*is_null));
            let id = bits | *ordinal << null_keys.len();
            *ordinal += 1;
            GroupingSet { null_keys: null_keys.clone(), id }
        })
        .collect()
}

/// The group of the set without keys over no rows, in the columns of a partial aggregate. `None`: a function
/// has no such state.
fn empty_group(aggregate: &AggregateExec, sets: &[GroupingSet]) -> Result<Option<RecordBatch>> {
    // A second such set would need a second row.
    let mut empty = sets.iter().filter(|set| !set.null_keys.contains(&false));
    let (Some(set), None) = (empty.next(), empty.next()) else { return Ok(None) };
    let schema = aggregate.schema();
    let keys = set.null_keys.len();
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in &schema.fields()[..keys] {
        columns.push(new_null_array(field.data_type(), 1));
    }
    columns.push(cast(&UInt64Array::from(vec![set.id]), schema.field(keys).data_type())?);
    for function in aggregate.aggr_expr() {
        columns.extend(empty_state(function, &aggregate.input_schema())?);
    }
    let is_state = columns.len() == schema.fields().len()
        && columns.iter().zip(schema.fields()).all(|(column, field)| column.data_type() == field.data_type());
    if !is_state {
        return Ok(None);
    }
    Ok(RecordBatch::try_new(schema, columns).ok())
}

/// The state of a function that has seen no row, as the partial stage outputs it.
fn empty_state(function: &AggregateFunctionExpr, schema: &Schema) -> Result<Vec<ArrayRef>> {
    if !function.groups_accumulator_supported() {
        let state = function.create_accumulator()?.state()?;
        return state.iter().map(ScalarValue::to_array).collect();
    }
    let arguments = function.expressions().into_iter();
    let arguments = arguments.map(|argument| Ok(new_null_array(&argument.data_type(schema)?, 1)));
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    let mut groups = function.create_groups_accumulator()?;
    groups.update_batch(&arguments, &[0], Some(&BooleanArray::from(vec![false])), 1)?;
    groups.state(EmitTo::All)
}
