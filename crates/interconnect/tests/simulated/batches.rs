//! Round trips of every Arrow type over the wire: whole, sliced, with nulls, empty, and cut into blocks.

use arrow::array::types::*;
use arrow::array::*;
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::*;
use bytes::Bytes;
use harrier_interconnect::decode::decode;
use harrier_interconnect::encode::split;
use harrier_interconnect::limits::{BLOCK_BYTES_MAX, HEADER_BYTES};
use harrier_mpi::Block;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

/// The batches that arrive when `batch` is sent, one per block.
fn roundtrip(batch: &RecordBatch) -> Vec<RecordBatch> {
    split(batch.clone())
        .unwrap()
        .iter()
        .map(|piece| {
            let mut block = Block::with_capacity(HEADER_BYTES + piece.payload_bytes());
            block.push_zeros(HEADER_BYTES);
            piece.encode(&mut block).unwrap();
            assert_eq!(block.len(), HEADER_BYTES + piece.payload_bytes());
            let payload = Bytes::from_owner(block).slice(HEADER_BYTES..);
            let decoded = decode(&batch.schema(), piece.rows(), &payload).unwrap();
            for column in decoded.columns() {
                column.to_data().validate_full().unwrap();
            }
            decoded
        })
        .collect()
}

fn check(name: &str, batch: &RecordBatch) {
    let arrived = roundtrip(batch);
    let concatenated = concat_batches(&batch.schema(), &arrived).unwrap();
    assert_eq!(batch.num_rows(), concatenated.num_rows(), "{name}");
    assert_eq!(batch, &concatenated, "{name}");
}

fn single_column(name: &str, array: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([(name, array, true)]).unwrap()
}

