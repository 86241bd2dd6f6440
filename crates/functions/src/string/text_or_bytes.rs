//! Text functions that PostgreSQL also has for bytes, such as `substring` and `btrim`, or does not, such as
//! `reverse`: DataFusion's treat bytes as text.
//!
//! Ranks know them by their names, which are DataFusion's.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::functions::{core, encoding, string, unicode};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::delegation::delegate_scalar;
use crate::postgres_functions::{Function, of_bytes};

/// The functions, without result bounds.
static FUNCTIONS: LazyLock<Vec<Arc<ScalarUDF>>> = LazyLock::new(|| {
    let inner = [
        unicode::substr(),
        string::btrim(),
        string::ltrim(),
        string::rtrim(),
        unicode::strpos(),
        encoding::decode(),
        unicode::reverse(),
        unicode::left(),
        unicode::right(),
    ];
    inner.into_iter().map(of).collect()
});

static OVERLAY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| of(core::overlay()));

static ENCODE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| of(encoding::encode()));

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    FUNCTIONS.iter().cloned()
}

/// Functions callable from SQL: `strpos` supports only texts there.
pub(crate) fn callable() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let of_texts = |function: &Arc<ScalarUDF>| match function.name() {
        "strpos" => with(unicode::strpos(), Function::none("strpos")),
        _ => Arc::clone(function),
    };
    FUNCTIONS.iter().map(of_texts)
}

/// `strpos`, of texts or bytes, for POSITION.
pub fn position() -> Arc<ScalarUDF> {
    of(unicode::strpos())
}

/// `substr`, of texts or bytes.
pub fn substr() -> Arc<ScalarUDF> {
    Arc::clone(&FUNCTIONS[0])
}

/// `overlay`, of texts or bytes.
pub fn overlay() -> Arc<ScalarUDF> {
    Arc::clone(&OVERLAY)
}

/// `encode` of bytes, without bounds.
pub(crate) fn encode() -> Arc<ScalarUDF> {
    Arc::clone(&ENCODE)
}

fn of(inner: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    let of_bytes = of_bytes(inner.name());
    with(inner, of_bytes)
}

fn with(inner: Arc<ScalarUDF>, of_bytes: Function) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(TextOrBytes { inner, of_bytes, signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextOrBytes {
    inner: Arc<ScalarUDF>,
    of_bytes: Function,
    signature: Signature,
}

impl TextOrBytes {
    /// Whether PostgreSQL has it only for bytes, or for encoded texts: string literals are parsed as such.
    fn is_own(&self) -> bool {
        matches!(self.name(), "encode" | "decode")
    }

    /// Whether a call with these argument types, without coercion, is evaluated here.
    fn takes(&self, given: &[DataType]) -> bool {
        let are_bytes = given.iter().any(is_bytes) || self.name() == "decode";
        are_bytes && self.of_bytes.coerce_types(given).is_ok_and(|coerced| coerced == given)
    }
}

fn is_bytes(kind: &DataType) -> bool {
    kind.is_binary() || matches!(kind, DataType::FixedSizeBinary(_))
}

impl ScalarUDFImpl for TextOrBytes {
    delegate_scalar!(name, aliases, schema_name, output_ordering, preserves_lex_ordering, documentation);

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = Arc::new(self.inner.inner().with_updated_config(config)?);
        Some(of(inner).as_ref().clone())
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if self.is_own() || given.iter().any(is_bytes) {
            return self.of_bytes.coerce_types(given);
        }
        let fields: Vec<FieldRef> =
            given.iter().map(|kind| Arc::new(Field::new("", kind.clone(), true))).collect();
        let fields = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match self.takes(given) {
            true => self.of_bytes.return_type(given),
            false => self.inner.inner().return_type(given),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let given: Vec<DataType> =
            arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        match self.takes(&given) {
            true => self.of_bytes.return_field_from_args(arguments),
            false => self.inner.inner().return_field_from_args(arguments),
        }
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let mut of_texts = true;
        for argument in &arguments {
            of_texts &= !is_bytes(&info.get_data_type(argument)?);
        }
        match of_texts {
            true => self.inner.inner().simplify(arguments, info),
            false => Ok(ExprSimplifyResult::Original(arguments)),
        }
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        match inputs.iter().any(|input| is_bytes(&input.data_type())) {
            true => Interval::make_unbounded(&DataType::Null),
            false => self.inner.inner().evaluate_bounds(inputs),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given: Vec<DataType> = arguments.args.iter().map(ColumnarValue::data_type).collect();
        match self.takes(&given) {
            true => self.of_bytes.invoke_with_args(arguments),
            false => self.inner.inner().invoke_with_args(arguments),
        }
    }
}
