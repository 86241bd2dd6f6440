//! Tables of the random queries: small, with nulls, duplicates, long and unusual strings, skew, and nested
//! values.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, ListBuilder, RecordBatch,
    StringArray, StringBuilder, StructArray,
};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::query::Kind::{self, Boolean, Date, Decimal, Float, Integer, Nested, Text};

/// A table's name and its columns. A column is an expression in which `$` is the table's alias.
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [(&'static str, Kind)],
}

pub static FACTS: Table = Table {
    name: "facts",
    columns: &[
        ("$.id", Integer),
        ("$.k", Integer),
        ("$.g", Text),
        ("$.s", Text),
        ("$.d", Date),
        ("$.n", Decimal),
        ("$.x", Float),
        ("$.b", Boolean),
        ("$.tags", Nested),
        ("$.pair", Nested),
        ("$.tags[1]", Text),
        ("cast(array_length($.tags) as bigint)", Integer),
        ("$.pair['p']", Integer),
        ("$.pair['q']", Text),
    ],
};

pub static EVENTS: Table = Table {
    name: "events",
    columns: &[
        ("$.id", Integer),
        ("$.fact_id", Integer),
        ("$.g", Text),
        ("$.amount", Decimal),
        ("$.day", Date),
    ],
};

pub static DIMS: Table = Table {
    name: "dims",
    columns: &[("$.k", Integer), ("$.name", Text), ("$.v", Integer), ("$.since", Date)],
};

/// Like `dims`, without a row.
pub static NOTHING: Table = Table { name: "nothing", columns: DIMS.columns };

/// Like `dims`, in one file: few rows in one file are one output partition, those in several files are two.
pub static LONE: Table = Table { name: "lone", columns: DIMS.columns };

const FACTS_ROWS: usize = 600;
const EVENTS_ROWS: usize = 800;
const DIMS_ROWS: usize = 40;
const LONE_ROWS: usize = 150;
const FILES: usize = 3;

/// Small, so that a file has several row groups.
const ROW_GROUP_ROWS: usize = 64;

/// Fixed, so that a seed means the same query on the same data.
const SEED: u64 = 20260101;

const WORDS: [&str; 10] = [
    "red",
    "green",
    "",
    "blue",
    "Zürich",
    "a string that is longer than a view holds inline",
    "a string that is longer than twelve bytes",
    "%_",
    "it's",
    "日本",
];

pub fn write(folder: &Path) -> Result<(), String> {
    let random = &mut StdRng::seed_from_u64(SEED);
    write_table(folder, FACTS.name, &facts(random), FILES)?;
    write_table(folder, EVENTS.name, &events(random), FILES)?;
    let some = dims(random, DIMS_ROWS);
    write_table(folder, DIMS.name, &some, FILES)?;
    write_table(folder, NOTHING.name, &some.slice(0, 0), 1)?;
    write_table(folder, LONE.name, &dims(random, LONE_ROWS), 1)
}

fn facts(random: &mut StdRng) -> RecordBatch {
    let n = FACTS_ROWS;
    let mut tags = ListBuilder::new(StringBuilder::new());
    for _ in 0..n {
        for _ in 0..random.random_range(0..4) {
            tags.values().append_option(some(random, 5, word));
        }
        let present = random.random_range(0..6) > 0;
        tags.append(present);
    }
    let p: Int64Array = (0..n).map(|_| some(random, 4, |r| r.random_range(0..9))).collect();
    let q: StringArray = (0..n).map(|_| some(random, 4, word)).collect();
    let pair = StructArray::from(vec![
        (Arc::new(Field::new("p", DataType::Int64, true)), Arc::new(p) as ArrayRef),
        (Arc::new(Field::new("q", DataType::Utf8, true)), Arc::new(q) as ArrayRef),
    ]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..n as i64))),
        ("k", keys(random, n)),
        ("g", words(random, n, 4)),
        ("s", texts(random, n)),
        ("d", dates(random, n)),
        ("n", decimals(random, n, 12, 2)),
        ("x", floats(random, n)),
        ("b", Arc::new((0..n).map(|_| some(random, 5, |r| r.random_bool(0.4))).collect::<BooleanArray>())),
        ("tags", Arc::new(tags.finish())),
        ("pair", Arc::new(pair)),
    ];
    batch(columns)
}

