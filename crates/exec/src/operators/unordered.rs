//! Operator that hides the ordering and equivalences of its input.

use std::fmt;
use std::sync::Arc;

use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

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

impl DisplayAs for UnorderedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnorderedExec")
    }
}

impl ExecutionPlan for UnorderedExec {
    crate::one_input!("UnorderedExec", input, |_, input| Self::new(input));
    crate::unchanged_rows!(input);

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
}
