//! ORDER BY of subqueries, common table expressions and views in FROM.
//!
//! SQL leaves open what comes of it; PostgreSQL and DuckDB keep the order as long as nothing above changes
//! it, and people rely on that:
//!
//! ```text
//!   SELECT b + 1 FROM (SELECT b … ORDER BY a) s LIMIT 3     SELECT b + 1 FROM (SELECT b, a …) s ORDER BY s.a LIMIT 3
//!   SELECT string_agg(n, ',') FROM (SELECT n … ORDER BY a)  string_agg(n, ',' ORDER BY a), where a is carried along
//!   SELECT row_number() OVER (), * FROM (… ORDER BY a)      row_number() OVER (ORDER BY a)
//!   SELECT … FROM (… ORDER BY a) s JOIN t …                 there is no sort: nobody sees it
//! ```
//!
//! DataFusion's planner drops all of them (`enable_subquery_sort_elimination`), and its physical rules those
//! below aggregates.
//!
//! `SubqueryOrderBy` can go when DataFusion keeps the order of a subquery in FROM (apache/datafusion#13904:
//! it drops it on purpose); akin: apache/datafusion#21614, apache/datafusion#12003.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Limit, LogicalPlan, Projection, Sort, SubqueryAlias, Window, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;

/// The rule; to stand in front of those that take subqueries and aggregates apart.
#[derive(Debug)]
pub struct SubqueryOrderBy;

impl AnalyzerRule for SubqueryOrderBy {
    fn name(&self) -> &str {
        "subquery_order_by"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        ordered(hoisted(plan)?, true)
    }
}

/// Aggregates whose result depends on the order of rows.
const ORDERED_AGGREGATES: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];

/// Window functions whose result does, and that know no frame. `rank` and the like are those of equal rows
/// without ORDER BY.
const ORDERED_WINDOWS: [&str; 4] = ["row_number", "lag", "lead", "ntile"];

/// A plan with sorts where they matter. `is_seen`: the order of its rows is, by whoever reads them.
fn ordered(plan: LogicalPlan, is_seen: bool) -> Result<LogicalPlan> {
    let plan = match plan {
        LogicalPlan::Sort(sort) if !is_seen && sort.fetch.is_none() => {
            return ordered(Arc::unwrap_or_clone(sort.input), false);
        }
        LogicalPlan::Aggregate(aggregate) => LogicalPlan::Aggregate(ordered_aggregate(aggregate)?),
        LogicalPlan::Window(window) => LogicalPlan::Window(ordered_window(window)?),
        other => other,
    };
    let below = match &plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) if is_seen => {
            Order::PassedOn
        }
        LogicalPlan::Window(window) if is_seen && window.window_expr.iter().all(is_of_all_rows) => {
            Order::PassedOn
        }
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Subquery(_) => Order::Lost,
        _ => Order::Seen,
    };
    let child = |child| {
        Ok(Transformed::yes(match below {
            Order::Seen => ordered(hoisted(child)?, true)?,
            Order::PassedOn => ordered(child, true)?,
            Order::Lost => ordered(child, false)?,
        }))
    };
    let plan = plan.map_children(child)?.data;
    Ok(plan.map_subqueries(|subquery| Ok(Transformed::yes(ordered(subquery, false)?)))?.data)
}

/// What becomes of the order in which an operator reads rows.
#[derive(Clone, Copy)]
enum Order {
    /// The operator's result depends on it.
    Seen,
    /// Its rows have it for who sees it.
    PassedOn,
    Lost,
}

/// The same rows, sorted at their very end: operators between a sort and what sees its order may be run on
/// several threads.
fn hoisted(plan: LogicalPlan) -> Result<LogicalPlan> {
    if ends_sorted(&plan) {
        return Ok(plan);
    }
    let Some((input, keys)) = carried(&plan, false)? else { return Ok(plan) };
    let columns = (0..plan.schema().fields().len()).map(|at| column_at(&input, at)).collect();
    let sorted = LogicalPlan::Sort(Sort { expr: keys, input: Arc::new(input), fetch: None });
    Ok(LogicalPlan::Projection(Projection::try_new_with_schema(
        columns,
        Arc::new(sorted),
        Arc::clone(plan.schema()),
    )?))
}

