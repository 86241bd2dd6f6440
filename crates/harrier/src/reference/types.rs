//! Reference page of types: their names for PostgreSQL's clients, in memory, and in files that are written
//! and inspected here.

use std::fs::File;
use std::path::Path;

use arrow::datatypes::DataType;
use arrow::ipc::reader::FileReader;
use datafusion::parquet::file::reader::{FileReader as _, SerializedFileReader};
use datafusion::parquet::schema::printer::print_schema;
use datafusion::parquet::schema::types::Type;
use harrier_engine::Session;
use harrier_exec::formats::orc;
use serde_json::Value;

use super::page::{Page, code, codes};
use super::scratch;

/// A type: its spellings, the canonical one first, a value, and a description.
struct Entry {
    spellings: &'static [&'static str],
    value: &'static str,
    about: &'static str,
}

const fn entry(spellings: &'static [&'static str], value: &'static str, about: &'static str) -> Entry {
    Entry { spellings, value, about }
}

const TYPES: &[Entry] = &[
    entry(&["boolean", "bool"], "true", "true or false"),
    entry(&["smallint", "int2"], "1", "a whole number of 16 bits"),
    entry(&["integer", "int", "int4"], "1", "a whole number of 32 bits"),
    entry(&["bigint", "int8"], "1", "a whole number of 64 bits"),
    entry(&["real", "float4", "float(24)"], "1.5", "a floating-point number of 32 bits"),
    entry(&["double precision", "float8", "float", "double"], "1.5", "a floating-point number of 64 bits"),
    entry(
        &["numeric(10, 2)", "decimal(10, 2)"],
        "1.50",
        "an exact number with so many digits, and so many of them after the point; 38 digits at most",
    ),
    entry(&["text", "string"], "'a'", "a text of any length"),
    entry(&["varchar(10)", "character varying(10)"], "'a'", "a text of so many characters at most"),
    entry(&["char(10)", "character(10)"], "'a'", "a text that is filled up with blanks"),
    entry(&["bytea"], "'\\x01'", "bytes"),
    entry(&["uuid"], "'0189f2a0-0000-7000-8000-000000000000'", "a universal identifier"),
    entry(&["date"], "'2026-11-29'", "a day; `date - date` is a `bigint`, the days between them"),
    entry(&["time", "time without time zone"], "'12:30'", "a time of day, to the microsecond"),
    entry(
        &["timestamp", "timestamp without time zone"],
        "'2026-11-29 12:30'",
        "a day and a time of day, to the microsecond",
    ),
    entry(
        &["timestamp with time zone", "timestamptz"],
        "'2026-11-29 12:30+00'",
        "a point in time, to the microsecond; shown in the session's time zone",
    ),
    entry(&["interval"], "'1 day 2 hours'", "months, days and a time"),
    entry(&["json"], "'{\"a\": 1}'", "a JSON text as it was written"),
    entry(&["jsonb"], "'{\"a\": 1}'", "a JSON value"),
    entry(&["integer[]"], "ARRAY[1, 2]", "a list; of any type"),
];

