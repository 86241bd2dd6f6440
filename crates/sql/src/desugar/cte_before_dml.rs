//! WITH before INSERT, UPDATE, DELETE and MERGE, which the planner supports in queries only: moves it into
//! the queries of the statement.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Insert, ObjectNamePart, Query, SetExpr, Statement, TableAlias, TableFactor, UpdateTableFromKind,
    VisitMut, VisitorMut, With,
};

use crate::identifier::plain;

/// Rewrites such a statement in place. A common table expression is evaluated once for each query that refers
/// to it.
pub(super) fn rewrite(statement: &mut Statement) {
    match statement {
        Statement::Prepare { statement, .. } => rewrite(statement),
        Statement::Query(query) => {
            let (SetExpr::Insert(change)
            | SetExpr::Update(change)
            | SetExpr::Delete(change)
            | SetExpr::Merge(change)) = query.body.as_ref()
            else {
                return;
            };
            let mut change = change.clone();
            if let Some(with) = &query.with {
                push_down_with(with, &mut change);
            }
            *statement = change;
        }
        _ => {}
    }
}

fn push_down_with(with: &With, change: &mut Statement) {
    let names = with.cte_tables.iter().map(|table| plain(&table.alias.name)).collect();
    let mut relations = Relations { names, depth: 0 };
    let mut queries = Queries { with, depth: 0 };
    let _ = match change {
        Statement::Insert(Insert { source, returning, on, .. }) => {
            let _ = returning.visit(&mut queries);
            let _ = on.visit(&mut queries);
            source.visit(&mut queries)
        }
        Statement::Update(update) => {
            if let Some(UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from)) =
                &mut update.from
            {
                let _ = from.visit(&mut relations);
            }
            update.visit(&mut queries)
        }
        Statement::Delete(delete) => {
            let _ = delete.using.visit(&mut relations);
            delete.visit(&mut queries)
        }
        Statement::Merge(merge) => {
            let _ = merge.source.visit(&mut relations);
            merge.visit(&mut queries)
        }
        _ => ControlFlow::Continue(()),
    };
}

/// Wraps references to common table expressions outside of queries in a subquery.
struct Relations {
    names: HashSet<String>,
    depth: usize,
}

impl VisitorMut for Relations {
    type Break = ();

    crate::count_query_depth!(depth, mut);

    // After visiting its children, which do not include the new subquery.
    fn post_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
        if self.depth == 0
            && let TableFactor::Table { name, alias, args: None, .. } = relation
            && let [ObjectNamePart::Identifier(own)] = name.0.as_slice()
            && self.names.contains(&plain(own))
        {
            let own = TableAlias { explicit: true, name: own.clone(), columns: vec![], at: None };
            let body = SetExpr::Select(Box::new(crate::ast_builder::select_all(name)));
            *relation = TableFactor::Derived {
                lateral: false,
                subquery: Box::new(query_of(None, body)),
                alias: Some(alias.take().unwrap_or(own)),
                sample: None,
            };
        }
        ControlFlow::Continue(())
    }
}

/// Adds the WITH clause to outermost queries.
struct Queries<'w> {
    with: &'w With,
    depth: usize,
}

impl VisitorMut for Queries<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        if self.depth == 0 {
            let with = Some(self.with.clone());
            match query.with {
                None => query.with = with,
                // Nested, so that names keep their meaning.
                Some(_) => *query = query_of(with, SetExpr::Query(Box::new(query.clone()))),
            }
        }
        ControlFlow::Continue(())
    }
}

fn query_of(with: Option<With>, body: SetExpr) -> Query {
    Query {
        with,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: vec![],
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn rewritten(sql: &str) -> String {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        rewrite(&mut statements[0]);
        statements[0].to_string()
    }

    #[test]
    fn ctes_move_into_the_query_of_dml() {
        for (sql, expected) in [
            (
                "WITH w AS (SELECT 1 AS a) INSERT INTO t SELECT a FROM w",
                "INSERT INTO t WITH w AS (SELECT 1 AS a) SELECT a FROM w",
            ),
            (
                "WITH w AS (SELECT 1 AS a) INSERT INTO t VALUES ((SELECT a FROM w))",
                "INSERT INTO t WITH w AS (SELECT 1 AS a) VALUES ((SELECT a FROM w))",
            ),
            (
                "WITH w AS (SELECT 1 AS a) INSERT INTO t WITH v AS (SELECT * FROM w) SELECT a FROM v",
                "INSERT INTO t WITH w AS (SELECT 1 AS a) (WITH v AS (SELECT * FROM w) SELECT a FROM v)",
            ),
            (
                "WITH w AS (SELECT 1 AS a) UPDATE t SET a = (SELECT max(a) FROM w) WHERE a IN (SELECT a FROM (SELECT * FROM w))",
                "UPDATE t SET a = (WITH w AS (SELECT 1 AS a) SELECT max(a) FROM w) \
                 WHERE a IN (WITH w AS (SELECT 1 AS a) SELECT a FROM (SELECT * FROM w))",
            ),
            (
                "WITH w AS (SELECT 1 AS a) UPDATE t SET a = w.a FROM W, u AS w2 WHERE t.a = w.a",
                "UPDATE t SET a = w.a FROM (WITH w AS (SELECT 1 AS a) SELECT * FROM W) AS W, u AS w2 WHERE t.a = w.a",
            ),
            (
                "WITH w AS (SELECT 1 AS a) DELETE FROM t USING w AS x WHERE t.a = x.a",
                "DELETE FROM t USING (WITH w AS (SELECT 1 AS a) SELECT * FROM w) AS x WHERE t.a = x.a",
            ),
            (
                "WITH w AS (SELECT 1 AS a) INSERT INTO t SELECT a FROM w RETURNING (SELECT max(a) FROM w)",
                "INSERT INTO t WITH w AS (SELECT 1 AS a) SELECT a FROM w \
                 RETURNING (WITH w AS (SELECT 1 AS a) SELECT max(a) FROM w)",
            ),
            (
                "PREPARE p AS WITH w AS (SELECT 1 AS a) DELETE FROM w WHERE a = $1",
                "PREPARE p AS DELETE FROM w WHERE a = $1",
            ),
            (
                "WITH w AS (SELECT 1 AS a) MERGE INTO t USING w ON t.a = w.a WHEN MATCHED THEN DELETE",
                "MERGE INTO t USING (WITH w AS (SELECT 1 AS a) SELECT * FROM w) AS w ON t.a = w.a WHEN MATCHED THEN DELETE",
            ),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn other_statements_are_unchanged() {
        for sql in
            ["WITH w AS (SELECT 1) SELECT * FROM w", "INSERT INTO t WITH w AS (SELECT 1) SELECT * FROM w"]
        {
            assert_eq!(rewritten(sql), sql);
        }
    }
}
