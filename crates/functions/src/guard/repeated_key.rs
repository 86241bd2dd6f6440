//! Enforces that `INSERT … ON CONFLICT DO UPDATE` writes each key once.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

const NAME: &str = "harrier_once";

/// Returns `value` for rows where `is_repeated` is not true. As part of a written value it is computed for
/// exactly the rows that are written.
///
/// Errors: 21000 for other rows.
pub fn enforce(is_repeated: Expr, value: Expr) -> Expr {
    function().call(vec![is_repeated, value])
}

/// The function; ranks know it by its name.
pub(crate) fn function() -> Arc<ScalarUDF> {
    // Volatile: must not be evaluated earlier, for more rows, or for none.
    Arc::new(ScalarUDF::new_from_impl(RepeatedKey { signature: Signature::any(2, Volatility::Volatile) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RepeatedKey {
    signature: Signature,
}

impl ScalarUDFImpl for RepeatedKey {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Boolean, value] => Ok(value.clone()),
            _ => plan_err!("{NAME} does not take {arguments:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [is_repeated, value] = arguments.args.as_slice() else {
            return internal_err!("{NAME} has other arguments");
        };
        let is_any_repeated = match is_repeated {
            ColumnarValue::Scalar(ScalarValue::Boolean(is_repeated)) => {
                arguments.number_rows > 0 && *is_repeated == Some(true)
            }
            ColumnarValue::Scalar(_) => false,
            ColumnarValue::Array(repeated) => {
                repeated.as_boolean().iter().any(|repeated| repeated == Some(true))
            }
        };
        match is_any_repeated {
            false => Ok(value.clone()),
            true => {
                let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
                let hint = "Ensure that no rows proposed for insertion within the same command have \
                            duplicate constrained values.";
                Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message).with_hint(hint).into_datafusion())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, BooleanArray, Int32Array};
    use datafusion::arrow::datatypes::Field;
    use datafusion::config::ConfigOptions;

    use super::*;

    fn invoke(repeated: ColumnarValue, rows: usize) -> Result<ColumnarValue> {
        let value = Arc::new(Int32Array::from_iter_values(0..rows as i32)) as ArrayRef;
        let field = |kind| Arc::new(Field::new("", kind, true));
        function().inner().invoke_with_args(ScalarFunctionArgs {
            args: vec![repeated, ColumnarValue::Array(value)],
            arg_fields: vec![field(DataType::Boolean), field(DataType::Int32)],
            number_rows: rows,
            return_field: field(DataType::Int32),
            config_options: Arc::new(ConfigOptions::default()),
        })
    }

    #[test]
    fn a_repeated_key_is_an_error() {
        let array =
            |repeated: Vec<Option<bool>>| ColumnarValue::Array(Arc::new(BooleanArray::from(repeated)));
        let scalar = |repeated: Option<bool>| ColumnarValue::from(ScalarValue::Boolean(repeated));
        for once in [array(vec![Some(false), None]), scalar(None), scalar(Some(false))] {
            assert!(invoke(once, 2).is_ok());
        }
        assert!(invoke(scalar(Some(true)), 0).is_ok());
        for repeated in [array(vec![None, Some(true)]), scalar(Some(true))] {
            let error = invoke(repeated, 2).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::CARDINALITY_VIOLATION);
        }
    }
}
