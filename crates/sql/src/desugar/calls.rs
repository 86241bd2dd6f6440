//! PostgreSQL functions that DataFusion does not have, as equivalents: types as functions, `date(x)`, and
//! `substring` with a pattern.

use crate::ast_builder::function_call;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, ExactNumberInfo, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, ObjectName, TimezoneInfo, UnaryOperator, Value, ValueWithSpan,
};

use super::exact_number::exact_decimal;
use super::{java_patterns, similar_to};
use crate::identifier::plain;
use crate::tokens::call_keywords;
use literals::quoted_integer;

mod literals;
mod patterns;

/// Function that converts the replacement of `regexp_replace` to DataFusion's syntax.
const REPLACEMENT: &str = "harrier_replacement";

/// Rewrites a function call.
pub(super) fn rewrite(expr: &mut Expr) {
    match expr {
        Expr::BinaryOp {
            op:
                BinaryOperator::PGRegexMatch
                | BinaryOperator::PGRegexIMatch
                | BinaryOperator::PGRegexNotMatch
                | BinaryOperator::PGRegexNotIMatch,
            right,
            ..
        } => patterns::respell(right),
        // Unlike `substring`, it has no form with a pattern.
        Expr::Substring { substring_from, substring_for, shorthand: true, .. } => {
            substring_from.iter_mut().chain(substring_for).for_each(|place| quoted_integer(place));
        }
        Expr::Overlay { overlay_from, overlay_for, .. } => {
            std::iter::once(overlay_from).chain(overlay_for).for_each(|place| quoted_integer(place));
        }
        Expr::Substring { expr: text, substring_from: Some(from), substring_for, .. } => {
            let length = substring_for.as_deref();
            if let Some(found) = substring_match(text, from, length) {
                *expr = found;
            }
        }
        Expr::Ceil { expr: value, .. } | Expr::Floor { expr: value, .. } if text_of(value).is_some() => {
            **value = cast(value, DataType::DoublePrecision);
        }
        Expr::Cast { expr: inner, data_type: DataType::Text | DataType::Varchar(None), .. } => {
            if let Expr::Function(function) = inner.as_ref()
                && let Some((name, arguments)) = plain_call(function)
                && let ("trim_scale", [value]) = (name.as_str(), arguments.as_slice())
            {
                *expr = call_of("harrier_trimmed_text", vec![Expr::clone(value)]);
            }
        }
        Expr::IsNormalized { expr: text, form, negated } => {
            let form = form.map_or("NFC".to_string(), |form| form.to_string());
            let is_normal = call("is_normalized", text, &string_literal(&form));
            *expr = match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(is_normal) },
                false => is_normal,
            };
        }
        Expr::Function(function) => {
            if matches!(function.args, FunctionArguments::None) {
                if let Some(data_type) = local_now(function) {
                    *expr = cast(&Expr::Function(function_call("now", vec![])), data_type);
                }
                return;
            }
            regr_count(function);
            literals::type_arguments(function);
            patterns::in_call(function);
            if let Some(missing) = variadic_call(function) {
                *expr = missing;
                return;
            }
            if let Some(named) = interval_of_named(function) {
                *expr = Expr::Function(named);
                return;
            }
            let Some((name, arguments)) = plain_call(function) else { return };
            let found = match (name.as_str(), arguments.as_slice()) {
                ("substring", [text, from]) => substring_match(text, from, None),
                ("substring", [text, from, escape]) => substring_match(text, from, Some(escape)),
                ("to_timestamp", [text, pattern]) if !is_strftime(pattern) => {
                    let read = call("harrier_to_timestamp", text, pattern);
                    let moment = DataType::Timestamp(Some(6), TimezoneInfo::Tz);
                    Some(cast(&read, moment))
                }
                ("to_char" | "to_date" | "to_number", [value, pattern]) if !is_strftime(pattern) => {
                    Some(call(&format!("harrier_{name}"), value, pattern))
                }
                ("date_format", [value, pattern]) if !is_strftime(pattern) => date_format(value, pattern),
                ("regexp_replace", [text, pattern, replacement, flags @ ..])
                    if flags.len() < 2 && !is_call_of(replacement, REPLACEMENT) =>
                {
                    let normal = function_call(REPLACEMENT, vec![Expr::clone(replacement)]);
                    let mut arguments = vec![Expr::clone(text), Expr::clone(pattern), Expr::Function(normal)];
                    arguments.extend(flags.iter().copied().cloned());
                    Some(Expr::Function(function_call("regexp_replace", arguments)))
                }
                ("current_timestamp" | "localtimestamp" | "current_time" | "localtime", [digits]) => {
                    now_with_digits(&name, digits)
                }
                ("transaction_timestamp", []) => Some(call_of("now", vec![])),
                ("age", [from]) => {
                    let today = cast(&Expr::Function(function_call("current_date", vec![])), TIMESTAMP);
                    Some(call("age", &today, from))
                }
                // PostgreSQL replaces all occurrences, DataFusion the first one.
                ("array_replace", arguments) => {
                    let arguments = arguments.iter().map(|argument| exact_or_same(argument)).collect();
                    Some(Expr::Function(function_call("array_replace_all", arguments)))
                }
                // The planner makes doubles of numbers with a point.
                (
                    "array_append" | "array_prepend" | "array_position" | "array_positions" | "array_remove",
                    arguments,
                ) if arguments.iter().any(|argument| exact(argument).is_some()) => {
                    Some(call_of(&name, arguments.iter().map(|argument| exact_or_same(argument)).collect()))
                }
                ("concat" | "concat_ws" | "format", arguments) if arguments.iter().any(|one| is_row(one)) => {
                    let texts = arguments.iter().map(|argument| match is_row(argument) {
                        true => cast(argument, DataType::Text),
                        false => Expr::clone(argument),
                    });
                    Some(call_of(&name, texts.collect()))
                }
                ("trim_scale", [value]) => trim_scale(value),
                ("concat", [all]) => {
                    variadic(all).map(|all| call("array_to_string", all, &string_literal("")))
                }
                ("concat_ws", [between, all]) => {
                    variadic(all).map(|all| call("array_to_string", all, between))
                }
                ("format", [format, all]) => variadic(all).map(|all| format_variadic(format, all)),
                ("json_build_array", [all]) => {
                    // With the spaces that PostgreSQL's function writes.
                    variadic(all).map(|all| cast(&call_of("to_jsonb", vec![all.clone()]), DataType::JSON))
                }
                ("jsonb_build_array", [all]) => {
                    variadic(all).map(|all| call_of("to_jsonb", vec![all.clone()]))
                }
                ("num_nulls" | "num_nonnulls", [all]) if variadic(all).is_some() => variadic(all)
                    .map(|all| call(&format!("harrier_{name}_of"), all, &Expr::value(Value::Null))),
                ("normalize", [text, Expr::Identifier(form)]) => {
                    Some(call("normalize", text, &string_literal(&form.value)))
                }
                ("array_fill", [value, sizes, first @ ..]) if first.len() < 2 => {
                    array_fill(value, sizes, first.first().copied())
                }
                ("date_trunc", [unit, moment]) => text_of(unit).and_then(|unit| date_trunc(unit, moment)),
                ("date_trunc", [unit, moment, zone]) => {
                    let unit_name = text_of(unit).unwrap_or_default();
                    Some(match text_of(zone).filter(|zone| is_of_time(unit_name) && is_plain(zone)) {
                        // Clocks may show the same hour twice, so that no local time says which one it is.
                        Some(zone) => {
                            let moment = cast(moment, TIMESTAMPTZ);
                            let kind = format!("Timestamp(Microsecond, Some(\"{zone}\"))");
                            let moment = call("arrow_cast", &moment, &string_literal(&kind));
                            cast(&date_trunc_call(unit, &moment), TIMESTAMPTZ)
                        }
                        None => {
                            let local = call("timezone", zone, moment);
                            call("timezone", zone, &date_trunc_call(unit, &local))
                        }
                    })
                }
                ("make_timestamptz", [parts @ .., zone]) if parts.len() == 6 => {
                    let parts = parts.iter().copied().cloned().collect();
                    let local = Expr::Function(function_call("make_timestamp", parts));
                    Some(call("timezone", zone, &local))
                }
                ("make_timestamptz", parts) if parts.len() == 6 => {
                    let parts = parts.iter().copied().cloned().collect();
                    let local = Expr::Function(function_call("make_timestamp", parts));
                    Some(cast(&local, DataType::Timestamp(None, TimezoneInfo::Tz)))
                }
                ("timeofday", []) => {
                    let now = call_of("clock_timestamp", vec![]);
                    Some(call("harrier_to_char", &now, &string_literal("Dy Mon DD HH24:MI:SS.US YYYY TZ")))
                }
                // For string literals PostgreSQL resolves these to double precision, which the planner does
                // not infer.
                ("round" | "trunc", [value, digits]) if text_of(value).is_some() => {
                    let exact = text_of(value).and_then(numeric_of);
                    exact.map(|exact| call(&name, &exact, digits))
                }
                (
                    "abs" | "cbrt" | "ceil" | "ceiling" | "degrees" | "exp" | "floor" | "ln" | "log"
                    | "log10" | "pow" | "power" | "radians" | "round" | "sign" | "sqrt" | "trunc",
                    arguments @ ([_] | [_, _]),
                ) if arguments.iter().all(|value| text_of(value).is_some()) => {
                    let double = |value: &&Expr| cast(value, DataType::DoublePrecision);
                    Some(Expr::Function(function_call(&name, arguments.iter().map(double).collect())))
                }
                (name, [value]) => type_of(name).map(|data_type| cast(value, data_type)),
                _ => None,
            };
            if let Some(found) = found {
                *expr = found;
            }
        }
        _ => {}
    }
}

