//! Bounds of arrays as texts, their elements without the last ones, and how many values are NULL.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::common::{Result, ScalarValue};
use std::fmt::Write;
use std::sync::Arc;

use super::{Any, Definition, Int, List, Text, field_of, int};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::new("array_dims", &[List], Text, |values| match &values[0] {
        ScalarValue::List(list) => Ok(ScalarValue::Utf8(bounds(&list.value(0)))),
        _ => Ok(ScalarValue::Utf8(None)),
    }),
    Definition::new("trim_array", &[List, Int], List, |values| match &values[0] {
        ScalarValue::List(list) => trimmed(list, int(&values[1])),
        other => Ok(other.clone()),
    }),
    Definition::new("num_nulls", &[Any], Int, |values| Ok(count(values, true))).from(0),
    Definition::new("num_nonnulls", &[Any], Int, |values| Ok(count(values, false))).from(0),
];

fn count(values: &[ScalarValue], of_nulls: bool) -> ScalarValue {
    ScalarValue::from(values.iter().filter(|value| value.is_null() == of_nulls).count() as i64)
}

/// `[1:2][1:3]` of two lists of three; `None`: there are no elements.
fn bounds(list: &ArrayRef) -> Option<String> {
    let mut text = String::new();
    let mut list = Arc::clone(list);
    while !list.is_empty() {
        write!(text, "[1:{}]", list.len()).ok()?;
        list = match list.as_list_opt::<i32>().filter(|lists| lists.is_valid(0)) {
            Some(lists) => lists.value(0),
            None => break,
        };
    }
    (!text.is_empty()).then_some(text)
}

/// Errors: there are not so many elements (2202E).
fn trimmed(list: &ListArray, count: i64) -> Result<ScalarValue> {
    let elements = list.value(0);
    let length = elements.len();
    let Some(left) = usize::try_from(count).ok().and_then(|count| length.checked_sub(count)) else {
        let message = format!("number of elements to trim must be between 0 and {length}");
        return Err(SqlError::new(SqlState::ARRAY_ELEMENT_ERROR, message).into_datafusion());
    };
    let Some(field) = field_of(list.data_type()) else {
        return Ok(ScalarValue::List(Arc::new(list.clone())));
    };
    let left = elements.slice(0, left);
    let list =
        ListArray::try_new(Arc::new(field.clone()), OffsetBuffer::from_lengths([left.len()]), left, None)?;
    Ok(ScalarValue::List(Arc::new(list)))
}
