//! Functions that write JSON, as texts of the type `json` or `jsonb`.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use crate::types::{TYPE_KEY, catalog_field};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// A value. NULL stays NULL.
    Value,
    /// Keys and values in turn.
    Object,
    /// Values.
    Array,
    /// A value as an aggregate collects it: what has several parts begins a line.
    Item,
    /// What was collected so.
    Items,
    /// A key and a value as an aggregate collects them.
    Member,
    Members,
}

/// Names, what they do, and whether what they give is of `jsonb`. The last ones stand for aggregates: `rewrite/json.rs`.
const FUNCTIONS: [(&str, Kind, bool); 16] = [
    ("to_json", Kind::Value, false),
    ("to_jsonb", Kind::Value, true),
    ("row_to_json", Kind::Value, false),
    ("array_to_json", Kind::Value, false),
    ("json_build_object", Kind::Object, false),
    ("jsonb_build_object", Kind::Object, true),
    ("json_build_array", Kind::Array, false),
    ("jsonb_build_array", Kind::Array, true),
    ("json_agg_item", Kind::Item, false),
    ("jsonb_agg_item", Kind::Item, true),
    ("json_agg_items", Kind::Items, false),
    ("jsonb_agg_items", Kind::Items, true),
    ("json_object_agg_member", Kind::Member, false),
    ("jsonb_object_agg_member", Kind::Member, true),
    ("json_object_agg_members", Kind::Members, false),
    ("jsonb_object_agg_members", Kind::Members, true),
];

