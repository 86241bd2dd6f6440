//! Array elements as texts for `array_to_string`, in PostgreSQL's output format. A plain cast writes booleans
//! as `true` and `false`, a `T` into timestamps and `5.0` for a double, and interprets bytes as UTF-8.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::format::value::texts;
use crate::parse::interval::IntervalStyle;

/// (array, interval style by name) → array of texts, of one dimension: the elements in storage order.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Shown { signature }))
}

/// Whether the elements of an array type have another format than a cast's.
pub fn are_shown(kind: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Boolean, Float32, Float64, Interval, LargeBinary, List, Struct, Time32, Time64,
        Timestamp,
    };
    match kind {
        List(item) => match item.data_type() {
            Boolean | Binary | BinaryView | Float32 | Float64 | LargeBinary | Struct(_) => true,
            Time32(_) | Time64(_) | Timestamp(..) | Interval(IntervalUnit::MonthDayNano) => true,
            inner => are_shown(inner),
        },
        _ => false,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shown {
    signature: Signature,
}

impl ScalarUDFImpl for Shown {
    fn name(&self) -> &str {
        "harrier_shown_elements"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [kind, DataType::Utf8] if are_shown(kind) => {
                Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))))
            }
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [arrays, ColumnarValue::Scalar(ScalarValue::Utf8(Some(style)))] = arguments.args.as_slice()
        else {
            return internal_err!("{} takes an array and a style", self.name());
        };
        let style = IntervalStyle::from_name(style).unwrap_or_default();
        match arrays {
            ColumnarValue::Scalar(value) => {
                let texts = format_elements(value.to_array()?.as_list(), style)?;
                ScalarValue::try_from_array(&texts, 0).map(ColumnarValue::Scalar)
            }
            ColumnarValue::Array(arrays) => {
                Ok(ColumnarValue::Array(Arc::new(format_elements(arrays.as_list(), style)?)))
            }
        }
    }
}

fn format_elements(arrays: &ListArray, style: IntervalStyle) -> Result<ListArray> {
    let mut ends: Vec<i32> = arrays.value_offsets().to_vec();
    let mut elements = Arc::clone(arrays.values());
    while let Some(lists) = elements.as_list_opt::<i32>().cloned() {
        let inner = lists.value_offsets();
        for end in &mut ends {
            *end = inner[*end as usize];
        }
        elements = Arc::clone(lists.values());
    }
    let texts = texts(&elements, style)?;
    let field = Arc::new(Field::new_list_field(DataType::Utf8, true));
    let ends = OffsetBuffer::new(ends.into());
    Ok(ListArray::try_new(field, ends, Arc::new(texts), arrays.nulls().cloned())?)
}
