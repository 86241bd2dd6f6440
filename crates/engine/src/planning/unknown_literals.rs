//! Quoted literals of unknown type beside typed values: `coalesce(day, '9999-12-31')`, `CASE flag WHEN 'true'
//! THEN …`, `SELECT day … UNION SELECT '9999-12-31'`. They take the type of the other value, as in
//! PostgreSQL; text that is not a literal is rejected there. Beside a NUMERIC they keep their own scale.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::functions_nested::planner::NestedFunctionPlanner;
use datafusion::logical_expr::expr::{InSubquery, ScalarFunction, SetComparison};
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawDictionaryExpr};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, LogicalPlan, Operator, Projection, Union, binary_expr, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use harrier_error::{SqlError, SqlState};
use harrier_functions::array_elements;
use harrier_functions::datetime::duration;
use harrier_planner::rewrite::{input_schema, map_comparison_sides, rewrite_expressions};
use harrier_sql::desugar::array_elements::ELEMENT;
use harrier_sqlstate::IntoDataFusionError;

use crate::types::names::type_name;
use harrier_planner::analyzer::bytea_operators::ByteaOperatorPlanner;
use harrier_planner::analyzer::set_operation_types::is_set_operation;
use harrier_planner::analyzer::text_constants;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The analyzer rule. Must run before type coercion.
#[derive(Debug)]
pub(crate) struct UnknownLiterals;

impl AnalyzerRule for UnknownLiterals {
    fn name(&self) -> &str {
        "unknown_literals"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // A changed node changes the column types of the nodes above.
        let mut is_changed = false;
        let changed = plan.transform_up_with_subqueries(|plan| {
            let plan = if is_changed { plan.recompute_schema()? } else { plan };
            let changed = rewrite_node(plan)?;
            is_changed |= changed.transformed;
            Ok(changed)
        })?;
        Ok(changed.data)
    }
}

/// Type of literals beside arguments of these types in `coalesce` and in results of CASE, if it differs from
/// what type coercion chooses.
pub(crate) fn literal_type(kinds: &[DataType]) -> Option<DataType> {
    let mut others = kinds.iter().filter(|kind| !kind.is_string() && !kind.is_null());
    let kind = others.next()?;
    let is_typed = matches!(
        kind,
        DataType::Boolean
            | DataType::Date32
            | DataType::Time64(_)
            | DataType::Interval(_)
            | DataType::Duration(_)
            | DataType::List(_)
            | DataType::Binary
            | DataType::BinaryView
    );
    (is_typed && others.all(|other| other == kind)).then(|| kind.clone())
}

/// Applies the rule to one node.
///
/// Errors: text stands beside a value of another type (42804).
pub(crate) fn rewrite_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let plan = match plan {
        LogicalPlan::Union(union) => return rewrite_union(union),
        LogicalPlan::Join(join) if is_set_operation(&join) => rewrite_set_difference(join)?,
        LogicalPlan::Projection(projection) => rewrite_assigned_arrays(projection)?,
        other => other,
    };
    let schema = input_schema(&plan)?;
    rewrite_expressions(plan, |mut expr| {
        let is_changed = match &mut expr {
            Expr::WindowFunction(function) if matches!(function.fun.name(), "lag" | "lead") => {
                match_default(&mut function.params.args, &schema)
            }
            Expr::ScalarFunction(function) if returns_argument(function.name()) => {
                let word = function.name().to_uppercase();
                match_all(&word, function.args.iter_mut(), &schema)?
            }
            Expr::Case(case) => {
                let mut is_changed = false;
                if let Some(Ok(kind)) = case.expr.as_ref().map(|base| base.get_type(&schema))
                    && is_of_column(&kind)
                {
                    for (when, _) in &mut case.when_then_expr {
                        is_changed |= coerce_value(when, &kind);
                    }
                }
                let thens = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
                let results = thens.chain(case.else_expr.as_deref_mut());
                is_changed | match_all("CASE", results, &schema)?
            }
            Expr::InSubquery(InSubquery { expr: value, subquery, .. })
            | Expr::SetComparison(SetComparison { expr: value, subquery, .. }) => {
                let kind = subquery.subquery.schema().field(0).data_type();
                is_of_column(kind) && coerce_value(value, kind)
            }
            other => map_comparison_sides(other, |sides| coerce_compared(sides, &schema)),
        };
        Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
    })
}

