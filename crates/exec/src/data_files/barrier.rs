//! Logical plan node that blocks filter pushdown (a security barrier).

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use datafusion::common::{DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

/// Only projections are pushed below it; planned as [`VisibleRowsExec`](super::VisibleRowsExec), which blocks
/// filters as well.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Barrier {
    input: LogicalPlan,
}

impl Barrier {
    /// Wraps `input`, keeping rows, order and schema.
    pub fn around(input: LogicalPlan) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(Self { input }) })
    }
}

impl PartialOrd for Barrier {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

// By default an extension node lets no filter and no limit pass.
impl UserDefinedLogicalNodeCore for Barrier {
    fn name(&self) -> &str {
        "Barrier"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Barrier")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => Ok(Self { input }),
            _ => internal_err!("Barrier has one input"),
        }
    }

    fn necessary_children_exprs(&self, columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![columns.to_vec()])
    }
}
