//! Elements of arrays as the texts that `array_to_string` puts together, as PostgreSQL writes values of their
//! types. A cast by itself writes booleans as `true` and `false`, a `T` into timestamps and `5.0` for a
//! double, and takes bytes for UTF-8.

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

/// (array, style of intervals by its name) → array of texts, of one dimension: the elements in the order in
/// which they are stored.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Shown { signature }))
}

/// Whether arrays of this type have elements that a cast writes otherwise.
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
        let style = IntervalStyle::named(style).unwrap_or_default();
        match arrays {
            ColumnarValue::Scalar(value) => {
                let texts = shown(value.to_array()?.as_list(), style)?;
                ScalarValue::try_from_array(&texts, 0).map(ColumnarValue::Scalar)
            }
            ColumnarValue::Array(arrays) => {
                Ok(ColumnarValue::Array(Arc::new(shown(arrays.as_list(), style)?)))
            }
        }
    }
}

fn shown(arrays: &ListArray, style: IntervalStyle) -> Result<ListArray> {
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