/// The type of LOCALTIMESTAMP or LOCALTIME, which have no parentheses.
fn local_now(register: &Function) -> Option<DataType> {
    match register.name.0.as_slice() {
        [name] => match name_of(name.as_ident()?).as_str() {
            "localtimestamp" => Some(DataType::Timestamp(None, TimezoneInfo::None)),
            "localtime" => Some(DataType::Time(None, TimezoneInfo::None)),
            _ => None,
        },
        _ => None,
    }
}

/// `CURRENT_TIMESTAMP(3)` and the like, with so many digits of a second.
fn now_with_digits(name: &str, digits: &Expr) -> Option<Expr> {
    let Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) = digits else { return None };
    // As PostgreSQL, which warns.
    let digits = Some(digits.parse::<u64>().ok()?.min(6));
    let (now, data_type) = match name {
        "current_timestamp" => ("now", DataType::Timestamp(digits, TimezoneInfo::Tz)),
        "localtimestamp" => ("now", DataType::Timestamp(digits, TimezoneInfo::None)),
        "current_time" => ("current_time", DataType::Time(digits, TimezoneInfo::None)),
        "localtime" => ("now", DataType::Time(digits, TimezoneInfo::None)),
        _ => return None,
    };
    Some(cast(&call_of(now, vec![]), data_type))
}