pub(super) fn functions() -> impl Iterator<Item = ScalarUDF> {
    FUNCTIONS.into_iter().map(|(name, kind, is_binary)| {
        let signature =
            Signature::one_of(vec![TypeSignature::VariadicAny, TypeSignature::Nullary], Volatility::Stable);
        ScalarUDF::new_from_impl(Json { name, kind, is_binary, signature })
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Json {
    name: &'static str,
    kind: Kind,
    is_binary: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Json {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let given = arguments.arg_fields.len();
        let fits = match self.kind {
            Kind::Value => given == 1 || given == 2 && !self.is_binary,
            Kind::Item | Kind::Items | Kind::Members => given == 1,
            Kind::Member => given == 2,
            Kind::Object | Kind::Array => true,
        };
        if !fits {
            return plan_err!("function {} with {given} arguments does not exist", self.name);
        }
        Ok(catalog_field(self.name, if self.is_binary { "jsonb" } else { "json" }, true))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let values: Vec<(&ArrayRef, &Field)> =
            arrays.iter().zip(arguments.arg_fields.iter().map(AsRef::as_ref)).collect();
        let mut written = StringBuilder::new();
        for row in 0..rows {
            match self.written(&values, row)? {
                Some(text) if self.is_binary && !matches!(self.kind, Kind::Item | Kind::Member) => {
                    written.append_value(ordered(&text)?);
                }
                text => written.append_option(text),
            }
        }
        Ok(ColumnarValue::Array(Arc::new(written.finish())))
    }
}

impl Json {
    fn written(&self, values: &[(&ArrayRef, &Field)], row: usize) -> Result<Option<String>> {
        let mut text = String::new();
        match self.kind {
            Kind::Value => {
                let (array, field) = values[0];
                if is_null(array, row) {
                    return Ok(None);
                }
                write(&mut text, array, field, row)?;
            }
            Kind::Object => {
                if !values.len().is_multiple_of(2) {
                    return exec_err!("argument list must have even number of elements");
                }
                text.push('{');
                for (at, member) in values.chunks(2).enumerate() {
                    text += if at == 0 { "" } else { ", " };
                    self::member(&mut text, member, row, 2 * at + 1)?;
                }
                text.push('}');
            }
            Kind::Array => {
                text.push('[');
                for (at, (array, field)) in values.iter().enumerate() {
                    text += if at == 0 { "" } else { ", " };
                    write(&mut text, array, field, row)?;
                }
                text.push(']');
            }
            Kind::Item => {
                let (array, field) = values[0];
                let has_parts =
                    matches!(array.data_type(), DataType::Struct(_)) || is_list(array.data_type());
                if has_parts && !is_null(array, row) {
                    text.push_str(LINE);
                }
                write(&mut text, array, field, row)?;
            }
            Kind::Member => member(&mut text, values, row, 1)?,
            Kind::Items => return collected(values[0].0, row, "[", "]"),
            Kind::Members => return collected(values[0].0, row, "{ ", " }"),
        }
        Ok(Some(text))
    }
}

/// What stands before an item that has parts, unless it is the first.
const LINE: &str = "\n ";

/// What an aggregate has collected; NULL without rows.
fn collected(array: &ArrayRef, row: usize, open: &str, close: &str) -> Result<Option<String>> {
    if is_null(array, row) {
        return Ok(None);
    }
    let items = cast(&array.as_list::<i32>().value(row), &DataType::Utf8)?;
    let items = items.as_string::<i32>().iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join(", ");
    let items = items.strip_prefix(LINE).unwrap_or(&items);
    Ok(Some(format!("{open}{items}{close}")))
}

fn member(text: &mut String, member: &[(&ArrayRef, &Field)], row: usize, number: usize) -> Result<()> {
    let ((key, _), (value, field)) = (member[0], member[1]);
    if is_null(key, row) {
        return exec_err!("argument {number} cannot be null");
    }
    let key = ArrayFormatter::try_new(key, &options())?.value(row).to_string();
    *text += &json_text(&key);
    *text += " : ";
    write(text, value, field, row)
}

fn is_null(array: &ArrayRef, row: usize) -> bool {
    array.is_null(row) || array.data_type().is_null()
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

fn options() -> FormatOptions<'static> {
    FormatOptions::default().with_timestamp_tz_format(Some("%Y-%m-%dT%H:%M:%S%.f%:z"))
}

/// A value as PostgreSQL's `to_json` writes it.
fn write(text: &mut String, array: &ArrayRef, field: &Field, row: usize) -> Result<()> {
    if is_null(array, row) {
        text.push_str("null");
        return Ok(());
    }
    let pg_type = field.metadata().get(TYPE_KEY).map(String::as_str);
    let is_json = matches!(pg_type, Some("json" | "jsonb"));
    match array.data_type() {
        DataType::Struct(fields) => {
            let members = array.as_struct();
            for (at, (member, column)) in fields.iter().zip(members.columns()).enumerate() {
                text.push(if at == 0 { '{' } else { ',' });
                *text += &json_text(member.name());
                text.push(':');
                write(text, column, member, row)?;
            }
            text.push_str(if fields.is_empty() { "{}" } else { "}" });
        }
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            let list = cast(&array.slice(row, 1), &DataType::List(Arc::clone(item)))?;
            write(text, &list, field, 0)?;
        }
        DataType::List(item) => {
            let items = array.as_list::<i32>().value(row);
            text.push('[');
            for place in 0..items.len() {
                text.push_str(if place == 0 { "" } else { "," });
                write(text, &items, item, place)?;
            }
            text.push(']');
        }
        DataType::Dictionary(_, values) => {
            write(text, &cast(&array.slice(row, 1), values)?, field, 0)?;
        }
        data_type => {
            let value = ArrayFormatter::try_new(array, &options())?.value(row).to_string();
            let value = match data_type {
                DataType::Timestamp(..) => without_zeros(value),
                _ => value,
            };
            // Numbers of objects are texts, as they are in PostgreSQL.
            let is_number = data_type.is_numeric()
                && pg_type != Some("oid")
                && value.bytes().all(|b| !b.is_ascii_alphabetic() || b == b'e');
            match is_json || is_number || *data_type == DataType::Boolean {
                true => text.push_str(&value),
                false if data_type.is_binary() => {
                    write!(text, "\"\\\\x{value}\"").expect("a string takes all")
                }
                false => *text += &json_text(&value),
            }
        }
    }
    Ok(())
}

/// A time without the zeros at the end of its fraction of a second.
fn without_zeros(time: String) -> String {
    let Some((whole, rest)) = time.split_once('.') else { return time };
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (fraction, zone) = rest.split_at(end);
    match fraction.trim_end_matches('0') {
        "" => format!("{whole}{zone}"),
        fraction => format!("{whole}.{fraction}{zone}"),
    }
}

/// A text of JSON.
fn json_text(text: &str) -> String {
    let mut written = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => written += "\\\"",
            '\\' => written += "\\\\",
            '\n' => written += "\\n",
            '\r' => written += "\\r",
            '\t' => written += "\\t",
            '\u{8}' => written += "\\b",
            '\u{c}' => written += "\\f",
            control if u32::from(control) < 0x20 => written += &format!("\\u{:04x}", u32::from(control)),
            other => written.push(other),
        }
    }
    written + "\""
}

