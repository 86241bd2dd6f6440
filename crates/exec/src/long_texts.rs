//! `repeat`, `lpad` and `rpad` as PostgreSQL bounds them: a text of a gigabyte is refused before it is made, since no limit of memory
//! sees what a function allocates.
//!
//! They travel to ranks by their names, which are DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_err};
use datafusion::functions::{string, unicode};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// Bytes of a text at most, as PostgreSQL has it.
const TEXT_BYTES_MAX: u64 = (1 << 30) - 1;

/// Bytes of a character at most.
const CHARACTER_BYTES_MAX: u64 = 4;

pub fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [string::repeat(), unicode::lpad(), unicode::rpad()]
        .into_iter()
        .map(|inner| Arc::new(ScalarUDF::new_from_impl(Bounded { inner })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [text, count, ..] = arguments.args.as_slice() else {
            return self.inner.inner().invoke_with_args(arguments);
        };
        let bytes_each = match self.name() {
            // A number of characters, whatever they are.
            "lpad" | "rpad" => None,
            _ => Some(text),
        };
        if !fits(bytes_each, count, arguments.number_rows)? {
            return exec_err!("requested length too large");
        }
        self.inner.inner().invoke_with_args(arguments)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }
}

/// Whether each of the texts is short enough to be made, and all of them together fit an array. `each`: what is counted; `None`:
/// characters.
fn fits(each: Option<&ColumnarValue>, count: &ColumnarValue, rows: usize) -> Result<bool> {
    let rows = match (each, count) {
        (None | Some(ColumnarValue::Scalar(_)), ColumnarValue::Scalar(_)) => 1,
        _ => rows,
    };
    let counts = cast(&count.to_array(rows)?, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let texts = each.map(|each| cast(&each.to_array(rows)?, &DataType::Utf8View)).transpose()?;
    let mut total = 0_u64;
    for row in 0..rows {
        let count = if counts.is_valid(row) { u64::try_from(counts.value(row)).unwrap_or(0) } else { 0 };
        let bytes = match &texts {
            Some(texts) if texts.is_null(row) => 0,
            // The length is in the lower half of a view.
            Some(texts) => u64::from(texts.as_string_view().views()[row] as u32),
            None => CHARACTER_BYTES_MAX,
        };
        let all = bytes.saturating_mul(count);
        total = total.saturating_add(all);
        if all > TEXT_BYTES_MAX {
            return Ok(false);
        }
    }
    // An array of texts counts their bytes in 31 bits; characters are hardly ever of four.
    Ok(each.is_none() || total <= i32::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
    use datafusion::common::ScalarValue;

    #[test]
    fn what_is_a_gigabyte_is_refused() {
        let text = |text: &str| ColumnarValue::Scalar(ScalarValue::Utf8(Some(text.to_string())));
        let count = |count: i64| ColumnarValue::Scalar(ScalarValue::Int64(Some(count)));
        assert!(fits(Some(&text("ab")), &count(1 << 28), 1).unwrap());
        assert!(!fits(Some(&text("ab")), &count(1 << 29), 1).unwrap());
        assert!(!fits(Some(&text("ab")), &count(i64::MAX), 1).unwrap());
        assert!(fits(Some(&text("ab")), &count(-1), 1).unwrap());
        assert!(fits(Some(&text("")), &count(i64::MAX), 1).unwrap());
        assert!(fits(Some(&ColumnarValue::Scalar(ScalarValue::Utf8(None))), &count(i64::MAX), 1).unwrap());
        assert!(fits(None, &count((1 << 28) - 1), 1).unwrap());
        assert!(!fits(None, &count(1 << 28), 1).unwrap());
    }

    #[test]
    fn rows_count_each_and_together() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("abcd")]));
        let with = |counts: Vec<i64>| {
            let counts: ArrayRef = Arc::new(Int64Array::from(counts));
            fits(Some(&ColumnarValue::Array(Arc::clone(&texts))), &ColumnarValue::Array(counts), 3).unwrap()
        };
        assert!(with(vec![1 << 20, i64::MAX, 1 << 20]));
        assert!(!with(vec![1, 1, 1 << 28]));
        assert!(!with(vec![(1 << 30) - 1, 0, (1 << 28) - 1 + (1 << 20)]));
    }
}
