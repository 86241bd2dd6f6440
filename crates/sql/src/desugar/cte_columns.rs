//! Common table expressions with fewer column names than columns: `WITH x (a) AS (SELECT k, v FROM t)`. The
//! names move to the alias of a derived table.

use datafusion::sql::sqlparser::ast::{Query, TableAlias};

use crate::ast_builder::{derived_table, query_of, select_star};
use crate::column_names::column_count;

/// Wraps the queries of such common table expressions in a derived table with the column names.
pub(super) fn rewrite(query: &mut Query) {
    let Some(with) = query.with.as_mut().filter(|with| !with.recursive) else { return };
    for table in &mut with.cte_tables {
        let given = table.alias.columns.len();
        if given == 0 || column_count(&table.query.body).is_some_and(|count| count <= given) {
            continue;
        }
        let columns = std::mem::take(&mut table.alias.columns);
        let alias = TableAlias { columns, ..table.alias.clone() };
        let query = std::mem::replace(&mut table.query, Box::new(query_of(vec![], vec![])));
        *table.query = select_star(vec![derived_table(*query, alias)]);
    }
}
