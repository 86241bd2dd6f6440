//! Array functions that return counts or positions, as signed integers, as in PostgreSQL.
//!
//! DataFusion's are unsigned: a negative difference is out of range, and unary `-` is not supported. Ranks
//! know them by their names, which are DataFusion's.

use std::sync::Arc;

use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::Result;
use datafusion::functions_nested::cardinality;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use crate::array_elements;
use crate::delegation::delegate_scalar;

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [cardinality::cardinality_udf(), array_elements::position(), array_elements::positions()]
        .into_iter()
        .map(|inner| Arc::new(ScalarUDF::new_from_impl(Counted { inner })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Counted {
    inner: Arc<ScalarUDF>,
}

/// The signed type of the same width.
fn signed_type(kind: &DataType) -> DataType {
    match kind {
        DataType::UInt64 => DataType::Int32,
        DataType::List(item) => {
            let item = signed_type(item.data_type());
            DataType::List(Arc::new(Field::new_list_field(item, true)))
        }
        other => other.clone(),
    }
}

impl ScalarUDFImpl for Counted {
    delegate_scalar!(name, aliases, signature, coerce_types, documentation);

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(signed_type(&self.inner.inner().return_type(arguments)?))
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let kind = arguments.return_field.data_type().clone();
        let given: Vec<DataType> = arguments.args.iter().map(ColumnarValue::data_type).collect();
        let unsigned = self.inner.inner().return_type(&given)?;
        arguments.return_field = Arc::new(arguments.return_field.as_ref().clone().with_data_type(unsigned));
        match self.inner.inner().invoke_with_args(arguments)? {
            ColumnarValue::Scalar(count) => Ok(ColumnarValue::Scalar(count.cast_to(&kind)?)),
            ColumnarValue::Array(counts) => Ok(ColumnarValue::Array(cast(&counts, &kind)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_sign() {
        let lists = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        for function in functions() {
            let given = [lists.clone(), DataType::Utf8];
            let kind = function.inner().return_type(&given).unwrap();
            assert!(!format!("{kind}").contains("UInt"), "{}: {kind}", function.name());
        }
    }
}
