//! Planner rules that check for cancellation of their statement ([`harrier_resources::cancellation`]) before
//! they run. Rules that DataFusion applies node by node check at each node.
//!
//! Errors: the statement was canceled during planning (57014).
//!
//! ```text
//! rule  ─►  Cancelable(rule)
//! Cancelable(rule).rewrite(node): an error (57014) if the statement was canceled, or else rule.rewrite(node)
//! ```
//! Wraps all analyzer, optimizer and physical rules, including those of DataFusion.
//!
//! `Cancelable` can go when DataFusion's planning checks a cancellation token; no issue found (related:
//! apache/datafusion#15314, about execution).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use harrier_resources::cancellation;

use crate::delegation::{delegate_optimizer_rule, delegate_physical_rule};

/// Wraps every rule that `builder` has so far.
pub fn install(builder: &mut SessionStateBuilder) {
    if let Some(analyzer) = builder.analyzer() {
        analyzer.rules.iter_mut().for_each(wrap_analyzer_rule);
    }
    builder.analyzer_rules().iter_mut().flatten().for_each(wrap_analyzer_rule);
    if let Some(optimizer) = builder.optimizer() {
        optimizer.rules.iter_mut().for_each(wrap_optimizer_rule);
    }
    builder.optimizer_rules().iter_mut().flatten().for_each(wrap_optimizer_rule);
    if let Some(optimizer) = builder.physical_optimizers() {
        optimizer.rules.iter_mut().for_each(wrap_physical_rule);
    }
    builder.physical_optimizer_rules().iter_mut().flatten().for_each(wrap_physical_rule);
}

fn wrap_analyzer_rule(rule: &mut Arc<dyn AnalyzerRule + Send + Sync>) {
    *rule = Arc::new(Cancelable(Arc::clone(rule)));
}

fn wrap_optimizer_rule(rule: &mut Arc<dyn OptimizerRule + Send + Sync>) {
    *rule = Arc::new(Cancelable(Arc::clone(rule)));
}

fn wrap_physical_rule(rule: &mut Arc<dyn PhysicalOptimizerRule + Send + Sync>) {
    *rule = Arc::new(Cancelable(Arc::clone(rule)));
}

#[derive(Debug)]
struct Cancelable<R: ?Sized>(Arc<R>);

impl AnalyzerRule for Cancelable<dyn AnalyzerRule + Send + Sync> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        cancellation::check_current()?;
        self.0.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for Cancelable<dyn OptimizerRule + Send + Sync> {
    delegate_optimizer_rule!();

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        cancellation::check_current()?;
        self.0.rewrite(plan, config)
    }
}

impl PhysicalOptimizerRule for Cancelable<dyn PhysicalOptimizerRule + Send + Sync> {
    delegate_physical_rule!();

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        cancellation::check_current()?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        cancellation::check_current()?;
        self.0.optimize_with_context(plan, context)
    }
}