pub(super) async fn page(session: &Session) -> Result<String, String> {
    let mut page = Page::new(
        "Types",
        "This page lists the types of SQL, their spellings, and what values of each are for clients, in memory and in files.",
    );
    page.paragraph(
        "A cast is `CAST(x AS type)` or `x::type`. [Limits](limits.md) tells how types differ from PostgreSQL's, \
         [CSV](csv-options.md) how text files are read.",
    );
    let mut kinds = Vec::new();
    let mut files = Vec::new();
    let mut wrong = Vec::new();
    for (at, known) in TYPES.iter().enumerate() {
        let names = match type_names(session, at, known).await {
            Ok(names) => names,
            Err(message) => {
                wrong.push(message);
                continue;
            }
        };
        let others = codes(known.spellings[1..].iter().copied());
        kinds.push([code(known.spellings[0]), others, names.postgres, names.oid, known.about.to_string()]);
        files.push([
            code(known.spellings[0]),
            names.arrow,
            names.table,
            names.parquet,
            names.orc,
            names.avro,
        ]);
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    page.heading(2, "Spellings, and what clients are told");
    page.paragraph(
        "PostgreSQL's name and OID are what `pg_attribute` has and what drivers get for a column of a table.",
    );
    page.table(["type", "also", "PostgreSQL's name", "OID", "values"], kinds);
    page.paragraph(
        "Beside PostgreSQL's types there are `tinyint`, of 8 bits, and whole numbers without a sign, such \
         as `int unsigned`. Clients are told a larger type of PostgreSQL for them: `smallint` for \
         `tinyint`, `bigint` for `int unsigned`, `numeric` for `bigint unsigned`. Values that do not fit \
         are 22003. Names of other systems, such as `HUGEINT` and `BLOB`, are 0A000. `STRUCT` and `MAP` \
         cannot be declared, but `CREATE TABLE … AS` makes columns of them. Lists may hold lists \
         (`int[][]`), and the length in `text[3]` is not checked, as in PostgreSQL.",
    );
    page.heading(2, "In memory and in files");
    page.paragraph(
        "Arrow's types are those of batches in memory, of Arrow files and of Flight SQL. A table of a warehouse has \
         Parquet files; the last columns are for files that `COPY … TO` writes. Where there is a dash, the format has \
         no such type, and writing one is an error (0A000).",
    );
    page.table(["type", "Arrow", "file of a table", "Parquet", "ORC", "Avro"], files);
    page.paragraph("CSV, JSON and text files have values as text.");
    Ok(page.finish())
}

/// Names of a type in each system and format.
struct TypeNames {
    postgres: String,
    oid: String,
    arrow: String,
    /// In a data file of a table.
    table: String,
    parquet: String,
    orc: String,
    avro: String,
}

async fn type_names(session: &Session, at: usize, known: &Entry) -> Result<TypeNames, String> {
    let spellings = known.spellings.iter().enumerate();
    let columns: Vec<String> = spellings.map(|(at, spelling)| format!("c{at} {spelling}")).collect();
    let table = format!("kind{at}");
    let options = "WITH (inline_rows = 0)";
    scratch::run(session, &format!("CREATE TABLE {table} ({}) {options}", columns.join(", "))).await?;
    let of_column =
        "SELECT DISTINCT format_type(atttypid, atttypmod) || '/' || atttypid::text FROM pg_attribute";
    let attributes = format!("{of_column} WHERE attrelid = '{table}'::regclass AND attnum > 0");
    let rows = scratch::run(session, &attributes).await?.rows;
    let [row] = rows.as_slice() else {
        return Err(format!("{:?} are {rows:?}, and not one type", known.spellings));
    };
    let (postgres, oid) = row.trim_matches('"').split_once('/').ok_or("a type has no number")?;
    scratch::run(session, &format!("INSERT INTO {table} (c0) VALUES ({})", known.value)).await?;
    let paths = format!("SELECT path FROM sys.data_files WHERE table_name = '{table}'");
    let paths = scratch::run(session, &paths).await?.rows;
    let own = in_file("parquet", Path::new(paths.first().ok_or("a table has no file")?))?;
    let mut written = Vec::new();
    for format in ["arrow", "parquet", "orc", "avro"] {
        let file = format!("{table}.{format}");
        let copied = scratch::run(session, &format!("COPY (SELECT c0 FROM {table}) TO '{file}'")).await;
        written.push(match copied {
            Ok(_) => in_file(format, Path::new(&file))?,
            // Any other error fails the page.
            Err(message) if message.contains("ERROR 0A000") => "—".to_string(),
            Err(message) => return Err(message),
        });
    }
    let [arrow, parquet, orc, avro] = written.try_into().map_err(|_| "a format is missing")?;
    Ok(TypeNames { postgres: code(postgres), oid: oid.to_string(), arrow, table: own, parquet, orc, avro })
}

/// The type of a file's only column.
fn in_file(format: &str, path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let name = match format {
        "arrow" => {
            let reader = FileReader::try_new(file, None).map_err(|error| error.to_string())?;
            arrow_name(reader.schema().field(0).data_type())
        }
        "parquet" => {
            let reader = SerializedFileReader::new(file).map_err(|error| error.to_string())?;
            let schema = reader.metadata().file_metadata().schema().clone();
            parquet_name(schema.get_fields().first().ok_or("a file has no column")?)
        }
        "orc" => {
            let types = orc::column_types(file).map_err(|error| error.to_string())?;
            types.into_iter().next().ok_or("a file has no column")?
        }
        _ => avro_name(&avro_type(path)?),
    };
    Ok(code(&name))
}

fn arrow_name(kind: &DataType) -> String {
    match kind {
        DataType::List(item) => format!("List({})", arrow_name(item.data_type())),
        kind => kind.to_string(),
    }
}

/// Parquet's schema notation: `INT64 (TIMESTAMP(MICROS,false))`.
fn parquet_name(kind: &Type) -> String {
    let mut printed = Vec::new();
    print_schema(&mut printed, kind);
    let printed = String::from_utf8_lossy(&printed);
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| line.len() > 1).collect();
    let plain = |line: &str| {
        let line = line.trim_end_matches(['{', ';', ' ']);
        // Drops OPTIONAL, the name and the field id.
        let is_type_word = |word: &&str| !matches!(*word, "c0" | "element") && !word.starts_with('[');
        line.split(' ').skip(1).filter(is_type_word).collect::<Vec<_>>().join(" ")
    };
    match lines.as_slice() {
        [only] => plain(only),
        [group, .., leaf] => format!("{} of {}", plain(group), plain(leaf)),
        [] => String::new(),
    }
}

/// The type of the first field in an Avro file's schema.
fn avro_type(path: &Path) -> Result<Value, String> {
    // The key in the file's metadata, followed by the length, the text and other keys.
    const KEY: &[u8] = b"avro.schema";
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let key = bytes.windows(KEY.len()).position(|part| part == KEY).ok_or("a file has no schema")?;
    let text = bytes[key..].iter().position(|byte| *byte == b'{').ok_or("a file has no schema")?;
    let start = key + text;
    let mut values = serde_json::Deserializer::from_slice(&bytes[start..]).into_iter::<Value>();
    let schema = values.next().ok_or("no schema")?.map_err(|error| error.to_string())?;
    Ok(schema["fields"][0]["type"].clone())
}

/// The type without `null`, since every column is nullable.
fn avro_name(kind: &Value) -> String {
    match kind {
        Value::Array(choices) => {
            let others: Vec<String> =
                choices.iter().filter(|choice| *choice != "null").map(avro_name).collect();
            others.join(" or ")
        }
        Value::Object(members) => {
            let name = members["type"].as_str().unwrap_or_default();
            match (members.get("logicalType").and_then(Value::as_str), members.get("items")) {
                (_, Some(items)) => format!("{name} of {}", avro_name(items)),
                (Some(logical), _) => {
                    let digits = ["precision", "scale"].map(|key| members.get(key).map(Value::to_string));
                    match digits {
                        [Some(precision), Some(scale)] => format!("{name}, {logical}({precision}, {scale})"),
                        _ => format!("{name}, {logical}"),
                    }
                }
                (None, None) => name.to_string(),
            }
        }
        Value::String(name) => name.clone(),
        other => other.to_string(),
    }
}
