//! PostgreSQL type names of a plan's columns where the Arrow type does not determine them: `oid` and its
//! arrays keep their type through subqueries, CASE and aggregates, and `varchar(n)` its length where
//! PostgreSQL keeps it.

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

/// PostgreSQL type names of a plan's columns; `None` where the Arrow type suffices.
pub(crate) fn of(plan: &LogicalPlan) -> Vec<Option<String>> {
    let count = plan.schema().fields().len();
    let mut names = match plan {
        LogicalPlan::Projection(projection) => of_all(&projection.expr, &projection.input),
        LogicalPlan::Aggregate(aggregate) => {
            let mut names = of_all(&aggregate.group_expr, &aggregate.input);
            // Grouping sets add a column and change the number of expressions.
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
    // Semi and anti joins output only one side.
    if names.len() != count {
        names = of_schema(plan);
    }
    names
}

/// Declared types of a warehouse table's columns; for a view, those of its query.
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

/// Common type of values from several sources. A length remains if all agree on it; a declared length beside
/// plain text gives text.
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

/// Result type of `min`, `max` and `nullif`: PostgreSQL has no `varchar` variants of them.
fn min_max_type(name: String) -> Option<String> {
    match name.parse() {
        Ok(DeclaredType::Varchar(_)) => None,
        _ => without_size(name),
    }
}

/// Whether an expression is of unknown type.
fn is_unknown(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::Null, _) => true,
        // The planner casts unknown literals without naming a type.
        Expr::Cast(cast) => field_type_name(&cast.field).is_none() && is_unknown(&cast.expr),
        _ => false,
    }
}

/// Types in the metadata of a plan's fields.
fn of_schema(plan: &LogicalPlan) -> Vec<Option<String>> {
    plan.schema().fields().iter().map(|field| field_type_name(field)).collect()
}

fn of_all(exprs: &[Expr], input: &LogicalPlan) -> Vec<Option<String>> {
    let below = of(input);
    exprs.iter().map(|expr| of_expr(expr, input.schema(), &below)).collect()
}

/// `below`: types of the columns of `schema`.
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
        Expr::Cast(cast) => {
            field_type_name(&cast.field).or_else(|| implicit_cast_type(expr, &cast.expr, schema, below))
        }
        Expr::TryCast(cast) => {
            field_type_name(&cast.field).or_else(|| implicit_cast_type(expr, &cast.expr, schema, below))
        }
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            common_of(&mut results.chain(case.else_expr.as_deref()))
        }
        Expr::ScalarSubquery(query) => of(&query.subquery).into_iter().next().flatten(),
        Expr::AggregateFunction(function) => {
            let first = function.params.args.first().and_then(inner)?;
            match function.func.name() {
                "array_agg" => without_size(first).map(|first| format!("_{first}")),
                "min" | "max" => min_max_type(first),
                "first_value" | "last_value" => without_size(first),
                _ => None,
            }
        }
        Expr::WindowFunction(function) => {
            let first = function.params.args.first().and_then(inner)?;
            match function.fun.name() {
                "lag" | "lead" | "first_value" | "last_value" | "nth_value" => without_size(first),
                "min" | "max" => min_max_type(first),
                "array_agg" => without_size(first).map(|first| format!("_{first}")),
                _ => None,
            }
        }
        Expr::ScalarFunction(function) => match (function.name(), function.args.as_slice()) {
            ("nullif", [value, ..]) => inner(value).and_then(min_max_type),
            ("coalesce" | "greatest" | "least" | "array_or_empty", arguments) => {
                common_of(&mut arguments.iter())
            }
            ("make_array", arguments) => {
                common_of(&mut arguments.iter()).and_then(without_size).map(|name| format!("_{name}"))
            }
            // Elements of JSON have the document's type, `json` if that is unknown.
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

/// Type of a cast's operand, if the planner inserted the cast and clients cannot observe it.
fn implicit_cast_type(
    cast: &Expr,
    inner: &Expr,
    schema: &DFSchema,
    below: &[Option<String>],
) -> Option<String> {
    let (to, from) = (cast.get_type(schema).ok()?, inner.get_type(schema).ok()?);
    // An explicit cast names its own type, so that source and target are equal here.
    let is_own = to != from && to.is_string() && from.is_string();
    is_own.then(|| of_expr(inner, schema, below)).flatten()
}
