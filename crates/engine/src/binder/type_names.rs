//! Which of PostgreSQL's types the columns of a plan are, where their Arrow types do not say it: `oid`, and
//! arrays of it, stay that through subqueries, CASE and aggregates; so do lengths of `varchar(n)` where
//! PostgreSQL keeps them.

use crate::types::declared;
use crate::types::names::field_type_name;
use crate::types::names::without_size;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::datasource::{ViewTable, source_as_provider};
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan, TableScan};
use harrier_functions::cast::declared_type::{DeclaredType, type_of_call};

use crate::warehouse::access::restricted_view::RestrictedView;
use crate::warehouse::table::WarehouseTable;

/// PostgreSQL's names of the types of a plan's columns, as far as there are any to tell.
pub(crate) fn of(plan: &LogicalPlan) -> Vec<Option<String>> {
    let count = plan.schema().fields().len();
    let mut names = match plan {
        LogicalPlan::Projection(projection) => of_all(&projection.expr, &projection.input),
        LogicalPlan::Aggregate(aggregate) => {
            let mut names = of_all(&aggregate.group_expr, &aggregate.input);
            // With grouping sets there is a column more, and another number of expressions.
            if names.len() + aggregate.aggr_expr.len() != count {
                return of_schema(plan);
            }
            names.extend(of_all(&aggregate.aggr_expr, &aggregate.input));
            names
        }
        LogicalPlan::Window(window) => {
            let mut names = of(&window.input);
            names.extend(of_all(&window.window_expr, &window.input));
            names
        }
        LogicalPlan::Filter(filter) => of(&filter.input),
        LogicalPlan::Sort(sort) => of(&sort.input),
        LogicalPlan::Limit(limit) => of(&limit.input),
        LogicalPlan::SubqueryAlias(alias) => of(&alias.input),
        LogicalPlan::Repartition(repartition) => of(&repartition.input),
        LogicalPlan::Distinct(Distinct::All(input)) => of(input),
        LogicalPlan::RecursiveQuery(query) => of(&query.static_term),
        LogicalPlan::Union(union) => {
            let sides: Vec<Vec<Option<String>>> = union.inputs.iter().map(|input| of(input)).collect();
            (0..count).map(|at| common(sides.iter().map(|side| side.get(at).cloned().flatten()))).collect()
        }
        LogicalPlan::Unnest(unnest) => {
            let below = of(&unnest.input);
            let is_list = |at: usize| unnest.list_type_columns.iter().any(|(list, _)| *list == at);
            let name = |at: &usize| match (below.get(*at)?, is_list(*at)) {
                (Some(name), true) => name.strip_prefix('_').map(str::to_string),
                (name, false) => name.clone(),
                (None, true) => None,
            };
            unnest.dependency_indices.iter().map(name).collect()
        }
        LogicalPlan::Subquery(query) => of(&query.subquery),
        LogicalPlan::TableScan(scan) => of_scan(scan),
        LogicalPlan::Join(join) => {
            let mut names = of(&join.left);
            names.extend(of(&join.right));
            names
        }
        _ => of_schema(plan),
    };
    // Of joins that show one side alone.
    if names.len() != count {
        names = of_schema(plan);
    }
    names
}

/// Of a table of the warehouse, what its columns were declared as; of a view, what its query says.
fn of_scan(scan: &TableScan) -> Vec<Option<String>> {
    let fields = scan.projected_schema.fields();
    let Ok(provider) = source_as_provider(&scan.source) else {
        return fields.iter().map(|field| field_type_name(field)).collect();
    };
    let view = provider.downcast_ref::<ViewTable>().map(ViewTable::logical_plan);
    if let Some(plan) = view.or_else(|| provider.downcast_ref::<RestrictedView>().map(RestrictedView::plan)) {
        let names = of(plan);
        return match &scan.projection {
            Some(places) => places.iter().map(|at| names.get(*at).cloned().flatten()).collect(),
            None => names,
        };
    }
    let own = provider.downcast_ref::<WarehouseTable>().map(WarehouseTable::table);
    let name = |field: &FieldRef| {
        let column = own.and_then(|table| table.columns.iter().find(|column| column.name == *field.name()));
        column.and_then(declared::of_column).map(DeclaredType::name).or_else(|| field_type_name(field))
    };
    fields.iter().map(name).collect()
}

/// The type of values which come from several places. A length stays if all have the same, and what has none
/// of these is text.
fn common(mut names: impl Iterator<Item = Option<String>>) -> Option<String> {
    let first = names.next()?;
    names.fold(first, |one, other| match (one, other) {
        (one, other) if one == other => one,
        (Some(one), None) | (None, Some(one)) => match one.parse::<DeclaredType>() {
            Ok(_) => None,
            Err(()) => Some(one),
        },
        (Some(one), Some(other)) => match (one.parse(), other.parse()) {
            (Ok(DeclaredType::Varchar(_)), Ok(DeclaredType::Varchar(_))) => {
                Some(DeclaredType::Varchar(None).name())
            }
            (Ok(DeclaredType::Char(_)), Ok(DeclaredType::Char(_))) => Some(DeclaredType::Char(None).name()),
            (Err(()), _) => Some(one),
            _ => None,
        },
        (None, None) => None,
    })
}

