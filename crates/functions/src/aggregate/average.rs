//! `avg` of decimals with the scale of a quotient, rounded ([`crate::math::quotient`]), of floats
//! ([`crate::aggregate::float_sum`]) and of intervals ([`crate::aggregate::interval_sum`]). DataFusion's adds
//! four digits to the scale of its input and truncates the rest.
//!
//! Sums are decimals of 38 digits if those can hold a billion rows of the type, otherwise of 76; the state
//! also has the count.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Field,
    FieldRef, Int64Type, i256,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, Volatility,
};

use crate::aggregate::{float_sum, interval_sum};
use crate::math::quotient::{out_of_range, quotient, scale_of_mean};

/// Digits that a sum of a billion rows needs in addition to those of one row.
const ROWS_DIGITS: u8 = 9;

/// `avg`, replacing DataFusion's; plans name it by its name, so every session that decodes one needs it too.
pub fn avg() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(RoundedAvg::default()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RoundedAvg {
    inner: Avg,
    sum: Sum,
    count: Count,
    signature: Signature,
}

impl Default for RoundedAvg {
    fn default() -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { inner: Avg::new(), sum: Sum::new(), count: Count::new(), signature }
    }
}

/// The field of the sum of such a column; `None` if its `avg` is DataFusion's.
fn sum_field(field: &FieldRef) -> Option<FieldRef> {
    let DataType::Decimal128(precision, scale @ 0..) = field.data_type() else { return None };
    let kind = match precision + ROWS_DIGITS <= DECIMAL128_MAX_PRECISION {
        true => DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale),
        false => DataType::Decimal256(DECIMAL256_MAX_PRECISION, *scale),
    };
    Some(Arc::new(Field::new(field.name(), kind, true)))
}

fn count_field() -> FieldRef {
    Arc::new(Field::new("count", DataType::Int64, false))
}

/// Casts the input to the width of the sum.
fn summands(values: &[ArrayRef], sum: &DataType) -> Result<Vec<ArrayRef>> {
    let [values] = values else { return internal_err!("avg of {} columns", values.len()) };
    Ok(vec![match sum {
        DataType::Decimal256(..) => cast(values, sum)?,
        _ => Arc::clone(values),
    }])
}

/// Averages of sums and counts.
///
/// Errors: one has more than 38 digits (22003).
fn means(sums: &ArrayRef, counts: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let (sum_scale, scale) = match (sums.data_type(), kind) {
        (DataType::Decimal128(_, sum) | DataType::Decimal256(_, sum), DataType::Decimal128(_, scale)) => {
            (*sum, *scale)
        }
        (sum, kind) => return internal_err!("an average of {sum} as {kind}"),
    };
    let limit = 10_i128.pow(u32::from(DECIMAL128_MAX_PRECISION));
    let counts = counts.as_primitive::<Int64Type>();
    let mean = |row: usize| -> Result<Option<i128>> {
        if sums.is_null(row) || counts.value(row) == 0 {
            return Ok(None);
        }
        let sum = match sums.data_type() {
            DataType::Decimal128(..) => i256::from_i128(sums.as_primitive::<Decimal128Type>().value(row)),
            _ => sums.as_primitive::<Decimal256Type>().value(row),
        };
        let count = i256::from_i128(i128::from(counts.value(row)));
        let mean = quotient(sum, i32::from(scale) - i32::from(sum_scale), count).and_then(i256::to_i128);
        let mean = mean.filter(|mean| *mean < limit && *mean > -limit);
        Ok(Some(mean.ok_or_else(out_of_range).map_err(harrier_sqlstate::external)?))
    };
    let means: Decimal128Array = (0..sums.len()).map(mean).collect::<Result<_>>()?;
    Ok(Arc::new(means.with_data_type(kind.clone())))
}

