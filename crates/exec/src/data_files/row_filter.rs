//! Row-level security barrier in physical plans.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};

use crate::operators::pass_through::properties_without_order;

/// N → N output partitions: passes its input through.
///
/// The input is filtered by the role's policies. No other filter is pushed below this operator: one that
/// fails for a row, or whose run time depends on it, would leak hidden rows.
#[derive(Debug)]
pub struct VisibleRowsExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl VisibleRowsExec {
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = properties_without_order(&input);
        Self { input, properties }
    }
}

crate::display_by_name!(VisibleRowsExec);

impl ExecutionPlan for VisibleRowsExec {
    crate::one_input!("VisibleRowsExec", input, |_, input| Self::new(input));

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::config::ConfigOptions;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col, lit};
    use datafusion::physical_optimizer::PhysicalOptimizerRule;
    use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
    use datafusion::physical_plan::displayable;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::filter::FilterExec;

    #[test]
    fn filters_are_not_pushed_below() -> Result<()> {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let equals = |value: i64| binary(col("a", &schema)?, Operator::Eq, lit(value), &schema);
        let own = FilterExec::try_new(equals(1)?, Arc::new(EmptyExec::new(Arc::clone(&schema))))?;
        let asked = FilterExec::try_new(equals(2)?, Arc::new(VisibleRowsExec::new(Arc::new(own))))?;
        let pushed = FilterPushdown::new().optimize(Arc::new(asked), &ConfigOptions::default())?;
        let shown = displayable(pushed.as_ref()).indent(false).to_string();
        let lines: Vec<&str> = shown.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            ["FilterExec: a@0 = 2", "VisibleRowsExec", "FilterExec: a@0 = 1", "EmptyExec"],
            "{shown}"
        );
        Ok(())
    }
}
