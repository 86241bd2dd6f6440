//! AND and OR that stop at what decides them: what may fail is computed for the rows only that are not
//! decided by what stands before it.
//!
//! DataFusion computes both sides for all rows of a batch, or for some of them, by how many the left side
//! lets through. So `b <> 0 AND 1 / b > 1` failed (22012), and where it did depended on the size of batches.
//! A CASE computes what it gives only for the rows that come to it. Conditions of filters and joins take
//! NULL for false, and have no order: those that cannot fail stay as they are, where scans and estimates
//! look at them, and those that may fail come behind them. Anything else keeps its order and its NULL.
//!
//! ```text
//! Filter: a = 1 AND 1 / b > 1 OR a = 2  ─►  Filter: (a = 1 OR a = 2) AND CASE …, for scans to look at
//! Filter: 1 / b > 1 AND b != 0        ─►  Filter: b != 0 AND CASE WHEN b != 0 THEN 1 / b > 1 ELSE false END
//! Projection: b != 0 AND 1 / b > 1    ─►  Projection: CASE WHEN (b != 0) IS FALSE THEN false
//!                                                      ELSE b != 0 AND 1 / b > 1 END
//! Projection: b = 0 OR 1 / b > 1      ─►  Projection: CASE WHEN (b = 0) IS TRUE THEN true
//!                                                      ELSE b = 0 OR 1 / b > 1 END
//! ```
//! It is the last thing that happens to a logical plan, once: the optimizer would make ANDs of such CASEs
//! again, and columns of what they have twice, which no scan can look at. It makes columns, too, of what a
//! condition has twice, but for what stands on the right of an AND: so conditions are put into their order
//! before ([`ConditionOrder`]).
//!
//! ```text
//! Filter: 4 / b > 1 AND 4 / b < 3 AND b != 0  ─►  Filter: b != 0 AND 4 / b > 1 AND 4 / b < 3
//! ```
//! `ShortCircuit` and `ConditionOrder` can go when AND and OR compute their right sides for undecided rows
//! only (apache/datafusion#8927, open).

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::fallible::{has_risk, may_fail};
use crate::rewrite::{input_schema, map_node_expressions};

/// Has what makes the physical plan see conditions that stop at what decides them.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    match builder.query_planner().take() {
        Some(planner) => builder.with_query_planner(Arc::new(ShortCircuit(planner))),
        None => builder,
    }
}

/// Has [`ConditionOrder`] run in front of the rule that makes columns of what expressions have twice.
pub fn insert(rules: &mut Vec<Arc<dyn OptimizerRule + Send + Sync>>) {
    let place = rules.iter().position(|rule| rule.name() == "common_sub_expression_eliminate");
    rules.insert(place.unwrap_or(rules.len()), Arc::new(ConditionOrder));
}

/// Conditions of filters that may fail come behind those that cannot.
#[derive(Debug)]
struct ConditionOrder;

impl OptimizerRule for ConditionOrder {
    fn name(&self) -> &str {
        "condition_order"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !node_has_work(&plan)? {
            return Ok(Transformed::no(plan));
        }
        let LogicalPlan::Filter(mut filter) = plan else { return Ok(Transformed::no(plan)) };
        let members = split_conjunction(&filter.predicate);
        let schema = filter.input.schema();
        let fallible = members.iter().map(|member| may_fail(member, schema)).collect::<Result<Vec<_>>>()?;
        if fallible.is_sorted() {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let mut members: Vec<(Expr, bool)> = members.into_iter().cloned().zip(fallible).collect();
        members.sort_by_key(|(_, may_fail)| *may_fail);
        filter.predicate = joined(members.into_iter().map(|(member, _)| member).collect(), Operator::And);
        Ok(Transformed::yes(LogicalPlan::Filter(filter)))
    }
}

#[derive(Debug)]
struct ShortCircuit(Arc<dyn QueryPlanner + Send + Sync>);

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl QueryPlanner for ShortCircuit {
    fn create_physical_plan<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        plan: &'b LogicalPlan,
        session: &'c dyn Session,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            match has_work(plan)? {
                true => self.0.create_physical_plan(&short_circuit(plan.clone())?, session).await,
                false => self.0.create_physical_plan(plan, session).await,
            }
        }
        .boxed()
    }
}

