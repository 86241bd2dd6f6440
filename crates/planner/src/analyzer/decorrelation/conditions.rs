//! Helpers of the decorrelation rules: join conditions on keys, unique names, errors.

use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, binary_expr, lit, when};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// The next unique number in the process: plans of views become parts of other plans.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

pub(super) fn next_number() -> u64 {
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// Compares two columns for equality, with NULL equal to NULL.
pub(super) fn null_safe_eq(one: &Column, other: &Column, schema: &DFSchema) -> Result<Vec<Expr>> {
    null_safe_eq_values(Expr::Column(one.clone()), Expr::Column(other.clone()), schema)
}

/// Compares two values of the same type for equality, with NULL equal to NULL.
///
/// The result consists of equalities of non-NULL values. With IS NOT DISTINCT FROM, a join treats equalities
/// that are pushed into it later, or that adjacent joins have, as null-safe too, or its own as plain ones.
pub(super) fn null_safe_eq_values(one: Expr, other: Expr, schema: &DFSchema) -> Result<Vec<Expr>> {
    if !one.nullable(schema)? {
        return Ok(vec![one.eq(other)]);
    }
    let kind = one.get_type(schema)?;
    // A CASE does not support maps.
    if matches!(kind, DataType::Map(..)) {
        return Ok(vec![binary_expr(one, Operator::IsNotDistinctFrom, other)]);
    }
    // The default of a list type names its elements differently, and fixed-size lists have no default.
    let default = ScalarValue::new_default(&kind).and_then(|default| default.cast_to(&kind));
    let Ok(default) = default else {
        return Ok(vec![binary_expr(one, Operator::IsNotDistinctFrom, other)]);
    };
    if default.is_null() {
        return Ok(vec![lit(true)]);
    }
    if default.data_type() != kind {
        return Ok(vec![binary_expr(one, Operator::IsNotDistinctFrom, other)]);
    }
    let or_default = |value: &Expr| {
        let default = Expr::Literal(default.clone(), None);
        when(value.clone().is_null(), default).otherwise(value.clone())
    };
    Ok(vec![or_default(&one)?.eq(or_default(&other)?), one.is_null().eq(other.is_null())])
}

/// The error for a subquery that cannot be planned.
pub(super) fn unsupported_error(what: &str) -> DataFusionError {
    let message = format!("a correlated subquery with {what} is not supported");
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
        .with_hint("join the tables, or compute the subquery in a query of its own")
        .into_datafusion()
}
