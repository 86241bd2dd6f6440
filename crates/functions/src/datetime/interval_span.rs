//! Total lengths of intervals, by which PostgreSQL compares them: a month is thirty days, and a day 24 hours.
//!
//! Arrow compares months first, then days, then time. A span is a number that replaces the interval in
//! comparisons, sorts, groups and joins. A code is a number, too, ordered by the span, from which the
//! interval can be decoded: `'1 day'` and `'24:00:00'` have one span and two codes.
//!
//! Ranks know the functions by their names.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, OffsetSizeTrait, PrimitiveArray,
    StructArray,
};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Field,
    Fields, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, i256,
};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Nanoseconds; those of the longest interval have 25 digits.
pub const SPAN: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

const CODE: DataType = DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0);

const DAY_NS: i128 = 86_400_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Measure {
    Span,
    Code,
    Coded,
}

impl Measure {
    const fn name(self) -> &'static str {
        match self {
            Self::Span => "harrier_interval_span",
            Self::Code => "harrier_interval_code",
            Self::Coded => "harrier_coded_interval",
        }
    }

    fn function(self) -> Arc<ScalarUDF> {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Measured { measure: self, signature }))
    }
}

/// (interval) → nanoseconds; for lists and rows, the same with intervals replaced.
pub fn span_function() -> Arc<ScalarUDF> {
    Measure::Span.function()
}

/// (interval) → an order-preserving, reversible number.
pub fn code_function() -> Arc<ScalarUDF> {
    Measure::Code.function()
}

/// (number from [`code_function`]) → the interval.
pub fn coded_function() -> Arc<ScalarUDF> {
    Measure::Coded.function()
}

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [Measure::Span, Measure::Code, Measure::Coded].into_iter().map(Measure::function)
}

/// The type compared in place of a type with intervals; `None`: the type has no intervals.
pub fn compared_as(kind: &DataType) -> Option<DataType> {
    let of_field = |field: &Arc<Field>| {
        compared_as(field.data_type())
            .map(|kind| Arc::new(Field::new(field.name(), kind, field.is_nullable())))
    };
    match kind {
        DataType::Interval(IntervalUnit::MonthDayNano) => Some(SPAN),
        DataType::List(item) => of_field(item).map(DataType::List),
        DataType::LargeList(item) => of_field(item).map(DataType::LargeList),
        DataType::FixedSizeList(item, size) => {
            of_field(item).map(|item| DataType::FixedSizeList(item, *size))
        }
        DataType::Struct(fields) => {
            let replaced: Vec<Option<Arc<Field>>> = fields.iter().map(of_field).collect();
            if replaced.iter().all(Option::is_none) {
                return None;
            }
            let fields =
                replaced.into_iter().zip(fields).map(|(new, old)| new.unwrap_or_else(|| old.clone()));
            Some(DataType::Struct(fields.collect::<Fields>()))
        }
        _ => None,
    }
}

/// The length in nanoseconds.
pub fn span(interval: IntervalMonthDayNano) -> i128 {
    let days = i128::from(interval.months) * 30 + i128::from(interval.days);
    days * DAY_NS + i128::from(interval.nanoseconds)
}

/// The span, followed by 64 bits with the months and days.
fn encode(interval: IntervalMonthDayNano) -> i256 {
    // Flipping the sign bit preserves the order of signed numbers as unsigned ones.
    let unsigned = |number: i32| u128::from(number.cast_unsigned() ^ (1 << 31));
    let parts = unsigned(interval.months) << 32 | unsigned(interval.days);
    i256::from_i128(span(interval)) << 64 | i256::from_parts(parts, 0)
}

fn decode(code: i256) -> IntervalMonthDayNano {
    let (low, high) = code.to_parts();
    let signed = |bits: u128| ((bits as u32) ^ (1 << 31)).cast_signed();
    let (months, days) = (signed(low >> 32), signed(low));
    let span = high << 64 | (low >> 64) as i128;
    let rest = span - (i128::from(months) * 30 + i128::from(days)) * DAY_NS;
    IntervalMonthDayNano::new(months, days, rest as i64)
}

/// Replaces intervals by spans; other values stay unchanged.
pub(crate) fn spans(values: &ArrayRef) -> Result<ArrayRef> {
    let Some(kind) = compared_as(values.data_type()) else { return Ok(Arc::clone(values)) };
    Ok(match (values.data_type(), kind) {
        (DataType::Interval(_), kind) => {
            let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
            Arc::new(intervals.unary::<_, Decimal128Type>(span).with_data_type(kind))
        }
        (DataType::List(_), DataType::List(item)) => spans_in_lists(values.as_list::<i32>(), item)?,
        (DataType::LargeList(_), DataType::LargeList(item)) => spans_in_lists(values.as_list::<i64>(), item)?,
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, size)) => {
            let lists = values.as_fixed_size_list();
            let items = spans(lists.values())?;
            Arc::new(FixedSizeListArray::try_new(item, size, items, lists.nulls().cloned())?)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let rows = values.as_struct();
            let columns = rows.columns().iter().map(spans).collect::<Result<Vec<_>>>()?;
            let length = rows.len();
            Arc::new(StructArray::try_new_with_length(fields, columns, rows.nulls().cloned(), length)?)
        }
        (kind, _) => return internal_err!("{kind} has no spans"),
    })
}

