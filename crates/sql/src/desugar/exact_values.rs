//! Exact decimals for numeric literals with a point that a statement writes to tables: `INSERT INTO t SELECT
//! 1.005`. The planner makes doubles of them; the double 1.005 is less than 1.005, and 2.5 rounds to even
//! instead of to 3. Values in VALUES and SET are cast directly and handled later (`decimal_float_coercion` of
//! crate planner); this module handles the results of SELECT.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, MergeAction, MergeInsertKind,
    ObjectName, Select, SelectItem, SetExpr, Statement, TableFactor, UnaryOperator, Value, ValueWithSpan,
    VisitMut, VisitorMut,
};

use super::exact_number::exact_decimal;
use crate::on_conflict;

/// Rewrites the values that a statement writes.
pub(super) fn rewrite(statement: &mut Statement) {
    let _ = match statement {
        Statement::Insert(insert) => {
            for assignment in on_conflict::assignments_mut(insert).into_iter().flatten() {
                rewrite_literal(&mut assignment.value);
            }
            match &mut insert.source {
                Some(source) => source.visit(&mut Items),
                None => ControlFlow::Continue(()),
            }
        }
        Statement::Update(update) => {
            update.assignments.iter_mut().for_each(|assignment| rewrite_results(&mut assignment.value));
            update.from.visit(&mut Items)
        }
        Statement::Merge(merge) => {
            for clause in &mut merge.clauses {
                match &mut clause.action {
                    MergeAction::Insert(insert) => {
                        if let MergeInsertKind::Values(values) = &mut insert.kind {
                            values.rows.iter_mut().flat_map(|row| &mut row.content).for_each(rewrite_literal);
                        }
                    }
                    MergeAction::Update(update) => {
                        update
                            .assignments
                            .iter_mut()
                            .for_each(|assignment| rewrite_literal(&mut assignment.value));
                    }
                    _ => {}
                }
            }
            merge.source.visit(&mut Items)
        }
        Statement::Prepare { statement, .. } | Statement::Explain { statement, .. } => {
            rewrite(statement);
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Continue(()),
    };
}

/// Visits the select lists.
struct Items;

impl VisitorMut for Items {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, .. } = factor
            && let SetExpr::Values(values) = subquery.body.as_mut()
        {
            values.rows.iter_mut().flat_map(|row| &mut row.content).for_each(rewrite_literal);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    rewrite_literal(expr)
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }
}

/// Makes decimals of the literals among the arguments of conditional expressions.
fn rewrite_results(expr: &mut Expr) {
    match expr {
        Expr::Nested(inner_one) => rewrite_results(inner_one),
        Expr::Case { conditions, else_result, .. } => {
            conditions.iter_mut().for_each(|when| rewrite_literal(&mut when.result));
            else_result.iter_mut().for_each(|result| rewrite_literal(result));
        }
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. })
            if returns_argument(name) =>
        {
            for argument in &mut list.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument {
                    rewrite_literal(argument);
                }
            }
        }
        _ => {}
    }
}

/// Whether a function returns one of its arguments.
fn returns_argument(name: &ObjectName) -> bool {
    let name = name.to_string();
    ["coalesce", "nullif", "greatest", "least"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Makes a decimal of a literal with a point.
fn rewrite_literal(expr: &mut Expr) {
    match expr {
        Expr::Case { .. } | Expr::Function(_) => rewrite_results(expr),
        Expr::Nested(number)
        | Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr: number } => {
            rewrite_literal(number)
        }
        Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) if text.contains('.') => {
            if let Some(decimal) = exact_decimal(text) {
                *expr = decimal;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    #[test]
    fn decimal_literals_are_exact() {
        for (sql, expected) in [
            (
                "INSERT INTO t SELECT 1.005, -(2.5), a * 1.5, 3 FROM u",
                "INSERT INTO t SELECT CAST('1.005' AS DECIMAL(4,3)), -(CAST('2.5' AS DECIMAL(2,1))), a * 1.5, 3 FROM u",
            ),
            (
                "UPDATE t SET a = q.a FROM (SELECT .5 AS a) AS q",
                "UPDATE t SET a = q.a FROM (SELECT CAST('.5' AS DECIMAL(1,1)) AS a) AS q",
            ),
            (
                "UPDATE t SET a = coalesce(b, 1.5), c = 1.5",
                "UPDATE t SET a = coalesce(b, CAST('1.5' AS DECIMAL(2,1))), c = 1.5",
            ),
            (
                "INSERT INTO t SELECT a FROM (VALUES (1.5), (2)) AS v (a)",
                "INSERT INTO t SELECT a FROM (VALUES (CAST('1.5' AS DECIMAL(2,1))), (2)) AS v (a)",
            ),
            ("INSERT INTO t SELECT 1e3", "INSERT INTO t SELECT 1e3"),
            ("SELECT 1.005", "SELECT 1.005"),
        ] {
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
            super::rewrite(&mut statements[0]);
            assert_eq!(statements[0].to_string(), expected);
        }
    }
}
