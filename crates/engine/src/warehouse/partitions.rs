//! Tables that are divided by ranges or lists of values: which table partition a row and a file are in.
//!
//! DuckLake has no words for such a division, so it is an option of the table, which other programs leave alone. What we write is in
//! files of one table partition each, whose names begin with its id; files from elsewhere may have rows of several, or of none.

use datafusion::error::Result;
use datafusion::logical_expr::{Expr, cast};
use harrier_catalog::state::{Column, TABLE_PARTITIONS_OPTION, Table};
use harrier_exec::sqlstate::{CodedError, SqlState};
use harrier_exec::table_files::{TablePartitions, table_partition};

use super::types::type_of;

/// How `table` is divided, if it is so.
pub(crate) fn partitions_of(table: &Table) -> Result<Option<TablePartitions>> {
    table.options.get(TABLE_PARTITIONS_OPTION).map(|text| TablePartitions::parse(text)).transpose()
}

pub(crate) fn is_divided(table: &Table) -> bool {
    table.options.contains_key(TABLE_PARTITIONS_OPTION)
}

/// The table partition that a file was written for, by its path; `None` for others.
pub(crate) fn of_path(path: &str) -> Option<i64> {
    let name = path.rsplit('/').next()?;
    name.strip_prefix('p')?.split_once('-')?.0.parse().ok()
}

/// The column that `table` is divided by, with its place.
///
/// Errors: there is none (XX001).
pub(crate) fn column_of<'t>(table: &'t Table, partitions: &TablePartitions) -> Result<(usize, &'t Column)> {
    let at = table.columns.iter().position(|column| column.id == partitions.column);
    at.map(|at| (at, &table.columns[at])).ok_or_else(|| {
        let message = format!("table \"{}\" is divided by a column that it does not have", table.name);
        CodedError::new(SqlState::DATA_CORRUPTED, message).into()
    })
}

/// The id of the table partition of rows that have `value` in the column that `table` is divided by; NULL for rows that are not
/// written. If it `must_be`, a row without one is an error (23514), else it is NULL, too.
pub(crate) fn of_rows(
    table: &Table,
    partitions: &TablePartitions,
    value: Expr,
    is_written: Expr,
    must_be: bool,
) -> Result<Expr> {
    let (_, column) = column_of(table, partitions)?;
    let value = cast(value, type_of(column, false)?);
    let table = must_be.then_some(table.name.as_str());
    table_partition(is_written, value, partitions, &column.name, table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_table_partition() {
        assert_eq!(of_path("p7-0a1b-0-0-0.parquet"), Some(7));
        assert_eq!(of_path("bucket=3/p12-0a1b-0-0-0.parquet"), Some(12));
        for other in
            ["0a1b-0-0-0.parquet", "p7-x/0a1b-0-0-0.parquet", "bucket=3/ducklake-0a1b.parquet", "p.parquet"]
        {
            assert_eq!(of_path(other), None, "{other}");
        }
    }
}
