//! Columns of `JOIN … USING` and `NATURAL JOIN`, and names in ORDER BY, as PostgreSQL has them: one of both
//! sides, which comes first in `SELECT *` and has the value of the side that has the row. To the planner they
//! are two, of which it takes the left one, or the one whose table's name sorts first.
//!
//! What columns the relations have only the planner can tell, which knows the tables, common table
//! expressions and queries around that their names may mean. So what is in FROM is marked where it has such a
//! join, and the statement planned: when the planner comes upon a mark it asks [`Probe`], which has it plan
//! the relations, remembers their columns and gives up. With these the SELECT is written anew:
//!
//! ```text
//! SELECT *, k + 1 FROM t FULL JOIN u USING (k) WHERE k > 0
//! SELECT coalesce(t.k, u.k) AS k, t.a, u.b, coalesce(t.k, u.k) + 1 FROM t FULL JOIN u ON t.k = u.k WHERE coalesce(t.k, u.k) > 0
//! ```
//!
//! The same is done where ORDER BY has expressions with names that columns of the result have, too
//! (`orders`).
//!
//! Then the statement is planned again, until nothing in it is marked. Tables are looked up once for all of
//! that. In subqueries, too, names may mean joined columns of the query around them: what is in their FROM is
//! marked then, for there may be a column of the name in it.

pub(crate) mod column;
pub(crate) mod duplicate_columns;
pub(crate) mod from_clause;
pub(crate) mod marks;
pub(crate) mod order_by;
pub(crate) mod resolution;
pub(crate) mod whole_rows;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider,
};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::planner::{RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    self, OrderBy, Query, Select, SetExpr, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};
use harrier_error::{SqlError, SqlState};
use harrier_sql::ast_builder::select_star;
use harrier_sql::column_names::client_name;
use harrier_sql::desugar::nested_case;
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::Mutex;

use crate::planning::using_columns::column::{Column, Meaning};
use crate::planning::using_columns::from_clause::{Walk, merges, merges_in, relations};
use crate::planning::using_columns::marks::{Marks, crossed, is_mark, mark_of, marked, nested, unmark};
use crate::planning::using_columns::resolution::{meanings, put};

/// The plan of a statement, which is to be had here wherever it may be a user's.
///
/// Errors: those of planning; a column of USING is not there (42703), or there twice (42701, 42702).
pub(crate) async fn plan(state: &SessionState, mut statement: Statement) -> Result<LogicalPlan> {
    nested_case::add_branches(&mut statement);
    let mut marks = Marks::default();
    if let ControlFlow::Break(error) = walk(&mut statement, &mut Marking::new(&mut marks)) {
        return Err(error);
    }
    let plan = match marks.count {
        0 => state.statement_to_plan(statement).await?,
        _ => resolve(state, &mut statement, marks).await?,
    };
    check_made(&plan)?;
    Ok(plan)
}

/// Errors: two columns of what is made have one name (42701).
fn check_made(plan: &LogicalPlan) -> Result<()> {
    let input = match plan {
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => &create.input,
        LogicalPlan::Ddl(DdlStatement::CreateView(create)) => &create.input,
        _ => return Ok(()),
    };
    let mut names = input.schema().fields().iter().map(|field| field.name());
    match names.find(|name| client_name(name) != *name) {
        Some(name) => {
            let message = format!("column \"{}\" specified more than once", client_name(name));
            Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).into_datafusion())
        }
        None => Ok(()),
    }
}

/// Plans a statement with marks, which are gone from it then.
async fn resolve(state: &SessionState, statement: &mut Statement, mut marks: Marks) -> Result<LogicalPlan> {
    let mut state = with_tables(state, statement).await?;
    let probe = Arc::new(Probe::default());
    state.register_relation_planner(Arc::clone(&probe) as Arc<dyn RelationPlanner>)?;
    loop {
        let planned = state.statement_to_plan(statement.clone()).await;
        let found = std::mem::take(&mut *probe.found.lock());
        if found.is_empty() {
            return planned;
        }
        for found in found {
            if !marks.resolve(statement, found)? {
                return planned;
            }
        }
    }
}

