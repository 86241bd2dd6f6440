//! Row filter enforcement on writes: fails for rows that row filters hide from their writer.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

const NAME: &str = "harrier_written";

/// Returns `value` for rows where `is_seen` is true. As part of a written value it is computed for exactly
/// the rows that are written.
///
/// Errors: 42501 for other rows, NULL included.
pub fn enforce(is_seen: Expr, table: &str, value: Expr) -> Expr {
    function().call(vec![is_seen, lit(table), value])
}

/// The function; ranks know it by its name.
pub(crate) fn function() -> Arc<ScalarUDF> {
    // Volatile: must not be evaluated earlier, for more rows, or for none.
    Arc::new(ScalarUDF::new_from_impl(RowFilterCheck { signature: Signature::any(3, Volatility::Volatile) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RowFilterCheck {
    signature: Signature,
}

impl ScalarUDFImpl for RowFilterCheck {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Boolean, _, value] => Ok(value.clone()),
            _ => plan_err!("{NAME} does not take {arguments:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let [is_seen, ColumnarValue::Scalar(ScalarValue::Utf8(Some(table))), value] =
            arguments.args.as_slice()
        else {
            return internal_err!("{NAME} has other arguments");
        };
        let are_seen = match is_seen {
            ColumnarValue::Scalar(ScalarValue::Boolean(is_seen)) => rows == 0 || *is_seen == Some(true),
            ColumnarValue::Scalar(_) => false,
            ColumnarValue::Array(seen) => {
                let seen = seen.as_boolean();
                seen.null_count() == 0 && !seen.has_false()
            }
        };
        match are_seen {
            true => Ok(value.clone()),
            false => {
                let message = format!("new row violates the row filters of table \"{table}\"");
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
                    .with_detail("The role that writes it could not see it.")
                    .into_datafusion())
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

    fn invoke(seen: ColumnarValue, rows: usize) -> Result<ColumnarValue> {
        let value = Arc::new(Int32Array::from_iter_values(0..rows as i32)) as ArrayRef;
        let field = |kind| Arc::new(Field::new("", kind, true));
        function().inner().invoke_with_args(ScalarFunctionArgs {
            args: vec![seen, ColumnarValue::from(ScalarValue::from("t")), ColumnarValue::Array(value)],
            arg_fields: vec![field(DataType::Boolean), field(DataType::Utf8), field(DataType::Int32)],
            number_rows: rows,
            return_field: field(DataType::Int32),
            config_options: Arc::new(ConfigOptions::default()),
        })
    }

    #[test]
    fn rows_outside_the_row_filter_are_refused() {
        let array = |seen: Vec<Option<bool>>| ColumnarValue::Array(Arc::new(BooleanArray::from(seen)));
        let scalar = |seen: Option<bool>| ColumnarValue::from(ScalarValue::Boolean(seen));
        assert!(invoke(array(vec![Some(true), Some(true)]), 2).is_ok());
        assert!(invoke(scalar(Some(true)), 2).is_ok());
        assert!(invoke(scalar(Some(false)), 0).is_ok());
        for seen in [
            array(vec![Some(true), Some(false)]),
            array(vec![None, Some(true)]),
            scalar(None),
            scalar(Some(false)),
        ] {
            let error = invoke(seen, 2).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::INSUFFICIENT_PRIVILEGE);
        }
    }
}
