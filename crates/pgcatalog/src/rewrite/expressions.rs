//! Expressions and aliases that rewrites are made of, and literals that they look for.

use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, CastKind, DataType, Expr, Ident, TableAlias, Value, ValueWithSpan,
};
use harrier_sql::ast_builder::function_call;

use crate::system::elements;

pub(super) fn null() -> Expr {
    Expr::value(Value::Null)
}

pub(super) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    Expr::Function(function_call(name, arguments))
}

pub(super) fn table_alias(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: Ident::with_quote('"', name), columns: vec![], at: None }
}

fn text_array() -> DataType {
    DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None))
}

/// `CAST(ARRAY[] AS text[])`.
pub(super) fn empty_array() -> Expr {
    let array = Expr::Array(Array { elem: vec![], named: true });
    cast_to(array, text_array())
}

pub(super) fn cast_to(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

pub(super) fn text_literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        Expr::Nested(inner) => text_literal(inner),
        _ => None,
    }
}

/// Converts an array literal, `'{a,b}'` or `'{1,2}'::int[]`, to an SQL array.
pub(super) fn array_of_text(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Nested(inner) => array_of_text(inner),
        Expr::Cast { expr, data_type: data_type @ DataType::Array(_), .. } => {
            Some(cast_to(array_of_text(expr)?, data_type.clone()))
        }
        _ => {
            let text = text_literal(expr).filter(|text| text.starts_with('{') && text.ends_with('}'))?;
            let elem = elements(text).into_iter().map(|element| match element {
                Some(element) => Expr::value(Value::SingleQuotedString(element)),
                None => null(),
            });
            let elem = elem.collect::<Vec<_>>();
            Some(match elem.is_empty() {
                true => empty_array(),
                false => Expr::Array(Array { elem, named: true }),
            })
        }
    }
}
