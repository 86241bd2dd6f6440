//! Rules of the planner that hear when their statement is given up ([`harrier_resources::cancellation`]):
//! each looks at the flag before it does what it does, those that go from node to node at each of them.
//!
//! Errors: the statement was given up while it was planned (57014).
//!
//! ```text
//! rule  ─►  Heard(rule)
//! Heard(rule).rewrite(node): an error (57014) if the statement was given up, or else rule.rewrite(node)
//! ```
//! It wraps all analyzer, optimizer and physical rules, also those of DataFusion.
//!
//! `Cancelable` can go when planning of DataFusion looks at a token of cancellation; no issue found (akin:
//! apache/datafusion#15314 about running).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use harrier_resources::cancellation;

/// Has all rules that `builder` has now look at the flag of the statement.
pub fn install(builder: &mut SessionStateBuilder) {
    if let Some(analyzer) = builder.analyzer() {
        analyzer.rules.iter_mut().for_each(heard_analyzer);
    }
    builder.analyzer_rules().iter_mut().flatten().for_each(heard_analyzer);
    if let Some(optimizer) = builder.optimizer() {
        optimizer.rules.iter_mut().for_each(heard_optimizer);
    }
    builder.optimizer_rules().iter_mut().flatten().for_each(heard_optimizer);
    if let Some(optimizer) = builder.physical_optimizers() {
        optimizer.rules.iter_mut().for_each(heard_physical);
    }
    builder.physical_optimizer_rules().iter_mut().flatten().for_each(heard_physical);
}

fn heard_analyzer(rule: &mut Arc<dyn AnalyzerRule + Send + Sync>) {
    *rule = Arc::new(Cancelable(Arc::clone(rule)));
}

fn heard_optimizer(rule: &mut Arc<dyn OptimizerRule + Send + Sync>) {
    *rule = Arc::new(Cancelable(Arc::clone(rule)));
}

fn heard_physical(rule: &mut Arc<dyn PhysicalOptimizerRule + Send + Sync>) {
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
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        cancellation::check_current()?;
        self.0.rewrite(plan, config)
    }
}

impl PhysicalOptimizerRule for Cancelable<dyn PhysicalOptimizerRule + Send + Sync> {
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

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