/// Arrays of every type a motion can carry, all of `rows` rows, with nulls among them.
fn arrays(rng: &mut StdRng, rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let mut some = |share: f64| (0..rows).map(|_| rng.random_bool(share)).collect::<Vec<bool>>();
    let valid = some(0.8);
    let bits = some(0.5);
    let mut rng = StdRng::seed_from_u64(rng.random());
    let ints: Vec<i64> = (0..rows).map(|_| rng.random_range(-1_000_000..1_000_000)).collect();
    let texts: Vec<String> = (0..rows)
        .map(|_| {
            let length =
                if rng.random_bool(0.5) { rng.random_range(0..13) } else { rng.random_range(13..200) };
            (0..length).map(|_| rng.random_range('a'..'ż')).collect()
        })
        .collect();
    let int = |row: usize| valid[row].then_some(ints[row]);
    let text = |row: usize| valid[row].then(|| texts[row].as_str());
    let nulls = || Some(NullBuffer::from(valid.clone()));
    let offsets = || {
        let mut at = 0i32;
        OffsetBuffer::new(ScalarBuffer::from_iter(std::iter::once(0).chain((0..rows).map(|row| {
            at += (ints[row].unsigned_abs() % 4) as i32;
            at
        }))))
    };
    let children = *offsets().last().unwrap() as usize;
    let child: ArrayRef = Arc::new(StringViewArray::from_iter(
        (0..children).map(|at| (at % 3 != 0).then(|| format!("child number {at}, long enough for a buffer"))),
    ));
    let child_field = Arc::new(Field::new("item", DataType::Utf8View, true));
    let entries_fields: Fields =
        vec![Field::new("key", DataType::Int32, false), Field::new("value", DataType::Utf8View, true)].into();
    let entries = StructArray::new(
        entries_fields.clone(),
        vec![Arc::new(Int32Array::from_iter_values(0..children as i32)), child.clone()],
        None,
    );
    let struct_fields: Fields =
        vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8, true)].into();
    let structs = StructArray::new(
        struct_fields.clone(),
        vec![
            Arc::new(Int64Array::from_iter((0..rows).map(int))),
            Arc::new(StringArray::from_iter((0..rows).map(text))),
        ],
        nulls(),
    );
    let union_fields = UnionFields::try_new(
        vec![0, 1],
        vec![Field::new("i", DataType::Int64, true), Field::new("s", DataType::Utf8, true)],
    )
    .unwrap();
    let union_children = || -> Vec<ArrayRef> {
        vec![
            Arc::new(Int64Array::from_iter((0..rows).map(int))),
            Arc::new(StringArray::from_iter((0..rows).map(text))),
        ]
    };
    let type_ids = || ScalarBuffer::from_iter(bits.iter().map(|bit| *bit as i8));
    let run_ends = Int32Array::from_iter_values(
        (0..rows).filter(|row| row % 3 == 2 || row + 1 == rows).map(|row| row as i32 + 1),
    );
    let run_values =
        StringArray::from_iter((0..run_ends.len()).map(|run| (run % 4 != 1).then(|| format!("run {run}"))));
    let mut arrays: Vec<(&'static str, ArrayRef)> = vec![
        ("null", Arc::new(NullArray::new(rows))),
        ("boolean", Arc::new(BooleanArray::new(BooleanBuffer::from(bits.clone()), nulls()))),
        ("int8", Arc::new(Int8Array::from_iter((0..rows).map(|row| int(row).map(|v| v as i8))))),
        ("uint16", Arc::new(UInt16Array::from_iter((0..rows).map(|row| int(row).map(|v| v as u16))))),
        (
            "int32 without nulls",
            Arc::new(Int32Array::from_iter_values((0..rows).map(|row| ints[row] as i32))),
        ),
        ("int64", Arc::new(Int64Array::from_iter((0..rows).map(int)))),
        ("float64", Arc::new(Float64Array::from_iter((0..rows).map(|row| int(row).map(|v| v as f64 / 7.0))))),
        ("date32", Arc::new(Date32Array::from_iter((0..rows).map(|row| int(row).map(|v| v as i32))))),
        (
            "timestamp with zone",
            Arc::new(TimestampNanosecondArray::from_iter((0..rows).map(int)).with_timezone("+02:00")),
        ),
        (
            "interval",
            Arc::new(IntervalMonthDayNanoArray::from_iter(
                (0..rows).map(|row| int(row).map(|v| IntervalMonthDayNano::new(v as i32, 3, v))),
            )),
        ),
        (
            "decimal128",
            Arc::new(
                Decimal128Array::from_iter((0..rows).map(|row| int(row).map(|v| v as i128 * 1_000_000_007)))
                    .with_precision_and_scale(38, 10)
                    .unwrap(),
            ),
        ),
        (
            "decimal256",
            Arc::new(
                Decimal256Array::from_iter((0..rows).map(|row| int(row).map(i256::from)))
                    .with_precision_and_scale(70, 3)
                    .unwrap(),
            ),
        ),
        ("utf8", Arc::new(StringArray::from_iter((0..rows).map(text)))),
        ("large utf8", Arc::new(LargeStringArray::from_iter((0..rows).map(text)))),
        ("binary", Arc::new(BinaryArray::from_iter((0..rows).map(|row| text(row).map(str::as_bytes))))),
        ("utf8 view", Arc::new(StringViewArray::from_iter((0..rows).map(text)))),
        (
            "binary view",
            Arc::new(BinaryViewArray::from_iter((0..rows).map(|row| text(row).map(str::as_bytes)))),
        ),
        ("short views", Arc::new(StringViewArray::from_iter_values((0..rows).map(|row| &texts[row][..0])))),
        (
            "fixed binary",
            Arc::new(
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                    (0..rows).map(|row| int(row).map(i64::to_le_bytes)),
                    8,
                )
                .unwrap(),
            ),
        ),
        ("all null", Arc::new(StringViewArray::from_iter((0..rows).map(|_| None::<&str>)))),
        (
            "dictionary",
            Arc::new((0..rows).map(|row| text(row).map(|_| "")).collect::<DictionaryArray<Int32Type>>()),
        ),
        ("dictionary of many", Arc::new((0..rows).map(text).collect::<DictionaryArray<UInt16Type>>())),
        ("list", Arc::new(ListArray::new(child_field.clone(), offsets(), child.clone(), nulls()))),
        (
            "map",
            Arc::new(MapArray::new(
                Arc::new(Field::new("entries", DataType::Struct(entries_fields), false)),
                offsets(),
                entries,
                nulls(),
                false,
            )),
        ),
        ("struct", Arc::new(structs)),
        (
            "fixed list",
            Arc::new(FixedSizeListArray::new(
                Arc::new(Field::new("item", DataType::Int32, true)),
                3,
                Arc::new(Int32Array::from_iter((0..rows * 3).map(|at| (at % 5 != 0).then_some(at as i32)))),
                nulls(),
            )),
        ),
        (
            "sparse union",
            Arc::new(UnionArray::try_new(union_fields.clone(), type_ids(), None, union_children()).unwrap()),
        ),
        (
            "dense union",
            Arc::new(
                UnionArray::try_new(
                    union_fields,
                    type_ids(),
                    Some(ScalarBuffer::from_iter((0..rows).map(|row| row as i32))),
                    union_children(),
                )
                .unwrap(),
            ),
        ),
    ];
    if rows > 0 {
        arrays.push(("runs", Arc::new(RunArray::<Int32Type>::try_new(&run_ends, &run_values).unwrap())));
    }
    arrays
}

