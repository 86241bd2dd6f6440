//! Short-circuit evaluation of AND and OR: operands that may fail are evaluated only for the rows that
//! earlier operands do not decide.
//!
//! DataFusion evaluates the right side for all rows of a batch, or for some, depending on how many the left
//! side selects. So `b <> 0 AND 1 / b > 1` failed (22012), depending on the batch size. A CASE evaluates its
//! results only for matching rows. Predicates of filters and joins treat NULL as false and may be reordered:
//! operands that cannot fail come first and stay visible to scans and estimates, those that may fail follow.
//! All other expressions keep their order and their NULL results.
//!
//! ```text
//! Filter: a = 1 AND 1 / b > 1 OR a = 2  ─►  Filter: (a = 1 OR a = 2) AND CASE …, usable by scans
//! Filter: 1 / b > 1 AND b != 0        ─►  Filter: b != 0 AND CASE WHEN b != 0 THEN 1 / b > 1 ELSE false END
//! Projection: b != 0 AND 1 / b > 1    ─►  Projection: CASE WHEN (b != 0) IS FALSE THEN false
//!                                                      ELSE b != 0 AND 1 / b > 1 END
//! Projection: b = 0 OR 1 / b > 1      ─►  Projection: CASE WHEN (b = 0) IS TRUE THEN true
//!                                                      ELSE b = 0 OR 1 / b > 1 END
//! ```
//! This is the last rewrite of a logical plan, and runs once: the optimizer would turn such CASEs back into
//! ANDs, and extract common subexpressions into columns, which scans cannot use for pruning. Common
//! subexpression elimination does not extract from the right side of an AND: so predicates are ordered before
//! it ([`ConditionOrder`]).
//!
//! ```text
//! Filter: 4 / b > 1 AND 4 / b < 3 AND b != 0  ─►  Filter: b != 0 AND 4 / b > 1 AND 4 / b < 3
//! ```
//! `ShortCircuit` and `ConditionOrder` can go when DataFusion evaluates the right side of AND and OR only for
//! undecided rows (apache/datafusion#8927, open).

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
use crate::rewrite::{input_schema, join_operands, map_node_expressions, operands_of};

/// Wraps the query planner, so that it plans short-circuited conditions.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    match builder.query_planner().take() {
        Some(planner) => builder.with_query_planner(Arc::new(ShortCircuit(planner))),
        None => builder,
    }
}

/// Inserts [`ConditionOrder`] before common subexpression elimination.
pub fn insert(rules: &mut Vec<Arc<dyn OptimizerRule + Send + Sync>>) {
    let place = rules.iter().position(|rule| rule.name() == "common_sub_expression_eliminate");
    rules.insert(place.unwrap_or(rules.len()), Arc::new(ConditionOrder));
}

/// Orders the conjuncts of filters: those that may fail come last.
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
        if !node_needs_rewrite(&plan)? {
            return Ok(Transformed::no(plan));
        }
        let LogicalPlan::Filter(mut filter) = plan else { return Ok(Transformed::no(plan)) };
        let operands = split_conjunction(&filter.predicate);
        let schema = filter.input.schema();
        let fallible =
            operands.iter().map(|operand| may_fail(operand, schema)).collect::<Result<Vec<_>>>()?;
        if fallible.is_sorted() {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let mut operands: Vec<(Expr, bool)> = operands.into_iter().cloned().zip(fallible).collect();
        operands.sort_by_key(|(_, may_fail)| *may_fail);
        filter.predicate =
            join_operands(operands.into_iter().map(|(operand, _)| operand).collect(), Operator::And);
        Ok(Transformed::yes(LogicalPlan::Filter(filter)))
    }
}

#[derive(Debug)]
struct ShortCircuit(Arc<dyn QueryPlanner + Send + Sync>);

// Methods are written out to keep compile times low: docs/decisions/0025-boxed-futures-behind-traits.md
impl QueryPlanner for ShortCircuit {
    fn create_physical_plan<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        plan: &'b LogicalPlan,
        session: &'c dyn Session,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            match needs_rewrite(plan)? {
                true => self.0.create_physical_plan(&short_circuit(plan.clone())?, session).await,
                false => self.0.create_physical_plan(plan, session).await,
            }
        }
        .boxed()
    }
}

