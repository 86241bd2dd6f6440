//! Names for casts and scalar subqueries, so that expressions that differ by a cast alone stay distinct, as
//! in `SELECT max(w), max(w::int)` and `GROUP BY day, stamp::date`. DataFusion names a cast like its operand,
//! identifies aggregates, keys and columns by name, and rejects these statements (42701). It also resolves
//! ORDER BY by name: `SELECT max(w)::text FROM t GROUP BY k ORDER BY max(w)` would sort by the text. Such a
//! statement is planned again with a named identity function around each cast, which simplification removes.
//! Scalar subqueries all have one name, so that `rank() OVER (ORDER BY (SELECT …))` fails likewise; they are
//! named by their text.
//!
//! Columns that are written differently but plan to the same expression, as `SELECT 1.0, 1.00` and `SELECT
//! x[0], x[-1]`, are planned again with suffixed names.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, OrderByKind, Query, SetExpr, Value, Visit,
    VisitMut, Visitor, VisitorMut,
};
use harrier_error::SqlState;
use harrier_functions::cast::named_cast;
use harrier_sql::ast_builder::function_call;
use harrier_sql::desugar::result_columns;

use crate::planning::using_columns;

/// Plans a statement as [`using_columns::plan`] does.
///
/// Errors: those of planning.
pub(crate) async fn plan(state: &SessionState, statement: Statement) -> Result<LogicalPlan> {
    if is_values_insert(&statement) {
        return with_casts(state, statement).await;
    }
    match with_casts(state, statement.clone()).await {
        Err(error) if harrier_sqlstate::of(&error) == SqlState::DUPLICATE_COLUMN => {
            let mut distinct = statement;
            match result_columns::disambiguate_computed(&mut distinct) {
                // Report the error of the original statement.
                true => with_casts(state, distinct).await.map_err(|_| error),
                false => Err(error),
            }
        }
        planned => planned,
    }
}

/// Whether a statement is an INSERT with a VALUES list, which may be long: avoid cloning it.
fn is_values_insert(statement: &Statement) -> bool {
    let Statement::Statement(statement) = statement else { return false };
    let ast::Statement::Insert(insert) = statement.as_ref() else { return false };
    insert.source.as_ref().is_some_and(|rows| matches!(rows.body.as_ref(), SetExpr::Values(_)))
}

/// Plans a statement, and if names collide, once more with named casts.
async fn with_casts(state: &SessionState, statement: Statement) -> Result<LogicalPlan> {
    let Some(named) = with_names(&statement) else {
        return using_columns::plan(state, statement).await;
    };
    match using_columns::plan(state, statement).await {
        Err(error) if harrier_sqlstate::of(&error) == SqlState::DUPLICATE_COLUMN => {
            // Report the error of the original statement.
            using_columns::plan(state, named).await.map_err(|_| error)
        }
        Ok(plan) if sorts_and_casts(&named) || has_name_collision(&plan)? => {
            Ok(using_columns::plan(state, named).await.unwrap_or(plan))
        }
        planned => planned,
    }
}

/// Whether two different keys, aggregates or columns of one node have the same name, which the optimizer
/// would reject.
fn has_name_collision(plan: &LogicalPlan) -> Result<bool> {
    let mut is_found = false;
    plan.apply_with_subqueries(|plan| {
        if matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Projection(_) | LogicalPlan::Window(_)) {
            let mut names = HashMap::new();
            for expr in plan.expressions() {
                let name = expr.schema_name().to_string();
                is_found |= names.insert(name, expr.clone()).is_some_and(|other| other != expr);
            }
        }
        Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_found)
}

/// Wraps each cast and scalar subquery of a statement in a named function; `None` if there is none.
fn with_names(statement: &Statement) -> Option<Statement> {
    let has_nameless = match inner(statement) {
        Some(Part::Statement(statement)) => statement.visit(&mut HasNameless).is_break(),
        Some(Part::Query(query)) => query.visit(&mut HasNameless).is_break(),
        None => false,
    };
    if !has_nameless {
        return None;
    }
    let mut statement = statement.clone();
    name_casts(&mut statement);
    Some(statement)
}

