//! Plans PostgreSQL's JSON operators as function calls. The operator's name identifies them, except `-`,
//! which needs the type of its left side.
//!
//! A column's type may be lost in subqueries. Operators that PostgreSQL would reject then work on text, as on
//! `json`.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, GetFieldAccess, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use harrier_error::{SqlError, SqlState};
use harrier_functions::json::Kind;
use harrier_sqlstate::IntoDataFusionError;

use super::{Types, call, is_open};

/// Planner extension for the operators.
#[derive(Debug)]
pub(crate) struct JsonOperators;

/// Type of an operator's right side.
#[derive(Clone, Copy, PartialEq)]
enum Right {
    Key,
    Path,
    Jsonb,
}

impl ExprPlanner for JsonOperators {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::*;
        let (name, right, of_both) = match expr.op {
            Arrow => ("harrier_json_get", Right::Key, true),
            LongArrow => ("harrier_json_get_text", Right::Key, true),
            HashArrow => ("harrier_json_path", Right::Path, true),
            HashLongArrow => ("harrier_json_path_text", Right::Path, true),
            AtArrow => ("jsonb_contains", Right::Jsonb, false),
            ArrowAt => ("jsonb_contained", Right::Jsonb, false),
            Question => ("jsonb_exists", Right::Key, false),
            QuestionPipe => ("jsonb_exists_any", Right::Path, false),
            QuestionAnd => ("jsonb_exists_all", Right::Path, false),
            HashMinus => ("jsonb_delete_path", Right::Path, false),
            Minus => ("jsonb_delete", Right::Key, false),
            AtQuestion | AtAt => {
                let types = Types::from_fields(schema);
                if types.kind(&expr.left).is_none() {
                    return Ok(PlannerResult::Original(expr));
                }
                let message = "paths of SQL/JSON are not supported";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
            }
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let types = Types::from_fields(schema);
        let (left_kind, right_kind) = (types.kind(&expr.left), types.kind(&expr.right));
        let is_list =
            |side| matches!(types.data_type(side), Some(DataType::List(_) | DataType::FixedSizeList(..)));
        let is_of_json = match right {
            // Arrays have `@>` and `<@`, too.
            Right::Jsonb => !is_list(&expr.left) && !is_list(&expr.right),
            _ if expr.op == Minus => left_kind.is_some(),
            _ => true,
        };
        if !is_of_json {
            return Ok(PlannerResult::Original(expr));
        }
        let is_text = |side| types.data_type(side).is_none_or(|kind| kind.is_string() || kind.is_null());
        let fits = |kind: Option<Kind>, side| (of_both || kind != Some(Kind::Json)) && is_text(side);
        let right_fits = match right {
            Right::Jsonb => fits(right_kind, &expr.right),
            Right::Key | Right::Path if right_kind.is_some() => false,
            Right::Path => is_text(&expr.right) || is_list(&expr.right),
            Right::Key => {
                let kind = types.data_type(&expr.right);
                let takes_number = matches!(expr.op, Arrow | LongArrow | Minus);
                is_text(&expr.right)
                    || takes_number && kind.as_ref().is_some_and(DataType::is_integer)
                    || expr.op == Minus && is_list(&expr.right)
            }
        };
        if !fits(left_kind, &expr.left) || !right_fits {
            return Err(types.no_operator(&expr.left, &expr.op.to_string(), &expr.right));
        }
        if right == Right::Jsonb {
            set_type(&mut expr.left, &Kind::Jsonb.field(""));
        }
        let wanted = match right {
            Right::Jsonb => Kind::Jsonb.field(""),
            Right::Key => Arc::new(Field::new("", DataType::Utf8, true)),
            Right::Path => Arc::new(Field::new("", DataType::new_list(DataType::Utf8, true), true)),
        };
        set_type(&mut expr.right, &wanted);
        let RawBinaryExpr { left, right, .. } = expr;
        Ok(PlannerResult::Planned(call(name, vec![left, right])?))
    }

    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let kind = Types::from_fields(schema).kind(&expr.expr);
        if kind != Some(Kind::Jsonb) {
            return Ok(PlannerResult::Original(expr));
        }
        let key = match expr.field_access {
            GetFieldAccess::NamedStructField { name } => lit(name),
            GetFieldAccess::ListIndex { key } => *key,
            GetFieldAccess::ListRange { .. } => {
                let message = "jsonb subscript does not support slices";
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).into_datafusion());
            }
        };
        Ok(PlannerResult::Planned(call("harrier_json_get", vec![expr.expr, key])?))
    }
}

/// Sets the type of a parameter if it has none yet.
fn set_type(side: &mut Expr, field: &FieldRef) {
    if is_open(side)
        && let Expr::Placeholder(placeholder) = side
        && placeholder.field.is_none()
    {
        placeholder.field = Some(Arc::clone(field));
    }
}
