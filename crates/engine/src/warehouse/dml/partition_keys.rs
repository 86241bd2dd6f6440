//! Partition keys of written rows.

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::functions::datetime::expr_fn::date_part;
use datafusion::logical_expr::{Expr, cast as cast_to, lit};
use harrier_catalog::state::{PartitionKey, Table, Transform};
use harrier_error::{SqlError, SqlState};
use harrier_functions::hash::bucket::bucket;
use harrier_sqlstate::IntoDataFusionError;

pub(crate) fn key_column<'a>(
    table: &'a Table,
    key: &PartitionKey,
) -> Result<(usize, &'a harrier_catalog::state::Column)> {
    let at = table.columns.iter().position(|column| column.id == key.column);
    at.map(|at| (at, &table.columns[at])).ok_or_else(|| {
        SqlError::new(
            SqlState::DATA_CORRUPTED,
            format!("table \"{}\" is partitioned by a column that it does not have", table.name),
        )
        .into_datafusion()
    })
}

/// The value of a partition key: its transform applied to the column.
pub(crate) fn key_value(value: Expr, transform: Transform) -> Expr {
    let part = |name: &str| cast_to(date_part(lit(name), value.clone()), DataType::Int64);
    match transform {
        Transform::Identity => value,
        Transform::Year => part("year"),
        Transform::Month => part("month"),
        Transform::Day => part("day"),
        Transform::Hour => part("hour"),
        Transform::Bucket(count) => bucket().call(vec![lit(i64::from(count)), value]),
    }
}

pub(crate) fn folder_name(column: &str, transform: Transform) -> String {
    match transform {
        Transform::Identity => column.to_string(),
        Transform::Year => "year".to_string(),
        Transform::Month => "month".to_string(),
        Transform::Day => "day".to_string(),
        Transform::Hour => "hour".to_string(),
        Transform::Bucket(_) => "bucket".to_string(),
    }
}
