//! Array bounds as texts, `trim_array`, counts of NULLs, and row texts.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use std::fmt::Write;
use std::sync::Arc;

use super::{Any, Definition, Int, Int4, List, Text, field_of, int};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::new("array_dims", &[List], Text, |values| match &values[0] {
        ScalarValue::List(list) => Ok(ScalarValue::Utf8(bounds(&list.value(0)))),
        _ => Ok(ScalarValue::Utf8(None)),
    }),
    Definition::new("array_length", &[List, Int], Int4, |values| match &values[0] {
        ScalarValue::List(list) => {
            let length = match values.get(1) {
                Some(dimension) => length(&list.value(0), int(dimension)),
                // DuckDB's and DataFusion's extension of PostgreSQL: an empty array has no elements, and is
                // not NULL.
                None => i32::try_from(list.value(0).len()).ok(),
            };
            Ok(ScalarValue::Int32(length))
        }
        _ => Ok(ScalarValue::Int32(None)),
    })
    .from(1),
    Definition::new("array_ndims", &[List], Int4, |values| match &values[0] {
        ScalarValue::List(list) => {
            let dimensions = (1..).take_while(|dimension| length(&list.value(0), *dimension).is_some());
            Ok(ScalarValue::Int32(
                i32::try_from(dimensions.count()).ok().filter(|dimensions| *dimensions > 0),
            ))
        }
        _ => Ok(ScalarValue::Int32(None)),
    }),
    Definition::new("trim_array", &[List, Int], List, |values| match &values[0] {
        ScalarValue::List(list) => trim(list, int(&values[1])),
        other => Ok(other.clone()),
    }),
    // Number of elements of `array_fill`: a size, or arrays of the sizes and of the lower bounds.
    Definition::new("harrier_array_size", &[Any], Int, size).from(0),
    Definition::new("num_nulls", &[Any], Int, |values| Ok(count(values, true))).from(0),
    // `num_nulls(VARIADIC a)`.
    Definition::new("harrier_num_nulls_of", &[Any], Int, |values| count_elements(values, true)).from(0),
    Definition::new("harrier_num_nonnulls_of", &[Any], Int, |values| count_elements(values, false)).from(0),
    Definition::new("harrier_row_text", &[Any], Text, |values| Ok(row_text(values))).from(0),
    Definition::new("num_nonnulls", &[Any], Int, |values| Ok(count(values, false))).from(0),
];

/// `(1,"a b",)` from the texts of its columns: quoted if empty or with special characters.
fn row_text(values: &[ScalarValue]) -> ScalarValue {
    let written = values.iter().map(|value| {
        let Some(text) = value.try_as_str().flatten() else { return String::new() };
        let is_special =
            |sign: char| matches!(sign, '(' | ')' | ',' | '"' | '\\') || sign.is_ascii_whitespace();
        match text.is_empty() || text.contains(is_special) {
            true => format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\"\"")),
            false => text.to_string(),
        }
    });
    ScalarValue::Utf8(Some(format!("({})", written.collect::<Vec<_>>().join(","))))
}

/// Errors: a size is NULL (22004) or invalid (54000), or there are several dimensions, or a lower bound other
/// than 1 (0A000).
fn size(values: &[ScalarValue]) -> Result<ScalarValue> {
    let refused = |state, message: &str| Err(SqlError::new(state, message).into_datafusion());
    let mut numbers = Vec::new();
    for value in values {
        numbers.push(match value {
            ScalarValue::List(list) if list.is_valid(0) => {
                let elements = list.value(0);
                match elements.len() {
                    0 => return Ok(ScalarValue::from(0_i64)),
                    1 => ScalarValue::try_from_array(&elements, 0)?,
                    _ => {
                        let message = "array_fill of several dimensions takes them as ARRAY[…]";
                        return refused(SqlState::FEATURE_NOT_SUPPORTED, message);
                    }
                }
            }
            ScalarValue::List(_) | ScalarValue::Null if values.len() > 1 => {
                let message = "dimension array or low bound array cannot be null";
                return refused(SqlState::NULL_VALUE_NOT_ALLOWED, message);
            }
            other => other.clone(),
        });
    }
    if numbers.iter().any(ScalarValue::is_null) {
        return refused(SqlState::NULL_VALUE_NOT_ALLOWED, "dimension values cannot be null");
    }
    let numbers =
        numbers.iter().map(|number| number.cast_to(&DataType::Int64)).collect::<Result<Vec<_>>>()?;
    match numbers.iter().map(int).collect::<Vec<_>>().as_slice() {
        [..0, ..] => {
            let message = "array size exceeds the maximum allowed";
            refused(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
        }
        [size] | [size, 1] => Ok(ScalarValue::from(*size)),
        _ => refused(SqlState::FEATURE_NOT_SUPPORTED, "the first element of an array is its first"),
    }
}

fn count(values: &[ScalarValue], of_nulls: bool) -> ScalarValue {
    ScalarValue::from(values.iter().filter(|value| value.is_null() == of_nulls).count() as i64)
}

/// Errors: the first value is no array (42804).
fn count_elements(values: &[ScalarValue], of_nulls: bool) -> Result<ScalarValue> {
    match &values[0] {
        ScalarValue::List(list) if list.is_null(0) => Ok(ScalarValue::Int64(None)),
        ScalarValue::List(list) => {
            let elements = list.value(0);
            let nulls = elements.logical_null_count();
            Ok(ScalarValue::from(if of_nulls { nulls } else { elements.len() - nulls } as i64))
        }
        value if value.data_type().is_null() => Ok(ScalarValue::Int64(None)),
        _ => {
            let message = "VARIADIC argument must be an array";
            Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).into_datafusion())
        }
    }
}

/// `[1:2][1:3]` for two lists of three; `None`: there are no elements.
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

/// The length of a dimension, from 1; `None`: there is none.
fn length(list: &ArrayRef, dimension: i64) -> Option<i32> {
    let mut list = Arc::clone(list);
    for _ in 1..dimension {
        let lists = list.as_list_opt::<i32>().filter(|lists| !lists.is_empty() && lists.is_valid(0))?;
        list = lists.value(0);
    }
    (dimension > 0 && !list.is_empty()).then(|| list.len() as i32)
}

/// Errors: there are not so many elements (2202E).
fn trim(list: &ListArray, count: i64) -> Result<ScalarValue> {
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
