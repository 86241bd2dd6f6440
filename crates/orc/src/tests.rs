//! Round trips through another implementation of the format, with byte-level checks of what that does not
//! read.

mod values;

use std::sync::Arc;

use arrow::array::*;
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::*;
use arrow::util::display::array_value_to_string;
use bytes::Bytes;
use orc_rust::ArrowReaderBuilder;
use orc_rust::projection::ProjectionMask;
use orc_rust::schema::TimestampPrecision;
use prost::Message;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::proto::{ColumnStatistics, EncodingKind, Footer, Metadata, PostScript, RowIndex, StripeFooter};
use crate::rle;
use crate::{Codec, Error, Options, Writer, check};

const CODECS: [Codec; 5] = [Codec::None, Codec::Zlib, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn write_file(batches: &[RecordBatch], options: Options) -> Bytes {
    let mut writer = Writer::new(Vec::new(), batches[0].schema(), options).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap().into()
}

fn read_file(file: &Bytes, columns: &[&str], precision: TimestampPrecision) -> RecordBatch {
    let builder = ArrowReaderBuilder::try_new(file.clone()).unwrap();
    let mask = ProjectionMask::named_roots(builder.file_metadata().root_data_type(), columns);
    let builder = builder.with_timestamp_precision(precision).with_projection(mask);
    let reader = builder.build();
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    concat_batches(&schema, &batches).unwrap()
}

/// Compares columns. Times are read as nanoseconds if they are such, else as microseconds, which cover more
/// years.
fn check_columns(file: &Bytes, expected: &RecordBatch, what: &str) {
    for precision in [TimestampPrecision::Nanosecond, TimestampPrecision::Microsecond] {
        let is_nanos = |kind: &DataType| matches!(kind, DataType::Timestamp(TimeUnit::Nanosecond, _));
        let schema = expected.schema();
        let columns: Vec<&str> = schema
            .fields()
            .iter()
            .filter(|field| is_nanos(field.data_type()) == (precision == TimestampPrecision::Nanosecond))
            .map(|field| field.name().as_str())
            .collect();
        if columns.is_empty() {
            continue;
        }
        let actual = read_file(file, &columns, precision);
        assert_eq!(actual.num_rows(), expected.num_rows(), "{what}");
        for name in columns {
            let actual = actual.column_by_name(name).unwrap();
            let expected = cast(expected.column_by_name(name).unwrap(), actual.data_type()).unwrap();
            if actual != &expected {
                let text = |array: &ArrayRef, at| array_value_to_string(array, at).unwrap();
                let at = (0..actual.len()).find(|at| actual.slice(*at, 1) != expected.slice(*at, 1)).unwrap();
                panic!("{what}, {name}, row {at}: {} for {}", text(actual, at), text(&expected, at));
            }
        }
    }
}

#[test]
fn all_types_round_trip() {
    let rows = [0, 1, 2, 511, 512, 513, 1023, 3000, 9_999, 10_000, 10_001, 12_000];
    for (seed, rows) in rows.into_iter().enumerate() {
        let mut random = StdRng::seed_from_u64(seed as u64);
        let all = values::batch(&mut random, rows);
        let options = Options {
            codec: CODECS[seed % CODECS.len()],
            stripe_bytes: if seed % 2 == 0 { 64 << 20 } else { 400_000 },
            group_rows: [10_000, 777, 1_000][seed % 3],
        };
        let mut pieces = vec![all.slice(0, 0)];
        let mut at = 0;
        while at < rows {
            let length = random.random_range(1..4000).min(rows - at);
            pieces.push(all.slice(at, length));
            at += length;
        }
        check_columns(&write_file(&pieces, options), &all, &format!("seed {seed}, {options:?}"));
    }
}

fn one(array: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("a", Arc::new(array) as ArrayRef, true)]).unwrap()
}

#[test]
fn regressions_of_integer_encodings() {
    let plain = Options::default();
    let outlier = (0..600).map(|at| if at == 17 { 1 << 30 } else { at * at % 7 % 2 });
    let all = [
        (1_700_000_000..1_700_000_004).collect::<Vec<i32>>(),
        (16_384..16_388).collect(),
        outlier.collect(),
        vec![i32::MIN, i32::MAX, i32::MIN, 0],
        [vec![5, 7, 7], vec![9; 3], vec![1; 600]].concat(),
        // Up and down from two equal values.
        [vec![0], (0..300).map(|at| at * at).collect(), vec![0; 212], (0..300).map(|at| -at * at).collect()]
            .concat(),
    ];
    for values in all {
        let batch = one(Int32Array::from(values));
        check_columns(&write_file(std::slice::from_ref(&batch), plain), &batch, "integers");
    }
}