/// Coerces the literals in the rows of VALUES.
///
/// Errors: as [`rewrite_node`].
pub(crate) fn coerce_rows(rows: &mut [Vec<Expr>]) -> Result<()> {
    let nothing = DFSchema::empty();
    for at in 0..rows.first().map_or(0, Vec::len) {
        match_all("VALUES", rows.iter_mut().filter_map(|row| row.get_mut(at)), &nothing)?;
    }
    Ok(())
}

/// Coerces the literals in the set operations of a relation, whose column types are needed to plan the
/// expressions above: `x + 1` of `SELECT '1' AS x UNION SELECT 2`.
pub(crate) fn coerce_columns(relation: LogicalPlan) -> Result<LogicalPlan> {
    let (LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_)) = &relation else {
        return coerce_below(relation).map(|coerced| coerced.data);
    };
    let coerced = relation.map_children(coerce_below)?;
    if coerced.transformed { coerced.data.recompute_schema() } else { Ok(coerced.data) }
}

/// Relations inside of this one are coerced already.
fn coerce_below(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let below = match plan {
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_) => return Ok(Transformed::no(plan)),
        other => other.map_children(coerce_below)?,
    };
    let is_changed = below.transformed;
    let plan = if is_changed { below.data.recompute_schema()? } else { below.data };
    let mut coerced = match plan {
        LogicalPlan::Union(union) => rewrite_union(union)?,
        LogicalPlan::Join(join) if is_set_operation(&join) => Transformed::yes(rewrite_set_difference(join)?),
        other => Transformed::no(other),
    };
    coerced.transformed |= is_changed;
    Ok(coerced)
}

/// Coerces the literals of a UNION to the column types of its other inputs.
fn rewrite_union(mut union: Union) -> Result<Transformed<LogicalPlan>> {
    let mut is_changed = false;
    for at in 0..union.schema.fields().len() {
        let kinds: Vec<DataType> =
            union.inputs.iter().map(|input| input.schema().field(at).data_type().clone()).collect();
        if kinds.iter().all(|kind| kind.is_string() || kind.is_null()) {
            continue;
        }
        let mut typed = kinds.iter().filter(|kind| is_of_column(kind));
        let Some(kind) = typed.next().filter(|kind| typed.all(|other| other == *kind)) else { continue };
        for (input, _) in union.inputs.iter_mut().zip(&kinds).filter(|(_, kind)| kind.is_string()) {
            if let Some(changed) = with_column_of(input, at, kind)? {
                *input = Arc::new(changed);
                is_changed = true;
            }
        }
    }
    match is_changed {
        true => Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?))),
        false => Ok(Transformed::no(LogicalPlan::Union(union))),
    }
}

/// The same for EXCEPT and INTERSECT, which are planned as joins.
fn rewrite_set_difference(mut join: Join) -> Result<LogicalPlan> {
    let kind_of = |side: &LogicalPlan, at: usize| side.schema().field(at).data_type().clone();
    let mut is_changed = false;
    for at in 0..join.on.len() {
        let (left, right) = (kind_of(&join.left, at), kind_of(&join.right, at));
        let (side, kind) = match (left.is_string(), right.is_string()) {
            (false, true) => (&mut join.right, left),
            (true, false) => (&mut join.left, right),
            _ => continue,
        };
        if is_of_column(&kind)
            && let Some(changed) = with_column_of(side, at, &kind)?
        {
            *side = Arc::new(changed);
            is_changed = true;
        }
    }
    let plan = LogicalPlan::Join(join);
    if is_changed { plan.recompute_schema() } else { Ok(plan) }
}

/// Coerces the literals below casts to arrays: those that INSERT … SELECT '{1,2}' assigns to its columns.
fn rewrite_assigned_arrays(mut assigned: Projection) -> Result<LogicalPlan> {
    for expr in &assigned.expr {
        let Expr::Cast(cast) = expr.clone().unalias() else { continue };
        let (Expr::Column(column), kind @ DataType::List(_)) = (cast.expr.as_ref(), cast.field.data_type())
        else {
            continue;
        };
        if let Some(at) = assigned.input.schema().maybe_index_of_column(column)
            && let Some(changed) = with_column_of(&assigned.input, at, kind)?
        {
            assigned.input = Arc::new(changed);
        }
    }
    Ok(LogicalPlan::Projection(assigned))
}