/// The session with nothing but the tables that a statement names.
async fn with_tables(state: &SessionState, statement: &Statement) -> Result<SessionState> {
    let catalogs = MemoryCatalogProviderList::new();
    let defaults = &state.config_options().catalog;
    for reference in state.resolve_table_references(statement)? {
        let name = reference.resolve(&defaults.default_catalog, &defaults.default_schema);
        let Ok(place) = state.schema_for_ref(name.clone()) else { continue };
        let Some(table) = place.table(&name.table).await? else { continue };
        let catalog = match catalogs.catalog(&name.catalog) {
            Some(catalog) => catalog,
            None => {
                let catalog: Arc<dyn CatalogProvider> = Arc::new(MemoryCatalogProvider::new());
                catalogs.register_catalog(name.catalog.to_string(), Arc::clone(&catalog));
                catalog
            }
        };
        let schema = match catalog.schema(&name.schema) {
            Some(schema) => schema,
            None => {
                let schema: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
                catalog.register_schema(&name.schema, Arc::clone(&schema))?;
                schema
            }
        };
        if !schema.table_exist(&name.table) {
            schema.register_table(name.table.to_string(), table)?;
        }
    }
    let mut state = state.clone();
    state.register_catalog_list(Arc::new(catalogs));
    // Its tables are among the others now.
    state.config_mut().options_mut().catalog.information_schema = false;
    Ok(state)
}

fn walk<V: VisitorMut>(statement: &mut Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(statement) => statement.visit(visitor),
        Statement::Explain(explain) => walk(&mut explain.statement, visitor),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(visitor),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    }
}

/// What is known of a marked FROM.
#[derive(Debug)]
struct Found {
    mark: usize,
    /// The columns of each relation in it, in their order, up to the first that cannot be planned.
    relations: Vec<Vec<Column>>,
    /// That there is no such relation.
    is_all: bool,
}

enum Settled {
    /// Nothing more can be done: what the planner says is wrong is wrong.
    Not,
    /// It has to be planned once more.
    Partly,
    /// The columns of all that is in FROM, and what names mean around it.
    Wholly(Vec<Column>, Vec<Meaning>),
}

impl Marks {
    /// Writes anew what was marked; `false` if nothing came of that.
    fn resolve(&mut self, statement: &mut Statement, found: Found) -> Result<bool> {
        let resolved = walk(statement, &mut Resolution { marks: self, found });
        if let Some(name) = self.ambiguous.take() {
            let message = format!("column reference \"{name}\" is ambiguous");
            return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message).into_datafusion());
        }
        match resolved {
            ControlFlow::Break(resolved) => resolved,
            ControlFlow::Continue(()) => {
                Err(DataFusionError::Internal("what was marked is gone".to_string()))
            }
        }
    }

    fn select(&mut self, select: &mut Select, order_by: Option<&mut OrderBy>, found: &Found) -> Result<bool> {
        match self.settle(&mut select.from, found)? {
            Settled::Not => Ok(false),
            Settled::Partly => Ok(true),
            Settled::Wholly(columns, around) => {
                let mut order_by = order_by;
                if let Some(order_by) = order_by.as_deref_mut() {
                    order_by::from_first(select, order_by, &columns);
                }
                let relations = &found.relations;
                resolution::rewrite(select, order_by.as_deref_mut(), &columns, relations, &around, self)?;
                whole_rows::put(select, order_by, &columns, relations)?;
                Ok(true)
            }
        }
    }

    fn merge(&mut self, merge: &mut ast::Merge, found: &Found) -> Result<bool> {
        let mut from = vec![TableWithJoins { relation: merge.source.clone(), joins: vec![] }];
        let settled = self.settle(&mut from, found)?;
        if let Some(source) = from.pop() {
            merge.source = source.relation;
        }
        match settled {
            Settled::Not => Ok(false),
            Settled::Partly => Ok(true),
            Settled::Wholly(columns, around) => {
                let meanings = meanings(&columns, &around);
                put(&mut merge.on, &meanings, self);
                put(&mut merge.clauses, &meanings, self);
                Ok(true)
            }
        }
    }

    /// Writes a marked FROM without USING and NATURAL, and without its mark, if the columns of all that is in
    /// it are known.
    fn settle(&mut self, from: &mut Vec<TableWithJoins>, found: &Found) -> Result<Settled> {
        if !found.is_all && !self.replaced.insert((found.mark, found.relations.len())) {
            return Ok(Settled::Not);
        }
        let around = self.around.get(&found.mark).cloned().unwrap_or_default();
        let item = from.first_mut();
        let item = item.ok_or_else(|| DataFusionError::Internal("nothing is marked".to_string()))?;
        let mut walk =
            Walk { relations: found.relations.iter(), is_all: found.is_all, around: &around, marks: self };
        let Some(columns) = walk.item(item, &[])? else { return Ok(Settled::Partly) };
        unmark(from);
        Ok(Settled::Wholly(columns, around))
    }
}

