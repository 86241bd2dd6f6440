//! Nested array literals, and array slices with omitted bounds.
//!
//! ```text
//! a[2:]                   ─►  a[2:2147483647]
//! a[:2]                   ─►  a[1:2]
//! '{{1,2},{3,4}}'::int[]  ─►  ARRAY[ARRAY[CAST('1' AS INT), …], …]
//! ```
//! In PostgreSQL an array type does not include dimensions; in DataFusion it does.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, CastKind, DataType, Expr, Subscript, Value,
};

use crate::ast_builder::{number, text_of};

pub(super) fn rewrite(expr: &mut Expr) {
    match expr {
        Expr::CompoundFieldAccess { access_chain, .. } => {
            for access in access_chain {
                if let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) = access {
                    lower_bound.get_or_insert_with(|| number("1"));
                    upper_bound.get_or_insert_with(|| number("2147483647"));
                }
            }
        }
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr: text, data_type, .. } => {
            let parts = text_of(text).and_then(parts_of);
            if let (Some(parts), Some(element)) = (parts, element_of(data_type)) {
                *expr = array_of(parts, element);
            }
        }
        _ => {}
    }
}

/// The element type of an array of any dimension.
fn element_of(kind: &DataType) -> Option<&DataType> {
    match kind {
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(element, _) | ArrayElemTypeDef::AngleBracket(element),
        ) => Some(element_of(element).unwrap_or(element)),
        _ => None,
    }
}

/// An item between braces.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    Value(Option<String>),
    Parts(Vec<Part>),
}

/// The items of a nested array literal with uniform dimensions; `None` for other strings.
fn parts_of(text: &str) -> Option<Vec<Part>> {
    let mut signs = text.trim().chars().peekable();
    let parts = parse_braces(&mut signs)?;
    let is_whole = signs.next().is_none();
    let is_nested = matches!(parts.first(), Some(Part::Parts(_)));
    (is_whole && is_nested && shape(&parts).is_some()).then_some(parts)
}

/// The length of each dimension.
fn shape(parts: &[Part]) -> Option<Vec<usize>> {
    let inner: Vec<Option<Vec<usize>>> = parts
        .iter()
        .map(|part| match part {
            Part::Value(_) => Some(vec![]),
            Part::Parts(parts) => shape(parts),
        })
        .collect();
    let first = inner.first()?.clone()?;
    inner.iter().all(|other| other.as_ref() == Some(&first)).then(|| {
        let mut shape = vec![parts.len()];
        shape.extend(first);
        shape
    })
}

fn parse_braces(signs: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Vec<Part>> {
    signs.next_if_eq(&'{')?;
    let mut parts = Vec::new();
    loop {
        while signs.next_if(|sign| sign.is_whitespace()).is_some() {}
        parts.push(match signs.peek()? {
            '{' => Part::Parts(parse_braces(signs)?),
            '"' => {
                signs.next();
                let mut value = String::new();
                loop {
                    match signs.next()? {
                        '"' => break,
                        '\\' => value.push(signs.next()?),
                        sign => value.push(sign),
                    }
                }
                Part::Value(Some(value))
            }
            _ => {
                let mut value = String::new();
                while let Some(sign) = signs.next_if(|sign| !matches!(sign, '{' | '}' | ',' | '"')) {
                    value.push(if sign == '\\' { signs.next()? } else { sign });
                }
                let value = value.trim_end();
                if value.is_empty() {
                    return None;
                }
                Part::Value((!value.eq_ignore_ascii_case("null")).then(|| value.to_string()))
            }
        });
        while signs.next_if(|sign| sign.is_whitespace()).is_some() {}
        match signs.next()? {
            '}' => return Some(parts),
            ',' => {}
            _ => return None,
        }
    }
}

fn array_of(parts: Vec<Part>, element: &DataType) -> Expr {
    let elements = parts.into_iter().map(|part| match part {
        Part::Parts(parts) => array_of(parts, element),
        Part::Value(value) => Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(Expr::value(value.map_or(Value::Null, Value::SingleQuotedString))),
            data_type: element.clone(),
            array: false,
            format: None,
        },
    });
    Expr::Array(Array { elem: elements.collect(), named: true })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn check(sql: &str, expected: &str) {
        let dialect = PostgreSqlDialect {};
        let mut expr = Parser::new(&dialect).try_with_sql(sql).unwrap().parse_expr().unwrap();
        super::rewrite(&mut expr);
        assert_eq!(expr.to_string(), expected);
    }

    #[test]
    fn slices_have_both_bounds() {
        check("a[2:]", "a[2:2147483647]");
        check("a[:2]", "a[1:2]");
        check("a[1:2]", "a[1:2]");
    }

    #[test]
    fn arrays_of_arrays_are_written_out() {
        check(
            "'{{1,\"2\"}, { NULL , x\\,y }}'::INT[]",
            "ARRAY[ARRAY[CAST('1' AS INT), CAST('2' AS INT)], ARRAY[CAST(NULL AS INT), CAST('x,y' AS INT)]]",
        );
        for same in ["'{1,2}'::INT[]", "'{{1,2},{3}}'::INT[]", "'{{1},2}'::INT[]", "'{{},{}}'::INT[]"] {
            check(same, same);
        }
    }
}
