//! Names the columns of nested queries, so that outer references by PostgreSQL's names resolve: `count` of
//! `(SELECT count(*) FROM t)`, `n` of `generate_series(1, 3) AS n`.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, SelectItem, SetExpr, Statement, TableAlias, TableAliasColumnDef, TableFactor, Visit,
    Visitor,
};

use crate::rewrite::expressions::table_alias;
use harrier_sql::column_names::{duplicate_alias, expression_name, parts};
use harrier_sql::identifier::plain;

/// Gives PostgreSQL's names to unnamed columns of a query. Duplicates keep the planner's names, or with
/// `as_twins` get unique internal names, which are displayed as the original.
pub(super) fn name(query: &mut Query, as_twins: bool) {
    let mut body = query.body.as_mut();
    let select = loop {
        match body {
            SetExpr::Select(select) => break select,
            SetExpr::SetOperation { left, .. } => body = left.as_mut(),
            SetExpr::Query(query) => body = query.body.as_mut(),
            _ => return,
        }
    };
    let mut counts: HashMap<String, usize> = HashMap::new();
    let names: Vec<Option<String>> = select.projection.iter().map(name_of).collect();
    names.iter().flatten().for_each(|name| *counts.entry(name.clone()).or_default() += 1);
    for (at, (item, name)) in select.projection.iter_mut().zip(names).enumerate() {
        let (SelectItem::UnnamedExpr(expr), Some(mut name)) = (&*item, name) else { continue };
        let has_name = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        match counts[&name] > 1 {
            _ if has_name => continue,
            true if !as_twins => continue,
            true => name = duplicate_alias(&name, at),
            false => {}
        }
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
    }
}

fn name_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(expression_name(expr)),
        SelectItem::ExprWithAlias { alias, .. } => Some(plain(alias)),
        _ => None,
    }
}

/// Makes duplicate names in a column alias list unique: `q (a, a)`. Not for rows of JSON, whose columns have
/// types.
pub(super) fn name_twins(alias: &mut TableAlias) {
    let mut seen = HashSet::new();
    for (at, column) in alias.columns.iter_mut().enumerate() {
        let name = plain(&column.name);
        if column.data_type.is_none() && seen.contains(&name) {
            column.name = Ident::with_quote('"', duplicate_alias(&name, at));
        }
        seen.insert(name);
    }
}

/// Names the only column of a function in FROM after the function's alias.
pub(super) fn name_function(factor: &mut TableFactor) {
    let (own, alias) =
        match factor {
            TableFactor::Table { name, alias, args: Some(_), with_ordinality: false, .. } => {
                match parts(name).as_slice() {
                    [.., function] if function == "generate_series" => ("generate_series", alias),
                    _ => return,
                }
            }
            TableFactor::UNNEST {
                alias, array_exprs, with_offset: false, with_ordinality: false, ..
            } if array_exprs.len() == 1 => ("unnest", alias),
            _ => return,
        };
    let alias: &mut TableAlias = alias.get_or_insert_with(|| table_alias(own));
    if alias.columns.is_empty() {
        alias.columns = vec![TableAliasColumnDef { name: alias.name.clone(), data_type: None }];
    }
}

/// Whether a statement refers to anything as `value`.
pub(super) fn names_value(statement: &Statement) -> bool {
    struct Values;
    impl Visitor for Values {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let name = match expr {
                Expr::Identifier(name) => Some(name),
                Expr::CompoundIdentifier(parts) => parts.last(),
                _ => None,
            };
            match name.is_some_and(|name| plain(name) == "value") {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    statement.visit(&mut Values).is_break()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    #[test]
    fn columns_inside_have_postgresqls_names() {
        let check = |sql: &str, expected: &str| {
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
            crate::rewrite(&mut statements[0]);
            assert_eq!(statements[0].to_string(), expected);
        };
        check(
            "SELECT count FROM (SELECT count(*), a FROM t) s",
            "SELECT count FROM (SELECT count(*) AS \"count\", a FROM t) s",
        );
        check(
            "WITH c AS (SELECT max(a), max(b), a + 1 FROM t) SELECT * FROM c",
            "WITH c AS (SELECT max(a) AS \"__twin_of_max_0\", max(b) AS \"__twin_of_max_1\", a + 1 AS \"?column?\" FROM t) \
             SELECT * FROM c",
        );
        check(
            "CREATE TABLE c AS SELECT max(a), max(b), a + 1 FROM t",
            "CREATE TABLE c AS SELECT max(a), max(b), a + 1 AS \"?column?\" FROM t",
        );
        check(
            "CREATE VIEW v AS SELECT a::text, sum(b) FROM t",
            "CREATE VIEW v AS SELECT a::TEXT AS \"a\", sum(b) AS \"sum\" FROM t",
        );
        check("SELECT n FROM generate_series(1, 3) AS n", "SELECT n FROM generate_series(1, 3) AS n (n)");
        check(
            "SELECT * FROM generate_series(1, 3)",
            "SELECT * FROM generate_series(1, 3) AS \"generate_series\" (\"generate_series\")",
        );
        let sql = "SELECT value FROM generate_series(1, 3)";
        check(sql, sql);
        check("SELECT generate_series(1, 3)", "SELECT unnest(generate_series(1, 3))");
    }
}