/// The input with column `at` cast to `kind`, if it is a quoted literal.
fn with_column_of(plan: &LogicalPlan, at: usize, kind: &DataType) -> Result<Option<LogicalPlan>> {
    with_column(plan, at, &|literal| Ok(coerce_value(literal, kind) || coerce_literal(literal, kind)))
}

/// The input with a literal that `coerce` changes as column `at`; `None`: it has not changed.
pub(crate) fn with_column(
    plan: &LogicalPlan,
    at: usize,
    coerce: &dyn Fn(&mut Expr) -> Result<bool>,
) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let mut columns = projection.expr.clone();
            let Some(column) = columns.get_mut(at) else { return Ok(None) };
            let (relation, name) = column.qualified_name();
            let mut literal = std::mem::take(column).unalias();
            if !coerce(&mut literal)? {
                return Ok(None);
            }
            *column = literal.alias_qualified(relation, name);
            let changed = Projection::try_new(columns, Arc::clone(&projection.input))?;
            Ok(Some(LogicalPlan::Projection(changed)))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let changed = with_column(input, at, coerce)?;
            Ok(changed.map(|input| LogicalPlan::Distinct(Distinct::All(Arc::new(input)))))
        }
        _ => Ok(None),
    }
}

/// Gives the value and the default of `lag` and `lead` a common precision and scale. Returns whether that
/// changed them.
fn match_default(arguments: &mut [Expr], schema: &DFSchema) -> bool {
    let [value, _, default] = arguments else { return false };
    let Ok(kind) = value.get_type(schema) else { return false };
    if is_quoted(default) && (matches!(kind, DataType::List(_)) || kind.is_binary()) {
        return coerce_value(default, &kind);
    }
    if !is_decimal(&kind) && !kind.is_integer() {
        return false;
    }
    let mut is_changed = false;
    if is_decimal(&kind) {
        is_changed = coerce_value(default, &kind);
        if let Expr::Literal(ScalarValue::Float64(Some(number)), _) = default
            && let Some(number) = parse_numeric(&number.to_string())
        {
            *default = Expr::Literal(number, None);
            is_changed = true;
        }
    }
    let Ok(other) = default.get_type(schema) else { return is_changed };
    let common = match other.is_numeric() {
        true => type_union_resolution(&[kind.clone(), other.clone()]),
        false => None,
    };
    let Some(common) = common else { return is_changed };
    for (argument, own) in [(value, kind), (default, other)] {
        if own != common {
            *argument = cast(std::mem::take(argument), common.clone());
            is_changed = true;
        }
    }
    is_changed
}

/// Plans operators whose types the planner needs before analyzer rules run: arithmetic with a quoted literal,
/// which takes the other side's type or is an interval beside a time, differences of timestamps, and `||` of
/// an array and a literal.
#[derive(Debug)]
pub(crate) struct LiteralOperators;

