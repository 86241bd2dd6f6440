//! Queries that are one group of all rows although they name no aggregate: `GROUP BY ()`, and HAVING with
//! constants alone. They become queries without GROUP BY that have an aggregate, in HAVING, which is true of
//! every group.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    GroupByExpr, Ident, ObjectName, Select, SelectItem, Value, visit_expressions,
};

/// Rewrites the grouping of a query in place.
pub(super) fn complete(select: &mut Select) {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else { return };
    let is_whole = |key: &Expr| match key {
        Expr::Tuple(columns) => columns.is_empty(),
        Expr::GroupingSets(sets) => matches!(sets.as_slice(), [set] if set.is_empty()),
        _ => false,
    };
    // Beside other keys it says nothing.
    let count = keys.len();
    keys.retain(|key| !is_whole(key));
    let is_group = keys.is_empty() && count > 0;
    // The planner takes a HAVING for one of an aggregate alone if it finds a function.
    let is_plain_having = count == 0
        && select.having.as_ref().is_some_and(is_plain)
        && select.projection.iter().all(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => is_plain(expr),
            _ => false,
        });
    if is_group || is_plain_having {
        let has_rows = Expr::BinaryOp {
            left: Box::new(count_of_rows()),
            op: BinaryOperator::GtEq,
            right: Box::new(Expr::value(Value::Number("0".to_owned(), false))),
        };
        select.having = Some(match select.having.take() {
            Some(having) => Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(having))),
                op: BinaryOperator::And,
                right: Box::new(has_rows),
            },
            None => has_rows,
        });
    }
}

/// `count(*)`.
fn count_of_rows() -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("count")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![FunctionArg::Unnamed(FunctionArgExpr::Wildcard)],
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// Whether there is neither a function nor a column in an expression.
fn is_plain(expr: &Expr) -> bool {
    visit_expressions(expr, |expr| match expr {
        Expr::Function(_)
        | Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::Subquery(_)
        | Expr::Exists { .. }
        | Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_continue()
}
