//! Common types of numeric alternatives: branches of a CASE, arguments of coalesce, greatest and least,
//! elements of an ARRAY, columns of a UNION.
//!
//! A double with a NUMERIC yields double, and a REAL with a NUMERIC or an integer yields REAL, as in
//! PostgreSQL. DataFusion chooses decimals with seven or fifteen fractional digits, which cannot hold very
//! small or large numbers, NaN and infinity.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{ScalarValue, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Projection, Union, cast,
};

use crate::rewrite::has_stale_schema;

use super::{Scope, is_decimal, is_double_column, is_exact_real, is_real};

/// The properties of a number that determine the common type.
struct Number {
    kind: DataType,
    /// Whether it is a double in PostgreSQL too.
    is_double: bool,
}

/// The common type of numbers, if it is a REAL or a double that DataFusion would not choose.
fn common_type(numbers: &[Option<Number>]) -> Option<DataType> {
    let known = || numbers.iter().flatten();
    let is_any_decimal = known().any(|number| is_decimal(&number.kind));
    if known().any(|number| number.kind == DataType::Float64 && number.is_double) {
        return is_any_decimal.then_some(DataType::Float64);
    }
    let is_mixed = known().any(|number| !is_real(&number.kind));
    (is_mixed && known().any(|number| is_real(&number.kind))).then_some(DataType::Float32)
}

impl Scope<'_> {
    fn number(&self, expr: &Expr) -> Option<Number> {
        let kind = expr.get_type(self.schema).ok().filter(DataType::is_numeric)?;
        let is_double = kind == DataType::Float64 && self.is_double(expr);
        Some(Number { kind, is_double })
    }

    /// Casts the alternatives of an expression to their common type; returns whether it changed anything.
    pub(super) fn coerce_alternatives(&self, expr: &mut Expr) -> bool {
        let mut values: Vec<&mut Expr> = match expr {
            Expr::Case(case) => {
                let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
                results.chain(case.else_expr.as_deref_mut()).collect()
            }
            Expr::ScalarFunction(function) if returns_argument(function.name()) => {
                function.args.iter_mut().collect()
            }
            _ => return false,
        };
        let numbers: Vec<Option<Number>> = values.iter().map(|value| self.number(value)).collect();
        let Some(kind) = common_type(&numbers) else { return false };
        for (value, number) in values.iter_mut().zip(numbers) {
            if number.is_some_and(|number| number.kind != kind) {
                **value = cast(std::mem::take(*value), kind.clone());
            }
        }
        true
    }

    /// Rewrites nullif to compare its arguments as `=` does, and to return the first in the type of that
    /// comparison: PostgreSQL compares a REAL with a double as it is, and casts other numbers to double.
    /// Returns whether it changed anything.
    pub(super) fn rewrite_nullif(&self, expr: &mut Expr) -> bool {
        let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return false };
        let ("nullif", [value, other]) = (func.name(), args.as_slice()) else { return false };
        let [first, second] = [value, other].map(|side| side.get_type(self.schema).ok());
        let (Some(first), Some(second)) = (first, second) else { return false };
        let is_other = first != second && first.is_numeric() && second.is_numeric();
        let is_mixed = first.is_floating() && is_decimal(&second)
            || is_decimal(&first) && second.is_floating()
            || is_real(&first) && !(second.is_integer() && is_exact_real(other))
            || is_real(&second);
        if !is_other || !is_mixed || value.is_volatile() {
            return false;
        }
        let (mut left, mut right) = (value.clone(), other.clone());
        self.coerce_sides(&mut [&mut left, &mut right]);
        let equal = Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::Eq, Box::new(right)));
        let kind = if is_real(&first) { DataType::Float32 } else { DataType::Float64 };
        let Ok(null) = ScalarValue::try_new_null(&kind) else { return false };
        let value = if first == kind { value.clone() } else { cast(value.clone(), kind) };
        *expr = Expr::Case(Case {
            expr: None,
            when_then_expr: vec![(Box::new(equal), Box::new(Expr::Literal(null, None)))],
            else_expr: Some(Box::new(value)),
        });
        true
    }
}

/// Whether a function returns one of its arguments, or all of them as an array.
fn returns_argument(function: &str) -> bool {
    matches!(function, "coalesce" | "nvl" | "ifnull" | "greatest" | "least" | "make_array")
}

/// Casts the columns of a UNION to their common type.
pub(super) fn coerce_union(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Union(union) = &plan else { return Ok(Transformed::no(plan)) };
    let kinds: Vec<Option<DataType>> = (0..union.schema.fields().len())
        .map(|at| {
            let number = |input: &Arc<LogicalPlan>| {
                let kind = input.schema().fields().get(at)?.data_type().clone();
                let is_double = kind == DataType::Float64 && is_double_column(input, at);
                kind.is_numeric().then_some(Number { kind, is_double })
            };
            common_type(&union.inputs.iter().map(number).collect::<Vec<_>>())
        })
        .collect();
    if kinds.iter().all(Option::is_none) {
        let inputs = has_stale_schema(union).then(|| union.inputs.clone());
        return match inputs {
            Some(inputs) => {
                Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
            }
            None => Ok(Transformed::no(plan)),
        };
    }
    let inputs = union.inputs.iter().map(|input| cast_columns(input, &kinds)).collect::<Result<_>>()?;
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
}

/// Casts numeric columns of `input` to the given types.
fn cast_columns(input: &Arc<LogicalPlan>, kinds: &[Option<DataType>]) -> Result<Arc<LogicalPlan>> {
    let columns = input.schema().iter().zip(kinds).map(|((relation, field), kind)| {
        let column = Expr::from((relation, field));
        match kind {
            Some(kind) if field.data_type().is_numeric() && field.data_type() != kind => {
                let relation: Option<TableReference> = relation.cloned();
                cast(column, kind.clone()).alias_qualified(relation, field.name())
            }
            _ => column,
        }
    });
    let projection = Projection::try_new(columns.collect(), Arc::clone(input))?;
    Ok(Arc::new(LogicalPlan::Projection(projection)))
}