impl ExprPlanner for LiteralOperators {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        if expr.op == BinaryOperator::StringConcat {
            return Ok(plan_array_concat(expr, schema));
        }
        if is_quoted(&expr.left) != is_quoted(&expr.right) {
            let (literal, other) = match is_quoted(&expr.left) {
                true => (&mut expr.left, &expr.right),
                false => (&mut expr.right, &expr.left),
            };
            let kind = other.get_type(schema).ok().and_then(|other| operand_type(&other, &expr.op));
            kind.map(|kind| coerce_value(literal, &kind));
        }
        if expr.op == BinaryOperator::Minus {
            let is_time = |kind: &DataType| matches!(kind, DataType::Timestamp(..) | DataType::Date32);
            let kinds = [&expr.left, &expr.right].map(|side| side.get_type(schema).ok().filter(is_time));
            match kinds {
                [Some(kind), None] => coerce_literal(&mut expr.right, &kind),
                [None, Some(kind)] => coerce_literal(&mut expr.left, &kind),
                _ => false,
            };
            return Ok(plan_difference(expr, schema));
        }
        Ok(PlannerResult::Original(expr))
    }

    /// `ARRAY[o.day]`, which was rewritten to a dictionary.
    fn plan_dictionary_literal(
        &self,
        RawDictionaryExpr { keys, values }: RawDictionaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawDictionaryExpr>> {
        let element = lit(ELEMENT);
        if keys.is_empty() || keys.iter().any(|key| *key != element) {
            return Ok(PlannerResult::Original(RawDictionaryExpr { keys, values }));
        }
        let elements = match self.plan_array_literal(values, schema)? {
            PlannerResult::Original(elements) => elements,
            PlannerResult::Planned(array) => return Ok(PlannerResult::Planned(array)),
        };
        // As the planner of arrays would ask those after this one.
        let elements = match ByteaOperatorPlanner.plan_array_literal(elements, schema)? {
            PlannerResult::Original(elements) => elements,
            PlannerResult::Planned(array) => return Ok(PlannerResult::Planned(array)),
        };
        match NestedFunctionPlanner.plan_array_literal(elements, schema)? {
            PlannerResult::Planned(array) => Ok(PlannerResult::Planned(array)),
            PlannerResult::Original(_) => internal_err!("an array was not planned"),
        }
    }

    /// `ARRAY[day, '9999-12-31']`.
    fn plan_array_literal(
        &self,
        mut elements: Vec<Expr>,
        schema: &DFSchema,
    ) -> Result<PlannerResult<Vec<Expr>>> {
        match_all("ARRAY", elements.iter_mut(), schema)?;
        type_nulls(&mut elements, schema);
        Ok(PlannerResult::Original(elements))
    }
}

/// Gives the NULLs of an array of bytes their type: DataFusion has no common type for them.
fn type_nulls(elements: &mut [Expr], schema: &DFSchema) {
    let kinds = elements.iter().filter_map(|element| element.get_type(schema).ok());
    let Some(bytes) = kinds.into_iter().find(DataType::is_binary) else { return };
    for element in elements {
        if matches!(element, Expr::Literal(ScalarValue::Null, _)) {
            *element = cast(std::mem::take(element), bytes.clone());
        }
    }
}

/// Type of a quoted literal opposite an operand of type `other`, if the operator defines one.
fn operand_type(other: &DataType, op: &BinaryOperator) -> Option<DataType> {
    use BinaryOperator::{
        ArrowAt, AtArrow, Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Modulo, Multiply, NotEq, PGOverlap, Plus,
    };
    match (other, op) {
        (DataType::List(_), PGOverlap | AtArrow | ArrowAt) => Some(other.clone()),
        (kind, Eq | NotEq | Lt | LtEq | Gt | GtEq) if is_compared(kind) => Some(kind.clone()),
        (DataType::Interval(_), Plus | Minus) => Some(INTERVAL),
        (DataType::Interval(_), Multiply | Divide) => Some(DataType::Float64),
        (DataType::Timestamp(..) | DataType::Time64(_), Plus) => Some(INTERVAL),
        (number, Plus | Minus | Multiply | Divide | Modulo) if number.is_numeric() => Some(number.clone()),
        _ => None,
    }
}

/// Whether type coercion fails for a literal beside such a value, or converts it to another type.
fn is_compared(kind: &DataType) -> bool {
    is_decimal(kind) || matches!(kind, DataType::Boolean | DataType::List(_))
}

fn is_decimal(kind: &DataType) -> bool {
    matches!(kind, DataType::Decimal128(..) | DataType::Decimal256(..))
}

/// Coerces a quoted literal as [`coerce_literal`] does; beside a NUMERIC it keeps its own scale.
fn coerce_value(expr: &mut Expr, kind: &DataType) -> bool {
    let number = match (&*expr, kind) {
        (Expr::Literal(value, _), _) if is_decimal(kind) => {
            value.try_as_str().flatten().and_then(parse_numeric)
        }
        (Expr::Literal(value, _), DataType::List(element)) if is_decimal(element.data_type()) => {
            value.try_as_str().flatten().and_then(parse_numeric_list)
        }
        _ => None,
    };
    match number {
        Some(number) => {
            *expr = Expr::Literal(number, None);
            true
        }
        // For example NaN, which may stand beside doubles.
        None if is_decimal(kind) => false,
        None => coerce_literal(expr, kind),
    }
}

