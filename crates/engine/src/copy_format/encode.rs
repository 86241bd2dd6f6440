//! Encodes rows as text, CSV or JSON for COPY … TO.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, IntervalMonthDayNanoArray, RecordBatch,
    StringBuilder,
};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float32Type, Float64Type, IntervalMonthDayNanoType, IntervalUnit, Schema,
    SchemaRef,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{
    ArrayFormatter, DisplayIndex, DurationFormat, FormatOptions, FormatResult,
};
use harrier_functions::format::datetime::{self, formatter};
use harrier_functions::format::double::{put_double, put_real};
use harrier_functions::json::floats::json_lines;
use harrier_functions::parse::interval::IntervalStyle;

use crate::copy_format::layout::Layout;
use crate::copy_format::lists;

/// PostgreSQL's timestamp format.
const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";

const TIMESTAMP_TZ: &str = "%Y-%m-%d %H:%M:%S%.f%:z";

pub(crate) fn header(schema: &SchemaRef, layout: &Layout) -> Vec<u8> {
    let mut line = Vec::new();
    for (at, field) in schema.fields().iter().enumerate() {
        if at > 0 {
            line.push(layout.delimiter);
        }
        encode_value(field.name(), layout, &mut line);
    }
    line.push(b'\n');
    line
}

/// Encodes rows as JSON, one object per line. Keys with NULL values are left out.
pub(crate) fn encode_json(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    match batch.columns().iter().any(|column| column.data_type().is_binary()) {
        true => json_lines(&with_hex_text(batch)?),
        false => json_lines(batch),
    }
}

/// Converts binary columns to PostgreSQL's hexadecimal text; nested values stay unchanged.
pub(crate) fn with_hex_text(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let mut fields: Vec<FieldRef> = schema.fields().iter().map(Arc::clone).collect();
    let mut columns = batch.columns().to_vec();
    for (field, column) in fields.iter_mut().zip(&mut columns) {
        if column.data_type().is_binary() {
            *field = Arc::new(Field::new(field.name(), DataType::Utf8, true));
            *column = hex_text(column)?;
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

pub(crate) fn hex_text(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let options = FormatOptions::new();
    let formatter = formatter(column.as_ref(), &options)?;
    let mut texts = StringBuilder::new();
    let mut value = String::new();
    for row in 0..column.len() {
        if column.is_null(row) {
            texts.append_null();
            continue;
        }
        value.clear();
        value.push_str("\\x");
        formatter.value(row).write(&mut value)?;
        texts.append_value(&value);
    }
    Ok(Arc::new(texts.finish()))
}

/// Encodes rows as text or CSV.
pub(crate) fn encode(batch: &RecordBatch, layout: &Layout) -> Result<Vec<u8>, ArrowError> {
    let mut text = Vec::with_capacity(batch.num_rows() * batch.num_columns() * 8);
    let options = FormatOptions::new()
        .with_timestamp_format(Some(TIMESTAMP))
        .with_timestamp_tz_format(Some(TIMESTAMP_TZ))
        .with_time_format(Some("%H:%M:%S%.f"))
        .with_duration_format(DurationFormat::Pretty);
    let texts = lists::as_texts(batch, &options)?;
    let columns = texts
        .iter()
        .map(|column| {
            // Logical nulls also cover null arrays and dictionaries.
            let nulls = column.logical_nulls();
            Ok((column, nulls, value_formatter(column, &options, layout)?))
        })
        .collect::<Result<Vec<_>, ArrowError>>()?;
    let mut value = String::new();
    for row in 0..batch.num_rows() {
        for (at, (column, nulls, formatter)) in columns.iter().enumerate() {
            if at > 0 {
                text.push(layout.delimiter);
            }
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                text.extend_from_slice(layout.null.as_bytes());
                continue;
            }
            value.clear();
            if column.data_type().is_binary() {
                value.push_str("\\x");
            }
            formatter.value(row).write(&mut value)?;
            encode_value(&value, layout, &mut text);
        }
        text.push(b'\n');
    }
    Ok(text)
}

/// Formats a column's values as PostgreSQL does.
pub(crate) fn value_formatter<'a>(
    column: &'a ArrayRef,
    options: &FormatOptions<'a>,
    layout: &Layout,
) -> Result<ArrayFormatter<'a>, ArrowError> {
    let own: Box<dyn DisplayIndex + 'a> = match column.data_type() {
        DataType::Boolean if layout.short_booleans => Box::new(Booleans(column.as_boolean())),
        DataType::Float32 => Box::new(Reals(column.as_primitive::<Float32Type>())),
        DataType::Float64 => Box::new(Doubles(column.as_primitive::<Float64Type>())),
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            Box::new(Intervals(column.as_primitive::<IntervalMonthDayNanoType>(), layout.intervals))
        }
        DataType::Timestamp(..) | DataType::Time64(_) | DataType::Time32(_) => {
            Box::new(TrimmedTimes(formatter(column.as_ref(), options)?))
        }
        _ => return formatter(column.as_ref(), options),
    };
    Ok(ArrayFormatter::new(own, false))
}

