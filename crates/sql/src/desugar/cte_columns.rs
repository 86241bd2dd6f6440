//! Names for the first columns of a common table expression: `WITH x (a) AS (SELECT k, v FROM t)`, as those
//! of a relation that it reads.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{Query, SetExpr, TableAlias, TableFactor};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::column_names::column_count;

/// Has common table expressions of which not all columns are named read a relation of which the same is so.
///
/// Errors: none that the parser does not have.
pub fn in_with(query: &mut Query) -> Result<()> {
    let Some(with) = query.with.as_mut().filter(|with| !with.recursive) else { return Ok(()) };
    for table in &mut with.cte_tables {
        let given = table.alias.columns.len();
        if given == 0 || column_count(&table.query.body).is_some_and(|count| count <= given) {
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
