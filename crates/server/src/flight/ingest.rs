//! Bulk ingestion: inserts a client's batches into a table, atomically, by `COPY … FROM STDIN`.
//!
//! Sessions accept COPY data as text, so batches are formatted as COPY text here.

use std::fmt::Write;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, IntervalUnit, Schema};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, DurationFormat, FormatOptions};
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use harrier_error::{SqlError, SqlState};

use super::batches::{BatchStream, unreadable};
use super::consumer::Discard;
use super::executor::{Executor, StatementInputs, row_count};

/// Rows formatted at a time.
const ROWS: usize = 4096;

/// Runs an ingestion. Returns the number of rows inserted.
pub(super) async fn ingest(
    executor: &mut Executor,
    command: CommandStatementIngest,
    mut sent: BatchStream,
) -> Result<i64, SqlError> {
    let table = table_name(&command)?;
    let (if_not_exists, if_exists) = modes(&command)?;
    let first = sent.try_next().await.map_err(unreadable)?;
    let Some(schema) = sent.schema().cloned() else {
        return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "an ingestion has to begin with a schema"));
    };
    let columns =
        schema.fields().iter().map(|field| quote_identifier(field.name())).collect::<Vec<_>>().join(", ");
    let mut before = Vec::new();
    let create = || create_table(&table, command.temporary, &schema);
    match (exists(executor, &table).await?, if_not_exists, if_exists) {
        (false, TableNotExistOption::Create, _) => before.push(create()?),
        (false, _, _) => {
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation {table} does not exist")));
        }
        (true, _, TableExistsOption::Replace) => before.extend([format!("DROP TABLE {table}"), create()?]),
        (true, _, TableExistsOption::Append) => {}
        (true, _, _) => {
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation {table} already exists")));
        }
    }
    for field in schema.fields() {
        // Fails for types without a text form.
        sql_type(field.data_type())?;
    }
    let batches = futures::stream::iter(first.map(Ok)).chain(sent.map_err(unreadable));
    // A batch may be a client's whole table: yields between its parts.
    let parts = batches.map_ok(|batch| {
        let starts = (0..batch.num_rows()).step_by(ROWS);
        futures::stream::iter(
            starts.map(move |from| Ok(batch.slice(from, ROWS.min(batch.num_rows() - from)))),
        )
    });
    let text = parts.try_flatten().map(|part: Result<RecordBatch, SqlError>| lines(&part?)).boxed();
    let copy = format!("COPY {table} ({columns}) FROM STDIN");
    if before.is_empty() {
        return run_copy(executor, &copy, text).await;
    }
    executor
        .run_atomically(move |executor| {
            Box::pin(async move {
                for statement in before {
                    executor.run(&statement, StatementInputs::default(), &mut Discard).await?;
                }
                run_copy(executor, &copy, text).await
            })
        })
        .await
}

async fn run_copy(
    executor: &mut Executor,
    copy: &str,
    text: BoxStream<'static, Result<Bytes, SqlError>>,
) -> Result<i64, SqlError> {
    let given = StatementInputs { input: Some(text), ..StatementInputs::default() };
    Ok(row_count(&executor.run(copy, given, &mut Discard).await?))
}

/// Whether the session can see a table of this name.
async fn exists(executor: &mut Executor, table: &str) -> Result<bool, SqlError> {
    match executor.describe(&format!("SELECT * FROM {table}")).await {
        Ok(_) => Ok(true),
        Err(failure)
            if matches!(failure.sqlstate, SqlState::UNDEFINED_TABLE | SqlState::INVALID_SCHEMA_NAME) =>
        {
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}

fn modes(command: &CommandStatementIngest) -> Result<(TableNotExistOption, TableExistsOption), SqlError> {
    let Some(options) = &command.table_definition_options else {
        return Ok((TableNotExistOption::Fail, TableExistsOption::Append));
    };
    match (options.if_not_exist(), options.if_exists()) {
        (TableNotExistOption::Unspecified, _) | (_, TableExistsOption::Unspecified) => Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "an ingestion has to say what becomes of its table",
        )),
        modes => Ok(modes),
    }
}

fn table_name(command: &CommandStatementIngest) -> Result<String, SqlError> {
    if command.table.is_empty() {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "an ingestion has to name a table"));
    }
    let parts = [command.catalog.as_deref(), command.schema.as_deref(), Some(command.table.as_str())];
    let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
    Ok(parts.map(quote_identifier).collect::<Vec<_>>().join("."))
}

fn create_table(table: &str, is_temporary: bool, schema: &Schema) -> Result<String, SqlError> {
    let columns = schema.fields().iter().map(|field| {
        let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
        Ok(format!("{} {}{not_null}", quote_identifier(field.name()), sql_type(field.data_type())?))
    });
    let columns = columns.collect::<Result<Vec<_>, SqlError>>()?.join(", ");
    let temporary = if is_temporary { "TEMPORARY " } else { "" };
    Ok(format!("CREATE {temporary}TABLE {table} ({columns})"))
}

/// Quotes an SQL identifier.
pub(super) fn quote_identifier(name: impl AsRef<str>) -> String {
    format!("\"{}\"", name.as_ref().replace('"', "\"\""))
}

