//! Queries that are read twice: the rows and, for the subqueries in their expressions, the values that these
//! are computed for.
//!
//! A query that would return other rows the second time, as it has volatile functions, a LIMIT without a
//! total order or sums of floating-point numbers, is computed once and its rows are shared ([`SharedRows`]).
//! So are the rows around a volatile subquery, which SQL computes for each row: they get a number, by which
//! their values differ.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::{Distinct, DistinctOn, Projection, Window};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use harrier_exec::operators::shared_rows::SharedRows;
use harrier_functions::window::ranking::row_number;

use super::carried::is_work_table;
use super::conditions::next_number;
use super::references::has_subquery;

/// Computed rows that the plans above read.
#[derive(Debug)]
pub(super) struct Shared {
    name: String,
    input: LogicalPlan,
}

impl Shared {
    /// Shares the rows of a plan. Returns also the plan that reads them, with the same schema.
    pub(super) fn of(plan: LogicalPlan) -> Result<(Self, LogicalPlan)> {
        let name = format!("__shared_{}", next_number());
        let names: Vec<String> = (0..plan.schema().fields().len()).map(|at| format!("{name}_{at}")).collect();
        let schema = Arc::clone(plan.schema());
        let list = schema.columns().into_iter().zip(&names);
        let list = list.map(|(column, name)| Expr::Column(column).alias(name)).collect();
        let input = LogicalPlan::Projection(Projection::try_new(list, Arc::new(plan))?);
        let scan = SharedRows::scan(&name, &input)?;
        let list = names.into_iter().zip(schema.iter()).map(|(column, (relation, field))| {
            Expr::Column(Column::new(Some(name.clone()), column))
                .alias_qualified(relation.cloned(), field.name())
        });
        let rows = Projection::try_new(list.collect(), Arc::new(scan))?;
        Ok((Self { name, input }, LogicalPlan::Projection(rows)))
    }

    /// The plan that computes the rows, and then `body`, which reads them.
    pub(super) fn around(self, body: LogicalPlan) -> LogicalPlan {
        SharedRows { name: self.name, input: self.input, body }.into_plan()
    }
}

/// Wraps a plan in the rows that it reads; those that read others come last.
pub(super) fn around(shared: Vec<Shared>, body: LogicalPlan) -> LogicalPlan {
    shared.into_iter().rev().fold(body, |body, shared| shared.around(body))
}

/// Adds the number of each row as a column.
pub(super) fn add_row_number(plan: LogicalPlan) -> Result<(LogicalPlan, Column)> {
    let own = plan.schema().columns();
    let number = row_number().call(vec![]);
    let computed = Expr::Column(Column::from_name(number.schema_name().to_string()));
    let name = format!("__row_{}", next_number());
    let window = LogicalPlan::Window(Window::try_new(vec![number], Arc::new(plan))?);
    let list = own.into_iter().map(Expr::Column).chain([computed.alias(&name)]).collect();
    let plan = LogicalPlan::Projection(Projection::try_new(list, Arc::new(window))?);
    Ok((plan, Column::from_name(name)))
}

/// Whether a plan has volatile functions.
pub(super) fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut is_found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            is_found |= expr.is_volatile();
            Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_found)
}

/// Whether a query returns the same rows when it is computed again. A LIMIT does if all columns are sort
/// keys.
pub(super) fn is_repeatable(query: &LogicalPlan) -> Result<bool> {
    if is_volatile(query)? {
        return Ok(false);
    }
    let mut is_repeatable = true;
    query.apply_with_subqueries(|node| {
        is_repeatable &= match node {
            LogicalPlan::Limit(limit) => is_ordered_by_all(&limit.input),
            LogicalPlan::Distinct(Distinct::On(on)) => is_ordered_by_selected(on),
            // A recursive term reads its rows once.
            LogicalPlan::TableScan(scan) => !is_work_table(scan),
            _ => true,
        };
        Ok(if is_repeatable { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_repeatable)
}

/// Whether `columns` have the same values when a query is computed again. Sums of floating-point numbers
/// depend on the order of the rows.
pub(super) fn is_exact(query: &LogicalPlan, columns: &[Column]) -> Result<bool> {
    let schema = query.schema();
    let is_float =
        |column: &Column| schema.field_from_column(column).is_ok_and(|field| field.data_type().is_floating());
    if !columns.iter().any(is_float) {
        return Ok(true);
    }
    let is_summed = query.exists(|node| {
        let (calls, schema) = match node {
            LogicalPlan::Aggregate(aggregate) => (&aggregate.aggr_expr, aggregate.input.schema()),
            LogicalPlan::Window(window) => (&window.window_expr, window.input.schema()),
            _ => return Ok(false),
        };
        let mut is_inexact = false;
        for call in calls {
            let name = call.qualified_name().1;
            let is_chosen = ["min(", "max(", "first_value(", "last_value(", "nth_value("];
            is_inexact |= call.get_type(schema)?.is_floating()
                && !is_chosen.iter().any(|chosen| name.starts_with(chosen));
        }
        Ok(is_inexact)
    })?;
    Ok(!is_summed)
}

/// Whether a limit on these rows is deterministic: all of their columns are sort keys.
fn is_ordered_by_all(rows: &LogicalPlan) -> bool {
    let (mut output, mut rows) = (None, rows);
    loop {
        match rows {
            LogicalPlan::SubqueryAlias(alias) => {
                // The alias renames the columns below.
                output = None;
                rows = &alias.input;
            }
            LogicalPlan::Projection(projection) if !projection.expr.iter().any(has_subquery) => {
                output = Some(columns_of(&projection.expr));
                rows = &projection.input;
            }
            LogicalPlan::Sort(sort) => {
                let keys: Vec<&Expr> = sort.expr.iter().map(|key| &key.expr).collect();
                let all = || sort.input.schema().columns().into_iter().collect();
                return are_keys(&output.unwrap_or_else(all), &keys);
            }
            _ => return false,
        }
    }
}

/// Whether DISTINCT ON is deterministic: all selected columns are sort keys.
fn is_ordered_by_selected(on: &DistinctOn) -> bool {
    let order = on.sort_expr.iter().flatten().map(|key| &key.expr);
    !on.select_expr.iter().any(has_subquery)
        && are_keys(&columns_of(&on.select_expr), &on.on_expr.iter().chain(order).collect::<Vec<_>>())
}

fn columns_of(exprs: &[Expr]) -> HashSet<Column> {
    exprs.iter().flat_map(Expr::column_refs).cloned().collect()
}

fn are_keys(columns: &HashSet<Column>, keys: &[&Expr]) -> bool {
    columns.iter().all(|column| keys.iter().any(|key| matches!(key, Expr::Column(key) if key == column)))
}
