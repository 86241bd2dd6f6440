//! Row comparisons, such as `(a, b) < (1, 2)` and `(a, b) IN (SELECT x, y …)`, as comparisons of columns.
//! DataFusion compares structs, in which NULL is an ordinary value, and supports no multi-column subquery in
//! an expression.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Delete, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, Query,
    Select, SelectItem, SetExpr, Statement, UnaryOperator, Update, Value, visit_expressions,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::update_from::name_of;
use crate::ast_builder::{
    self, binary, boolean, case, derived_table, number, parentheses, query_where, table_alias_of,
    values_of_rows,
};
use crate::identifier::plain;
use crate::tokens::quantified_query::ROWS;

/// Longer lists become a VALUES table.
const LISTED_ROWS_MAX: usize = 32;

/// Longer lists stay struct comparisons where they cannot become a table: deeply nested comparisons take long
/// to plan, and may overflow the thread's stack.
const COMPARED_ROWS_MAX: usize = 200;

/// Rewrites a row comparison in place. The caller visits its operands.
///
/// Errors: rows of different lengths (42601).
pub fn rewrite(expr: &mut Expr) -> Result<()> {
    let columns = match &*expr {
        Expr::BinaryOp { left, op, right } => match (row(left), row(right)) {
            (Some(left), Some(right)) => compare_rows(op, left, right)?,
            _ => None,
        },
        Expr::IsDistinctFrom(left, right) => match (row(left), row(right)) {
            (Some(left), Some(right)) => Some(any(pairs(left, right)?, Expr::IsDistinctFrom)),
            _ => None,
        },
        Expr::IsNotDistinctFrom(left, right) => match (row(left), row(right)) {
            (Some(left), Some(right)) => Some(all(pairs(left, right)?, Expr::IsNotDistinctFrom)),
            _ => None,
        },
        Expr::IsNull(inner) => row(inner).map(|row| {
            let each = row.into_iter().map(|column| Expr::IsNull(Box::new(column)));
            chain_or_true(each, BinaryOperator::And)
        }),
        Expr::IsNotNull(inner) => row(inner).map(|row| {
            let each = row.into_iter().map(|column| Expr::IsNotNull(Box::new(column)));
            chain_or_true(each, BinaryOperator::And)
        }),
        Expr::Between { expr: inner, negated, low, high } => match (row(inner), row(low), row(high)) {
            (Some(inner), Some(low), Some(high)) => {
                let from = compare_rows(&BinaryOperator::GtEq, inner.clone(), low)?;
                let to = compare_rows(&BinaryOperator::LtEq, inner, high)?;
                let both = chain_or_true(from.into_iter().chain(to).map(parentheses), BinaryOperator::And);
                Some(if *negated { not(both) } else { both })
            }
            _ => None,
        },
        Expr::InList { list, .. } if list.len() > COMPARED_ROWS_MAX => None,
        Expr::InList { expr: inner, list, negated } => {
            let listed: Option<Vec<_>> = list.iter().map(row).collect();
            match (row(inner), listed) {
                (Some(inner), Some(listed)) => {
                    let mut each = Vec::with_capacity(listed.len());
                    for one in listed {
                        each.push(parentheses(all(pairs(inner.clone(), one)?, equal)));
                    }
                    let found = chain_or_true(each, BinaryOperator::Or);
                    Some(if *negated { not(found) } else { found })
                }
                _ => None,
            }
        }
        // Aggregates of the query would move into the subquery.
        other => match Search::of(other) {
            Some(search) if search.row.iter().any(has_function) => return Err(unsupported_position_error()),
            Some(search) => Some(search.three_valued()),
            None => None,
        },
    };
    if let Some(columns) = columns {
        *expr = parentheses(columns);
    }
    Ok(())
}

