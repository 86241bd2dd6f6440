//! Wire format of `generate_series`: keeps its order, and works without its column.
//!
//! datafusion-proto encodes the projected columns, not the generated ones, and no order.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion_proto::physical_plan::{
    PhysicalPlanDecodeContext, PhysicalPlanNodeExt, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::generate_series_node::Args;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{GenerateSeriesNode, PhysicalPlanNode};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Series {
    #[prost(message, required, tag = "1")]
    node: GenerateSeriesNode,
    #[prost(message, optional, tag = "2")]
    order: Option<Order>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Order {
    #[prost(bool, tag = "1")]
    descending: bool,
    #[prost(bool, tag = "2")]
    nulls_first: bool,
}

impl Series {
    /// `node`: the plan in datafusion-proto's encoding. `None`: it is not a series.
    pub(super) fn of(plan: &LazyMemoryExec, node: PhysicalPlanNode) -> Option<Self> {
        let Some(PhysicalPlanType::GenerateSeries(node)) = node.physical_plan_type else { return None };
        let known = plan.properties().equivalence_properties();
        let order = known.oeq_class().output_ordering().map(|ordering| {
            let SortOptions { descending, nulls_first } = ordering.first().options;
            Order { descending, nulls_first }
        });
        Some(Self { node, order })
    }

    pub(super) fn plan(
        self,
        context: &PhysicalPlanDecodeContext<'_>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Self { mut node, order } = self;
        let is_read = node.schema.as_ref().is_some_and(|schema| !schema.columns.is_empty());
        if !is_read {
            let generated = Schema::new(vec![Field::new("value", element_type(&node), true)]);
            node.schema = Some((&generated).try_into()?);
        }
        let node = PhysicalPlanNode { physical_plan_type: Some(PhysicalPlanType::GenerateSeries(node)) };
        let plan = node.try_into_physical_plan_with_context(context, converter)?;
        let generator = plan
            .downcast_ref::<LazyMemoryExec>()
            .ok_or_else(|| internal_datafusion_err!("a series that is none"))?;
        let mut series = LazyMemoryExec::try_new(plan.schema(), generator.generators().clone())?;
        if !is_read {
            return Ok(Arc::new(series.with_projection(Some(vec![]))));
        }
        if let Some(Order { descending, nulls_first }) = order {
            let column = Arc::new(Column::new(plan.schema().field(0).name(), 0));
            let options = SortOptions { descending, nulls_first };
            series.add_ordering([PhysicalSortExpr::new(column, options)]);
        }
        Ok(Arc::new(series))
    }
}

/// The element type of a series.
fn element_type(node: &GenerateSeriesNode) -> DataType {
    let zone = match &node.args {
        Some(Args::TimestampArgs(series)) => series.tz.as_deref().map(Arc::from),
        Some(Args::DateArgs(_)) => None,
        _ => return DataType::Int64,
    };
    DataType::Timestamp(TimeUnit::Nanosecond, zone)
}
