//! `INSERT INTO t VALUES (1)` with fewer values than the table has columns: the others get their defaults.
//! Also VALUES in subqueries of an INSERT.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Insert, LimitClause, ObjectName, Query, SelectItem, SetExpr, Statement, Value, Values,
    VisitMut, VisitorMut,
};

use crate::ast_builder::{derived_table, select_star, table_alias, text_of, values_of_rows};

/// Whether an INSERT has rows of known width and no column list.
pub fn has_bare_rows(insert: &Insert) -> bool {
    insert.columns.is_empty() && width(insert).is_some()
}

/// Adds the column list, if there are fewer values than `columns`.
pub fn name_columns(insert: &mut Insert, columns: &[&str]) {
    let Some(width) = width(insert).filter(|width| *width < columns.len()) else { return };
    let names = columns[..width].iter().map(|name| ObjectName::from(vec![Ident::with_quote('"', *name)]));
    insert.columns = names.collect();
}

/// Adds LIMIT 0 to `CREATE TABLE … AS`, for WITH NO DATA.
pub fn without_rows(statement: &mut datafusion::sql::parser::Statement) {
    use datafusion::sql::parser::Statement as Parsed;
    match statement {
        Parsed::Explain(explain) => without_rows(&mut explain.statement),
        Parsed::Statement(statement) => {
            if let Statement::CreateTable(create) = statement.as_mut()
                && let Some(query) = &mut create.query
            {
                let zero = Expr::value(Value::Number("0".to_string(), false));
                query.fetch = None;
                query.limit_clause =
                    Some(LimitClause::LimitOffset { limit: Some(zero), offset: None, limit_by: vec![] });
            }
        }
        _ => {}
    }
}

/// Rewrites VALUES in subqueries of INSERT and CREATE TABLE AS to derived tables: the planner would take
/// their rows for rows of the table. So it does VALUES with literals in quotes beside values of other types:
/// the planner of relations knows what these become.
pub(super) fn values_to_derived_tables(statement: &mut Statement) {
    let (writes, rows_are_of_table) = match statement {
        Statement::Insert(_) => (true, true),
        Statement::CreateTable(create) => (create.query.is_some(), false),
        Statement::Prepare { statement, .. } => return values_to_derived_tables(statement),
        _ => (false, false),
    };
    let _ = statement.visit(&mut Subqueries { depth: 0, writes, rows_are_of_table });
}

struct Subqueries {
    depth: usize,
    /// The statement writes the rows of its query.
    writes: bool,
    /// The outermost VALUES take the types of the table.
    rows_are_of_table: bool,
}

impl VisitorMut for Subqueries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    // After visiting its children: VALUES in a derived table is a subquery, too.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        match self.depth {
            0 if self.rows_are_of_table => {}
            0 => as_relation(&mut query.body, &is_mixed),
            _ if self.writes => as_relation(&mut query.body, &|_| true),
            _ => as_relation(&mut query.body, &is_mixed),
        }
        ControlFlow::Continue(())
    }
}

/// Rewrites `VALUES …` to `SELECT * FROM (VALUES …) AS rows`.
fn as_relation(body: &mut SetExpr, which: &dyn Fn(&Values) -> bool) {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            as_relation(left, which);
            as_relation(right, which);
        }
        SetExpr::Values(values) if which(values) => {
            let mut rows = values_of_rows([]);
            *rows.body = SetExpr::Values(values.clone());
            let rows = derived_table(rows, table_alias(Ident::new("rows")));
            *body = *select_star(vec![rows]).body;
        }
        _ => {}
    }
}

/// Whether a column of VALUES has literals in quotes beside other expressions than literals.
fn is_mixed(values: &Values) -> bool {
    let is_literal = |value: &Expr| match value {
        Expr::Value(value) => !matches!(value.value, Value::Boolean(_) | Value::Placeholder(_)),
        _ => false,
    };
    let column = |at: usize| values.rows.iter().filter_map(move |row| row.content.get(at));
    (0..values.rows.first().map_or(0, |row| row.content.len()))
        .any(|at| column(at).any(|value| text_of(value).is_some()) && !column(at).all(is_literal))
}

/// The number of values per row.
fn width(insert: &Insert) -> Option<usize> {
    let Query { body, .. } = insert.source.as_deref()?;
    width_of(body)
}

fn width_of(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Values(values) => {
            let first = values.rows.first()?.len();
            values.rows.iter().all(|row| row.len() == first).then_some(first)
        }
        SetExpr::Select(select) => {
            let is_one = |item: &SelectItem| {
                matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
            };
            select.projection.iter().all(is_one).then_some(select.projection.len())
        }
        SetExpr::SetOperation { left, .. } => width_of(left),
        SetExpr::Query(query) => width_of(&query.body),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn missing_insert_columns_are_listed() {
        let check = |sql: &str, expected: &str| {
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
            let Statement::Insert(insert) = &mut statements[0] else { panic!("an INSERT") };
            if has_bare_rows(insert) {
                name_columns(insert, &["a", "B", "c"]);
            }
            assert_eq!(statements[0].to_string(), expected);
        };
        check("INSERT INTO t VALUES (1, 2), (3, 4)", "INSERT INTO t (\"a\", \"B\") VALUES (1, 2), (3, 4)");
        check("INSERT INTO t SELECT 1 UNION SELECT 2", "INSERT INTO t (\"a\") SELECT 1 UNION SELECT 2");
        for same in [
            "INSERT INTO t VALUES (1, 2, 3)",
            "INSERT INTO t VALUES (1, 2, 3, 4)",
            "INSERT INTO t VALUES (1), (2, 3)",
            "INSERT INTO t (a) VALUES (1)",
            "INSERT INTO t SELECT * FROM u",
            "INSERT INTO t SELECT 1, 2, 3",
        ] {
            check(same, same);
        }
    }

    #[test]
    fn values_of_subqueries_are_relations() {
        let check = |sql: &str, expected: &str| {
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
            values_to_derived_tables(&mut statements[0]);
            assert_eq!(statements[0].to_string(), expected);
        };
        check(
            "INSERT INTO t WITH w AS (VALUES (1)) SELECT * FROM w WHERE a IN (SELECT 1 UNION ALL VALUES (2))",
            "INSERT INTO t WITH w AS (SELECT * FROM (VALUES (1)) AS rows) SELECT * FROM w \
             WHERE a IN (SELECT 1 UNION ALL SELECT * FROM (VALUES (2)) AS rows)",
        );
        check(
            "PREPARE p AS INSERT INTO t WITH w AS (VALUES (1)) SELECT * FROM w",
            "PREPARE p AS INSERT INTO t WITH w AS (SELECT * FROM (VALUES (1)) AS rows) SELECT * FROM w",
        );
        for same in [
            "INSERT INTO t VALUES (1), (2)",
            "INSERT INTO t SELECT 1 UNION ALL VALUES (2)",
            "SELECT * FROM (VALUES (1)) v",
        ] {
            check(same, same);
        }
    }
}
