//! SQL functions that wait for a lock or a time. The host process defines them and its clients call them;
//! they run on the planning process, never on ranks.
//!
//! # Cancellation
//! A call is a future, which is dropped with the statement.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, new_empty_array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use futures::future::BoxFuture;

use crate::settings::parameters::Parameters;

/// The calling session.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// The session's number.
    pub process: i32,
    /// Longest wait for a lock; `None` for no limit.
    pub lock_timeout: Option<Duration>,
}

/// Implementation of a call with one row of arguments. `None`: no result, as of a function of PostgreSQL's
/// type void.
pub type WaitingCall =
    Arc<dyn Fn(Caller, Vec<ScalarValue>) -> BoxFuture<'static, Result<Option<bool>>> + Send + Sync>;

/// A function that waits. It is called once per row in every statement that contains it, sequentially.
#[derive(Clone)]
pub struct WaitingFunction {
    pub name: &'static str,
    /// Argument type lists of its overloads; arguments are cast to them. With a NULL argument the result is
    /// NULL without a call.
    pub arguments: Vec<Vec<DataType>>,
    /// Whether it returns a boolean; otherwise void.
    pub returns_boolean: bool,
    /// Errors fail the statement. Cancel-safe.
    pub call: WaitingCall,
}

impl fmt::Debug for WaitingFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitingFunction({})", self.name)
    }
}

/// Binds the function to the session with number `process`.
pub(crate) fn of_session(
    function: &WaitingFunction,
    process: i32,
    parameters: &Arc<Parameters>,
) -> ScalarUDF {
    let signatures = function.arguments.iter().map(|types| match types.is_empty() {
        true => TypeSignature::Nullary,
        false => TypeSignature::Exact(types.clone()),
    });
    AsyncScalarUDF::new(Arc::new(SessionFunction {
        function: function.clone(),
        process,
        parameters: Arc::clone(parameters),
        signature: Signature::one_of(signatures.collect(), Volatility::Volatile),
    }))
    .into_scalar_udf()
}

#[derive(Debug)]
struct SessionFunction {
    function: WaitingFunction,
    process: i32,
    parameters: Arc<Parameters>,
    signature: Signature,
}

// Within a session the name identifies the function.
impl PartialEq for SessionFunction {
    fn eq(&self, other: &Self) -> bool {
        self.function.name == other.function.name && self.process == other.process
    }
}

impl Eq for SessionFunction {}

impl Hash for SessionFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl SessionFunction {
    fn returns(&self) -> DataType {
        if self.function.returns_boolean { DataType::Boolean } else { DataType::Utf8 }
    }

    async fn evaluate(&self, args: ScalarFunctionArgs) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = args
            .args
            .iter()
            .map(|column| column.clone().into_array(args.number_rows))
            .collect::<Result<_>>()?;
        let mut answers = Vec::with_capacity(args.number_rows);
        for row in 0..args.number_rows {
            let values = columns.iter().map(|column| ScalarValue::try_from_array(column, row));
            let values = values.collect::<Result<Vec<_>>>()?;
            if values.iter().any(ScalarValue::is_null) {
                answers.push(ScalarValue::try_from(&self.returns())?);
                continue;
            }
            let lock_timeout = self.parameters.time("lock_timeout");
            let caller = Caller { process: self.process, lock_timeout };
            answers.push(match (self.function.call)(caller, values).await? {
                Some(value) => ScalarValue::Boolean(Some(value)),
                None => ScalarValue::Utf8(Some(String::new())),
            });
        }
        match answers.is_empty() {
            true => Ok(new_empty_array(&self.returns())),
            false => ScalarValue::iter_to_array(answers),
        }
    }
}

impl ScalarUDFImpl for SessionFunction {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        let field = Field::new(self.name(), self.returns(), true);
        Ok(Arc::new(match self.function.returns_boolean {
            true => field,
            false => harrier_pgcatalog::named_field(field, "void"),
        }))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(DataFusionError::Internal(format!("{} has to be waited for", self.name())))
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for SessionFunction {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.evaluate(args).await.map(ColumnarValue::Array)
    }
}
