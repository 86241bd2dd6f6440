//! Names for the first columns of a common table expression: `WITH x (a) AS (SELECT k, v FROM t)`, as those
//! of a relation that it reads.

use datafusion::sql::sqlparser::ast::{Query, TableAlias};

use crate::ast_builder::{derived_table, query_of, select_star};
use crate::column_names::column_count;

/// Has common table expressions of which not all columns are named read a relation of which the same is so.
pub(super) fn in_with(query: &mut Query) {
    let Some(with) = query.with.as_mut().filter(|with| !with.recursive) else { return };
    for table in &mut with.cte_tables {
        let given = table.alias.columns.len();
        if given == 0 || column_count(&table.query.body).is_some_and(|count| count <= given) {
            continue;
        }
        let columns = std::mem::take(&mut table.alias.columns);
        let alias = TableAlias { columns, ..table.alias.clone() };
        let query = std::mem::replace(&mut table.query, Box::new(query_of(vec![], vec![])));
        table.query = Box::new(select_star(vec![derived_table(*query, alias)]));
    }
}
