//! SUBSTRING, OVERLAY, POSITION, LIKE, `||` and `string_agg` of bytea, which DataFusion plans as text
//! operations. Functions called by name are in [`harrier_functions::string::text_or_bytes`].
//!
//! ```text
//! b || '\x00'                ─►  b || CAST('\x00' AS Binary)               ByteaOperatorPlanner
//! ARRAY['\x00'::bytea, b]    ─►  make_array(CAST(… AS BinaryView), b)      ByteaOperatorPlanner
//! SUBSTRING(b FROM 2 FOR 3)  ─►  substr(b, 2, 3) of texts or bytes         ByteaOperatorPlanner
//! b LIKE p ESCAPE '!'        ─►  harrier_bytes_like(b, p, '!')             ByteaLike
//! b ILIKE p                  ─►  an error (42883)                          ByteaLike
//! string_agg(b, s)           ─►  an error (0A000)                          ByteaLike
//! ```
//!
//! `ByteaLike` can go when LIKE compares binaries as bytes (DataFusion casts them to text on purpose,
//! apache/datafusion#7840).
//!
//! `ByteaOperatorPlanner` can go when substring, overlay, position and || operate on binaries as bytes, and
//! list elements of binary and binary view types are coerced.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_nested::expr_fn::make_array;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, Like, LogicalPlan, ScalarUDF, cast, lit};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use harrier_error::{SqlError, SqlState};
use harrier_functions::postgres_functions;
use harrier_functions::string::text_or_bytes;
use harrier_sqlstate::IntoDataFusionError;
use std::sync::Arc;

use crate::rewrite::{input_schema, rewrite_expressions};

/// Plans bytea operators; runs before the default planner.
#[derive(Debug)]
pub struct ByteaOperatorPlanner;

impl ExprPlanner for ByteaOperatorPlanner {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        if expr.op == BinaryOperator::StringConcat {
            if is_string_literal(&expr.right) && is_bytes(&expr.left, schema) {
                expr.right = cast(expr.right, DataType::Binary);
            } else if is_string_literal(&expr.left) && is_bytes(&expr.right, schema) {
                expr.left = cast(expr.left, DataType::Binary);
            }
            let kinds = [&expr.left, &expr.right].map(|side| side.get_type(schema).ok());
            if let [Some(left), Some(right)] = &kinds
                && (left.is_nested() || right.is_nested())
                && let Some([left, right]) = common_view_types(left, right)
            {
                expr.left = cast(expr.left, left);
                expr.right = cast(expr.right, right);
            }
        }
        Ok(PlannerResult::Original(expr))
    }

    fn plan_substring(&self, arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(call(text_or_bytes::substr(), arguments)))
    }

    fn plan_overlay(&self, arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(call(text_or_bytes::overlay(), arguments)))
    }

    fn plan_position(&self, arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(call(text_or_bytes::position(), arguments)))
    }

    fn plan_array_literal(&self, elements: Vec<Expr>, schema: &DFSchema) -> Result<PlannerResult<Vec<Expr>>> {
        let has = |element: &Expr, kind: DataType| element.get_type(schema).is_ok_and(|own| own == kind);
        let is_plain = |element: &Expr| has(element, DataType::Binary);
        let is_view = |element: &Expr| has(element, DataType::BinaryView);
        if !elements.iter().any(is_plain) || !elements.iter().any(is_view) {
            return Ok(PlannerResult::Original(elements));
        }
        // Columns are views.
        let elements = elements.into_iter().map(|element| match is_plain(&element) {
            true => cast(element, DataType::BinaryView),
            false => element,
        });
        Ok(PlannerResult::Planned(make_array(elements.collect())))
    }
}

/// The analyzer rule for LIKE; runs before type coercion.
#[derive(Debug)]
pub struct ByteaLike;

impl AnalyzerRule for ByteaLike {
    fn name(&self) -> &str {
        "bytea_like"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |expr| match expr {
                Expr::Like(like) if is_bytes(&like.expr, &schema) || is_bytes(&like.pattern, &schema) => {
                    bytea_like(like).map(Transformed::yes)
                }
                Expr::AggregateFunction(AggregateFunction { func, params }) => {
                    reject_string_agg(func.name(), &params.args, &schema)?;
                    Ok(Transformed::no(Expr::AggregateFunction(AggregateFunction { func, params })))
                }
                Expr::WindowFunction(call) => {
                    reject_string_agg(call.fun.name(), &call.params.args, &schema)?;
                    Ok(Transformed::no(Expr::WindowFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            })
        })?;
        Ok(changed.data)
    }
}

/// Errors: `string_agg` of bytea, which DataFusion would cast to text (0A000).
fn reject_string_agg(name: &str, arguments: &[Expr], schema: &DFSchema) -> Result<()> {
    if name != "string_agg" || !arguments.first().is_some_and(|first| is_bytes(first, schema)) {
        return Ok(());
    }
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "string_agg of bytea is not supported")
        .with_hint("decode(string_agg(encode(b, 'hex'), encode(s, 'hex')), 'hex')")
        .into_datafusion())
}

/// Plans LIKE of bytea. Errors: ILIKE of bytea does not exist (42883).
fn bytea_like(like: Like) -> Result<Expr> {
    if like.case_insensitive {
        let message = "operator does not exist: bytea ~~* bytea";
        return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into_datafusion());
    }
    let mut arguments = vec![*like.expr, *like.pattern];
    arguments.extend(like.escape_char.map(|escape| lit(escape.to_string())));
    let found = call(postgres_functions::like_of_bytes(), arguments);
    Ok(if like.negated { Expr::Not(Box::new(found)) } else { found })
}

fn call(function: Arc<ScalarUDF>, arguments: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
}

fn is_bytes(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind.is_binary())
}

/// The view types of bytea and bytea lists, if one side has views and the other does not: concatenating lists
/// and appending elements require equal types.
fn common_view_types(left: &DataType, right: &DataType) -> Option<[DataType; 2]> {
    let item = |kind: &DataType| match kind {
        DataType::List(item) => item.data_type().clone(),
        other => other.clone(),
    };
    let view = |kind: &DataType| match kind {
        DataType::List(item) => {
            let item = item.as_ref().clone().with_data_type(DataType::BinaryView);
            DataType::List(Arc::new(item))
        }
        _ => DataType::BinaryView,
    };
    match (item(left), item(right)) {
        (DataType::Binary, DataType::BinaryView) | (DataType::BinaryView, DataType::Binary) => {
            Some([view(left), view(right)])
        }
        _ => None,
    }
}

/// Whether an expression is a string literal, whose type follows from the other operand.
fn is_string_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_)), _))
}
