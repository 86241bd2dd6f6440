//! Coerces the columns of EXCEPT and INTERSECT to the common type of both sides, as in UNION. DataFusion
//! plans joins that return the rows of the left side unchanged: a REAL with a double on the right would be
//! formatted as REAL, a date with a timestamp as a date, and half of an integer with a NUMERIC would have no
//! fraction. The same holds above a UNION of integers and decimals, which was planned with the types of the
//! first query.
//!
//! ```text
//! LeftAnti Join: l.x = r.x      LeftAnti Join: l.x = r.x
//!   l (x real)              ─►    Projection: CAST(l.x AS Float64) AS x
//!   r (x double)                    l
//!                                 r
//! Projection: x / 2             Projection: harrier_quotient(x, 2)
//!   Union                   ─►    Union
//!     l (x integer)                 Projection: CAST(l.x AS Decimal) AS x
//!     r (x numeric)                   l
//!                                   r
//! ```
//!
//! `SetOperationTypes` can go when EXCEPT and INTERSECT coerce the types of both sides as UNION does; no
//! issue was found. PostgreSQL 10.5.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder, Union, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::analyzer::decimal_float_coercion::is_double_column;
use crate::binder::decimal_division::replan_decimal;
use crate::binder::integer_width::is_int4;
use crate::rewrite::{has_stale_schema, input_schema, rewrite_expressions, strip_alias};

/// The analyzer rule; runs before type coercion, and after the rule that determines which numbers are
/// doubles.
#[derive(Debug)]
pub(crate) struct SetOperationTypes;

impl AnalyzerRule for SetOperationTypes {
    fn name(&self) -> &str {
        "set_operation_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // Above a changed node, column types differ.
        let mut is_changed = false;
        let changed = plan.transform_up_with_subqueries(|plan| {
            let plan = match is_changed {
                true => replan_divisions(plan.recompute_schema()?)?,
                false => Transformed::no(plan),
            };
            let changed = plan.transform_data(|plan| match plan {
                LogicalPlan::Join(join) => coerce_set_operation(join),
                LogicalPlan::Union(union) => coerce_union(union),
                other => Ok(Transformed::no(other)),
            })?;
            is_changed |= changed.transformed;
            Ok(changed)
        })?;
        Ok(changed.data)
    }
}

/// Plans divisions again that were planned with integers and now have decimals.
fn replan_divisions(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&plan)?;
    rewrite_expressions(plan, |expr| Ok(replan_decimal(expr, &schema)))
}

/// Casts the inputs of a UNION of integers and decimals to decimals first, so that operators above are
/// planned with these.
fn coerce_union(mut union: Union) -> Result<Transformed<LogicalPlan>> {
    let plan = LogicalPlan::Union(union.clone());
    let kinds: Vec<Option<DataType>> = (0..union.schema.fields().len())
        .map(|at| {
            let is_whole = |input: &Arc<LogicalPlan>| input.schema().field(at).data_type().is_integer();
            let kind = column_type(&plan, at);
            (kind.is_decimal() && union.inputs.iter().any(is_whole)).then_some(kind)
        })
        .collect();
    if kinds.iter().all(Option::is_none) && !has_stale_schema(&union) {
        return Ok(Transformed::no(plan));
    }
    for input in &mut union.inputs {
        *input = Arc::new(cast_columns(input, &kinds)?);
    }
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?)))
}

/// Whether a join is EXCEPT or INTERSECT: on all columns, with NULL equal to NULL.
pub fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftAnti | JoinType::LeftSemi)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len()
        && join.on.len() == join.right.schema().fields().len()
}

fn coerce_set_operation(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    if !is_set_operation(&join) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let kinds: Vec<Option<DataType>> = (0..join.on.len()).map(|at| common_type(&join, at)).collect();
    let mut is_changed = false;
    for at in 0..join.on.len() {
        if is_real_beside_numeric(&join, at) {
            let key = &mut join.on[at].1;
            *key = cast(std::mem::take(key), DataType::Float32);
            is_changed = true;
        }
    }
    if kinds.iter().all(Option::is_none) {
        let join = LogicalPlan::Join(join);
        return Ok(if is_changed { Transformed::yes(join) } else { Transformed::no(join) });
    }
    for (at, kind) in kinds.iter().enumerate() {
        // Decimals are compared with doubles as doubles.
        let is_mixed = kind.as_ref().is_some_and(DataType::is_decimal)
            && column_type(&join.right, at) == DataType::Float64;
        if is_mixed {
            let key = &mut join.on[at].0;
            *key = cast(std::mem::take(key), DataType::Float64);
        }
    }
    join.left = match join.left.as_ref() {
        LogicalPlan::Distinct(Distinct::All(rows)) => {
            let rows = Arc::new(cast_columns(rows, &kinds)?);
            Arc::new(LogicalPlan::Distinct(Distinct::All(rows)))
        }
        rows => Arc::new(cast_columns(rows, &kinds)?),
    };
    LogicalPlan::Join(join).recompute_schema().map(Transformed::yes)
}

