//! Preserves ORDER BY of subqueries, common table expressions and views in FROM.
//!
//! SQL does not define its effect; PostgreSQL and DuckDB keep the order as long as no operator above changes
//! it, and users rely on that:
//!
//! ```text
//!   SELECT b + 1 FROM (SELECT b … ORDER BY a) s LIMIT 3     SELECT b + 1 FROM (SELECT b, a …) s ORDER BY s.a LIMIT 3
//!   SELECT string_agg(n, ',') FROM (SELECT n … ORDER BY a)  string_agg(n, ',' ORDER BY a), with a as an added column
//!   SELECT row_number() OVER (), * FROM (… ORDER BY a)      row_number() OVER (ORDER BY a)
//!   SELECT … FROM (… ORDER BY a) s JOIN t …                 no sort: the order is not observable
//! ```
//!
//! DataFusion's planner removes all of these sorts (`enable_subquery_sort_elimination`), and its physical
//! rules those below aggregates.
//!
//! `SubqueryOrderBy` can go when DataFusion keeps the order of a subquery in FROM (apache/datafusion#13904:
//! it removes it on purpose); related: apache/datafusion#21614, apache/datafusion#12003.

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

/// The analyzer rule; runs before those that decompose subqueries and aggregates.
#[derive(Debug)]
pub struct SubqueryOrderBy;

impl AnalyzerRule for SubqueryOrderBy {
    fn name(&self) -> &str {
        "subquery_order_by"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        place_sorts(hoist_sort(plan)?, true)
    }
}

/// Aggregates whose result depends on row order.
const ORDERED_AGGREGATES: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];

/// Order-dependent window functions that ignore the frame. Without ORDER BY, `rank` and similar functions
/// treat all rows as peers.
const ORDERED_WINDOWS: [&str; 4] = ["row_number", "lag", "lead", "ntile"];

/// Keeps only the sorts that matter. `is_observed`: the output order of the plan is observable.
fn place_sorts(plan: LogicalPlan, is_observed: bool) -> Result<LogicalPlan> {
    let plan = match plan {
        LogicalPlan::Sort(sort) if !is_observed && sort.fetch.is_none() => {
            return place_sorts(Arc::unwrap_or_clone(sort.input), false);
        }
        LogicalPlan::Aggregate(aggregate) => LogicalPlan::Aggregate(order_aggregate(aggregate)?),
        LogicalPlan::Window(window) => LogicalPlan::Window(order_window(window)?),
        other => other,
    };
    let below = match &plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_)
            if is_observed =>
        {
            Order::Preserved
        }
        LogicalPlan::Window(window) if is_observed && window.window_expr.iter().all(keeps_order) => {
            Order::Preserved
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
        _ => Order::Observed,
    };
    let child = |child| {
        Ok(Transformed::yes(match below {
            Order::Observed => place_sorts(hoist_sort(child)?, true)?,
            Order::Preserved => place_sorts(child, true)?,
            Order::Lost => place_sorts(child, false)?,
        }))
    };
    let plan = plan.map_children(child)?.data;
    Ok(plan.map_subqueries(|subquery| Ok(Transformed::yes(place_sorts(subquery, false)?)))?.data)
}

/// The effect of an operator on the order of its input.
#[derive(Clone, Copy)]
enum Order {
    /// Its result depends on it.
    Observed,
    /// Its output has the same order.
    Preserved,
    Lost,
}

/// Moves the sort to the end of a plan: operators between a sort and its consumer may run in parallel.
fn hoist_sort(plan: LogicalPlan) -> Result<LogicalPlan> {
    if ends_sorted(&plan) {
        return Ok(plan);
    }
    let Some((input, keys)) = carry_keys(&plan, false)? else { return Ok(plan) };
    let columns = (0..plan.schema().fields().len()).map(|at| column_at(&input, at)).collect();
    let sorted = LogicalPlan::Sort(Sort { expr: keys, input: Arc::new(input), fetch: None });
    Ok(LogicalPlan::Projection(Projection::try_new_with_schema(
        columns,
        Arc::new(sorted),
        Arc::clone(plan.schema()),
    )?))
}

/// Whether a plan ends with a sort or a limit, with nothing computed above.
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

/// Whether a window function preserves the order of its input.
fn keeps_order(expr: &Expr) -> bool {
    window_function(expr)
        .is_some_and(|window| window.params.partition_by.is_empty() && window.params.order_by.is_empty())
}

