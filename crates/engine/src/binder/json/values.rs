//! Analyzer rule for values of `json` and `jsonb`: casts, comparisons, GROUP BY and ORDER BY. DataFusion
//! would treat them as text.
//!
//! The rule also knows the types of columns whose field metadata a union or CASE lost
//! ([`crate::binder::type_names`]), and marks the arguments of JSON functions accordingly.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::functions::encoding::expr_fn::encode;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Between, Case, InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Cast, Distinct, Expr, Join, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
    SortExpr, Subquery, binary_expr, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;
use harrier_error::{SqlError, SqlState};
use harrier_functions::json::{self, Kind};
use harrier_sqlstate::IntoDataFusionError;

use super::{Types, call, is_open, key, parse_text};
use crate::binder::type_names;
use crate::planning::unknown_literals::{is_quoted, with_column};
use crate::types::names::type_name;
use harrier_planner::analyzer::set_operation_types::is_set_operation;
use harrier_planner::rewrite::{is_comparison, rewrite_expressions};

/// The rule. Must run before type coercion.
#[derive(Debug)]
pub(crate) struct JsonValues;

impl AnalyzerRule for JsonValues {
    fn name(&self) -> &str {
        "json_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        match has_json(&plan)? {
            true => Ok(plan.transform_up_with_subqueries(rewrite_node)?.data),
            false => Ok(plan),
        }
    }
}

/// Whether a plan contains JSON columns, casts or functions.
fn has_json(plan: &LogicalPlan) -> Result<bool> {
    let is_json = |name: Option<&String>| {
        name.is_some_and(|name| Kind::of_name(name.strip_prefix('_').unwrap_or(name)).is_some())
    };
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        found |= plan.schema().fields().iter().any(|field| is_json(field.metadata().get(json::TYPE_KEY)));
        plan.apply_expressions(|expr| {
            found = found
                || expr.exists(|expr| {
                    Ok(match expr {
                        Expr::Cast(cast) => is_json(cast.field.metadata().get(json::TYPE_KEY)),
                        Expr::ScalarFunction(function) => json::by_name(function.name()).is_some(),
                        _ => false,
                    })
                })?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Applies the rule to one node.
///
/// Errors: an operator or a cast does not exist for these types (42883, 42846).
pub(crate) fn rewrite_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let plan = match plan {
        LogicalPlan::Join(join) if is_set_operation(&join) => parse_set_difference(join)?,
        other => other,
    };
    let types = Types::below(&plan)?;
    let is_plain = !types.names.iter().flatten().any(|name| name.contains("json"));
    if is_plain && plan.expressions().is_empty() {
        return Ok(Transformed::no(plan));
    }
    let plan = rewrite_expressions(plan, |expr| in_expr(expr, &types))?;
    plan.transform_data(|plan| in_node(plan, &types))
}

fn in_node(plan: LogicalPlan, types: &Types) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(mut sort) => {
            let is_changed = replace_in_sort(&mut sort.expr, types)?;
            let plan = LogicalPlan::Sort(sort);
            Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
        }
        LogicalPlan::Join(mut join) => {
            let mut is_changed = false;
            for (left, right) in &mut join.on {
                is_changed |= replace_in_comparison(left, "=", right, types)?;
            }
            let plan = LogicalPlan::Join(join);
            Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
        }
        LogicalPlan::Aggregate(aggregate) => rewrite_aggregate(aggregate, types),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let names = type_names::of(&input);
            if !names.iter().flatten().any(|name| Kind::of_name(name).is_some()) {
                return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input))));
            }
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            let types = Types { schema: input.schema().as_ref().clone(), names };
            rewrite_aggregate(Aggregate::try_new(input, columns, vec![])?, &types)
        }
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            let mut is_changed = false;
            for expr in &mut on.on_expr {
                is_changed |= replace_by_key(expr, types, equality)?;
            }
            if let Some(sort) = &mut on.sort_expr {
                is_changed |= replace_in_sort(sort, types)?;
            }
            let plan = LogicalPlan::Distinct(Distinct::On(on));
            Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
        }
        LogicalPlan::RecursiveQuery(query) if query.is_distinct => {
            match type_names::of(&query.static_term)
                .iter()
                .flatten()
                .any(|name| Kind::of_name(name).is_some())
            {
                true => {
                    let message = "UNION of JSON in a recursive query is not supported";
                    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                        .with_hint("UNION ALL")
                        .into_datafusion())
                }
                false => Ok(Transformed::no(LogicalPlan::RecursiveQuery(query))),
            }
        }
        LogicalPlan::Union(union) => rewrite_union(union),
        other => Ok(Transformed::no(other)),
    }
}