/// Rewrites row comparisons in a filter, where NULL acts as false: IN with a subquery becomes EXISTS, which
/// is planned as a join.
fn in_filter(condition: &mut Expr, is_having: bool) -> Result<()> {
    // Each part, with whether it is negated.
    let mut parts = vec![(condition, false)];
    while let Some((part, is_negated)) = parts.pop() {
        match part {
            Expr::Nested(inner) => parts.push((inner, is_negated)),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => parts.push((expr, !is_negated)),
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
                parts.extend([(left.as_mut(), is_negated), (right.as_mut(), is_negated)]);
            }
            other => {
                // Aggregates of the query would move into the subquery.
                if let Some(search) = Search::of(other)
                    && !(is_having && search.row.iter().any(has_function))
                {
                    *other = search.two_valued(is_negated);
                }
            }
        }
    }
    Ok(())
}

/// Applies [`in_filter`] to WHERE and HAVING of a query.
pub(super) fn in_filters(body: &mut SetExpr) -> Result<()> {
    match body {
        SetExpr::Select(select) => {
            select.selection.iter_mut().try_for_each(|condition| in_filter(condition, false))?;
            select.having.iter_mut().try_for_each(|condition| in_filter(condition, true))
        }
        SetExpr::SetOperation { left, right, .. } => {
            in_filters(left)?;
            in_filters(right)
        }
        _ => Ok(()),
    }
}

/// Applies [`in_filter`] to WHERE of UPDATE and DELETE.
pub(super) fn in_dml_filter(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::Delete(Delete { selection: Some(condition), .. })
        | Statement::Update(Update { selection: Some(condition), .. }) => in_filter(condition, false),
        _ => Ok(()),
    }
}

/// `row [NOT] IN (rows)`.
struct Search {
    row: Vec<Expr>,
    rows: Box<Query>,
    negated: bool,
}