/// Marks what has joins by names of columns, or says a name that several columns of a relation may have.
struct Marking<'m> {
    marks: &'m mut Marks,
    common: duplicate_columns::Common,
}

impl<'m> Marking<'m> {
    fn new(marks: &'m mut Marks) -> Self {
        Self { marks, common: duplicate_columns::Common::new() }
    }

    /// Marks the SELECTs of a query that say such a name.
    fn mark_twins(&mut self, query: &mut Query) {
        let mut found = vec![];
        selects(&query.body, &mut |select| {
            found.push(
                mark_of(select).is_none()
                    && duplicate_columns::of_from(&select.from, &self.common).are_said(query),
            );
        });
        let mut found = found.into_iter();
        for_selects(&mut query.body, &mut |select| {
            if found.next() == Some(true) {
                self.marks.mark_select(select);
            }
        });
    }
}

/// The SELECTs of a query. One in parentheses is a query by itself.
fn selects(body: &SetExpr, see: &mut dyn FnMut(&Select)) {
    match body {
        SetExpr::Select(select) => see(select),
        SetExpr::SetOperation { left, right, .. } => {
            selects(left, see);
            selects(right, see);
        }
        _ => {}
    }
}

fn for_selects(body: &mut SetExpr, change: &mut dyn FnMut(&mut Select)) {
    match body {
        SetExpr::Select(select) => change(select),
        SetExpr::SetOperation { left, right, .. } => {
            for_selects(left, change);
            for_selects(right, change);
        }
        _ => {}
    }
}