/// Whether a query has a cast in its select list and an expression in ORDER BY.
fn sorts_and_casts(statement: &Statement) -> bool {
    match inner(statement) {
        Some(Part::Statement(statement)) => statement.visit(&mut SortsAndCasts).is_break(),
        Some(Part::Query(query)) => query.visit(&mut SortsAndCasts).is_break(),
        None => false,
    }
}

struct SortsAndCasts;

impl Visitor for SortsAndCasts {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &query.order_by) else {
            return ControlFlow::Continue(());
        };
        let is_named = |expr: &Expr| matches!(expr, Expr::Identifier(_) | Expr::Value(_));
        let sorts = match &order.kind {
            OrderByKind::Expressions(keys) => keys.iter().any(|key| !is_named(&key.expr)),
            OrderByKind::All(_) => false,
        };
        if sorts && select.projection.visit(&mut HasCast).is_break() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

enum Part<'s> {
    Statement(&'s datafusion::sql::sqlparser::ast::Statement),
    Query(&'s datafusion::sql::sqlparser::ast::Query),
}

fn inner(statement: &Statement) -> Option<Part<'_>> {
    match statement {
        Statement::Statement(statement) => Some(Part::Statement(statement)),
        Statement::Explain(explain) => inner(&explain.statement),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => Some(Part::Query(query)),
            CopyToSource::Relation(_) => None,
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => None,
    }
}

fn name_casts(statement: &mut Statement) {
    let _ = match statement {
        Statement::Statement(statement) => VisitMut::visit(statement.as_mut(), &mut NameCasts),
        Statement::Explain(explain) => {
            name_casts(&mut explain.statement);
            ControlFlow::Continue(())
        }
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => VisitMut::visit(query.as_mut(), &mut NameCasts),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    };
}

struct HasCast;

impl Visitor for HasCast {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if matches!(expr, Expr::Cast { .. }) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

struct HasNameless;

impl Visitor for HasNameless {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Cast { .. } | Expr::Subquery(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

struct NameCasts;

impl VisitorMut for NameCasts {
    type Break = ();

    // Post-order: the visitor does not descend into the replacement.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let name = match expr {
            Expr::Cast { data_type, .. } => data_type.to_string(),
            Expr::Subquery(query) => query.to_string(),
            // The subquery of ANY and ALL returns rows, not a scalar.
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                if let Some(query) = named_query(right) {
                    **right = Expr::Subquery(query);
                }
                return ControlFlow::Continue(());
            }
            _ => return ControlFlow::Continue(()),
        };
        let name = Expr::value(Value::SingleQuotedString(name));
        let nameless = std::mem::replace(expr, Expr::value(Value::Null));
        *expr = Expr::Function(function_call(named_cast::NAME, vec![nameless, name]));
        ControlFlow::Continue(())
    }
}

/// The subquery inside the naming function, if the expression is one.
fn named_query(expr: &mut Expr) -> Option<Box<Query>> {
    let Expr::Function(function) = expr else { return None };
    let FunctionArguments::List(list) = &mut function.args else { return None };
    match list.args.first_mut() {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(query)))) => Some(query.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::config::Dialect;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn casts_get_names() {
        let state = SessionContext::new().state();
        for (sql, expected) in [
            (
                "SELECT max(w), max(w::INT) FROM t",
                Some("SELECT max(w), max(harrier_named_cast(w::INT, 'INT')) FROM t"),
            ),
            (
                "SELECT sum(abs('1'::REAL)) FROM t",
                Some("SELECT sum(abs(harrier_named_cast('1'::REAL, 'REAL'))) FROM t"),
            ),
            (
                "SELECT rank() OVER (ORDER BY (SELECT 1)) FROM t",
                Some("SELECT rank() OVER (ORDER BY harrier_named_cast((SELECT 1), 'SELECT 1')) FROM t"),
            ),
            (
                "SELECT 1::INT FROM t WHERE w = ANY(SELECT 1) AND w < ALL(SELECT 1)",
                Some(
                    "SELECT harrier_named_cast(1::INT, 'INT') FROM t WHERE w = ANY(SELECT 1) AND w < ALL(SELECT 1)",
                ),
            ),
            ("SELECT max(w), 1 FROM t", None),
        ] {
            let statement = state.sql_to_statement(sql, &Dialect::PostgreSQL).unwrap();
            assert_eq!(with_names(&statement).map(|named| named.to_string()).as_deref(), expected);
        }
    }
}