/// `date_trunc(unit, moment)`, with a unit that DataFusion knows.
fn date_trunc_call(unit: &Expr, moment: &Expr) -> Expr {
    let known = text_of(unit).and_then(|unit| date_trunc(unit, moment));
    known.unwrap_or_else(|| call("date_trunc", unit, moment))
}

/// Whether a unit of `date_trunc` is an hour or a part of it.
fn is_of_time(unit: &str) -> bool {
    const UNITS: [&str; 24] = [
        "hour",
        "hours",
        "hr",
        "hrs",
        "h",
        "minute",
        "minutes",
        "min",
        "mins",
        "m",
        "second",
        "seconds",
        "sec",
        "secs",
        "s",
        "millisecond",
        "milliseconds",
        "msec",
        "msecs",
        "ms",
        "microsecond",
        "microseconds",
        "usec",
        "us",
    ];
    UNITS.iter().any(|known| known.eq_ignore_ascii_case(unit))
}

/// Whether a zone can stand in the name of a type.
fn is_plain(zone: &str) -> bool {
    zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-:/_".contains(&byte))
}

/// Replaces a synonym of a unit in `date_trunc` that DataFusion does not know.
fn date_trunc(unit: &str, moment: &Expr) -> Option<Expr> {
    let unit = match unit.to_ascii_lowercase().as_str() {
        "y" | "yr" | "yrs" | "years" => "year",
        "mon" | "mons" | "months" => "month",
        "w" | "weeks" => "week",
        "d" | "days" => "day",
        "h" | "hr" | "hrs" | "hours" => "hour",
        "m" | "min" | "mins" | "minutes" => "minute",
        "s" | "sec" | "secs" | "seconds" => "second",
        "ms" | "msec" | "msecs" | "milliseconds" => "millisecond",
        "us" | "usec" | "usecs" | "microseconds" => "microsecond",
        "qtr" | "quarters" => "quarter",
        _ => return None,
    };
    Some(call("date_trunc", &Expr::value(Value::SingleQuotedString(unit.to_string())), moment))
}

