//! Functions whose results are made of several values: lists, lists with places, and JSON.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, AsArray, Int32Array, ListArray, StringArray, StringBuilder, StructArray, new_empty_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::types::catalog_field;

/// `information_schema._pg_expandarray`: the elements of a list with their places, as a list of structs of `x` and `n`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ExpandArray {
    signature: Signature,
}

impl ExpandArray {
    pub(super) fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }

    fn result(list: &DataType) -> Result<DataType> {
        let DataType::List(item) = list else {
            return plan_err!("function _pg_expandarray({list}) does not exist");
        };
        let fields = Fields::from(vec![
            Field::new("x", item.data_type().clone(), true),
            Field::new("n", DataType::Int32, false),
        ]);
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Struct(fields), true))))
    }
}

impl ScalarUDFImpl for ExpandArray {
    fn name(&self) -> &str {
        "_pg_expandarray"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given.first() {
            Some(list) => Self::result(list),
            None => plan_err!("function _pg_expandarray() does not exist"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = arguments.args[0].to_array(arguments.number_rows)?;
        let list = array.as_list::<i32>();
        let DataType::List(item) = Self::result(array.data_type())? else {
            return exec_err!("a list was expected");
        };
        let DataType::Struct(fields) = item.data_type() else { return exec_err!("a struct was expected") };
        let lengths =
            (0..list.len()).map(|row| if list.is_null(row) { 0 } else { list.value_length(row) as usize });
        let lengths = lengths.collect::<Vec<_>>();
        let places = lengths.iter().flat_map(|length| 1..=*length as i32).collect::<Int32Array>();
        let start = list.value_offsets()[0] as usize;
        let values = list.values().slice(start, places.len());
        let structs = StructArray::try_new(fields.clone(), vec![values, Arc::new(places)], None)?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        let expanded =
            ListArray::try_new(Arc::clone(&item), offsets, Arc::new(structs), list.nulls().cloned())?;
        Ok(ColumnarValue::Array(Arc::new(expanded)))
    }
}

/// What `ARRAY(SELECT …)` is without rows: an empty array, where an aggregate is null.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ArrayOrEmpty {
    signature: Signature,
}

impl ArrayOrEmpty {
    pub(super) fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ArrayOrEmpty {
    fn name(&self) -> &str {
        "array_or_empty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given {
            [list @ DataType::List(_)] => Ok(list.clone()),
            // An array that is a text, as in `coalesce(x, '{}')`.
            [DataType::Utf8] => Ok(DataType::Utf8),
            _ => plan_err!("function array_or_empty does not exist for these arguments"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = arguments.args[0].to_array(arguments.number_rows)?;
        if *array.data_type() == DataType::Utf8 {
            let texts = array.as_string::<i32>().iter().map(|text| Some(text.unwrap_or("{}")));
            return Ok(ColumnarValue::Array(Arc::new(texts.collect::<StringArray>())));
        }
        let list = array.as_list::<i32>();
        let DataType::List(item) = array.data_type() else { return exec_err!("a list was expected") };
        if list.null_count() == 0 {
            return Ok(ColumnarValue::Array(array));
        }
        // A null may have elements behind it, which have to go.
        let rows = (0..list.len()).map(|row| list.is_valid(row).then(|| list.value(row))).collect::<Vec<_>>();
        let offsets =
            OffsetBuffer::from_lengths(rows.iter().map(|row| row.as_ref().map_or(0, |row| row.len())));
        let present = rows.iter().flatten().map(|row| row.as_ref()).collect::<Vec<_>>();
        let values = match present.is_empty() {
            true => new_empty_array(item.data_type()),
            false => concat(&present)?,
        };
        Ok(ColumnarValue::Array(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, None)?)))
    }
}

/// `json_build_object`: keys and values in turn.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct JsonObject {
    signature: Signature,
}

impl JsonObject {
    pub(super) fn new() -> Self {
        Self { signature: Signature::variadic_any(Volatility::Stable) }
    }
}

impl ScalarUDFImpl for JsonObject {
    fn name(&self) -> &str {
        "json_build_object"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(catalog_field("json_build_object", "json", true))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if !arguments.args.len().is_multiple_of(2) {
            return exec_err!("argument list must have even number of elements");
        }
        let rows = arguments.number_rows;
        let arrays =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let options = FormatOptions::default();
        let formats = arrays
            .iter()
            .map(|array| ArrayFormatter::try_new(array, &options))
            .collect::<Result<Vec<_>, _>>()?;
        let mut objects = StringBuilder::new();
        for row in 0..rows {
            let mut members = vec![];
            for (key, value) in (0..arrays.len()).step_by(2).map(|key| (key, key + 1)) {
                if arrays[key].is_null(row) {
                    return exec_err!("argument {} cannot be null", key + 1);
                }
                let text = formats[value].value(row).to_string();
                let plain =
                    arrays[value].data_type().is_numeric() || *arrays[value].data_type() == DataType::Boolean;
                let value = match (arrays[value].is_null(row) || arrays[value].data_type().is_null(), plain) {
                    (true, _) => "null".to_string(),
                    (false, true) => text,
                    (false, false) => json_text(&text),
                };
                members.push(format!("{} : {value}", json_text(&formats[key].value(row).to_string())));
            }
            objects.append_value(format!("{{{}}}", members.join(", ")));
        }
        Ok(ColumnarValue::Array(Arc::new(objects.finish())))
    }
}

pub(super) fn json_text(text: &str) -> String {
    let mut written = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => written += "\\\"",
            '\\' => written += "\\\\",
            '\n' => written += "\\n",
            '\r' => written += "\\r",
            '\t' => written += "\\t",
            control if u32::from(control) < 0x20 => written += &format!("\\u{:04x}", u32::from(control)),
            other => written.push(other),
        }
    }
    written + "\""
}
