//! Regular expressions in operators and calls, with PostgreSQL's escapes in the spelling of the planner's
//! engine ([`harrier_functions::string::patterns`]).

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value, ValueWithSpan,
};
use harrier_functions::string::patterns::of_postgres;

use super::{call_of, is_call_of, name_of};

/// Function that does the same with a pattern that is no literal.
const PATTERN: &str = "harrier_pattern";

/// Functions whose second argument is a pattern.
const FUNCTIONS: [&str; 10] = [
    "harrier_regexp_matches",
    "regexp_count",
    "regexp_instr",
    "regexp_like",
    "regexp_match",
    "regexp_matches",
    "regexp_replace",
    "regexp_split_to_array",
    "regexp_split_to_table",
    "regexp_substr",
];

pub(super) fn in_call(function: &mut Function) {
    let name = function.name.0.last().and_then(|name| name.as_ident()).map(name_of);
    if !name.is_some_and(|name| FUNCTIONS.contains(&name.as_str())) {
        return;
    }
    if let FunctionArguments::List(list) = &mut function.args
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(pattern))) = list.args.get_mut(1)
    {
        respell(pattern);
    }
}

pub(super) fn respell(pattern: &mut Expr) {
    match pattern {
        Expr::Nested(inner) => respell(inner),
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
            *text = of_postgres(text).into_owned();
        }
        Expr::Value(ValueWithSpan { value: Value::Placeholder(_), .. }) => wrap(pattern),
        Expr::Value(_) | Expr::AnyOp { .. } | Expr::AllOp { .. } => {}
        other if is_call_of(other, PATTERN) => {}
        other => wrap(other),
    }
}

fn wrap(pattern: &mut Expr) {
    *pattern = call_of(PATTERN, vec![pattern.clone()]);
}
