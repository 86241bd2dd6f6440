//! `LIKE … ESCAPE ''`: the pattern has no escape character, so a backslash matches itself.

use crate::ast_builder::function_call;
use datafusion::sql::sqlparser::ast::{Expr, Value, ValueWithSpan};

/// Doubles the backslashes in the pattern of such a LIKE, which the planner takes for escape characters.
pub(super) fn rewrite(expr: &mut Expr) {
    let (Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. }) = expr else {
        return;
    };
    let is_empty =
        |escape: &ValueWithSpan| matches!(&escape.value, Value::SingleQuotedString(text) if text.is_empty());
    if !escape_char.as_ref().is_some_and(is_empty) {
        return;
    }
    *escape_char = None;
    match pattern.as_mut() {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
            *text = text.replace('\\', "\\\\");
        }
        other => {
            let pattern = std::mem::replace(other, Expr::value(Value::Null));
            let text = |text: &str| Expr::value(Value::SingleQuotedString(text.to_string()));
            *other = Expr::Function(function_call("replace", vec![pattern, text("\\"), text("\\\\")]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn empty_escape_keeps_backslashes() {
        let check = |sql: &str, expected: &str| assert_eq!(rewritten(sql).unwrap(), expected);
        check(r"SELECT a LIKE 'x\%' ESCAPE ''", r"SELECT a LIKE 'x\\%'");
        check(r"SELECT a NOT ILIKE b ESCAPE ''", r"SELECT a NOT ILIKE replace(b, '\', '\\')");
        check(r"SELECT a LIKE 'x\%' ESCAPE '#'", r"SELECT a LIKE 'x\%' ESCAPE '#'");
    }
}
