//! Functions that convert values of other types to JSON.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use crate::datetime::infinity::{counts_of, infinite_rows};
use crate::format;
use crate::parse::interval::IntervalStyle;

use super::scan::quote;
use super::texts::Texts;
use super::value::Value;
use super::{Kind as JsonKind, TYPE_KEY, wrong};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// A value. NULL stays NULL.
    Value,
    /// Alternating keys and values.
    Object,
    /// The same, as a row is written.
    Row,
    /// Values.
    Array,
    /// A value as an aggregate collects it: composite values start a new line.
    Item,
    /// The collected items.
    Items,
    /// A key and a value as an aggregate collects them.
    Member,
    Members,
}

/// Names, operations, and whether the result is `jsonb`. The last ones implement aggregates:
/// `desugar/json.rs` of crate sql.
const FUNCTIONS: [(&str, Kind, bool); 17] = [
    ("to_json", Kind::Value, false),
    ("to_jsonb", Kind::Value, true),
    ("row_to_json", Kind::Value, false),
    ("array_to_json", Kind::Value, false),
    ("harrier_json_row", Kind::Row, false),
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
        Ok(DataType::Utf8View)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let given = arguments.arg_fields.len();
        let fits = match self.kind {
            Kind::Value => given == 1 || given == 2 && !self.is_binary,
            Kind::Item | Kind::Items | Kind::Members => given == 1,
            Kind::Member => given == 2,
            Kind::Object | Kind::Array => true,
            Kind::Row => given.is_multiple_of(2),
        };
        if !fits {
            return plan_err!("function {} with {given} arguments does not exist", self.name);
        }
        Ok(if self.is_binary { JsonKind::Jsonb } else { JsonKind::Json }.field(self.name))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let values: Vec<(&ArrayRef, &Field)> =
            arrays.iter().zip(arguments.arg_fields.iter().map(AsRef::as_ref)).collect();
        let mut written = Texts::new(self.name, &arguments.config_options);
        for row in 0..rows {
            match self.write_row(&values, row)? {
                Some(text) if self.is_binary && !matches!(self.kind, Kind::Item | Kind::Member) => {
                    written.push(Some(&Value::parse(&text)?.text()))?;
                }
                text => written.push(text.as_deref())?,
            }
        }
        Ok(ColumnarValue::Array(written.finish()?))
    }
}

impl Json {
    fn write_row(&self, values: &[(&ArrayRef, &Field)], row: usize) -> Result<Option<String>> {
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
                    return Err(wrong("argument list must have even number of elements"));
                }
                text.push('{');
                for (at, member) in values.chunks(2).enumerate() {
                    text += if at == 0 { "" } else { ", " };
                    self::member(&mut text, member, row, 2 * at + 1)?;
                }
                text.push('}');
            }
            Kind::Row => {
                text.push('{');
                for (at, member) in values.chunks(2).enumerate() {
                    let ((key, _), (value, field)) = (member[0], member[1]);
                    text += if at == 0 { "" } else { "," };
                    text += &json_text(&ArrayFormatter::try_new(key, &options())?.value(row).to_string());
                    text.push(':');
                    write(&mut text, value, field, row)?;
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
            Kind::Items => return aggregate_result(values[0].0, row, "[", "]"),
            Kind::Members => return aggregate_result(values[0].0, row, "{ ", " }"),
        }
        Ok(Some(text))
    }
}

/// Separator before a composite item, unless it is the first.
const LINE: &str = "\n ";

/// The result of an aggregate; NULL without rows.
fn aggregate_result(array: &ArrayRef, row: usize, open: &str, close: &str) -> Result<Option<String>> {
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
        return Err(wrong(format!("argument {number} cannot be null")));
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

/// Writes a value as PostgreSQL's `to_json` does.
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
            let is_row = fields.iter().enumerate().all(|(at, field)| *field.name() == format!("c{at}"));
            for (at, (member, column)) in fields.iter().zip(members.columns()).enumerate() {
                text.push(if at == 0 { '{' } else { ',' });
                // The fields of ROW have no names of their own.
                let name = if is_row { format!("f{}", at + 1) } else { member.name().clone() };
                *text += &json_text(&name);
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
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let interval = array.slice(row, 1);
            let interval = interval.as_primitive::<IntervalMonthDayNanoType>();
            *text += &json_text(format::interval::format_array(interval, IntervalStyle::default())?.value(0));
        }
        DataType::Dictionary(_, values) => {
            write(text, &cast(&array.slice(row, 1), values)?, field, 0)?;
        }
        data_type => {
            let value = match data_type {
                DataType::Date32 | DataType::Interval(_) | DataType::Float32 | DataType::Float64 => {
                    let texts = format::value::texts(&array.slice(row, 1), IntervalStyle::default())?;
                    texts.value(0).to_string()
                }
                DataType::Timestamp(..) if infinite_rows(&array.slice(row, 1)).is_some() => {
                    let counts = counts_of(&array.slice(row, 1))?;
                    if counts.value(0) > 0 { "infinity".to_string() } else { "-infinity".to_string() }
                }
                _ => ArrayFormatter::try_new(array, &options())?.value(row).to_string(),
            };
            let value = match data_type {
                DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => without_zeros(value),
                _ => value,
            };
            // Numbers as object keys are texts, as in PostgreSQL.
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

/// Strips trailing zeros from the fraction of a second.
fn without_zeros(time: String) -> String {
    let Some((whole, rest)) = time.split_once('.') else { return time };
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (fraction, zone) = rest.split_at(end);
    match fraction.trim_end_matches('0') {
        "" => format!("{whole}{zone}"),
        fraction => format!("{whole}.{fraction}{zone}"),
    }
}

/// Quotes a text as JSON string.
fn json_text(text: &str) -> String {
    let mut written = String::with_capacity(text.len() + 2);
    quote(text, &mut written);
    written
}
