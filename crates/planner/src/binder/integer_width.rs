//! The integers that have 32 bits in PostgreSQL: literals that fit, and expressions of these. DataFusion
//! types them as 64 bits, which shows in shifts and in type names.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use harrier_functions::math::checked::Operation;

/// Whether an expression is an integer of at most 32 bits.
pub(crate) fn is_int4(expr: &Expr, schema: &DFSchema) -> bool {
    let is_small = |expr: &Expr| is_int4(expr, schema);
    let is_null = |expr: &Expr| expr.get_type(schema).is_ok_and(|kind| kind.is_null());
    let are_small = |values: &mut dyn Iterator<Item = &Expr>| {
        let mut values = values.filter(|value| !is_null(value)).peekable();
        values.peek().is_some() && values.all(is_small)
    };
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => i32::try_from(*number).is_ok(),
        Expr::Alias(alias) => is_small(&alias.expr),
        Expr::Negative(inner) => match inner.as_ref() {
            Expr::Literal(ScalarValue::Int64(Some(number)), _) => {
                number.checked_neg().is_some_and(|number| i32::try_from(number).is_ok())
            }
            inner => is_small(inner),
        },
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_integer_operator(*op) => {
            is_small(left) && is_small(right)
        }
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            are_small(&mut results.chain(case.else_expr.as_deref()))
        }
        Expr::ScalarFunction(call) => match call.func.name() {
            "abs" | "coalesce" | "gcd" | "greatest" | "lcm" | "least" | "mod" => {
                are_small(&mut call.args.iter())
            }
            "nullif" => are_small(&mut call.args.iter().take(1)),
            name if name == Operation::Terms.name() => are_small(&mut call.args.iter().skip(1)),
            _ => has_small_type(expr, schema),
        },
        expr => has_small_type(expr, schema),
    }
}

fn has_small_type(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Int8 | DataType::Int16 | DataType::Int32))
}

fn is_integer_operator(op: Operator) -> bool {
    use Operator::{BitwiseAnd, BitwiseOr, BitwiseXor, Divide, Minus, Modulo, Multiply, Plus};
    matches!(op, Plus | Minus | Multiply | Divide | Modulo | BitwiseAnd | BitwiseOr | BitwiseXor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{cast, lit, when};

    #[test]
    fn small_integer_expressions_are_int4() {
        let is = |expr: &Expr| is_int4(expr, &DFSchema::empty());
        let one = || lit(1_i64);
        assert!(is(&one()) && is(&(one() + one() * one())) && is(&-lit(2_147_483_648_i64)));
        assert!(is(&when(lit(true), one()).otherwise(lit(ScalarValue::Null)).unwrap()));
        assert!(is(&(cast(one(), DataType::Int16) + one())));
        assert!(!is(&lit(3_000_000_000_i64)) && !is(&(one() + lit(3_000_000_000_i64))));
        assert!(!is(&cast(one(), DataType::Int64)) && !is(&(cast(one(), DataType::Int64) + one())));
        assert!(!is(&lit(1.5)) && !is(&lit(ScalarValue::Null)));
    }
}