/// Whether the result of an aggregate depends on the input order.
fn depends_on_order(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => depends_on_order(&alias.expr),
        Expr::AggregateFunction(call) => {
            call.params.order_by.is_empty()
                && !call.params.distinct
                && ORDERED_AGGREGATES.contains(&call.func.name())
        }
        _ => false,
    }
}

/// The same for a window function.
fn window_depends_on_order(expr: &Expr) -> bool {
    window_function(expr).is_some_and(|window| {
        let name = window.fun.name();
        let frame = &window.params.window_frame;
        let is_aggregate = matches!(window.fun, WindowFunctionDefinition::AggregateUDF(_));
        let is_ordered = ORDERED_WINDOWS.contains(&name)
            || ORDERED_AGGREGATES.contains(&name) && (counts_rows(frame) || covers_partition(frame))
            || is_aggregate && counts_rows(frame) && !covers_partition(frame);
        window.params.order_by.is_empty() && !window.params.distinct && is_ordered
    })
}

/// Whether a frame counts rows regardless of peers.
fn counts_rows(frame: &WindowFrame) -> bool {
    frame.units == WindowFrameUnits::Rows
}

/// Whether a frame covers the whole partition.
fn covers_partition(frame: &WindowFrame) -> bool {
    let is_open = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(rows) | WindowFrameBound::Following(rows) => rows.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    is_open(&frame.start_bound) && is_open(&frame.end_bound)
}

/// Adds ORDER BY to an expression, and keeps its name.
fn add_order(expr: Expr, keys: &[SortExpr]) -> Expr {
    let name = expr.schema_name().to_string();
    match expr {
        Expr::Alias(mut alias) => {
            alias.expr = Box::new(add_order(*alias.expr, keys));
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

fn order_aggregate(aggregate: Aggregate) -> Result<Aggregate> {
    if !aggregate.aggr_expr.iter().any(depends_on_order) {
        return Ok(aggregate);
    }
    let Some((input, keys)) = carry_keys(&aggregate.input, false)? else { return Ok(aggregate) };
    let aggregates = aggregate.aggr_expr.into_iter().map(|expr| match depends_on_order(&expr) {
        true => add_order(expr, &keys),
        false => expr,
    });
    Aggregate::try_new(Arc::new(input), aggregate.group_expr, aggregates.collect())
}

fn order_window(window: Window) -> Result<Window> {
    if !window.window_expr.iter().any(window_depends_on_order) {
        return Ok(window);
    }
    let Some((input, keys)) = carry_keys(&window.input, false)? else { return Ok(window) };
    let windows = window.window_expr.into_iter().map(|expr| match window_depends_on_order(&expr) {
        true => add_order(expr, &keys),
        false => expr,
    });
    Window::try_new(windows.collect(), Arc::new(input))
}

/// Extends the rows of a sort further below by its key columns; `None`: they are not sorted, or an operator
/// in between changes the order. `is_kept`: the rows themselves stay sorted.
fn carry_keys(plan: &LogicalPlan, is_kept: bool) -> Result<Option<(LogicalPlan, Vec<SortExpr>)>> {
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
            let Some((input, keys)) = carry_keys(&projection.input, is_kept)? else { return Ok(None) };
            project_keys(projection.expr.clone(), input, keys)?
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some((input, keys)) = carry_keys(&alias.input, is_kept)? else { return Ok(None) };
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            let (input, keys) = match keys.iter().all(|key| matches!(key.expr, Expr::Column(_))) {
                true => (input, keys),
                false => project_keys(columns, input, keys)?,
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
            let Some((input, keys)) = carry_keys(&filter.input, is_kept)? else { return Ok(None) };
            (LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(input))?), keys)
        }
        LogicalPlan::Limit(limit) => {
            let Some((input, keys)) = carry_keys(&limit.input, true)? else { return Ok(None) };
            let (skip, fetch) = (limit.skip.clone(), limit.fetch.clone());
            (LogicalPlan::Limit(Limit { skip, fetch, input: Arc::new(input) }), keys)
        }
        LogicalPlan::Window(window) if window.window_expr.iter().all(keeps_order) => {
            let is_kept = is_kept || window.window_expr.iter().any(window_depends_on_order);
            let Some((input, keys)) = carry_keys(&window.input, is_kept)? else { return Ok(None) };
            (LogicalPlan::Window(Window::try_new(window.window_expr.clone(), Arc::new(input))?), keys)
        }
        _ => return Ok(None),
    }))
}

/// Adds missing sort keys to a projection; also returns the keys under their names above it.
fn project_keys(
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
