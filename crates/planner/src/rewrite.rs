//! Helpers that replace expressions in a logical plan.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, DdlStatement, Expr, LogicalPlan, Operator, Projection, Union, Window, binary_expr,
    lit,
};

/// Applies `replace` bottom-up to every expression of one node. Columns keep their names.
pub fn rewrite_expressions(
    plan: LogicalPlan,
    mut replace: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    map_node_expressions(plan, |expr| expr.transform_up(&mut replace))
}

/// Applies `replace` to the top-level expressions of one node. Columns keep their names.
pub fn map_node_expressions(
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
        // An aliased grouping set would not be one any more: its columns carry the names.
        Expr::GroupingSet(_) => expr.map_children(&mut named),
        expr => named(expr),
    })?;
    match changed.transformed {
        true => changed.map_data(LogicalPlan::recompute_schema),
        false => Ok(changed),
    }
}

/// Computes the original result of a call from the result of its replacement.
pub(crate) type ResultRewrite = fn(Expr) -> Expr;

/// Applies `change` to every call of an aggregate or window node. For calls whose replacement returns another
/// result, a projection above computes the original one.
pub(crate) fn map_calls(
    plan: LogicalPlan,
    mut change: impl FnMut(&mut Expr) -> Option<ResultRewrite>,
) -> Result<Transformed<LogicalPlan>> {
    let mut calls = match &plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.clone(),
        LogicalPlan::Window(window) => window.window_expr.clone(),
        _ => return Ok(Transformed::no(plan)),
    };
    let above: Vec<Option<ResultRewrite>> =
        calls.iter_mut().map(|call| change(unaliased_mut(call))).collect();
    if above.iter().all(Option::is_none) {
        return Ok(Transformed::no(plan));
    }
    for (at, (call, above)) in calls.iter_mut().zip(&above).enumerate() {
        if above.is_some() {
            *call = std::mem::take(unaliased_mut(call)).alias(format!("__called_{at}"));
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

/// Strips the aliases of an expression.
pub(crate) fn unaliased_mut(expr: &mut Expr) -> &mut Expr {
    match expr {
        Expr::Alias(alias) => unaliased_mut(&mut alias.expr),
        other => other,
    }
}

/// A rule that rewrites one plan node.
type Rule = fn(LogicalPlan) -> Result<Transformed<LogicalPlan>>;

/// Applies rules in order to the query of a view: DataFusion coerces it while creating the view, before its
/// own rules run.
pub fn rewrite_view(plan: LogicalPlan, rules: &[Rule]) -> Result<LogicalPlan> {
    let LogicalPlan::Ddl(DdlStatement::CreateView(mut create)) = plan else { return Ok(plan) };
    let mut input = Arc::unwrap_or_clone(create.input);
    for rule in rules {
        input = input.transform_up_with_subqueries(rule)?.data;
    }
    create.input = Arc::new(input);
    Ok(LogicalPlan::Ddl(DdlStatement::CreateView(create)))
}

/// Whether a UNION has other types than its first input. An uncoerced one does after its inputs changed: it
/// does not read their types again. A coerced one has the common types of all inputs.
pub(crate) fn has_stale_schema(union: &Union) -> bool {
    union.inputs.first().is_some_and(|first| {
        let types = union.schema.fields().iter().map(|field| field.data_type());
        !types.eq(first.schema().fields().iter().map(|field| field.data_type()))
    })
}

/// The schema that the expressions of a node refer to.
pub fn input_schema(plan: &LogicalPlan) -> Result<DFSchema> {
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

/// The operands of a chain in order.
pub(crate) fn operands_of(chain: Expr, op: Operator) -> Vec<Expr> {
    let (mut operands, mut open) = (Vec::new(), vec![chain]);
    while let Some(expr) = open.pop() {
        match expr {
            Expr::BinaryExpr(binary) if binary.op == op => open.extend([*binary.right, *binary.left]),
            operand => operands.push(operand),
        }
    }
    operands
}

/// The maximum depth of a chain that is not balanced.
const CHAIN_LEVELS: usize = 16;

/// Builds a chain from operands; a balanced tree if it is long.
pub(crate) fn join_operands(mut operands: Vec<Expr>, op: Operator) -> Expr {
    let join = |left: Expr, right: Expr| binary_expr(left, op, right);
    if operands.len() > CHAIN_LEVELS {
        let right = operands.split_off(operands.len() / 2);
        return join(join_operands(operands, op), join_operands(right, op));
    }
    // The empty chain is the neutral element: true for AND, false for OR.
    operands.into_iter().reduce(join).unwrap_or_else(|| lit(op == Operator::And))
}

/// Calls `level` with the sides of a comparison, if `expr` is one. Returns whether anything changed.
pub fn map_comparison_sides(expr: &mut Expr, level: impl FnOnce(&mut [&mut Expr]) -> bool) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => level(&mut [left, right]),
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

/// The same for the equality keys of a join.
pub(crate) fn map_join_keys(plan: &mut LogicalPlan, mut level: impl FnMut(&mut [&mut Expr]) -> bool) -> bool {
    let LogicalPlan::Join(join) = plan else { return false };
    let mut is_changed = false;
    for (left, right) in &mut join.on {
        is_changed |= level(&mut [left, right]);
    }
    is_changed
}

pub fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// An expression without its aliases.
pub fn strip_alias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => strip_alias(&alias.expr),
        other => other,
    }
}
