//! Texts that become days and times, wherever a cast is put before them: compared with a column, inserted into one, read from a file. And
//! timestamps that become texts.
//!
//! What stands after a type's name, or before `::`, is taken care of before there is a plan (`dialect`).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use harrier_exec::local_times::{is_local, moments_in};
use harrier_exec::shown_times;
use harrier_exec::times::Kind;

use crate::rewriting::{rewritten, schema_below};

/// The rule; to stand behind the coercion of types, which adds casts.
#[derive(Debug)]
pub(crate) struct TextsOfTimes;

impl AnalyzerRule for TextsOfTimes {
    fn name(&self) -> &str {
        "texts_of_times"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = schema_below(&plan)?;
            rewritten(plan, |mut expr| {
                let is_changed = match &mut expr {
                    Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                        match Kind::of(field.data_type()) {
                            Some(kind) => read(expr, kind, &schema)?,
                            None => field.data_type().is_string() && write(expr, &schema),
                        }
                    }
                    _ => false,
                };
                Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
            })
        })?;
        Ok(changed.data)
    }
}

/// Has a text be one that a cast reads; tells whether it changed anything.
fn read(expr: &mut Expr, kind: Kind, schema: &DFSchema) -> Result<bool> {
    match expr {
        Expr::Literal(value, _) => Ok(match normal(value, kind)? {
            Some(normal) => {
                *value = normal;
                true
            }
            None => false,
        }),
        Expr::ScalarFunction(function) if function.func == kind.function() => Ok(false),
        _ if expr.get_type(schema).is_ok_and(|kind| kind.is_string()) => {
            let text = std::mem::take(expr);
            *expr = Expr::ScalarFunction(ScalarFunction::new_udf(kind.function(), vec![text]));
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Has a timestamp be the text that a cast passes on; tells whether it changed anything.
fn write(expr: &mut Expr, schema: &DFSchema) -> bool {
    let is_timestamp = matches!(expr.get_type(schema), Ok(DataType::Timestamp(..)));
    if is_timestamp {
        let timestamp = std::mem::take(expr);
        *expr = Expr::ScalarFunction(ScalarFunction::new_udf(shown_times::function(), vec![timestamp]));
    }
    is_timestamp
}

/// A value that is to be cast to a type; a text of a day or time in the form that a cast reads, and a local time that is to be a moment as the one in `zone`.
pub(crate) fn readable(value: ScalarValue, wanted: &DataType, zone: &str) -> Result<ScalarValue> {
    let normal = match Kind::of(wanted) {
        Some(kind) => normal(&value, kind)?,
        None => None,
    };
    let value = normal.unwrap_or(value);
    match wanted {
        DataType::Timestamp(_, Some(_)) if is_local(&value.data_type()) => {
            ScalarValue::try_from_array(&moments_in(&value.to_array()?, zone)?, 0)
        }
        _ => Ok(value),
    }
}

/// `None` where a cast reads the text as it is, or nobody does.
fn normal(value: &ScalarValue, kind: Kind) -> Result<Option<ScalarValue>> {
    let Some(Some(text)) = value.try_as_str() else { return Ok(None) };
    let Some(text) = kind.normal(text) else { return Ok(None) };
    ScalarValue::from(text).cast_to(&value.data_type()).map(Some)
}
