//! CHECK constraint enforcement: fails for rows that violate a constraint of their table.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

const NAME: &str = "harrier_checked";

/// Maximum number of characters of a value in an error.
const SHOWN_CHARS_MAX: usize = 64;

/// Returns `value` for rows where `holds` is true or NULL. As part of a written value it is computed for
/// exactly the rows that are written. `row`: the values shown in the error, if any.
///
/// Errors: 23514 for other rows.
pub fn enforce(holds: Expr, constraint: &str, table: &str, row: Vec<Expr>, value: Expr) -> Expr {
    let mut arguments = vec![holds, lit(constraint), lit(table), value];
    arguments.extend(row);
    function().call(arguments)
}

/// The function; ranks know it by its name.
pub(crate) fn function() -> Arc<ScalarUDF> {
    // Volatile: must not be evaluated earlier, for more rows, or for none.
    Arc::new(ScalarUDF::new_from_impl(CheckConstraint {
        signature: Signature::variadic_any(Volatility::Volatile),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckConstraint {
    signature: Signature,
}

impl ScalarUDFImpl for CheckConstraint {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Boolean, _, _, value, ..] => Ok(value.clone()),
            _ => plan_err!("{NAME} does not take {arguments:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let [
            holds,
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(constraint))),
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(table))),
            value,
            row @ ..,
        ] = arguments.args.as_slice()
        else {
            return internal_err!("{NAME} has other arguments");
        };
        let failing = match holds {
            ColumnarValue::Scalar(ScalarValue::Boolean(holds)) => {
                (rows > 0 && *holds == Some(false)).then_some(0)
            }
            ColumnarValue::Scalar(_) => None,
            ColumnarValue::Array(holds) => holds.as_boolean().iter().position(|holds| holds == Some(false)),
        };
        let Some(failing) = failing else { return Ok(value.clone()) };
        let message = format!("new row for relation \"{table}\" violates check constraint \"{constraint}\"");
        let mut error = SqlError::new(SqlState::CHECK_VIOLATION, message);
        if !row.is_empty() {
            let values =
                row.iter().map(|value| format_value(value, rows, failing)).collect::<Result<Vec<_>>>()?;
            error = error.with_detail(format!("Failing row contains ({}).", values.join(", ")));
        }
        Err(error.into_datafusion())
    }
}

/// Formats a value of one row for the error.
fn format_value(value: &ColumnarValue, rows: usize, at: usize) -> Result<String> {
    let values: ArrayRef = value.to_array(rows)?;
    let text = ArrayFormatter::try_new(&values, &FormatOptions::new().with_null("null"))?
        .value(at)
        .try_to_string()?;
    Ok(match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{BooleanArray, Int32Array, StringArray};
    use datafusion::arrow::datatypes::Field;
    use datafusion::config::ConfigOptions;
    use datafusion::error::DataFusionError;

    use super::*;

    fn invoke(holds: ColumnarValue, rows: usize) -> Result<ColumnarValue> {
        let number = ColumnarValue::Array(Arc::new(Int32Array::from_iter_values(0..rows as i32)));
        let texts = (0..rows).map(|at| (at > 0).then(|| "x".repeat(70)));
        let text = ColumnarValue::Array(Arc::new(StringArray::from_iter(texts)));
        let name = |name: &str| ColumnarValue::from(ScalarValue::from(name));
        let field = |kind| Arc::new(Field::new("", kind, true));
        let (number_field, text_field) = (field(DataType::Int32), field(DataType::Utf8));
        function().inner().invoke_with_args(ScalarFunctionArgs {
            args: vec![holds, name("t_check"), name("t"), number.clone(), number, text],
            arg_fields: vec![
                field(DataType::Boolean),
                Arc::clone(&text_field),
                Arc::clone(&text_field),
                Arc::clone(&number_field),
                number_field,
                text_field,
            ],
            number_rows: rows,
            return_field: field(DataType::Int32),
            config_options: Arc::new(ConfigOptions::default()),
        })
    }

    fn detail(error: &DataFusionError) -> Option<&str> {
        match error {
            DataFusionError::External(error) => error.downcast_ref::<SqlError>()?.detail.as_deref(),
            _ => None,
        }
    }

    #[test]
    fn rows_violating_a_check_constraint_are_refused() {
        let array = |holds: Vec<Option<bool>>| ColumnarValue::Array(Arc::new(BooleanArray::from(holds)));
        let scalar = |holds: Option<bool>| ColumnarValue::from(ScalarValue::Boolean(holds));
        for (holds, rows) in [
            (array(vec![Some(true), None]), 2),
            (scalar(Some(true)), 2),
            (scalar(None), 2),
            (scalar(Some(false)), 0),
        ] {
            assert!(invoke(holds, rows).is_ok());
        }
        for (holds, row) in [
            (array(vec![Some(true), Some(false)]), format!("1, {}...", "x".repeat(64))),
            (scalar(Some(false)), "0, null".to_string()),
        ] {
            let error = invoke(holds, 2).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::CHECK_VIOLATION);
            assert_eq!(detail(&error), Some(format!("Failing row contains ({row}).").as_str()));
        }
    }
}