/// Example bytes of the specification, and alternative encodings that it decodes to the same values.
#[test]
fn decoder_reads_the_specification_examples() {
    let unsigned = |values: &[i64]| {
        let mut integers = rle::Integers::of_unsigned();
        values.iter().for_each(|value| integers.push(*value));
        bytes_of(integers.finish())
    };
    assert_eq!(unsigned(&[10_000; 5]), [0x0a, 0x27, 0x10]);
    assert_eq!(
        unsigned(&[23_713, 43_806, 57_005, 48_879]),
        [0x5e, 0x03, 0x5c, 0xa1, 0xab, 0x1e, 0xde, 0xad, 0xbe, 0xef]
    );
    // 512 values from 7 in steps of 3, and 88 from 1543 on.
    let even: Vec<i64> = (0..600).map(|at| 7 + 3 * at).collect();
    assert_eq!(unsigned(&even), [0xc1, 0xff, 7, 6, 0xc0, 87, 0x87, 0x0c, 6]);
    let mut bytes = rle::Bytes::default();
    (0..100).for_each(|_| bytes.push(0));
    assert_eq!(bytes_of(bytes.finish()), [0x61, 0x00]);
    [0x44, 0x45].into_iter().for_each(|byte| bytes.push(byte));
    assert_eq!(bytes_of(bytes.finish()), [0xfe, 0x44, 0x45]);
    let mut bits = rle::Bits::default();
    (0..8).for_each(|at| bits.push(at == 0));
    assert_eq!(bytes_of(bits.finish()), [0xff, 0x80]);
}

fn bytes_of(stream: crate::chunks::Stream) -> Vec<u8> {
    crate::chunks::Packer::new(Codec::None).unwrap().pack(stream).unwrap().pieces.concat()
}

/// The tail of an uncompressed file.
struct End {
    metadata: Metadata,
    footer: Footer,
}

fn end(file: &[u8]) -> End {
    let (postscript_length, rest) = file.split_last().unwrap();
    let (rest, postscript) = rest.split_at(rest.len() - usize::from(*postscript_length));
    let postscript = PostScript::decode(postscript).unwrap();
    assert_eq!(postscript.magic.as_deref(), Some("ORC"));
    let (rest, footer) = rest.split_at(rest.len() - postscript.footer_length.unwrap() as usize);
    let (rest, metadata) = rest.split_at(rest.len() - postscript.metadata_length.unwrap() as usize);
    let footer = Footer::decode(footer).unwrap();
    assert_eq!(footer.content_length, Some(rest.len() as u64));
    End { metadata: Metadata::decode(metadata).unwrap(), footer }
}

fn check_integers(actual: &ColumnStatistics, values: &Int64Array) {
    assert_eq!(actual.number_of_values, Some((values.len() - values.null_count()) as u64));
    assert_eq!(actual.has_null, Some(values.null_count() > 0));
    let range = values.iter().flatten().min().zip(values.iter().flatten().max());
    let statistics = actual.int_statistics.as_ref();
    assert_eq!(statistics.map(|actual| (actual.minimum.unwrap(), actual.maximum.unwrap())), range);
    let sum = values.iter().flatten().try_fold(0i64, |sum, value| sum.checked_add(value));
    // The order of additions decides which sums overflow.
    if let Some(actual) = statistics.and_then(|actual| actual.sum) {
        let exact: i128 = values.iter().flatten().map(i128::from).sum();
        assert_eq!(i128::from(actual), exact);
    } else {
        assert!(range.is_none() || sum.is_none());
    }
}

#[test]
fn statistics_match_the_rows() {
    let mut random = StdRng::seed_from_u64(7);
    let values: Int64Array = values::integers(&mut random, 9_000, 62)
        .into_iter()
        .enumerate()
        .map(|(at, value)| (!(2_000..4_000).contains(&at) && value % 5 != 0).then_some(value))
        .collect();
    let options = Options { codec: Codec::None, stripe_bytes: 12_000, group_rows: 500 };
    let file = write_file(&[one(values.clone())], options);
    let End { metadata, footer } = end(&file);
    check_integers(&footer.statistics[1], &values);
    assert!(footer.stripes.len() > 2);
    assert_eq!(footer.stripes.len(), metadata.stripe_stats.len());
    let mut row = 0;
    for (stripe, statistics) in footer.stripes.iter().zip(&metadata.stripe_stats) {
        let rows = stripe.number_of_rows.unwrap() as usize;
        check_integers(&statistics.col_stats[1], &values.slice(row, rows));
        let data = (stripe.offset.unwrap() + stripe.index_length.unwrap()) as usize;
        let at = data + stripe.data_length.unwrap() as usize;
        let end = &file[at..][..stripe.footer_length.unwrap() as usize];
        let streams = StripeFooter::decode(end).unwrap().streams;
        let root = streams[0].length.unwrap() as usize;
        let index = &file[stripe.offset.unwrap() as usize + root..data];
        let index = RowIndex::decode(index).unwrap();
        assert_eq!(index.entry.len(), rows.div_ceil(500));
        for (group, entry) in index.entry.iter().enumerate() {
            let begin = row + group * 500;
            let group = values.slice(begin, 500.min(row + rows - begin));
            check_integers(entry.statistics.as_ref().unwrap(), &group);
        }
        row += rows;
    }
    assert_eq!(row, values.len());
    assert_eq!(footer.number_of_rows, Some(row as u64));
}