impl Search {
    fn of(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::InSubquery { expr, subquery, negated } => {
                row(expr).map(|row| Self { row, rows: subquery.clone(), negated: *negated })
            }
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
                match (row(left), right.as_ref()) {
                    (Some(row), Expr::Subquery(rows)) => {
                        Some(Self { row, rows: rows.clone(), negated: false })
                    }
                    _ => None,
                }
            }
            Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
                match (row(left), right.as_ref()) {
                    (Some(row), Expr::Subquery(rows)) => {
                        Some(Self { row, rows: rows.clone(), negated: true })
                    }
                    _ => None,
                }
            }
            Expr::InList { expr, list, negated } if list.len() > LISTED_ROWS_MAX => {
                match (row(expr), literal_rows(list)) {
                    (Some(row), Some(rows)) => {
                        Some(Self { row, rows: Box::new(values_of_rows(rows)), negated: *negated })
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// As a two-valued condition, in which NULL becomes `unknown`.
    fn two_valued(self, unknown: bool) -> Expr {
        let is_equal = self.is_equal();
        let is_found = match self.negated == unknown {
            true => is_equal,
            false => Expr::IsNotFalse(Box::new(parentheses(is_equal))),
        };
        self.exists(is_found, self.negated)
    }

    /// As a three-valued expression.
    fn three_valued(self) -> Expr {
        let is_equal = self.is_equal();
        let is_found = self.exists(is_equal.clone(), false);
        let is_unknown = self.exists(Expr::IsNull(Box::new(parentheses(is_equal))), false);
        let found = boolean(!self.negated);
        case([(is_found, found), (is_unknown, Expr::value(Value::Null))], boolean(self.negated))
    }

    fn is_equal(&self) -> Expr {
        let columns: Vec<Expr> = match self.simple_select() {
            Some((_, columns)) => columns.into_iter().cloned().map(parenthesize).collect(),
            None => {
                let named = (0..self.row.len()).map(|at| Expr::CompoundIdentifier(vec![rows(), column(at)]));
                named.collect()
            }
        };
        all(self.row.iter().cloned().zip(columns), equal)
    }

    /// The subquery and its columns, if a condition on them can be added to its WHERE; a correlated subquery
    /// requires that. No column of the row may be captured by a table of the subquery.
    fn simple_select(&self) -> Option<(&Select, Vec<&Expr>)> {
        let Query { with: None, body, limit_clause: None, fetch: None, .. } = self.rows.as_ref() else {
            return None;
        };
        let SetExpr::Select(select) = body.as_ref() else { return None };
        let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
        if is_grouped || select.distinct.is_some() || select.top.is_some() {
            return None;
        }
        if select.having.is_some() || select.qualify.is_some() {
            return None;
        }
        let mut columns = Vec::with_capacity(self.row.len());
        for item in &select.projection {
            let (SelectItem::UnnamedExpr(column) | SelectItem::ExprWithAlias { expr: column, .. }) = item
            else {
                return None;
            };
            columns.push(column);
        }
        if columns.len() != self.row.len() || columns.iter().any(|column| has_function(column)) {
            return None;
        }
        let relations = select.from.iter().flat_map(|from| {
            [&from.relation].into_iter().chain(from.joins.iter().map(|join| &join.relation))
        });
        let names: Vec<String> = relations.map(name_of).collect::<Option<_>>()?;
        let mut is_taken = |part: &Expr| match part {
            Expr::Identifier(_) | Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => true,
            // Including `s.t.a`.
            Expr::CompoundIdentifier(parts) => parts.iter().any(|part| names.contains(&plain(part))),
            _ => false,
        };
        let is_any_taken = self.row.iter().any(|column| contains_expr(column, &mut is_taken));
        (!names.is_empty() && !is_any_taken).then_some((select.as_ref(), columns))
    }

    /// `[NOT] EXISTS` a row that satisfies `condition`.
    fn exists(&self, condition: Expr, negated: bool) -> Expr {
        if self.simple_select().is_some() {
            let mut subquery = self.rows.clone();
            if let SetExpr::Select(select) = subquery.body.as_mut() {
                select.projection = vec![SelectItem::UnnamedExpr(boolean(true))];
                let own = select.selection.take();
                select.selection = Some(chain_or_true(
                    own.into_iter().chain([condition]).map(parentheses),
                    BinaryOperator::And,
                ));
            }
            subquery.order_by = None;
            return Expr::Exists { subquery, negated };
        }
        let alias = table_alias_of(rows(), (0..self.row.len()).map(column));
        let from = vec![derived_table(Query::clone(&self.rows), alias)];
        let subquery = query_where(vec![SelectItem::UnnamedExpr(number("1"))], from, condition);
        Expr::Exists { subquery: Box::new(subquery), negated }
    }
}

/// Whether `fits` matches an expression or a part of it.
fn contains_expr(expr: &Expr, fits: &mut dyn FnMut(&Expr) -> bool) -> bool {
    visit_expressions(
        expr,
        |part| if fits(part) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) },
    )
    .is_break()
}

/// Whether it may contain an aggregate.
fn has_function(expr: &Expr) -> bool {
    contains_expr(expr, &mut |part| matches!(part, Expr::Function(_) | Expr::Subquery(_)))
}

fn rows() -> Ident {
    Ident::with_quote('"', ROWS)
}

fn column(at: usize) -> Ident {
    Ident::with_quote('"', format!("_{}", at + 1))
}

/// The columns of a row constructor, `(a, b)` or `ROW(a, b)`.
pub fn row(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(columns) => Some(columns.iter().cloned().map(parenthesize).collect()),
        Expr::Nested(inner) => row(inner),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let column = |argument: &FunctionArg| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(column)) => Some(parenthesize(column.clone())),
                _ => None,
            };
            list.args.iter().map(column).collect()
        }
        _ => None,
    }
}

/// Parenthesizes an expression unless it is atomic: stored statements are unparsed without precedence.
fn parenthesize(expr: Expr) -> Expr {
    match expr {
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::Value(_)
        | Expr::Nested(_)
        | Expr::Tuple(_) => expr,
        Expr::Function(_) | Expr::Subquery(_) => expr,
        other => parentheses(other),
    }
}