fn no_operator_class(word: &str) -> datafusion::error::DataFusionError {
    let message = format!("could not identify an {word} operator for type json");
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into_datafusion()
}

fn equality() -> datafusion::error::DataFusionError {
    no_operator_class("equality")
}

fn ordering() -> datafusion::error::DataFusionError {
    no_operator_class("ordering")
}

/// Replaces an expression by its comparison key. Returns whether it was JSON.
fn replace_by_key(
    expr: &mut Expr,
    types: &Types,
    error: fn() -> datafusion::error::DataFusionError,
) -> Result<bool> {
    match types.kind(expr) {
        Some(Kind::Jsonb) => {
            *expr = key(std::mem::take(expr))?;
            Ok(true)
        }
        Some(Kind::Json) => Err(error()),
        None => Ok(false),
    }
}

fn replace_in_sort(orders: &mut [SortExpr], types: &Types) -> Result<bool> {
    let mut is_changed = false;
    for order in orders {
        is_changed |= replace_by_key(&mut order.expr, types, ordering)?;
    }
    Ok(is_changed)
}

/// Replaces both sides of a comparison by their keys.
fn replace_in_comparison(left: &mut Expr, operator: &str, right: &mut Expr, types: &Types) -> Result<bool> {
    let (left_kind, right_kind) = (types.kind(left), types.kind(right));
    match (left_kind, right_kind) {
        (None, None) => return Ok(false),
        (Some(Kind::Jsonb), Some(Kind::Jsonb)) => {}
        (Some(Kind::Jsonb), None) if is_open(right) => {
            *right = parse_text(Kind::Jsonb, std::mem::take(right))?
        }
        (None, Some(Kind::Jsonb)) if is_open(left) => *left = parse_text(Kind::Jsonb, std::mem::take(left))?,
        _ => return Err(types.no_operator(left, operator, right)),
    }
    *left = key(std::mem::take(left))?;
    *right = key(std::mem::take(right))?;
    Ok(true)
}

