//! Hive's functions: which of PostgreSQL's and the planner's means the same, and the names `hive_…` of those
//! that mean something else.
//!
//! Arguments are converted first, as Hive does implicitly: a text where a number or a date belongs is read as
//! one, and a number where a text belongs is written.
//!
//! Source: Hive Language Manual, "Operators and User-Defined Functions".

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, NullTreatment, UnaryOperator, Value,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::build::{as_text, as_type, ascending, call, text};
use super::statements::{DEFAULT, PUBLIC};
use super::{operators, refuse};
use crate::ast_builder::{binary, case, cast, number, parentheses, text_of};

/// A function with another name here, or with arguments that are converted.
///
/// Arguments: `t` text, `d` date, `s` timestamp, `n` double, `u` a number as it is, and a text as a double,
/// `i` integer of 64 bits, `_` as it is. The last one holds for those after it, so that a text of one letter
/// is for any number of arguments.
struct Named(&'static str, &'static str, &'static str);

/// Sorted by name.
const NAMED: &[Named] = &[
    Named("abs", "abs", "u"),
    Named("acos", "acos", "n"),
    Named("add_months", "hive_add_months", "sit"),
    Named("array", "make_array", "_"),
    Named("array_contains", "array_has", "__"),
    Named("ascii", "hive_ascii", "t"),
    Named("asin", "asin", "n"),
    Named("atan", "atan", "n"),
    Named("base64", "hive_base64", "_"),
    Named("bin", "hive_bin", "i"),
    Named("bround", "hive_bround", "u_"),
    Named("cbrt", "cbrt", "n"),
    Named("char_length", "length", "t"),
    Named("character_length", "length", "t"),
    Named("chr", "hive_chr", "i"),
    Named("concat", "hive_concat", "t"),
    Named("concat_ws", "hive_concat_ws", "t_"),
    Named("conv", "hive_conv", "tii"),
    Named("cos", "cos", "n"),
    Named("crc32", "hive_crc32", "t"),
    Named("date_add", "hive_date_add", "di"),
    Named("date_format", "hive_date_format", "st"),
    Named("date_sub", "hive_date_sub", "di"),
    Named("datediff", "hive_datediff", "dd"),
    Named("day", "hive_day", "s"),
    Named("dayofmonth", "hive_day", "s"),
    Named("dayofweek", "hive_dayofweek", "s"),
    Named("degrees", "degrees", "n"),
    Named("exp", "exp", "n"),
    Named("factorial", "hive_factorial", "i"),
    Named("field", "hive_field", "t"),
    Named("find_in_set", "hive_find_in_set", "tt"),
    Named("format_number", "hive_format_number", "ni"),
    Named("from_unixtime", "hive_from_unixtime", "it"),
    Named("from_utc_timestamp", "hive_from_utc_timestamp", "st"),
    Named("get_json_object", "hive_get_json_object", "tt"),
    Named("greatest", "hive_greatest", "_"),
    Named("hex", "hive_hex", "_"),
    Named("hour", "hive_hour", "s"),
    Named("initcap", "hive_initcap", "t"),
    Named("instr", "hive_instr", "tt"),
    Named("last_day", "hive_last_day", "d"),
    Named("lcase", "lower", "t"),
    Named("least", "hive_least", "_"),
    Named("length", "length", "t"),
    Named("levenshtein", "levenshtein", "tt"),
    Named("locate", "hive_locate", "tti"),
    Named("log10", "hive_log10", "n"),
    Named("log2", "hive_log2", "n"),
    Named("lower", "lower", "t"),
    Named("lpad", "hive_lpad", "tit"),
    Named("ltrim", "ltrim", "t"),
    Named("md5", "md5", "t"),
    Named("minute", "hive_minute", "s"),
    Named("month", "hive_month", "s"),
    Named("months_between", "hive_months_between", "ss"),
    Named("next_day", "hive_next_day", "dt"),
    Named("octet_length", "octet_length", "t"),
    Named("parse_url", "hive_parse_url", "t"),
    Named("pmod", "hive_pmod", "__"),
    Named("position", "hive_locate", "tti"),
    Named("pow", "hive_power", "nn"),
    Named("power", "hive_power", "nn"),
    Named("quarter", "hive_quarter", "s"),
    Named("radians", "radians", "n"),
    Named("regexp", "hive_rlike", "tt"),
    Named("regexp_extract", "hive_regexp_extract", "tti"),
    Named("regexp_replace", "hive_regexp_replace", "ttt"),
    Named("repeat", "hive_repeat", "ti"),
    Named("replace", "hive_replace", "ttt"),
    Named("reverse", "reverse", "t"),
    Named("rlike", "hive_rlike", "tt"),
    Named("round", "hive_round", "u_"),
    Named("rpad", "hive_rpad", "tit"),
    Named("rtrim", "rtrim", "t"),
    Named("second", "hive_second", "s"),
    Named("sign", "sign", "u"),
    Named("sin", "sin", "n"),
    Named("size", "hive_size", "_"),
    Named("sort_array", "hive_sort_array", "_"),
    Named("soundex", "hive_soundex", "t"),
    Named("split", "hive_split", "tt"),
    Named("sqrt", "hive_sqrt", "n"),
    Named("str_to_map", "hive_str_to_map", "t"),
    Named("substr", "hive_substr", "tii"),
    Named("substring", "hive_substr", "tii"),
    Named("substring_index", "hive_substring_index", "tti"),
    Named("tan", "tan", "n"),
    Named("to_utc_timestamp", "hive_to_utc_timestamp", "st"),
    Named("translate", "translate", "ttt"),
    Named("trim", "btrim", "t"),
    Named("ucase", "upper", "t"),
    Named("unbase64", "hive_unbase64", "t"),
    Named("unhex", "hive_unhex", "t"),
    Named("unix_timestamp", "hive_unix_timestamp", "_t"),
    Named("upper", "upper", "t"),
    Named("weekofyear", "hive_weekofyear", "s"),
    Named("year", "hive_year", "s"),
];

/// Converts an argument.
fn convert(argument: Expr, kind: char) -> Expr {
    match kind {
        't' => as_text(argument),
        'd' => as_type(argument, "Date32"),
        's' => as_type(argument, "Timestamp(µs)"),
        'n' => as_type(argument, "Float64"),
        'u' => call("hive_number", vec![argument]),
        'i' => as_type(argument, "Int64"),
        _ => argument,
    }
}

fn wrong_arguments(name: &str, count: usize) -> datafusion::error::DataFusionError {
    let message = format!("function {name} does not take {count} arguments in Hive");
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into_datafusion()
}

/// Rewrites a call whose arguments have been; `None`: it is one of the planner's.
///
/// Errors: other arguments than the function has (42883).
pub(super) fn rewrite(expr: &mut Expr) -> Result<Option<Expr>> {
    let Expr::Function(function) = expr else { return Ok(None) };
    let [name] = function.name.0.as_slice() else { return Ok(None) };
    let Some(name) = name.as_ident().map(|name| name.value.to_ascii_lowercase()) else { return Ok(None) };
    if matches!(name.as_str(), "first_value" | "last_value") {
        return ignoring_nulls(function);
    }
    if let Some(aggregate) = aggregate(&name, function)? {
        return Ok(Some(aggregate));
    }
    let Some(arguments) = arguments_of(function) else { return Ok(None) };
    if let Some(other) = other_form(&name, &arguments)? {
        return Ok(Some(other));
    }
    let Ok(at) = NAMED.binary_search_by(|Named(known, ..)| (*known).cmp(name.as_str())) else {
        return Ok(None);
    };
    let Named(_, target, kinds) = NAMED[at];
    let last = kinds.chars().last().unwrap_or('_');
    let kinds = kinds.chars().chain(std::iter::repeat(last));
    let arguments = arguments.into_iter().zip(kinds).map(|(argument, kind)| convert(argument, kind));
    Ok(Some(call(target, arguments.collect())))
}

/// `first_value(x, true)` is `first_value(x) IGNORE NULLS`.
///
/// Errors: the second argument is no truth value (0A000).
fn ignoring_nulls(function: &Function) -> Result<Option<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    let [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(ignores)))] = list.args.as_slice() else {
        return match list.args.len() {
            1 => Ok(None),
            count => Err(wrong_arguments(&function.name.to_string(), count)),
        };
    };
    let null_treatment = match ignores.value {
        Value::Boolean(true) => Some(NullTreatment::IgnoreNulls),
        Value::Boolean(false) => None,
        _ => return Err(wrong_arguments(&function.name.to_string(), 2)),
    };
    let mut function = Function { null_treatment, ..function.clone() };
    if let FunctionArguments::List(list) = &mut function.args {
        list.args.truncate(1);
    }
    Ok(Some(Expr::Function(function)))
}

