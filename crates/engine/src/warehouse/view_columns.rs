//! Which columns a view has, and what they are called.
//!
//! As in PostgreSQL, `*` and NATURAL in the query of a view mean the columns that were there when it was
//! made. The query is kept as it was written; the catalog knows with it how many columns each of its tables
//! had ([`View::columns_below`](harrier_catalog::state::View)), and later ones are left out of what the query
//! sees. A renamed column is found under its new name.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, TableReference};
use datafusion::datasource::{ViewTable, provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use harrier_catalog::state::{ColumnId, ObjectId};

use crate::warehouse::table::WarehouseTable;

/// Of each table of the warehouse that the query of a new view reads, the number that its next column will
/// get.
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

/// A table without the columns whose numbers are not below `below`.
pub(super) fn without_later(table: WarehouseTable, below: ColumnId) -> Result<ViewTable> {
    let relation = TableReference::bare(table.table().name.clone());
    let columns = table.table().columns.iter().filter(|column| column.id < below);
    let columns: Vec<Expr> =
        columns.map(|column| Expr::Column(Column::new(Some(relation.clone()), &column.name))).collect();
    let source = provider_as_source(Arc::new(table));
    let plan = LogicalPlanBuilder::scan(relation, source, None)?.project(columns)?.build()?;
    Ok(ViewTable::new(plan, None))
}

/// The query of a view whose first columns have names of their own, as DuckDB writes them down.
pub(super) fn with_aliases(query: LogicalPlan, aliases: &str) -> Result<LogicalPlan> {
    let aliases = quoted(aliases);
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

/// The names in a list such as `"a","b""c"`.
fn quoted(list: &str) -> Vec<String> {
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
        assert_eq!(quoted(""), Vec::<String>::new());
        assert_eq!(quoted("\"x\",\"y\""), ["x", "y"]);
        assert_eq!(quoted(r#" "a""b" , ",", "" "#), ["a\"b", ",", ""]);
        assert_eq!(quoted("\"open"), ["open"]);
    }
}
