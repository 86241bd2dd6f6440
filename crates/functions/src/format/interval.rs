//! Intervals as texts in PostgreSQL's format: a plain cast writes `1 days 3 hours`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, PrimitiveArray, StringArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::delegation::show_as_argument;
use crate::parse::interval::IntervalStyle;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// (interval, style by its name) → text.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Shown { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shown {
    signature: Signature,
}

impl ScalarUDFImpl for Shown {
    fn name(&self) -> &str {
        "harrier_shown_interval"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [INTERVAL, DataType::Utf8] => Ok(DataType::Utf8),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values, ColumnarValue::Scalar(ScalarValue::Utf8(Some(style)))] = arguments.args.as_slice()
        else {
            return internal_err!("{} takes an interval and a style", self.name());
        };
        let style = IntervalStyle::from_name(style).unwrap_or_default();
        let is_scalar = matches!(values, ColumnarValue::Scalar(_));
        let values = values.to_array(if is_scalar { 1 } else { arguments.number_rows })?;
        let texts = format_array(values.as_primitive::<IntervalMonthDayNanoType>(), style)?;
        match is_scalar {
            true => ScalarValue::try_from_array(&texts, 0).map(ColumnarValue::Scalar),
            false => Ok(ColumnarValue::Array(Arc::new(texts))),
        }
    }

    show_as_argument!();
}

/// Formats intervals.
pub(crate) fn format_array(
    values: &PrimitiveArray<IntervalMonthDayNanoType>,
    style: IntervalStyle,
) -> Result<StringArray> {
    let mut texts = StringBuilder::new();
    for at in 0..values.len() {
        if values.is_null(at) {
            texts.append_null();
            continue;
        }
        let value = values.value(at);
        style.write(&mut texts, value.months, value.days, value.nanoseconds / 1_000)?;
        texts.append_value("");
    }
    Ok(texts.finish())
}
