//! Expressions that may fail for some rows: they divide, overflow a type, or parse a text.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator};

/// Functions that return a value for every row, whatever their arguments. The planner's guard functions are
/// listed although they fail on purpose: the code that inserts them chooses their place.
const INFALLIBLE: &[&str] = &[
    "ascii",
    "bit_length",
    "btrim",
    "character_length",
    "coalesce",
    "contains",
    "date_part",
    "ends_with",
    "harrier_as_is",
    "harrier_bucket",
    "harrier_checked",
    "harrier_nearest_double",
    "harrier_never",
    "harrier_only",
    "harrier_round",
    "harrier_row_sample",
    "harrier_sample",
    "harrier_unsigned_nan",
    "harrier_written",
    "initcap",
    "isnan",
    "lower",
    "ltrim",
    "nullif",
    "octet_length",
    "reverse",
    "rtrim",
    "starts_with",
    "strpos",
    "upper",
];

/// Whether an expression may fail for some rows. With unknown types it may.
///
/// Errors: those of the tree traversal.
pub fn may_fail(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    expr.exists(|part| Ok(has_risk(part) && is_fallible(part, schema)))
}

/// Whether an expression may fail for some rows by a part that depends on the row. Others are computed once,
/// before any row.
pub fn may_fail_by_row(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let depends = |part: &Expr| part.any_column_refs() || part.contains_outer() || part.is_volatile();
    expr.exists(|part| Ok(has_risk(part) && depends(part) && is_fallible(part, schema)))
}

/// Whether an expression contains a part that may fail by its form, whatever the types.
pub fn has_risk(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, right, .. }) => is_arithmetic(*op) || is_dynamic_regex(*op, right),
        Expr::ScalarFunction(ScalarFunction { func, .. }) => !INFALLIBLE.contains(&func.name()),
        Expr::Cast(_) | Expr::Negative(_) => true,
        _ => false,
    }
}

fn is_fallible(expr: &Expr, schema: &DFSchema) -> bool {
    let type_of = |expr: &Expr| expr.get_type(schema).ok();
    match expr {
        // Float arithmetic overflows to infinity, but does not divide by zero.
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_arithmetic(*op) => {
            matches!(op, Operator::Divide | Operator::Modulo) && !is_nonzero(right)
                || !(is_float(type_of(left)) && is_float(type_of(right)))
        }
        Expr::Negative(inner) => !is_float(type_of(inner)),
        Expr::Cast(Cast { expr, field }) => {
            !type_of(expr).is_some_and(|from| is_widening(&from, field.data_type()))
        }
        _ => true,
    }
}

/// Whether an expression is a number other than zero.
pub(crate) fn is_nonzero(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => {
            let number = value.cast_to(&DataType::Float64);
            matches!(number, Ok(ScalarValue::Float64(Some(number))) if number != 0.0)
        }
        Expr::Cast(Cast { expr, field }) => field.data_type().is_floating() && is_nonzero(expr),
        _ => false,
    }
}

fn is_arithmetic(op: Operator) -> bool {
    use Operator::{
        BitwiseShiftLeft, BitwiseShiftRight, Divide, IntegerDivide, Minus, Modulo, Multiply, Plus,
    };
    matches!(
        op,
        Plus | Minus | Multiply | Divide | IntegerDivide | Modulo | BitwiseShiftLeft | BitwiseShiftRight
    )
}

/// Whether a regular expression's pattern is not a constant. A constant is checked once, before any row.
fn is_dynamic_regex(op: Operator, pattern: &Expr) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
        && !matches!(pattern, Expr::Literal(..))
}

fn is_float(kind: Option<DataType>) -> bool {
    kind.is_some_and(|kind| kind.is_floating())
}