/// The rows of a list of literal rows.
fn literal_rows(list: &[Expr]) -> Option<Vec<Vec<Expr>>> {
    let row = |one: &Expr| match one {
        Expr::Tuple(columns) if columns.iter().all(is_value) => Some(columns.clone()),
        _ => None,
    };
    list.iter().map(row).collect()
}

fn is_value(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => !matches!(value.value, Value::Placeholder(_)),
        Expr::TypedString(_) => true,
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_value(expr),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => is_value(expr),
        _ => false,
    }
}

fn pairs(left: Vec<Expr>, right: Vec<Expr>) -> Result<Vec<(Expr, Expr)>> {
    match left.len() == right.len() {
        true => Ok(left.into_iter().zip(right).collect()),
        false => Err(unequal_length_error()),
    }
}

fn unsupported_position_error() -> DataFusionError {
    let message = "IN with a subquery of several columns is supported in WHERE, and elsewhere without functions before it, only";
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint("join the subquery").into_datafusion()
}

fn unequal_length_error() -> DataFusionError {
    SqlError::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions").into_datafusion()
}

/// Compares rows column by column; `None` if the operator is no comparison.
fn compare_rows(op: &BinaryOperator, left: Vec<Expr>, right: Vec<Expr>) -> Result<Option<Expr>> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let first = match op {
        Eq => return Ok(Some(all(pairs(left, right)?, equal))),
        NotEq => {
            return Ok(Some(any(pairs(left, right)?, |left, right| binary(*left, NotEq, *right))));
        }
        Lt | LtEq => Lt,
        Gt | GtEq => Gt,
        _ => return Ok(None),
    };
    // Built from the last column: a < x OR (a = x AND (b < y OR …)).
    let mut rest: Option<Expr> = None;
    for (left, right) in pairs(left, right)?.into_iter().rev() {
        rest = Some(match rest {
            None => binary(left, op.clone(), right),
            Some(rest) => {
                let is_equal = binary(left.clone(), Eq, right.clone());
                let both = binary(is_equal, BinaryOperator::And, parentheses(rest));
                binary(binary(left, first.clone(), right), BinaryOperator::Or, parentheses(both))
            }
        });
    }
    Ok(rest)
}

fn all(pairs: impl IntoIterator<Item = (Expr, Expr)>, each: fn(Box<Expr>, Box<Expr>) -> Expr) -> Expr {
    chain_or_true(
        pairs.into_iter().map(|(left, right)| each(Box::new(left), Box::new(right))),
        BinaryOperator::And,
    )
}

fn any(pairs: impl IntoIterator<Item = (Expr, Expr)>, each: fn(Box<Expr>, Box<Expr>) -> Expr) -> Expr {
    chain_or_true(
        pairs.into_iter().map(|(left, right)| each(Box::new(left), Box::new(right))),
        BinaryOperator::Or,
    )
}

/// A chain of `parts`; TRUE for an empty one.
fn chain_or_true(parts: impl IntoIterator<Item = Expr>, op: BinaryOperator) -> Expr {
    ast_builder::operator_chain(parts, op).unwrap_or_else(|| boolean(true))
}

