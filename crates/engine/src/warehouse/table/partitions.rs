//! Range and list partitioning: the table partition of a row and of a file.
//!
//! DuckLake has no such partitioning, so it is stored as a table option, which other programs ignore. Each
//! file Harrier writes belongs to one table partition, whose id begins the file's name; files of other
//! programs may hold rows of several partitions, or of none.

use datafusion::error::Result;
use datafusion::logical_expr::{Expr, cast};
use harrier_catalog::state::{Column, Location, TABLE_PARTITIONS_OPTION, Table};
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::{TablePartitions, table_partition};
use harrier_sqlstate::IntoDataFusionError;

use crate::types::columns::type_of;

/// The range or list partitioning of `table`, if it has one.
pub(crate) fn partitions_of(table: &Table) -> Result<Option<TablePartitions>> {
    table.options.get(TABLE_PARTITIONS_OPTION).map(|text| TablePartitions::parse(text)).transpose()
}

pub(crate) fn has_table_partitions(table: &Table) -> bool {
    table.options.contains_key(TABLE_PARTITIONS_OPTION)
}

/// The table partition that a file in the table's folder was written for; `None` for other files.
pub(crate) fn of_file(file: &Location) -> Option<i64> {
    number_in_name(file, 'p')
}

/// For a file that OPTIMIZE wrote with rows of no table partition: the value of [`TablePartitions::next`]
/// then. As long as that is unchanged, no partition for these rows can exist.
pub(crate) fn unplaced_before(file: &Location) -> Option<i64> {
    number_in_name(file, 'n')
}

/// Parses the number in a name as Harrier writes it: `p7-<id of the statement>-0-0-0.parquet`. Files in other
/// folders have other programs' names.
fn number_in_name(file: &Location, kind: char) -> Option<i64> {
    let name = file.path.rsplit('/').next().filter(|_| file.relative)?;
    let mut parts = name.strip_suffix(".parquet")?.strip_prefix(kind)?.split('-');
    let number = parts.next()?.parse().ok()?;
    let statement = parts.next()?;
    let is_ours = statement.len() == 32 && statement.bytes().all(|byte| byte.is_ascii_hexdigit());
    let counts: Vec<&str> = parts.collect();
    let is_ours = is_ours && counts.len() == 3 && counts.iter().all(|count| count.parse::<u32>().is_ok());
    is_ours.then_some(number)
}

/// The partitioning column of `table`, with its position.
///
/// Errors: no such column (XX001).
pub(crate) fn column_of<'t>(table: &'t Table, partitions: &TablePartitions) -> Result<(usize, &'t Column)> {
    let at = table.columns.iter().position(|column| column.id == partitions.column);
    at.map(|at| (at, &table.columns[at])).ok_or_else(|| {
        let message = format!("table \"{}\" is divided by a column that it does not have", table.name);
        SqlError::new(SqlState::DATA_CORRUPTED, message).into_datafusion()
    })
}

/// The result for a row that belongs to no table partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPartition {
    Null,
    /// An error (23514), which shows the row's value if the user may read it.
    Error {
        shows_value: bool,
    },
}

/// The table partition's id for rows with `value` in the partitioning column; NULL for rows that are not
/// written.
pub(crate) fn of_rows(
    table: &Table,
    partitions: &TablePartitions,
    value: Expr,
    is_written: Expr,
    unplaced: NoPartition,
) -> Result<Expr> {
    let (_, column) = column_of(table, partitions)?;
    let value = cast(value, type_of(column, false)?);
    let (table, column) = match unplaced {
        NoPartition::Null => (None, ""),
        NoPartition::Error { shows_value } => {
            (Some(table.name.as_str()), if shows_value { column.name.as_str() } else { "" })
        }
    };
    table_partition(is_written, value, partitions, column, table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_the_table_partition() {
        const ID: &str = "00112233445566778899aabbccddeeff";
        let file = |path: String, relative| Location { path, relative };
        assert_eq!(of_file(&file(format!("p7-{ID}-0-0-0.parquet"), true)), Some(7));
        assert_eq!(of_file(&file(format!("bucket=3/p12-{ID}-0-10-2.parquet"), true)), Some(12));
        assert_eq!(unplaced_before(&file(format!("n12-{ID}-0-0-0.parquet"), true)), Some(12));
        assert_eq!(of_file(&file(format!("/elsewhere/p7-{ID}-0-0-0.parquet"), false)), None);
        for other in [
            format!("{ID}-0-0-0.parquet"),
            format!("n7-{ID}-0-0-0.parquet"),
            format!("p7-x/{ID}-0-0-0.parquet"),
            "p1-2024.parquet".to_string(),
            "p7-0a1b-0-0-0.parquet".to_string(),
            "bucket=3/ducklake-0a1b.parquet".to_string(),
            "p.parquet".to_string(),
        ] {
            assert_eq!(of_file(&file(other.clone(), true)), None, "{other}");
        }
    }
}