const TIMESTAMP: DataType = DataType::Timestamp(None, TimezoneInfo::None);

const TIMESTAMPTZ: DataType = DataType::Timestamp(None, TimezoneInfo::Tz);

/// Orders the named arguments of `make_interval(days => 10)`, and completes `make_interval()`.
fn interval_of_named(function: &Function) -> Option<Function> {
    const PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
    let [name] = function.name.0.as_slice() else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_named = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(value) => named_argument(value).is_some(),
        _ => true,
    };
    let is_plain = !list.args.is_empty() && !list.args.iter().any(is_named);
    if is_plain || name_of(name.as_ident()?) != "make_interval" {
        return None;
    }
    let mut parts = vec![Expr::value(Value::Number("0".to_string(), false)); PARTS.len()];
    for (at, argument) in list.args.iter().enumerate() {
        let (at, value) = match argument {
            FunctionArg::Unnamed(value) => match named_argument(value) {
                Some((name, value)) => {
                    let name = name_of(name);
                    parts[PARTS.iter().position(|part| *part == name)?] = value.clone();
                    continue;
                }
                None => (at, value),
            },
            FunctionArg::Named { name, arg, .. } => {
                let name = name_of(name);
                (PARTS.iter().position(|part| *part == name)?, arg)
            }
            FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, .. } => {
                let name = name_of(name);
                (PARTS.iter().position(|part| *part == name)?, arg)
            }
            FunctionArg::ExprNamed { .. } => return None,
        };
        let FunctionArgExpr::Expr(value) = value else { return None };
        *parts.get_mut(at)? = value.clone();
    }
    Some(function_call("make_interval", parts))
}

/// The name and value of a named argument.
fn named_argument(argument: &FunctionArgExpr) -> Option<(&Ident, &Expr)> {
    match argument {
        FunctionArgExpr::Expr(Expr::BinaryOp { left, op: BinaryOperator::Assignment, right }) => {
            match left.as_ref() {
                Expr::Identifier(name) => Some((name, right)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The name and arguments of a call without FILTER, OVER and other clauses.
fn plain_call(function: &Function) -> Option<(String, Vec<&Expr>)> {
    let Function { name, args, filter: None, null_treatment: None, over: None, .. } = function else {
        return None;
    };
    let name = match name.0.as_slice() {
        [name] => name.as_ident()?,
        [schema, name] if schema.as_ident()?.value.eq_ignore_ascii_case("pg_catalog") => name.as_ident()?,
        _ => return None,
    };
    let FunctionArguments::List(list) = args else { return None };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return None;
    }
    let arguments = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    Some((name_of(name), arguments.collect::<Option<Vec<_>>>()?))
}

fn is_call_of(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Function(function) if plain_call(function).is_some_and(|(called, _)| called == name))
}

fn name_of(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() }
}

/// The type that a function of this name casts to.
fn type_of(name: &str) -> Option<DataType> {
    Some(match name {
        "date" => DataType::Date,
        "bool" => DataType::Boolean,
        "int2" => DataType::SmallInt(None),
        "int4" => DataType::Integer(None),
        "int8" => DataType::BigInt(None),
        "float4" => DataType::Real,
        "float8" => DataType::DoublePrecision,
        "numeric" => DataType::Numeric(ExactNumberInfo::None),
        "text" => DataType::Text,
        "timestamptz" => DataType::Timestamp(None, TimezoneInfo::Tz),
        _ => return None,
    })
}

fn cast(value: &Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(value.clone()), data_type, array: false, format: None }
}

fn call(name: &str, first: &Expr, second: &Expr) -> Expr {
    call_of(name, vec![first.clone(), second.clone()])
}

fn call_of(name: &str, arguments: Vec<Expr>) -> Expr {
    Expr::Function(function_call(name, arguments))
}

fn string_literal(text: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(text.to_string()))
}

