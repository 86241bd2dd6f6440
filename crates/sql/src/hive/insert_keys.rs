//! `INSERT INTO t PARTITION (d = 'x', n)`: the keys are the last columns of a table, so their values go to
//! the end of each row, static ones before those that the query has.
//!
//! ```text
//! INSERT INTO t PARTITION (d = 'x', n) SELECT a, b, c FROM s  ──►  INSERT INTO t SELECT a, b, 'x', c FROM s
//! ```
//!
//! INSERT OVERWRITE keeps its clause: it names what is replaced, also if the query has no row.
//!
//! Source: Hive Language Manual, "DML", "Dynamic Partition Inserts".

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr};

use super::refuse;
use crate::parser::insert_partition::InsertPartition;

/// Puts the values of keys into the rows; what is left of the clause.
///
/// Errors: the keys or the query have a form that is not supported (0A000).
pub fn into_rows(
    statement: &mut Statement,
    partition: Option<InsertPartition>,
) -> Result<Option<InsertPartition>> {
    let Some(partition) = partition else { return Ok(None) };
    let Statement::Statement(statement) = statement else { return Ok(Some(partition)) };
    let ast::Statement::Insert(insert) = statement.as_mut() else { return Ok(Some(partition)) };
    if insert.overwrite {
        return Ok(Some(partition));
    }
    if !insert.columns.is_empty() {
        return Err(refuse("PARTITION beside a list of columns is not supported"));
    }
    let mut values = Vec::new();
    let mut dynamic = 0;
    for (key, value) in partition.keys {
        match value {
            Some(_) if dynamic > 0 => {
                return Err(refuse(format!("dynamic partition cannot be the parent of a static one: {key}")));
            }
            Some(value) => values.push(value),
            None => dynamic += 1,
        }
    }
    let Some(query) = &mut insert.source else { return Err(refuse("an INSERT without rows")) };
    match values.is_empty() {
        true => Ok(None),
        false => add(&mut query.body, &values, dynamic).map(|()| None),
    }
}

/// Adds values before the last `dynamic` columns.
fn add(body: &mut SetExpr, values: &[Expr], dynamic: usize) -> Result<()> {
    let place = |columns: usize| {
        let place = columns.checked_sub(dynamic);
        place.ok_or_else(|| refuse("a query with fewer columns than dynamic partition keys"))
    };
    match body {
        SetExpr::Select(select) => {
            let has_star = select
                .projection
                .iter()
                .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
            if has_star && dynamic > 0 {
                return Err(refuse("* beside static and dynamic partition keys is not supported"));
            }
            let at = place(select.projection.len())?;
            let items = values.iter().cloned().map(SelectItem::UnnamedExpr);
            select.projection.splice(at..at, items);
            Ok(())
        }
        SetExpr::Values(rows) => {
            for row in &mut rows.rows {
                let at = place(row.content.len())?;
                row.content.splice(at..at, values.iter().cloned());
            }
            Ok(())
        }
        SetExpr::SetOperation { left, right, .. } => {
            add(left, values, dynamic)?;
            add(right, values, dynamic)
        }
        SetExpr::Query(query) => add(&mut query.body, values, dynamic),
        _ => Err(refuse("such a query beside static partition keys is not supported")),
    }
}
