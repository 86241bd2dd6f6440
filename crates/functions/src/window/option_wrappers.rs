//! Window functions whose options survive plan serialization: FILTER, IGNORE NULLS, and reversal.
//!
//! datafusion-proto encodes a window aggregate without its filter. For other window functions it drops IGNORE
//! NULLS, and whether the planner has reversed the function, to sort once for windows of opposite orders:
//! `lag` would be `lead` on ranks (apache/datafusion#25471 is related). So these options become functions of
//! their own:
//!
//! | written | planned |
//! |---|---|
//! | `sum(x) FILTER (WHERE p) OVER w` | `sum_filtered(x, p) OVER w` |
//! | `lag(x) IGNORE NULLS OVER w` | `lag_ignoring_nulls(x) OVER w` |
//! | `lag(x) OVER w`, `sum(x) OVER w` | the same, which cannot be reversed |
//!
//! Ranks find them by their names. Reversal would also be slower and could fail: a frame that grows becomes
//! one that shrinks, which `bool_or` cannot compute, and `sum` only by retracting rows.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::{SortOptions, cast, filter};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::function::{
    AccumulatorArgs, ExpressionArgs, PartitionEvaluatorArgs, StateFieldsArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, LimitEffect, PartitionEvaluator,
    ReversedUDAF, ReversedUDWF, SetMonotonicity, Signature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;

use crate::delegation::{delegate_accumulator, delegate_aggregate};

/// The aggregate over the rows for which its last argument, a boolean, is true; the other arguments are those
/// of `inner`.
pub fn with_filter(inner: &Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    let name = format!("{}_filtered", inner.name());
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(AggregateUDF::from(Windowed { inner: Arc::clone(inner), name, filtered: Some(signature) }))
}

/// The replacement of an aggregate without a filter; `None` if it cannot be reversed anyway.
pub fn in_place_of_aggregate(inner: &Arc<AggregateUDF>) -> Option<Arc<AggregateUDF>> {
    if let ReversedUDAF::NotSupported = inner.reverse_udf() {
        return None;
    }
    let (inner, name) = (Arc::clone(inner), inner.name().to_string());
    Some(Arc::new(AggregateUDF::from(Windowed { inner, name, filtered: None })))
}

/// The replacement of a non-aggregate function; `None` if no option would be lost.
pub fn in_place_of(function: &Arc<WindowUDF>, ignores_nulls: bool) -> Option<Arc<WindowUDF>> {
    match (ignores_nulls, function.reverse_expr()) {
        (true, _) => Some(ignoring_nulls(function)),
        (false, ReversedUDWF::NotSupported) => None,
        (false, _) => Some(forward(function, function.name().to_string(), false)),
    }
}

fn ignoring_nulls(function: &Arc<WindowUDF>) -> Arc<WindowUDF> {
    forward(function, format!("{}_ignoring_nulls", function.name()), true)
}

fn forward(inner: &Arc<WindowUDF>, name: String, ignores_nulls: bool) -> Arc<WindowUDF> {
    Arc::new(WindowUDF::from(Forward { inner: Arc::clone(inner), name, ignores_nulls }))
}

/// Installs these forms of all functions in a session that decodes plans; call it after all others are
/// installed.
pub(crate) fn install(builder: &mut SessionStateBuilder) {
    let aggregates = builder.aggregate_functions().get_or_insert_default();
    let forms: Vec<_> = aggregates.iter().map(with_filter).collect();
    aggregates.extend(forms);
    let functions = builder.window_functions().get_or_insert_default();
    let forms: Vec<_> = functions.iter().map(ignoring_nulls).collect();
    functions.extend(forms);
}

/// An aggregate evaluated in the order of its window.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Windowed {
    inner: Arc<AggregateUDF>,
    name: String,
    /// The signature, if the last argument is a filter.
    filtered: Option<Signature>,
}

impl Windowed {
    /// Arguments of the inner aggregate.
    fn arguments<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        match (&self.filtered, all.split_last()) {
            (Some(_), Some((_, arguments))) => arguments,
            _ => all,
        }
    }

    fn accumulator_args<'a>(&self, args: AccumulatorArgs<'a>) -> AccumulatorArgs<'a> {
        let (exprs, expr_fields) = (self.arguments(args.exprs), self.arguments(args.expr_fields));
        AccumulatorArgs { exprs, expr_fields, ..args }
    }

    fn with_mask(&self, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        match self.filtered {
            Some(_) => Box::new(FilteredAccumulator(inner)),
            None => inner,
        }
    }
}

impl AggregateUDFImpl for Windowed {
    delegate_aggregate!(is_nullable, order_sensitivity, supports_null_handling_clause, default_value);

    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        self.filtered.as_ref().unwrap_or_else(|| self.inner.signature())
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match self.filtered {
            // The inner arguments were coerced before the filter was added.
            Some(_) => Ok(types.to_vec()),
            None => self.inner.inner().coerce_types(types),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(self.arguments(types))
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner.inner().return_field(self.arguments(fields))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.with_mask(self.inner.inner().accumulator(self.accumulator_args(args))?))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.with_mask(self.inner.inner().create_sliding_accumulator(self.accumulator_args(args))?))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let input_fields = self.arguments(args.input_fields);
        self.inner.inner().state_fields(StateFieldsArgs { input_fields, ..args })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn set_monotonicity(&self, kind: &DataType) -> SetMonotonicity {
        match self.filtered {
            Some(_) => SetMonotonicity::NotMonotonic,
            None => self.inner.inner().set_monotonicity(kind),
        }
    }
}

/// Keeps the rows for which the last column is true.
#[derive(Debug)]
struct FilteredAccumulator(Box<dyn Accumulator>);

impl FilteredAccumulator {
    fn rows(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let (mask, arguments) =
            values.split_last().ok_or_else(|| internal_datafusion_err!("a filtered aggregate of nothing"))?;
        // A NULL filter has no type.
        let mask = cast(mask, &DataType::Boolean)?;
        let rows = arguments.iter().map(|argument| filter(argument, mask.as_boolean()));
        Ok(rows.collect::<std::result::Result<_, _>>()?)
    }
}

impl Accumulator for FilteredAccumulator {
    delegate_accumulator!(0: supports_retract_batch, evaluate, state, merge_batch);

    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(&Self::rows(values)?)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(&Self::rows(values)?)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }
}

/// A function evaluated in the order of its window, without reversal by the planner.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Forward {
    inner: Arc<WindowUDF>,
    name: String,
    ignores_nulls: bool,
}

impl WindowUDFImpl for Forward {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.inner().expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let args =
            PartitionEvaluatorArgs::new(args.input_exprs(), args.input_fields(), false, self.ignores_nulls);
        self.inner.inner().partition_evaluator(args)
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        self.inner.inner().field(args)
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.inner().sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        ReversedUDWF::NotSupported
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}