fn equal(left: Box<Expr>, right: Box<Expr>) -> Expr {
    binary(*left, BinaryOperator::Eq, *right)
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(parentheses(expr)) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;
    use super::COMPARED_ROWS_MAX;

    #[test]
    fn rows_are_compared_by_columns() {
        for (sql, expected) in [
            ("(a, b) = (1, 2)", "(a = 1 AND b = 2)"),
            ("(a, b) <> ROW(1, b OR c)", "(a <> 1 OR b <> (b OR c))"),
            ("(a, b, c) < (1, 2, 3)", "(a < 1 OR (a = 1 AND (b < 2 OR (b = 2 AND (c < 3)))))"),
            ("(a, b) >= (1, 2)", "(a > 1 OR (a = 1 AND (b >= 2)))"),
            ("(a, b) IS NULL", "(a IS NULL AND b IS NULL)"),
            ("(a, b) IN ((1, 2), (3, 4))", "((a = 1 AND b = 2) OR (a = 3 AND b = 4))"),
            ("(a, b) NOT IN ((1, 2))", "(NOT ((a = 1 AND b = 2)))"),
            ("(a, (b, c)) = (1, (2, 3))", "(a = 1 AND (b = 2 AND c = 3))"),
            ("(a, b) || (1, 2)", "(a, b) || (1, 2)"),
            ("a = (1, 2)", "a = (1, 2)"),
        ] {
            let query = |condition: &str| format!("SELECT {condition} FROM t");
            assert_eq!(rewritten(&query(sql)).unwrap(), query(expected), "{sql}");
        }
        let rewrite = |sql: &str| rewritten(&format!("SELECT {sql}"));
        assert!(rewrite("(1, 2) = (1, 2, 3)").is_err());
        assert!(rewrite("(1, 2) IN ((1, 2), (1, 2, 3))").is_err());
    }

    #[test]
    fn conditions_become_joins() {
        let found = r#"(SELECT 1 FROM (SELECT x, y FROM u) AS "_harrier_rows" ("_1", "_2") WHERE "#;
        let is_equal = r#"a = "_harrier_rows"."_1" AND b = "_harrier_rows"."_2""#;
        for (sql, expected) in [
            ("(a, b) IN (SELECT x, y FROM u)", format!("EXISTS {found}{is_equal})")),
            ("c OR (a, b) = ANY (SELECT x, y FROM u)", format!("c OR EXISTS {found}{is_equal})")),
            ("(a, b) NOT IN (SELECT x, y FROM u)", format!("NOT EXISTS {found}({is_equal}) IS NOT FALSE)")),
            ("NOT (a, b) IN (SELECT x, y FROM u)", format!("NOT EXISTS {found}({is_equal}) IS NOT FALSE)")),
            (
                "NOT (c AND (a, b) NOT IN (SELECT x, y FROM u))",
                format!("NOT (c AND NOT EXISTS {found}{is_equal}))"),
            ),
        ] {
            let query = |condition: &str| format!("SELECT 1 FROM t WHERE {condition}");
            let told = rewritten(&query(sql)).unwrap();
            assert_eq!(told.to_lowercase(), query(&expected).to_lowercase(), "{sql}");
        }
        let found = rewritten(
            "SELECT 1 FROM t WHERE (t.a, 2) IN (SELECT u.x, y + 1 AS z FROM u WHERE u.k = t.k OR c)",
        )
        .unwrap();
        let expected = "SELECT 1 FROM t WHERE EXISTS (SELECT true FROM u WHERE (u.k = t.k OR c) AND (t.a = u.x AND 2 = (y + 1)))";
        assert_eq!(found, expected);
        let found =
            rewritten("SELECT 1 FROM main.t WHERE (main.t.a, 2) IN (SELECT t.x, t.y FROM main.t)").unwrap();
        assert!(found.contains("FROM (SELECT t.x, t.y FROM main.t) AS"), "{found}");
        let value = rewritten("SELECT (a, b) NOT IN (SELECT x, y FROM u)").unwrap();
        assert!(value.contains("THEN false WHEN EXISTS") && value.ends_with("ELSE true END)"), "{value}");
        assert!(rewritten("SELECT (a, count(*)) IN (SELECT x, y FROM u)").is_err());
        let many: Vec<String> = (0..40).map(|at| format!("({at}, -{at})")).collect();
        let told = rewritten(&format!("SELECT 1 FROM t WHERE (a, b) IN ({})", many.join(", "))).unwrap();
        assert!(told.contains("EXISTS (SELECT 1 FROM (VALUES (0, -0), (1, -1)"), "{told}");
        let many = format!("SELECT (a, b) IN ({})", vec!["(1, c)"; COMPARED_ROWS_MAX + 1].join(", "));
        assert_eq!(rewritten(&many).unwrap(), many);
    }
}
