//! `m[k]` of a map: the value of a key, which is read as the type of the keys, and may be any expression.
//!
//! DataFusion takes constants alone, and compares them with the keys as they are: a text of the one kind
//! with texts of the other (as Parquet gives them) and a `smallint` with integers failed.
//!
//! ```text
//! m['a'], m[lower(k)]  ─►  array_element(map_extract(m, CAST('a' AS Utf8View)), 1)
//! m[1.5]               ─►  m[CASE WHEN 1 = 1.5 THEN 1 END]
//! ```
//! `MapSubscriptPlanner` can go with a DataFusion that has apache/datafusion#25201: get_field of a map is
//! map_extract, if it coerces the key then.

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
        // What has no type yet is no column of this query.
        let kind = expr.expr.get_type(schema).ok();
        let Some(keys) = kind.as_ref().and_then(key_type) else { return Ok(PlannerResult::Original(expr)) };
        let key = match expr.field_access {
            GetFieldAccess::NamedStructField { name } => Expr::Literal(name, None),
            GetFieldAccess::ListIndex { key } => *key,
            GetFieldAccess::ListRange { .. } => return Ok(PlannerResult::Original(expr)),
        };
        let key = match key.get_type(schema)? {
            kind if kind == *keys => key,
            // A number with a fraction is none of the keys.
            kind if keys.is_integer() && (kind.is_floating() || kind.is_decimal()) => {
                let whole = try_cast(key.clone(), keys.clone());
                let is_same = cast(whole.clone(), kind).eq(key);
                when(is_same, whole).end()?
            }
            _ => cast(key, keys.clone()),
        };
        Ok(PlannerResult::Planned(array_element(map_extract(expr.expr, key), lit(1_i64))))
    }
}

/// The type of a map's keys.
fn key_type(kind: &DataType) -> Option<&DataType> {
    let DataType::Map(entries, _) = kind else { return None };
    let DataType::Struct(fields) = entries.data_type() else { return None };
    fields.first().map(|key| key.data_type())
}
