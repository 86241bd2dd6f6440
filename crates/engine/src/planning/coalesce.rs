//! `coalesce`, `nvl`, `ifnull`, `greatest` and `least` with arguments of mixed types: dates or text beside
//! timestamps, as in `coalesce(valid_to, '9999-12-31')`, text beside a date, boolean, interval or array, and
//! binary columns beside binary literals.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions::core;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};
use harrier_planner::analyzer::timestamp_coercion;

use crate::planning::unknown_literals;

/// The functions for the coordinator's planner. Ranks use DataFusion's: arguments are coerced by then.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let others = ["nvl", "ifnull"].map(str::to_string).to_vec();
    let all = [(core::coalesce(), others), (core::greatest(), vec![]), (core::least(), vec![])];
    all.into_iter().map(|(inner, aliases)| Arc::new(ScalarUDF::new_from_impl(CommonType { inner, aliases })))
}

/// Common type of binary arguments with different layouts.
fn binary_type(kinds: &[DataType]) -> Option<DataType> {
    let are_bytes = kinds.iter().all(|kind| kind.is_binary() || kind.is_null());
    (are_bytes && kinds.contains(&DataType::BinaryView)).then_some(DataType::BinaryView)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CommonType {
    inner: Arc<ScalarUDF>,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for CommonType {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.inner().return_field_from_args(arguments)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let common = timestamp_coercion::common_type_of(arguments)
            .or_else(|| binary_type(arguments))
            .or_else(|| unknown_literals::literal_type(arguments));
        match common {
            Some(common) => Ok(vec![common; arguments.len()]),
            None => self.inner.inner().coerce_types(arguments),
        }
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.inner().simplify(arguments, info)
    }

    fn conditional_arguments<'a>(&self, arguments: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.inner().conditional_arguments(arguments)
    }

    fn short_circuits(&self) -> bool {
        self.inner.inner().short_circuits()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.inner().invoke_with_args(arguments)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }
}
