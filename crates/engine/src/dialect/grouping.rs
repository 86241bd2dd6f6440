//! Queries that are one group of all rows although they name no aggregate: `GROUP BY ()`, and HAVING with
//! constants and subqueries alone. They become queries without GROUP BY that have an aggregate, in HAVING, which is true of
//! every group.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    GroupByExpr, Ident, ObjectName, Query, Select, SelectItem, Value, Visit, Visitor,
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

/// Whether there is neither a function nor a column in an expression, except in its subqueries.
fn is_plain(expr: &Expr) -> bool {
    expr.visit(&mut Plain { queries: 0 }).is_continue()
}

/// Ends at the first function or column outside of subqueries.
struct Plain {
    /// In how many subqueries it is.
    queries: usize,
}

impl Visitor for Plain {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_) if self.queries == 0 => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