/// Whether rows come out of a sort, or of a limit, with nothing computed in between.
fn ends_sorted(plan: &LogicalPlan) -> bool {
    let is_column = |expr: &Expr| matches!(expr.clone().unalias_nested().data, Expr::Column(_));
    match plan {
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => true,
        LogicalPlan::SubqueryAlias(alias) => ends_sorted(&alias.input),
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(is_column) && ends_sorted(&projection.input)
        }
        _ => false,
    }
}

fn window_function(expr: &Expr) -> Option<&WindowFunction> {
    match expr {
        Expr::Alias(alias) => window_function(&alias.expr),
        Expr::WindowFunction(window) => Some(window),
        _ => None,
    }
}

/// Whether a window leaves rows in the order in which they come.
fn is_of_all_rows(expr: &Expr) -> bool {
    window_function(expr)
        .is_some_and(|window| window.params.partition_by.is_empty() && window.params.order_by.is_empty())
}

/// Whether an aggregate takes rows as they come, and its result depends on it.
fn takes_order(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => takes_order(&alias.expr),
        Expr::AggregateFunction(call) => {
            call.params.order_by.is_empty()
                && !call.params.distinct
                && ORDERED_AGGREGATES.contains(&call.func.name())
        }
        _ => false,
    }
}

/// The same of a window function.
fn takes_order_of_rows(expr: &Expr) -> bool {
    window_function(expr).is_some_and(|window| {
        let name = window.fun.name();
        let frame = &window.params.window_frame;
        let is_aggregate = matches!(window.fun, WindowFunctionDefinition::AggregateUDF(_));
        let is_ordered = ORDERED_WINDOWS.contains(&name)
            || ORDERED_AGGREGATES.contains(&name) && (is_of_rows(frame) || is_of_partition(frame))
            || is_aggregate && is_of_rows(frame) && !is_of_partition(frame);
        window.params.order_by.is_empty() && !window.params.distinct && is_ordered
    })
}

/// Whether a frame is counted in rows, whichever of them are peers.
fn is_of_rows(frame: &WindowFrame) -> bool {
    frame.units == WindowFrameUnits::Rows
}

/// Whether a frame is all of the partition.
fn is_of_partition(frame: &WindowFrame) -> bool {
    let is_open = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(rows) | WindowFrameBound::Following(rows) => rows.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    is_open(&frame.start_bound) && is_open(&frame.end_bound)
}

/// An expression with an order of its own, and the name that it has without.
fn with_order(expr: Expr, keys: &[SortExpr]) -> Expr {
    let name = expr.schema_name().to_string();
    match expr {
        Expr::Alias(mut alias) => {
            alias.expr = Box::new(with_order(*alias.expr, keys));
            Expr::Alias(alias)
        }
        Expr::AggregateFunction(mut call) => {
            call.params.order_by = keys.to_vec();
            Expr::AggregateFunction(call).alias(name)
        }
        Expr::WindowFunction(mut window) => {
            window.params.order_by = keys.to_vec();
            Expr::WindowFunction(window).alias(name)
        }
        other => other,
    }
}

fn ordered_aggregate(aggregate: Aggregate) -> Result<Aggregate> {
    if !aggregate.aggr_expr.iter().any(takes_order) {
        return Ok(aggregate);
    }
    let Some((input, keys)) = carried(&aggregate.input, false)? else { return Ok(aggregate) };
    let aggregates = aggregate.aggr_expr.into_iter().map(|expr| match takes_order(&expr) {
        true => with_order(expr, &keys),
        false => expr,
    });
    Aggregate::try_new(Arc::new(input), aggregate.group_expr, aggregates.collect())
}

