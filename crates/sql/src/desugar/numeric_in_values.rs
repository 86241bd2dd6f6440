//! String literals in a VALUES column that another row casts to NUMERIC: `VALUES (1.25::numeric(8,2)),
//! ('10.499')`. The planner would cast them to that type with its scale; in PostgreSQL they are NUMERIC with
//! their own scale.

use datafusion::sql::sqlparser::ast::{DataType, Expr, Value, Values};

use super::exact_number::exact_decimal;
use crate::ast_builder::text_of;

/// Rewrites VALUES outside of INSERT.
pub(super) fn rewrite(values: &mut Values) {
    let columns = values.rows.first().map_or(0, |row| row.content.len());
    for at in 0..columns {
        if !values.rows.iter().filter_map(|row| row.content.get(at)).any(is_numeric) {
            continue;
        }
        for value in values.rows.iter_mut().filter_map(|row| row.content.get_mut(at)) {
            if let Some(number) = text_of(value).and_then(exact) {
                *value = number;
            }
        }
    }
}

fn is_numeric(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_numeric(inner),
        Expr::Cast { data_type, .. } => {
            matches!(data_type, DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_))
        }
        _ => false,
    }
}

/// A string as an exact number.
fn exact(text: &str) -> Option<Expr> {
    let text = text.trim();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut number = exact_decimal(digits)?;
    if let Expr::Cast { expr, .. } = &mut number {
        **expr = Expr::value(Value::SingleQuotedString(text.to_string()));
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::{SetExpr, Statement};
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn check(sql: &str, expected: &str) {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        let Statement::Query(query) = &mut statements[0] else { panic!("{sql}") };
        let SetExpr::Values(values) = query.body.as_mut() else { panic!("{sql}") };
        super::rewrite(values);
        assert_eq!(statements[0].to_string(), expected);
    }

    #[test]
    fn texts_beside_numbers_keep_their_digits() {
        check(
            "VALUES (1.25::NUMERIC(8,2), 'a'), ('-10.499', 'b'), (NULL, 'c')",
            "VALUES (1.25::NUMERIC(8,2), 'a'), (CAST('-10.499' AS DECIMAL(5,3)), 'b'), (NULL, 'c')",
        );
        check("VALUES (1.25::NUMERIC), ('x')", "VALUES (1.25::NUMERIC), ('x')");
        check("VALUES (1.25), ('10.499')", "VALUES (1.25), ('10.499')");
    }
}
