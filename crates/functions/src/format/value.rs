//! Bytes, arrays and rows as texts in PostgreSQL's format: `\x6162`, `{1,NULL,"a, b"}`, `(1,,"a b")`. A plain
//! cast interprets bytes as UTF-8, and has other notations for nested values.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder, StructArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::delegation::show_as_argument;
use crate::format;
use crate::parse::interval::IntervalStyle;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// (bytes, array or row; interval style by name) → text.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Shown { signature }))
}

/// Whether values of this type have another format than a cast's.
pub fn are_shown(kind: &DataType) -> bool {
    kind.is_binary() || is_list(kind) || matches!(kind, DataType::Struct(_))
}

fn is_list(kind: &DataType) -> bool {
    matches!(kind, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shown {
    signature: Signature,
}

impl ScalarUDFImpl for Shown {
    fn name(&self) -> &str {
        "harrier_shown_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [kind, DataType::Utf8] if are_shown(kind) => Ok(DataType::Utf8),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values, ColumnarValue::Scalar(ScalarValue::Utf8(Some(style)))] = arguments.args.as_slice()
        else {
            return internal_err!("{} takes a value and a style", self.name());
        };
        let style = IntervalStyle::from_name(style).unwrap_or_default();
        match values {
            ColumnarValue::Scalar(value) => {
                let texts = texts(&value.to_array()?, style)?;
                ScalarValue::try_from_array(&texts, 0).map(ColumnarValue::Scalar)
            }
            ColumnarValue::Array(values) => Ok(ColumnarValue::Array(Arc::new(texts(values, style)?))),
        }
    }

    show_as_argument!();
}

/// Formats values of any type.
pub(crate) fn texts(values: &ArrayRef, style: IntervalStyle) -> Result<StringArray> {
    match values.data_type() {
        DataType::Boolean => {
            let texts = values.as_boolean().iter();
            Ok(texts.map(|value| value.map(|value| if value { "t" } else { "f" })).collect())
        }
        DataType::Interval(_) => {
            let intervals = cast(values, &INTERVAL)?;
            format::interval::format_array(intervals.as_primitive::<IntervalMonthDayNanoType>(), style)
        }
        DataType::Float32 | DataType::Float64 => format::double::format_array(values.as_ref()),
        DataType::Date32 | DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => {
            format::datetime::format_array(values)
        }
        DataType::Struct(_) => rows(values.as_struct(), style),
        kind if kind.is_binary() => {
            let bytes = cast(values, &DataType::Binary)?;
            let hex = |bytes: &[u8]| {
                let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
                std::iter::once(r"\x".to_string()).chain(digits).collect::<String>()
            };
            Ok(bytes.as_binary::<i32>().iter().map(|bytes| bytes.map(hex)).collect())
        }
        kind if is_list(kind) => arrays(values, style),
        _ => Ok(cast(values, &DataType::Utf8)?.as_string::<i32>().clone()),
    }
}

fn arrays(values: &ArrayRef, style: IntervalStyle) -> Result<StringArray> {
    let values = match values.data_type() {
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            cast(values, &DataType::List(Arc::clone(item)))?
        }
        _ => Arc::clone(values),
    };
    let lists = values.as_list::<i32>();
    let is_nested = is_list(lists.values().data_type());
    let elements = texts(lists.values(), style)?;
    let mut all = StringBuilder::new();
    let mut text = String::new();
    for row in 0..lists.len() {
        if lists.is_null(row) {
            all.append_null();
            continue;
        }
        text.clear();
        text.push('{');
        let places = lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
        for place in places.clone() {
            if place > places.start {
                text.push(',');
            }
            match elements.is_valid(place) {
                true if is_nested => text.push_str(elements.value(place)),
                true => put_element(&mut text, elements.value(place)),
                false => text.push_str("NULL"),
            }
        }
        text.push('}');
        all.append_value(&text);
    }
    Ok(all.finish())
}

/// Writes an array element, quoted where it would be ambiguous.
pub fn put_element(text: &mut String, value: &str) {
    let is_plain = !value.is_empty()
        && !value.eq_ignore_ascii_case("null")
        && !value.contains(|letter: char| {
            matches!(letter, '{' | '}' | '"' | ',' | '\\') || letter.is_ascii_whitespace() || letter == '\x0b'
        });
    if is_plain {
        return text.push_str(value);
    }
    text.push('"');
    for letter in value.chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
}

fn rows(values: &StructArray, style: IntervalStyle) -> Result<StringArray> {
    let columns = values.columns().iter().map(|column| texts(column, style)).collect::<Result<Vec<_>>>()?;
    let mut all = StringBuilder::new();
    let mut text = String::new();
    for row in 0..values.len() {
        if values.is_null(row) {
            all.append_null();
            continue;
        }
        text.clear();
        text.push('(');
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            // NULL is written as nothing at all.
            if column.is_valid(row) {
                put_field(&mut text, column.value(row));
            }
        }
        text.push(')');
        all.append_value(&text);
    }
    Ok(all.finish())
}

/// Writes a row field, quoted where it would be ambiguous.
fn put_field(text: &mut String, value: &str) {
    let is_plain = !value.is_empty()
        && !value.contains(|letter: char| {
            matches!(letter, '(' | ')' | '"' | ',' | '\\') || letter.is_ascii_whitespace() || letter == '\x0b'
        });
    if is_plain {
        return text.push_str(value);
    }
    text.push('"');
    for letter in value.chars() {
        if matches!(letter, '"' | '\\') {
            text.push(letter);
        }
        text.push(letter);
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_fields_are_quoted_if_necessary() {
        let written = |put: fn(&mut String, &str), value: &str| {
            let mut text = String::new();
            put(&mut text, value);
            text
        };
        for (value, element, field) in [
            ("a", "a", "a"),
            ("", r#""""#, r#""""#),
            ("null", r#""null""#, "null"),
            ("b c", r#""b c""#, r#""b c""#),
            (r#""\"#, r#""\"\\""#, r#""""\\""#),
            ("{1}", r#""{1}""#, "{1}"),
            ("(1)", "(1)", r#""(1)""#),
            ("a\u{a0}b", "a\u{a0}b", "a\u{a0}b"),
        ] {
            assert_eq!(written(put_element, value), element);
            assert_eq!(written(put_field, value), field);
        }
    }
}
