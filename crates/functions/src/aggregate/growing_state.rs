//! Aggregates whose states grow with their input: lists, texts, sets of texts. Their operators reserve the
//! bytes of a state once, after it has grown. But while a state is sent, spilled or returned, it exists as
//! collected, as the array it is converted to, and as that array sorted or in flight: a statement with a
//! limit of 256 MiB took more than a gigabyte, and a batch job was killed.
//!
//! So an accumulator of these aggregates reports [`COPIES`] times its size to its operator. Memory requests
//! beyond the limit are refused with 53200, or a partial aggregate emits early, while there is still room for
//! the copies.
//!
//! Grouped aggregates of this kind are planned in one stage, so that states are not sent
//! (`single_stage_aggregation` of crate planner).
//!
//! They replace DataFusion's under the same names, where statements are planned and where ranks decode plans.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::{array_agg, count, median, percentile_cont, string_agg};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, Operator, ReversedUDAF,
};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_plan::aggregates::AggregateExec;

use crate::aggregate::mode;
use crate::delegation::{delegate_accumulator, delegate_aggregate};

/// Copies of a state: two while a text or a set at its capacity grows, the array that it is converted to, and
/// that array sorted, merged or in flight to another operator.
const COPIES: usize = 4;

/// All aggregates with growing states.
pub(crate) fn functions() -> impl Iterator<Item = Arc<AggregateUDF>> {
    let plain = [
        array_agg::array_agg_udaf(),
        count::count_udaf(),
        median::median_udaf(),
        mode::function(),
        percentile_cont::percentile_cont_udaf(),
        string_agg::string_agg_udaf(),
    ];
    plain.into_iter().map(|inner| Arc::new(AggregateUDF::from(LongStates { inner })))
}

/// Growth of an aggregate's states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Growth {
    /// Constant size, whatever the input.
    None,
    /// Grows with every distinct value.
    ByValues,
    /// Grows with every row.
    ByRows,
}

/// The growth of the function whose states grow most.
///
/// Errors: an argument has no type.
pub fn growth(aggregate: &AggregateExec) -> Result<Growth> {
    let schema = aggregate.input_schema();
    let mut most = Growth::None;
    for function in aggregate.aggr_expr() {
        let Some(known) = function.fun().inner().downcast_ref::<LongStates>() else { continue };
        let arguments = function.expressions();
        let types =
            arguments.iter().map(|argument| argument.data_type(&schema)).collect::<Result<Vec<_>>>()?;
        if known.grows(function.is_distinct(), &types) {
            most = most.max(if known.name() == "count" { Growth::ByValues } else { Growth::ByRows });
        }
    }
    Ok(most)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LongStates {
    inner: Arc<AggregateUDF>,
}

impl LongStates {
    fn of(inner: AggregateUDF) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Whether the state grows with its input. `count` only keeps distinct values, and those of fixed width
    /// are accounted for exactly.
    fn grows<'a>(&self, is_distinct: bool, types: impl IntoIterator<Item = &'a DataType>) -> bool {
        let is_fixed =
            |kind: &DataType| kind.is_primitive() || matches!(kind, DataType::Boolean | DataType::Null);
        self.name() != "count" || (is_distinct && !types.into_iter().all(is_fixed))
    }

    fn grows_with(&self, args: &AccumulatorArgs) -> bool {
        self.grows(args.is_distinct, args.expr_fields.iter().map(|field| field.data_type()))
    }

    /// Default order of distinct values: PostgreSQL sorts to deduplicate.
    fn default_order(&self, args: &AccumulatorArgs) -> Option<PhysicalSortExpr> {
        let is_list = matches!(self.name(), "array_agg" | "string_agg");
        let is_sorted = is_list && args.is_distinct && args.order_bys.is_empty();
        let options = SortOptions { descending: false, nulls_first: false };
        is_sorted.then(|| PhysicalSortExpr::new(Arc::clone(&args.exprs[0]), options))
    }

    fn with_copies(&self, grows: bool, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        if grows { Box::new(AccountedState(inner)) } else { inner }
    }
}