/// A row constructor, which text functions do not convert to text by themselves.
fn is_row(expr: &Expr) -> bool {
    match expr {
        Expr::Tuple(_) => true,
        Expr::Function(function) => plain_call(function).is_some_and(|(name, _)| name == "row"),
        _ => false,
    }
}

/// Rewrites `regr_count(y, x)` to a `count` of `y` where `x` is not NULL: DataFusion's returns an unsigned
/// integer.
fn regr_count(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(first)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(second)),
    ] = list.args.as_mut_slice()
    else {
        return;
    };
    let is_one = function
        .name
        .0
        .last()
        .and_then(|name| name.as_ident())
        .is_some_and(|name| plain(name) == "regr_count");
    if is_one && list.duplicate_treatment.is_none() {
        let pair = if_null(second, Expr::value(Value::Null), first.clone());
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(pair))];
        function.name = ObjectName::from(vec![Ident::new("count")]);
    }
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(ValueWithSpan { value: Value::Null, .. }))
}

fn if_null(value: &Expr, null: Expr, other: Expr) -> Expr {
    if is_null(value) {
        return null;
    }
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: Expr::IsNull(Box::new(value.clone())), result: null }],
        else_result: Some(Box::new(other)),
    }
}

/// `trim_scale` of a constant, whose scale is known.
fn trim_scale(value: &Expr) -> Option<Expr> {
    let text = match value {
        Expr::Nested(inner) => return trim_scale(inner),
        Expr::Cast { expr, data_type: DataType::Numeric(info), .. } => {
            let text = text_of(expr)?;
            let digits = text.split_once('.').map_or(0, |(_, fraction)| fraction.len() as i64);
            let is_whole = match info {
                ExactNumberInfo::None => true,
                ExactNumberInfo::Precision(_) => digits == 0,
                ExactNumberInfo::PrecisionAndScale(_, scale) => digits <= *scale,
            };
            Some(text).filter(|_| is_whole)?
        }
        Expr::TypedString(typed) => match (&typed.data_type, &typed.value.value) {
            (DataType::Numeric(ExactNumberInfo::None), Value::SingleQuotedString(text)) => text,
            _ => return None,
        },
        Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) => text,
        _ => return None,
    };
    let trimmed = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    };
    numeric_of(trimmed)
}

/// A numeric string as a decimal with the scale that is written; `None` for other strings, or more digits
/// than a decimal has.
pub(super) fn numeric_of(text: &str) -> Option<Expr> {
    const DIGITS_MAX: usize = 38;
    let number = text.trim().trim_start_matches(['+', '-']);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = !(whole.is_empty() && fraction.is_empty()) && are_digits(whole) && are_digits(fraction);
    let digits = whole.trim_start_matches('0').len().max(1) + fraction.len();
    if !is_number || digits > DIGITS_MAX {
        return None;
    }
    let scale = i64::try_from(fraction.len()).ok()?;
    let info = ExactNumberInfo::PrecisionAndScale(digits as u64, scale);
    Some(cast(&string_literal(text.trim()), DataType::Numeric(info)))
}