/// A reader that prunes by `s.a IS NULL` must find the rows in which `s` is null.
#[test]
fn children_of_null_are_null() {
    let a: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let fields: Fields = vec![Field::new("a", DataType::Int64, true)].into();
    let structs = StructArray::new(fields, vec![a], Some(vec![true, false].into()));
    let file = write_file(&[one(structs)], Options { codec: Codec::None, ..Options::default() });
    let statistics = &end(&file).footer.statistics;
    assert_eq!((statistics[2].number_of_values, statistics[2].has_null), (Some(1), Some(true)));
}

/// The encodings of a text column, by stripe.
fn encodings(file: &[u8]) -> Vec<EncodingKind> {
    let footer = end(file).footer;
    let encoding = |stripe: &crate::proto::StripeInformation| {
        let at = stripe.offset.unwrap() + stripe.index_length.unwrap() + stripe.data_length.unwrap();
        let end = &file[at as usize..][..stripe.footer_length.unwrap() as usize];
        StripeFooter::decode(end).unwrap().columns[1].kind()
    };
    footer.stripes.iter().map(encoding).collect()
}

#[test]
fn dictionary_encoding_where_it_pays() {
    let options = Options { codec: Codec::None, stripe_bytes: 100_000, group_rows: 1_000 };
    let few = one(StringArray::from_iter_values((0..40_000).map(|at| format!("text {}", at % 100))));
    let many = one(StringArray::from_iter_values((0..40_000).map(|at| format!("text {at}"))));
    let file = write_file(std::slice::from_ref(&few), options);
    assert!(encodings(&file).iter().all(|kind| *kind == EncodingKind::DictionaryV2));
    check_columns(&file, &few, "few");
    let file = write_file(std::slice::from_ref(&many), options);
    assert!(encodings(&file).iter().all(|kind| *kind == EncodingKind::DirectV2));
    check_columns(&file, &many, "many");
    // From the second group on all values are distinct; the third group detects it.
    let mixed = concat_batches(&few.schema(), &[few.slice(0, 1_000), many]).unwrap();
    check_columns(&write_file(std::slice::from_ref(&mixed), options), &mixed, "mixed");
}

#[test]
fn stripes_are_bounded() {
    let mut random = StdRng::seed_from_u64(3);
    let values: Vec<i64> = (0..400_000).map(|_| random.random()).collect();
    let options = Options { codec: Codec::None, stripe_bytes: 500_000, ..Options::default() };
    let file = write_file(&[one(Int64Array::from(values))], options);
    let stripes = end(&file).footer.stripes;
    assert!(stripes.len() >= 6);
    assert!(stripes.iter().all(|stripe| stripe.data_length < Some(520_000)), "{stripes:?}");
}

#[test]
fn unsupported_values_are_errors() {
    let refused = [
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Duration(TimeUnit::Second),
        DataType::Decimal256(50, 2),
        DataType::Decimal128(5, -2),
        DataType::Null,
    ];
    for kind in refused {
        let inner = Fields::from(vec![Field::new("b", kind.clone(), true)]);
        let schema = Schema::new(vec![Field::new("a", DataType::Struct(inner), true)]);
        match check(&schema) {
            Err(Error::Type { column, kind: actual }) => assert_eq!((column.as_str(), actual), ("a.b", kind)),
            other => panic!("{other:?} for {kind}"),
        }
    }
    let unfit = |batch: RecordBatch| {
        let mut writer = Writer::new(Vec::new(), batch.schema(), Options::default()).unwrap();
        matches!(writer.write(&batch), Err(Error::Number { .. } | Error::Time { .. }))
    };
    assert!(unfit(one(UInt64Array::from(vec![1, 1 << 63]))));
    assert!(unfit(one(TimestampMillisecondArray::from(vec![-999]))));
    assert!(unfit(one(TimestampSecondArray::from(vec![i64::MIN]))));
    assert!(!unfit(one(TimestampMillisecondArray::from(vec![-1000, -1001, 0]))));
    let mut writer =
        Writer::new(Vec::new(), one(Int64Array::from(vec![1])).schema(), Options::default()).unwrap();
    assert!(matches!(writer.write(&one(Int32Array::from(vec![1]))), Err(Error::Schema { .. })));
}