/// Whether a node has both a compound condition and a fallible expression. Most plans have none, and need no
/// copy.
fn needs_rewrite(plan: &LogicalPlan) -> Result<bool> {
    let mut is_found = false;
    plan.apply_with_subqueries(|node| {
        is_found |= node_needs_rewrite(node)?;
        Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_found)
}

fn node_needs_rewrite(node: &LogicalPlan) -> Result<bool> {
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
    let changed = plan.transform_up_with_subqueries(|node| match node_needs_rewrite(&node)? {
        true => rewrite_node(node),
        false => Ok(Transformed::no(node)),
    })?;
    Ok(changed.data)
}

fn rewrite_node(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&node)?;
    match node {
        LogicalPlan::Filter(mut filter) => {
            let condition = rewrite_expr(add_weakened(filter.predicate, &schema)?, &schema, true)?;
            filter.predicate = condition.data;
            Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), condition.transformed))
        }
        LogicalPlan::Join(mut join) => {
            let Some(filter) = join.filter.take() else {
                return Ok(Transformed::no(LogicalPlan::Join(join)));
            };
            let condition = rewrite_expr(add_weakened(filter, &schema)?, &schema, true)?;
            join.filter = Some(condition.data);
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), condition.transformed))
        }
        LogicalPlan::TableScan(mut scan) => {
            let known = join_operands(scan.filters.drain(..).collect(), Operator::And);
            let filters = operands_of(add_weakened(known, &schema)?, Operator::And);
            let filters = filters.into_iter().map(|filter| rewrite_expr(filter, &schema, true));
            let filters = filters.collect::<Result<Vec<_>>>()?;
            let is_changed = filters.iter().any(|filter| filter.transformed);
            let filters = filters.into_iter().map(|filter| filter.data).collect();
            let guarded = guard_scan_filters(filters, &schema)?;
            scan.filters = guarded.data;
            Ok(Transformed::new_transformed(LogicalPlan::TableScan(scan), is_changed || guarded.transformed))
        }
        node => map_node_expressions(node, |expr| rewrite_expr(expr, &schema, false)),
    }
}