fn events(random: &mut StdRng) -> RecordBatch {
    let n = EVENTS_ROWS;
    let fact = |r: &mut StdRng| r.random_range(0..FACTS_ROWS as i64 + 50);
    let fact_ids: Int64Array = (0..n).map(|_| some(random, 12, fact)).collect();
    batch(vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..n as i64))),
        ("fact_id", Arc::new(fact_ids)),
        ("g", words(random, n, 6)),
        ("amount", decimals(random, n, 10, 3)),
        ("day", dates(random, n)),
    ])
}

fn dims(random: &mut StdRng, n: usize) -> RecordBatch {
    let values: Int64Array = (0..n).map(|_| some(random, 8, |r| r.random_range(-5..25))).collect();
    batch(vec![
        ("k", keys(random, n)),
        ("name", words(random, n, WORDS.len())),
        ("v", Arc::new(values)),
        ("since", dates(random, n)),
    ])
}

/// `None` once in `one_in` times.
fn some<T>(random: &mut StdRng, one_in: u32, value: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
    (random.random_range(0..one_in) > 0).then(|| value(random))
}

fn word(random: &mut StdRng) -> &'static str {
    WORDS[random.random_range(0..WORDS.len())]
}

/// Join keys from 0 to 24, small ones more frequent, some NULL.
fn keys(random: &mut StdRng, n: usize) -> ArrayRef {
    let key = |r: &mut StdRng| r.random_range(0..5) * r.random_range(0..7);
    Arc::new((0..n).map(|_| some(random, 10, key)).collect::<Int64Array>())
}

/// Some of the first `of` words.
fn words(random: &mut StdRng, n: usize, of: usize) -> ArrayRef {
    let word = |r: &mut StdRng| WORDS[r.random_range(0..of)];
    Arc::new((0..n).map(|_| some(random, 9, word)).collect::<StringArray>())
}

/// Mostly distinct texts.
fn texts(random: &mut StdRng, n: usize) -> ArrayRef {
    let text = |r: &mut StdRng| format!("{}{}", word(r), r.random_range(0..10_000));
    Arc::new((0..n).map(|_| some(random, 15, text)).collect::<StringArray>())
}

/// Days of 2020 and 2021.
fn dates(random: &mut StdRng, n: usize) -> ArrayRef {
    let day = |r: &mut StdRng| r.random_range(18_262..18_992);
    Arc::new((0..n).map(|_| some(random, 11, day)).collect::<Date32Array>())
}

fn decimals(random: &mut StdRng, n: usize, precision: u8, scale: i8) -> ArrayRef {
    let number = |r: &mut StdRng| i128::from(r.random_range(-500_000..2_000_000_i64));
    let numbers: Decimal128Array = (0..n).map(|_| some(random, 13, number)).collect();
    Arc::new(numbers.with_precision_and_scale(precision, scale).expect("the numbers have seven digits"))
}

/// Multiples of 1/4, whose sums are exact in any order.
fn floats(random: &mut StdRng, n: usize) -> ArrayRef {
    let number = |r: &mut StdRng| f64::from(r.random_range(-4000..4000)) / 4.0;
    Arc::new((0..n).map(|_| some(random, 10, number)).collect::<Float64Array>())
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("all columns have as many rows")
}

fn write_table(folder: &Path, name: &str, rows: &RecordBatch, files: usize) -> Result<(), String> {
    let folder = folder.join(name);
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    for i in 0..files {
        let (start, end) = (rows.num_rows() * i / files, rows.num_rows() * (i + 1) / files);
        let properties =
            WriterProperties::builder().set_max_row_group_row_count(Some(ROW_GROUP_ROWS)).build();
        let file = File::create(folder.join(format!("{name}.{}.parquet", i + 1)));
        let file = file.map_err(|e| e.to_string())?;
        let mut writer =
            ArrowWriter::try_new(file, rows.schema(), Some(properties)).map_err(|e| e.to_string())?;
        writer.write(&rows.slice(start, end - start)).map_err(|e| e.to_string())?;
        writer.close().map_err(|e| e.to_string())?;
    }
    Ok(())
}
