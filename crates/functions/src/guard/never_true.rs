//! A condition that is never true, unknown to the planner.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// SQL name of the function.
pub const NAME: &str = "harrier_never";

/// `harrier_never()`: false.
pub fn function() -> Arc<ScalarUDF> {
    with(Volatility::Immutable)
}

/// The same, but not folded by any rule. It occurs in no executed plan.
pub fn unknown() -> Arc<ScalarUDF> {
    with(Volatility::Volatile)
}

/// Whether an expression is a call of [`function`], or of [`unknown`].
pub fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.name() == NAME)
}

fn with(volatility: Volatility) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Never { signature: Signature::nullary(volatility) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Never {
    signature: Signature,
}

impl ScalarUDFImpl for Never {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(false))))
    }
}