/// JSON as `jsonb` has it: one space behind colons and commas, shorter keys first, and of equal keys the last.
fn ordered(json: &str) -> Result<String> {
    let mut letters = json.char_indices().peekable();
    let mut written = String::with_capacity(json.len());
    let complete = value_of(json, &mut letters, &mut written);
    skip_spaces(&mut letters);
    match complete.is_some() && letters.peek().is_none() {
        true => Ok(written),
        false => exec_err!("invalid input syntax for type json"),
    }
}

type Letters<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

fn skip_spaces(letters: &mut Letters<'_>) {
    while letters.next_if(|(_, letter)| letter.is_ascii_whitespace()).is_some() {}
}

/// Copies the value that begins here; none if there is none.
fn value_of(json: &str, letters: &mut Letters<'_>, written: &mut String) -> Option<()> {
    skip_spaces(letters);
    match letters.peek()?.1 {
        '{' => {
            let mut members: Vec<(&str, String)> = vec![];
            parts(letters, '}', |letters| {
                skip_spaces(letters);
                let key = text_of(json, letters)?;
                skip_spaces(letters);
                letters.next_if(|(_, letter)| *letter == ':')?;
                let mut value = String::new();
                value_of(json, letters, &mut value)?;
                members.retain(|(known, _)| *known != key);
                members.push((key, value));
                Some(())
            })?;
            members.sort_by_key(|(key, _)| (key.len(), key.as_bytes().to_vec()));
            let members = members.into_iter().map(|(key, value)| format!("{key}: {value}"));
            *written += &format!("{{{}}}", members.collect::<Vec<_>>().join(", "));
        }
        '[' => {
            let mut items: Vec<String> = vec![];
            parts(letters, ']', |letters| {
                let mut item = String::new();
                value_of(json, letters, &mut item)?;
                items.push(item);
                Some(())
            })?;
            *written += &format!("[{}]", items.join(", "));
        }
        '"' => *written += text_of(json, letters)?,
        _ => {
            let start = letters.peek()?.0;
            while letters
                .next_if(|(_, letter)| {
                    !matches!(letter, ',' | ']' | '}' | ':') && !letter.is_ascii_whitespace()
                })
                .is_some()
            {}
            let end = letters.peek().map_or(json.len(), |(at, _)| *at);
            *written += json.get(start..end).filter(|word| !word.is_empty())?;
        }
    }
    Some(())
}

/// Reads what stands in brackets, with commas between.
fn parts(
    letters: &mut Letters<'_>,
    close: char,
    mut part: impl FnMut(&mut Letters<'_>) -> Option<()>,
) -> Option<()> {
    letters.next();
    skip_spaces(letters);
    if letters.next_if(|(_, letter)| *letter == close).is_some() {
        return Some(());
    }
    loop {
        part(letters)?;
        skip_spaces(letters);
        match letters.next()?.1 {
            ',' => {}
            letter if letter == close => return Some(()),
            _ => return None,
        }
    }
}

/// A text with its quotes.
fn text_of<'j>(json: &'j str, letters: &mut Letters<'_>) -> Option<&'j str> {
    let (start, _) = letters.next_if(|(_, letter)| *letter == '"')?;
    loop {
        match letters.next()? {
            (_, '\\') => drop(letters.next()?),
            (end, '"') => return json.get(start..=end),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_json_is_ordered() {
        for (json, expected) in [
            (
                "{\"bb\":1,\"a\":[1,2 , {}],\"c\" : \"x,}\\\"\"}",
                "{\"a\": [1, 2, {}], \"c\": \"x,}\\\"\", \"bb\": 1}",
            ),
            ("{\"a\":1,\"a\":2}", "{\"a\": 2}"),
            (" null ", "null"),
            ("[]", "[]"),
        ] {
            assert_eq!(ordered(json).unwrap(), expected);
        }
        for wrong in ["", "{", "[1,]x", "{\"a\"}", "1 2"] {
            assert!(ordered(wrong).is_err(), "{wrong}");
        }
    }
}
