//! Prepares names in a statement for the planner: file names in FROM, and duplicate column names.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, ObjectName, ObjectNamePart, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr,
    Value, VisitMut, VisitorMut,
};

use crate::column_names::duplicate_alias;

use crate::file_names;
use crate::identifier::{plain, without_casts};

/// Marks single-quoted table names as file names, and makes result columns unique that the planner would
/// reject as duplicates, as in `SELECT a, a::text`. With `is_client`, the statement is a client's, and its
/// columns keep their names and PostgreSQL's semantics.
pub fn prepare(statement: &mut Statement, is_client: bool) {
    match statement {
        Statement::Statement(statement) => {
            // CREATE TABLE and CREATE VIEW keep the column names, or report an error.
            let defines =
                matches!(statement.as_ref(), ast::Statement::CreateTable(_) | ast::Statement::CreateView(_));
            if let ast::Statement::Query(query) = statement.as_mut() {
                name_beside_stars(query);
            }
            let disambiguates_aliases = !is_client && !defines;
            let _ = statement.visit(&mut Disambiguator {
                disambiguates: !is_client,
                disambiguates_aliases,
                keeps_client_names: false,
            });
        }
        Statement::Explain(explain) => prepare(&mut explain.statement, is_client),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => prepare_query(query),
            CopyToSource::Relation(name) => mark_file(name),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => {}
    }
}

/// Makes duplicate result columns unique that [`prepare`] skipped.
pub fn disambiguate_columns(statement: &mut datafusion::sql::sqlparser::ast::Statement) {
    let mut names =
        Disambiguator { disambiguates: true, disambiguates_aliases: false, keeps_client_names: true };
    let _ = statement.visit(&mut names);
}

/// Gives all computed columns unique aliases, after the planner found duplicates: `SELECT 1.0, 1.00`. Returns
/// whether there are any; CREATE TABLE and CREATE VIEW are unchanged.
pub fn disambiguate_computed(statement: &mut Statement) -> bool {
    let mut computed = Computed { is_changed: false };
    match statement {
        Statement::Statement(statement) => match statement.as_mut() {
            ast::Statement::CreateTable(_) | ast::Statement::CreateView(_) => {}
            statement => {
                let _ = statement.visit(&mut computed);
            }
        },
        Statement::Explain(explain) => return disambiguate_computed(&mut explain.statement),
        Statement::CopyTo(copy) => {
            if let CopyToSource::Query(query) = &mut copy.source {
                let _ = query.visit(&mut computed);
            }
        }
        Statement::CreateExternalTable(_) | Statement::Reset(_) => {}
    }
    computed.is_changed
}

struct Computed {
    is_changed: bool,
}

