//! `harrier_bucket(n, value)`: the bucket of a value, as Iceberg defines it: Murmur3 (32 bits, seed 0) of the value's bytes.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The function as plans name it.
pub fn bucket() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Bucket::default()))
}

/// (number of buckets as a literal, value) → bucket from 0, Int32; NULL for NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    signature: Signature,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Bucket {
    fn name(&self) -> &str {
        "harrier_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match has_buckets(&arguments[1]) {
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
/// Errors: values of their type have none.
pub(crate) fn buckets_of(values: &ArrayRef, count: u32) -> Result<ArrayRef> {
    if !has_buckets(values.data_type()) {
        return plan_err!("no buckets of values of type {}", values.data_type());
    }
    let hashes = hashes(values)?;
    let bucket = |hash: i32| ((hash & 0x7fff_ffff) as u32 % count) as i32;
    let buckets: Int32Array = hashes.into_iter().map(|hash| hash.map(bucket)).collect();
    Ok(Arc::new(buckets))
}

/// The bucket of one value among `count`; `None` for NULL, and for values of types that have none.
pub fn bucket_of(value: &ScalarValue, count: u32) -> Result<Option<u32>> {
    if !has_buckets(&value.data_type()) {
        return Ok(None);
    }
    let hash = hashes(&value.to_array()?)?[0];
    Ok(hash.map(|hash| (hash & 0x7fff_ffff) as u32 % count))
}

/// Whether values of a type have buckets.
pub fn has_buckets(kind: &DataType) -> bool {
    use DataType::*;
    kind.is_integer() && *kind != UInt64
        || matches!(
            kind,
            Float32
                | Float64
                | Utf8
                | LargeUtf8
                | Utf8View
                | Binary
                | LargeBinary
                | BinaryView
                | Date32
                | Boolean
        )
        || matches!(kind, Timestamp(_, _) | Decimal128(_, _))
        || matches!(kind, Dictionary(_, value) if has_buckets(value))
}

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
        Dictionary(_, value) => hashes(&cast(values, value)?)?,
        Timestamp(_, zone) => {
            let times = cast(values, &Timestamp(TimeUnit::Microsecond, zone.clone()))?;
            let times = times.as_primitive::<TimestampMicrosecondType>();
            each(&|at| long(times.value(at)), times)
        }
        Decimal128(_, _) => {
            let decimals = values.as_primitive::<Decimal128Type>();
            each(&|at| murmur3(shortest(&decimals.value(at).to_be_bytes())), decimals)
        }
        Float32 | Float64 => {
            let floats = cast(values, &Float64)?;
            let floats = floats.as_primitive::<Float64Type>();
            // Zero has two signs and is one value.
            each(&|at| long((floats.value(at) + 0.0).to_bits() as i64), floats)
        }
        Date32 => hashes(&cast(&cast(values, &Int32)?, &Int64)?)?,
        _ => {
            let whole = cast(values, &Int64)?;
            let whole = whole.as_primitive::<Int64Type>();
            each(&|at| long(whole.value(at)), whole)
        }
    })
}

/// The fewest big-endian bytes that say the same number in two's complement.
fn shortest(bytes: &[u8; 16]) -> &[u8] {
    let negative = bytes[0] & 0x80 != 0;
    let filler = if negative { 0xff } else { 0 };
    let leading = bytes.iter().take(15).take_while(|byte| **byte == filler).count();
    let keeps_sign = |at: usize| (bytes[at] & 0x80 != 0) == negative;
    &bytes[if keeps_sign(leading) { leading } else { leading - 1 }..]
}

/// Murmur3, x86, 32 bits, seed 0.
fn murmur3(bytes: &[u8]) -> i32 {
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

    /// The examples of Iceberg's specification, appendix B.
    #[test]
    fn hashes_are_icebergs() {
        use datafusion::arrow::array::*;
        let cases: [(ArrayRef, i32); 9] = [
            (Arc::new(Int32Array::from(vec![34])), 2017239379),
            (Arc::new(Int64Array::from(vec![34])), 2017239379),
            (Arc::new(Date32Array::from(vec![17486])), -653330422),
            (Arc::new(StringArray::from(vec!["iceberg"])), 1210000089),
            (Arc::new(BinaryArray::from(vec![&[0u8, 1, 2, 3][..]])), -188683207),
            (Arc::new(TimestampMicrosecondArray::from(vec![1510871468000000])), -2047944441),
            (Arc::new(Decimal128Array::from(vec![1420]).with_precision_and_scale(9, 2).unwrap()), -500754589),
            (Arc::new(Float64Array::from(vec![1.0])), -142385009),
            (Arc::new(Float64Array::from(vec![-0.0])), 1669671676),
        ];
        for (values, expected) in cases {
            assert_eq!(hashes(&values).unwrap(), [Some(expected)], "{values:?}");
        }
        assert_eq!(shortest(&(-1i128).to_be_bytes()), [0xff]);
        assert_eq!(shortest(&(-129i128).to_be_bytes()), [0xff, 0x7f]);
        assert_eq!(shortest(&128i128.to_be_bytes()), [0, 0x80]);
    }
}
