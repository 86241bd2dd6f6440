//! Names for the first columns of a relation: `FROM t AS x (a)`, where t has more than one. The planner wants
//! one for each.
//!
//! ```text
//! FROM t AS x (a), t has k, v         ─►  FROM t AS x (a, "v")
//! FROM (SELECT k, v FROM t) AS x (a)  ─►  FROM (SELECT k, v FROM t) AS x (a, "v")
//! FROM t AS x (a, b), t has k, v      ─►  the same
//! ```
//!
//! `ColumnAliasPlanner` can go when the planner takes fewer names than columns.

use std::collections::HashSet;

use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::sql::sqlparser::ast::{
    Ident, Query, SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use harrier_pgcatalog::twin;

/// Plans a relation of which not all columns are named, with their own names for the others.
#[derive(Debug)]
pub struct ColumnAliasPlanner;

impl RelationPlanner for ColumnAliasPlanner {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let Some(columns) = named(&mut relation) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let given = std::mem::take(columns);
        let unnamed = relation.clone();
        if let Some(columns) = alias_of(&mut relation).map(|alias| &mut alias.columns) {
            columns.clone_from(&given);
        }
        let plan = context.plan(unnamed)?;
        let fields = plan.schema().fields();
        if fields.len() <= given.len() {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let mut seen: HashSet<String> =
            given.iter().map(|column| context.normalize_ident(column.name.clone())).collect();
        let others = fields.iter().enumerate().skip(given.len()).map(|(at, field)| {
            let name = match seen.insert(field.name().clone()) {
                true => field.name().clone(),
                false => twin(field.name(), at),
            };
            TableAliasColumnDef { name: Ident::with_quote('"', name), data_type: None }
        });
        let others: Vec<TableAliasColumnDef> = others.collect();
        let alias = alias_of(&mut relation)
            .map(|alias| TableAlias { columns: given.into_iter().chain(others).collect(), ..alias.clone() });
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

/// Has common table expressions of which not all columns are named read a relation of which the same is so.
///
/// Errors: none that the parser does not have.
pub fn in_with(query: &mut Query) -> Result<()> {
    let Some(with) = query.with.as_mut().filter(|with| !with.recursive) else { return Ok(()) };
    for table in &mut with.cte_tables {
        let given = table.alias.columns.len();
        if given == 0 || count(&table.query.body).is_some_and(|count| count <= given) {
            continue;
        }
        let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql("SELECT * FROM (SELECT 1) AS q")?;
        let mut all = parser.parse_query()?;
        if let SetExpr::Select(select) = all.body.as_mut()
            && let Some(TableFactor::Derived { subquery, alias, .. }) =
                select.from.first_mut().map(|item| &mut item.relation)
        {
            std::mem::swap(subquery, &mut table.query);
            let columns = std::mem::take(&mut table.alias.columns);
            *alias = Some(TableAlias { columns, ..table.alias.clone() });
        }
        table.query = all;
    }
    Ok(())
}

/// The names of a relation's columns, where there may be fewer than columns.
fn named(relation: &mut TableFactor) -> Option<&mut Vec<TableAliasColumnDef>> {
    let count = match relation {
        TableFactor::Table { args: None, .. } => None,
        TableFactor::Derived { subquery, .. } => count(&subquery.body),
        _ => return None,
    };
    let columns = &mut alias_of(relation)?.columns;
    let may_be_fewer = !columns.is_empty() && count.is_none_or(|count| count > columns.len());
    may_be_fewer.then_some(columns)
}

fn alias_of(relation: &mut TableFactor) -> Option<&mut TableAlias> {
    match relation {
        TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } => alias.as_mut(),
        _ => None,
    }
}

/// The number of columns of a query, if it has no star.
pub fn count(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::SetOperation { left, .. } => count(left),
        SetExpr::Query(query) => count(&query.body),
        SetExpr::Select(select) => {
            let is_one = |item: &SelectItem| {
                matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
            };
            select.projection.iter().all(is_one).then_some(select.projection.len())
        }
        SetExpr::Values(values) => values.rows.first().map(|row| row.content.len()),
        _ => None,
    }
}