/// Whether any node has both a condition of several parts and something that may fail: most plans have not,
/// and need not be copied.
fn has_work(plan: &LogicalPlan) -> Result<bool> {
    let mut is_found = false;
    plan.apply_with_subqueries(|node| {
        is_found |= node_has_work(node)?;
        Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_found)
}

fn node_has_work(node: &LogicalPlan) -> Result<bool> {
    let (mut has_parts, mut may_fail) = (false, false);
    has_parts |= matches!(node, LogicalPlan::TableScan(scan) if scan.filters.len() > 1);
    node.apply_expressions(|expr| {
        expr.apply(|part| {
            has_parts |=
                matches!(part, Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }));
            may_fail |= has_risk(part);
            let is_found = has_parts && may_fail;
            Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(has_parts && may_fail)
}

fn short_circuit(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| match node_has_work(&node)? {
        true => in_node(node),
        false => Ok(Transformed::no(node)),
    })?;
    Ok(changed.data)
}

fn in_node(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&node)?;
    match node {
        LogicalPlan::Filter(mut filter) => {
            let condition = in_expr(with_weakened(filter.predicate, &schema)?, &schema, true)?;
            filter.predicate = condition.data;
            Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), condition.transformed))
        }
        LogicalPlan::Join(mut join) => {
            let Some(filter) = join.filter.take() else {
                return Ok(Transformed::no(LogicalPlan::Join(join)));
            };
            let condition = in_expr(with_weakened(filter, &schema)?, &schema, true)?;
            join.filter = Some(condition.data);
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), condition.transformed))
        }
        LogicalPlan::TableScan(mut scan) => {
            let known = joined(scan.filters.drain(..).collect(), Operator::And);
            let filters = members_of(with_weakened(known, &schema)?, Operator::And);
            let filters = filters.into_iter().map(|filter| in_expr(filter, &schema, true));
            let filters = filters.collect::<Result<Vec<_>>>()?;
            let is_changed = filters.iter().any(|filter| filter.transformed);
            let filters = filters.into_iter().map(|filter| filter.data).collect();
            let guarded = in_scan(filters, &schema)?;
            scan.filters = guarded.data;
            Ok(Transformed::new_transformed(LogicalPlan::TableScan(scan), is_changed || guarded.transformed))
        }
        node => map_node_expressions(node, |expr| in_expr(expr, &schema, false)),
    }
}

