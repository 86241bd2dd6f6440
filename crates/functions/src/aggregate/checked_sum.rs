//! `sum` of integers and decimals, which fails with 22003 on overflow, of floats
//! ([`crate::aggregate::float_sum`]) and of intervals ([`crate::aggregate::interval_sum`]); for all other
//! types it is DataFusion's.
//!
//! DataFusion's own wraps around. Here integers are summed as decimals of 38 digits, which no table has the
//! rows to overflow, so that only the final sum is checked: the result depends neither on the order of rows
//! nor on how many ranks share them. The result type is unchanged. So it is with decimals whose type leaves
//! no room for the sum ([`crate::aggregate::decimal_sum`]).

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use datafusion::arrow::compute::sum_checked;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs, Volatility,
};

use crate::aggregate::decimal_sum::DecimalGroups;
use crate::aggregate::{decimal_sum, float_sum, interval_sum};
use crate::delegation::delegate_accumulator;
use harrier_error::{SqlError, SqlState};

/// Type in which integers are summed.
const WIDE: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// `sum`, replacing DataFusion's; plans name it by its name, so every session that decodes one needs it too.
pub fn sum() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(CheckedSum::default()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    inner: Sum,
    signature: Signature,
}

impl Default for CheckedSum {
    fn default() -> Self {
        Self { inner: Sum::new(), signature: Signature::user_defined(Volatility::Immutable) }
    }
}

