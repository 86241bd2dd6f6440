//! `harrier_bucket(n, value)`: the bucket of a value, compatible with DuckDB's DuckLake extension, which
//! writes the same tables: Murmur3 (32 bits, seed 0) of the value's bytes.
//!
//! Bytes hashed, by the column's type:
//! - text and BLOB: their bytes;
//! - signed integers, BOOLEAN, DATE, TIME, timestamps: the integer representation, as 64 bits, little-endian.
//!   Timestamps are in the column's own unit;
//! - decimals of up to 18 digits: the same of the unscaled value;
//! - floating-point numbers: the 64 bits of the DOUBLE;
//! - unsigned integers, decimals of more digits, UUID: their text in DuckDB.
//!
//! Most of that is Iceberg's, except for decimals.
//!
//! Source: `functions/ducklake_murmur3.cpp` of DuckLake 1.0.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL64_MAX_PRECISION, DataType, Decimal128Type, Float64Type, Int64Type, TimeUnit, UInt64Type,
};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use uuid::Uuid;

/// The function as plans name it.
pub fn bucket() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(BucketFunction::default()))
}

/// (number of buckets as a literal, value) → bucket from 0, Int32; NULL for NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct BucketFunction {
    signature: Signature,
}

impl Default for BucketFunction {
    fn default() -> Self {
        Self { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for BucketFunction {
    fn name(&self) -> &str {
        "harrier_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match is_hashed(&arguments[1]) {
            true => Ok(DataType::Int32),
            false => plan_err!("no buckets of values of type {}", arguments[1]),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ColumnarValue::Scalar(count) = &arguments.args[0] else {
            return exec_err!("the number of buckets must be a constant");
        };
        let ScalarValue::Int64(Some(count @ 1..=0x7fff_ffff)) = count.cast_to(&DataType::Int64)? else {
            return exec_err!("the number of buckets must be 1 or more, not {count}");
        };
        let values = arguments.args[1].to_array(arguments.number_rows)?;
        Ok(ColumnarValue::Array(buckets_of(&values, count as u32)?))
    }
}

/// The buckets of values among `count`, 1 to 2^31 - 1: Int32, NULL for NULL.
///
/// Errors: the type is not supported.
pub fn buckets_of(values: &ArrayRef, count: u32) -> Result<ArrayRef> {
    if !is_hashed(values.data_type()) {
        return plan_err!("no buckets of values of type {}", values.data_type());
    }
    let hashes = hashes(values)?;
    let bucket = |hash: i32| ((hash & 0x7fff_ffff) as u32 % count) as i32;
    let buckets: Int32Array = hashes.into_iter().map(|hash| hash.map(bucket)).collect();
    Ok(Arc::new(buckets))
}

/// The bucket of one value among `count`; `None` for NULL, and for values of unsupported types.
pub fn bucket_of(value: &ScalarValue, count: u32) -> Result<Option<u32>> {
    if !is_hashed(&value.data_type()) {
        return Ok(None);
    }
    let hash = hashes(&value.to_array()?)?[0];
    Ok(hash.map(|hash| (hash & 0x7fff_ffff) as u32 % count))
}

fn is_hashed(kind: &DataType) -> bool {
    use DataType::*;
    match kind {
        Float32 | Float64 | Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView => true,
        Date32 | Boolean | Timestamp(_, _) | Time64(TimeUnit::Microsecond) => true,
        FixedSizeBinary(bytes) => *bytes == UUID_BYTES,
        Decimal128(_, scale) => *scale >= 0,
        Dictionary(_, value) => is_hashed(value),
        _ => kind.is_integer(),
    }
}

/// Binary values of this width are UUIDs.
const UUID_BYTES: i32 = 16;

fn hashes(values: &ArrayRef) -> Result<Vec<Option<i32>>> {
    use DataType::*;
    let long = |value: i64| murmur3(&value.to_le_bytes());
    let each = |hash: &dyn Fn(usize) -> i32, array: &dyn Array| -> Vec<Option<i32>> {
        (0..array.len()).map(|at| array.is_valid(at).then(|| hash(at))).collect()
    };
    Ok(match values.data_type() {
        Utf8 | LargeUtf8 | Utf8View => {
            let text = cast(values, &Utf8View)?;
            let text = text.as_string_view();
            each(&|at| murmur3(text.value(at).as_bytes()), text)
        }
        Binary | LargeBinary | BinaryView => {
            let bytes = cast(values, &BinaryView)?;
            let bytes = bytes.as_binary_view();
            each(&|at| murmur3(bytes.value(at)), bytes)
        }
        FixedSizeBinary(_) => {
            let ids = values.as_fixed_size_binary();
            let text = |id: &[u8]| Uuid::from_slice(id).unwrap_or_default().to_string();
            each(&|at| murmur3(text(ids.value(at)).as_bytes()), ids)
        }
        Dictionary(_, value) => hashes(&cast(values, value)?)?,
        Decimal128(precision, scale) => {
            let decimals = values.as_primitive::<Decimal128Type>();
            match *precision <= DECIMAL64_MAX_PRECISION {
                true => each(&|at| long(decimals.value(at) as i64), decimals),
                false => {
                    let text = |value: i128| decimal_text(value, *precision, scale.unsigned_abs());
                    each(&|at| murmur3(text(decimals.value(at)).as_bytes()), decimals)
                }
            }
        }
        Float32 | Float64 => {
            let floats = cast(values, &Float64)?;
            let floats = floats.as_primitive::<Float64Type>();
            // Normalizes negative zero.
            each(&|at| long((floats.value(at) + 0.0).to_bits() as i64), floats)
        }
        UInt8 | UInt16 | UInt32 | UInt64 => {
            let whole = cast(values, &UInt64)?;
            let whole = whole.as_primitive::<UInt64Type>();
            each(&|at| murmur3(whole.value(at).to_string().as_bytes()), whole)
        }
        Date32 => hashes(&cast(&cast(values, &Int32)?, &Int64)?)?,
        _ => {
            let whole = cast(values, &Int64)?;
            let whole = whole.as_primitive::<Int64Type>();
            each(&|at| long(whole.value(at)), whole)
        }
    })
}

/// DuckDB's text of a decimal, given its unscaled value: without a leading zero if the type has no integer
/// digits.
fn decimal_text(value: i128, precision: u8, scale: u8) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let places = usize::from(scale);
    let digits = format!("{:0>1$}", value.unsigned_abs(), places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    match scale {
        0 => format!("{sign}{whole}"),
        _ if scale == precision => format!("{sign}.{fraction}"),
        _ => format!("{sign}{whole}.{fraction}"),
    }
}

/// Murmur3, x86, 32 bits, seed 0.
pub fn murmur3(bytes: &[u8]) -> i32 {
    let scramble = |k: u32| k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut hash = 0u32;
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        hash ^= scramble(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u32::from(*byte));
        hash ^= scramble(tail);
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    (hash ^ hash >> 16) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Iceberg's specification, appendix B, except for decimals and timestamps of other units than
    /// microseconds, which are DuckDB's: `murmur3_32(CAST(… AS …))`, once its extension for DuckLake is
    /// loaded.
    #[test]
    fn hashes_are_duckdbs() {
        use datafusion::arrow::array::*;
        let decimal = |value: i128, precision: u8, scale: i8| -> ArrayRef {
            let values = Decimal128Array::from(vec![value]);
            Arc::new(values.with_precision_and_scale(precision, scale).unwrap())
        };
        let id = 0x6f0ce4b2_0000_4abc_8000_00000000000a_u128.to_be_bytes();
        let cases: Vec<(ArrayRef, i32)> = vec![
            (Arc::new(Int32Array::from(vec![34])), 2017239379),
            (Arc::new(Int64Array::from(vec![34])), 2017239379),
            (Arc::new(Int8Array::from(vec![-5])), 1222806974),
            (Arc::new(Int16Array::from(vec![-5])), 1222806974),
            (Arc::new(Int64Array::from(vec![-5])), 1222806974),
            (Arc::new(UInt8Array::from(vec![5])), 1394226660),
            (Arc::new(UInt16Array::from(vec![300])), -294367179),
            (Arc::new(UInt32Array::from(vec![u32::MAX])), -958289129),
            (Arc::new(UInt64Array::from(vec![u64::MAX])), -556781685),
            (Arc::new(BooleanArray::from(vec![true])), 1392991556),
            (Arc::new(Date32Array::from(vec![17486])), -653330422),
            (Arc::new(Date32Array::from(vec![-1])), 1651860712),
            (Arc::new(StringArray::from(vec!["iceberg"])), 1210000089),
            (Arc::new(StringViewArray::from(vec!["é5"])), 1941918185),
            (Arc::new(BinaryArray::from(vec![&[0u8, 1, 2, 3][..]])), -188683207),
            (Arc::new(BinaryViewArray::from(vec![&b"\xC3\xA9\x00\x01A"[..]])), 167248464),
            (Arc::new(FixedSizeBinaryArray::try_from_iter([id].iter()).unwrap()), -424176895),
            (Arc::new(TimestampMicrosecondArray::from(vec![1510871468000000])), -2047944441),
            (Arc::new(TimestampMicrosecondArray::from(vec![-3599876544]).with_timezone("UTC")), 1618210598),
            (Arc::new(TimestampSecondArray::from(vec![-3600])), 1515398750),
            (Arc::new(TimestampMillisecondArray::from(vec![1735686001500])), 1511532359),
            (Arc::new(TimestampNanosecondArray::from(vec![1735686001123456789])), -162507436),
            (Arc::new(Time64MicrosecondArray::from(vec![300123400])), -860814383),
            (Arc::new(Float64Array::from(vec![1.0])), -142385009),
            (Arc::new(Float64Array::from(vec![-0.0])), 1669671676),
            (Arc::new(Float64Array::from(vec![0.1])), -370449668),
            (Arc::new(Float64Array::from(vec![f64::NAN])), 1428788237),
            (Arc::new(Float32Array::from(vec![0.1])), -1028223254),
            (Arc::new(Float32Array::from(vec![f32::NEG_INFINITY])), 1915664072),
            (decimal(225, 4, 2), -1870713243),
            (decimal(-225, 9, 2), -1998145540),
            (decimal(500, 10, 2), 1420138093),
            (decimal(-50_000_000_000_000_000, 18, 18), -558735413),
            (decimal(500, 19, 2), -1441198479),
            (decimal(0, 19, 2), -1596297559),
            (decimal(-100, 38, 4), 54514220),
            (decimal(-(10_i128.pow(36)), 38, 38), 1660725203),
            (decimal(10_i128.pow(36), 38, 38), -50925462),
            (decimal(-7, 38, 0), 1918780564),
            (decimal(-1234567890123456789012345, 38, 5), -300291264),
            (decimal(-(10_i128.pow(38) - 1), 38, 0), -86019132),
        ];
        for (values, expected) in cases {
            assert_eq!(hashes(&values).unwrap(), [Some(expected)], "{values:?}");
            let none = new_null_array(values.data_type(), 1);
            assert_eq!(hashes(&none).unwrap(), [None], "{none:?}");
            assert!(is_hashed(values.data_type()), "{values:?}");
        }
    }
}
