//! Columns whose names differ in case only: here they are two, to DuckDB one, which then opens no table of
//! the warehouse at all.

use std::collections::HashMap;

use harrier_catalog::state::Table;

/// What to tell whoever gives a table such names; nothing if it had them before.
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
