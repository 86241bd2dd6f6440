//! `nullif` of an array, an interval or a boolean and a quoted literal, which DataFusion's finds no common
//! type for.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::array_elements::plain_types;
use crate::delegation::delegate_scalar;

/// (value, value) → the first, or NULL if they are equal; under DataFusion's name.
pub(crate) fn function() -> Arc<ScalarUDF> {
    let inner = datafusion::functions::core::nullif();
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(NullIf { inner, signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NullIf {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for NullIf {
    delegate_scalar!(name, return_type, return_field_from_args);

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            // A literal takes the type of the other.
            [kind @ (DataType::List(_) | DataType::Interval(_) | DataType::Boolean), other]
            | [other, kind @ (DataType::List(_) | DataType::Interval(_) | DataType::Boolean)]
                if other.is_string() || other.is_null() =>
            {
                Ok(vec![kind.clone(), kind.clone()])
            }
            _ => plain_types(given, &self.inner),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_takes_the_other_type() {
        let list = || DataType::new_list(DataType::Int32, true);
        let flags = function().coerce_types(&[DataType::Utf8, DataType::Boolean]).unwrap();
        assert_eq!(flags, [DataType::Boolean, DataType::Boolean]);
        for given in [[list(), DataType::Utf8], [DataType::Utf8View, list()], [list(), DataType::Null]] {
            assert_eq!(function().coerce_types(&given).unwrap(), [list(), list()]);
        }
        let numbers = function().coerce_types(&[DataType::Int32, DataType::Int64]).unwrap();
        assert_eq!(numbers, [DataType::Int64, DataType::Int64]);
    }
}
