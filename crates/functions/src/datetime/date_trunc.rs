//! `date_trunc` of timestamps of any year. DataFusion's counts nanoseconds on the way, which begin in 1677 and end in 2262.
//!
//! The calendar repeats itself, weekdays included, after 400 years, so that other years are looked at in one in which it can.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::numeric::{add, sub};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type, TimeUnit};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// Seconds of 400 years.
const CYCLE: i64 = 146_097 * 86_400;

/// Seconds since 1970 of the years 1700 to 2250, which are left as they are.
const NEAR: std::ops::Range<i64> = -8_520_336_000..8_835_955_200;

/// It travels to ranks by its name, which is DataFusion's.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(AnyYear { inner: datetime::date_trunc() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AnyYear {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for AnyYear {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.inner().return_field_from_args(arguments)
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(moments) = arguments.args.get(1) else {
            return internal_err!("{} of {} arguments", self.name(), arguments.args.len());
        };
        let second = match moments.data_type() {
            DataType::Timestamp(TimeUnit::Second, _) => 1,
            DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000,
            DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000_000,
            _ => return self.inner.inner().invoke_with_args(arguments),
        };
        let is_scalar = matches!(moments, ColumnarValue::Scalar(_));
        let moments = moments.to_array(if is_scalar { 1 } else { arguments.number_rows })?;
        let kind = moments.data_type().clone();
        let counts = cast(&moments, &DataType::Int64)?;
        let counts = counts.as_primitive::<Int64Type>();
        let Some(cycles) = cycles(counts, second) else {
            return self.inner.inner().invoke_with_args(arguments);
        };
        arguments.number_rows = moments.len();
        arguments.args[1] = ColumnarValue::Array(cast(&sub(counts, &cycles)?, &kind)?);
        let whole = self.inner.inner().invoke_with_args(arguments)?.into_array(moments.len())?;
        let whole = cast(&add(&cast(&whole, &DataType::Int64)?, &cycles)?, &kind)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&whole, 0)?),
            false => ColumnarValue::Array(whole),
        })
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.inner().output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }
}

/// How long before the years that can be looked at each of the moments is to be looked at, in whole cycles; `None`: none of them has to be.
/// `second`: a second in their unit.
fn cycles(moments: &Int64Array, second: i64) -> Option<Int64Array> {
    let near = NEAR.start * second..NEAR.end * second;
    if moments.iter().flatten().all(|moment| near.contains(&moment)) {
        return None;
    }
    let cycle = CYCLE * second;
    Some(moments.unary(|moment| match near.contains(&moment) {
        true => 0,
        false => moment.div_euclid(cycle) * cycle,
    }))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, StringArray, TimestampMicrosecondArray};
    use datafusion::arrow::datatypes::Field;
    use datafusion::config::ConfigOptions;

    use super::*;

    fn trunc(to: &str, texts: &[&str]) -> Vec<String> {
        let moments: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let kind = DataType::Timestamp(TimeUnit::Microsecond, None);
        let moments = cast(&moments, &kind).unwrap();
        let fields = [DataType::Utf8, kind.clone()].map(|kind| Arc::new(Field::new("a", kind, true)));
        let arguments = ScalarFunctionArgs {
            args: vec![ColumnarValue::Scalar(ScalarValue::from(to)), ColumnarValue::Array(moments)],
            arg_fields: fields.to_vec(),
            number_rows: texts.len(),
            return_field: Arc::clone(&fields[1]),
            config_options: Arc::new(ConfigOptions::new()),
        };
        let whole = function().invoke_with_args(arguments).unwrap().into_array(texts.len()).unwrap();
        let whole = cast(&whole, &DataType::Utf8).unwrap();
        whole.as_string::<i32>().iter().map(|text| text.unwrap().to_string()).collect()
    }

    #[test]
    fn years_are_those_of_the_calendar() {
        let texts = ["9999-12-31T23:59:59.999999", "0001-03-01T12:00:00", "2024-03-01T12:30:00"];
        let expected = ["9999-12-01T00:00:00", "0001-03-01T00:00:00", "2024-03-01T00:00:00"];
        assert_eq!(trunc("month", &texts), expected);
        // Fridays, all three but the second, which is a Thursday.
        let expected = ["9999-12-27T00:00:00", "0001-02-26T00:00:00", "2024-02-26T00:00:00"];
        assert_eq!(trunc("week", &texts), expected);
        assert_eq!(trunc("hour", &texts)[0], "9999-12-31T23:00:00");
        assert_eq!(trunc("millisecond", &texts)[0], "9999-12-31T23:59:59.999");
    }

    #[test]
    fn near_years_are_left() {
        let at = |text: &str| {
            let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
            let moments = cast(&texts, &DataType::Timestamp(TimeUnit::Second, None)).unwrap();
            cast(&moments, &DataType::Int64).unwrap().as_primitive::<Int64Type>().value(0)
        };
        assert_eq!(NEAR, at("1700-01-01T00:00:00")..at("2250-01-01T00:00:00"));
        let moments = TimestampMicrosecondArray::from(vec![Some(0), None]);
        let counts = cast(&moments, &DataType::Int64).unwrap();
        assert_eq!(cycles(counts.as_primitive(), 1_000_000), None);
    }
}
