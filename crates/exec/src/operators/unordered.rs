//! Operator that hides the ordering and equivalences of its input.

use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, PlanProperties};

use crate::operators::pass_through::properties_without_order;

/// N → N output partitions: passes its input through, hiding its ordering and its constant or equal columns.
#[derive(Debug)]
pub struct UnorderedExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl UnorderedExec {
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = properties_without_order(&input);
        Self { input, properties }
    }
}

crate::display_by_name!(UnorderedExec);

impl ExecutionPlan for UnorderedExec {
    crate::one_input!("UnorderedExec", input, |_, input| Self::new(input));
    crate::unchanged_rows!(input);

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
}
