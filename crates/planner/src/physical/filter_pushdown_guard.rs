//! Guard of filter pushdown in physical plans past inputs with duplicate column names.
//!
//! DataFusion resolves a filter's columns by name at operators that pass rows through or project them. After
//! an outer join or a self-join a name may be ambiguous, and the filter was applied to the wrong column: `b
//! RIGHT JOIN o … WHERE b.id IS NULL` dropped rows of o. So no filter is pushed past such inputs.
//!
//! ```text
//! FilterExec: id IS NULL                       AmbiguousExec
//!   HashJoinExec: b RIGHT o, gives id, id  ─►    FilterExec: id IS NULL
//!                                                  AmbiguousExec
//!                                                    HashJoinExec: b RIGHT o, gives id, id
//! ```
//! The guards exist only while a FilterPushdown rule runs. No filter is pushed through them.
//!
//! Dynamic filters of joins, TopK sorts and aggregates are also disabled where they compare a list, a struct
//! or a map: the bounds of nested values follow another order than the comparison, and rows were lost below a
//! sort.
//!
//! `FilterPushdownGuard` can go with a DataFusion that includes apache/datafusion#25259: filters are pushed
//! by column index, not by name.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{HashSet, Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};

use crate::delegation::delegate_physical_rule;

/// Wraps a filter pushdown rule, and blocks filters at inputs with ambiguous names.
#[derive(Debug)]
struct FilterPushdownGuard(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

/// Wraps the filter pushdown rules in `rules`.
pub fn guard(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut().filter(|rule| rule.name().starts_with("FilterPushdown")) {
        *rule = Arc::new(FilterPushdownGuard(Arc::clone(rule)));
    }
}

impl PhysicalOptimizerRule for FilterPushdownGuard {
    delegate_physical_rule!();

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut is_guarded = false;
        let guarded = plan.transform_up(|plan| {
            let schema = plan.schema();
            let mut names = HashSet::new();
            if schema.fields().iter().all(|field| names.insert(field.name())) {
                return Ok(Transformed::no(plan));
            }
            is_guarded = true;
            Ok(Transformed::yes(Arc::new(AmbiguousExec(plan)) as _))
        })?;
        let static_config = compares_nested(&guarded.data)?.then(|| without_dynamic_filters(config));
        let plan = self.0.optimize(guarded.data, static_config.as_ref().unwrap_or(config))?;
        if !is_guarded {
            return Ok(plan);
        }
        let restored = plan.transform_up(|plan| {
            Ok(match plan.downcast_ref::<AmbiguousExec>() {
                Some(guard) => Transformed::yes(Arc::clone(&guard.0)),
                None => Transformed::no(plan),
            })
        })?;
        Ok(restored.data)
    }
}

/// Whether a join key, a sort key or an aggregate argument is a list, a struct or a map.
fn compares_nested(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|plan| {
        let is_nested = |key: &Arc<dyn PhysicalExpr>, of: &Arc<dyn ExecutionPlan>| {
            key.data_type(&of.schema()).is_ok_and(|kind| kind.is_nested())
        };
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            return Ok(join.on().iter().any(|(left, _)| is_nested(left, join.left())));
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            return Ok(sort.expr().iter().any(|key| is_nested(&key.expr, sort.input())));
        }
        let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return Ok(false) };
        let mut arguments = aggregate.aggr_expr().iter().flat_map(|call| call.expressions());
        Ok(arguments.any(|argument| is_nested(&argument, aggregate.input())))
    })
}

fn without_dynamic_filters(config: &ConfigOptions) -> ConfigOptions {
    let mut config = config.clone();
    config.optimizer.enable_join_dynamic_filter_pushdown = false;
    config.optimizer.enable_topk_dynamic_filter_pushdown = false;
    config.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    config
}

/// An operator that accepts no filters; wraps inputs with duplicate column names while a rule runs.
#[derive(Debug)]
struct AmbiguousExec(Arc<dyn ExecutionPlan>);

harrier_exec::display_by_name!(AmbiguousExec);

impl ExecutionPlan for AmbiguousExec {
    harrier_exec::one_input!("AmbiguousExec", 0, |_, input| Self(input));

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("{} is gone from plans that run", self.name())
    }
}