/// The arguments of a call without clauses.
fn arguments_of(function: &Function) -> Option<Vec<Expr>> {
    let Function { args: FunctionArguments::List(list), filter: None, over: None, .. } = function else {
        return None;
    };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() || !function.within_group.is_empty() {
        return None;
    }
    let plain = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(plain).collect()
}

/// Functions that are other expressions here.
fn other_form(name: &str, arguments: &[Expr]) -> Result<Option<Expr>> {
    let null = || Expr::value(Value::Null);
    let is_null = |value: &Expr| Expr::IsNull(Box::new(parentheses(value.clone())));
    let truth = |value: &Expr| Expr::IsTrue(Box::new(parentheses(value.clone())));
    let whole = |value: Expr| as_type(value, "Int64");
    Ok(Some(match (name, arguments) {
        ("if", [condition, first, second]) => case([(condition.clone(), first.clone())], second.clone()),
        ("nvl" | "ifnull", [value, other]) => call("coalesce", vec![value.clone(), other.clone()]),
        ("isnull", [value]) => is_null(value),
        ("isnotnull", [value]) => Expr::IsNotNull(Box::new(parentheses(value.clone()))),
        ("istrue", [value]) => truth(value),
        ("isfalse", [value]) => Expr::IsFalse(Box::new(parentheses(value.clone()))),
        ("negative", [value]) => {
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(parentheses(value.clone())) }
        }
        ("positive", [value]) => value.clone(),
        ("ceil" | "ceiling", [value]) => whole(call("ceil", vec![value.clone()])),
        ("floor", [value]) => whole(call("floor", vec![value.clone()])),
        ("e", []) => call("exp", vec![as_type(number("1"), "Float64")]),
        ("ln", [value]) | ("log", [value]) => call("hive_ln", vec![as_type(value.clone(), "Float64")]),
        ("log", [base, value]) => {
            let double = |value: &Expr| as_type(value.clone(), "Float64");
            call("hive_log", vec![double(base), double(value)])
        }
        ("mod", [value, by]) => {
            binary(parentheses(value.clone()), operators::custom("%"), parentheses(by.clone()))
        }
        ("div", [value, by]) => {
            binary(parentheses(value.clone()), operators::custom("DIV"), parentheses(by.clone()))
        }
        ("space", [count]) => call("hive_repeat", vec![text(" "), whole(count.clone())]),
        ("to_date" | "date", [value]) => as_type(value.clone(), "Date32"),
        ("timestamp", [value]) => as_type(value.clone(), "Timestamp(µs)"),
        ("current_date", []) => call("current_date", vec![]),
        ("current_timestamp", []) => as_type(call("now", vec![]), "Timestamp(µs)"),
        ("current_database", []) => {
            let schema = call("nullif", vec![call("current_schema", vec![]), text(PUBLIC)]);
            call("coalesce", vec![schema, text(DEFAULT)])
        }
        ("current_user" | "logged_in_user", []) => call("current_user", vec![]),
        ("version", []) => return Ok(None),
        ("rand", []) => call("random", vec![]),
        ("rand", [_]) => return Err(refuse("rand() with a seed is not supported")),
        ("map", pairs) if pairs.len() % 2 == 0 => {
            let half = |at: usize| call("make_array", pairs.iter().skip(at).step_by(2).cloned().collect());
            call("map", vec![half(0), half(1)])
        }
        ("struct", values) => {
            let names = (1..).map(|at| text(&format!("col{at}")));
            let fields = names.zip(values).flat_map(|(name, value)| [name, value.clone()]);
            call("named_struct", fields.collect())
        }
        ("unix_timestamp", []) => {
            whole(call("hive_unix_timestamp", vec![as_type(call("now", vec![]), "Timestamp(µs)")]))
        }
        ("to_unix_timestamp", arguments @ [_, ..]) => {
            return rewrite(&mut call("unix_timestamp", arguments.to_vec()));
        }
        ("unix_timestamp", [value]) => {
            call("hive_unix_timestamp", vec![value.clone(), text("yyyy-MM-dd HH:mm:ss")])
        }
        ("trunc", [value]) => call("trunc", vec![call("hive_number", vec![value.clone()])]),
        ("trunc", [value, unit]) if !is_whole(unit) => {
            call("hive_trunc", vec![as_type(value.clone(), "Date32"), as_text(unit.clone())])
        }
        ("trunc", [value, digits]) => {
            call("trunc", vec![call("hive_number", vec![value.clone()]), digits.clone()])
        }
        ("named_struct", fields) if !fields.is_empty() => {
            let lower = |(at, field): (usize, &Expr)| match text_of(field) {
                Some(name) if at % 2 == 0 => text(&name.to_lowercase()),
                _ => field.clone(),
            };
            call("named_struct", fields.iter().enumerate().map(lower).collect())
        }
        ("shiftleft", [value, by]) => shift(value, BinaryOperator::PGBitwiseShiftLeft, by),
        ("shiftright", [value, by]) => shift(value, BinaryOperator::PGBitwiseShiftRight, by),
        ("sha2", [value, bits]) => {
            let function = match bits.to_string().as_str() {
                "0" | "256" => "sha256",
                "224" => "sha224",
                "384" => "sha384",
                "512" => "sha512",
                _ => return Ok(Some(null())),
            };
            call("encode", vec![call(function, vec![as_text(value.clone())]), text("hex")])
        }
        ("tinyint" | "smallint" | "int" | "bigint" | "float" | "double" | "boolean" | "decimal", [value]) => {
            as_type(
                value.clone(),
                match name {
                    "tinyint" => "Int8",
                    "smallint" => "Int16",
                    "int" => "Int32",
                    "bigint" => "Int64",
                    "float" => "Float32",
                    "double" => "Float64",
                    "boolean" => "Boolean",
                    _ => "Decimal128(10, 0)",
                },
            )
        }
        ("string", [value]) => call("hive_string", vec![value.clone()]),
        ("binary", [value]) => cast(value.clone(), DataType::Bytea),
        ("coalesce", values) if values.len() > 1 => return Ok(None),
        ("assert_true", [condition]) => {
            let refused = refuse("assert_true() is not supported");
            return if matches!(condition, Expr::Value(_)) { Ok(Some(null())) } else { Err(refused) };
        }
        ("nullif", [value, other]) => {
            let same = binary(parentheses(value.clone()), operators::custom("="), parentheses(other.clone()));
            case([(same, null())], value.clone())
        }
        (
            "if" | "nvl" | "isnull" | "isnotnull" | "negative" | "to_date" | "map" | "space" | "ln" | "trunc",
            _,
        ) => {
            return Err(wrong_arguments(name, arguments.len()));
        }
        _ => return Ok(None),
    }))
}

