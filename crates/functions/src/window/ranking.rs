//! `row_number`, `rank`, `dense_rank` and `ntile` as signed integers, as in PostgreSQL.
//!
//! DataFusion's are unsigned, which the PostgreSQL protocol can only represent as numerics, and whose
//! differences cannot be negative.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_window::{ntile, rank, row_number};
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;

/// `row_number()`.
pub fn row_number() -> Arc<WindowUDF> {
    signed_function(row_number::row_number_udwf(), DataType::Int64)
}

fn signed_function(inner: Arc<WindowUDF>, kind: DataType) -> Arc<WindowUDF> {
    Arc::new(WindowUDF::from(Signed { inner, kind }))
}

/// The functions, replacing DataFusion's; plans name them by their names, so every session that decodes one
/// needs them too.
pub(crate) fn functions() -> impl Iterator<Item = Arc<WindowUDF>> {
    let others = [
        (rank::rank_udwf(), DataType::Int64),
        (rank::dense_rank_udwf(), DataType::Int64),
        (ntile::ntile_udwf(), DataType::Int32),
    ];
    others.into_iter().map(|(inner, kind)| signed_function(inner, kind)).chain([row_number()])
}

/// A function with unsigned results, converted to signed ones.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Signed {
    inner: Arc<WindowUDF>,
    kind: DataType,
}

impl WindowUDFImpl for Signed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.inner().expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.inner().partition_evaluator(args)?;
        Ok(Box::new(SignedEvaluator { inner, kind: self.kind.clone() }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let field = self.inner.inner().field(args)?;
        Ok(Arc::new(field.as_ref().clone().with_data_type(self.kind.clone())))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.inner().sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        self.inner.inner().reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct SignedEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    kind: DataType,
}

impl SignedEvaluator {
    /// No partition has enough rows to overflow.
    fn to_signed(&self, values: &ArrayRef) -> Result<ArrayRef> {
        Ok(cast(values, &self.kind)?)
    }
}

impl PartitionEvaluator for SignedEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let numbers = self.inner.evaluate_all(values, rows)?;
        self.to_signed(&numbers)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.kind)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        self.to_signed(&self.inner.evaluate_all_with_rank(rows, ranks)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