/// A call with a VARIADIC argument that is rewritten nowhere else: with the elements of the array in its
/// place for functions of any number of arguments, as far as they are written; for others an error that names
/// the function.
fn variadic_call(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let argument_of = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let arguments = list.args.iter().map(argument_of).collect::<Option<Vec<Expr>>>()?;
    let (last, first) = arguments.split_last()?;
    let all = variadic(last)?;
    let name = name_of(function.name.0.last()?.as_ident()?);
    match (name.as_str(), first, all) {
        ("concat" | "json_build_array" | "jsonb_build_array" | "num_nulls" | "num_nonnulls", [], _)
        | ("concat_ws" | "format", [_], _)
            if plain_call(function).is_some() =>
        {
            None
        }
        ("json_extract_path" | "jsonb_extract_path", [json], all) => {
            Some(path_of(json, BinaryOperator::HashArrow, all))
        }
        ("json_extract_path_text" | "jsonb_extract_path_text", [json], all) => {
            Some(path_of(json, BinaryOperator::HashLongArrow, all))
        }
        ("json_build_object" | "jsonb_build_object", first, Expr::Array(list)) => {
            Some(call_of(&name, first.iter().chain(&list.elem).cloned().collect()))
        }
        (_, first, all) => {
            let arguments = first.iter().chain([all]).cloned().collect();
            Some(call_of(&format!("{name}(VARIADIC)"), arguments))
        }
    }
}

fn path_of(json: &Expr, op: BinaryOperator, path: &Expr) -> Expr {
    let nested = |side: &Expr| Box::new(Expr::Nested(Box::new(side.clone())));
    Expr::BinaryOp { left: nested(json), op, right: nested(path) }
}

/// The array of a VARIADIC argument.
fn variadic(argument: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = argument else { return None };
    match plain_call(function)? {
        (name, arguments) if name == call_keywords::VARIADIC => arguments.first().copied(),
        _ => None,
    }
}

/// Rewrites `format(f, VARIADIC a)` with the elements of an array literal, or of any other array.
fn format_variadic(format: &Expr, all: &Expr) -> Expr {
    match all {
        Expr::Array(list) => call_of("format", std::iter::once(format).chain(&list.elem).cloned().collect()),
        other => call("harrier_format_elements", format, &cast(other, DataType::Text)),
    }
}

/// A number with a point, and perhaps a sign, as a decimal with the digits that are written.
fn exact(value: &Expr) -> Option<Expr> {
    match value {
        Expr::Nested(inner) => exact(inner),
        Expr::UnaryOp { op: op @ (UnaryOperator::Minus | UnaryOperator::Plus), expr } => {
            Some(Expr::UnaryOp { op: *op, expr: Box::new(exact(expr)?) })
        }
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) if text.contains('.') => exact_decimal(text),
            _ => None,
        },
        _ => None,
    }
}

fn exact_or_same(value: &Expr) -> Expr {
    exact(value).unwrap_or_else(|| value.clone())
}

/// Rewrites `array_fill(v, ARRAY[2, 3])` to nested arrays; for other arrays of sizes, to one dimension.
fn array_fill(value: &Expr, sizes: &Expr, first: Option<&Expr>) -> Option<Expr> {
    let sizes: Vec<Expr> = match (sizes, first) {
        (Expr::Array(list), None) if !list.elem.is_empty() => {
            list.elem.iter().map(|size| call_of("harrier_array_size", vec![size.clone()])).collect()
        }
        (sizes, first) => {
            let arguments = std::iter::once(sizes).chain(first).cloned().collect();
            vec![call_of("harrier_array_size", arguments)]
        }
    };
    Some(
        sizes.into_iter().rev().fold(value.clone(), |value, size| call_of("array_repeat", vec![value, size])),
    )
}

/// Spark's `date_format` with a constant pattern. A string literal as its value is a timestamp.
fn date_format(value: &Expr, pattern: &Expr) -> Option<Expr> {
    let template = string_literal(&java_patterns::to_char_of(text_of(pattern)?)?);
    Some(match text_of(value) {
        Some(_) => call("harrier_to_char", &cast(value, TIMESTAMP), &template),
        None => call("harrier_to_char", value, &template),
    })
}

/// Whether a pattern is strftime's, as in DataFusion's own functions (`%Y`), which PostgreSQL's are not.
fn is_strftime(pattern: &Expr) -> bool {
    let is_letter = |text: &str| {
        text.split('%')
            .skip(1)
            .any(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || "-:.%#^".contains(c)))
    };
    text_of(pattern).is_some_and(is_letter)
}

