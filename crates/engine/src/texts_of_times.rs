//! Texts that become days, times, bytes and arrays, wherever a cast is put before them: compared with a column, inserted into one, read from a file.
//! And timestamps, intervals, doubles, bytes, arrays and rows that become texts, and elements of arrays that `array_to_string` makes texts of.
//!
//! What stands after a type's name, or before `::`, is taken care of before there is a plan (`dialect`).

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, lit};
use datafusion::optimizer::AnalyzerRule;
use harrier_error::{SqlError, SqlState};
use harrier_functions::datetime::infinity::infinite;
use harrier_functions::datetime::time_zone::{is_local, moments_in};
use harrier_functions::format;
use harrier_functions::parse;
use harrier_functions::parse::datetime::Kind;
use harrier_functions::parse::interval::IntervalStyle;
use harrier_sqlstate::IntoDataFusionError;

use crate::array_texts;
use crate::rewriting::{rewritten, schema_below};
use crate::settings::HarrierSettings;

/// The rule; to stand behind the coercion of types, which adds casts.
#[derive(Debug)]
pub(crate) struct TextsOfTimes;

impl AnalyzerRule for TextsOfTimes {
    fn name(&self) -> &str {
        "texts_of_times"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let style = interval_style(options);
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = schema_below(&plan)?;
            rewritten(plan, |mut expr| {
                let is_changed = match &mut expr {
                    Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                        match Kind::of(field.data_type()) {
                            Some(kind) => read(expr, kind, field.data_type(), &schema)?,
                            None if field.data_type().is_binary() => read_bytes(expr, &schema)?,
                            None if let Some(element) = array_texts::element(field.data_type()) => {
                                read_array(expr, element, &schema)?
                            }
                            None => field.data_type().is_string() && write(expr, style, &schema),
                        }
                    }
                    Expr::ScalarFunction(call) if call.func.name() == "array_to_string" => {
                        call.args.first_mut().is_some_and(|array| write_elements(array, style, &schema))
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
fn read(expr: &mut Expr, kind: Kind, wanted: &DataType, schema: &DFSchema) -> Result<bool> {
    match expr {
        Expr::Literal(value, _) => Ok(match normal(value, kind, wanted)? {
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

/// Has a text be the bytes that it tells; tells whether it was one.
fn read_bytes(expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    if let Expr::Literal(value, _) = expr {
        let bytes = bytes(value)?;
        return Ok(bytes.map(|bytes| *value = bytes).is_some());
    }
    let is_text = expr.get_type(schema).is_ok_and(|kind| kind.is_string());
    if is_text {
        let text = std::mem::take(expr);
        *expr = Expr::ScalarFunction(ScalarFunction::new_udf(parse::bytea::function(), vec![text]));
    }
    Ok(is_text)
}

/// Has a text be the array that it tells; tells whether it was one.
///
/// Errors: it tells none (22P02, 0A000), or is no constant (42846).
fn read_array(expr: &mut Expr, element: &DataType, schema: &DFSchema) -> Result<bool> {
    match expr {
        Expr::Literal(value, _) => match value.try_as_str().flatten() {
            Some(text) => {
                *value = array_texts::array(text, element)?;
                Ok(true)
            }
            None => Ok(false),
        },
        _ if expr.get_type(schema).is_ok_and(|kind| kind.is_string()) => {
            let message = "cannot cast a text that is no constant to an array";
            Err(SqlError::new(SqlState::CANNOT_COERCE, message).into_datafusion())
        }
        _ => Ok(false),
    }
}

/// The bytes that a text tells; `None` for what is none.
///
/// Errors: it is none of bytes (22P02, 22023).
fn bytes(value: &ScalarValue) -> Result<Option<ScalarValue>> {
    let Some(text) = value.try_as_str() else { return Ok(None) };
    let bytes = text.map(parse::bytea::bytes_of).transpose().map_err(harrier_sqlstate::external)?;
    Ok(Some(ScalarValue::Binary(bytes)))
}

/// Has a timestamp, an interval, a double, bytes, an array or a row be the text that a cast passes on; tells whether it changed anything.
fn write(expr: &mut Expr, style: IntervalStyle, schema: &DFSchema) -> bool {
    let (function, style) = match expr.get_type(schema) {
        Ok(DataType::Timestamp(..) | DataType::Time64(_) | DataType::Time32(_)) => {
            (format::datetime::function(), None)
        }
        Ok(DataType::Float32 | DataType::Float64) => (format::double::function(), None),
        Ok(DataType::Interval(IntervalUnit::MonthDayNano)) => {
            (format::interval::function(), Some(lit(style.name())))
        }
        Ok(kind) if format::value::are_shown(&kind) => (format::value::function(), Some(lit(style.name()))),
        _ => return false,
    };
    let arguments = [std::mem::take(expr)].into_iter().chain(style).collect();
    *expr = Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments));
    true
}

/// Has an array be the texts of its elements; tells whether it changed anything.
fn write_elements(array: &mut Expr, style: IntervalStyle, schema: &DFSchema) -> bool {
    let is_shown = array.get_type(schema).is_ok_and(|kind| format::element::are_shown(&kind));
    if is_shown {
        let arguments = vec![std::mem::take(array), lit(style.name())];
        *array = Expr::ScalarFunction(ScalarFunction::new_udf(format::element::function(), arguments));
    }
    is_shown
}

/// How the session writes intervals.
fn interval_style(options: &ConfigOptions) -> IntervalStyle {
    options.extensions.get::<HarrierSettings>().map(|settings| settings.interval_style).unwrap_or_default()
}

/// A value that is to be cast to a type; a text of a day, time or bytes in the form that a cast reads, and a local time that is to be a moment as the one in `zone`.
pub(crate) fn readable(value: ScalarValue, wanted: &DataType, zone: &str) -> Result<ScalarValue> {
    let normal = match Kind::of(wanted) {
        Some(kind) => normal(&value, kind, wanted)?,
        None if wanted.is_binary() => bytes(&value)?,
        None if let (Some(element), Some(text)) =
            (array_texts::element(wanted), value.try_as_str().flatten()) =>
        {
            Some(array_texts::array(text, element)?)
        }
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

/// What a cast to the type reads as PostgreSQL reads the text. `None` where that is the text as it is, or nobody reads it.
fn normal(value: &ScalarValue, kind: Kind, wanted: &DataType) -> Result<Option<ScalarValue>> {
    let Some(Some(text)) = value.try_as_str() else { return Ok(None) };
    if let Some(infinite) = infinite(text, wanted) {
        return Ok(Some(infinite));
    }
    let Some(text) = kind.normal(text) else { return Ok(None) };
    ScalarValue::from(text).cast_to(&value.data_type()).map(Some)
}