/// Groups by the keys of `jsonb` values and returns the first value of each group.
fn rewrite_aggregate(aggregate: Aggregate, types: &Types) -> Result<Transformed<LogicalPlan>> {
    let is_sets = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
    let inside = |expr: &Expr| {
        let mut found = false;
        expr.apply(|expr| {
            found |= types.kind(expr).is_some();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok::<_, datafusion::error::DataFusionError>(found)
    };
    if is_sets {
        return match inside(&aggregate.group_expr[0])? {
            true => {
                let message = "grouping sets of JSON are not supported";
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
            }
            false => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
        };
    }
    if !aggregate.group_expr.iter().any(|expr| types.kind(expr).is_some()) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Aggregate { input, mut group_expr, mut aggr_expr, schema, .. } = aggregate;
    let mut firsts = Vec::new();
    for (at, expr) in group_expr.iter_mut().enumerate() {
        let value = expr.clone();
        if replace_by_key(expr, types, equality)? {
            *expr = std::mem::take(expr).alias(format!("__json_key_{at}"));
            let first =
                AggregateFunction::new_udf(first_value_udaf(), vec![value], false, None, vec![], None);
            aggr_expr.push(Expr::AggregateFunction(first).alias(format!("__json_{at}")));
            firsts.push(at);
        }
    }
    let behind = group_expr.len() + aggr_expr.len() - firsts.len();
    let grouped = Aggregate::try_new(input, group_expr, aggr_expr)?;
    let columns = grouped.schema.columns();
    let columns = schema.iter().enumerate().map(|(at, (qualifier, field))| {
        let from = firsts.iter().position(|first| *first == at).map_or(at, |first| behind + first);
        let column = Expr::Column(columns[from].clone());
        match from == at {
            true => column,
            false => column.alias_qualified(qualifier.cloned(), field.name()),
        }
    });
    let columns = columns.collect();
    let projection = Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(grouped)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

/// Converts quoted literals in a union that stand beside a JSON column of another input.
fn rewrite_union(mut union: datafusion::logical_expr::Union) -> Result<Transformed<LogicalPlan>> {
    let names: Vec<_> = union.inputs.iter().map(|input| type_names::of(input)).collect();
    let count = union.schema.fields().len();
    let kind_of = |at: usize, place: usize| {
        names[at].get(place).and_then(Option::as_ref).and_then(|name| Kind::of_name(name))
    };
    let kinds: Vec<Option<Kind>> =
        (0..count).map(|place| (0..names.len()).find_map(|at| kind_of(at, place))).collect();
    let mut is_changed = false;
    for (at, input) in union.inputs.iter_mut().enumerate() {
        let mut columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        let mut is_cast = false;
        for (place, column) in columns.iter_mut().enumerate() {
            let Some(kind) = kinds[place] else { continue };
            match kind_of(at, place) {
                Some(own) if own == kind => {}
                None if input.schema().field(place).data_type().is_string()
                    || input.schema().field(place).data_type().is_null() =>
                {
                    let name = input.schema().field(place).name().clone();
                    *column = parse_text(kind, std::mem::take(column))?.alias(name);
                    is_cast = true;
                }
                _ => {
                    let own = kind_of(at, place).map(|kind| kind.name().to_string());
                    let own = own.unwrap_or_else(|| type_name(input.schema().field(place).data_type()));
                    let message = format!("UNION types {} and {own} cannot be matched", kind.name());
                    return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).into_datafusion());
                }
            }
        }
        if is_cast {
            let projection = Projection::try_new(columns, Arc::clone(input))?;
            *input = Arc::new(LogicalPlan::Projection(projection));
            is_changed = true;
        }
    }
    let plan = LogicalPlan::Union(union);
    Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
}

/// Rewrites one expression whose children are rewritten already.
fn in_expr(expr: Expr, types: &Types) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Cast(cast) => in_cast(cast, types),
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) => {
            if is_comparison(op) {
                let is_changed = replace_in_comparison(&mut left, &op.to_string(), &mut right, types)?;
                let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
                return Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) });
            }
            let (left_kind, right_kind) = (types.kind(&left), types.kind(&right));
            if op == Operator::StringConcat
                && let (Some(left_kind), Some(right_kind)) = (left_kind, right_kind)
                && (left_kind, right_kind) != (Kind::Jsonb, Kind::Jsonb)
            {
                return Err(types.no_operator(&left, "||", &right));
            }
            let is_jsonb = op == Operator::StringConcat
                && match (left_kind, right_kind) {
                    (Some(Kind::Jsonb), Some(Kind::Jsonb)) => true,
                    (Some(Kind::Jsonb), None) => is_open(&right),
                    (None, Some(Kind::Jsonb)) => is_open(&left),
                    _ => false,
                };
            match is_jsonb {
                true => {
                    let sides = [(*left, left_kind), (*right, right_kind)];
                    let sides = sides.map(|(side, kind)| match kind {
                        Some(_) => Ok(side),
                        None => parse_text(Kind::Jsonb, side),
                    });
                    let [left, right] = sides;
                    Ok(Transformed::yes(call("jsonb_concat", vec![left?, right?])?))
                }
                false => Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
            }
        }
        Expr::Between(mut between) => {
            let Between { expr, low, high, .. } = &mut between;
            let is_json = [&*expr, &*low, &*high].iter().any(|side| types.kind(side).is_some());
            if is_json && types.kind(expr).is_none() {
                return literal_between(between, types).map(Transformed::yes);
            }
            if is_json {
                let mut same = expr.clone();
                replace_in_comparison(expr, ">=", low, types)?;
                replace_in_comparison(&mut same, "<=", high, types)?;
            }
            let expr = Expr::Between(between);
            Ok(if is_json { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        Expr::InList(InList { mut expr, mut list, negated }) => {
            let is_json = types.kind(&expr).is_some() || list.iter().any(|item| types.kind(item).is_some());
            if is_json {
                let value = expr.clone();
                for item in &mut list {
                    *expr = (*value).clone();
                    replace_in_comparison(&mut expr, "=", item, types)?;
                }
            }
            let expr = Expr::InList(InList { expr, list, negated });
            Ok(if is_json { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        Expr::InSubquery(InSubquery { mut expr, subquery, negated }) => {
            let inner = type_names::of(&subquery.subquery).into_iter().next().flatten();
            let inner = inner.and_then(|name| Kind::of_name(&name));
            if inner == Some(Kind::Jsonb) && types.kind(&expr).is_none() && is_open(&expr) {
                *expr = parse_text(Kind::Jsonb, *expr)?;
            }
            match (types.kind(&expr), inner) {
                (None, None) => Ok(Transformed::no(Expr::InSubquery(InSubquery { expr, subquery, negated }))),
                (Some(Kind::Jsonb), Some(Kind::Jsonb)) => {
                    *expr = key(*expr)?;
                    let Subquery { subquery, outer_ref_columns, spans } = subquery;
                    let value = Expr::Column(subquery.schema().columns().swap_remove(0));
                    let plan = LogicalPlanBuilder::from(subquery).project([key(value)?])?.build()?;
                    let subquery = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans };
                    Ok(Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery, negated })))
                }
                _ => {
                    let message = "operator does not exist: json = json";
                    Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into_datafusion())
                }
            }
        }
        Expr::Case(case) => in_case(case, types),
        Expr::AggregateFunction(mut function) => {
            let mut is_changed = replace_in_sort(&mut function.params.order_by, types)?;
            let first = function.params.args.first();
            let kind = first.and_then(|first| types.kind(first));
            if let Some(kind) = kind {
                let name = function.func.name();
                match (name, function.params.distinct) {
                    ("count", true) => {
                        is_changed |= replace_by_key(&mut function.params.args[0], types, equality)?
                    }
                    ("min" | "max" | "string_agg" | "sum" | "avg", _) => {
                        let message = format!("function {name}({}) does not exist", kind.name());
                        return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into_datafusion());
                    }
                    (_, true) if kind == Kind::Json => return Err(equality()),
                    (_, true) => {
                        let message = format!("{name}(DISTINCT …) of jsonb is not supported");
                        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
                    }
                    _ => {}
                }
            }
            let expr = Expr::AggregateFunction(function);
            Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        Expr::WindowFunction(mut function) => {
            let mut is_changed = false;
            for order in &mut function.params.order_by {
                if replace_by_key(&mut order.expr, types, ordering)? {
                    // Window frames compare strings, not binary: encode the key.
                    order.expr = encode(std::mem::take(&mut order.expr), lit("hex"));
                    is_changed = true;
                }
            }
            for by in &mut function.params.partition_by {
                is_changed |= replace_by_key(by, types, equality)?;
            }
            let expr = Expr::WindowFunction(function);
            Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        Expr::ScalarFunction(function) => in_function(function, types),
        other => Ok(Transformed::no(other)),
    }
}

