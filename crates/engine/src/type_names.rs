//! Which of PostgreSQL's types the columns of a plan are, where their Arrow types do not say it: `oid`, and arrays of it, stay that through
//! subqueries, CASE and aggregates.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan};
use harrier_pgcatalog::{TYPE_KEY, named_field};

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
            let mut names = vec![None; count];
            for input in &union.inputs {
                for (name, other) in names.iter_mut().zip(of(input)) {
                    *name = name.take().or(other);
                }
            }
            names
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

/// What the fields of a plan say themselves.
fn of_schema(plan: &LogicalPlan) -> Vec<Option<String>> {
    plan.schema().fields().iter().map(|field| told(field)).collect()
}

/// What a field says itself.
pub(crate) fn told(field: &Field) -> Option<String> {
    field.metadata().get(TYPE_KEY).cloned()
}

fn of_all(exprs: &[Expr], input: &LogicalPlan) -> Vec<Option<String>> {
    let below = of(input);
    exprs.iter().map(|expr| of_expr(expr, input.schema(), &below)).collect()
}

/// What an expression is. `below`: what the columns of `schema` are.
pub(crate) fn of_expr(expr: &Expr, schema: &DFSchema, below: &[Option<String>]) -> Option<String> {
    let inner = |expr: &Expr| of_expr(expr, schema, below);
    match expr {
        Expr::Column(column) => below.get(schema.maybe_index_of_column(column)?)?.clone(),
        Expr::OuterReferenceColumn(field, _) => told(field),
        Expr::Alias(alias) => inner(&alias.expr),
        Expr::Cast(cast) => told(&cast.field).or_else(|| same(expr, &cast.expr, schema, below)),
        Expr::TryCast(cast) => told(&cast.field).or_else(|| same(expr, &cast.expr, schema, below)),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            results.chain(case.else_expr.as_deref()).find_map(inner)
        }
        Expr::ScalarSubquery(query) => of(&query.subquery).into_iter().next().flatten(),
        Expr::AggregateFunction(function) => {
            let first = function.params.args.first().and_then(inner)?;
            match function.func.name() {
                "array_agg" => Some(format!("_{first}")),
                "min" | "max" | "first_value" | "last_value" => Some(first),
                _ => None,
            }
        }
        Expr::WindowFunction(function) => {
            let first = function.params.args.first().and_then(inner)?;
            match function.fun.name() {
                "lag" | "lead" | "first_value" | "last_value" | "nth_value" | "min" | "max" => Some(first),
                "array_agg" => Some(format!("_{first}")),
                _ => None,
            }
        }
        Expr::ScalarFunction(function) => match (function.name(), function.args.as_slice()) {
            ("coalesce" | "nullif" | "greatest" | "least" | "array_or_empty", arguments) => {
                arguments.iter().find_map(inner)
            }
            // What is in JSON is of its type, and of `json` where that is not known.
            ("harrier_json_get" | "harrier_json_path", [document, ..]) => {
                Some(inner(document).unwrap_or_else(|| "json".to_string()))
            }
            ("make_array", arguments) => arguments.iter().find_map(inner).map(|name| format!("_{name}")),
            ("array_element", [array, ..]) => {
                inner(array).and_then(|name| name.strip_prefix('_').map(str::to_string))
            }
            _ => expr.to_field(schema).ok().and_then(|(_, field)| told(&field)),
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

/// A schema whose fields say these types.
pub(crate) fn named(schema: &SchemaRef, names: &[Option<String>]) -> SchemaRef {
    let is_told = |(field, name): (&FieldRef, &Option<String>)| told(field) == *name;
    if names.len() != schema.fields().len() || schema.fields().iter().zip(names).all(is_told) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().zip(names).map(|(field, name)| match name {
        Some(name) => Arc::new(named_field(Field::clone(field), name)),
        // A cast leaves what the value was before.
        None => {
            let mut metadata = field.metadata().clone();
            metadata.remove(TYPE_KEY);
            Arc::new(Field::clone(field).with_metadata(metadata))
        }
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}
