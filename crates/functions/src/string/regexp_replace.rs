//! Replacement texts of `regexp_replace` in PostgreSQL's syntax: only `\1` to `\9`, `\&` and `\\` are
//! special. In DataFusion's, `$1`, `$name` and `${1}` are, and two backslashes stay two.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, LargeStringArray, StringArray, StringViewArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::delegation::show_as_argument;

/// (text) → the same in DataFusion's syntax. Ranks know it by its name.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::string(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Replacement { signature }))
}

/// Translates a replacement to DataFusion's syntax.
pub fn normal(text: &str) -> Cow<'_, str> {
    if !text.contains(['$', '\\']) {
        return Cow::Borrowed(text);
    }
    let mut normal = String::with_capacity(text.len() + 8);
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        match (next, rest.peek()) {
            ('$', _) => normal += "$$",
            ('\\', Some(digit @ '1'..='9')) => {
                normal.extend(["${", &digit.to_string(), "}"]);
                rest.next();
            }
            ('\\', Some('&')) => {
                normal += "${0}";
                rest.next();
            }
            ('\\', second) => {
                if second == Some(&'\\') {
                    rest.next();
                }
                normal.push('\\');
                // Before a digit it would be a group again; a group without a name is empty.
                if rest.peek().is_some_and(char::is_ascii_digit) {
                    normal += "${none}";
                }
            }
            (other, _) => normal.push(other),
        }
    }
    Cow::Owned(normal)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Replacement {
    signature: Signature,
}

impl ScalarUDFImpl for Replacement {
    fn name(&self) -> &str {
        "harrier_replacement"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [text] if text.is_string() => Ok(text.clone()),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts] = arguments.args.as_slice() else {
            return internal_err!("{} has one argument", self.name());
        };
        let is_value = matches!(texts, ColumnarValue::Scalar(_));
        let texts = texts.to_array(if is_value { 1 } else { arguments.number_rows })?;
        let texts: ArrayRef = match texts.data_type() {
            DataType::Utf8 => Arc::new(
                texts.as_string::<i32>().iter().map(|text| text.map(normal)).collect::<StringArray>(),
            ),
            DataType::LargeUtf8 => Arc::new(
                texts.as_string::<i64>().iter().map(|text| text.map(normal)).collect::<LargeStringArray>(),
            ),
            DataType::Utf8View => Arc::new(
                texts.as_string_view().iter().map(|text| text.map(normal)).collect::<StringViewArray>(),
            ),
            other => return internal_err!("{other} is no text"),
        };
        Ok(match is_value {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?),
            false => ColumnarValue::Array(texts),
        })
    }

    show_as_argument!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacement_escapes_are_those_of_postgresql() {
        for (text, expected) in [
            ("X", "X"),
            ("$100", "$$100"),
            (r"\2, \1", "${2}, ${1}"),
            (r"<\&>", "<${0}>"),
            (r"a\\b", r"a\b"),
            (r"a\\1", r"a\${none}1"),
            (r"\0", r"\${none}0"),
            (r"\x\", r"\x\"),
            (r"\12", "${1}2"),
        ] {
            assert_eq!(normal(text), expected);
        }
    }
}