/// The match of a constant pattern in a text, or its first capture group. With an escape, the pattern is one
/// of SIMILAR TO.
fn substring_match(text: &Expr, pattern: &Expr, escape: Option<&Expr>) -> Option<Expr> {
    let pattern = text_of(pattern)?;
    let pattern = match escape {
        None => pattern.to_string(),
        Some(escape) => similar_to::regex_of_part(pattern, text_of(escape)?)?,
    };
    let pattern = Expr::value(Value::SingleQuotedString(pattern));
    let found = Expr::Function(function_call("regexp_match", vec![text.clone(), pattern]));
    let one = Expr::value(Value::Number("1".to_string(), false));
    Some(Expr::Function(function_call("array_element", vec![found, one])))
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(inner) => text_of(inner),
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn calls_are_rewritten_for_the_planner() {
        for (sql, expected) in [
            (
                "SELECT to_timestamp(a, 'YYYY')",
                "SELECT CAST(harrier_to_timestamp(a, 'YYYY') AS TIMESTAMPTZ(6))",
            ),
            (
                "SELECT to_char(a, 'DD'), to_char(a, '%d')",
                "SELECT harrier_to_char(a, 'DD'), to_char(a, '%d')",
            ),
            ("SELECT LOCALTIMESTAMP", "SELECT CAST(now() AS TIMESTAMP)"),
            (
                "SELECT CURRENT_TIMESTAMP(3), LOCALTIMESTAMP(0), CURRENT_TIME(2), LOCALTIME(9)",
                "SELECT CAST(now() AS TIMESTAMPTZ(3)), CAST(now() AS TIMESTAMP(0)), \
                 CAST(current_time() AS TIME(2)), CAST(now() AS TIME(6))",
            ),
            (
                "SELECT make_interval(1, days => 2), make_interval(1)",
                "SELECT make_interval(1, 0, 0, 2, 0, 0, 0), make_interval(1)",
            ),
            ("SELECT make_interval()", "SELECT make_interval(0, 0, 0, 0, 0, 0, 0)"),
            ("SELECT age(a)", "SELECT age(CAST(current_date() AS TIMESTAMP), a)"),
            ("SELECT date_trunc('mon', a)", "SELECT date_trunc('month', a)"),
            (
                "SELECT date_trunc('day', a, 'UTC')",
                "SELECT timezone('UTC', date_trunc('day', timezone('UTC', a)))",
            ),
            (
                "SELECT date_trunc('mins', a, 'UTC')",
                "SELECT CAST(date_trunc('minute', arrow_cast(CAST(a AS TIMESTAMPTZ(6)), \
                 'Timestamp(Microsecond, Some(\"UTC\"))')) AS TIMESTAMPTZ(6))",
            ),
            ("SELECT date_trunc('mins', a, b)", "SELECT timezone(b, date_trunc('minute', timezone(b, a)))"),
            ("SELECT to_timestamp(a)", "SELECT to_timestamp(a)"),
            ("SELECT date(a)", "SELECT CAST(a AS DATE)"),
            ("SELECT pg_catalog.int4('7')", "SELECT CAST('7' AS INTEGER)"),
            ("SELECT date, text FROM t", "SELECT date, text FROM t"),
            (
                "SELECT regexp_replace(a, 'b', '$1', 'g')",
                "SELECT regexp_replace(a, 'b', harrier_replacement('$1'), 'g')",
            ),
            ("SELECT substring(a FROM '...$')", "SELECT array_element(regexp_match(a, '...$'), 1)"),
            ("SELECT substring(a, '(b)c')", "SELECT array_element(regexp_match(a, '(b)c'), 1)"),
            ("SELECT substring(a FROM 2 FOR 3)", "SELECT SUBSTRING(a FROM 2 FOR 3)"),
            (
                "SELECT count(a) FILTER (WHERE date(b) > c)",
                "SELECT count(a) FILTER (WHERE CAST(b AS DATE) > c)",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
    }
}
