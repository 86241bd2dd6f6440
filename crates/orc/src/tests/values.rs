//! Seeded random batches of all types, with nulls, runs, outliers and extremes.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::*;
use rand::Rng;
use rand::rngs::StdRng;

/// Integers of `bits` bits, in stretches that exercise each encoding.
pub fn integers(random: &mut StdRng, rows: usize, bits: u32) -> Vec<i64> {
    let shift = 64 - bits;
    let any = |random: &mut StdRng| random.random::<i64>() >> shift;
    let (least, most) = (i64::MIN >> shift, i64::MAX >> shift);
    let mut values = Vec::with_capacity(rows);
    while values.len() < rows {
        let length = match random.random_range(0..4) {
            0 => random.random_range(1..12),
            1 => random.random_range(500..530),
            2 => random.random_range(120..140),
            _ => random.random_range(1..1500),
        };
        let kind = random.random_range(0..8);
        let width = random.random_range(1..=bits);
        let (start, step) = (any(random), random.random_range(-300..300i64));
        let outlier = random.random_range(0..length);
        let mut last = start;
        for at in 0..length {
            values.push(match kind {
                0 => start,
                1 => start.wrapping_add(step.wrapping_mul(at as i64)).clamp(least, most),
                2 | 3 => {
                    let by = random.random_range(0..=step.abs());
                    let by = if kind == 2 { by } else { -by };
                    last = last.saturating_add(by).clamp(least, most);
                    last
                }
                4 => random.random::<i64>() >> (64 - width),
                5 if at == outlier => most,
                5 => random.random_range(0..2),
                6 => {
                    if at % 2 == 0 {
                        least
                    } else {
                        most
                    }
                }
                _ => start
                    .saturating_add((random.random::<u64>() >> (64 - width.min(20))) as i64)
                    .clamp(least, most),
            });
        }
    }
    values.truncate(rows);
    values
}

/// `None`: the column has no nulls.
fn nulls(random: &mut StdRng, rows: usize) -> Option<NullBuffer> {
    let share = match random.random_range(0..5) {
        0 => return None,
        1 => 0.01,
        2 => 0.5,
        3 => 1.0,
        // Nulls in runs.
        _ => {
            let mut valid = Vec::with_capacity(rows);
            while valid.len() < rows {
                let (length, is_valid) = (random.random_range(1..2000), random.random::<bool>());
                valid.extend(std::iter::repeat_n(is_valid, length));
            }
            valid.truncate(rows);
            return Some(valid.into());
        }
    };
    Some((0..rows).map(|_| !random.random_bool(share)).collect::<Vec<bool>>().into())
}

fn primitive<T: ArrowPrimitiveType>(random: &mut StdRng, values: Vec<T::Native>) -> ArrayRef {
    let nulls = nulls(random, values.len());
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
}

fn texts(random: &mut StdRng, rows: usize, different: usize) -> Vec<Option<String>> {
    let nulls = nulls(random, rows);
    (0..rows)
        .map(|at| {
            let value = random.random_range(0..different);
            let text = match value % 7 {
                0 => String::new(),
                1 => format!("ä{value}日"),
                2 => "x".repeat(value % 40),
                3 if value % 1000 == 3 => "long ".repeat(700 + value % 3),
                _ => format!("text {value}"),
            };
            nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at)).then_some(text)
        })
        .collect()
}

fn times(random: &mut StdRng, rows: usize, units: i64) -> Vec<i64> {
    let lowest = if units == 1_000_000_000 { -9_000_000_000 } else { -50_000_000_000 };
    let highest = if units == 1_000_000_000 { 9_000_000_000 } else { 200_000_000_000 };
    let seconds = integers(random, rows, 40);
    seconds
        .into_iter()
        .map(|seconds: i64| {
            let seconds = match random.random_range(0..10) {
                0 => random.random_range(-3..3),
                1 => random.random_range(lowest..highest),
                _ => (seconds / 1000).clamp(lowest, highest),
            };
            let part = match random.random_range(0..4) {
                0 => 0,
                1 => (units / 1000).max(1) * random.random_range(0..1000) % units,
                2 => random.random_range(0..units),
                _ => units - 1,
            };
            // Skip the times that the format cannot represent.
            let nanos = part * (1_000_000_000 / units);
            seconds * units + if seconds == -1 && nanos > 999_999 { 0 } else { part }
        })
        .collect()
}

