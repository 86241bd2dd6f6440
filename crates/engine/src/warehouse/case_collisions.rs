//! Columns whose names differ in case only. Here they are two columns; DuckDB takes them for one and cannot
//! open any table of the warehouse.

use std::collections::HashMap;

use harrier_catalog::state::Table;

/// A notice for a table that gets such column names; `None` if it had them before.
pub(crate) fn notice(before: Option<&Table>, after: &Table) -> Option<String> {
    let (one, other) = alike(after)?;
    if before.and_then(alike).is_some() {
        return None;
    }
    Some(format!(
        "columns \"{one}\" and \"{other}\" of table \"{}\" differ in case only: DuckDB cannot open the warehouse as long as there is such a table",
        after.name
    ))
}

fn alike(table: &Table) -> Option<(&str, &str)> {
    let mut seen = HashMap::new();
    table.columns.iter().find_map(|column| {
        let before = seen.insert(column.name.to_lowercase(), column.name.as_str());
        before.map(|before| (before, column.name.as_str()))
    })
}