/// Compares a literal with each bound by itself, as it takes that one's type: it is text beside text.
fn literal_between(Between { expr, negated, low, high }: Between, types: &Types) -> Result<Expr> {
    let compare = |operator: Operator, mut bound: Box<Expr>| {
        let mut value = expr.clone();
        replace_in_comparison(&mut value, &operator.to_string(), &mut bound, types)?;
        Ok::<_, datafusion::error::DataFusionError>(binary_expr(*value, operator, *bound))
    };
    let both = compare(Operator::GtEq, low)?.and(compare(Operator::LtEq, high)?);
    Ok(if negated { !both } else { both })
}

/// Parses a column of literals opposite JSON in EXCEPT and INTERSECT.
fn parse_set_difference(mut join: Join) -> Result<LogicalPlan> {
    let kinds = [&join.left, &join.right].map(|side| {
        let names = type_names::of(side).into_iter();
        names.map(|name| Kind::of_name(&name?)).collect::<Vec<_>>()
    });
    let mut is_changed = false;
    for (own, other, side) in [(0, 1, &mut join.left), (1, 0, &mut join.right)] {
        for at in 0..join.on.len() {
            if (kinds[own][at], kinds[other][at]) == (None, Some(Kind::Jsonb))
                && let Some(parsed) = with_column(side, at, &|literal| {
                    let is_text = is_quoted(literal);
                    if is_text {
                        *literal = parse_text(Kind::Jsonb, std::mem::take(literal))?;
                    }
                    Ok(is_text)
                })?
            {
                *side = Arc::new(parsed);
                is_changed = true;
            }
        }
    }
    let plan = LogicalPlan::Join(join);
    if is_changed { plan.recompute_schema() } else { Ok(plan) }
}