impl VisitorMut for Computed {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for (at, item) in select.projection.iter_mut().enumerate().skip(1) {
            if let SelectItem::UnnamedExpr(expression) = item
                && !is_column(expression)
            {
                let name = name_of(&SelectItem::UnnamedExpr(expression.clone()));
                let name = name.unwrap_or_else(|| expression.to_string());
                let alias = Ident::with_quote('"', duplicate_alias(&name, 3 * POSITIONS_MAX + at));
                let expr = std::mem::replace(expression, Expr::value(Value::Null));
                *item = SelectItem::ExprWithAlias { expr, alias };
                self.is_changed = true;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Like [`prepare`], for a query.
pub fn prepare_query(query: &mut Query) {
    let mut names =
        Disambiguator { disambiguates: true, disambiguates_aliases: true, keeps_client_names: false };
    let _ = query.visit(&mut names);
}

struct Disambiguator {
    disambiguates: bool,
    disambiguates_aliases: bool,
    /// Use aliases that the client sees without their suffix.
    keeps_client_names: bool,
}

impl VisitorMut for Disambiguator {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        mark_file(name);
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.disambiguates_aliases {
            for_each_select(&mut query.body, disambiguate_aliases);
        }
        if self.disambiguates {
            for_each_select(
                &mut query.body,
                if self.keeps_client_names { disambiguate_client_names } else { disambiguate_unnamed },
            );
            alias_sorted_casts(query);
        }
        ControlFlow::Continue(())
    }
}

/// Gives columns beside a star unique aliases: the planner rejects duplicates, as in `SELECT t.b, t.* FROM
/// t`.
fn name_beside_stars(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if !select.projection.iter().any(is_star) {
        return;
    }
    for (at, item) in select.projection.iter_mut().enumerate() {
        if let SelectItem::UnnamedExpr(expression) = item
            && is_column(expression)
            && let Some(name) = name_of(item)
            && let SelectItem::UnnamedExpr(expression) = item
        {
            let alias = Ident::with_quote('"', duplicate_alias(&name, 2 * POSITIONS_MAX + at));
            *item = SelectItem::ExprWithAlias {
                expr: std::mem::replace(expression, Expr::value(Value::Null)),
                alias,
            };
        }
    }
}

fn is_star(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}

pub fn mark_file(name: &mut ObjectName) {
    if let [ObjectNamePart::Identifier(part)] = name.0.as_mut_slice()
        && part.quote_style == Some('\'')
        && let Some(marked) = file_names::quoted_file_name(&part.value)
    {
        part.value = marked;
    }
}

/// Applies `change` to the SELECTs of a set operation. Parenthesized ones are visited separately.
fn for_each_select(body: &mut SetExpr, change: fn(&mut Select)) {
    match body {
        SetExpr::Select(select) => change(select),
        SetExpr::SetOperation { left, right, .. } => {
            for_each_select(left, change);
            for_each_select(right, change);
        }
        _ => {}
    }
}

/// Numbers duplicate aliases, from the second one on.
fn disambiguate_aliases(select: &mut Select) {
    let mut given: Vec<String> = Vec::new();
    for item in &mut select.projection {
        if let SelectItem::ExprWithAlias { alias, .. } = item {
            let name = plain(alias);
            let earlier = given.iter().filter(|other| **other == name).count();
            if earlier > 0 {
                *alias = Ident::with_quote('"', format!("{name}_{earlier}"));
            }
            given.push(name);
        }
    }
}

/// The planner's name for a subquery column when it checks for duplicates.
const SUBQUERY: &str = "(<subquery>)";

/// Numbers duplicate unnamed columns. The planner names a column after its expression without casts, and a
/// subquery in the end after its own column. It accepts duplicates only if all of them are table columns.
fn disambiguate_unnamed(select: &mut Select) {
    disambiguate_unnamed_as(select, |name, earlier, _| format!("{name}_{earlier}"));
}

/// Offset of aliases by position; exceeds the number of columns of a list.
const POSITIONS_MAX: usize = 1_000_000;

/// Gives duplicate unnamed columns aliases that the client sees without their suffix.
pub fn disambiguate_client_names(select: &mut Select) {
    // Distinct from aliases numbered by position alone.
    disambiguate_unnamed_as(select, |name, _, at| duplicate_alias(name, POSITIONS_MAX + at));
}

/// `make_name` makes a unique name from the duplicate one, the number of earlier duplicates, and the
/// position.
fn disambiguate_unnamed_as(select: &mut Select, make_name: fn(&str, usize, usize) -> String) {
    let own = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(expression) if is_column(without_casts(expression)));
    let others: BTreeSet<String> =
        select.projection.iter().filter(|item| !own(item)).filter_map(name_of).collect();
    let mut seen: Vec<String> = Vec::with_capacity(select.projection.len());
    for (at, item) in select.projection.iter_mut().enumerate() {
        let name = name_of(item);
        let SelectItem::UnnamedExpr(expression) = item else {
            continue;
        };
        let base = without_casts(expression);
        let key = match base {
            Expr::Subquery(_) => SUBQUERY.to_string(),
            Expr::Identifier(name) => key_of(std::slice::from_ref(name)),
            Expr::CompoundIdentifier(names) => key_of(names),
            _ => all_without_casts(base).to_string().to_lowercase(),
        };
        let mut earlier = seen.iter().filter(|other| **other == key).count();
        if is_column(base) && name.as_ref().is_some_and(|name| others.contains(name)) {
            earlier += 1;
        }
        if earlier > 0 {
            let name = match base {
                Expr::Identifier(name) => name.value.clone(),
                Expr::CompoundIdentifier(names) => {
                    names.last().map(|name| name.value.clone()).unwrap_or_default()
                }
                Expr::Subquery(_) => SUBQUERY.to_string(),
                other => other.to_string(),
            };
            *item = SelectItem::ExprWithAlias {
                expr: expression.clone(),
                alias: Ident::with_quote('"', make_name(&name, earlier, at)),
            };
        }
        seen.push(key);
    }
}

/// Aliases casts of columns in a query with ORDER BY by the column name, as PostgreSQL does: the planner
/// would treat them as the columns themselves, which the sort adds to the projection. If a sort key is
/// qualified, the cast gets another name.
fn alias_sorted_casts(query: &mut Query) {
    let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &query.order_by else { return };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if select.projection.iter().any(is_star) {
        return;
    }
    let names: Vec<Option<String>> = select.projection.iter().map(name_of).collect();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::UnnamedExpr(expression) = item else { continue };
        let Some(name) = names[at].as_ref().filter(|_| is_column(without_casts(expression))) else {
            continue;
        };
        if is_column(expression) || names.iter().filter(|other| *other == &names[at]).count() > 1 {
            continue;
        }
        let is_qualified = order.iter().any(|by| match &by.expr {
            Expr::CompoundIdentifier(parts) => parts.last().is_some_and(|part| plain(part) == *name),
            _ => false,
        });
        let alias = if is_qualified { format!("{name}_1") } else { name.clone() };
        *item = SelectItem::ExprWithAlias { expr: expression.clone(), alias: Ident::with_quote('"', alias) };
    }
}