/// The same of `min`, `max` and `nullif`, of which there are none of `varchar`.
fn extreme(name: String) -> Option<String> {
    match name.parse() {
        Ok(DeclaredType::Varchar(_)) => None,
        _ => without_size(name),
    }
}

/// Whether it is of no type yet.
fn is_unknown(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::Null, _) => true,
        // What the planner makes of one, which it names no type of.
        Expr::Cast(cast) => field_type_name(&cast.field).is_none() && is_unknown(&cast.expr),
        _ => false,
    }
}

/// What the fields of a plan say themselves.
fn of_schema(plan: &LogicalPlan) -> Vec<Option<String>> {
    plan.schema().fields().iter().map(|field| field_type_name(field)).collect()
}

fn of_all(exprs: &[Expr], input: &LogicalPlan) -> Vec<Option<String>> {
    let below = of(input);
    exprs.iter().map(|expr| of_expr(expr, input.schema(), &below)).collect()
}

/// `below`: what the columns of `schema` are.
pub(crate) fn of_expr(expr: &Expr, schema: &DFSchema, below: &[Option<String>]) -> Option<String> {
    let inner = |expr: &Expr| of_expr(expr, schema, below);
    let common_of = |values: &mut dyn Iterator<Item = &Expr>| {
        let (unknown, known): (Vec<&Expr>, Vec<&Expr>) = values.partition(|value| is_unknown(value));
        let name = common(known.into_iter().map(inner))?;
        if unknown.is_empty() { Some(name) } else { without_size(name) }
    };
    match expr {
        Expr::Column(column) => below.get(schema.maybe_index_of_column(column)?)?.clone(),
        Expr::OuterReferenceColumn(field, _) => field_type_name(field),
        Expr::Alias(alias) => inner(&alias.expr),
        Expr::Cast(cast) => field_type_name(&cast.field).or_else(|| same(expr, &cast.expr, schema, below)),
        Expr::TryCast(cast) => field_type_name(&cast.field).or_else(|| same(expr, &cast.expr, schema, below)),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            common_of(&mut results.chain(case.else_expr.as_deref()))
        }
        Expr::ScalarSubquery(query) => of(&query.subquery).into_iter().next().flatten(),
        Expr::AggregateFunction(function) => {
            let first = function.params.args.first().and_then(inner)?;
            match function.func.name() {
                "array_agg" => without_size(first).map(|first| format!("_{first}")),
                "min" | "max" => extreme(first),
                "first_value" | "last_value" => without_size(first),
                _ => None,
            }
        }
        Expr::WindowFunction(function) => {
            let first = function.params.args.first().and_then(inner)?;
            match function.fun.name() {
                "lag" | "lead" | "first_value" | "last_value" | "nth_value" => without_size(first),
                "min" | "max" => extreme(first),
                "array_agg" => without_size(first).map(|first| format!("_{first}")),
                _ => None,
            }
        }
        Expr::ScalarFunction(function) => match (function.name(), function.args.as_slice()) {
            ("nullif", [value, ..]) => inner(value).and_then(extreme),
            ("coalesce" | "greatest" | "least" | "array_or_empty", arguments) => {
                common_of(&mut arguments.iter())
            }
            ("make_array", arguments) => {
                common_of(&mut arguments.iter()).and_then(without_size).map(|name| format!("_{name}"))
            }
            // What is in JSON is of its type, and of `json` where that is not known.
            ("harrier_json_get" | "harrier_json_path", [document, ..]) => {
                Some(inner(document).unwrap_or_else(|| "json".to_string()))
            }
            ("array_element", [array, ..]) => {
                inner(array).and_then(|name| name.strip_prefix('_').map(str::to_string))
            }
            ("uuid", []) => Some(DeclaredType::Uuid.name()),
            (name, arguments) => match type_of_call(name, arguments) {
                Some(declared) if expr.get_type(schema).is_ok_and(|kind| kind.is_nested()) => {
                    Some(format!("_{}", declared.name()))
                }
                Some(declared) => Some(declared.name()),
                None => expr.to_field(schema).ok().and_then(|(_, field)| field_type_name(&field)),
            },
        },
        Expr::Unnest(unnest) => {
            inner(&unnest.expr).and_then(|name| name.strip_prefix('_').map(str::to_string))
        }
        _ => None,
    }
}

/// What a cast is of, if it is the planner's own and changes nothing that a client could see.
fn same(cast: &Expr, inner: &Expr, schema: &DFSchema, below: &[Option<String>]) -> Option<String> {
    let (to, from) = (cast.get_type(schema).ok()?, inner.get_type(schema).ok()?);
    // One that a statement has says its own type, which is the same then.
    let is_own = to != from && to.is_string() && from.is_string();
    is_own.then(|| of_expr(inner, schema, below)).flatten()
}
