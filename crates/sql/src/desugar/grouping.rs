//! Queries with a single group although they have no aggregate: `GROUP BY ()`, and HAVING without GROUP BY.
//! The rewrite removes GROUP BY and adds an aggregate to HAVING that is always true. A query with an
//! aggregate is such a group anyway.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    GroupByExpr, Ident, ObjectName, Select, Value,
};

/// Rewrites the GROUP BY of a query in place.
pub(super) fn rewrite(select: &mut Select) {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else { return };
    let is_whole = |key: &Expr| match key {
        Expr::Tuple(columns) => columns.is_empty(),
        Expr::GroupingSets(sets) => matches!(sets.as_slice(), [set] if set.is_empty()),
        _ => false,
    };
    // `()` has no effect beside other keys.
    let count = keys.len();
    keys.retain(|key| !is_whole(key));
    let is_group = keys.is_empty() && count > 0;
    if is_group || (count == 0 && select.having.is_some()) {
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
