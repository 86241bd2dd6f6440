//! Columns of `JOIN … USING` and `NATURAL JOIN`, and names in ORDER BY, as in PostgreSQL: a joined column is
//! one column, stands first in `SELECT *` and has the value of the side that has the row. The planner keeps
//! two columns and takes the left one, or the one whose table's name sorts first.
//!
//! Only the planner knows the columns of relations: names may mean tables, common table expressions or outer
//! queries. So each FROM with such a join is marked and the statement planned: when the planner comes upon a
//! mark it calls [`Probe`], which lets it plan the relations, records their columns and aborts. With these
//! columns the SELECT is rewritten:
//!
//! ```text
//! SELECT *, k + 1 FROM t FULL JOIN u USING (k) WHERE k > 0
//! SELECT coalesce(t.k, u.k) AS k, t.a, u.b, coalesce(t.k, u.k) + 1
//! FROM t FULL JOIN u ON t.k = u.k WHERE coalesce(t.k, u.k) > 0
//! ```
//!
//! The same happens where ORDER BY has expressions with names that are also names of result columns
//! (`order_by`).
//!
//! Planning repeats until no mark is left; tables are looked up once. Names in subqueries may mean joined
//! columns of the outer query: their FROM is marked then, for it may have a column of that name.

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
use crate::planning::using_columns::from_clause::{Walk, has_using, has_using_in, relations};
use crate::planning::using_columns::marks::{
    Marks, cross_join, is_mark, mark_of, marked_from, nested_join, unmark,
};
use crate::planning::using_columns::resolution::{meanings, substitute};

/// Plans a statement. All statements of users are planned here.
///
/// Errors: those of planning; a column of USING does not exist (42703) or is ambiguous (42701, 42702).
pub(crate) async fn plan(state: &SessionState, mut statement: Statement) -> Result<LogicalPlan> {
    nested_case::add_branches(&mut statement);
    let mut marks = Marks::default();
    if let ControlFlow::Break(error) = walk(&mut statement, &mut Marker::new(&mut marks)) {
        return Err(error);
    }
    let plan = match marks.count {
        0 => state.statement_to_plan(statement).await?,
        _ => resolve(state, &mut statement, marks).await?,
    };
    check_duplicate_names(&plan)?;
    Ok(plan)
}