fn offsets(random: &mut StdRng, rows: usize) -> OffsetBuffer<i32> {
    OffsetBuffer::from_lengths((0..rows).map(|_| match random.random_range(0..10) {
        0 => 0,
        1 => random.random_range(0..40),
        _ => random.random_range(0..3),
    }))
}

fn field(name: &str, array: &ArrayRef) -> FieldRef {
    Arc::new(Field::new(name, array.data_type().clone(), true))
}

fn structs(random: &mut StdRng, children: Vec<(&str, ArrayRef)>) -> ArrayRef {
    let nulls = nulls(random, children[0].1.len());
    let fields: Fields = children.iter().map(|(name, child)| field(name, child)).collect();
    Arc::new(StructArray::new(fields, children.into_iter().map(|(_, child)| child).collect(), nulls))
}

/// Null rows have values, too.
fn lists(random: &mut StdRng, rows: usize, values: impl Fn(&mut StdRng, usize) -> ArrayRef) -> ArrayRef {
    let offsets = offsets(random, rows);
    let values = values(random, *offsets.last().unwrap() as usize);
    let nulls = nulls(random, rows);
    Arc::new(ListArray::new(field("item", &values), offsets, values, nulls))
}

fn longs(random: &mut StdRng, rows: usize) -> ArrayRef {
    let values = integers(random, rows, 64);
    primitive::<Int64Type>(random, values)
}

fn strings(random: &mut StdRng, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from(texts(random, rows, 50)))
}

fn floats(random: &mut StdRng, rows: usize, has_nan: bool) -> Vec<f64> {
    let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::MAX, 1.5];
    (0..rows)
        .map(|_| match random.random_range(0..20) {
            0 if has_nan => f64::NAN,
            1 => special[random.random_range(0..special.len())],
            _ => random.random_range(-1e6..1e6),
        })
        .collect()
}

fn decimals(random: &mut StdRng, rows: usize, precision: u8, scale: i8) -> ArrayRef {
    let most = 10i128.pow(precision.into()) - 1;
    let values = (0..rows).map(|at| match random.random_range(0..4) {
        0 => at as i128 % (most + 1),
        1 => (random.random::<i128>() % (most + 1)) >> random.random_range(0..100),
        2 => [0, 1, -1, most, -most][random.random_range(0..5)],
        _ => random.random::<i128>() % (most + 1),
    });
    let values: Vec<i128> = values.collect();
    let nulls = nulls(random, rows);
    Arc::new(Decimal128Array::new(values.into(), nulls).with_precision_and_scale(precision, scale).unwrap())
}