/// Reals as `0.5`, `1e+20` and `Infinity`.
struct Reals<'a>(&'a Float32Array);

impl DisplayIndex for Reals<'_> {
    fn write(&self, at: usize, out: &mut dyn Write) -> FormatResult {
        let mut text = Vec::new();
        put_real(&mut text, self.0.value(at));
        out.write_str(&String::from_utf8_lossy(&text))?;
        Ok(())
    }
}

/// Doubles as `0.5`, `1e+300` and `Infinity`.
struct Doubles<'a>(&'a Float64Array);

impl DisplayIndex for Doubles<'_> {
    fn write(&self, at: usize, out: &mut dyn Write) -> FormatResult {
        let mut text = Vec::new();
        put_double(&mut text, self.0.value(at));
        out.write_str(&String::from_utf8_lossy(&text))?;
        Ok(())
    }
}

/// Booleans as `t` and `f`.
pub(crate) struct Booleans<'a>(&'a BooleanArray);

impl DisplayIndex for Booleans<'_> {
    fn write(&self, at: usize, out: &mut dyn Write) -> FormatResult {
        out.write_char(if self.0.value(at) { 't' } else { 'f' })?;
        Ok(())
    }
}

pub(crate) struct Intervals<'a>(&'a IntervalMonthDayNanoArray, IntervalStyle);

impl DisplayIndex for Intervals<'_> {
    fn write(&self, at: usize, out: &mut dyn Write) -> FormatResult {
        let value = self.0.value(at);
        self.1.write(out, value.months, value.days, value.nanoseconds / 1_000)?;
        Ok(())
    }
}

/// Timestamps and times without trailing zeros in fractions and time zone offsets.
pub(crate) struct TrimmedTimes<'a>(ArrayFormatter<'a>);

impl DisplayIndex for TrimmedTimes<'_> {
    fn write(&self, at: usize, out: &mut dyn Write) -> FormatResult {
        out.write_str(&datetime::trim(self.0.value(at).try_to_string()?))?;
        Ok(())
    }
}

/// Appends a non-NULL value.
pub(crate) fn encode_value(value: &str, layout: &Layout, text: &mut Vec<u8>) {
    if layout.csv {
        return encode_csv_value(value, layout, text);
    }
    for byte in value.bytes() {
        let escaped = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            other if other == layout.delimiter => other,
            other => {
                text.push(other);
                continue;
            }
        };
        text.extend([b'\\', escaped]);
    }
}

pub(crate) fn encode_csv_value(value: &str, layout: &Layout, text: &mut Vec<u8>) {
    let is_special =
        |byte: u8| byte == layout.delimiter || byte == layout.quote || matches!(byte, b'\n' | b'\r');
    if value != layout.null && value != "\\." && !value.bytes().any(is_special) {
        return text.extend_from_slice(value.as_bytes());
    }
    text.push(layout.quote);
    for byte in value.bytes() {
        if byte == layout.quote || byte == layout.escape {
            text.push(layout.escape);
        }
        text.push(byte);
    }
    text.push(layout.quote);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, BinaryArray, Int32Array, StringArray};

    use super::*;
    use harrier_sql::parser::copy::{CopyFormat, CopyOptions, Header};

    use crate::copy_format::layout::layout;

    #[test]
    fn values_are_written() {
        let columns: [(&str, ArrayRef); 3] = [
            ("a", Arc::new(Int32Array::from(vec![Some(1), None]))),
            ("b", Arc::new(StringArray::from(vec!["x\ty\\,\"", ""]))),
            ("c", Arc::new(BinaryArray::from(vec![&b"\x01\xff"[..], b""]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let written = |format| {
            let layout = layout(&CopyOptions::default(), format, Header::Absent).unwrap();
            String::from_utf8(encode(&batch, &layout).unwrap()).unwrap()
        };
        assert_eq!(written(CopyFormat::Text), "1\tx\\ty\\\\,\"\t\\\\x01ff\n\\N\t\t\\\\x\n");
        assert_eq!(written(CopyFormat::Csv), "1,\"x\ty\\,\"\"\",\\x01ff\n,\"\",\\x\n");
        let json = String::from_utf8(encode_json(&batch).unwrap()).unwrap();
        let first = "{\"a\":1,\"b\":\"x\\ty\\\\,\\\"\",\"c\":\"\\\\x01ff\"}\n";
        assert_eq!(json, format!("{first}{{\"b\":\"\",\"c\":\"\\\\x\"}}\n"));
    }
}