impl AggregateUDFImpl for LongStates {
    delegate_aggregate!(
        name,
        signature,
        return_type,
        return_field,
        is_nullable,
        state_fields,
        groups_accumulator_supported,
        order_sensitivity,
        coerce_types,
        is_descending,
        value_from_stats,
        default_value,
        supports_null_handling_clause,
        documentation,
        set_monotonicity
    );

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_display_name(params)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let grows = self.grows_with(&args);
        let by_itself = self.default_order(&args);
        let args = match &by_itself {
            Some(key) => AccumulatorArgs { order_bys: std::slice::from_ref(key), ..args },
            None => args,
        };
        Ok(self.with_copies(grows, self.inner.accumulator(args)?))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let grows = self.grows_with(&args);
        let inner = self.inner.create_groups_accumulator(args)?;
        Ok(if grows { Box::new(AccountedGroups(inner)) } else { inner })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let grows = self.grows_with(&args);
        Ok(self.with_copies(grows, self.inner.create_sliding_accumulator(args)?))
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = self.inner.as_ref().clone().with_beneficial_ordering(beneficial_ordering)?;
        Ok(inner.map(|inner| Arc::new(Self::of(inner)) as _))
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        argument_is_left: bool,
    ) -> Result<Option<Expr>> {
        self.inner.simplify_expr_op_literal(function, argument, operator, literal, argument_is_left)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Reversed(reversed) if reversed.name() == self.name() => {
                ReversedUDAF::Reversed(Arc::new(AggregateUDF::from(Self { inner: reversed })))
            }
            other => other,
        }
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }
}

/// The state of one group.
#[derive(Debug)]
struct AccountedState(Box<dyn Accumulator>);

impl Accumulator for AccountedState {
    delegate_accumulator!(0: evaluate, state, merge_batch, retract_batch, supports_retract_batch);

    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn size(&self) -> usize {
        self.0.size().saturating_mul(COPIES)
    }
}

/// The states of many groups.
struct AccountedGroups(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for AccountedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<()> {
        self.0.update_batch(values, group_indices, filter, groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.0.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], group_indices: &[usize], groups: usize) -> Result<()> {
        self.0.merge_batch(states, group_indices, groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.0.size().saturating_mul(COPIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::StringArray;
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::physical_expr::expressions::col;

    /// Reported size of a state after some texts, and that of DataFusion's function.
    fn sizes(ours: &AggregateUDF, plain: &AggregateUDF, is_distinct: bool) -> (usize, usize) {
        let schema = Schema::new(vec![Field::new("x", DataType::Utf8, true)]);
        let field = Arc::new(schema.field(0).clone());
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..1000).map(|n| format!("text {n}"))));
        let size = |function: &AggregateUDF| {
            let args = AccumulatorArgs {
                return_field: function.return_field(std::slice::from_ref(&field)).unwrap(),
                schema: &schema,
                ignore_nulls: false,
                order_bys: &[],
                is_reversed: false,
                name: "x",
                is_distinct,
                exprs: &[col("x", &schema).unwrap()],
                expr_fields: std::slice::from_ref(&field),
            };
            let mut accumulator = function.accumulator(args).unwrap();
            accumulator.update_batch(std::slice::from_ref(&texts)).unwrap();
            accumulator.size()
        };
        (size(ours), size(plain))
    }

    #[test]
    fn growing_states_are_accounted_with_copies() {
        let ours: Vec<_> = functions().collect();
        let of = |name: &str| ours.iter().find(|function| function.name() == name).unwrap();
        for is_distinct in [false, true] {
            let (counted, held) = sizes(of("array_agg"), &array_agg::array_agg_udaf(), is_distinct);
            assert_eq!(counted, COPIES * held);
        }
        let (counted, held) = sizes(of("count"), &count::count_udaf(), true);
        assert_eq!(counted, COPIES * held);
        let (counted, held) = sizes(of("count"), &count::count_udaf(), false);
        assert_eq!(counted, held);
    }

    #[test]
    fn names_and_types_are_the_same() {
        for function in functions() {
            let plain = &function.inner().downcast_ref::<LongStates>().unwrap().inner;
            assert_eq!((function.name(), function.aliases()), (plain.name(), plain.aliases()));
            assert_eq!(function.signature(), plain.signature());
            assert_eq!(function.order_sensitivity(), plain.order_sensitivity());
            assert_eq!(function.is_nullable(), plain.is_nullable());
        }
    }
}