/// The common type to cast a left column to; `None`: it already has it.
fn common_type(join: &Join, at: usize) -> Option<DataType> {
    use DataType::{Date32, Float32, Float64, Timestamp};
    let (left, right) = (column_type(&join.left, at), column_type(&join.right, at));
    let wider = match (&left, &right) {
        (Date32, Timestamp(..)) | (Timestamp(_, None), Timestamp(_, Some(_))) => right,
        (Float32, Float64) if is_double_column(&join.right, at) => right,
        (left, Float32) if left.is_integer() || left.is_decimal() => right,
        (left, Float64) if left.is_integer() || left.is_decimal() => {
            match is_double_column(&join.right, at) {
                true => right,
                // It is NUMERIC in PostgreSQL. As a double it has fewer digits than an integer.
                false => integer_decimal(left)?,
            }
        }
        (left, right) if left.is_integer() && right.is_decimal() => integer_decimal(left)?,
        (left, right) => {
            // Integer literals are 64-bit here.
            let is_small = *right == DataType::Int64 && is_int4_column(&join.right, at);
            let right = if is_small { DataType::Int32 } else { right.clone() };
            if bits_of(left)? >= bits_of(&right)? {
                return None;
            }
            right
        }
    };
    (wider != *join.left.schema().field(at).data_type()).then_some(wider)
}

/// Whether the left column is REAL and the right one is NUMERIC in PostgreSQL, but a double here: both become
/// REAL, unless already cast.
fn is_real_beside_numeric(join: &Join, at: usize) -> bool {
    column_type(&join.left, at) == DataType::Float32
        && column_type(&join.right, at) == DataType::Float64
        && matches!(join.on[at].1, Expr::Column(_))
        && !is_double_column(&join.right, at)
}

/// The decimal type that holds all values of an integer type.
fn integer_decimal(kind: &DataType) -> Option<DataType> {
    use DataType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let digits = match kind {
        Int8 | UInt8 => 3,
        Int16 | UInt16 => 5,
        Int32 | UInt32 => 10,
        Int64 => 19,
        UInt64 => 20,
        _ => return None,
    };
    Some(DataType::Decimal128(digits, 0))
}

/// The width of a signed integer type.
fn bits_of(kind: &DataType) -> Option<u32> {
    match kind {
        DataType::Int8 => Some(8),
        DataType::Int16 => Some(16),
        DataType::Int32 => Some(32),
        DataType::Int64 => Some(64),
        _ => None,
    }
}

/// The type of a column; for an uncoerced UNION, which has the type of its first input, the common type of
/// all inputs.
fn column_type(plan: &LogicalPlan, at: usize) -> DataType {
    let own = || plan.schema().field(at).data_type().clone();
    match plan {
        LogicalPlan::Union(union) => {
            let kinds: Vec<DataType> = union.inputs.iter().map(|input| column_type(input, at)).collect();
            type_union_resolution(&kinds).unwrap_or_else(own)
        }
        LogicalPlan::Distinct(Distinct::All(rows)) => column_type(rows, at),
        LogicalPlan::SubqueryAlias(alias) => column_type(&alias.input, at),
        LogicalPlan::Projection(list) => match list.expr.get(at).map(strip_alias) {
            Some(Expr::Column(column)) => match list.input.schema().maybe_index_of_column(column) {
                Some(at) => column_type(&list.input, at),
                None => own(),
            },
            _ => own(),
        },
        _ => own(),
    }
}

/// Whether a column is a 32-bit integer in PostgreSQL, where literals are 64-bit here.
fn is_int4_column(plan: &LogicalPlan, at: usize) -> bool {
    match plan {
        LogicalPlan::Projection(list) => match list.expr.get(at).map(strip_alias) {
            Some(Expr::Column(column)) => list
                .input
                .schema()
                .maybe_index_of_column(column)
                .is_some_and(|at| is_int4_column(&list.input, at)),
            Some(expr) => is_int4(expr, list.input.schema()),
            None => false,
        },
        LogicalPlan::SubqueryAlias(alias) => is_int4_column(&alias.input, at),
        LogicalPlan::Filter(filter) => is_int4_column(&filter.input, at),
        LogicalPlan::Sort(sort) => is_int4_column(&sort.input, at),
        LogicalPlan::Limit(limit) => is_int4_column(&limit.input, at),
        LogicalPlan::Distinct(Distinct::All(rows)) => is_int4_column(rows, at),
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| is_int4_column(input, at)),
        LogicalPlan::Values(values) => values
            .values
            .iter()
            .all(|row| row.get(at).is_some_and(|value| is_int4(value, &DFSchema::empty()))),
        _ => bits_of(plan.schema().field(at).data_type()).is_some_and(|bits| bits <= 32),
    }
}

fn cast_columns(rows: &LogicalPlan, kinds: &[Option<DataType>]) -> Result<LogicalPlan> {
    let columns = rows.schema().iter().zip(kinds).map(|((relation, field), kind)| {
        let column = Expr::from((relation, field));
        match kind {
            Some(kind) => cast(column, kind.clone()).alias_qualified(relation.cloned(), field.name()),
            None => column,
        }
    });
    LogicalPlanBuilder::from(rows.clone()).project(columns.collect::<Vec<_>>())?.build()
}