fn shift(value: &Expr, op: BinaryOperator, by: &Expr) -> Expr {
    binary(parentheses(value.clone()), op, parentheses(by.clone()))
}

/// Whether an argument is written as a number.
fn is_whole(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => is_whole(expr),
        _ => false,
    }
}

/// Aggregates with another name, or with another meaning.
fn aggregate(name: &str, function: &mut Function) -> Result<Option<Expr>> {
    let target = match name {
        "variance" | "var_pop" => "var_pop",
        "std" | "stddev" | "stddev_pop" => "stddev_pop",
        "percentile_approx" => "approx_percentile_cont",
        "sum" => "sum",
        "avg" => "avg",
        "collect_list" | "collect_set" | "percentile" => "",
        _ => return Ok(None),
    };
    if !target.is_empty() {
        let mut function = function.clone();
        function.name = vec![datafusion::sql::sqlparser::ast::Ident::new(target)].into();
        if matches!(name, "sum" | "avg")
            && let FunctionArguments::List(list) = &mut function.args
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] = list.args.as_mut_slice()
        {
            let number = if name == "sum" { "hive_number" } else { "hive_averaged" };
            *value = call(number, vec![value.clone()]);
        }
        if matches!(name, "variance" | "var_pop" | "std" | "stddev" | "stddev_pop" | "percentile_approx")
            && let FunctionArguments::List(list) = &mut function.args
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(value))) = list.args.first_mut()
        {
            *value = as_type(value.clone(), "Float64");
        }
        return Ok(Some(Expr::Function(function)));
    }
    let FunctionArguments::List(list) = &mut function.args else { return Ok(None) };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value)), others @ ..] = list.args.as_slice() else {
        return Err(wrong_arguments(name, list.args.len()));
    };
    let (value, others) = (value.clone(), others.to_vec());
    let mut function = function.clone();
    let is_not_null = Expr::IsNotNull(Box::new(parentheses(value.clone())));
    match (name, others.as_slice()) {
        ("collect_list" | "collect_set", []) => {
            function.name = vec![datafusion::sql::sqlparser::ast::Ident::new("array_agg")].into();
            if name == "collect_set"
                && let FunctionArguments::List(list) = &mut function.args
            {
                list.duplicate_treatment = Some(DuplicateTreatment::Distinct);
            }
            function.filter = Some(Box::new(match function.filter.take() {
                Some(filter) => binary(parentheses(*filter), BinaryOperator::And, is_not_null),
                None => is_not_null,
            }));
            let list = Expr::Function(function);
            Ok(Some(call("array_or_empty", vec![list])))
        }
        ("percentile", [FunctionArg::Unnamed(FunctionArgExpr::Expr(share))]) => {
            let share = share.clone();
            let of_one = |share: Expr| {
                let mut function = function.clone();
                function.name = vec![datafusion::sql::sqlparser::ast::Ident::new("percentile_cont")].into();
                if let FunctionArguments::List(list) = &mut function.args {
                    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(as_type(share, "Float64")))];
                }
                let expr = as_type(value.clone(), "Float64");
                function.within_group = vec![ascending(expr)];
                Expr::Function(function)
            };
            Ok(Some(match share {
                Expr::Function(list) if list.name.to_string() == "make_array" => {
                    let shares = arguments_of(&list).unwrap_or_default();
                    call("make_array", shares.into_iter().map(of_one).collect())
                }
                share => of_one(share),
            }))
        }
        _ => Err(wrong_arguments(name, others.len() + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(NAMED.is_sorted_by(|one, other| one.0 < other.0));
        let of_no_value = crate::ast_builder::boolean(true);
        assert_eq!(convert(of_no_value.clone(), '_'), of_no_value);
    }
}
