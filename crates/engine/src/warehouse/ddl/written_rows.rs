//! Rows that a transaction has written to a table whose columns it alters.

use std::collections::BTreeSet;

use harrier_catalog::files::{Cell, TableChanges};
use harrier_catalog::state::{Column, ColumnId};

/// Has what was written with the columns `before` be rows of a table with the columns `after`. Files stay as they are: what reads them
/// takes the names that columns had when the file was committed for those in it, and finds NULL where there is none.
///
/// False, and nothing done: the rows would be others, because a column has got another type, or one has come whose value in older rows
/// is not NULL; or there are files, and a column has another name, or has gone (another one could come by its name).
pub(super) fn follow(changes: &mut TableChanges, before: &[Column], after: &[Column]) -> bool {
    if changes.added.is_empty() && changes.inlined.is_empty() {
        return true;
    }
    let places: Vec<Option<usize>> =
        after.iter().map(|column| before.iter().position(|old| old.id == column.id)).collect();
    let is_in_files = !changes.added.is_empty();
    let fits = |(column, place): (&Column, &Option<usize>)| match place {
        Some(place) => {
            let old = &before[*place];
            is_of_one_type(old, column) && (old.name == column.name || !is_in_files)
        }
        None => column.initial_default.is_none(),
    };
    let stays = |old: &Column| after.iter().any(|column| column.id == old.id);
    if !after.iter().zip(&places).all(fits) || is_in_files && !before.iter().all(stays) {
        return false;
    }
    for row in &mut changes.inlined {
        let cell = |place: &Option<usize>| place.map_or(Cell::Null, |place| row[place].clone());
        *row = places.iter().map(cell).collect();
    }
    let mut ids = BTreeSet::new();
    after.iter().for_each(|column| add_ids(column, &mut ids));
    changes.inlined_stats.retain(|id, _| ids.contains(id));
    true
}

fn is_of_one_type(one: &Column, other: &Column) -> bool {
    let are_alike = one
        .children
        .iter()
        .zip(&other.children)
        .all(|(one, other)| one.id == other.id && one.name == other.name && is_of_one_type(one, other));
    one.kind == other.kind && one.children.len() == other.children.len() && are_alike
}

fn add_ids(column: &Column, ids: &mut BTreeSet<ColumnId>) {
    ids.insert(column.id);
    column.children.iter().for_each(|child| add_ids(child, ids));
}