/// Rows of all types that can be written.
pub fn batch(random: &mut StdRng, rows: usize) -> RecordBatch {
    let mut columns: Vec<(&str, ArrayRef)> = Vec::new();
    macro_rules! integers {
        ($($name:literal $bits:literal $arrow:ident $native:ident),*) => {$(
            let values = integers(random, rows, $bits).into_iter();
            let values = values.map(|value| value.max($native::MIN as i64) as $native);
            let values = values.collect();
            columns.push(($name, primitive::<$arrow>(random, values)));
        )*};
    }
    integers!("i8" 8 Int8Type i8, "i16" 16 Int16Type i16, "i32" 32 Int32Type i32, "i64" 64 Int64Type i64);
    integers!("u8" 9 UInt8Type u8, "u16" 17 UInt16Type u16, "u32" 33 UInt32Type u32, "u64" 64 UInt64Type u64);
    columns.push(("i64_again", longs(random, rows)));
    let days = integers(random, rows, 20).into_iter().map(|day| day as i32).collect();
    columns.push(("day", primitive::<Date32Type>(random, days)));
    let values = integers(random, rows, 8).into_iter().map(|value| value % 3 == 0);
    let values = BooleanArray::new(values.collect(), nulls(random, rows));
    columns.push(("boolean", Arc::new(values)));
    let values = floats(random, rows, true);
    columns.push(("f64", primitive::<Float64Type>(random, values)));
    let values = floats(random, rows, false);
    columns.push(("f64_no_nan", primitive::<Float64Type>(random, values)));
    let values = floats(random, rows, false).into_iter().map(|value| value as f32).collect();
    columns.push(("f32", primitive::<Float32Type>(random, values)));
    columns.push(("d38", decimals(random, rows, 38, 10)));
    columns.push(("d9", decimals(random, rows, 9, 2)));
    columns.push(("d18", decimals(random, rows, 18, 0)));
    columns.push(("d5", decimals(random, rows, 5, 5)));
    columns.push(("few", strings(random, rows)));
    columns.push(("many", Arc::new(StringViewArray::from(texts(random, rows, 1 << 40)))));
    columns.push(("some", Arc::new(LargeStringArray::from(texts(random, rows, 3000)))));
    let few: DictionaryArray<Int32Type> = texts(random, rows, 9).iter().map(Option::as_deref).collect();
    columns.push(("dictionary", Arc::new(few)));
    let values = texts(random, rows, 1000);
    let values = values.iter().map(|text| text.as_ref().map(|text| text.as_bytes()));
    columns.push(("binary", Arc::new(BinaryArray::from_iter(values.clone()))));
    columns.push(("binary_view", Arc::new(BinaryViewArray::from_iter(values))));
    let bytes: Vec<u8> = (0..rows * 3).map(|_| random.random()).collect();
    let fixed = FixedSizeBinaryArray::new(3, bytes.into(), nulls(random, rows));
    columns.push(("fixed", Arc::new(fixed)));
    let values = times(random, rows, 1);
    columns.push(("seconds", primitive::<TimestampSecondType>(random, values)));
    let values = times(random, rows, 1_000);
    columns.push(("millis", primitive::<TimestampMillisecondType>(random, values)));
    let values = times(random, rows, 1_000_000);
    columns.push(("micros", primitive::<TimestampMicrosecondType>(random, values)));
    let values = times(random, rows, 1_000_000_000);
    columns.push(("nanos", primitive::<TimestampNanosecondType>(random, values)));
    let values = times(random, rows, 1_000_000);
    let zoned = PrimitiveArray::<TimestampMicrosecondType>::new(values.into(), nulls(random, rows));
    columns.push(("zoned", Arc::new(zoned.with_timezone("UTC"))));
    let (a, b, c) = (longs(random, rows), strings(random, rows), lists(random, rows, longs));
    let inner = structs(random, vec![("b", b), ("c", c)]);
    columns.push(("struct", structs(random, vec![("a", a), ("inner", inner)])));
    columns.push(("list", lists(random, rows, longs)));
    columns.push(("list_of_lists", lists(random, rows, |random, rows| lists(random, rows, strings))));
    let of_structs = |random: &mut StdRng, rows: usize| {
        let (x, y) = (longs(random, rows), strings(random, rows));
        structs(random, vec![("x", x), ("y", y)])
    };
    columns.push(("list_of_structs", lists(random, rows, of_structs)));
    // Keys of a map are distinct and never null.
    let offsets = offsets(random, rows);
    let keys: Vec<String> = (0..*offsets.last().unwrap()).map(|at| format!("key {}", at % 97)).collect();
    let keys: ArrayRef = Arc::new(StringArray::from(keys));
    let values = decimals(random, keys.len(), 12, 3);
    let fields: Fields =
        vec![Field::new("key", DataType::Utf8, false), Field::new("value", values.data_type().clone(), true)]
            .into();
    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
    let entries_field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    columns
        .push(("map", Arc::new(MapArray::new(entries_field, offsets, entries, nulls(random, rows), false))));
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}
