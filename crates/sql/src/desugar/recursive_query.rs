//! WITH RECURSIVE, of which the order and the limit of the whole are refused, as PostgreSQL does: the planner
//! takes no notice of them, and goes on for ever. It takes none of those of a UNION that is not recursive
//! either, which therefore becomes a query inside of one.

use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{self, Cte, LimitClause, ObjectName, Query, SetExpr};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::identifier::plain;

/// Errors: a recursive query has an order or a limit (0A000).
pub(super) fn settle(query: &mut Query) -> Result<()> {
    let Some(with) = query.with.as_mut().filter(|with| with.recursive) else { return Ok(()) };
    for table in &mut with.cte_tables {
        let Some(what) = beyond_union(&table.query) else { continue };
        if is_recursive(table) {
            let message = format!("{what} in a recursive query is not implemented");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        if matches!(table.query.body.as_ref(), SetExpr::SetOperation { .. }) {
            enclose(&mut table.query);
        }
    }
    Ok(())
}

/// Makes `(… UNION … ORDER BY … LIMIT …)` of `… UNION … ORDER BY … LIMIT …`.
fn enclose(query: &mut Query) {
    let inner = Box::new(query.clone());
    query.with = None;
    query.order_by = None;
    query.limit_clause = None;
    query.fetch = None;
    query.locks = Vec::new();
    query.body = Box::new(SetExpr::Query(inner));
}

/// Whether a table is a UNION that reads the table itself.
fn is_recursive(table: &Cte) -> bool {
    let name = plain(&table.alias.name);
    let SetExpr::SetOperation { right, .. } = table.query.body.as_ref() else { return false };
    let found = ast::visit_relations(right, |relation: &ObjectName| match relation.0.as_slice() {
        [only] if only.as_ident().is_some_and(|only| plain(only) == name) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// What a query has beside its UNION.
fn beyond_union(query: &Query) -> Option<&'static str> {
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
        }
    }
}