/// Errors: two columns of a new table or view have the same name (42701).
fn check_duplicate_names(plan: &LogicalPlan) -> Result<()> {
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

/// Plans a statement with marks, and removes them from it.
async fn resolve(state: &SessionState, statement: &mut Statement, mut marks: Marks) -> Result<LogicalPlan> {
    let mut state = with_named_tables(state, statement).await?;
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

/// A session that contains only the tables that a statement names.
async fn with_named_tables(state: &SessionState, statement: &Statement) -> Result<SessionState> {
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
    // The tables of `information_schema` are registered above like the others.
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

/// Columns found for a marked FROM.
#[derive(Debug)]
struct MarkedColumns {
    mark: usize,
    /// The columns of each relation, in order, up to the first that cannot be planned.
    relations: Vec<Vec<Column>>,
    /// All relations could be planned.
    is_all: bool,
}

enum Expansion {
    /// Nothing more can be done: the planner's error stands.
    Blocked,
    /// The statement has to be planned again.
    Partial,
    /// All columns of the FROM clause, and the meanings of outer names.
    Complete(Vec<Column>, Vec<Meaning>),
}

impl Marks {
    /// Rewrites the marked clause; `false` if that made no progress.
    fn resolve(&mut self, statement: &mut Statement, found: MarkedColumns) -> Result<bool> {
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

    fn select(
        &mut self,
        select: &mut Select,
        order_by: Option<&mut OrderBy>,
        found: &MarkedColumns,
    ) -> Result<bool> {
        match self.expand(&mut select.from, found)? {
            Expansion::Blocked => Ok(false),
            Expansion::Partial => Ok(true),
            Expansion::Complete(columns, outer) => {
                let mut order_by = order_by;
                if let Some(order_by) = order_by.as_deref_mut() {
                    order_by::resolve_in_from(select, order_by, &columns);
                }
                let relations = &found.relations;
                resolution::rewrite(select, order_by.as_deref_mut(), &columns, relations, &outer, self)?;
                whole_rows::rewrite(select, order_by, &columns, relations)?;
                Ok(true)
            }
        }
    }

    fn merge(&mut self, merge: &mut ast::Merge, found: &MarkedColumns) -> Result<bool> {
        let mut from = vec![TableWithJoins { relation: merge.source.clone(), joins: vec![] }];
        let expansion = self.expand(&mut from, found)?;
        if let Some(source) = from.pop() {
            merge.source = source.relation;
        }
        match expansion {
            Expansion::Blocked => Ok(false),
            Expansion::Partial => Ok(true),
            Expansion::Complete(columns, outer) => {
                let meanings = meanings(&columns, &outer);
                substitute(&mut merge.on, &meanings, self);
                substitute(&mut merge.clauses, &meanings, self);
                Ok(true)
            }
        }
    }

    /// Rewrites a marked FROM without USING, NATURAL and its mark, if the columns of all its relations are
    /// known.
    fn expand(&mut self, from: &mut Vec<TableWithJoins>, found: &MarkedColumns) -> Result<Expansion> {
        if !found.is_all && !self.replaced.insert((found.mark, found.relations.len())) {
            return Ok(Expansion::Blocked);
        }
        let outer = self.outer.get(&found.mark).cloned().unwrap_or_default();
        let item = from.first_mut();
        let item = item.ok_or_else(|| DataFusionError::Internal("nothing is marked".to_string()))?;
        let mut walk =
            Walk { relations: found.relations.iter(), is_all: found.is_all, outer: &outer, marks: self };
        let Some(columns) = walk.item(item, &[])? else { return Ok(Expansion::Partial) };
        unmark(from);
        Ok(Expansion::Complete(columns, outer))
    }
}

/// Marks FROM clauses with joins by column names, and those where the query mentions a duplicate column name.
struct Marker<'m> {
    marks: &'m mut Marks,
    common: duplicate_columns::CteNames,
}

impl<'m> Marker<'m> {
    fn new(marks: &'m mut Marks) -> Self {
        Self { marks, common: duplicate_columns::CteNames::new() }
    }

    /// Marks the SELECTs of a query that mention a duplicate column name.
    fn mark_ambiguous(&mut self, query: &mut Query) {
        let mut found = vec![];
        for_each_select(&query.body, &mut |select| {
            found.push(
                mark_of(select).is_none()
                    && duplicate_columns::of_from(&select.from, &self.common).are_mentioned(query),
            );
        });
        let mut found = found.into_iter();
        for_each_select_mut(&mut query.body, &mut |select| {
            if found.next() == Some(true) {
                self.marks.mark_select(select);
            }
        });
    }
}

/// Visits the SELECTs of a query. A parenthesized one is a query by itself.
fn for_each_select(body: &SetExpr, visit_select: &mut dyn FnMut(&Select)) {
    match body {
        SetExpr::Select(select) => visit_select(select),
        SetExpr::SetOperation { left, right, .. } => {
            for_each_select(left, visit_select);
            for_each_select(right, visit_select);
        }
        _ => {}
    }
}

fn for_each_select_mut(body: &mut SetExpr, change: &mut dyn FnMut(&mut Select)) {
    match body {
        SetExpr::Select(select) => change(select),
        SetExpr::SetOperation { left, right, .. } => {
            for_each_select_mut(left, change);
            for_each_select_mut(right, change);
        }
        _ => {}
    }
}

impl VisitorMut for Marker<'_> {
    type Break = DataFusionError;

    fn pre_visit_statement(&mut self, statement: &mut ast::Statement) -> ControlFlow<DataFusionError> {
        if let ast::Statement::Merge(merge) = statement
            && (has_using_in(&mut merge.source)
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
            && (query.order_by.as_ref().is_some_and(|order_by| order_by::needs_resolution(select, order_by))
                || whole_rows::may_be_mentioned(select, query.order_by.as_ref()))
        {
            self.marks.mark_select(select);
        }
        duplicate_columns::define(query, &mut self.common);
        self.mark_ambiguous(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        let is_marked = select.from.iter_mut().any(has_using)
            || !select.from.is_empty() && resolution::stars_overlap(&select.projection);
        if mark_of(select).is_none() && (is_marked || whole_rows::may_be_mentioned(select, None)) {
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

/// Converts `(t JOIN u USING (k)) AS j` to a subquery: its `t` and `u` are not visible outside.
fn to_subquery(factor: &mut TableFactor) -> Result<()> {
    let TableFactor::NestedJoin { table_with_joins, alias } = factor else { return Ok(()) };
    if alias.as_ref().is_none_or(is_mark) || !has_using(table_with_joins) {
        return Ok(());
    }
    let subquery = Box::new(select_star(vec![TableWithJoins::clone(table_with_joins)]));
    let lateral = relations(table_with_joins).into_iter().any(is_lateral);
    *factor = TableFactor::Derived { lateral, subquery, alias: alias.take(), sample: None };
    Ok(())
}

/// Whether a relation may refer to the columns of those on its left.
fn is_lateral(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Derived { lateral, .. } | TableFactor::Function { lateral, .. } => *lateral,
        TableFactor::UNNEST { .. } => true,
        _ => false,
    }
}

/// Rewrites the clause of one mark.
struct Resolution<'m> {
    marks: &'m mut Marks,
    found: MarkedColumns,
}

impl VisitorMut for Resolution<'_> {
    type Break = Result<bool>;

    fn pre_visit_statement(&mut self, statement: &mut ast::Statement) -> ControlFlow<Result<bool>> {
        match statement {
            ast::Statement::Merge(merge)
                if marked_from(&merge.source).is_some_and(|(mark, _)| mark == self.found.mark) =>
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
        // ORDER BY of a set operation has only names of result columns.
        let order_by = query.order_by.as_mut().filter(|_| is_plain);
        let resolved = self.marks.select(select, order_by, &self.found);
        ControlFlow::Break(resolved.and_then(|resolved| order_by::remove_keys(query).map(|()| resolved)))
    }
}

fn select_of(body: &mut SetExpr, mark: usize) -> Option<&mut Select> {
    match body {
        SetExpr::SetOperation { left, right, .. } => select_of(left, mark).or_else(|| select_of(right, mark)),
        SetExpr::Select(select) if mark_of(select) == Some(mark) => Some(select.as_mut()),
        _ => None,
    }
}

/// Relation planner that records the columns of marked relations and aborts planning.
#[derive(Debug, Default)]
struct Probe {
    found: Mutex<Vec<MarkedColumns>>,
}

impl RelationPlanner for Probe {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let Some((mark, table)) = marked_from(&relation) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let joined = relations(table);
        let mut found = MarkedColumns { mark, relations: Vec::with_capacity(joined.len()), is_all: false };
        for at in 0..joined.len() {
            let others = self.found.lock().len();
            let known: usize = found.relations.iter().map(Vec::len).sum();
            match columns_of_last(&joined[..=at], known, context) {
                Ok(columns) => found.relations.push(columns),
                Err(error) => {
                    // Marks nested in the relation are resolved first.
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

/// The columns of the last relation; those before it have `known` columns.
fn columns_of_last(
    joined: &[&TableFactor],
    known: usize,
    context: &mut dyn RelationPlannerContext,
) -> Result<Vec<Column>> {
    let (Some(first), Some(last)) = (joined.first(), joined.last()) else { return Ok(vec![]) };
    let (plan, known) = match is_lateral(last) {
        false => (context.plan(TableFactor::clone(last))?, 0),
        true => {
            let joins = joined[1..].iter().map(|relation| cross_join(TableFactor::clone(relation)));
            let table = TableWithJoins { relation: TableFactor::clone(first), joins: joins.collect() };
            (context.plan(nested_join(table, None))?, known)
        }
    };
    let mut columns: Vec<Column> =
        plan.schema().iter().skip(known).map(|(table, field)| Column::of(table, field)).collect();
    restore_names(&mut columns);
    Ok(columns)
}

/// Restores the names of columns that the planner numbered: it calls the second `a` `a:1`.
fn restore_names(columns: &mut [Column]) {
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

    /// Without quotes around names.
    async fn rewritten(sql: &str) -> Result<String> {
        let context = SessionContext::new();
        for table in ["t (k INT, a INT)", "u (k INT, b INT)", "v (k INT, c INT)"] {
            context.sql(&format!("CREATE TABLE {table}")).await?;
        }
        let state = context.state();
        let mut statement = state.sql_to_statement(sql, &Dialect::PostgreSQL)?;
        let mut marks = Marks::default();
        if let ControlFlow::Break(error) = walk(&mut statement, &mut Marker::new(&mut marks)) {
            return Err(error);
        }
        resolve(&state, &mut statement, marks).await?;
        Ok(statement.to_string().replace('"', ""))
    }

    #[tokio::test]
    async fn names_resolve_to_their_columns() {
        for (sql, expected) in [
            ("SELECT * FROM t JOIN u USING (k)", "SELECT t.k, t.a, u.b FROM t JOIN u ON t.k = u.k"),
            (
                "WITH q AS (SELECT 1) SELECT -a AS a, k FROM t ORDER BY a + 0 DESC, a, k LIMIT 2",
                "WITH q AS (SELECT 1) SELECT * EXCLUDE (\u{1}key 1) FROM (SELECT -a AS a, k, t.a + 0 AS \u{1}key 1 \
                 FROM t) AS ordered ORDER BY \u{1}key 1 DESC, a, k LIMIT 2",
            ),
            // FROM has no such column.
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
            // The subquery's own column.
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
    async fn unresolvable_names_are_refused() {
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
