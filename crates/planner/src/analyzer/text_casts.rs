//! Casts between text and other types as in PostgreSQL: from text to dates, times, bytea, numbers and arrays
//! (in comparisons with columns, inserts, file scans), and from timestamps, intervals, doubles, bytea, arrays
//! and structs to text. Also the elements that `array_to_string` formats.
//!
//! Typed literals and `::` casts of constants are handled before planning (`dialect`).
//!
//! ```text
//! CAST(text AS Date32)            ─►  CAST(harrier_date_text(text, order) AS Date32)
//! CAST(text AS Decimal)           ─►  CAST(harrier_plain_number(text) AS Decimal)
//! CAST(text AS Binary)            ─►  CAST(harrier_bytes_of_text(text) AS Binary)
//! CAST(ts AS Utf8)                ─►  CAST(harrier_shown_timestamp(ts) AS Utf8)
//! CAST(i AS Utf8), i an interval  ─►  CAST(harrier_shown_interval(i, style) AS Utf8)
//! CAST(d AS Utf8), d a double     ─►  CAST(harrier_shown_double(d) AS Utf8)
//! CAST(list AS Utf8)              ─►  CAST(harrier_shown_value(list, style) AS Utf8)
//! ```
//!
//! `TextCasts` can go when DataFusion allows replacing casts between text and values in one place.

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, lit};
use datafusion::optimizer::AnalyzerRule;
use harrier_error::{SqlError, SqlState};
use harrier_functions::format;
use harrier_functions::parse;
use harrier_functions::parse::datetime::{DateOrder, Kind};
use harrier_functions::parse::interval::IntervalStyle;
use harrier_sqlstate::IntoDataFusionError;

use super::text_constants::{element_type, normal_text, parse_array_constant, parse_bytea_constant};
use crate::rewrite::{input_schema, rewrite_expressions};

/// The analyzer rule; runs after type coercion, which adds casts.
#[derive(Debug)]
pub(crate) struct TextCasts {
    /// How a session formats intervals.
    pub(crate) interval_style: fn(&ConfigOptions) -> IntervalStyle,
    /// How a session parses ambiguous dates.
    pub(crate) date_order: fn(&ConfigOptions) -> DateOrder,
}

impl AnalyzerRule for TextCasts {
    fn name(&self) -> &str {
        "text_casts"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let style = (self.interval_style)(options);
        let order = (self.date_order)(options);
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |mut expr| {
                let is_changed = match &mut expr {
                    Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                        match Kind::of(field.data_type()) {
                            Some(kind) => parse_text(expr, kind, order, field.data_type(), &schema)?,
                            None if field.data_type().is_binary() => parse_bytes(expr, &schema)?,
                            None if field.data_type().is_decimal() => parse_number(expr, &schema),
                            None if let Some(item) = element_type(field.data_type()) => {
                                parse_array(expr, item, order, &schema)?
                            }
                            None => field.data_type().is_string() && format_text(expr, style, &schema),
                        }
                    }
                    Expr::ScalarFunction(call) if call.func.name() == "array_to_string" => {
                        call.args.first_mut().is_some_and(|array| format_elements(array, style, &schema))
                    }
                    _ => false,
                };
                Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
            })
        })?;
        Ok(changed.data)
    }
}

/// Rewrites a text to a form that a cast parses; returns whether it changed anything.
fn parse_text(
    expr: &mut Expr,
    kind: Kind,
    order: DateOrder,
    wanted: &DataType,
    schema: &DFSchema,
) -> Result<bool> {
    match expr {
        Expr::Literal(value, _) => Ok(match normal_text(value, kind, wanted, order)? {
            Some(normal) => {
                *value = normal;
                true
            }
            None => false,
        }),
        Expr::ScalarFunction(function) if function.func == kind.function() => Ok(false),
        _ if expr.get_type(schema).is_ok_and(|kind| kind.is_string()) => {
            let text = std::mem::take(expr);
            let arguments = vec![text, lit(order.name())];
            *expr = Expr::ScalarFunction(ScalarFunction::new_udf(kind.function(), arguments));
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Parses a text as bytea; returns whether it was a text.
fn parse_bytes(expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    if let Expr::Literal(value, _) = expr {
        let bytes = parse_bytea_constant(value)?;
        return Ok(bytes.map(|bytes| *value = bytes).is_some());
    }
    let is_text = expr.get_type(schema).is_ok_and(|kind| kind.is_string());
    if is_text {
        let text = std::mem::take(expr);
        *expr = Expr::ScalarFunction(ScalarFunction::new_udf(parse::bytea::function(), vec![text]));
    }
    Ok(is_text)
}

/// Rewrites a numeric text to one without an exponent; returns whether it may have had one.
fn parse_number(expr: &mut Expr, schema: &DFSchema) -> bool {
    if let Expr::Literal(value, _) = expr {
        let number = value.try_as_str().flatten().and_then(parse::decimal::plain);
        return number.map(|number| *value = ScalarValue::from(number)).is_some();
    }
    let is_read = matches!(expr, Expr::ScalarFunction(call) if call.func == parse::decimal::function());
    let is_text = !is_read && expr.get_type(schema).is_ok_and(|kind| kind.is_string());
    if is_text {
        let text = std::mem::take(expr);
        *expr = Expr::ScalarFunction(ScalarFunction::new_udf(parse::decimal::function(), vec![text]));
    }
    is_text
}

/// Parses a text as an array; returns whether it was a text.
///
/// Errors: it is not a valid array (22P02, 0A000), or not a constant (42846).
fn parse_array(expr: &mut Expr, element: &DataType, order: DateOrder, schema: &DFSchema) -> Result<bool> {
    match expr {
        Expr::Literal(value, _) => match value.try_as_str().flatten() {
            Some(text) => {
                *value = parse_array_constant(text, element, order)?;
                Ok(true)
            }
            None => Ok(false),
        },
        // The planner's cast of a constant, or `ARRAY['1/8/1999']`.
        Expr::ScalarFunction(call) if call.func.name() == "make_array" => {
            let Some(kind) = Kind::of(element) else { return Ok(false) };
            let mut is_changed = false;
            for item in &mut call.args {
                let Expr::Literal(value, _) = item else { continue };
                let text = value.try_as_str().flatten().and_then(|text| kind.normal(text, order));
                if let Some(text) = text {
                    *value = ScalarValue::from(text).cast_to(&value.data_type())?;
                    is_changed = true;
                }
            }
            Ok(is_changed)
        }
        _ if expr.get_type(schema).is_ok_and(|kind| kind.is_string()) => {
            let message = "cannot cast a text that is no constant to an array";
            Err(SqlError::new(SqlState::CANNOT_COERCE, message).into_datafusion())
        }
        _ => Ok(false),
    }
}

/// Formats a timestamp, an interval, a double, bytea, an array or a struct as text before a cast; returns
/// whether it changed anything.
fn format_text(expr: &mut Expr, style: IntervalStyle, schema: &DFSchema) -> bool {
    let (function, style) = match expr.get_type(schema) {
        Ok(DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_) | DataType::Time32(_)) => {
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

/// Formats the elements of an array as text; returns whether it changed anything.
fn format_elements(array: &mut Expr, style: IntervalStyle, schema: &DFSchema) -> bool {
    let is_shown = array.get_type(schema).is_ok_and(|kind| format::element::are_shown(&kind));
    if is_shown {
        let arguments = vec![std::mem::take(array), lit(style.name())];
        *array = Expr::ScalarFunction(ScalarFunction::new_udf(format::element::function(), arguments));
    }
    is_shown
}
