//! SQL functions that control the host process, defined by it and called by its clients.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use harrier_session_api::session::SessionIdentity;

use crate::warehouse::access::{SessionRole, Viewer};

/// Implementation of a call: takes the session's identity, the current role and one row of arguments.
pub type Call = Arc<dyn Fn(&SessionIdentity, &Viewer, &[ScalarValue]) -> Result<ScalarValue> + Send + Sync>;

/// A SQL function of the host process. It is called once per row in every statement that contains it.
#[derive(Clone)]
pub struct ServerFunction {
    pub name: &'static str,
    /// Argument types; arguments are cast to them. With a NULL argument the result is NULL without a call.
    pub arguments: Vec<DataType>,
    pub returns: DataType,
    /// Errors fail the statement. Must not block.
    pub call: Call,
}

impl fmt::Debug for ServerFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerFunction({})", self.name)
    }
}

/// Binds the function to a session.
pub(crate) fn of_session(
    function: &ServerFunction,
    identity: &Arc<SessionIdentity>,
    role: &Arc<SessionRole>,
) -> ScalarUDF {
    ScalarUDF::new_from_impl(SessionFunction {
        function: function.clone(),
        identity: Arc::clone(identity),
        role: Arc::clone(role),
        signature: match function.arguments.is_empty() {
            true => Signature::nullary(Volatility::Volatile),
            false => Signature::exact(function.arguments.clone(), Volatility::Volatile),
        },
    })
}

#[derive(Debug)]
struct SessionFunction {
    function: ServerFunction,
    identity: Arc<SessionIdentity>,
    role: Arc<SessionRole>,
    signature: Signature,
}

// Within a session the name identifies the function.
impl PartialEq for SessionFunction {
    fn eq(&self, other: &Self) -> bool {
        self.function.name == other.function.name && self.identity.process == other.identity.process
    }
}

impl Eq for SessionFunction {}

impl Hash for SessionFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
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
        Ok(self.function.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns: Vec<ArrayRef> = args
            .args
            .iter()
            .map(|column| column.clone().into_array(args.number_rows))
            .collect::<Result<_>>()?;
        let call = |row: usize| {
            let values: Vec<ScalarValue> = columns
                .iter()
                .map(|column| ScalarValue::try_from_array(column, row))
                .collect::<Result<_>>()?;
            match values.iter().any(ScalarValue::is_null) {
                true => ScalarValue::try_from(&self.function.returns),
                false => (self.function.call)(&self.identity, &self.role.viewer(), &values),
            }
        };
        let answers = (0..args.number_rows).map(call).collect::<Result<Vec<_>>>()?;
        if answers.is_empty() {
            let empty = datafusion::arrow::array::new_empty_array(&self.function.returns);
            return Ok(ColumnarValue::Array(empty));
        }
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(answers)?))
    }
}
