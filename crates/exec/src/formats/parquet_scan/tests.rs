//! Files of other writers, derived from present-day ones, and their results.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::listing::ListingOptions;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use datafusion::prelude::SessionContext;

use super::thrift::{Struct, Value};
use super::*;

const ROWS: i64 = 1000;

/// A file of numbers, texts and decimals.
fn file(properties: WriterPropertiesBuilder) -> Vec<u8> {
    let decimals = Decimal128Array::from_iter_values((0..ROWS).map(i128::from));
    let columns: [(&str, ArrayRef); 3] = [
        ("n", Arc::new(Int64Array::from_iter_values(0..ROWS))),
        ("t", Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("text {}", row % 7))))),
        ("d", Arc::new(decimals.with_precision_and_scale(9, 0).unwrap())),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let properties = properties.set_created_by("writer version 1".to_string()).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.into_inner().unwrap()
}

/// Rewrites the footer of a file.
fn with_footer(file: &[u8], change: impl FnOnce(&mut Struct)) -> Vec<u8> {
    let bytes = file.len() as u64;
    let place = footers::place_of_footer(&file[file.len() - 8..], bytes).unwrap();
    let begin = place.start as usize;
    let (mut footer, _) = Struct::read(&file[begin..]).unwrap();
    // Arrow's embedded schema would declare the types once more.
    footer.remove(5);
    change(&mut footer);
    let footer = footer.serialize();
    let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
    [&file[..begin], &footer, &length, b"PAR1"].concat()
}

fn written_by(writer: &str) -> impl Fn(&mut Struct) {
    let writer = Value::Binary(writer.into());
    move |footer| footer.set(6, writer.clone())
}

/// Column metadata of the single row group.
fn columns(footer: &mut Struct) -> impl Iterator<Item = &mut Struct> {
    let group = footer.structs_mut(4).next().unwrap();
    group.structs_mut(1).map(|chunk| match chunk.get_mut(3) {
        Some(Value::Struct(column)) => column,
        other => panic!("{other:?}"),
    })
}

async fn read(folder: &Path, bytes: &[u8], sql: &str) -> Result<String> {
    let file = folder.join("t.parquet");
    std::fs::write(&file, bytes).unwrap();
    let context = SessionContext::new();
    let options = ListingOptions::new(Arc::new(ParquetFiles(ParquetFormat::new())));
    context.register_listing_table("t", file.to_str().unwrap(), options, None, None).await?;
    let rows = context.sql(sql).await?.collect().await?;
    Ok(pretty_format_batches(&rows)?.to_string())
}

/// Checks that a changed file reads as the original, unlike in plain DataFusion.
async fn assert_same(name: &str, plain: &[u8], changed: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let sql = "SELECT count(*), sum(n), min(t), max(t), count(DISTINCT t), sum(d) FROM t";
    let expected = read(folder.path(), plain, sql).await.unwrap();
    assert!(expected.contains("499500") && expected.contains("text 6"), "{expected}");
    assert_eq!(read(folder.path(), changed, sql).await.unwrap(), expected, "{name}");
    let context = SessionContext::new();
    let file = folder.path().join("t.parquet");
    let read = async {
        context.register_parquet("t", file.to_str().unwrap(), Default::default()).await?;
        context.sql(sql).await?.collect().await
    };
    // It may panic as well.
    let by_itself = AssertUnwindSafe(read).catch_unwind().await.ok().and_then(Result::ok);
    let by_itself = by_itself.map(|rows| pretty_format_batches(&rows).unwrap().to_string());
    assert!(by_itself.is_none_or(|rows| rows != expected), "{name} needs no mending");
}

#[tokio::test]
async fn footers_of_other_writers_are_read() {
    let plain = file(WriterProperties::builder().set_dictionary_enabled(false));
    let without_scale = with_footer(&plain, |footer| {
        for kind in footer.structs_mut(2).filter(|kind| kind.number(6) == Some(5)) {
            kind.remove(7);
            kind.remove(10);
        }
    });
    assert_same("a decimal without a scale", &plain, &without_scale).await;
    let other_fields = with_footer(&plain, |footer| {
        for group in footer.structs_mut(4) {
            group.set(4, Value::Int(6, 67));
        }
    });
    assert_same("fields of other types", &plain, &other_fields).await;
    let unknown = with_footer(&plain, |footer| {
        for kind in footer.structs_mut(2).filter(|kind| kind.number(1) == Some(2)) {
            kind.remove(10);
            kind.set(6, Value::i32(77));
        }
    });
    assert_same("a converted type of which nothing is known", &plain, &unknown).await;
}

