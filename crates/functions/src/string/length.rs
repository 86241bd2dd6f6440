//! `length`, `octet_length` and `bit_length`, also of bytes: DataFusion's support texts only, and treat bytes
//! as one or refuse them.
//!
//! Ranks know them by their names, which are DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions::{string, unicode};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::delegation::delegate_scalar;

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [unicode::character_length(), string::octet_length(), string::bit_length()].into_iter().map(|inner| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Length { inner, signature }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl Length {
    /// Units per byte.
    fn of_byte(&self) -> i64 {
        if self.name() == "bit_length" { 8 } else { 1 }
    }
}

impl ScalarUDFImpl for Length {
    delegate_scalar!(name, aliases, documentation);

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [kind] if are_bytes(kind) => Ok(vec![kind.clone()]),
            _ => {
                let fields = arguments.iter().map(|kind| Arc::new(Field::new("", kind.clone(), true)));
                let fields = fields_with_udf(&fields.collect::<Vec<_>>(), self.inner.as_ref())?;
                Ok(fields.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [kind] if are_bytes(kind) => Ok(DataType::Int32),
            _ => self.inner.inner().return_type(arguments),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [bytes] = arguments.args.as_slice() else {
            return self.inner.inner().invoke_with_args(arguments);
        };
        if !are_bytes(&bytes.data_type()) {
            return self.inner.inner().invoke_with_args(arguments);
        }
        match bytes {
            ColumnarValue::Array(bytes) => Ok(ColumnarValue::Array(byte_lengths(bytes, self.of_byte())?)),
            ColumnarValue::Scalar(bytes) => {
                let counts = byte_lengths(&bytes.to_array()?, self.of_byte())?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&counts, 0)?))
            }
        }
    }
}

fn are_bytes(kind: &DataType) -> bool {
    kind.is_binary() || matches!(kind, DataType::FixedSizeBinary(_))
}

fn byte_lengths(bytes: &ArrayRef, of_byte: i64) -> Result<ArrayRef> {
    let counts = cast(&length(bytes.as_ref())?, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let mut all = Vec::with_capacity(counts.len());
    for count in counts {
        match count.map(|count| i32::try_from(count * of_byte)).transpose() {
            Ok(count) => all.push(count),
            Err(_) => return exec_err!("the length of a value is out of range"),
        }
    }
    Ok(Arc::new(Int32Array::from(all)))
}