/// A key for all spellings of a column name.
fn key_of(names: &[Ident]) -> String {
    names.iter().map(|name| format!("\"{}\"", plain(name))).collect::<Vec<_>>().join(".")
}

fn is_column(expression: &Expr) -> bool {
    matches!(expression, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// The name of a result column, if it has one; a subquery's is that of its column.
fn name_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(plain(alias)),
        SelectItem::UnnamedExpr(expression) => match without_casts(expression) {
            Expr::Identifier(name) => Some(plain(name)),
            Expr::CompoundIdentifier(names) => names.last().map(plain),
            Expr::Subquery(query) => match query.body.as_ref() {
                SetExpr::Select(select) => select.projection.first().and_then(name_of),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// Strips nested casts, too: typed string literals are casts in the planner.
fn all_without_casts(expression: &Expr) -> Expr {
    struct Casts;
    impl VisitorMut for Casts {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            match expr {
                // The planner ignores parentheses.
                Expr::Cast { expr: inner, .. } | Expr::Nested(inner) => {
                    *expr = std::mem::replace(inner, Expr::value(Value::Null))
                }
                Expr::TypedString(typed) => *expr = Expr::Value(typed.value.clone()),
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut plain = expression.clone();
    let _ = plain.visit(&mut Casts);
    plain
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    #[test]
    fn statements() {
        for (sql, expected) in [
            ("SELECT a, b FROM t", "SELECT a, b FROM t"),
            ("SELECT a, a FROM t", "SELECT a, a AS \"a_1\" FROM t"),
            ("SELECT 1 + 1, (1) + 1", "SELECT 1 + 1, (1) + 1 AS \"(1) + 1_1\""),
            ("SELECT a, A::text, 1, 1, 1", "SELECT a, A::TEXT AS \"A_1\", 1, 1 AS \"1_1\", 1 AS \"1_2\""),
            ("SELECT a::text FROM t ORDER BY a", "SELECT a::TEXT AS \"a\" FROM t ORDER BY a"),
            (
                "SELECT a::text, a FROM t ORDER BY a",
                "SELECT a::TEXT AS \"a\", a AS \"a_1\" FROM t ORDER BY a",
            ),
            ("SELECT a::text FROM t ORDER BY t.a", "SELECT a::TEXT AS \"a_1\" FROM t ORDER BY t.a"),
            ("SELECT f(a), f(a::int)", "SELECT f(a), f(a::INT) AS \"f(a::INT)_1\""),
            ("SELECT f('1'), f(DATE '1')", "SELECT f('1'), f(DATE '1') AS \"f(DATE '1')_1\""),
            ("SELECT t.a, u.a FROM t, u", "SELECT t.a, u.a FROM t, u"),
            ("SELECT (SELECT 1), (SELECT 2)", "SELECT (SELECT 1), (SELECT 2) AS \"(<subquery>)_1\""),
            ("SELECT t.a, \"t\".\"a\" FROM t", "SELECT t.a, \"t\".\"a\" AS \"a_1\" FROM t"),
            ("SELECT a AS x, a FROM t", "SELECT a AS x, a FROM t"),
            ("SELECT t.a, 1 AS a FROM t", "SELECT t.a AS \"a_1\", 1 AS a FROM t"),
            ("SELECT a, a, 1 AS a", "SELECT a AS \"a_1\", a AS \"a_2\", 1 AS a"),
            ("SELECT a, (SELECT u.a FROM u) FROM t", "SELECT a AS \"a_1\", (SELECT u.a FROM u) FROM t"),
            ("SELECT 1 AS b, 2 AS B, 3 AS \"B\"", "SELECT 1 AS b, 2 AS \"b_1\", 3 AS \"B\""),
            ("CREATE VIEW v AS SELECT 1 AS b, 2 AS b", "CREATE VIEW v AS SELECT 1 AS b, 2 AS b"),
            ("SELECT 1, 1 UNION SELECT 2, 2", "SELECT 1, 1 AS \"1_1\" UNION SELECT 2, 2 AS \"2_1\""),
            ("SELECT * FROM (SELECT 1, 1)", "SELECT * FROM (SELECT 1, 1 AS \"1_1\")"),
            ("SELECT * FROM 'data'", "SELECT * FROM './data'"),
            ("SELECT * FROM 'x.csv', data", "SELECT * FROM 'x.csv', data"),
            ("EXPLAIN SELECT * FROM 'data'", "EXPLAIN SELECT * FROM './data'"),
            ("COPY (SELECT * FROM 'data') TO 'x'", "COPY (SELECT * FROM './data') TO x"),
        ] {
            let mut statement =
                DFParser::parse_sql_with_dialect(sql, &PostgreSqlDialect {}).unwrap().pop_front().unwrap();
            prepare(&mut statement, false);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