#[test]
fn every_type_round_trips_whole_and_sliced() {
    let seed = harrier_launch::seed();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    for rows in [0, 1, 7, 64, 1000] {
        for (name, array) in arrays(&mut rng, rows) {
            let batch = single_column(name, array);
            check(name, &batch);
            for _ in 0..4 {
                let from = rng.random_range(0..=rows);
                let len = rng.random_range(0..=rows - from);
                check(&format!("{name} {from}+{len} of {rows}, seed {seed}"), &batch.slice(from, len));
            }
        }
    }
}

#[test]
fn filtered_batches_round_trip() {
    let mut rng = StdRng::seed_from_u64(7);
    let columns = arrays(&mut rng, 3000).into_iter().filter(|(name, _)| !name.contains("runs"));
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap();
    let keep = BooleanArray::from_iter((0..3000).map(|row| Some(row % 11 == 3)));
    let unions: Vec<usize> = (0..batch.num_columns())
        .filter(|at| !matches!(batch.column(*at).data_type(), DataType::Union(_, _)))
        .collect();
    check("filtered", &filter_record_batch(&batch.project(&unions).unwrap(), &keep).unwrap());
}

#[test]
fn batches_without_columns_keep_their_row_count() {
    let options = RecordBatchOptions::new().with_row_count(Some(12_345));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    let arrived = roundtrip(&batch);
    assert_eq!(arrived.iter().map(RecordBatch::num_rows).sum::<usize>(), 12_345);
}

#[test]
fn string_views_are_compacted() {
    let all = StringViewArray::from_iter_values((0..10_000).map(|row| format!("{row:>100}")));
    let few = single_column("s", Arc::new(all.slice(5000, 10)));
    let pieces = split(few.clone()).unwrap();
    assert_eq!(pieces.len(), 1);
    assert!(pieces[0].payload_bytes() < 10 * 116 + 256, "{} bytes", pieces[0].payload_bytes());
    check("ten of ten thousand", &few);
}

#[test]
fn large_batches_are_cut_into_blocks() {
    let values = Int64Array::from_iter_values(0..40_000_000);
    let batch = single_column("v", Arc::new(values));
    let pieces = split(batch.clone()).unwrap();
    assert!(pieces.iter().all(|piece| piece.payload_bytes() <= BLOCK_BYTES_MAX));
    drop(pieces);
    check("300 MB", &batch);
}

#[test]
fn rows_larger_than_a_block_are_sent_whole() {
    let batch = single_column(
        "s",
        Arc::new(StringViewArray::from_iter_values(["x".repeat(5 * BLOCK_BYTES_MAX), "y".to_string()])),
    );
    check("a long row", &batch);
}

#[test]
fn corrupt_blocks_are_refused_without_overread() {
    let seed = harrier_launch::seed();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    for (name, array) in arrays(&mut rng, 50) {
        let batch = single_column(name, array);
        let piece = split(batch.clone()).unwrap().remove(0);
        let mut block = Block::with_capacity(piece.payload_bytes());
        piece.encode(&mut block).unwrap();
        let good = block.as_slice().to_vec();
        for _ in 0..200 {
            let mut bad = good.clone();
            match rng.random_range(0..3) {
                0 => bad.truncate(rng.random_range(0..bad.len())),
                1 => {
                    let at = rng.random_range(0..bad.len());
                    bad[at] ^= 1 << rng.random_range(0..8);
                }
                _ => {
                    let words = bad.len() / 8;
                    let at = (words - 1 - rng.random_range(0..words.min(8))) * 8;
                    bad[at..at + 8].copy_from_slice(&rng.random::<u64>().to_le_bytes());
                }
            }
            let mut copy = Block::with_capacity(bad.len());
            copy.extend_from_slice(&bad);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                decode(&batch.schema(), 50, &Bytes::from_owner(copy))
            }));
            if let Ok(decoded) = outcome.unwrap_or_else(|_| panic!("{name} panicked, seed {seed}")) {
                for column in decoded.columns() {
                    column
                        .to_data()
                        .validate_full()
                        .unwrap_or_else(|error| panic!("{name}: {error}, seed {seed}"));
                }
            }
        }
    }
}
