//! Calls of sequence functions in expressions.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, Signature, TypeSignature, Volatility, lit};
use datafusion::sql::sqlparser::ast;
use harrier_sql::identifier::{plain, without_casts};

/// A sequence function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    NextVal,
    /// The next value of a column's sequence, by UUID.
    NextOf,
    CurrVal,
    LastVal,
    SetVal,
}

impl Call {
    pub(crate) const ALL: [Self; 5] =
        [Self::NextVal, Self::NextOf, Self::CurrVal, Self::LastVal, Self::SetVal];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NextVal => "nextval",
            Self::NextOf => "harrier_next_value",
            Self::CurrVal => "currval",
            Self::LastVal => "lastval",
            Self::SetVal => "setval",
        }
    }

    pub(crate) fn signature(self) -> Signature {
        use DataType::{Boolean, Int64, Utf8};
        let lists = match self {
            Self::LastVal => vec![TypeSignature::Nullary],
            Self::NextOf => vec![TypeSignature::Exact(vec![Utf8])],
            Self::NextVal | Self::CurrVal => {
                vec![TypeSignature::Exact(vec![Utf8]), TypeSignature::Exact(vec![Int64])]
            }
            Self::SetVal => [Utf8, Int64]
                .into_iter()
                .flat_map(|name| {
                    [
                        TypeSignature::Exact(vec![name.clone(), Int64]),
                        TypeSignature::Exact(vec![name, Int64, Boolean]),
                    ]
                })
                .collect(),
        };
        Signature::one_of(lists, Volatility::Volatile)
    }
}

/// The sequence function that an expression calls, if it is one.
pub(crate) fn call_of(expr: &Expr) -> Option<Call> {
    let Expr::ScalarFunction(function) = expr else { return None };
    let call = Call::ALL.into_iter().find(|call| call.name() == function.func.name());
    call.filter(|_| function.func.as_async().is_some())
}

/// Whether an expression contains a call of a sequence function.
pub(crate) fn contains_call(expr: &Expr) -> bool {
    expr.exists(|part| Ok(call_of(part).is_some())).unwrap_or_default()
}

/// The default expression of a column that takes values from the sequence with this UUID.
pub(crate) fn next_of(session: &SessionState, uuid: &str) -> Result<Expr> {
    let function = session.scalar_functions().get(Call::NextOf.name());
    let function =
        function.ok_or_else(|| DataFusionError::Internal("a session without sequences".to_string()))?;
    Ok(function.call(vec![lit(uuid)]))
}

/// The sequence name in a default that is `nextval('…')`, as written in SQL.
pub(crate) fn nextval_sequence(default: &Expr) -> Option<String> {
    let mut call = default;
    while let Expr::Cast(cast) = call {
        call = &cast.expr;
    }
    let Expr::ScalarFunction(ScalarFunction { args, .. }) = call else { return None };
    match (call_of(call)?, args.as_slice()) {
        (Call::NextVal, [Expr::Literal(ScalarValue::Utf8(Some(name)), _)]) => Some(name.clone()),
        _ => None,
    }
}

/// The same for a parsed expression.
pub(crate) fn nextval_sequence_in_ast(default: &ast::Expr) -> Option<String> {
    let ast::Expr::Function(function) = without_casts(default) else { return None };
    let name = function.name.0.last()?.as_ident().map(plain)?;
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(name_of))] if name == "nextval" => {
            text_of(name_of)
        }
        _ => None,
    }
}

pub(crate) fn text_of(expr: &ast::Expr) -> Option<String> {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}