/// Rewrites casts to and from JSON.
fn in_cast(Cast { expr, field }: Cast, types: &Types) -> Result<Transformed<Expr>> {
    if let DataType::List(item) = field.data_type()
        && let Some(kind) = Kind::of_field(item)
    {
        return in_array_cast(Cast { expr, field: Arc::clone(&field) }, kind, types);
    }
    let (from, to) = (types.kind(&expr), Kind::of_field(&field));
    let error = |from: &str, to: &str| {
        SqlError::new(SqlState::CANNOT_COERCE, format!("cannot cast type {from} to {to}"))
    };
    let kind = types.data_type(&expr);
    match (from, to) {
        (None, None) => {}
        (_, Some(to)) => {
            let is_text = kind.as_ref().is_none_or(|kind| kind.is_string() || kind.is_null());
            return match is_text {
                true => Ok(Transformed::yes(parse_text(to, *expr)?)),
                false => Err(error(&types.display_type(&expr), to.name()).into_datafusion()),
            };
        }
        (Some(from), None) => {
            let target = field.data_type();
            let named = field.metadata().get(json::TYPE_KEY);
            if target.is_string() {
                let text = call("harrier_json_text", vec![*expr])?;
                return Ok(Transformed::yes(match named {
                    // Another string type.
                    Some(_) => Expr::Cast(Cast { expr: Box::new(text), field }),
                    None => cast(text, target.clone()),
                }));
            }
            let is_scalar = target.is_numeric() || *target == DataType::Boolean;
            let name = type_name(target);
            if from != Kind::Jsonb || !is_scalar {
                return Err(error(from.name(), &name).into_datafusion());
            }
            let text = call("harrier_jsonb_scalar", vec![*expr, lit(name)])?;
            return Ok(Transformed::yes(Expr::Cast(Cast { expr: Box::new(text), field })));
        }
    }
    Ok(Transformed::no(Expr::Cast(Cast { expr, field })))
}

/// Rewrites casts to arrays of JSON, if the elements can be parsed one by one.
fn in_array_cast(Cast { mut expr, field }: Cast, kind: Kind, types: &Types) -> Result<Transformed<Expr>> {
    if types.name(&expr) == Some(format!("_{}", kind.name())) {
        return Ok(Transformed::yes(*expr));
    }
    if let Expr::ScalarFunction(function) = expr.as_mut()
        && function.name() == "make_array"
    {
        for element in &mut function.args {
            if types.kind(element) != Some(kind) {
                *element = parse_text(kind, std::mem::take(element))?;
            }
        }
        return Ok(Transformed::yes(*expr));
    }
    match types.data_type(&expr).is_some_and(|kind| kind.is_null()) {
        true => Ok(Transformed::no(Expr::Cast(Cast { expr, field }))),
        false => Err(crate::binder::json::no_array(kind)),
    }
}

fn in_case(mut case: Case, types: &Types) -> Result<Transformed<Expr>> {
    let mut is_changed = false;
    if let Some(base) = &mut case.expr {
        let value = base.clone();
        for (when, _) in &mut case.when_then_expr {
            let mut same = value.clone();
            if replace_in_comparison(&mut same, "=", when, types)? {
                **base = *same;
                is_changed = true;
            }
        }
    }
    let thens = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
    let mut results: Vec<&mut Expr> = thens.chain(case.else_expr.as_deref_mut()).collect();
    is_changed |= coerce_literals(&mut results, "CASE", types)?;
    let expr = Expr::Case(case);
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// Converts quoted literals beside JSON to JSON.
fn coerce_literals(sides: &mut [&mut Expr], word: &str, types: &Types) -> Result<bool> {
    let Some(kind) = sides.iter().find_map(|side| types.kind(side)) else { return Ok(false) };
    let mut is_changed = false;
    for side in sides {
        match types.kind(side) {
            Some(own) if own == kind => {}
            None if is_open(side) => {
                **side = parse_text(kind, std::mem::take(*side))?;
                is_changed = true;
            }
            _ => {
                let message = format!(
                    "{word} types {} and {} cannot be matched",
                    kind.name(),
                    types.display_type(side)
                );
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).into_datafusion());
            }
        }
    }
    Ok(is_changed)
}