/// The SQL type for an Arrow type's values.
fn sql_type(data_type: &DataType) -> Result<String, SqlError> {
    Ok(match data_type {
        DataType::Boolean => "boolean",
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => "smallint",
        DataType::UInt16 | DataType::Int32 => "integer",
        DataType::UInt32 | DataType::Int64 => "bigint",
        DataType::UInt64 => "numeric(20, 0)",
        DataType::Float16 | DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => return Ok(format!("numeric({precision}, {scale})")),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytea"
        }
        DataType::Date32 | DataType::Date64 => "date",
        DataType::Time32(_) | DataType::Time64(_) => "time",
        DataType::Timestamp(_, None) => "timestamp",
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone",
        DataType::Interval(IntervalUnit::YearMonth | IntervalUnit::DayTime | IntervalUnit::MonthDayNano)
        | DataType::Duration(_) => "interval",
        DataType::Dictionary(_, values) => return sql_type(values),
        other => {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("cannot ingest columns of type {other}"),
            )
            .with_hint("Columns of single values can be ingested."));
        }
    }
    .to_string())
}

/// Formats a batch as COPY text.
fn lines(batch: &RecordBatch) -> Result<Bytes, SqlError> {
    let options = FormatOptions::default()
        .with_display_error(false)
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"))
        .with_date_format(Some("%Y-%m-%d"))
        .with_datetime_format(Some("%Y-%m-%d"))
        .with_duration_format(DurationFormat::Pretty);
    let unwritable =
        |error: ArrowError| SqlError::new(SqlState::DATA_EXCEPTION, format!("a value has no text: {error}"));
    let columns = batch.columns().iter().map(|column| Column::new(column.as_ref(), &options));
    let columns: Vec<Column<'_>> = columns.collect::<Result<_, _>>().map_err(unwritable)?;
    let mut text = String::with_capacity(batch.num_rows() * columns.len() * 8);
    let mut value = String::new();
    for row in 0..batch.num_rows() {
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                text.push('\t');
            }
            column.write(row, &mut value, &mut text).map_err(unwritable)?;
        }
        text.push('\n');
    }
    Ok(Bytes::from(text))
}

struct Column<'a> {
    array: &'a dyn Array,
    nulls: Option<arrow::buffer::NullBuffer>,
    formatter: ArrayFormatter<'a>,
}

impl<'a> Column<'a> {
    fn new(array: &'a dyn Array, options: &FormatOptions<'a>) -> Result<Self, ArrowError> {
        // Includes NULLs among a dictionary's values.
        Ok(Self { array, nulls: array.logical_nulls(), formatter: ArrayFormatter::try_new(array, options)? })
    }

    fn write(&self, row: usize, value: &mut String, text: &mut String) -> Result<(), ArrowError> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            text.push_str("\\N");
            return Ok(());
        }
        let bytes = match self.array.data_type() {
            DataType::Binary => Some(self.array.as_binary::<i32>().value(row)),
            DataType::LargeBinary => Some(self.array.as_binary::<i64>().value(row)),
            DataType::BinaryView => Some(self.array.as_binary_view().value(row)),
            DataType::FixedSizeBinary(_) => Some(self.array.as_fixed_size_binary().value(row)),
            _ => None,
        };
        if let Some(bytes) = bytes {
            text.push_str("\\\\x");
            for byte in bytes {
                // Writing to a string does not fail.
                let _ = write!(text, "{byte:02x}");
            }
            return Ok(());
        }
        value.clear();
        self.formatter.value(row).write(value)?;
        for character in value.chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                other => text.push(other),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::*;
    use arrow::datatypes::{Field, Int32Type};

    use super::*;

    fn check(array: impl Array + 'static, expected: &[&str]) {
        let batch =
            RecordBatch::try_from_iter_with_nullable([("c", Arc::new(array) as ArrayRef, true)]).unwrap();
        let expected: String = expected.iter().map(|line| format!("{line}\n")).collect();
        assert_eq!(lines(&batch).unwrap(), expected);
    }

    #[test]
    fn values_are_written_as_copy_reads_them() {
        check(
            StringArray::from(vec![Some("a\tb\\c\r\nd"), Some(""), None, Some("\\N")]),
            &["a\\tb\\\\c\\r\\nd", "", "\\N", "\\\\N"],
        );
        check(BinaryArray::from(vec![Some(&b"\x00\xff"[..]), None]), &["\\\\x00ff", "\\N"]);
        check(BooleanArray::from(vec![true, false]), &["true", "false"]);
        check(Float64Array::from(vec![1.5, f64::NAN, f64::INFINITY]), &["1.5", "NaN", "inf"]);
        check(Decimal128Array::from(vec![-12345]).with_precision_and_scale(10, 2).unwrap(), &["-123.45"]);
        check(Date32Array::from(vec![0]), &["1970-01-01"]);
        check(TimestampMicrosecondArray::from(vec![1_500_000]), &["1970-01-01 00:00:01.500"]);
        check(
            TimestampMicrosecondArray::from(vec![0]).with_timezone("+00:00"),
            &["1970-01-01 00:00:00+00:00"],
        );
        check(Time64MicrosecondArray::from(vec![3_600_000_001]), &["01:00:00.000001"]);
        let values = StringArray::from(vec![Some("x"), None]);
        let keys = Int32Array::from(vec![Some(1), Some(0), None]);
        check(DictionaryArray::<Int32Type>::new(keys, Arc::new(values)), &["\\N", "x", "\\N"]);
    }

    #[test]
    fn tables_are_made_of_quoted_names_and_types() {
        let schema = Schema::new(vec![
            Field::new("a \"b\"", DataType::Int64, false),
            Field::new("c", DataType::Decimal128(10, 2), true),
        ]);
        let text = create_table("\"s\".\"t\"", false, &schema).unwrap();
        assert_eq!(text, "CREATE TABLE \"s\".\"t\" (\"a \"\"b\"\"\" bigint NOT NULL, \"c\" numeric(10, 2))");
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true)));
        assert_eq!(sql_type(&list).unwrap_err().sqlstate, "0A000");
    }
}
