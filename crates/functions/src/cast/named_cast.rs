//! A cast that shows in the column name: the name of an expression omits plain casts.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The name of [`function`].
pub const NAME: &str = "harrier_named_cast";

/// (value, name of its type) → the value. Simplification removes it from plans.
pub fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(NamedCast { signature: Signature::any(2, Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NamedCast {
    signature: Signature,
}

impl ScalarUDFImpl for NamedCast {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [kind, _] => Ok(kind.clone()),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match arguments.arg_fields {
            [field, _] => Ok(Arc::clone(field)),
            _ => internal_err!("{} has two arguments", self.name()),
        }
    }

    fn simplify(&self, mut arguments: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        arguments.truncate(1);
        match arguments.pop() {
            Some(value) => Ok(ExprSimplifyResult::Simplified(value)),
            None => internal_err!("{} has two arguments", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.into_iter().next() {
            Some(value) => Ok(value),
            None => internal_err!("{} has two arguments", self.name()),
        }
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [value, Expr::Literal(kind, _)] => {
                let kind = kind.try_as_str().flatten().unwrap_or_default();
                Ok(format!("CAST({} AS {kind})", value.schema_name()))
            }
            _ => internal_err!("{} has two arguments", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn names_map_to_types() {
        let of = |kind: &str| function().call(vec![col("w"), lit(kind)]).schema_name().to_string();
        assert_eq!(of("INT"), "CAST(w AS INT)");
        assert_ne!(of("INT"), of("BIGINT"));
        let value = ScalarValue::Int32(Some(1));
        assert_eq!(
            function().inner().return_type(&[value.data_type(), DataType::Utf8]).unwrap(),
            DataType::Int32
        );
    }
}