/// The intermediate field of a sum of integers, or of decimals without room, for its final field and that of
/// its values; `None`: the sum is DataFusion's.
fn wide(field: &FieldRef, values: Option<&FieldRef>) -> Option<FieldRef> {
    let kind = match field.data_type() {
        DataType::Int64 | DataType::UInt64 => WIDE,
        _ => decimal_sum::wide(values?.data_type())?,
    };
    Some(Arc::new(Field::new(field.name(), kind, true)))
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [DataType::Float32] => Ok(arguments.to_vec()),
            [kind] if let Some(interval) = interval_sum::sum_type(kind) => Ok(vec![interval]),
            _ => {
                let fields = arguments.iter().map(|kind| Arc::new(Field::new("", kind.clone(), true)));
                let inner = AggregateUDF::from(Sum::new());
                let fields = fields_with_udf(&fields.collect::<Vec<_>>(), &inner)?;
                Ok(fields.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Float32] => Ok(DataType::Float32),
            _ => self.inner.return_type(arguments),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let field = Arc::clone(&args.return_field);
        if interval_sum::sum_type(field.data_type()).is_some() {
            return Ok(interval_sum::accumulator(false, args.is_distinct));
        }
        if let Some(wide) = float_sum::wide(&field) {
            let inner = self.inner.accumulator(AccumulatorArgs { return_field: wide, ..args })?;
            return Ok(float_sum::accumulator(inner, field.data_type()));
        }
        let Some(wide) = wide(&field, args.expr_fields.first()) else {
            return self.inner.accumulator(args);
        };
        let adds_up = !args.is_distinct;
        let inner = self.inner.accumulator(AccumulatorArgs { return_field: wide, ..args })?;
        Ok(Box::new(WideSum { inner, kind: field.data_type().clone(), adds_up }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let field = Arc::clone(&args.return_field);
        if interval_sum::sum_type(field.data_type()).is_some() && !args.is_distinct {
            return Ok(interval_sum::accumulator(false, false));
        }
        if float_sum::is_float(field.data_type()) && !args.is_distinct {
            return Ok(float_sum::sliding(false, field.data_type()));
        }
        // DataFusion's DISTINCT accumulator supports integers only, not decimals.
        let Some(wide) = wide(&field, args.expr_fields.first()).filter(|_| !args.is_distinct) else {
            return self.inner.create_sliding_accumulator(args);
        };
        let inner = self.inner.create_sliding_accumulator(AccumulatorArgs { return_field: wide, ..args })?;
        Ok(Box::new(WideSum { inner, kind: field.data_type().clone(), adds_up: false }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        interval_sum::sum_type(args.return_field.data_type()).is_none()
            && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let field = Arc::clone(&args.return_field);
        if let Some(wide) = float_sum::wide(&field) {
            let inner =
                self.inner.create_groups_accumulator(AccumulatorArgs { return_field: wide, ..args })?;
            return Ok(float_sum::groups(inner, field.data_type()));
        }
        let Some(wide) = wide(&field, args.expr_fields.first()) else {
            return self.inner.create_groups_accumulator(args);
        };
        if field.data_type().is_decimal() {
            let narrow = self.inner.create_groups_accumulator(args.clone())?;
            let wide =
                self.inner.create_groups_accumulator(AccumulatorArgs { return_field: wide, ..args })?;
            return Ok(Box::new(DecimalGroups::new(narrow, wide, field.data_type())));
        }
        let inner = self.inner.create_groups_accumulator(AccumulatorArgs { return_field: wide, ..args })?;
        Ok(Box::new(WideSumGroups { inner, kind: field.data_type().clone() }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if interval_sum::sum_type(args.return_field.data_type()).is_some() {
            return Ok(interval_sum::state_fields(&args));
        }
        let wide = wide(&args.return_field, args.input_fields.first())
            .or_else(|| float_sum::wide(&args.return_field));
        let return_field = wide.unwrap_or_else(|| Arc::clone(&args.return_field));
        self.inner.state_fields(StateFieldsArgs { return_field, ..args })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn set_monotonicity(&self, kind: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(kind)
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        argument_is_left: bool,
    ) -> Result<Option<Expr>> {
        // The sum and the product that it adds are not checked.
        if matches!(literal, Expr::Literal(value, _) if value.data_type().is_decimal()) {
            return Ok(None);
        }
        self.inner.simplify_expr_op_literal(function, argument, operator, literal, argument_is_left)
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Casts integers and decimals without room, or values already wide, to wide decimals. `kind`: the type of
/// the final sum.
fn widen(values: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    fn decimals<T: ArrowPrimitiveType>(values: &ArrayRef) -> ArrayRef
    where
        T::Native: Into<i128>,
    {
        let wide: PrimitiveArray<Decimal128Type> = values.as_primitive::<T>().unary(Into::into);
        Arc::new(wide.with_data_type(WIDE))
    }
    match values.data_type() {
        _ if kind.is_decimal() => Ok(decimal_sum::widen(values)),
        DataType::Int64 => Ok(decimals::<Int64Type>(values)),
        DataType::UInt64 => Ok(decimals::<UInt64Type>(values)),
        DataType::Decimal128(..) => Ok(Arc::clone(values)),
        other => internal_err!("a checked sum of {other}"),
    }
}

fn out_of_range(kind: &DataType) -> SqlError {
    let name = if *kind == DataType::Int64 { "bigint" } else { "unsigned bigint" };
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{name} out of range"))
        .with_hint("A sum of numerics has 38 digits: sum(n::numeric(38, 0))")
}

/// Casts a sum to its result type.
fn narrow(sums: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    fn integers<T: ArrowPrimitiveType>(sums: &ArrayRef, kind: &DataType) -> Result<ArrayRef>
    where
        T::Native: TryFrom<i128>,
    {
        let sums = sums.as_primitive::<Decimal128Type>();
        let narrow = |sum: i128| T::Native::try_from(sum).map_err(|_| out_of_range(kind));
        let narrow: PrimitiveArray<T> = sums.try_unary(narrow).map_err(harrier_sqlstate::external)?;
        Ok(Arc::new(narrow))
    }
    match kind {
        DataType::Int64 => integers::<Int64Type>(sums, kind),
        DataType::UInt64 => integers::<UInt64Type>(sums, kind),
        DataType::Decimal128(..) => decimal_sum::narrow(sums, kind),
        other => internal_err!("a checked sum in {other}"),
    }
}

/// An accumulator of wide decimals, for integers and decimals.
#[derive(Debug)]
struct WideSum {
    inner: Box<dyn Accumulator>,
    kind: DataType,
    /// Whether the sum of a batch may replace its values.
    adds_up: bool,
}

impl WideSum {
    /// The sum of values, if it fits into their type.
    fn sum_of(&self, values: &ArrayRef) -> Option<i128> {
        match values.data_type() {
            DataType::Int64 if self.adds_up => {
                sum_checked(values.as_primitive::<Int64Type>()).ok()?.map(i128::from)
            }
            DataType::UInt64 if self.adds_up => {
                sum_checked(values.as_primitive::<UInt64Type>()).ok()?.map(i128::from)
            }
            DataType::Decimal128(..) if self.adds_up => {
                sum_checked(values.as_primitive::<Decimal128Type>()).ok()?
            }
            _ => None,
        }
    }
}

impl Accumulator for WideSum {
    delegate_accumulator!(inner: merge_batch, supports_retract_batch, state);

    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        let values = match self.sum_of(values) {
            Some(sum) => {
                let kind = if self.kind.is_decimal() { &self.kind } else { &WIDE };
                let sum = PrimitiveArray::<Decimal128Type>::from_value(sum, 1).with_data_type(kind.clone());
                widen(&(Arc::new(sum) as ArrayRef), &self.kind)?
            }
            None => widen(values, &self.kind)?,
        };
        self.inner.update_batch(&[values])
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        self.inner.retract_batch(&[widen(values, &self.kind)?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.inner.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&narrow(&sum, &self.kind)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

/// Accumulators of decimals of many groups, for integers.
struct WideSumGroups {
    inner: Box<dyn GroupsAccumulator>,
    kind: DataType,
}

impl GroupsAccumulator for WideSumGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_total: usize,
    ) -> Result<()> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        self.inner.update_batch(&[widen(values, &self.kind)?], groups, filter, groups_total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        narrow(&self.inner.evaluate(emit)?, &self.kind)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], groups_total: usize) -> Result<()> {
        self.inner.merge_batch(states, groups, groups_total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let [values] = values else { return internal_err!("sum of {} columns", values.len()) };
        self.inner.convert_to_state(&[widen(values, &self.kind)?], filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, UInt64Array};

    use super::*;

    #[test]
    fn integers_round_trip() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX)]));
        assert_eq!(&narrow(&widen(&values, &DataType::Int64).unwrap(), &DataType::Int64).unwrap(), &values);
        let values: ArrayRef = Arc::new(UInt64Array::from(vec![0, u64::MAX]));
        assert_eq!(&narrow(&widen(&values, &DataType::UInt64).unwrap(), &DataType::UInt64).unwrap(), &values);
        let error = narrow(&widen(&values, &DataType::Int64).unwrap(), &DataType::Int64).unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    }
}
