//! Expressions of a plan put in the place of others.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, DdlStatement, Expr, LogicalPlan, Operator, Projection, Union, Window,
};

/// Has `replace` see every expression of one node, those inside of others first. Columns keep their names.
pub fn rewritten(
    plan: LogicalPlan,
    mut replace: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    replaced(plan, |expr| expr.transform_up(&mut replace))
}

/// The same for the expressions of the node as wholes.
pub fn replaced(
    plan: LogicalPlan,
    mut replace: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let mut named = |expr: Expr| {
        let name = names.save(&expr);
        let changed = replace(expr)?;
        Ok(changed.update_data(|expr| name.restore(expr)))
    };
    let changed = plan.map_expressions(|expr| match expr {
        // Under a name a grouping set would be none: its columns have theirs.
        Expr::GroupingSet(_) => expr.map_children(&mut named),
        expr => named(expr),
    })?;
    match changed.transformed {
        true => changed.map_data(LogicalPlan::recompute_schema),
        false => Ok(changed),
    }
}

/// What is made of what a function yields.
pub(crate) type Above = fn(Expr) -> Expr;

/// Has `change` see every call of an aggregate or a window node. Of those that it changes, which yield
/// something else then, a projection makes what they yielded before.
pub(crate) fn calls_replaced(
    plan: LogicalPlan,
    mut change: impl FnMut(&mut Expr) -> Option<Above>,
) -> Result<Transformed<LogicalPlan>> {
    let mut calls = match &plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.clone(),
        LogicalPlan::Window(window) => window.window_expr.clone(),
        _ => return Ok(Transformed::no(plan)),
    };
    let above: Vec<Option<Above>> = calls.iter_mut().map(|call| change(bare(call))).collect();
    if above.iter().all(Option::is_none) {
        return Ok(Transformed::no(plan));
    }
    for (at, (call, above)) in calls.iter_mut().zip(&above).enumerate() {
        if above.is_some() {
            *call = std::mem::take(bare(call)).alias(format!("__called_{at}"));
        }
    }
    let before = Arc::clone(plan.schema());
    let plan = match plan {
        LogicalPlan::Aggregate(aggregate) => {
            LogicalPlan::Aggregate(Aggregate::try_new(aggregate.input, aggregate.group_expr, calls)?)
        }
        LogicalPlan::Window(window) => LogicalPlan::Window(Window::try_new(calls, window.input)?),
        other => other,
    };
    let first = before.fields().len() - above.len();
    let columns = before.iter().enumerate().map(|(at, (relation, field))| {
        let column = Expr::Column(Column::from(plan.schema().qualified_field(at)));
        match at.checked_sub(first).and_then(|at| above[at]) {
            Some(above) => above(column).alias_qualified(relation.cloned(), field.name()),
            None => column,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?)))
}

/// What an expression with names is.
pub(crate) fn bare(expr: &mut Expr) -> &mut Expr {
    match expr {
        Expr::Alias(alias) => bare(&mut alias.expr),
        other => other,
    }
}

/// One node of a plan with a rule applied.
type Rule = fn(LogicalPlan) -> Result<Transformed<LogicalPlan>>;

/// Applies rules, one after the other, to what a view is made of: DataFusion coerces that as it makes the
/// view, before its own see it.
pub fn in_view(plan: LogicalPlan, rules: &[Rule]) -> Result<LogicalPlan> {
    let LogicalPlan::Ddl(DdlStatement::CreateView(mut create)) = plan else { return Ok(plan) };
    let mut input = Arc::unwrap_or_clone(create.input);
    for rule in rules {
        input = input.transform_up_with_subqueries(rule)?.data;
    }
    create.input = Arc::new(input);
    Ok(LogicalPlan::Ddl(DdlStatement::CreateView(create)))
}

/// Whether a UNION tells other types than its first input has, as it does before it is coerced if these have
/// changed: it does not look at them again. A coerced one has the types of all its inputs.
pub(crate) fn is_stale(union: &Union) -> bool {
    union.inputs.first().is_some_and(|first| {
        let told = union.schema.fields().iter().map(|field| field.data_type());
        !told.eq(first.schema().fields().iter().map(|field| field.data_type()))
    })
}

/// The columns that the expressions of a node speak of.
pub fn schema_below(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    match plan {
        LogicalPlan::TableScan(scan) => schema
            .merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?),
        LogicalPlan::Dml(dml) => {
            schema.merge(&DFSchema::try_from_qualified_schema(dml.table_name.clone(), &dml.target.schema())?)
        }
        _ => {}
    }
    Ok(schema)
}

/// Has `level` see what an expression compares with each other, if it does; tells whether that changed
/// anything.
pub fn level_sides(expr: &mut Expr, level: impl FnOnce(&mut [&mut Expr]) -> bool) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => level(&mut [left, right]),
        Expr::Between(Between { expr, low, high, .. }) => level(&mut [expr, low, high]),
        Expr::InList(InList { expr, list, .. }) => {
            let mut sides: Vec<&mut Expr> = vec![expr];
            sides.extend(list);
            level(&mut sides)
        }
        Expr::Case(case) => match &mut case.expr {
            Some(base) => {
                let mut sides: Vec<&mut Expr> = vec![base];
                sides.extend(case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut()));
                level(&mut sides)
            }
            None => false,
        },
        _ => false,
    }
}

/// The same for the keys of a join.
pub(crate) fn level_keys(plan: &mut LogicalPlan, mut level: impl FnMut(&mut [&mut Expr]) -> bool) -> bool {
    let LogicalPlan::Join(join) = plan else { return false };
    let mut is_changed = false;
    for (left, right) in &mut join.on {
        is_changed |= level(&mut [left, right]);
    }
    is_changed
}

pub fn compares(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}