/// Short-circuits ANDs and ORs in an expression. `is_condition`: only rows for which it is true matter.
fn rewrite_expr(expr: Expr, schema: &DFSchema, is_condition: bool) -> Result<Transformed<Expr>> {
    let mut is_root = true;
    expr.transform_down(|part| {
        let is_condition = std::mem::take(&mut is_root) && is_condition;
        match part {
            Expr::Case(case) if case.expr.is_none() => {
                let case = rewrite_case(case, schema, is_condition)?;
                Ok(Transformed::new(Expr::Case(case.data), case.transformed, TreeNodeRecursion::Jump))
            }
            Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
                let chain = rewrite_chain(part, op, schema, is_condition)?;
                Ok(Transformed::new(chain.data, chain.transformed, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        }
    })
}

/// Short-circuits a searched CASE. Its conditions treat NULL as false; so do its results if it is itself a
/// condition.
fn rewrite_case(case: Case, schema: &DFSchema, is_condition: bool) -> Result<Transformed<Case>> {
    let mut is_changed = false;
    let mut inside = |expr: Box<Expr>, is_condition: bool| -> Result<Box<Expr>> {
        let changed = rewrite_expr(*expr, schema, is_condition)?;
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

/// Short-circuits a chain of ANDs or of ORs.
fn rewrite_chain(
    chain: Expr,
    op: Operator,
    schema: &DFSchema,
    is_condition: bool,
) -> Result<Transformed<Expr>> {
    if !may_fail(&chain, schema)? {
        return Ok(Transformed::no(chain));
    }
    let mut is_changed = false;
    let (mut operands, mut fallible) = (Vec::new(), Vec::new());
    for operand in operands_of(chain, op) {
        let operand = rewrite_expr(operand, schema, is_condition)?;
        is_changed |= operand.transformed;
        fallible.push(may_fail(&operand.data, schema)?);
        operands.push(operand.data);
    }
    match (is_condition, op) {
        (true, Operator::And) => return Ok(Transformed::yes(conjunction_case(operands, &fallible))),
        (true, _) => return Ok(Transformed::yes(disjunction_case(operands, &fallible))),
        _ => {}
    }
    // Each operand can be evaluated twice except for one, which is the volatile one if any.
    let volatile = operands.iter().filter(|operand| operand.is_volatile()).count();
    match fallible.iter().rposition(|may_fail| *may_fail) {
        Some(last) if last > 0 && volatile < 2 => {
            let tail = operands.split_off(last + 1);
            let guarded = ordered_chain(operands, &fallible[..=last], op);
            Ok(Transformed::yes(join_operands(std::iter::once(guarded).chain(tail).collect(), op)))
        }
        _ => Ok(Transformed::new_transformed(join_operands(operands, op), is_changed)),
    }
}

/// Builds a conjunction of which only true rows matter.
fn conjunction_case(operands: Vec<Expr>, fallible: &[bool]) -> Expr {
    let (mut safe, mut steps) = (Vec::new(), Vec::new());
    for (operand, may_fail) in operands.into_iter().zip(fallible) {
        // Volatile operands are evaluated once.
        let side = if *may_fail && !operand.is_volatile() { &mut steps } else { &mut safe };
        side.push(operand);
    }
    let guard: Vec<Expr> = safe.iter().filter(|operand| !operand.is_volatile()).cloned().collect();
    if !guard.is_empty() {
        steps.insert(0, join_operands(guard, Operator::And));
    }
    if steps.len() < 2 {
        safe.extend(steps);
        return join_operands(safe, Operator::And);
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
    join_operands(safe, Operator::And)
}

/// Builds a disjunction of which only true rows matter.
fn disjunction_case(operands: Vec<Expr>, fallible: &[bool]) -> Expr {
    let (safe, mut steps): (Vec<_>, Vec<_>) =
        operands.into_iter().zip(fallible).partition(|(_, may_fail)| !**may_fail);
    let safe: Vec<Expr> = safe.into_iter().map(|(operand, _)| operand).collect();
    let last = steps.pop().map(|(operand, _)| operand);
    let steps = steps.into_iter().map(|(operand, _)| operand);
    let first = (!safe.is_empty()).then(|| join_operands(safe, Operator::Or));
    let whens: Vec<_> =
        first.into_iter().chain(steps).map(|step| (Box::new(step), Box::new(lit(true)))).collect();
    match (last, whens.is_empty()) {
        (Some(last), false) => Expr::Case(Case::new(None, whens, Some(Box::new(last)))),
        (Some(last), true) => last,
        // No operand may fail.
        (None, _) => join_operands(whens.into_iter().map(|(when, _)| *when).collect(), Operator::Or),
    }
}

/// Builds a chain that preserves order and NULL: each step is evaluated for the rows that no earlier one
/// decides.
///
/// Each operand occurs twice, as a step and in the final chain, except for one: a volatile operand, or one
/// larger than all others, so that nested chains do not grow exponentially.
fn ordered_chain(mut operands: Vec<Expr>, fallible: &[bool], op: Operator) -> Expr {
    let decides = |step: Expr| match op {
        Operator::And => (Box::new(step.is_false()), Box::new(lit(false))),
        _ => (Box::new(step.is_true()), Box::new(lit(true))),
    };
    let sizes: Vec<usize> = operands.iter().map(node_count).collect();
    let largest = sizes.iter().enumerate().max_by_key(|(_, size)| **size).map_or(0, |(at, _)| at);
    let is_large = sizes[largest] > NODES_MIN && 2 * sizes[largest] > sizes.iter().sum();
    let volatile = operands.iter().position(Expr::is_volatile);
    if let Some(once) = volatile.or(is_large.then_some(largest)).filter(|_| operands.len() > 1) {
        let large = operands.remove(once);
        let others: Vec<bool> =
            fallible.iter().enumerate().filter(|(at, _)| *at != once).map(|(_, may)| *may).collect();
        let before: Vec<Expr> = operands[..once].to_vec();
        // If it is undecided, the other operands decide, in order.
        let undecided = lit(op == Operator::And);
        let open = Expr::Literal(ScalarValue::Boolean(None), None);
        let rest = ordered_chain(operands, &others, op);
        let unknown = join_operands(vec![rest.clone(), open], op);
        let decided = lit(op != Operator::And);
        let whens =
            vec![(Box::new(decided.clone()), Box::new(decided)), (Box::new(undecided), Box::new(rest))];
        let case = Expr::Case(Case::new(Some(Box::new(large)), whens, Some(Box::new(unknown))));
        return match before.is_empty() {
            true => case,
            false => {
                let when = decides(join_operands(before, op));
                Expr::Case(Case::new(None, vec![when], Some(Box::new(case))))
            }
        };
    }
    if operands.len() < 2 {
        return join_operands(operands, op);
    }
    let full_chain = join_operands(operands.clone(), op);
    let mut whens = Vec::new();
    let mut safe = Vec::new();
    // The last operand only occurs in the whole chain.
    for (operand, may_fail) in operands.into_iter().zip(fallible).rev().skip(1).rev() {
        if !*may_fail {
            safe.push(operand);
            continue;
        }
        if !safe.is_empty() {
            whens.push(decides(join_operands(std::mem::take(&mut safe), op)));
        }
        whens.push(decides(operand));
    }
    if !safe.is_empty() {
        whens.push(decides(join_operands(safe, op)));
    }
    Expr::Case(Case::new(None, whens, Some(Box::new(full_chain))))
}

/// The minimum number of nodes of an operand that counts as large.
const NODES_MIN: usize = 8;

fn node_count(expr: &Expr) -> usize {
    let mut nodes = 0;
    // The closure is infallible.
    let _ = expr.apply(|_| {
        nodes += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    nodes
}

/// A weaker condition without fallible parts, which scans can use: `id = 5 OR id = 7` for `id = 5 AND 1 / b >
/// 1 OR id = 7`. `None`: no such condition.
fn weaken(condition: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) = condition else {
        return Ok((!may_fail(condition, schema)? && !condition.is_volatile()).then(|| condition.clone()));
    };
    let operands = operands_of(condition.clone(), *op);
    let weak = operands.iter().map(|operand| weaken(operand, schema)).collect::<Result<Vec<_>>>()?;
    if *op == Operator::Or && weak.iter().any(Option::is_none) {
        return Ok(None);
    }
    let weak: Vec<Expr> = weak.into_iter().flatten().collect();
    Ok((!weak.is_empty()).then(|| join_operands(weak, *op)))
}

/// Adds the weakened form of each disjunction to a condition.
fn add_weakened(condition: Expr, schema: &DFSchema) -> Result<Expr> {
    let operands = operands_of(condition, Operator::And);
    let mut all = Vec::with_capacity(operands.len());
    for operand in operands {
        if matches!(&operand, Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }))
            && may_fail(&operand, schema)?
        {
            all.extend(weaken(&operand, schema)?);
        }
        all.push(operand);
    }
    Ok(join_operands(all, Operator::And))
}

/// Guards the filters of a scan, which evaluates them one by one, and may report some as exact. A fallible
/// filter is guarded only by filters on a subset of its columns, so that the scan's pushdown support for it
/// does not change.
fn guard_scan_filters(filters: Vec<Expr>, schema: &DFSchema) -> Result<Transformed<Vec<Expr>>> {
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
        let then = (Box::new(join_operands(guard, Operator::And)), Box::new(filter.clone()));
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

    fn filter_line(condition: Expr) -> String {
        first_line(scan().filter(condition).unwrap().build().unwrap())
    }

    fn projection_line(expr: Expr) -> String {
        first_line(scan().project(vec![expr.alias("x")]).unwrap().build().unwrap())
    }

    fn quotient() -> Expr {
        (lit(1_i64) / col("b")).gt(lit(1_i64))
    }

    fn is_set() -> Expr {
        col("b").not_eq(lit(0_i64))
    }

    #[test]
    fn fallible_conjuncts_are_last() {
        let expected = "Filter: t.b != Int64(0) AND CASE WHEN t.b != Int64(0) THEN Int64(1) / t.b > Int64(1) \
                        ELSE Boolean(false) END";
        assert_eq!(filter_line(is_set().and(quotient())), expected);
        assert_eq!(filter_line(quotient().and(is_set())), expected);
        let other = (col("a") / lit(0_i64)).is_null();
        assert_eq!(
            filter_line(quotient().and(other.clone())),
            "Filter: CASE WHEN Int64(1) / t.b > Int64(1) THEN t.a / Int64(0) IS NULL ELSE Boolean(false) END"
        );
        assert_eq!(
            filter_line(quotient().and(is_set()).and(other)),
            "Filter: t.b != Int64(0) AND CASE WHEN t.b != Int64(0) IS NOT TRUE THEN Boolean(false) WHEN Int64(1) \
             / t.b > Int64(1) IS NOT TRUE THEN Boolean(false) ELSE t.a / Int64(0) IS NULL END"
        );
        assert_eq!(
            filter_line(quotient().or(is_set().is_not_true())),
            "Filter: CASE WHEN t.b != Int64(0) IS NOT TRUE THEN Boolean(true) ELSE Int64(1) / t.b > Int64(1) END"
        );
    }

    #[test]
    fn infallible_conditions_stay() {
        let plain = is_set().and(col("s").like(lit("a%"))).or(col("a").is_null());
        let plan = scan().filter(plain).unwrap().build().unwrap();
        assert!(!needs_rewrite(&plan).unwrap());
        let alone = scan().filter(quotient()).unwrap().build().unwrap();
        assert!(!needs_rewrite(&alone).unwrap());
    }

    #[test]
    fn other_expressions_keep_their_order_and_their_null() {
        assert_eq!(
            projection_line(is_set().and(quotient())),
            "Projection: CASE WHEN t.b != Int64(0) IS FALSE THEN Boolean(false) ELSE t.b != Int64(0) AND Int64(1) \
             / t.b > Int64(1) END AS x"
        );
        assert_eq!(
            projection_line(is_set().is_not_true().or(quotient())),
            "Projection: CASE WHEN t.b != Int64(0) IS NOT TRUE IS TRUE THEN Boolean(true) ELSE t.b != Int64(0) IS \
             NOT TRUE OR Int64(1) / t.b > Int64(1) END AS x"
        );
        // There is no earlier operand.
        assert_eq!(
            projection_line(quotient().and(is_set())),
            "Projection: Int64(1) / t.b > Int64(1) AND t.b != Int64(0) AS x"
        );
    }

    #[test]
    fn conditions_are_ordered_before_common_subexpressions() {
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
    fn disjunctions_keep_weaker_conditions_for_scans() {
        let known = col("a").eq(lit(5_i64)).and(quotient()).or(col("a").eq(lit(7_i64)));
        assert!(filter_line(known).starts_with("Filter: (t.a = Int64(5) OR t.a = Int64(7)) AND CASE WHEN"));
        let unknown = quotient().or(col("a").eq(lit(7_i64)));
        assert!(filter_line(unknown).starts_with("Filter: CASE WHEN"));
    }

    #[test]
    fn nested_chains_do_not_grow_exponentially() {
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
                node_count(&projection.expr[0])
            };
            assert!(size(40) < 3 * size(20), "{} {}", size(20), size(40));
        }
    }

    #[test]
    fn long_chains_become_balanced_trees() {
        let operands: Vec<Expr> = (0..20_000_i64).map(|at| (col("a") / lit(at)).gt(col("b"))).collect();
        for op in [Operator::And, Operator::Or] {
            let condition = join_operands(operands.clone(), op);
            let plan = scan().filter(condition.clone()).unwrap().build().unwrap();
            assert!(needs_rewrite(&plan).unwrap());
            short_circuit(plan).unwrap();
            short_circuit(scan().project(vec![condition.alias("x")]).unwrap().build().unwrap()).unwrap();
        }
    }
}