fn spans_in_lists<O: OffsetSizeTrait>(lists: &GenericListArray<O>, item: Arc<Field>) -> Result<ArrayRef> {
    let items = spans(lists.values())?;
    Ok(Arc::new(GenericListArray::try_new(item, lists.offsets().clone(), items, lists.nulls().cloned())?))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Measured {
    measure: Measure,
    signature: Signature,
}

impl ScalarUDFImpl for Measured {
    fn name(&self) -> &str {
        self.measure.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match (self.measure, arguments) {
            (Measure::Span, [kind]) if let Some(compared) = compared_as(kind) => Ok(compared),
            (Measure::Code, [INTERVAL]) => Ok(CODE),
            (Measure::Coded, [CODE]) => Ok(INTERVAL),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values] = arguments.args.as_slice() else {
            return internal_err!("{} has one argument", self.name());
        };
        let is_value = matches!(values, ColumnarValue::Scalar(_));
        let values = values.to_array(if is_value { 1 } else { arguments.number_rows })?;
        let measured: ArrayRef = match self.measure {
            Measure::Span => spans(&values)?,
            Measure::Code => {
                let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
                Arc::new(intervals.unary::<_, Decimal256Type>(encode).with_data_type(CODE))
            }
            Measure::Coded => {
                let codes = values.as_primitive::<Decimal256Type>();
                let intervals: PrimitiveArray<IntervalMonthDayNanoType> = codes.unary(decode);
                Arc::new(intervals)
            }
        };
        match is_value {
            true => ScalarValue::try_from_array(&measured, 0).map(ColumnarValue::Scalar),
            false => Ok(ColumnarValue::Array(measured)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(months: i32, days: i32, nanoseconds: i64) -> IntervalMonthDayNano {
        IntervalMonthDayNano::new(months, days, nanoseconds)
    }

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn intervals_of_one_length_are_equal() {
        assert_eq!(span(of(0, 0, 48 * HOUR)), span(of(0, 2, 0)));
        assert_eq!(span(of(1, 0, 0)), span(of(0, 29, 24 * HOUR)));
        assert_eq!(span(of(1, -30, 0)), 0);
        assert!(span(of(0, 1, 0)) > span(of(0, 0, 23 * HOUR)));
        assert!(span(of(i32::MAX, i32::MAX, i64::MAX)) < 10_i128.pow(25));
    }

    #[test]
    fn interval_codes_are_ordered_and_reversible() {
        let ordered = [
            of(i32::MIN, i32::MIN, i64::MIN),
            of(-1, 0, 0),
            of(0, -30, 1),
            of(0, 0, -1),
            of(-1, 30, 0),
            of(0, 0, 0),
            of(0, 0, 24 * HOUR),
            of(0, 1, 0),
            of(0, 30, 0),
            of(1, 0, 0),
            of(i32::MAX, i32::MAX, i64::MAX),
        ];
        assert!(ordered.map(encode).is_sorted());
        assert!(ordered.map(span).is_sorted());
        assert_eq!(ordered.map(encode).map(decode), ordered);
    }

    #[test]
    fn spans_are_in_lists_and_rows() {
        let field = |kind| Arc::new(Field::new("x", kind, true));
        let list = DataType::List(field(INTERVAL));
        assert_eq!(compared_as(&list), Some(DataType::List(field(SPAN))));
        let row = DataType::Struct(vec![field(DataType::Utf8), field(list.clone())].into());
        let Some(DataType::Struct(fields)) = compared_as(&row) else { panic!("a row") };
        assert_eq!(fields[0].data_type(), &DataType::Utf8);
        assert_eq!(fields[1].data_type(), &DataType::List(field(SPAN)));
        assert_eq!(compared_as(&DataType::List(field(DataType::Int32))), None);
        let intervals: ArrayRef =
            Arc::new(PrimitiveArray::<IntervalMonthDayNanoType>::from(vec![of(0, 1, 0), of(0, 0, HOUR)]));
        let lists: ArrayRef = Arc::new(FixedSizeListArray::new(field(INTERVAL), 2, intervals, None));
        let found = spans(&lists).unwrap();
        let found = found.as_fixed_size_list().values().as_primitive::<Decimal128Type>().clone();
        assert_eq!(found.values(), &[DAY_NS, i128::from(HOUR)]);
    }
}
