//! Columns of views and their names.
//!
//! As in PostgreSQL, `*` and NATURAL in a view's query mean the columns that existed when the view was
//! created. The query is stored as written; the catalog also stores how many columns each of its tables had
//! ([`View::columns_below`](harrier_catalog::state::View)), and later columns are hidden from the query. A
//! renamed column is found under its new name.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, TableReference};
use datafusion::datasource::{ViewTable, provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use harrier_catalog::state::{ColumnId, ObjectId};

use crate::warehouse::table::WarehouseTable;

/// For each warehouse table in the query of a new view, the id that its next column will get.
pub(crate) fn columns_below(query: &LogicalPlan) -> Result<BTreeMap<ObjectId, ColumnId>> {
    let mut below = BTreeMap::new();
    query.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(table) = provider.downcast_ref::<WarehouseTable>()
        {
            let next = below.entry(table.table().id).or_default();
            *next = table.table().next_column.max(*next);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(below)
}

/// Hides the columns with ids of at least `below`.
pub(super) fn hide_later_columns(table: WarehouseTable, below: ColumnId) -> Result<ViewTable> {
    let relation = TableReference::bare(table.table().name.clone());
    let columns = table.table().columns.iter().filter(|column| column.id < below);
    let columns: Vec<Expr> =
        columns.map(|column| Expr::Column(Column::new(Some(relation.clone()), &column.name))).collect();
    let source = provider_as_source(Arc::new(table));
    let plan = LogicalPlanBuilder::scan(relation, source, None)?.project(columns)?.build()?;
    Ok(ViewTable::new(plan, None))
}

/// Renames the first columns of a view's query by an alias list, as DuckDB writes it.
pub(super) fn with_aliases(query: LogicalPlan, aliases: &str) -> Result<LogicalPlan> {
    let aliases = parse_aliases(aliases);
    if aliases.is_empty() {
        return Ok(query);
    }
    let mut aliases = aliases.into_iter();
    let columns: Vec<Expr> = query
        .schema()
        .columns()
        .into_iter()
        .map(|column| match aliases.next() {
            Some(alias) => Expr::Column(column).alias(alias),
            None => Expr::Column(column),
        })
        .collect();
    LogicalPlanBuilder::from(query).project(columns)?.build()
}

/// Parses a list of names such as `"a","b""c"`.
fn parse_aliases(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = list.trim();
    while let Some(inner) = rest.strip_prefix('"') {
        let mut name = String::new();
        let mut chars = inner.char_indices().peekable();
        let mut end = inner.len();
        while let Some((at, char)) = chars.next() {
            match char {
                '"' if chars.next_if(|(_, next)| *next == '"').is_some() => name.push('"'),
                '"' => {
                    end = at + 1;
                    break;
                }
                char => name.push(char),
            }
        }
        names.push(name);
        rest = inner[end..].trim_start().trim_start_matches(',').trim_start();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_names_are_read() {
        assert_eq!(parse_aliases(""), Vec::<String>::new());
        assert_eq!(parse_aliases("\"x\",\"y\""), ["x", "y"]);
        assert_eq!(parse_aliases(r#" "a""b" , ",", "" "#), ["a\"b", ",", ""]);
        assert_eq!(parse_aliases("\"open"), ["open"]);
    }
}
