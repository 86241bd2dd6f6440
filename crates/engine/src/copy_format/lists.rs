//! Arrays in PostgreSQL's text format: `{1,NULL,"a, b"}`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::FormatOptions;
use harrier_functions::format::datetime::{formatter, trim};
use harrier_functions::format::double::{put_double, put_real};
use harrier_functions::format::value::put_element;

/// The columns of a batch, with arrays converted to text.
pub(crate) fn as_texts(batch: &RecordBatch, options: &FormatOptions) -> Result<Vec<ArrayRef>, ArrowError> {
    let text = |column: &ArrayRef| match as_list(column)? {
        Some(list) => texts(&list, options),
        None => Ok(Arc::clone(column)),
    };
    batch.columns().iter().map(text).collect()
}

/// Converts an array of lists to 32-bit offsets; `None` for other arrays.
fn as_list(array: &ArrayRef) -> Result<Option<ArrayRef>, ArrowError> {
    match array.data_type() {
        DataType::List(_) => Ok(Some(Arc::clone(array))),
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            cast(array, &DataType::List(Arc::clone(item))).map(Some)
        }
        _ => Ok(None),
    }
}

fn texts(lists: &ArrayRef, options: &FormatOptions) -> Result<ArrayRef, ArrowError> {
    let list = lists.as_list::<i32>();
    let mut texts = StringBuilder::new();
    let mut text = String::new();
    for row in 0..list.len() {
        if list.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        write(&mut text, &list.value(row), options)?;
        texts.append_value(&text);
    }
    Ok(Arc::new(texts.finish()))
}

fn write(text: &mut String, values: &ArrayRef, options: &FormatOptions) -> Result<(), ArrowError> {
    text.push('{');
    let nested = as_list(values)?;
    let formatter = formatter(values.as_ref(), options)?;
    let nulls = values.logical_nulls();
    let mut value = String::new();
    for place in 0..values.len() {
        if place > 0 {
            text.push(',');
        }
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(place)) {
            text.push_str("NULL");
            continue;
        }
        if let Some(nested) = &nested {
            write(text, &nested.as_list::<i32>().value(place), options)?;
            continue;
        }
        value.clear();
        match values.data_type() {
            DataType::Boolean => value.push(if values.as_boolean().value(place) { 't' } else { 'f' }),
            DataType::Float32 => {
                let mut float = Vec::new();
                put_real(&mut float, values.as_primitive::<Float32Type>().value(place));
                value.push_str(&String::from_utf8_lossy(&float));
            }
            DataType::Float64 => {
                let mut float = Vec::new();
                put_double(&mut float, values.as_primitive::<Float64Type>().value(place));
                value.push_str(&String::from_utf8_lossy(&float));
            }
            DataType::Timestamp(..) | DataType::Time64(_) | DataType::Time32(_) => {
                value.push_str(&trim(formatter.value(place).try_to_string()?));
            }
            data_type => {
                if data_type.is_binary() {
                    value.push_str("\\x");
                }
                formatter.value(place).write(&mut value)?;
            }
        }
        put_element(text, &value);
    }
    text.push('}');
    Ok(())
}
