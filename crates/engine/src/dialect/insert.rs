//! `INSERT INTO t VALUES (1)` into a table of more columns: the others get their defaults.

use datafusion::sql::sqlparser::ast::{Ident, Insert, ObjectName, Query, SetExpr};

/// Whether an INSERT is of VALUES, and does not say for which columns.
pub(crate) fn has_bare_rows(insert: &Insert) -> bool {
    insert.columns.is_empty() && width(insert).is_some()
}

/// Says for which columns the values are, where they are fewer than the table has.
pub(crate) fn name_columns(insert: &mut Insert, columns: &[&str]) {
    let Some(width) = width(insert).filter(|width| *width < columns.len()) else { return };
    let names = columns[..width].iter().map(|name| ObjectName::from(vec![Ident::with_quote('"', *name)]));
    insert.columns = names.collect();
}

/// How many values each row has.
fn width(insert: &Insert) -> Option<usize> {
    let Query { body, with: None, .. } = insert.source.as_deref()? else { return None };
    let SetExpr::Values(values) = body.as_ref() else { return None };
    let first = values.rows.first()?.len();
    values.rows.iter().all(|row| row.len() == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::ast::Statement;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    #[test]
    fn columns_are_named_where_values_are_missing() {
        let check = |sql: &str, expected: &str| {
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
            let Statement::Insert(insert) = &mut statements[0] else { panic!("an INSERT") };
            if has_bare_rows(insert) {
                name_columns(insert, &["a", "B", "c"]);
            }
            assert_eq!(statements[0].to_string(), expected);
        };
        check("INSERT INTO t VALUES (1, 2), (3, 4)", "INSERT INTO t (\"a\", \"B\") VALUES (1, 2), (3, 4)");
        for same in [
            "INSERT INTO t VALUES (1, 2, 3)",
            "INSERT INTO t VALUES (1, 2, 3, 4)",
            "INSERT INTO t VALUES (1), (2, 3)",
            "INSERT INTO t (a) VALUES (1)",
            "INSERT INTO t SELECT 1",
        ] {
            check(same, same);
        }
    }
}