/// An expression whose ANDs and ORs stop at what decides them. Of a condition only the rows for which it is
/// true are wanted.
fn in_expr(expr: Expr, schema: &DFSchema, is_condition: bool) -> Result<Transformed<Expr>> {
    let mut is_root = true;
    expr.transform_down(|part| {
        let is_condition = std::mem::take(&mut is_root) && is_condition;
        match part {
            Expr::Case(case) if case.expr.is_none() => {
                let case = in_case(case, schema, is_condition)?;
                Ok(Transformed::new(Expr::Case(case.data), case.transformed, TreeNodeRecursion::Jump))
            }
            Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
                let chain = in_chain(part, op, schema, is_condition)?;
                Ok(Transformed::new(chain.data, chain.transformed, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        }
    })
}

/// A CASE of conditions, which take NULL for false; so do its results where it is one.
fn in_case(case: Case, schema: &DFSchema, is_condition: bool) -> Result<Transformed<Case>> {
    let mut is_changed = false;
    let mut inside = |expr: Box<Expr>, is_condition: bool| -> Result<Box<Expr>> {
        let changed = in_expr(*expr, schema, is_condition)?;
        is_changed |= changed.transformed;
        Ok(Box::new(changed.data))
    };
    let mut when_then_expr = Vec::with_capacity(case.when_then_expr.len());
    for (when, then) in case.when_then_expr {
        when_then_expr.push((inside(when, true)?, inside(then, is_condition)?));
    }
    let else_expr = case.else_expr.map(|other| inside(other, is_condition)).transpose()?;
    Ok(Transformed::new_transformed(Case { expr: None, when_then_expr, else_expr }, is_changed))
}

/// A chain of ANDs, or of ORs.
fn in_chain(chain: Expr, op: Operator, schema: &DFSchema, is_condition: bool) -> Result<Transformed<Expr>> {
    if !may_fail(&chain, schema)? {
        return Ok(Transformed::no(chain));
    }
    let mut is_changed = false;
    let (mut members, mut fallible) = (Vec::new(), Vec::new());
    for member in members_of(chain, op) {
        let member = in_expr(member, schema, is_condition)?;
        is_changed |= member.transformed;
        fallible.push(may_fail(&member.data, schema)?);
        members.push(member.data);
    }
    match (is_condition, op) {
        (true, Operator::And) => return Ok(Transformed::yes(condition(members, &fallible))),
        (true, _) => return Ok(Transformed::yes(alternatives(members, &fallible))),
        _ => {}
    }
    // One can stand there once, as it has to if it is volatile.
    let volatile = members.iter().filter(|member| member.is_volatile()).count();
    match fallible.iter().rposition(|may_fail| *may_fail) {
        Some(last) if last > 0 && volatile < 2 => {
            let tail = members.split_off(last + 1);
            let guarded = in_order(members, &fallible[..=last], op);
            Ok(Transformed::yes(joined(std::iter::once(guarded).chain(tail).collect(), op)))
        }
        _ => Ok(Transformed::new_transformed(joined(members, op), is_changed)),
    }
}

/// What a chain joins, in its order.
fn members_of(chain: Expr, op: Operator) -> Vec<Expr> {
    let (mut members, mut open) = (Vec::new(), vec![chain]);
    while let Some(expr) = open.pop() {
        match expr {
            Expr::BinaryExpr(binary) if binary.op == op => open.extend([*binary.right, *binary.left]),
            member => members.push(member),
        }
    }
    members
}

/// A chain as deep as one of a statement may be.
const CHAIN_LEVELS: usize = 16;

/// The chain of some members: a balanced tree if it is a long one.
fn joined(mut members: Vec<Expr>, op: Operator) -> Expr {
    let join = |left: Expr, right: Expr| datafusion::logical_expr::binary_expr(left, op, right);
    if members.len() > CHAIN_LEVELS {
        let right = members.split_off(members.len() / 2);
        return join(joined(members, op), joined(right, op));
    }
    // The empty chain is what joins nothing: true of ANDs, false of ORs.
    members.into_iter().reduce(join).unwrap_or_else(|| lit(op == Operator::And))
}

/// An AND of which only the rows are wanted for which it is true.
fn condition(members: Vec<Expr>, fallible: &[bool]) -> Expr {
    let (mut safe, mut steps) = (Vec::new(), Vec::new());
    for (member, may_fail) in members.into_iter().zip(fallible) {
        // What is volatile is computed once.
        let side = if *may_fail && !member.is_volatile() { &mut steps } else { &mut safe };
        side.push(member);
    }
    let guard: Vec<Expr> = safe.iter().filter(|member| !member.is_volatile()).cloned().collect();
    if !guard.is_empty() {
        steps.insert(0, joined(guard, Operator::And));
    }
    if steps.len() < 2 {
        safe.extend(steps);
        return joined(safe, Operator::And);
    }
    let last = steps.pop().unwrap_or_else(|| lit(true));
    let case = match <[Expr; 1]>::try_from(steps) {
        Ok([guard]) => Case::new(None, vec![(Box::new(guard), Box::new(last))], Some(Box::new(lit(false)))),
        Err(steps) => {
            let whens = steps.into_iter().map(|step| (Box::new(step.is_not_true()), Box::new(lit(false))));
            Case::new(None, whens.collect(), Some(Box::new(last)))
        }
    };
    safe.push(Expr::Case(case));
    joined(safe, Operator::And)
}

/// An OR of which only the rows are wanted for which it is true.
fn alternatives(members: Vec<Expr>, fallible: &[bool]) -> Expr {
    let (safe, mut steps): (Vec<_>, Vec<_>) =
        members.into_iter().zip(fallible).partition(|(_, may_fail)| !**may_fail);
    let safe: Vec<Expr> = safe.into_iter().map(|(member, _)| member).collect();
    let last = steps.pop().map(|(member, _)| member);
    let steps = steps.into_iter().map(|(member, _)| member);
    let first = (!safe.is_empty()).then(|| joined(safe, Operator::Or));
    let whens: Vec<_> =
        first.into_iter().chain(steps).map(|step| (Box::new(step), Box::new(lit(true)))).collect();
    match (last, whens.is_empty()) {
        (Some(last), false) => Expr::Case(Case::new(None, whens, Some(Box::new(last)))),
        (Some(last), true) => last,
        // Nothing may fail.
        (None, _) => joined(whens.into_iter().map(|(when, _)| *when).collect(), Operator::Or),
    }
}

/// A chain whose NULL counts, in its order: each step is computed for the rows that none before has decided.
///
/// All of them stand there twice, as a step and in the end, but for one: that which is volatile, or larger
/// than all others, so that what is nested does not grow with every level.
fn in_order(mut members: Vec<Expr>, fallible: &[bool], op: Operator) -> Expr {
    let decides = |step: Expr| match op {
        Operator::And => (Box::new(step.is_false()), Box::new(lit(false))),
        _ => (Box::new(step.is_true()), Box::new(lit(true))),
    };
    let sizes: Vec<usize> = members.iter().map(nodes_of).collect();
    let largest = sizes.iter().enumerate().max_by_key(|(_, size)| **size).map_or(0, |(at, _)| at);
    let is_large = sizes[largest] > NODES_MIN && 2 * sizes[largest] > sizes.iter().sum();
    let volatile = members.iter().position(Expr::is_volatile);
    if let Some(once) = volatile.or(is_large.then_some(largest)).filter(|_| members.len() > 1) {
        let large = members.remove(once);
        let others: Vec<bool> =
            fallible.iter().enumerate().filter(|(at, _)| *at != once).map(|(_, may)| *may).collect();
        let before: Vec<Expr> = members[..once].to_vec();
        // What it does not decide, the others do, in their order.
        let undecided = lit(op == Operator::And);
        let open = Expr::Literal(ScalarValue::Boolean(None), None);
        let rest = in_order(members, &others, op);
        let unknown = joined(vec![rest.clone(), open], op);
        let decided = lit(op != Operator::And);
        let whens =
            vec![(Box::new(decided.clone()), Box::new(decided)), (Box::new(undecided), Box::new(rest))];
        let case = Expr::Case(Case::new(Some(Box::new(large)), whens, Some(Box::new(unknown))));
        return match before.is_empty() {
            true => case,
            false => {
                let when = decides(joined(before, op));
                Expr::Case(Case::new(None, vec![when], Some(Box::new(case))))
            }
        };
    }
    if members.len() < 2 {
        return joined(members, op);
    }
    let whole = joined(members.clone(), op);
    let mut whens = Vec::new();
    let mut safe = Vec::new();
    // The last one is part of the whole only.
    for (member, may_fail) in members.into_iter().zip(fallible).rev().skip(1).rev() {
        if !*may_fail {
            safe.push(member);
            continue;
        }
        if !safe.is_empty() {
            whens.push(decides(joined(std::mem::take(&mut safe), op)));
        }
        whens.push(decides(member));
    }
    if !safe.is_empty() {
        whens.push(decides(joined(safe, op)));
    }
    Expr::Case(Case::new(None, whens, Some(Box::new(whole))))
}

/// From so many nodes on, a member of a chain may be one of the large ones.
const NODES_MIN: usize = 8;

fn nodes_of(expr: &Expr) -> usize {
    let mut nodes = 0;
    // Nothing fails here.
    let _ = expr.apply(|_| {
        nodes += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    nodes
}

/// What a condition says without what may fail, for scans to look at: `id = 5 OR id = 7` of `id = 5 AND 1 / b
/// > 1 OR id = 7`. `None`: nothing.
fn weakened(condition: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) = condition else {
        return Ok((!may_fail(condition, schema)? && !condition.is_volatile()).then(|| condition.clone()));
    };
    let members = members_of(condition.clone(), *op);
    let weak = members.iter().map(|member| weakened(member, schema)).collect::<Result<Vec<_>>>()?;
    if *op == Operator::Or && weak.iter().any(Option::is_none) {
        return Ok(None);
    }
    let weak: Vec<Expr> = weak.into_iter().flatten().collect();
    Ok((!weak.is_empty()).then(|| joined(weak, *op)))
}

/// A condition with what is known of its alternatives beside them.
fn with_weakened(condition: Expr, schema: &DFSchema) -> Result<Expr> {
    let members = members_of(condition, Operator::And);
    let mut all = Vec::with_capacity(members.len());
    for member in members {
        if matches!(&member, Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }))
            && may_fail(&member, schema)?
        {
            all.extend(weakened(&member, schema)?);
        }
        all.push(member);
    }
    Ok(joined(all, Operator::And))
}

/// The conditions of a scan, which looks at each by itself, and may take some of them as done. One that may
/// fail is guarded by those of no other columns, so that the scan does with it what it has said.
fn in_scan(filters: Vec<Expr>, schema: &DFSchema) -> Result<Transformed<Vec<Expr>>> {
    let fallible = filters.iter().map(|filter| may_fail(filter, schema)).collect::<Result<Vec<_>>>()?;
    let guards: Vec<&Expr> = filters
        .iter()
        .zip(&fallible)
        .filter_map(|(filter, may_fail)| (!may_fail && !filter.is_volatile()).then_some(filter))
        .collect();
    let mut is_changed = false;
    let guarded = filters.iter().zip(&fallible).map(|(filter, may_fail)| {
        let columns: HashSet<&Column> = filter.column_refs();
        let fitting = guards.iter().filter(|guard| guard.column_refs().is_subset(&columns));
        let guard: Vec<Expr> = fitting.map(|guard| (*guard).clone()).collect();
        if !may_fail || filter.is_volatile() || guard.is_empty() {
            return filter.clone();
        }
        is_changed = true;
        let then = (Box::new(joined(guard, Operator::And)), Box::new(filter.clone()));
        Expr::Case(Case::new(None, vec![then], Some(Box::new(lit(false)))))
    });
    let guarded = guarded.collect();
    Ok(Transformed::new_transformed(guarded, is_changed))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{LogicalPlanBuilder, col, table_scan};
    use datafusion::optimizer::OptimizerContext;

    use super::*;

    fn scan() -> LogicalPlanBuilder {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
        ]);
        LogicalPlanBuilder::from(table_scan(Some("t"), &schema, None).unwrap().build().unwrap())
    }

    fn first_line(plan: LogicalPlan) -> String {
        short_circuit(plan).unwrap().to_string().lines().next().unwrap_or_default().to_owned()
    }

    fn filtered(condition: Expr) -> String {
        first_line(scan().filter(condition).unwrap().build().unwrap())
    }

    fn projected(expr: Expr) -> String {
        first_line(scan().project(vec![expr.alias("x")]).unwrap().build().unwrap())
    }

    fn quotient() -> Expr {
        (lit(1_i64) / col("b")).gt(lit(1_i64))
    }

    fn is_set() -> Expr {
        col("b").not_eq(lit(0_i64))
    }

    #[test]
    fn conditions_have_what_may_fail_last() {
        let expected = "Filter: t.b != Int64(0) AND CASE WHEN t.b != Int64(0) THEN Int64(1) / t.b > Int64(1) \
                        ELSE Boolean(false) END";
        assert_eq!(filtered(is_set().and(quotient())), expected);
        assert_eq!(filtered(quotient().and(is_set())), expected);
        let other = (col("a") / lit(0_i64)).is_null();
        assert_eq!(
            filtered(quotient().and(other.clone())),
            "Filter: CASE WHEN Int64(1) / t.b > Int64(1) THEN t.a / Int64(0) IS NULL ELSE Boolean(false) END"
        );
        assert_eq!(
            filtered(quotient().and(is_set()).and(other)),
            "Filter: t.b != Int64(0) AND CASE WHEN t.b != Int64(0) IS NOT TRUE THEN Boolean(false) WHEN Int64(1) \
             / t.b > Int64(1) IS NOT TRUE THEN Boolean(false) ELSE t.a / Int64(0) IS NULL END"
        );
        assert_eq!(
            filtered(quotient().or(is_set().is_not_true())),
            "Filter: CASE WHEN t.b != Int64(0) IS NOT TRUE THEN Boolean(true) ELSE Int64(1) / t.b > Int64(1) END"
        );
    }

    #[test]
    fn what_cannot_fail_stays() {
        let plain = is_set().and(col("s").like(lit("a%"))).or(col("a").is_null());
        let plan = scan().filter(plain).unwrap().build().unwrap();
        assert!(!has_work(&plan).unwrap());
        let alone = scan().filter(quotient()).unwrap().build().unwrap();
        assert!(!has_work(&alone).unwrap());
    }

    #[test]
    fn other_expressions_keep_their_order_and_their_null() {
        assert_eq!(
            projected(is_set().and(quotient())),
            "Projection: CASE WHEN t.b != Int64(0) IS FALSE THEN Boolean(false) ELSE t.b != Int64(0) AND Int64(1) \
             / t.b > Int64(1) END AS x"
        );
        assert_eq!(
            projected(is_set().is_not_true().or(quotient())),
            "Projection: CASE WHEN t.b != Int64(0) IS NOT TRUE IS TRUE THEN Boolean(true) ELSE t.b != Int64(0) IS \
             NOT TRUE OR Int64(1) / t.b > Int64(1) END AS x"
        );
        // Nothing stands before it.
        assert_eq!(
            projected(quotient().and(is_set())),
            "Projection: Int64(1) / t.b > Int64(1) AND t.b != Int64(0) AS x"
        );
    }

    #[test]
    fn conditions_are_ordered_before_columns_are_made_of_them() {
        let condition = quotient().and(quotient().is_true()).and(is_set());
        let plan = scan().filter(condition).unwrap().build().unwrap();
        let ordered = ConditionOrder.rewrite(plan, &OptimizerContext::new()).unwrap();
        assert!(ordered.transformed);
        assert_eq!(
            ordered.data.to_string().lines().next(),
            Some(
                "Filter: t.b != Int64(0) AND Int64(1) / t.b > Int64(1) AND Int64(1) / t.b > Int64(1) IS TRUE"
            )
        );
        assert!(!ConditionOrder.rewrite(ordered.data, &OptimizerContext::new()).unwrap().transformed);
    }

    #[test]
    fn alternatives_leave_what_scans_can_look_at() {
        let known = col("a").eq(lit(5_i64)).and(quotient()).or(col("a").eq(lit(7_i64)));
        assert!(filtered(known).starts_with("Filter: (t.a = Int64(5) OR t.a = Int64(7)) AND CASE WHEN"));
        let unknown = quotient().or(col("a").eq(lit(7_i64)));
        assert!(filtered(unknown).starts_with("Filter: CASE WHEN"));
    }

    #[test]
    fn what_is_nested_does_not_grow_with_every_level() {
        let step = |at: i64| (lit(10_i64) / (col("b") + lit(at))).gt(lit(at));
        let nested = |levels: i64, turns: bool| {
            (1..levels).fold(step(0), |inner, at| match (at % 2 == 0, turns) {
                (true, false) => inner.and(step(at)),
                (true, true) => step(at).and(inner),
                (false, false) => inner.or(step(at)),
                (false, true) => step(at).or(inner),
            })
        };
        for turns in [false, true] {
            let size = |levels: i64| {
                let plan = scan().project(vec![nested(levels, turns).alias("x")]).unwrap().build().unwrap();
                let LogicalPlan::Projection(projection) = short_circuit(plan).unwrap() else { panic!() };
                nodes_of(&projection.expr[0])
            };
            assert!(size(40) < 3 * size(20), "{} {}", size(20), size(40));
        }
    }

    #[test]
    fn long_chains_are_no_deep_trees() {
        let members: Vec<Expr> = (0..20_000_i64).map(|at| (col("a") / lit(at)).gt(col("b"))).collect();
        for op in [Operator::And, Operator::Or] {
            let condition = joined(members.clone(), op);
            let plan = scan().filter(condition.clone()).unwrap().build().unwrap();
            assert!(has_work(&plan).unwrap());
            short_circuit(plan).unwrap();
            short_circuit(scan().project(vec![condition.alias("x")]).unwrap().build().unwrap()).unwrap();
        }
    }
}
