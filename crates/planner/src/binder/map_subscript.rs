//! Planner of map subscripts `m[k]`. The key may be any expression and is coerced to the key type of the map.
//!
//! DataFusion accepts only constants, and does not coerce them: Utf8 keys against Utf8View (which Parquet
//! yields) and `smallint` against integer keys failed.
//!
//! ```text
//! m['a'], m[lower(k)]  ─►  array_element(map_extract(m, CAST('a' AS Utf8View)), 1)
//! m[1.5]               ─►  m[CASE WHEN 1 = 1.5 THEN 1 END]
//! ```
//! `MapSubscriptPlanner` can go with a DataFusion that includes apache/datafusion#25201 (get_field of a map
//! is map_extract), if that also coerces the key.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::functions_nested::expr_fn::{array_element, map_extract};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, cast, lit, try_cast, when};

/// Plans subscripts of maps.
#[derive(Debug)]
pub struct MapSubscriptPlanner;

impl ExprPlanner for MapSubscriptPlanner {
    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        // Without a type it is not a column of this query.
        let kind = expr.expr.get_type(schema).ok();
        let Some(keys) = kind.as_ref().and_then(key_type) else { return Ok(PlannerResult::Original(expr)) };
        let key = match expr.field_access {
            GetFieldAccess::NamedStructField { name } => Expr::Literal(name, None),
            GetFieldAccess::ListIndex { key } => *key,
            GetFieldAccess::ListRange { .. } => return Ok(PlannerResult::Original(expr)),
        };
        let key = match key.get_type(schema)? {
            kind if kind == *keys => key,
            // A fractional number equals no integer key.
            kind if keys.is_integer() && (kind.is_floating() || kind.is_decimal()) => {
                let integer = try_cast(key.clone(), keys.clone());
                let is_same = cast(integer.clone(), kind).eq(key);
                when(is_same, integer).end()?
            }
            _ => cast(key, keys.clone()),
        };
        Ok(PlannerResult::Planned(array_element(map_extract(expr.expr, key), lit(1_i64))))
    }
}

/// The key type of a map.
fn key_type(kind: &DataType) -> Option<&DataType> {
    let DataType::Map(entries, _) = kind else { return None };
    let DataType::Struct(fields) = entries.data_type() else { return None };
    fields.first().map(|key| key.data_type())
}
