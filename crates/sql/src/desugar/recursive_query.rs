//! WITH RECURSIVE: rejects ORDER BY and LIMIT of a recursive query, as PostgreSQL does. The planner would
//! ignore them and recurse forever. It also ignores those of a UNION that is not recursive, which therefore
//! becomes a subquery.

use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{Cte, LimitClause, ObjectName, Query, SetExpr, Visit, Visitor};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::identifier::plain;

/// Errors: a recursive query has ORDER BY or LIMIT (0A000).
pub(super) fn rewrite(query: &mut Query) -> Result<()> {
    let Some(with) = query.with.as_mut().filter(|with| with.recursive) else { return Ok(()) };
    for table in &mut with.cte_tables {
        let Some(what) = outer_clause(&table.query) else { continue };
        if is_recursive(table) {
            let message = format!("{what} in a recursive query is not implemented");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        if matches!(table.query.body.as_ref(), SetExpr::SetOperation { .. }) {
            parenthesize(&mut table.query);
        }
    }
    Ok(())
}

/// Parenthesizes `… UNION … ORDER BY … LIMIT …`.
fn parenthesize(query: &mut Query) {
    let inner = Box::new(query.clone());
    query.with = None;
    query.order_by = None;
    query.limit_clause = None;
    query.fetch = None;
    query.locks = Vec::new();
    *query.body = SetExpr::Query(inner);
}

/// Whether a common table expression is a UNION that refers to itself.
fn is_recursive(table: &Cte) -> bool {
    match table.query.body.as_ref() {
        SetExpr::SetOperation { right, .. } => refers_to(right.as_ref(), &plain(&table.alias.name)),
        _ => false,
    }
}

/// Whether part of a query refers to a common table expression of an outer query.
fn refers_to<N: Visit>(part: &N, name: &str) -> bool {
    part.visit(&mut Reader { name, hidden: vec![] }).is_break()
}

/// Searches for references to a common table expression, respecting shadowing.
struct Reader<'a> {
    name: &'a str,
    /// For each enclosing query, whether its WITH shadows the name.
    hidden: Vec<bool>,
}

impl Visitor for Reader<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let with = query.with.as_ref();
        let hides = with
            .and_then(|with| with.cte_tables.iter().position(|table| plain(&table.alias.name) == self.name));
        let is_hidden = self.hidden.contains(&true);
        self.hidden.push(hides.is_some());
        if let (Some(with), Some(at), false) = (with, hides, is_hidden) {
            // The shadowing name is not visible in the common table expressions before it, and in its own
            // definition only if it is recursive.
            let outside = if with.recursive { at } else { at + 1 };
            let others = with.cte_tables.iter().take(outside);
            if others.into_iter().any(|table| refers_to(table.query.as_ref(), self.name)) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.hidden.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let is_named = match relation.0.as_slice() {
            [only] => only.as_ident().is_some_and(|only| plain(only) == self.name),
            _ => false,
        };
        match is_named && !self.hidden.contains(&true) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Clauses of a query outside of its UNION.
fn outer_clause(query: &Query) -> Option<&'static str> {
    let (has_limit, has_offset) = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => (limit.is_some(), offset.is_some()),
        Some(LimitClause::OffsetCommaLimit { .. }) => (true, true),
        None => (false, false),
    };
    let all = [
        (query.order_by.is_some(), "ORDER BY"),
        (has_offset, "OFFSET"),
        (has_limit || query.fetch.is_some(), "LIMIT"),
        (!query.locks.is_empty(), "FOR UPDATE/SHARE"),
    ];
    all.into_iter().find_map(|(has_one, what)| has_one.then_some(what))
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn limits_of_recursion_are_refused() {
        let recursive = |first: &str, rest: &str| {
            format!("WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL {first}{rest}) SELECT n FROM r LIMIT 5")
        };
        let step = "SELECT n + 1 FROM r";
        assert_eq!(rewritten(&recursive(step, "")).unwrap(), recursive(step, ""));
        for rest in [" LIMIT 3", " OFFSET 3", " ORDER BY 1", " FETCH FIRST 3 ROWS ONLY"] {
            assert!(rewritten(&recursive(step, rest)).is_err(), "{rest}");
            assert!(rewritten(&recursive("SELECT 2", rest)).is_ok(), "{rest}");
            let hidden = "SELECT n FROM (WITH r (n) AS (SELECT 2) SELECT n FROM r) q";
            assert!(rewritten(&recursive(hidden, rest)).is_ok(), "{rest}");
            let defined = "SELECT n FROM (WITH r (n) AS (SELECT n + 1 FROM r) SELECT n FROM r) q";
            assert!(rewritten(&recursive(defined, rest)).is_err(), "{rest}");
        }
    }
}