/// Parses a NUMERIC with the scale that is written. `None`: not a number, or more than 38 digits.
pub(crate) fn parse_numeric(text: &str) -> Option<ScalarValue> {
    let text = text.trim();
    let (is_negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: i128 = digits.parse().ok()?;
    let behind = i16::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    let scale = i8::try_from(behind.max(0)).ok()?;
    let number = number.checked_mul(10_i128.checked_pow(u32::from(behind.min(0).unsigned_abs()))?)?;
    let precision =
        number.checked_ilog10().map_or(1, |digits| digits + 1).max(u32::from(scale.unsigned_abs()));
    let precision = u8::try_from(precision).ok().filter(|digits| *digits <= DECIMAL128_MAX_PRECISION)?;
    Some(ScalarValue::Decimal128(Some(if is_negative { -number } else { number }), precision, scale))
}

/// Parses an array of them. `None`: not an array, or no NUMERIC holds all its numbers.
fn parse_numeric_list(text: &str) -> Option<ScalarValue> {
    let null = ScalarValue::Decimal128(None, 1, 0);
    let numbers = text_constants::elements(text, false).ok()?.into_iter();
    let numbers = numbers.map(|number| match number {
        Some(number) => parse_numeric(&number),
        None => Some(null.clone()),
    });
    let numbers = numbers.collect::<Option<Vec<_>>>()?;
    let kinds: Vec<DataType> = numbers.iter().map(ScalarValue::data_type).collect();
    let common = type_union_resolution(&kinds)?;
    let numbers = numbers.iter().map(|number| number.cast_to(&common)).collect::<Result<Vec<_>>>().ok()?;
    Some(ScalarValue::List(ScalarValue::new_list_nullable(&numbers, &common)))
}

/// Coerces the literals among compared values to the others' type, where type coercion would not.
fn coerce_compared(sides: &mut [&mut Expr], schema: &DFSchema) -> bool {
    if !sides.iter().any(|side| is_quoted(side)) {
        return false;
    }
    let kinds = sides.iter().filter(|side| !is_quoted(side)).filter_map(|side| side.get_type(schema).ok());
    let Some(kind) = kinds.into_iter().find(is_compared) else { return false };
    sides.iter_mut().fold(false, |is_changed, side| coerce_value(side, &kind) | is_changed)
}

/// Makes the difference of timestamps an interval right away: the planner gives it a duration, which has no
/// unary `-` and differs from the intervals of a column in a set operation.
fn plan_difference(expr: RawBinaryExpr, schema: &DFSchema) -> PlannerResult<RawBinaryExpr> {
    let difference = binary_expr(expr.left.clone(), Operator::Minus, expr.right.clone());
    match difference.get_type(schema) {
        Ok(DataType::Duration(_)) => PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(
            duration::function(),
            vec![difference],
        ))),
        _ => PlannerResult::Original(expr),
    }
}

/// `array || '{1}'` and `array || NULL`: the literal is an array, too.
fn plan_array_concat(mut expr: RawBinaryExpr, schema: &DFSchema) -> PlannerResult<RawBinaryExpr> {
    let list_of = |side: &Expr| side.get_type(schema).ok().filter(|kind| matches!(kind, DataType::List(_)));
    let is_null = |side: &Expr| matches!(side, Expr::Literal(value, _) if value.is_null());
    if let Some(call) = plan_decimal_concat(&expr, schema) {
        return PlannerResult::Planned(call);
    }
    match (list_of(&expr.left), list_of(&expr.right)) {
        (Some(_), None) if is_null(&expr.right) => return PlannerResult::Planned(expr.left),
        (None, Some(_)) if is_null(&expr.left) => return PlannerResult::Planned(expr.right),
        (Some(kind), None) => coerce_value(&mut expr.right, &kind),
        (None, Some(kind)) => coerce_value(&mut expr.left, &kind),
        _ => false,
    };
    PlannerResult::Original(expr)
}