impl AggregateUDFImpl for RoundedAvg {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [kind] if let Some(interval) = interval_sum::sum_type(kind) => Ok(vec![interval]),
            _ => {
                let fields = arguments.iter().map(|kind| Arc::new(Field::new("", kind.clone(), true)));
                let inner = AggregateUDF::from(Avg::new());
                let fields = fields_with_udf(&fields.collect::<Vec<_>>(), &inner)?;
                Ok(fields.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [kind] if let Some(interval) = interval_sum::sum_type(kind) => Ok(interval),
            [DataType::Decimal128(precision, scale @ 0..)] => {
                let mean = scale_of_mean(*precision, *scale);
                let precision = i16::from(*precision) - i16::from(*scale) + i16::from(mean);
                let precision = precision.clamp(i16::from(mean) + 1, i16::from(DECIMAL128_MAX_PRECISION));
                Ok(DataType::Decimal128(precision as u8, mean))
            }
            _ => self.inner.return_type(arguments),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let kind = args.return_field.data_type().clone();
        if interval_sum::sum_type(&kind).is_some() {
            return Ok(interval_sum::accumulator(true, args.is_distinct));
        }
        match Parts::of(&args) {
            None if float_sum::is_float(&kind) => {
                Ok(float_sum::accumulator(self.inner.accumulator(args)?, &kind))
            }
            None => self.inner.accumulator(args),
            Some(parts) => parts.accumulator(args, |args, sum| match sum {
                true => self.sum.accumulator(args),
                false => self.count.accumulator(args),
            }),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let kind = args.return_field.data_type();
        if interval_sum::sum_type(kind).is_some() && !args.is_distinct {
            return Ok(interval_sum::accumulator(true, false));
        }
        if float_sum::is_float(kind) && !args.is_distinct {
            return Ok(float_sum::sliding(true, kind));
        }
        // DISTINCT is left to DataFusion.
        match Parts::of(&args).filter(|_| !args.is_distinct) {
            None => self.inner.create_sliding_accumulator(args),
            Some(parts) => parts.accumulator(args, |args, sum| match sum {
                true => self.sum.create_sliding_accumulator(args),
                false => self.count.create_sliding_accumulator(args),
            }),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        interval_sum::sum_type(args.return_field.data_type()).is_none()
            && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let kind = args.return_field.data_type().clone();
        let Some(parts) = Parts::of(&args) else {
            let inner = self.inner.create_groups_accumulator(args)?;
            return Ok(if float_sum::is_float(&kind) { float_sum::groups(inner, &kind) } else { inner });
        };
        let sum = parts.sum.data_type().clone();
        let (of_sum, of_count) = parts.args(args);
        let kind = parts.kind.clone();
        Ok(Box::new(MeanGroups {
            sums: self.sum.create_groups_accumulator(of_sum)?,
            counts: self.count.create_groups_accumulator(of_count)?,
            sum,
            kind,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if interval_sum::sum_type(args.return_field.data_type()).is_some() {
            return Ok(interval_sum::state_fields(&args));
        }
        let Some(sum) = args.input_fields.first().and_then(sum_field) else {
            return self.inner.state_fields(args);
        };
        let of = |return_field| StateFieldsArgs { return_field, ..args };
        let mut fields = self.sum.state_fields(of(sum))?;
        fields.extend(self.count.state_fields(of(count_field()))?);
        Ok(fields)
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

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Inputs of a decimal average.
struct Parts {
    sum: FieldRef,
    count: FieldRef,
    kind: DataType,
    /// The input, in the width of the sum.
    fields: [FieldRef; 1],
}

impl Parts {
    fn of(args: &AccumulatorArgs) -> Option<Self> {
        let field = args.expr_fields.first()?;
        let sum = sum_field(field)?;
        let input = match sum.data_type() {
            DataType::Decimal256(..) => Arc::clone(&sum),
            _ => Arc::clone(field),
        };
        let kind = args.return_field.data_type().clone();
        Some(Self { sum, count: count_field(), kind, fields: [input] })
    }

    /// Arguments of the sum and of the count.
    fn args<'a>(&'a self, args: AccumulatorArgs<'a>) -> (AccumulatorArgs<'a>, AccumulatorArgs<'a>) {
        let count = AccumulatorArgs {
            return_field: Arc::clone(&self.count),
            expr_fields: &self.fields,
            ..args.clone()
        };
        (AccumulatorArgs { return_field: Arc::clone(&self.sum), expr_fields: &self.fields, ..args }, count)
    }

    fn accumulator(
        &self,
        args: AccumulatorArgs,
        create: impl Fn(AccumulatorArgs, bool) -> Result<Box<dyn Accumulator>>,
    ) -> Result<Box<dyn Accumulator>> {
        let (of_sum, of_count) = self.args(args);
        Ok(Box::new(Mean {
            total: create(of_sum, true)?,
            count: create(of_count, false)?,
            sum: self.sum.data_type().clone(),
            kind: self.kind.clone(),
        }))
    }
}

/// Accumulator of an average: a sum and a count.
#[derive(Debug)]
struct Mean {
    total: Box<dyn Accumulator>,
    count: Box<dyn Accumulator>,
    /// The type of the sum.
    sum: DataType,
    /// The type of the average.
    kind: DataType,
}

impl Accumulator for Mean {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = summands(values, &self.sum)?;
        self.total.update_batch(&values)?;
        self.count.update_batch(&values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [total, count] = states else { return internal_err!("avg of {} states", states.len()) };
        self.total.merge_batch(std::slice::from_ref(total))?;
        self.count.merge_batch(std::slice::from_ref(count))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = summands(values, &self.sum)?;
        self.total.retract_batch(&values)?;
        self.count.retract_batch(&values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.total.supports_retract_batch() && self.count.supports_retract_batch()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut state = self.total.state()?;
        state.extend(self.count.state()?);
        Ok(state)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let (total, count) = (self.total.evaluate()?.to_array()?, self.count.evaluate()?.to_array()?);
        ScalarValue::try_from_array(&means(&total, &count, &self.kind)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.total.size() + self.count.size()
    }
}

/// Average accumulator of many groups.
struct MeanGroups {
    sums: Box<dyn GroupsAccumulator>,
    counts: Box<dyn GroupsAccumulator>,
    sum: DataType,
    kind: DataType,
}

impl GroupsAccumulator for MeanGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_total: usize,
    ) -> Result<()> {
        let values = summands(values, &self.sum)?;
        self.sums.update_batch(&values, groups, filter, groups_total)?;
        self.counts.update_batch(&values, groups, filter, groups_total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) = (self.sums.evaluate(emit)?, self.counts.evaluate(emit)?);
        means(&sums, &counts, &self.kind)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let mut state = self.sums.state(emit)?;
        state.extend(self.counts.state(emit)?);
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], groups_total: usize) -> Result<()> {
        let [sums, counts] = states else { return internal_err!("avg of {} states", states.len()) };
        self.sums.merge_batch(std::slice::from_ref(sums), groups, groups_total)?;
        self.counts.merge_batch(std::slice::from_ref(counts), groups, groups_total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = summands(values, &self.sum)?;
        let mut state = self.sums.convert_to_state(&values, filter)?;
        state.extend(self.counts.convert_to_state(&values, filter)?);
        Ok(state)
    }

    fn size(&self) -> usize {
        self.sums.size() + self.counts.size()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Decimal256Array, Int64Array};

    use super::*;

    #[test]
    fn averages_are_rounded() {
        let sums: ArrayRef = Arc::new(
            Decimal128Array::from(vec![Some(200), Some(-200), None]).with_precision_and_scale(38, 2).unwrap(),
        );
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![3, 3, 0]));
        let kind = DataType::Decimal128(38, 6);
        let expected: ArrayRef = Arc::new(
            Decimal128Array::from(vec![Some(666_667), Some(-666_667), None]).with_data_type(kind.clone()),
        );
        assert_eq!(&means(&sums, &counts, &kind).unwrap(), &expected);
        let sums: ArrayRef =
            Arc::new(Decimal256Array::from(vec![i256::MAX]).with_data_type(DataType::Decimal256(76, 2)));
        assert!(means(&sums, &counts.slice(0, 1), &kind).is_err());
    }

    #[test]
    fn sums_have_room() {
        let kind = |precision, scale| {
            let field = Arc::new(Field::new("", DataType::Decimal128(precision, scale), true));
            sum_field(&field).map(|field| field.data_type().clone())
        };
        assert_eq!(kind(15, 2), Some(DataType::Decimal128(38, 2)));
        assert_eq!(kind(38, 2), Some(DataType::Decimal256(76, 2)));
        assert_eq!(kind(10, -2), None);
    }
}
