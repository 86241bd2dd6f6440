//! Origins of result columns in table columns, for clients: drivers use these numbers to look up table names,
//! NOT NULL and defaults.
//!
//! As in PostgreSQL, a column keeps its origin through subqueries and joins, whatever its alias, and loses it
//! in expressions and set operations. PostgreSQL reports a view's own columns; here they have no origin.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan, TableScan};
use harrier_pgcatalog::{ORIGIN_KEY, oid};

use crate::warehouse::name_resolver::NameResolver;
use crate::warehouse::table::WarehouseTable;

/// OID of a table in `pg_class`, and a column's number in it.
pub(crate) type Origin = (i32, usize);

/// Origin of each column of a plan; `None` if it is not a table's column. `names` identifies views.
pub(crate) fn of(plan: &LogicalPlan, names: &NameResolver) -> Vec<Option<Origin>> {
    let below = |input: &LogicalPlan| of(input, names);
    let of_all = |exprs: &[Expr], input: &LogicalPlan| {
        let below = below(input);
        exprs.iter().map(|expr| of_expr(expr, input.schema(), &below)).collect::<Vec<_>>()
    };
    let mut found = match plan {
        LogicalPlan::Projection(projection) => of_all(&projection.expr, &projection.input),
        LogicalPlan::Aggregate(aggregate) => of_all(&aggregate.group_expr, &aggregate.input),
        LogicalPlan::Window(window) => below(&window.input),
        LogicalPlan::Filter(filter) => below(&filter.input),
        LogicalPlan::Sort(sort) => below(&sort.input),
        LogicalPlan::Limit(limit) => below(&limit.input),
        LogicalPlan::SubqueryAlias(alias) => match is_view(&alias.alias, names) {
            true => vec![],
            false => below(&alias.input),
        },
        LogicalPlan::Repartition(repartition) => below(&repartition.input),
        LogicalPlan::Distinct(Distinct::All(input)) => below(input),
        LogicalPlan::Unnest(unnest) => {
            let below = below(&unnest.input);
            let is_list = |at: usize| unnest.list_type_columns.iter().any(|(list, _)| *list == at);
            let origin = |at: &usize| below.get(*at).copied().flatten().filter(|_| !is_list(*at));
            unnest.dependency_indices.iter().map(origin).collect()
        }
        LogicalPlan::Subquery(query) => below(&query.subquery),
        LogicalPlan::TableScan(scan) => of_scan(scan),
        LogicalPlan::Join(join) => {
            let mut found = below(&join.left);
            // Semi and anti joins output only one side; the other has no columns.
            if found.len() < plan.schema().fields().len() {
                found.extend(below(&join.right));
            }
            found
        }
        _ => vec![],
    };
    found.resize(plan.schema().fields().len(), None);
    found
}

/// Whether a relation in FROM has the name of a view: views are planned as subqueries of that name.
fn is_view(name: &TableReference, names: &NameResolver) -> bool {
    names.has_view(name)
}

fn of_scan(scan: &TableScan) -> Vec<Option<Origin>> {
    let provider = source_as_provider(&scan.source).ok();
    let Some(table) = provider.as_ref().and_then(|provider| provider.downcast_ref::<WarehouseTable>()) else {
        return vec![];
    };
    let table = table.table();
    let origin = |name: &String| {
        let place = table.columns.iter().position(|column| column.name == *name)?;
        Some((oid(table.id), place + 1))
    };
    scan.projected_schema.fields().iter().map(|field| origin(field.name())).collect()
}

fn of_expr(expr: &Expr, schema: &DFSchema, below: &[Option<Origin>]) -> Option<Origin> {
    match expr {
        Expr::Column(column) => *below.get(schema.maybe_index_of_column(column)?)?,
        Expr::Alias(alias) => of_expr(&alias.expr, schema, below),
        // Casts that the planner inserts between string types, which are one type to clients.
        Expr::Cast(cast) => {
            let (to, from) = (expr.get_type(schema).ok()?, cast.expr.get_type(schema).ok()?);
            let is_own = cast.field.metadata().is_empty() && to.is_string() && from.is_string();
            is_own.then(|| of_expr(&cast.expr, schema, below)).flatten()
        }
        _ => None,
    }
}

/// Stores the origins in the metadata of a schema's fields.
pub(crate) fn with_origins(schema: &SchemaRef, origins: &[Option<Origin>]) -> SchemaRef {
    if origins.len() != schema.fields().len() || origins.iter().all(Option::is_none) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().zip(origins).map(|(field, origin)| match origin {
        Some((table, column)) => {
            let mut metadata = field.metadata().clone();
            metadata.insert(ORIGIN_KEY.to_string(), format!("{table}:{column}"));
            Arc::new(Field::clone(field).with_metadata(metadata))
        }
        None => Arc::clone(field),
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}
