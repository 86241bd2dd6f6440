//! Quoted literals as arguments of functions whose parameters are no texts: `left(s, '2')`, `power(x, '3')`.
//! They have the type of the parameter, as in PostgreSQL; the planner takes them for texts.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator, Value,
};

use super::{cast, name_of, text_of};

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parameter {
    Integer,
    Double,
    Boolean,
    /// A number like the other argument.
    Number,
}

/// Gives the quoted literals among the arguments their types.
pub(super) fn type_arguments(function: &mut Function) {
    let Some(name) = function.name.0.last().and_then(|name| name.as_ident()).map(name_of) else { return };
    let FunctionArguments::List(list) = &mut function.args else { return };
    let count = list.args.len();
    let mut values: Vec<&mut Expr> = Vec::with_capacity(count);
    for argument in &mut list.args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument else { return };
        values.push(value);
    }
    let are_all_quoted = values.iter().all(|value| text_of(value).is_some());
    for (at, value) in values.into_iter().enumerate() {
        match parameter(&name, at, count) {
            Some(Parameter::Integer) => quoted_integer(value),
            Some(Parameter::Double) if text_of(value).is_some() => {
                *value = cast(value, DataType::DoublePrecision)
            }
            Some(Parameter::Boolean) if text_of(value).is_some() => *value = cast(value, DataType::Boolean),
            Some(Parameter::Number) if !are_all_quoted => quoted_number(value),
            _ => {}
        }
    }
}

/// The parameter at place `at` of `count`, if its literals are to be typed.
fn parameter(name: &str, at: usize, count: usize) -> Option<Parameter> {
    Some(match (name, at, count) {
        ("left" | "right" | "repeat" | "lpad" | "rpad" | "round" | "trunc", 1, _)
        | ("split_part", 2, 3)
        | ("regexp_count" | "regexp_instr" | "regexp_substr", 2, _)
        | ("regexp_instr" | "regexp_substr", 3, _)
        | ("overlay", 2 | 3, _)
        | ("ntile", 0, 1)
        | ("lag" | "lead" | "nth_value", 1, _) => Parameter::Integer,
        ("power" | "pow" | "atan2" | "log", _, 2) | ("percentile_cont" | "percentile_disc", 0, 1) => {
            Parameter::Double
        }
        ("bool_and" | "bool_or" | "every", 0, 1) => Parameter::Boolean,
        ("mod" | "gcd" | "lcm", _, 2) => Parameter::Number,
        _ => return None,
    })
}

/// Makes a quoted literal an integer, or a cast to one, whose error tells what is wrong with it.
pub(super) fn quoted_integer(value: &mut Expr) {
    let Some(text) = text_of(value) else { return };
    *value = match text.trim().parse::<i32>() {
        Ok(number) if number < 0 => Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: Box::new(Expr::value(Value::Number(number.unsigned_abs().to_string(), false))),
        },
        Ok(number) => Expr::value(Value::Number(number.to_string(), false)),
        Err(_) => cast(value, DataType::Integer(None)),
    };
}

fn quoted_number(value: &mut Expr) {
    let is_whole = text_of(value).is_some_and(|text| text.trim().parse::<i32>().is_ok());
    match text_of(value).and_then(super::numeric_of) {
        Some(_) if is_whole => quoted_integer(value),
        Some(number) => *value = number,
        None => quoted_integer(value),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn literals_have_the_type_of_the_parameter() {
        for (sql, expected) in [
            ("left(s, '2')", "left(s, 2)"),
            ("right('abc', ' -1 ')", "right('abc', -1)"),
            ("left('2', x)", "left('2', x)"),
            ("left(s, 'x')", "left(s, CAST('x' AS INTEGER))"),
            ("split_part(s, '1', '2')", "split_part(s, '1', 2)"),
            ("power(x, '3')", "power(x, CAST('3' AS DOUBLE PRECISION))"),
            ("mod(x, '3')", "mod(x, 3)"),
            ("mod('10', '3')", "mod('10', '3')"),
            ("lag(x, '1') OVER ()", "lag(x, 1) OVER ()"),
            ("strpos(s, '1')", "strpos(s, '1')"),
        ] {
            let dialect = PostgreSqlDialect {};
            let mut parser = Parser::new(&dialect).try_with_sql(sql).unwrap();
            let Expr::Function(mut function) = parser.parse_expr().unwrap() else { panic!("{sql}") };
            type_arguments(&mut function);
            assert_eq!(function.to_string(), expected);
        }
    }
}
