//! Guards of subqueries: the conditions under which SQL evaluates a part of an expression.
//!
//! A subquery that is joined is computed for all rows. One that may fail is computed only for the rows that
//! the guards select: the values it is computed for are taken from these rows ([`Outer::of`]).
//!
//! | expression | guards of its parts |
//! |---|---|
//! | `a AND b` | of `b`: `a IS NOT FALSE` |
//! | `a OR b` | of `b`: `a IS NOT TRUE` |
//! | `CASE WHEN a THEN b WHEN c THEN d ELSE e END` | of `b`: `a IS TRUE`; of `c`: `a IS NOT TRUE`; of `d`: those of `c` and `c IS TRUE`; of `e`: those of `c` and `c IS NOT TRUE` |
//! | `coalesce(a, b)` | of `b`: `a IS NULL` |
//!
//! [`Outer::of`]: super::dependent::Outer::of

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use harrier_functions::guard::single_row_value::only;

use super::references::scope;
use crate::fallible::may_fail_by_row;
use crate::rewrite::{join_operands, operands_of};

/// The conditions under which SQL evaluates a part of an expression, from the outside to the inside.
#[derive(Debug, Clone, Default)]
pub(super) struct Guards(Vec<Expr>);

impl Guards {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All as one condition. It leaves out volatile ones, which would be drawn twice.
    pub(super) fn condition(&self) -> Option<Expr> {
        conjunction(self.0.iter().filter(|guard| !guard.is_volatile()).cloned())
    }
}

/// Whether SQL evaluates some operands of an expression only for some rows.
pub(super) fn is_lazy(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }) | Expr::Case(_) => true,
        Expr::ScalarFunction(call) => call.func.name() == "coalesce",
        _ => false,
    }
}

/// Applies `change` to the operands of a lazy expression, in the order of their evaluation, with the guards
/// of each.
pub(super) fn map_lazy(
    expr: Expr,
    guards: &mut Guards,
    mut change: impl FnMut(Expr, &mut Guards) -> Result<Expr>,
) -> Result<Expr> {
    let known = guards.0.len();
    let changed = match expr {
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
            let operands = operands_of(expr, op).into_iter().map(|operand| {
                let operand = change(operand, guards)?;
                guards.0.push(match op {
                    Operator::And => operand.clone().is_not_false(),
                    _ => operand.clone().is_not_true(),
                });
                Ok(operand)
            });
            join_operands(operands.collect::<Result<_>>()?, op)
        }
        // IN, ANY and ALL: both subqueries compute the same, so the second one needs no guard.
        Expr::Case(case) if is_quantified_comparison(&case) => {
            let each = |expr: Expr| change(expr, guards).map(Transformed::yes);
            Expr::Case(case).map_children(each)?.data
        }
        Expr::Case(case) => {
            let base = case.expr.map(|base| change(*base, guards)).transpose()?;
            let mut when_then_expr = Vec::with_capacity(case.when_then_expr.len());
            for (when, then) in case.when_then_expr {
                let when = change(*when, guards)?;
                let condition = match &base {
                    Some(base) => base.clone().eq(when.clone()),
                    None => when.clone(),
                };
                guards.0.push(condition.clone());
                let then = change(*then, guards)?;
                guards.0.pop();
                guards.0.push(condition.is_not_true());
                when_then_expr.push((Box::new(when), Box::new(then)));
            }
            let else_expr = case.else_expr.map(|other| change(*other, guards)).transpose()?;
            let [expr, else_expr] = [base, else_expr].map(|part| part.map(Box::new));
            Expr::Case(Case { expr, when_then_expr, else_expr })
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            let args = args.into_iter().map(|argument| {
                let argument = change(argument, guards)?;
                guards.0.push(argument.clone().is_null());
                Ok(argument)
            });
            let args = args.collect::<Result<_>>()?;
            Expr::ScalarFunction(ScalarFunction { func, args })
        }
        other => other,
    };
    guards.0.truncate(known);
    Ok(changed)
}

/// Whether a CASE is IN, ANY or ALL as a value ([`super::quantified`]).
fn is_quantified_comparison(case: &Case) -> bool {
    let is_of = |(when, then): &(Box<Expr>, Box<Expr>)| {
        matches!(when.as_ref(), Expr::Exists(_)) && matches!(then.as_ref(), Expr::Literal(..))
    };
    let is_unknown = |then: &Expr| matches!(then, Expr::Literal(ScalarValue::Boolean(None), _));
    case.expr.is_none()
        && case.when_then_expr.iter().all(is_of)
        && matches!(case.when_then_expr.as_slice(), [_, (_, then)] if is_unknown(then))
}

/// Whether a subquery may fail for some values of its outer columns.
pub(super) fn plan_may_fail(plan: &LogicalPlan) -> Result<bool> {
    let mut is_fallible = false;
    plan.apply_with_subqueries(|node| {
        let schema = scope(node)?;
        node.apply_expressions(|expr| {
            is_fallible |= expr_may_fail(expr, &schema)?;
            Ok(if is_fallible { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(if is_fallible { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_fallible)
}

/// The check for a single row is a guard function, which [`may_fail_by_row`] does not count.
fn expr_may_fail(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(may_fail_by_row(expr, schema)? || expr.exists(|part| Ok(is_only(part)))?)
}

/// Whether an expression is the check that a subquery returns a single row.
pub(super) fn is_only(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func == only())
}
