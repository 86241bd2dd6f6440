//! `ARRAY[o.a, 1]` in a subquery: the planner resolves the elements of an array without the columns of the
//! queries around it, and those of a dictionary with them. So an array with columns becomes a dictionary, of
//! which the planner of expressions makes an array again.
//!
//! ```text
//! ARRAY[o.a, 1]  ─►  {'harrier_element': o.a, 'harrier_element': 1}
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{DictionaryField, Expr, Ident, visit_expressions};

/// The key of every element.
pub const ELEMENT: &str = "harrier_element";

/// Rewrites an array in place whose elements name columns.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::Array(array) = &mut *expr else { return };
    let names_column = |part: &Expr| match part {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    if visit_expressions(&array.elem, names_column).is_continue() {
        return;
    }
    let field =
        |value: Expr| DictionaryField { key: Ident::with_quote('\'', ELEMENT), value: Box::new(value) };
    *expr = Expr::Dictionary(std::mem::take(&mut array.elem).into_iter().map(field).collect());
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn arrays_of_columns_become_dictionaries() {
        for (sql, expected) in [
            (
                "SELECT (SELECT ARRAY[o.a, 1]) FROM o",
                "SELECT (SELECT {'harrier_element': o.a, 'harrier_element': 1}) FROM o",
            ),
            ("SELECT ARRAY[1, 2]", "SELECT ARRAY[1, 2]"),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
    }
}
