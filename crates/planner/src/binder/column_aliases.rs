//! Planner of partial column alias lists: `FROM t AS x (a)`, where t has more columns. DataFusion requires
//! one alias for each column.
//!
//! ```text
//! FROM t AS x (a), t has k, v         ─►  FROM t AS x (a, "v")
//! FROM (SELECT k, v FROM t) AS x (a)  ─►  FROM (SELECT k, v FROM t) AS x (a, "v")
//! FROM t AS x (a, b), t has k, v      ─►  the same
//! ```
//!
//! `ColumnAliasPlanner` can go when DataFusion accepts fewer aliases than columns.

use std::collections::HashSet;

use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::sql::sqlparser::ast::{Ident, TableAlias, TableAliasColumnDef, TableFactor};
use harrier_sql::column_names::{column_count, duplicate_alias};

/// Plans a relation with a partial alias list; the remaining columns keep their names.
#[derive(Debug)]
pub struct ColumnAliasPlanner;

impl RelationPlanner for ColumnAliasPlanner {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let Some(columns) = partial_aliases(&mut relation) else {
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
                false => duplicate_alias(field.name(), at),
            };
            TableAliasColumnDef { name: Ident::with_quote('"', name), data_type: None }
        });
        let others: Vec<TableAliasColumnDef> = others.collect();
        let alias = alias_of(&mut relation)
            .map(|alias| TableAlias { columns: given.into_iter().chain(others).collect(), ..alias.clone() });
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

/// The column aliases of a relation that may have more columns than aliases.
fn partial_aliases(relation: &mut TableFactor) -> Option<&mut Vec<TableAliasColumnDef>> {
    let count = match relation {
        TableFactor::Table { args: None, .. } => None,
        TableFactor::Derived { subquery, .. } => column_count(&subquery.body),
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