#[tokio::test]
async fn a_column_of_nulls_and_a_group_without_columns_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let nulls = {
        let rows =
            RecordBatch::try_from_iter([("z", Arc::new(Int64Array::from(vec![None, None])) as ArrayRef)]);
        let rows = rows.unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.into_inner().unwrap()
    };
    let of_nulls = with_footer(&nulls, |footer| {
        let kind = footer.structs_mut(2).nth(1).unwrap();
        kind.remove(10);
        kind.set(6, Value::i32(24));
    });
    let count =
        read(folder.path(), &of_nulls, "SELECT count(*) AS rows, count(z) AS values FROM t").await.unwrap();
    assert!(count.contains("| 2    | 0      |"), "{count}");
    let plain = file(WriterProperties::builder());
    let with_group = with_footer(&plain, |footer| {
        let Some(Value::List(_, _, kinds)) = footer.get_mut(2) else { panic!("no types") };
        let group = |name: &str, children| {
            let name = (4, Value::Binary(name.into()));
            Value::Struct(Struct(vec![(3, Value::i32(1)), name, (5, Value::i32(children))]))
        };
        kinds.insert(2, group("inner", 0));
        kinds.insert(2, group("nested", 1));
        let Some(Value::Struct(root)) = kinds.first_mut() else { panic!("no root") };
        root.set(5, Value::i32(4));
    });
    let rows = read(folder.path(), &with_group, "SELECT n, t, d FROM t WHERE n = 8").await.unwrap();
    assert!(rows.contains("| 8 | text 1 | 8 |"), "{rows}");
}

#[tokio::test]
async fn dictionary_columns_with_short_lengths_are_read() {
    let plain = file(WriterProperties::builder().set_compression(Compression::SNAPPY));
    let short = with_footer(&plain, |footer| {
        written_by("parquet-mr version 1.2.5-cdh4.5.0 (build )")(footer);
        for column in columns(footer) {
            let begin = column.number(11).expect("a dictionary") as usize;
            let head = pages::dictionary_head_bytes(&plain[begin..]).expect("a head");
            let length = column.number(7).unwrap() - head;
            column.set(7, Value::Int(6, length));
            column.remove(11);
            column.set(9, Value::Int(6, begin as i64));
        }
    });
    assert_same("columns that are too short", &plain, &short).await;
}

#[tokio::test]
async fn pages_with_wrong_compression_flags_are_read() {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_dictionary_enabled(false);
    let mut bytes = file(properties);
    let plain = bytes.clone();
    let mut places = Vec::new();
    with_footer(&plain, |footer| {
        places.extend(
            columns(footer)
                .map(|column| (column.number(9).unwrap() as usize, column.number(7).unwrap() as usize)),
        );
    });
    let mut changed = 0;
    for (begin, length) in places {
        let (mut at, end) = (begin, begin + length);
        while at < end {
            let (mut head, rest) = Struct::read(&plain[at..]).unwrap();
            let head_bytes = plain.len() - at - rest;
            let body = head.number(3).unwrap() as usize;
            if let Some(Value::Struct(page)) = head.get_mut(8)
                && page.get(7) != Some(&Value::Bool(false))
                && page.get(7).is_some()
            {
                *page.get_mut(7).unwrap() = Value::Bool(false);
                bytes[at..at + head_bytes].copy_from_slice(&head.serialize());
                changed += 1;
            }
            at += head_bytes + body;
        }
    }
    assert!(changed > 0, "no page of the second version is compressed");
    let changed = with_footer(&bytes, written_by("parquet-cpp-arrow version 2.0.0"));
    assert_same("pages that do not say that they are compressed", &plain, &changed).await;
}

#[tokio::test]
async fn page_indexes_with_wrong_lengths_are_ignored() {
    let properties =
        WriterProperties::builder().set_dictionary_enabled(false).set_data_page_row_count_limit(100);
    let plain = file(properties.set_write_batch_size(50));
    let mut indexes = Vec::new();
    // Before the footer, at its recorded offset.
    let place = footers::place_of_footer(&plain[plain.len() - 8..], plain.len() as u64).unwrap();
    let mut begin = place.start as i64;
    let changed = with_footer(&plain, |footer| {
        written_by("")(footer);
        for chunk in footer.structs_mut(4).next().unwrap().structs_mut(1) {
            let from = chunk.number(4).expect("an index") as usize;
            let (mut index, _) = Struct::read(&plain[from..]).unwrap();
            for page in index.structs_mut(1) {
                let shorter = page.number(2).unwrap() - 20;
                page.set(2, Value::i32(i32::try_from(shorter).unwrap()));
            }
            let index = index.serialize();
            chunk.set(4, Value::Int(6, begin));
            chunk.set(5, Value::i32(i32::try_from(index.len()).unwrap()));
            begin += index.len() as i64;
            indexes.extend(index);
        }
    });
    let at = place.start as usize;
    let changed = [&changed[..at], &indexes, &changed[at..]].concat();
    let folder = tempfile::tempdir().unwrap();
    let sql = "SELECT count(*), sum(n), max(t) FROM t WHERE n BETWEEN 450 AND 460";
    let expected = read(folder.path(), &plain, sql).await.unwrap();
    assert_eq!(read(folder.path(), &changed, sql).await.unwrap(), expected);
}

#[tokio::test]
async fn duplicate_column_names_are_distinguished() {
    let plain = file(WriterProperties::builder());
    let twins = with_footer(&plain, |footer| {
        let Some(Value::List(_, _, kinds)) = footer.get_mut(2) else { panic!("no types") };
        let Some(Value::Struct(kind)) = kinds.get_mut(3) else { panic!("no third column") };
        kind.set(4, Value::Binary(b"n".to_vec()));
    });
    let folder = tempfile::tempdir().unwrap();
    let rows = read(folder.path(), &twins, "SELECT * FROM t WHERE n_1 = 8 AND n < 9").await.unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    assert_eq!([lines[1], lines[3]], ["| n | t      | n_1 |", "| 8 | text 1 | 8   |"], "{rows}");
}
