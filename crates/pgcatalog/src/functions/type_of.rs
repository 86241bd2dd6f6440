//! `pg_typeof`: the PostgreSQL type of its argument.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::scalar::ScalarValue;

use crate::types::{format_type, postgres_type_of_field};

const NO_MODIFIER: i32 = -1;

pub(super) fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(TypeOf { signature: Signature::any(1, Volatility::Stable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeOf {
    signature: Signature,
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &str {
        "pg_typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    /// Evaluated while planning, so that ranks need not know the function.
    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match arguments.first().map(|argument| context.get_data_type(argument)) {
            Some(Ok(data_type)) => {
                Ok(ExprSimplifyResult::Simplified(lit(name(&Field::new("", data_type, true)))))
            }
            _ => Ok(ExprSimplifyResult::Original(arguments)),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = arguments.arg_fields.first().map(|field| name(field));
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(name)))
    }
}

fn name(field: &Field) -> String {
    match field.data_type() {
        // PostgreSQL's name for an untyped NULL.
        DataType::Null => "unknown".to_string(),
        // Clients get rows as JSON.
        DataType::Struct(_) => "record".to_string(),
        _ => format_type(postgres_type_of_field(field).0, NO_MODIFIER).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use datafusion::arrow::datatypes::TimeUnit;
    use datafusion::config::ConfigOptions;

    #[test]
    fn types_have_the_names_of_sql() {
        for (data_type, expected) in [
            (DataType::Int64, "bigint"),
            (DataType::Utf8View, "text"),
            (DataType::Timestamp(TimeUnit::Microsecond, None), "timestamp without time zone"),
            (DataType::Decimal128(12, 2), "numeric"),
            (DataType::new_list(DataType::Int32, true), "integer[]"),
            (DataType::Null, "unknown"),
            (DataType::Struct(vec![Field::new("a", DataType::Int32, true)].into()), "record"),
        ] {
            let arguments = ScalarFunctionArgs {
                args: vec![ColumnarValue::Scalar(ScalarValue::try_from(&data_type).unwrap())],
                arg_fields: vec![Arc::new(Field::new("a", data_type, true))],
                number_rows: 1,
                return_field: Arc::new(Field::new("pg_typeof", DataType::Utf8, true)),
                config_options: Arc::new(ConfigOptions::new()),
            };
            let told = function().inner().invoke_with_args(arguments).unwrap();
            let ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))) = told else { panic!("{told:?}") };
            assert_eq!(name, expected);
        }
    }
}