/// Whether every value of `from` is also a value of `to`.
fn is_widening(from: &DataType, to: &DataType) -> bool {
    use DataType::{Boolean, Date32, Dictionary, Float32, Float64, Null, Timestamp};
    let bits = |kind: &DataType| kind.primitive_width().map_or(0, |bytes| bytes * 8);
    match (from, to) {
        (from, to) if from == to || *from == Null => true,
        (Dictionary(_, from), to) => is_widening(from, to),
        (from, Dictionary(_, to)) => is_widening(from, to),
        (from, Float64) => from.is_numeric(),
        (from, Float32) => from.is_integer(),
        (Boolean, to) => to.is_integer() || to.is_string(),
        (Timestamp(..), Date32) => true,
        (from, to) if to.is_string() => from.is_string() || from.is_numeric(),
        (from, to) if from.is_signed_integer() && to.is_signed_integer() => bits(from) <= bits(to),
        (from, to) if from.is_unsigned_integer() && to.is_integer() => bits(from) < bits(to),
        (from, to) => match (digits_of(from), digits_of(to)) {
            (Some((whole, scale)), Some((most, places))) if is_decimal(to) => {
                whole <= most && scale <= places
            }
            _ => false,
        },
    }
}

fn is_decimal(kind: &DataType) -> bool {
    matches!(kind, DataType::Decimal128(..) | DataType::Decimal256(..))
}

/// The maximum number of digits before and after the decimal point in a type.
fn digits_of(kind: &DataType) -> Option<(i16, i16)> {
    Some(match kind {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            (i16::from(*precision) - i16::from(*scale), i16::from(*scale))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema, TimeUnit};
    use datafusion::common::ToDFSchema;
    use datafusion::functions::expr_fn::{lower, substr};
    use datafusion::logical_expr::{cast, col, lit, try_cast};

    use super::*;

    #[test]
    fn divisions_casts_and_calls_may_fail() {
        let schema = Schema::new(vec![
            Field::new("i", DataType::Int32, true),
            Field::new("f", DataType::Float64, true),
            Field::new("s", DataType::Utf8, true),
            Field::new("n", DataType::Decimal128(10, 2), true),
        ]);
        let schema = schema.to_dfschema().unwrap();
        let fails = |expr: Expr| may_fail(&expr, &schema).unwrap();
        for expr in [
            lit(1) / col("i"),
            col("i") + lit(1),
            cast(col("s"), DataType::Int32),
            cast(col("i"), DataType::Int16),
            cast(col("n"), DataType::Decimal128(9, 2)),
            cast(col("n"), DataType::Decimal128(10, 3)),
            cast(col("i"), DataType::Decimal128(9, 0)),
            cast(col("f"), DataType::Float32),
            cast(col("f"), DataType::Int64),
            substr(col("s"), col("i")),
            lower(cast(col("s"), DataType::Date32)).eq(lit("a")),
            -col("i"),
            col("f") / lit(0.0),
            col("f") / col("f"),
        ] {
            assert!(fails(expr.clone()), "{expr}");
        }
        for expr in [
            col("i").not_eq(lit(0)).and(col("s").like(lit("a%"))),
            col("f") / lit(2.0),
            -col("f"),
            cast(col("i"), DataType::Int64).gt(lit(1_i64)),
            cast(col("i"), DataType::Float64).gt(lit(1.0)),
            cast(col("n"), DataType::Float64).gt(lit(1.0)),
            cast(col("n"), DataType::Decimal128(12, 3)).is_null(),
            cast(col("i"), DataType::Decimal128(12, 2)).is_null(),
            cast(col("i"), DataType::Utf8).is_null(),
            try_cast(col("s"), DataType::Int32).is_null(),
            lower(col("s")).eq(lit("a")),
        ] {
            assert!(!fails(expr.clone()), "{expr}");
        }
        assert!(is_widening(&DataType::Timestamp(TimeUnit::Microsecond, None), &DataType::Date32));
        assert!(!is_widening(&DataType::Binary, &DataType::Utf8));
        assert!(!is_widening(&DataType::UInt64, &DataType::Int64));
        assert!(is_widening(&DataType::UInt32, &DataType::Int64));
    }
}
