//! What the rules for subqueries put together again and again: conditions that join keys, names that nothing
//! else has, refusals.

use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, binary_expr, lit, when};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// The next number for names, in the process: plans of views go on to be parts of others.
static NEXT: AtomicU64 = AtomicU64::new(1);

pub(super) fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// That one column of a row is what another one is, NULL being one value.
pub(super) fn same(one: &Column, other: &Column, schema: &DFSchema) -> Result<Vec<Expr>> {
    same_values(Expr::Column(one.clone()), Expr::Column(other.clone()), schema)
}

/// That one value is what another one of its type is, NULL being one value.
///
/// All of it are equalities of what is not NULL. A join by IS NOT DISTINCT FROM takes equalities that are
/// pushed into it later, or that joins beside it have, for ones of the same kind, to which NULL is equal to
/// NULL, or its own for one of theirs.
pub(super) fn same_values(one: Expr, other: Expr, schema: &DFSchema) -> Result<Vec<Expr>> {
    if !one.nullable(schema)? {
        return Ok(vec![one.eq(other)]);
    }
    let kind = one.get_type(schema)?;
    // No part of a CASE can be a map.
    if matches!(kind, DataType::Map(..)) {
        return Ok(vec![binary_expr(one, Operator::IsNotDistinctFrom, other)]);
    }
    // That of a list has other names for its elements, and one of a fixed size has none.
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
    let filled = |value: &Expr| {
        let default = Expr::Literal(default.clone(), None);
        when(value.clone().is_null(), default).otherwise(value.clone())
    };
    Ok(vec![filled(&one)?.eq(filled(&other)?), one.is_null().eq(other.is_null())])
}

/// A subquery that is not planned.
pub(super) fn unsupported(what: &str) -> DataFusionError {
    let message = format!("a correlated subquery with {what} is not supported");
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
        .with_hint("join the tables, or compute the subquery in a query of its own")
        .into_datafusion()
}