fn in_function(mut function: ScalarFunction, types: &Types) -> Result<Transformed<Expr>> {
    let name = function.name().to_string();
    let mut is_changed = false;
    match name.as_str() {
        "coalesce" | "nvl" | "ifnull" | "make_array" => {
            let mut sides: Vec<&mut Expr> = function.args.iter_mut().collect();
            let word = if name == "make_array" { "ARRAY" } else { "COALESCE" };
            is_changed = coerce_literals(&mut sides, word, types)?;
        }
        "nullif" => {
            if let [left, right] = function.args.as_slice() {
                let (mut one, mut other) = (left.clone(), right.clone());
                if replace_in_comparison(&mut one, "=", &mut other, types)? {
                    let left = match types.kind(left) {
                        Some(_) => left.clone(),
                        None => parse_text(Kind::Jsonb, left.clone())?,
                    };
                    let mut case = datafusion::logical_expr::when(
                        one.eq(other).is_true(),
                        lit(datafusion::common::ScalarValue::Utf8View(None)),
                    );
                    return Ok(Transformed::yes(case.otherwise(left)?));
                }
            }
        }
        // Arrow knows only the storage type, text.
        "pg_typeof" => {
            if let Some(name) = function.args.first().and_then(|value| types.name(value))
                && Kind::of_name(&name).is_some()
            {
                return Ok(Transformed::yes(lit(name)));
            }
        }
        "greatest" | "least" if function.args.iter().any(|argument| types.kind(argument).is_some()) => {
            let message = format!("{name} of JSON is not supported");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        // Functions that build JSON text need to know which of their arguments are JSON.
        name if json::by_name(name).is_some() && !is_conversion(name) => {
            for argument in &mut function.args {
                is_changed |= mark_argument(argument, types)?;
            }
        }
        _ => {}
    }
    let expr = Expr::ScalarFunction(function);
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// Conversion functions that this rule itself inserts.
fn is_conversion(name: &str) -> bool {
    matches!(
        name,
        "harrier_json" | "harrier_jsonb" | "harrier_json_text" | "harrier_json_list" | "harrier_jsonb_list"
    )
}

/// Makes the field of an argument say whether it is JSON.
fn mark_argument(argument: &mut Expr, types: &Types) -> Result<bool> {
    use datafusion::logical_expr::ExprSchemable;
    if matches!(argument, Expr::Literal(..) | Expr::Placeholder(_)) {
        return Ok(false);
    }
    // A struct's fields do not carry the types.
    if let Expr::ScalarFunction(function) = argument
        && function.name() == "named_struct"
        && function.args.iter().any(|member| types.name(member).is_some_and(|name| name.contains("json")))
    {
        let mut members = std::mem::take(&mut function.args);
        for member in &mut members {
            mark_argument(member, types)?;
        }
        *argument = call("harrier_json_row", members)?;
        return Ok(true);
    }
    let Ok((_, field)) = argument.to_field(&types.schema) else { return Ok(false) };
    if let DataType::List(item) = field.data_type() {
        let name = types.name(argument);
        let item_kind = name.as_deref().and_then(|name| Kind::of_name(name.strip_prefix('_')?));
        return match item_kind {
            Some(kind) if Kind::of_field(item) != Some(kind) => {
                *argument = call(&format!("harrier_{}_list", kind.name()), vec![std::mem::take(argument)])?;
                Ok(true)
            }
            _ => Ok(false),
        };
    }
    let (known, marked) = (types.kind(argument), Kind::of_field(&field));
    *argument = match (known, marked) {
        (Some(known), marked) if marked != Some(known) => parse_text(known, std::mem::take(argument))?,
        (None, Some(_)) => call("harrier_json_text", vec![std::mem::take(argument)])?,
        _ => return Ok(false),
    };
    Ok(true)
}
