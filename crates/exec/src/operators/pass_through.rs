//! What operators with one input say alike of themselves, as macros for their `impl ExecutionPlan`, their
//! properties, and how an operator is shown that has nothing but its name.

use std::sync::Arc;

use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, PlanProperties};

/// The properties of an input, without its ordering and its constant or equal columns.
pub(crate) fn properties_without_order(input: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(input.schema()),
        input.output_partitioning().clone(),
        input.pipeline_behavior(),
        input.boundedness(),
    ))
}

/// The name of an operator without expressions, and its one input; with a function from a new input to the
/// operator, also how it gets one.
#[macro_export]
macro_rules! one_input {
    ($name:literal, $input:tt) => {
        fn name(&self) -> &str {
            $name
        }

        fn children(&self) -> Vec<&::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            vec![&self.$input]
        }

        fn apply_expressions(
            &self,
            _: &mut dyn FnMut(
                &::std::sync::Arc<dyn ::datafusion::physical_expr::PhysicalExpr>,
            ) -> ::datafusion::common::Result<
                ::datafusion::common::tree_node::TreeNodeRecursion,
            >,
        ) -> ::datafusion::common::Result<::datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(::datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }
    };
    ($name:literal, $input:tt, $with_input:expr) => {
        $crate::one_input!($name, $input);

        fn with_new_children(
            self: ::std::sync::Arc<Self>,
            mut children: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
        ) -> ::datafusion::common::Result<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            let with_input: fn(&Self, _) -> Self = $with_input;
            Ok(::std::sync::Arc::new(with_input(&self, children.swap_remove(0))))
        }
    };
}

/// Shows an operator by its name alone.
#[macro_export]
macro_rules! display_by_name {
    ($operator:ident) => {
        impl ::datafusion::physical_plan::DisplayAs for $operator {
            fn fmt_as(
                &self,
                _: ::datafusion::physical_plan::DisplayFormatType,
                f: &mut ::std::fmt::Formatter<'_>,
            ) -> ::std::fmt::Result {
                f.write_str(stringify!($operator))
            }
        }
    };
}

/// Rows that are passed through, with the statistics of the input.
#[macro_export]
macro_rules! unchanged_rows {
    ($input:tt) => {
        fn benefits_from_input_partitioning(&self) -> Vec<bool> {
            vec![false]
        }

        fn cardinality_effect(&self) -> ::datafusion::physical_plan::execution_plan::CardinalityEffect {
            ::datafusion::physical_plan::execution_plan::CardinalityEffect::Equal
        }

        fn child_stats_requests(
            &self,
            partition: Option<usize>,
        ) -> Vec<::datafusion::physical_plan::statistics::ChildStats> {
            vec![::datafusion::physical_plan::statistics::ChildStats::At(partition)]
        }

        fn statistics_from_inputs(
            &self,
            inputs: &[::std::sync::Arc<::datafusion::common::Statistics>],
            _: &::datafusion::physical_plan::statistics::StatisticsArgs,
        ) -> ::datafusion::common::Result<::std::sync::Arc<::datafusion::common::Statistics>> {
            let [input] = inputs else {
                return ::datafusion::common::internal_err!("statistics of {} inputs", inputs.len());
            };
            Ok(::std::sync::Arc::clone(input))
        }

        fn execute(
            &self,
            partition: usize,
            context: ::std::sync::Arc<::datafusion::execution::TaskContext>,
        ) -> ::datafusion::common::Result<::datafusion::execution::SendableRecordBatchStream> {
            self.$input.execute(partition, context)
        }
    };
}