/// `||` of an array and a number of which one is of decimals: DataFusion's finds no common type for them.
fn plan_decimal_concat(expr: &RawBinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let item_of = |side: &Expr| match side.get_type(schema) {
        Ok(DataType::List(item)) => Some(item.data_type().clone()),
        _ => None,
    };
    let (array, number, function) = match (item_of(&expr.left), item_of(&expr.right)) {
        (Some(item), None) => (item, &expr.right, array_elements::append()),
        (None, Some(item)) => (item, &expr.left, array_elements::prepend()),
        _ => return None,
    };
    let number_type = number.get_type(schema).ok()?;
    let exact = match number {
        // The planner makes doubles of numbers with a point.
        Expr::Literal(ScalarValue::Float64(Some(value)), _) if is_decimal(&array) => {
            parse_numeric(&value.to_string()).map(|number| Expr::Literal(number, None))
        }
        _ => None,
    };
    let is_of_decimals = number_type.is_numeric()
        && array.is_numeric()
        && array != number_type
        && (is_decimal(&array) || is_decimal(&number_type));
    if !is_of_decimals {
        return None;
    }
    let exact = exact.unwrap_or_else(|| number.clone());
    let arguments = match item_of(&expr.left) {
        Some(_) => vec![expr.left.clone(), exact],
        None => vec![exact, expr.right.clone()],
    };
    Some(function.call(arguments))
}

/// Whether a quoted literal in a set operation takes the type of the column beside it.
fn is_of_column(kind: &DataType) -> bool {
    is_of_literal(kind) || matches!(kind, DataType::List(_))
}

/// Whether a quoted literal may take this type and does not have it already.
fn is_of_literal(kind: &DataType) -> bool {
    !kind.is_string() && !kind.is_null() && !kind.is_nested() && !matches!(kind, DataType::Dictionary(..))
}

/// Whether a function returns one of its arguments, which have a common type.
fn returns_argument(function: &str) -> bool {
    matches!(function, "nullif" | "coalesce" | "nvl" | "ifnull" | "greatest" | "least")
}

/// Coerces the literals among values of a common type to it. `word`: the construct, for the message.
///
/// Errors: text stands beside a value of another type (42804).
fn match_all<'e>(word: &str, values: impl Iterator<Item = &'e mut Expr>, schema: &DFSchema) -> Result<bool> {
    let mut values: Vec<&mut Expr> = values.collect();
    let kinds = values.iter().map(|value| value.get_type(schema)).collect::<Result<Vec<_>>>();
    let Ok(kinds) = kinds else { return Ok(false) };
    if !kinds.iter().any(DataType::is_string) {
        return Ok(false);
    }
    let others: Vec<&DataType> = kinds.iter().filter(|kind| !kind.is_string() && !kind.is_null()).collect();
    if others.is_empty() {
        return Ok(false);
    }
    if others.iter().all(|kind| kind.is_numeric()) && others.iter().any(|kind| is_decimal(kind)) {
        return Ok(values.iter_mut().fold(false, |is_changed, value| {
            coerce_value(value, &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0)) | is_changed
        }));
    }
    if others.iter().all(|kind| kind.is_numeric()) {
        let others: Vec<DataType> = others.into_iter().cloned().collect();
        let Some(common) = type_union_resolution(&others) else { return Ok(false) };
        return Ok(values
            .iter_mut()
            .fold(false, |is_changed, value| coerce_literal(value, &common) | is_changed));
    }
    let is_list = matches!(word, "ARRAY" | "VALUES");
    let time = match others.as_slice() {
        [kind @ DataType::Timestamp(..), more @ ..] if is_list && more.iter().all(|other| other == kind) => {
            Some((*kind).clone())
        }
        _ => None,
    };
    let Some(kind) = time.or_else(|| literal_type(&kinds)) else { return Ok(false) };
    let mut is_changed = false;
    for (value, own) in values.iter_mut().zip(&kinds) {
        if coerce_literal(value, &kind) {
            is_changed = true;
        } else if own.is_string() {
            let (kind, text) = (type_name(&kind), type_name(&DataType::Utf8));
            let message = format!("{word} types {kind} and {text} cannot be matched");
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).into_datafusion());
        }
    }
    Ok(is_changed)
}

pub(crate) fn is_quoted(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_)), _))
}

/// Casts a quoted literal to a type. Returns whether the expression was one.
fn coerce_literal(expr: &mut Expr, kind: &DataType) -> bool {
    let is_text = is_quoted(expr);
    if is_text {
        *expr = cast(std::mem::take(expr), kind.clone());
    }
    is_text
}