impl VisitorMut for Marking<'_> {
    type Break = DataFusionError;

    fn pre_visit_statement(&mut self, statement: &mut ast::Statement) -> ControlFlow<DataFusionError> {
        if let ast::Statement::Merge(merge) = statement
            && (merges_in(&mut merge.source)
                || duplicate_columns::of_factor(&merge.source, &self.common).are_any())
        {
            self.marks.name_subqueries(&mut merge.source);
            let mut from = vec![TableWithJoins { relation: merge.source.clone(), joins: vec![] }];
            self.marks.mark(&mut from);
            if let Some(source) = from.pop() {
                merge.source = source.relation;
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        if let SetExpr::Select(select) = query.body.as_mut()
            && (query.order_by.as_ref().is_some_and(|order_by| order_by::is_in_doubt(select, order_by))
                || whole_rows::may_be_said(select, query.order_by.as_ref()))
        {
            self.marks.mark_select(select);
        }
        duplicate_columns::define(query, &mut self.common);
        self.mark_twins(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        let is_marked = select.from.iter_mut().any(merges)
            || !select.from.is_empty() && resolution::stars_meet(&select.projection);
        if mark_of(select).is_none() && (is_marked || whole_rows::may_be_said(select, None)) {
            self.marks.mark_select(select);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<DataFusionError> {
        match to_subquery(factor) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// `(t JOIN u USING (k)) AS j` as a subquery: outside of it there are no `t` and `u`.
fn to_subquery(factor: &mut TableFactor) -> Result<()> {
    let TableFactor::NestedJoin { table_with_joins, alias } = factor else { return Ok(()) };
    if alias.as_ref().is_none_or(is_mark) || !merges(table_with_joins) {
        return Ok(());
    }
    let subquery = Box::new(select_star(vec![TableWithJoins::clone(table_with_joins)]));
    let lateral = relations(table_with_joins).into_iter().any(is_lateral);
    *factor = TableFactor::Derived { lateral, subquery, alias: alias.take(), sample: None };
    Ok(())
}

/// Whether a relation is planned knowing the columns of those on its left.
fn is_lateral(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Derived { lateral, .. } | TableFactor::Function { lateral, .. } => *lateral,
        TableFactor::UNNEST { .. } => true,
        _ => false,
    }
}

/// Writes anew what one mark is at.
struct Resolution<'m> {
    marks: &'m mut Marks,
    found: Found,
}

impl VisitorMut for Resolution<'_> {
    type Break = Result<bool>;

    fn pre_visit_statement(&mut self, statement: &mut ast::Statement) -> ControlFlow<Result<bool>> {
        match statement {
            ast::Statement::Merge(merge)
                if marked(&merge.source).is_some_and(|(mark, _)| mark == self.found.mark) =>
            {
                ControlFlow::Break(self.marks.merge(merge, &self.found))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Result<bool>> {
        let is_plain = matches!(query.body.as_ref(), SetExpr::Select(_));
        let Some(select) = select_of(&mut query.body, self.found.mark) else {
            return ControlFlow::Continue(());
        };
        // That of several SELECTs together has names of their result only.
        let order_by = query.order_by.as_mut().filter(|_| is_plain);
        let resolved = self.marks.select(select, order_by, &self.found);
        ControlFlow::Break(resolved.and_then(|resolved| order_by::leave_out_keys(query).map(|()| resolved)))
    }
}

fn select_of(body: &mut SetExpr, mark: usize) -> Option<&mut Select> {
    match body {
        SetExpr::SetOperation { left, right, .. } => select_of(left, mark).or_else(|| select_of(right, mark)),
        SetExpr::Select(select) if mark_of(select) == Some(mark) => Some(select.as_mut()),
        _ => None,
    }
}

/// Finds out what columns marked relations have, and plans none of them.
#[derive(Debug, Default)]
struct Probe {
    found: Mutex<Vec<Found>>,
}

impl RelationPlanner for Probe {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let Some((mark, table)) = marked(&relation) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let joined = relations(table);
        let mut found = Found { mark, relations: Vec::with_capacity(joined.len()), is_all: false };
        for at in 0..joined.len() {
            let others = self.found.lock().len();
            let known: usize = found.relations.iter().map(Vec::len).sum();
            match columns_of_last(&joined[..=at], known, context) {
                Ok(columns) => found.relations.push(columns),
                Err(error) => {
                    // What is marked in the relation comes first.
                    let mut all = self.found.lock();
                    if all.len() == others {
                        all.push(found);
                    }
                    return Err(error);
                }
            }
        }
        found.is_all = true;
        self.found.lock().push(found);
        Err(DataFusionError::Plan("the columns of a join are looked at first".to_string()))
    }
}

/// The columns of the last of some relations; those before it have as many as are known.
fn columns_of_last(
    joined: &[&TableFactor],
    known: usize,
    context: &mut dyn RelationPlannerContext,
) -> Result<Vec<Column>> {
    let (Some(first), Some(last)) = (joined.first(), joined.last()) else { return Ok(vec![]) };
    let (plan, known) = match is_lateral(last) {
        false => (context.plan(TableFactor::clone(last))?, 0),
        true => {
            let joins = joined[1..].iter().map(|relation| crossed(TableFactor::clone(relation)));
            let table = TableWithJoins { relation: TableFactor::clone(first), joins: joins.collect() };
            (context.plan(nested(table, None))?, known)
        }
    };
    let mut columns: Vec<Column> =
        plan.schema().iter().skip(known).map(|(table, field)| Column::of(table, field)).collect();
    name_twins(&mut columns);
    Ok(columns)
}

/// Gives columns that the planner has numbered, as one of two that are called `a` is `a:1` to it, the names
/// that they were given.
fn name_twins(columns: &mut [Column]) {
    let mut seen: HashSet<String> = HashSet::new();
    for column in columns {
        if let Some((name, number)) = column.name.rsplit_once(':')
            && number.parse::<usize>().is_ok()
            && seen.contains(name)
        {
            column.name.truncate(name.len());
        }
        seen.insert(column.name.clone());
    }
}

#[cfg(test)]
mod tests {
    use datafusion::config::Dialect;
    use datafusion::prelude::SessionContext;

    use super::*;

    /// Without the quotes of names.
    async fn rewritten(sql: &str) -> Result<String> {
        let context = SessionContext::new();
        for table in ["t (k INT, a INT)", "u (k INT, b INT)", "v (k INT, c INT)"] {
            context.sql(&format!("CREATE TABLE {table}")).await?;
        }
        let state = context.state();
        let mut statement = state.sql_to_statement(sql, &Dialect::PostgreSQL)?;
        let mut marks = Marks::default();
        if let ControlFlow::Break(error) = walk(&mut statement, &mut Marking::new(&mut marks)) {
            return Err(error);
        }
        resolve(&state, &mut statement, marks).await?;
        Ok(statement.to_string().replace('"', ""))
    }

    #[tokio::test]
    async fn names_become_what_they_mean() {
        for (sql, expected) in [
            ("SELECT * FROM t JOIN u USING (k)", "SELECT t.k, t.a, u.b FROM t JOIN u ON t.k = u.k"),
            (
                "WITH q AS (SELECT 1) SELECT -a AS a, k FROM t ORDER BY a + 0 DESC, a, k LIMIT 2",
                "WITH q AS (SELECT 1) SELECT * EXCLUDE (\u{1}key 1) FROM (SELECT -a AS a, k, t.a + 0 AS \u{1}key 1 \
                 FROM t) AS ordered ORDER BY \u{1}key 1 DESC, a, k LIMIT 2",
            ),
            // There is no such column in FROM.
            ("SELECT -a AS x FROM t ORDER BY x + 0", "SELECT -a AS x FROM t ORDER BY x + 0"),
            ("SELECT -a AS a FROM t ORDER BY (a)", "SELECT -a AS a FROM t ORDER BY (a)"),
            (
                "SELECT *, k + 1 FROM t FULL JOIN u USING (k) WHERE k > 0 ORDER BY k",
                "SELECT coalesce(t.k, u.k) AS k, t.a, u.b, coalesce(t.k, u.k) + 1 FROM t FULL JOIN u ON t.k = u.k \
                 WHERE coalesce(t.k, u.k) > 0 ORDER BY k",
            ),
            (
                "SELECT k FROM u NATURAL RIGHT JOIN t GROUP BY k HAVING k > 1",
                "SELECT t.k FROM u RIGHT JOIN t ON u.k = t.k GROUP BY t.k HAVING t.k > 1",
            ),
            (
                "SELECT * FROM t FULL JOIN u USING (k) LEFT JOIN v USING (k)",
                "SELECT coalesce(t.k, u.k) AS k, t.a, u.b, v.c FROM t FULL JOIN u ON t.k = u.k \
                 LEFT JOIN v ON coalesce(t.k, u.k) = v.k",
            ),
            (
                "SELECT * FROM v JOIN (t RIGHT JOIN u USING (k)) AS j USING (k)",
                "SELECT v.k, v.c, j.a, j.b FROM v \
                 JOIN (SELECT u.k, t.a, u.b FROM t RIGHT JOIN u ON t.k = u.k) AS j ON v.k = j.k",
            ),
            (
                "SELECT t.*, k FROM t FULL JOIN u USING (k)",
                "SELECT t.k, t.a, coalesce(t.k, u.k) AS __twin_of_k_1 FROM t FULL JOIN u ON t.k = u.k",
            ),
            (
                "SELECT * FROM t NATURAL JOIN (SELECT b FROM u)",
                "SELECT * FROM t CROSS JOIN (SELECT b FROM u) AS unnamed_subquery_1",
            ),
            (
                "SELECT a FROM t NATURAL JOIN u WHERE EXISTS (SELECT 1 FROM v AS w (i, c) WHERE i = k)",
                "SELECT a FROM t JOIN u ON t.k = u.k WHERE EXISTS (SELECT 1 FROM v AS w (i, c) WHERE i = t.k)",
            ),
            // A subquery's own column.
            (
                "SELECT a FROM t NATURAL JOIN u WHERE EXISTS (SELECT 1 FROM v WHERE k = 1)",
                "SELECT a FROM t JOIN u ON t.k = u.k WHERE EXISTS (SELECT 1 FROM v WHERE k = 1)",
            ),
            (
                "MERGE INTO v USING (t JOIN u USING (k)) ON v.k = t.k WHEN MATCHED THEN UPDATE SET c = k",
                "MERGE INTO v USING (t JOIN u ON t.k = u.k) ON v.k = t.k WHEN MATCHED THEN UPDATE SET c = t.k",
            ),
        ] {
            assert_eq!(rewritten(sql).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn names_that_mean_nothing_are_refused() {
        for (sql, expected) in [
            ("SELECT * FROM t JOIN u USING (a)", SqlState::UNDEFINED_COLUMN),
            ("SELECT * FROM t JOIN u ON t.k = u.k JOIN v USING (k)", SqlState::AMBIGUOUS_COLUMN),
            ("SELECT * FROM t JOIN u USING (k, k)", SqlState::DUPLICATE_COLUMN),
            ("SELECT k FROM t JOIN u USING (k), v", SqlState::AMBIGUOUS_COLUMN),
            ("SELECT * FROM t NATURAL JOIN nosuch", SqlState::UNDEFINED_TABLE),
        ] {
            let error = rewritten(sql).await.unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), expected, "{sql}: {error}");
        }
    }
}
