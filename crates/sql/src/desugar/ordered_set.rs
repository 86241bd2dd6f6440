//! Ordered-set aggregates that DataFusion does not have.
//!
//! ```text
//! percentile_disc(p) WITHIN GROUP (ORDER BY x)   ──►  array_agg(x ORDER BY x)[ceil(p * count(x))]
//! percentile_cont(ARRAY[p, q]) WITHIN GROUP (…)  ──►  ARRAY[percentile_cont(p) …, percentile_cont(q) …]
//! mode() WITHIN GROUP (ORDER BY x)               ──►  mode(x)
//! ```

use crate::ast_builder::{binary, function_call};
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Ident, ObjectName, OrderByExpr, Value, ValueWithSpan,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::identifier::plain;

/// Rewrites a call, if it is one.
///
/// Errors: a fraction outside of 0 to 1 (22003).
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let Expr::Function(function) = expr else { return Ok(()) };
    let ([key], Some(name)) = (function.within_group.as_slice(), name_of(function)) else { return Ok(()) };
    let key = key.clone();
    let fraction = argument_of(function).cloned();
    match (name.as_str(), fraction) {
        ("mode", None) => {
            let descends = key.options.asc == Some(false);
            let mut arguments = vec![key.expr];
            if descends {
                arguments.push(Expr::value(Value::Boolean(true)));
            }
            function.within_group = vec![];
            function.args = function_call("mode", arguments).args;
        }
        ("percentile_cont" | "percentile_disc", Some(Expr::Array(fractions))) => {
            let mut elem = Vec::with_capacity(fractions.elem.len());
            for fraction in fractions.elem {
                let mut of_one = function.clone();
                of_one.args = function_call(&name, vec![fraction]).args;
                let mut of_one = Expr::Function(of_one);
                rewrite(&mut of_one)?;
                elem.push(of_one);
            }
            *expr = Expr::Array(Array { elem, named: true });
        }
        ("percentile_disc", Some(fraction)) => {
            check(&fraction)?;
            *expr = element(function, &key, fraction);
        }
        _ => {}
    }
    Ok(())
}

fn name_of(function: &Function) -> Option<String> {
    match function.name.0.as_slice() {
        [name] => name.as_ident().map(plain),
        [schema, name] if schema.as_ident().is_some_and(|schema| plain(schema) == "pg_catalog") => {
            name.as_ident().map(plain)
        }
        _ => None,
    }
}

fn argument_of(function: &Function) -> Option<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => Some(argument),
        _ => None,
    }
}

fn check(fraction: &Expr) -> Result<()> {
    let Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) = fraction else { return Ok(()) };
    match text.parse::<f64>() {
        Ok(fraction) if !(0.0..=1.0).contains(&fraction) => {
            let message = format!("percentile value {text} is not between 0 and 1");
            Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message).into_datafusion())
        }
        _ => Ok(()),
    }
}

/// The first non-NULL value, in order, at or after a fraction of all of them.
fn element(function: &Function, key: &OrderByExpr, fraction: Expr) -> Expr {
    let call = |name: &str, filter: Option<Box<Expr>>| Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        within_group: vec![],
        args: function_call(name, vec![key.expr.clone()]).args,
        filter,
        ..function.clone()
    };
    let is_there = Expr::IsNotNull(Box::new(Expr::Nested(Box::new(key.expr.clone()))));
    let filter = match &function.filter {
        Some(own) => binary(Expr::Nested(own.clone()), BinaryOperator::And, is_there),
        None => is_there,
    };
    let mut values = call("array_agg", Some(Box::new(filter)));
    if let FunctionArguments::List(list) = &mut values.args {
        list.clauses.push(FunctionArgumentClause::OrderBy(vec![key.clone()]));
    }
    let count = Expr::Function(call("count", function.filter.clone()));
    let place = Expr::Function(function_call(
        "ceil",
        vec![binary(Expr::Nested(Box::new(fraction)), BinaryOperator::Multiply, count)],
    ));
    let place = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(place),
        data_type: DataType::BigInt(None),
        array: false,
        format: None,
    };
    let one = Expr::value(Value::Number("1".to_string(), false));
    let place = Expr::Function(function_call("greatest", vec![place, one]));
    Expr::Function(function_call("array_element", vec![Expr::Function(values), place]))
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn ordered_set_aggregates_are_rewritten_for_the_planner() {
        for (sql, expected) in [
            ("SELECT mode() WITHIN GROUP (ORDER BY a)", "SELECT mode(a)"),
            ("SELECT mode() WITHIN GROUP (ORDER BY a DESC)", "SELECT mode(a, true)"),
            (
                "SELECT percentile_cont(ARRAY[0.1, 0.2]) WITHIN GROUP (ORDER BY a)",
                "SELECT {'harrier_element': percentile_cont(0.1) WITHIN GROUP (ORDER BY a), \
                 'harrier_element': percentile_cont(0.2) WITHIN GROUP (ORDER BY a)}",
            ),
            (
                "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY a DESC) FILTER (WHERE b)",
                "SELECT array_element(array_agg(a ORDER BY a DESC) FILTER (WHERE (b) AND (a) IS NOT NULL), \
                 greatest(CAST(ceil((0.5) * count(a) FILTER (WHERE b)) AS BIGINT), 1))",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        assert!(rewritten("SELECT percentile_disc(1.5) WITHIN GROUP (ORDER BY a)").is_err());
    }
}