fn ordered_window(window: Window) -> Result<Window> {
    if !window.window_expr.iter().any(takes_order_of_rows) {
        return Ok(window);
    }
    let Some((input, keys)) = carried(&window.input, false)? else { return Ok(window) };
    let windows = window.window_expr.into_iter().map(|expr| match takes_order_of_rows(&expr) {
        true => with_order(expr, &keys),
        false => expr,
    });
    Window::try_new(windows.collect(), Arc::new(input))
}

/// Rows that are sorted further below, with columns by which they are; `None`: they are not, or what is in
/// between changes it. `is_kept`: they stay sorted themselves.
fn carried(plan: &LogicalPlan, is_kept: bool) -> Result<Option<(LogicalPlan, Vec<SortExpr>)>> {
    Ok(Some(match plan {
        LogicalPlan::Sort(sort) => {
            let keys = sort.expr.clone();
            let plan = match is_kept || sort.fetch.is_some() {
                true => LogicalPlan::Sort(Sort::clone(sort)),
                false => LogicalPlan::clone(&sort.input),
            };
            (plan, keys)
        }
        LogicalPlan::Projection(projection) => {
            let Some((input, keys)) = carried(&projection.input, is_kept)? else { return Ok(None) };
            projected(projection.expr.clone(), input, keys)?
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some((input, keys)) = carried(&alias.input, is_kept)? else { return Ok(None) };
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            let (input, keys) = match keys.iter().all(|key| matches!(key.expr, Expr::Column(_))) {
                true => (input, keys),
                false => projected(columns, input, keys)?,
            };
            let places = keys.iter().map(|key| match &key.expr {
                Expr::Column(column) => input.schema().maybe_index_of_column(column),
                _ => None,
            });
            let Some(places) = places.collect::<Option<Vec<usize>>>() else { return Ok(None) };
            let plan =
                LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?);
            let keys = keys.into_iter().zip(places);
            let keys = keys.map(|(key, at)| key.with_expr(column_at(&plan, at))).collect();
            (plan, keys)
        }
        LogicalPlan::Filter(filter) => {
            let Some((input, keys)) = carried(&filter.input, is_kept)? else { return Ok(None) };
            (LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(input))?), keys)
        }
        LogicalPlan::Limit(limit) => {
            let Some((input, keys)) = carried(&limit.input, true)? else { return Ok(None) };
            let (skip, fetch) = (limit.skip.clone(), limit.fetch.clone());
            (LogicalPlan::Limit(Limit { skip, fetch, input: Arc::new(input) }), keys)
        }
        LogicalPlan::Window(window) if window.window_expr.iter().all(is_of_all_rows) => {
            let is_kept = is_kept || window.window_expr.iter().any(takes_order_of_rows);
            let Some((input, keys)) = carried(&window.input, is_kept)? else { return Ok(None) };
            (LogicalPlan::Window(Window::try_new(window.window_expr.clone(), Arc::new(input))?), keys)
        }
        _ => return Ok(None),
    }))
}

/// A projection with further columns for keys that are not in it, and the keys as they are called above.
fn projected(
    mut columns: Vec<Expr>,
    input: LogicalPlan,
    keys: Vec<SortExpr>,
) -> Result<(LogicalPlan, Vec<SortExpr>)> {
    let mut places = Vec::with_capacity(keys.len());
    for key in &keys {
        let column = columns.iter().position(|column| is_same(column, &key.expr));
        places.push(column.unwrap_or(columns.len()));
        if column.is_none() {
            columns.push(key.expr.clone().alias(format!("__order_{}", columns.len())));
        }
    }
    let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?);
    let keys = keys.into_iter().zip(places);
    let keys = keys.map(|(key, at)| key.with_expr(column_at(&plan, at))).collect();
    Ok((plan, keys))
}

fn is_same(column: &Expr, key: &Expr) -> bool {
    match column {
        Expr::Alias(alias) => is_same(&alias.expr, key),
        column => column == key && !column.is_volatile(),
    }
}

fn column_at(plan: &LogicalPlan, at: usize) -> Expr {
    Expr::Column(Column::from(plan.schema().qualified_field(at)))
}
