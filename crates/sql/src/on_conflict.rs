//! The assignments of `INSERT … ON CONFLICT DO UPDATE`.

use datafusion::sql::sqlparser::ast::{Assignment, Insert, OnConflict, OnConflictAction, OnInsert};

/// The assignments; none if there is no DO UPDATE.
pub fn assignments(insert: &Insert) -> &[Assignment] {
    match &insert.on {
        Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoUpdate(update), .. })) => {
            &update.assignments
        }
        _ => &[],
    }
}

/// The assignments; `None` if there is no DO UPDATE.
pub fn assignments_mut(insert: &mut Insert) -> Option<&mut Vec<Assignment>> {
    match &mut insert.on {
        Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoUpdate(update), .. })) => {
            Some(&mut update.assignments)
        }
        _ => None,
    }
}
